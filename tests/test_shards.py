"""Stores in shards: read and trained from as a plain one, here and from a real S3 server; what is damaged is said."""

import os
import pickle
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SMALL, assert_same, make_recording
from shell import run as run_verb
from trainings import RECIPE, assert_same_networks
from trainings import make_store as make_store_to_train_on

from event2vec import Event2VecError, EventStore, Progress, Run, Sensor, copy_store, cross_validate, prepare, train
from event2vec.data import addresses, remote, shard_writer
from event2vec.data.batches import read_together
from event2vec.data.cache import cached_stores
from event2vec.data.opening import StoredSplit
from event2vec.errors import FileError, Unreachable
from event2vec.model.trained_on import TrainedOn
from event2vec.progress import SILENT
from event2vec.training.train import start

pytestmark = pytest.mark.xdist_group("shards")  # one process: one S3 server
SHARD_NAMES = ["000000.bin", "000001.bin", "000002.bin", "000003.bin"]
LENGTHS = (60_000, 50_000, 0, 90_000, 1_000, 130_000, 20_000)  # 9 bytes an event: four shards of a megabyte


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    recordings = [(make_recording(length, seed=index), index % 2) for index, length in enumerate(LENGTHS)]
    splits = ["train"] * 5 + ["test"] * 2
    place = tmp_path_factory.mktemp("data") / "plain"
    return EventStore.create(place, recordings, sensor=SMALL, classes=["a", "b"], splits=splits)


@pytest.fixture(scope="module")
def sharded(plain):
    return copy_store(plain.folder, plain.folder.with_name("sharded"), 1)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """A bucket on an S3 server of this machine."""
    moto = pytest.importorskip("moto.server", reason="needs moto: pip install 'moto[s3]' flask flask-cors")
    s3fs = pytest.importorskip("s3fs", reason="needs s3fs: pip install 'event2vec[remote]'")
    server = moto.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        import boto3

        client = boto3.client("s3")
        client.create_bucket(Bucket="bucket")
        yield client
    s3fs.S3FileSystem.clear_instance_cache()  # which would ask this server for buckets of the next one
    server.stop()


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def address(plain, bucket, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVENT2VEC_CACHE", str(tmp_path_factory.mktemp("first")))
        copy_store(plain.folder, "s3://bucket/deep/store/", 1)
    return "s3://bucket/deep/store"


def assert_same_stores(one, other):
    assert (one.sensor, one.classes, one.splits, one.sources) == (
        other.sensor,
        other.classes,
        other.splits,
        other.sources,
    )
    for index in range(len(one)):
        assert_same(one[index][0], other[index][0])
        assert one[index][1] == other[index][1]
        draws = [store.sample(index, 64, torch.Generator().manual_seed(3))[0] for store in (one, other)]
        assert_same(*draws)
    together = [read_together([(store, index) for index in (6, 2, 0, 4)]) for store in (one, other)]
    for name in ("x", "y", "t", "p", "rho", "valid"):
        assert torch.equal(getattr(together[0][0], name), getattr(together[1][0], name)), name
    assert TrainedOn.of(one) == TrainedOn.of(other)


def test_shards_are_read_as_a_plain_store(plain, sharded):
    assert sorted(path.name for path in (sharded.folder / "shards").iterdir()) == SHARD_NAMES
    assert_same_stores(plain, sharded)
    assert_same_stores(plain, pickle.loads(pickle.dumps(sharded)))
    assert sharded.split("test").shard_numbers.tolist() == [2, 3]
    assert not plain.shard_numbers.any()


def test_preparing_in_shards_gives_the_same_recordings(plain, tmp_path):
    data = [StoredSplit.of(plain, split) for split in ("train", "test")]
    whole, shards = prepare(data, tmp_path / "whole"), prepare(data, tmp_path / "shards", shard_mb=1)
    assert shards.rejected == whole.rejected, "the one without events"
    assert (tmp_path / "shards/rejected.csv").read_bytes() == (tmp_path / "whole/rejected.csv").read_bytes()
    for index in range(len(whole.store)):
        assert_same(whole.store[index][0], shards.store[index][0])
    assert shards.store.groups == whole.store.groups
    assert prepare(data, tmp_path / "shards", shard_mb=1).store.folder == tmp_path / "shards", "nothing is left to do"


class Stopped(Progress):
    """Ctrl-C when the second shard is to be written."""

    def advance(self, done, note=""):
        if note == "000001.bin":
            raise KeyboardInterrupt


def written(monkeypatch):
    """The numbers of the shards that are written from here on."""
    numbers, write = [], shard_writer._write_shard
    monkeypatch.setattr(shard_writer, "_write_shard", lambda piece: (numbers.append(piece.number), write(piece))[1])
    return numbers


def test_a_stopped_preparation_keeps_its_shards(plain, tmp_path, monkeypatch):
    data = [StoredSplit.of(plain, split) for split in ("train", "test")]
    with pytest.raises(KeyboardInterrupt):
        prepare(data, tmp_path / "store", shard_mb=1, progress=Stopped())
    numbers = written(monkeypatch)
    store = prepare(data, tmp_path / "store", shard_mb=1).store
    assert numbers == [1, 2, 3]
    assert sorted(path.name for path in (store.folder / "shards").iterdir()) == SHARD_NAMES
    assert not (tmp_path / "store.partial").exists()
    assert [len(events) for events, _ in (store[index] for index in range(6))] == [each for each in LENGTHS if each]


@pytest.mark.parametrize("kind", ["folder", "address"])
def test_a_stopped_copy_continues_with_what_is_missing(plain, tmp_path, monkeypatch, own_cache, kind):
    out = f"file://{tmp_path}/out" if kind == "address" else tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        copy_store(plain.folder, out, 1, progress=Stopped())
    numbers = written(monkeypatch)
    assert_same_stores(plain, copy_store(plain.folder, out, 1))
    assert numbers == [1, 2, 3]
    assert sorted(path.name for path in (tmp_path / "out/shards").iterdir()) == SHARD_NAMES, "and no notes"
    assert not (tmp_path / "out.partial").exists()


def test_a_disk_that_fills_up_at_the_index_costs_no_shard(plain, tmp_path, monkeypatch):
    out = tmp_path / "why?"  # in a path, this begins no query

    def fail(*_, **__):
        raise FileError(out, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(shard_writer, "write_index", fail)
        with pytest.raises(FileError, match="no space left"):
            copy_store(plain.folder, out, 1)
    numbers = written(monkeypatch)
    assert_same_stores(plain, copy_store(plain.folder, out, 1))
    assert numbers == []


def test_a_shard_of_another_copy_is_not_taken_for_ours(plain, tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        copy_store(plain.folder, tmp_path / "out", 1, progress=Stopped())
    os.truncate(tmp_path / "out.partial/shards/000000.bin", 9)
    numbers = written(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        copy_store(plain.folder, tmp_path / "out", 1, progress=Stopped())
    assert numbers == [0], "it was not whole"
    assert_same_stores(plain, copy_store(plain.folder, tmp_path / "out", 2))
    assert numbers == [0, 0, 1], "larger shards have more in them"
    (tmp_path / "other.partial").mkdir()
    (tmp_path / "other.partial/mine").touch()
    with pytest.raises(FileError, match=r"other.partial: exists and is not an unfinished copy: it has 'mine'. Move it"):
        copy_store(plain.folder, tmp_path / "other", 1)


def make_part(place, seed):
    recordings = [(make_recording(30, seed=seed + each), each) for each in range(2)]
    return EventStore.create(place, recordings, sensor=SMALL, classes=["a", "b"], splits=["train", "test"])


def test_several_stores_become_one(tmp_path, own_cache, capsys):
    one, two = make_part(tmp_path / "one", 0), make_part(tmp_path / "two", 5)
    assert run_verb("copy", one.folder, two.folder, tmp_path / "both") == 0
    assert "both: 4 recordings, 120 events" in capsys.readouterr().err
    both = EventStore.open(tmp_path / "both")
    assert both.labels.tolist() == [0, 1, 0, 1]
    assert both.splits == ("train", "test") * 2
    for index, store in enumerate((one, one, two, two)):
        assert_same(both[index][0], store[index % 2][0])
    again = copy_store([both.folder, make_part(tmp_path / "three", 9).folder], f"file://{tmp_path}/all")
    assert_same(again[3][0], two[1][0])
    assert len(again) == 6


@pytest.mark.parametrize(
    ("others", "message"),
    [
        (
            {"classes": ["a", "c"]},
            r"other: has the classes a, c, and .*one has the classes a, b. Prepare both in the same way",
        ),
        ({"sensor": (64, 64)}, r"other: has a sensor of 64x64, and .*one has a sensor of 34x30. Prepare both"),
    ],
)
def test_stores_that_do_not_fit_together_are_refused(tmp_path, others, message):
    one = make_part(tmp_path / "one", 0)
    recordings = [(replace(make_recording(30), sensor=Sensor.of(others.get("sensor", SMALL))), 0)]
    facts: dict[str, Any] = {"sensor": SMALL, "classes": ["a", "b"]} | others
    EventStore.create(tmp_path / "other", recordings, **facts)
    with pytest.raises(FileError, match=message):
        copy_store([one.folder, tmp_path / "other"], tmp_path / "both")
    with pytest.raises(FileError, match="one: is given twice"):
        copy_store([one.folder, one.folder], tmp_path / "both")


def test_clusters_are_not_mixed_with_events(tmp_path):
    one = make_part(tmp_path / "one", 0)
    clusters = replace(make_recording(30), rho=torch.full((30,), 4.0))
    EventStore.create(tmp_path / "other", [(clusters, 0)], sensor=SMALL, classes=["a", "b"])
    with pytest.raises(
        FileError, match=r"has clusters, 1 set of a recording, and .*one has all events of its recordings"
    ):
        copy_store([one.folder, tmp_path / "other"], tmp_path / "both")


def test_sets_of_clusters_survive_shards(tmp_path):
    recordings = [(make_recording(20, seed=index), 0) for index in range(6)]
    source = EventStore.create(tmp_path / "plain", recordings, sensor=SMALL, classes=["a"], sets=[0, 1] * 3)
    copied = copy_store(source.folder, tmp_path / "copied")
    for one, other in zip(source.sets("train"), copied.sets("train"), strict=True):
        assert_same(one[2][0], other[2][0])
    assert np.array_equal(copied.recorded, source.recorded)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), r"000001.bin: is missing: a shard of the store. Copy or prepare it again"),
        (lambda path: os.truncate(path, 1000), r"000001.bin: has 1,000 bytes, expected 819,000"),
    ],
)
def test_a_damaged_shard_is_one_line(plain, tmp_path, damage, message):
    store = copy_store(plain.folder, tmp_path / "store", 1)
    damage(tmp_path / "store/shards/000001.bin")
    with pytest.raises(Event2VecError, match=message):
        _ = store[3]
    assert len(store[0][0]) == LENGTHS[0], "others are as they were"


def test_a_store_on_s3_is_read_as_the_one_here(plain, address, own_cache):
    store = EventStore.open(address)
    assert not list((store.folder / "shards").glob("*.bin")), "nothing is fetched before it is needed"
    _ = store[0]
    assert len(list((store.folder / "shards").glob("*.bin"))) == 1
    assert_same_stores(plain, store)
    assert_same_stores(plain, pickle.loads(pickle.dumps(EventStore.open(address + "/"))))
    (entry,) = cached_stores()
    assert (entry.made_of, entry.recordings) == (address, 7)


def test_shards_are_fetched_once_and_take_bounded_space(plain, address, own_cache, monkeypatch):
    fetched, download = [], remote._download
    monkeypatch.setattr(remote, "_download", lambda *arguments: (fetched.append(arguments[0]), download(*arguments)))
    with ThreadPoolExecutor(4) as threads:
        stores = [EventStore.open(address) for _ in range(4)]
        for events, _ in threads.map(lambda store: store[0], stores):
            assert_same(events, plain[0][0])
    assert len(fetched) == 1
    monkeypatch.setenv("EVENT2VEC_SHARDS_GB", "0.0015")
    store = EventStore.open(address)
    for index in (5, 3, 0, 3):
        assert_same(store[index][0], plain[index][0])
        assert sum(path.stat().st_size for path in store.folder.glob("shards/*.bin")) <= 1.5e6
    assert_same_stores(plain, EventStore.open(address))


@pytest.mark.slow
def test_a_run_on_s3_is_the_run_on_a_plain_store(bucket, own_cache, tmp_path):
    source = make_store_to_train_on(tmp_path / "plain")
    copy_store(source.folder, "s3://bucket/train")
    recipe = RECIPE.with_settings({"training.epochs": 1, "data.workers": 1})
    train(recipe, source, tmp_path / "one")
    run = train(recipe, "s3://bucket/train", tmp_path / "two")
    assert_same_networks(tmp_path / "one", tmp_path / "two")
    assert run.facts.source == "s3://bucket/train"
    for path in own_cache.iterdir():  # as on a machine that has not read it yet
        path.rename(tmp_path / path.name)
    assert Run.open(run.folder).evaluate(repeats=1).accuracy == run.evaluate("s3://bucket/train", repeats=1).accuracy


def test_what_is_wrong_elsewhere_is_one_line(bucket, address, own_cache, plain, monkeypatch):
    with pytest.raises(Event2VecError, match=r"^s3://nowhere/store: was not found: no such bucket, or no such file"):
        EventStore.open("s3://nowhere/store")
    with pytest.raises(Event2VecError, match=r"^s3://nowhere/store.*: was not found: no such bucket"):
        copy_store(plain.folder, "s3://nowhere/store")
    with pytest.raises(Event2VecError, match=r"has a store already. Choose another address"):
        copy_store(plain.folder, address)
    with pytest.raises(Event2VecError, match=r"^odd://a/b: cannot be reached: ValueError: Protocol not known: odd"):
        EventStore.open("odd://a/b")
    good = bucket.get_object(Bucket="bucket", Key="deep/store/shards/000000.bin")["Body"].read()
    for damaged, problem in (
        (good[:-8], "bytes, expected"),
        (b"\1" + good[1:], "is damaged: its checksum is not that"),
    ):
        bucket.put_object(Bucket="bucket", Key="deep/store/shards/000000.bin", Body=damaged)
        with pytest.raises(Event2VecError, match=rf"^{address}/shards/000000.bin.*{problem}"):
            _ = EventStore.open(address)[0]
    bucket.delete_object(Bucket="bucket", Key="deep/store/shards/000000.bin")
    with pytest.raises(Event2VecError, match=rf"^{address}/shards/000000.bin: was not found"):
        _ = EventStore.open(address)[0]
    bucket.put_object(Bucket="bucket", Key="deep/store/shards/000000.bin", Body=good)
    assert not list(own_cache.rglob("*.bin")), "nothing damaged is kept"


@pytest.fixture
def website(tmp_path):
    """A folder that a web server of this machine shows, and its address."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    folder = tmp_path / "site"
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_address[1]}/store"
        server.shutdown()
        thread.join()


def test_a_replaced_store_of_the_same_size_is_read_as_it_is_now(website, own_cache, tmp_path):
    folder, address = website
    for name in ("one", "two"):
        recordings = [(make_recording(20, seed=len(name)), 0)]
        made = EventStore.create(tmp_path / name, recordings, sensor=SMALL, classes=[name])
        copied = copy_store(made.folder, folder / "store")
        with ThreadPoolExecutor(4) as threads:
            for store in threads.map(EventStore.open, [address] * 4):
                assert store.classes == copied.classes == (name,)
        (folder / "store").rename(folder / name)
    assert len(cached_stores()) == 2
    assert (folder / "one/store.json").stat().st_size == (folder / "two/store.json").stat().st_size


def test_other_labels_alone_are_noticed_elsewhere(own_cache, tmp_path):
    recordings = [make_recording(20, seed=index) for index in range(4)]
    address = f"file://{tmp_path}/there"
    for name, labels in (("one", [0, 0, 1, 1]), ("two", [1, 1, 0, 0])):
        pairs = list(zip(recordings, labels, strict=True))
        made = EventStore.create(tmp_path / name, pairs, sensor=SMALL, classes=["a", "b"])
        shutil.rmtree(tmp_path / "there", ignore_errors=True)
        assert copy_store(made.folder, address).labels.tolist() == labels
        assert EventStore.open(address).labels.tolist() == labels


def test_an_index_of_two_stores_is_refused(own_cache, tmp_path):
    """As it is fetched while another store is copied over it."""
    made = EventStore.create(tmp_path / "made", [(make_recording(20), 0)], sensor=SMALL, classes=["a", "b"])
    there = copy_store(made.folder, tmp_path / "there").folder
    np.save(there / "labels.npy", np.array([1]))
    with pytest.raises(FileError, match=r"there/labels.npy: is not what store.json describes: the store is being repl"):
        EventStore.open(f"file://{there}")
    assert not cached_stores(), "nothing of it is kept"
    with pytest.raises(FileError, match=r"made/store.json: is not the index of a store in shards. Copy the store ther"):
        EventStore.open(f"file://{made.folder}")


@pytest.fixture
def elsewhere(plain, tmp_path, own_cache):
    """A store at an address, opened."""
    return EventStore.open(f"file://{copy_store(plain.folder, tmp_path / 'there', 1).folder}")


def test_a_shard_that_is_damaged_in_the_cache_is_fetched_again(plain, elsewhere):
    _ = elsewhere[0]
    os.truncate(elsewhere.folder / "shards/000000.bin", 1000)
    assert_same_stores(plain, pickle.loads(pickle.dumps(elsewhere)))


def test_a_cache_that_is_removed_under_a_reader_is_made_again(plain, elsewhere):
    shutil.rmtree(elsewhere.folder)
    assert_same(elsewhere[3][0], plain[3][0])
    assert not (elsewhere.folder / "store.json").exists()
    assert_same_stores(plain, EventStore.open(f"file://{elsewhere.folder.parents[1]}/there"))


@pytest.mark.parametrize("room", ["nan", "inf", "-1", "much"])
def test_room_for_shards_is_a_number_and_is_read_first(elsewhere, monkeypatch, room):
    monkeypatch.setenv("EVENT2VEC_SHARDS_GB", room)
    with pytest.raises(Event2VecError, match=f"EVENT2VEC_SHARDS_GB must be .*such as 20, got '{room}'"):
        _ = elsewhere[0]
    assert not list((elsewhere.folder / "shards").iterdir())


def test_a_store_without_recordings_can_be_in_shards(tmp_path):
    made = EventStore.create(tmp_path / "made", [], sensor=SMALL, classes=["a"])
    copied = copy_store(made.folder, tmp_path / "copied")
    assert len(copied) == len(copied.lengths) == len(copied.durations) == len(copied.shard_numbers) == 0
    assert copied.columns["t"].dtype == np.uint32
    assert len(copy_store(copied.folder, f"file://{tmp_path}/there")) == 0


def test_what_is_wrong_on_the_way_has_its_own_remedy(website, own_cache, tmp_path, plain, monkeypatch):
    folder, address = website
    copy_store(plain.folder, folder / "store")
    (tmp_path / "file").touch()
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path / "file/cache"))
    with pytest.raises(FileError, match=r"file/cache.*: cannot be written: Not a directory. Set EVENT2VEC_CACHE"):
        EventStore.open(address)
    with pytest.raises(Unreachable, match=r"^http://127.0.0.1:9/store: cannot be reached.*Check the network"):
        EventStore.open("http://127.0.0.1:9/store")


SECRET = (
    "http://127.0.0.1:9/store?token=swordfish",
    "http://swordfish@127.0.0.1:9/store",
    "sftp://anna:se@swordfish@a/store",
)


@pytest.mark.parametrize("address", SECRET)
def test_addresses_with_secrets_are_refused_and_never_kept(address, own_cache, tmp_path, plain, monkeypatch, capsys):
    """Runs, reports and the cache would keep them. Neither message nor folder shows any."""
    monkeypatch.chdir(tmp_path)
    calls = (
        lambda: EventStore.open(address),
        lambda: train("folder", address),
        lambda: start("train", "folder", address, None, None, 1, SILENT, {"data.group_by": "none"}),
        lambda: cross_validate("folder", address, folds=2),
        lambda: copy_store(plain.folder, address),
    )
    for call in calls:
        with pytest.raises(FileError, match=r"has a query|with a password or a token|is a store, made with") as error:
            call()
        assert "swordfish" not in str(error.value)
        assert "swordfish" not in repr(error.value)
    assert run_verb("copy", plain.folder, address) == 2
    assert "swordfish" not in "".join(capsys.readouterr())
    assert not own_cache.exists()
    assert not (tmp_path / "runs").exists()


def test_addresses_have_one_form(own_cache, tmp_path):
    made = EventStore.create(tmp_path / "made", [(make_recording(20), 0)], sensor=SMALL, classes=["a"])
    address = f"file://{copy_store(made.folder, tmp_path / 'there').folder}"
    assert EventStore.open(f"FILE{address[4:]}/").folder == EventStore.open(address).folder
    assert addresses.whole_name("S3://a/B") == "s3://a/B"


def test_an_address_is_no_folder_to_write(plain, capsys):
    with pytest.raises(FileError, match=r"^s3://a/b: is an address, expected a folder.*event2vec copy FOLDER ADDRESS"):
        prepare([StoredSplit.of(plain, "train")], "s3://a/b")
    for verb in (("prepare", "digits"), ("train", "digits"), ("compare", "--recipe", "digits")):
        assert run_verb(*verb, "--out", "s3://a/b") == 2
        assert "s3://a/b: is an address, expected a folder to write" in capsys.readouterr().err
    assert not Path("s3:").exists()


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(
        Event2VecError, match=r"^s3://a/b: needs an optional package. Run: pip install 'event2vec\[remote"
    ):
        EventStore.open("s3://a/b")


def test_paths_are_not_addresses():
    assert addresses.whole_name("s3://a/b/") == "s3://a/b"
    assert addresses.whole_name(Path("here")) == str(Path("here").resolve())
    assert not addresses.is_address("C:/x://y")
