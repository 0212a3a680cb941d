"""The cache: what was prepared is found again, listed, removed on request, and made again for a run that needs it."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest
from conftest import assert_same
from processes import SECONDS_TO_END

import event2vec.data.cache as module
from event2vec import Event2VecError, EventStore, Sampling, Sensor, cluster_events, open_dataset, write_events
from event2vec.cli import main
from event2vec.clustering import BatchedKMeans
from event2vec.clustering.alternatives import Alternative
from event2vec.data.cache import cache_folder, cached_stores, remove_cached
from event2vec.data.opening import open_for_training, reopen_for_training
from event2vec.data.prepare import prepare
from event2vec.errors import Busy
from event2vec.machine.atomic import SUFFIX
from event2vec.progress import Progress

CLUSTERS = Sampling(method="clusters", length=16)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def root(tmp_path, make_events):
    """Recordings as a user has them: ten in each of two classes."""
    for name in ("left", "right"):
        for number in range(10):
            write_events(tmp_path / "data" / name / f"{number}.npz", make_events(30 + number, seed=number))
    return tmp_path / "data"


@pytest.fixture
def raw(tmp_path, make_events):
    recordings = [(make_events(60, seed=index), index % 2) for index in range(6)]
    splits = ["train"] * 4 + ["test"] * 2
    return EventStore.create(tmp_path / "raw", recordings, sensor=(34, 30), classes=["a", "b"], splits=splits)


def test_the_cache_is_where_the_user_wants_it(monkeypatch, tmp_path):
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("EVENT2VEC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "event2vec"


def test_training_data_is_found_again_and_clustered_once(raw, cache):
    random = open_for_training(raw.folder, "folder", Sampling(length=16)).store
    assert random.folder == raw.folder, "random events are drawn from the store as it is"
    clustered = open_for_training(raw.folder, "folder", CLUSTERS).store
    assert clustered.folder.parent == cache
    assert (clustered.splits, clustered.classes) == (raw.splits, raw.classes)
    assert clustered.labels.tolist() == raw.labels.tolist()
    for index in range(6):
        assert_same(clustered[index][0], cluster_events(raw[index][0], 16))
    again = open_for_training(raw.folder, "folder", CLUSTERS).store
    assert again.folder == clustered.folder
    assert open_for_training(clustered.folder, "folder", CLUSTERS).store.folder == clustered.folder


def test_what_training_needs_is_asked_for(tmp_path):
    with pytest.raises(Event2VecError, match="`data` is required: a prepared store, or the folder with"):
        open_for_training(None, "nmnist", CLUSTERS)
    with pytest.raises(Event2VecError, match="The digits are built in: omit `data`"):
        open_for_training(tmp_path, "digits", CLUSTERS)


def test_every_file_is_looked_at_once(root, monkeypatch):
    from event2vec.data.datasets.dataset import FileDataset

    looked, fingerprint = [], FileDataset.fingerprint
    monkeypatch.setattr(
        FileDataset, "fingerprint", lambda self, index: looked.append(self.sources[index]) or fingerprint(self, index)
    )
    store = open_for_training(root, "folder", CLUSTERS).store
    assert looked == list(store.sources), "the name of the folder and the preparation share one plan"


def test_of_a_data_set_only_the_split_that_is_needed_is_prepared(root, tmp_path, make_events):
    for split, count in (("train", 3), ("test", 2)):
        for number in range(count):
            events = make_events(40, seed=number, sensor=Sensor(128, 128))
            write_events(tmp_path / f"lip/{split}/word/{number}.npz", events)
    part = open_for_training(tmp_path / "lip", "dvs_lip", Sampling(), only="test").store
    assert part.splits == ("test", "test")
    whole = open_for_training(tmp_path / "lip", "dvs_lip", Sampling()).store
    assert len(whole) == 5
    assert_same(whole.split("test")[1][0], part[1][0])
    assert len(open_for_training(tmp_path / "lip", "dvs_lip", Sampling(), only="validation").store) == 5, "not its own"
    folder = open_for_training(root, "folder", Sampling(), only="test").store
    assert set(folder.splits) == {"train", "test"}, "its cameras choose the sensor together"


def test_sets_of_clusters_are_made_of_the_first_set(root, tmp_path):
    datasets = [open_dataset("folder", root, split) for split in ("train", "test")]
    sets = prepare(datasets, tmp_path / "sets", clusters=8, clusterings=2).store
    few = Sampling(method="clusters", length=4, clusterings=3)
    fewer = open_for_training(sets.folder, "folder", few).store
    assert [len(one) for one in fewer.sets("train")] == [16, 16, 16]
    assert_same(fewer.split("train")[5][0], cluster_events(sets.split("train")[5][0], 4))
    assert fewer.splits.count("test") == 4
    nine = Sampling(method="clusters", length=4, clusterings=9)
    assert open_for_training(fewer.folder, "folder", nine).store.folder == fewer.folder, "has its own"


def test_clusters_keep_splits_of_other_names(tmp_path, make_events):
    recordings = [(make_events(60, seed=index), 0) for index in range(3)]
    names = {"sensor": recordings[0][0].sensor, "classes": ["a"], "splits": ["train", "valid", "train 2"]}
    raw = EventStore.create(tmp_path / "raw", recordings, **names)
    sampling = Sampling(method="clusters", length=8, clusterings=2)
    few = open_for_training(raw.folder, "folder", sampling).store
    assert few.splits == ("train", "valid", "train 2")
    assert [len(few.sets(split)) for split in few.splits] == [2, 1, 1]


def test_another_engine_makes_its_own_store(raw):
    ours = open_for_training(raw.folder, "folder", CLUSTERS).store
    same = open_for_training(raw.folder, "folder", CLUSTERS, engine=BatchedKMeans()).store
    assert same.folder == ours.folder
    plain = open_for_training(raw.folder, "folder", Sampling(method="clusters", length=16, seeding="plain")).store
    other = Alternative("scikit-learn", 3)
    sklearn = open_for_training(raw.folder, "folder", CLUSTERS, workers=2, engine=other).store
    folders = {ours.folder, sklearn.folder, plain.folder}
    assert len(folders) == 3
    assert_same(sklearn[1][0], other(raw[1][0], 16))
    assert {entry.made_of for entry in cached_stores()} >= {
        f"the store {raw.folder}, 16 clusters",
        f"the store {raw.folder}, 16 clusters by scikit-learn 3",
    }


def test_what_lies_in_the_cache_is_listed_the_last_used_first(root, raw, cache):
    assert cached_stores() == []
    two = Sampling(method="clusters", length=16, clusterings=2)
    first = open_for_training(root, "folder", two).store
    second = open_for_training(raw.folder, "folder", CLUSTERS).store
    for folder, age in ((first.folder, 500), (second.folder, 100)):
        os.utime(folder, (time.time() - age,) * 2)
    newer, older = cached_stores()
    assert (older.name, older.recordings, older.made_of) == (
        first.folder.name,
        20,
        f"folder in {root}, 16 clusters in 2 sets",
    )
    assert (newer.name, newer.recordings) == (second.folder.name, 6)
    assert older.size == sum(path.stat().st_size for path in first.folder.iterdir())
    open_for_training(first.folder, "folder", CLUSTERS)
    assert [entry.name for entry in cached_stores()] == [older.name, newer.name], "opening it is a use"


def test_what_is_not_ours_is_neither_listed_nor_removed(root, cache, tmp_path):
    store = open_for_training(root, "folder", CLUSTERS).store
    shutil.copytree(store.folder, tmp_path / "elsewhere-0123456789ab")
    (cache / "thesis").mkdir()
    (cache / "thesis" / "store.json").touch()
    (cache / "holiday-0123456789ab").mkdir()
    (cache / "holiday-0123456789ab" / "beach.jpg").touch()
    (cache / "link-0123456789ab").symlink_to(tmp_path / "elsewhere-0123456789ab")
    (cache / "parts-0123456789ab.partial").mkdir()
    (cache / "parts-0123456789ab.partial" / "mine.txt").touch()
    assert [entry.name for entry in cached_stores()] == [store.folder.name]
    for name in ("thesis", "holiday-0123456789ab", "link-0123456789ab", "parts-0123456789ab", "", "."):
        with pytest.raises(Event2VecError, match=rf"has no entry '.*'; it has {store.folder.name}"):
            remove_cached(name)
    for name in ("../elsewhere-0123456789ab", str(tmp_path / "elsewhere-0123456789ab")):
        with pytest.raises(Event2VecError, match="has no entry"):
            remove_cached(name)
    assert len(EventStore.open(tmp_path / "elsewhere-0123456789ab")) == 20


def test_an_entry_is_removed_and_made_again_with_the_same_bytes(root, cache):
    store = open_for_training(root, "folder", CLUSTERS).store
    content = {path.name: path.read_bytes() for path in store.folder.iterdir()}
    removed = remove_cached(store.folder.name)
    assert (removed.name, removed.recordings) == (store.folder.name, 20)
    assert removed.size == sum(map(len, content.values()))
    assert list(cache.iterdir()) == []
    again = open_for_training(root, "folder", CLUSTERS).store
    assert again.folder == store.folder
    assert {path.name: path.read_bytes() for path in again.folder.iterdir()} == content


class Stop(Progress):
    def advance(self, done, note=""):
        if done:
            raise KeyboardInterrupt


def test_what_a_kill_left_is_listed_and_removed(root, cache):
    with pytest.raises(KeyboardInterrupt):
        open_for_training(root, "folder", CLUSTERS, progress=Stop())
    (entry,) = cached_stores()
    assert (entry.state, entry.recordings) == ("unfinished", None)
    assert entry.size > 0
    remove_cached(entry.name)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("whole", [True, False])
def test_a_removal_that_was_killed_is_finished_by_the_next(root, cache, whole, monkeypatch):
    """Before the files went, and after."""
    name = open_for_training(root, "folder", CLUSTERS).store.folder.name

    def kill(folder):
        if not whole:
            (folder / "removed" / "x.bin").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "remove_parts", kill)
        with pytest.raises(KeyboardInterrupt):
            remove_cached(name)
    (entry,) = cached_stores()
    assert (entry.name, entry.state) == (name, "unfinished")
    shutil.copytree(cache, cache.with_name("copy"))
    remove_cached(name)
    assert list(cache.iterdir()) == []
    shutil.rmtree(cache)
    cache.with_name("copy").rename(cache)
    assert len(open_for_training(root, "folder", CLUSTERS).store) == 20, "or by the next that needs the store"
    assert [path.name for path in cache.iterdir()] == [name]


@pytest.mark.parametrize(
    "left", [[".lock"], [".lock", f".plan.0123abcd{SUFFIX}/.lock", f".plan.0123abcd{SUFFIX}/plan"]]
)
@pytest.mark.parametrize("remove", [True, False])
def test_a_removal_that_was_killed_at_once_leaves_the_store(root, cache, left, remove):
    store = open_for_training(root, "folder", CLUSTERS).store
    for name in left:
        path = cache / f"{store.folder.name}.partial" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (entry,) = cached_stores()
    assert entry.recordings == 20
    if remove:
        remove_cached(entry.name)
        assert list(cache.iterdir()) == []
    else:
        assert len(open_for_training(root, "folder", CLUSTERS).store) == 20
        assert [path.name for path in cache.iterdir()] == [entry.name]


def test_a_store_that_cannot_be_read_is_listed_and_removed(root, cache):
    store = open_for_training(root, "folder", CLUSTERS).store
    path = store.folder / "store.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 1}))
    (entry,) = cached_stores()
    assert (entry.state, entry.recordings) == ("unusable", None)
    assert entry.problem is not None
    assert "has layout version 1, this program reads 3" in entry.problem
    remove_cached(entry.name)
    assert list(cache.iterdir()) == []


READ = """
import sys
from event2vec import Sampling
from event2vec.data.opening import open_for_training
store = open_for_training(sys.argv[1], "folder", Sampling(method="clusters", length=16)).store
print(len(store), flush=True)
sys.stdin.read()
"""
PREPARE = """
import sys
from event2vec import Sampling
from event2vec.data.opening import open_for_training
from event2vec.progress import Progress
class Wait(Progress):
    def advance(self, done, note=""):
        if done == 2:
            print(done, flush=True)
            sys.stdin.read()
open_for_training(sys.argv[1], "folder", Sampling(method="clusters", length=16), progress=Wait())
"""


@pytest.mark.parametrize(("program", "state"), [(READ, "in use"), (PREPARE, "being prepared")])
def test_what_another_process_works_on_is_refused_until_it_ends(root, cache, program, state):
    command = [sys.executable, "-c", program, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline()
        (entry,) = cached_stores()
        assert entry.state == state
        with pytest.raises(Busy, match=r"in use by .*; wait for it to finish"):
            remove_cached(entry.name)
        process.stdin.close()
        assert process.wait(SECONDS_TO_END) == 0
    (entry,) = cached_stores()
    assert (entry.state, entry.recordings) == ("ready", 20)
    remove_cached(entry.name)
    assert list(cache.iterdir()) == []


@pytest.fixture
def trained(root):
    """The store that a run reads, as the run recorded it."""
    return open_for_training(root, "folder", CLUSTERS).store.folder


def test_a_run_reads_its_store_where_it_lies(trained, root):
    shutil.rmtree(root)
    assert len(reopen_for_training(trained, str(root), "folder", CLUSTERS)) == 20


def test_a_store_that_is_gone_is_made_again_from_its_source(trained, root, raw, monkeypatch, tmp_path):
    content = {path.name: path.read_bytes() for path in trained.iterdir()}
    remove_cached(trained.name)
    again = reopen_for_training(trained, str(root), "folder", CLUSTERS)
    assert again.folder == trained
    assert {path.name: path.read_bytes() for path in trained.iterdir()} == content
    of_store = open_for_training(raw.folder, "folder", CLUSTERS).store.folder
    remove_cached(of_store.name)
    assert reopen_for_training(of_store, str(raw.folder), "folder", CLUSTERS).folder == of_store
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path / "other"))
    remaining = reopen_for_training(trained.with_name("gone") / trained.name, str(root), "folder", CLUSTERS)
    assert remaining.folder == tmp_path / "other" / trained.name, "the cache may have moved"


def test_a_source_that_changed_is_refused_before_any_work(trained, root, cache, make_events):
    remove_cached(trained.name)
    write_events(root / "left" / "0.npz", make_events(99))
    with pytest.raises(Event2VecError, match=rf"{trained.name}: is gone, and '.*data' would not give the same store"):
        reopen_for_training(trained, str(root), "folder", CLUSTERS)
    with pytest.raises(Event2VecError, match="would not give the same store"):
        reopen_for_training(trained, str(root), "folder", Sampling(method="clusters", length=15))
    assert list(cache.iterdir()) == []


def test_a_store_that_cannot_be_made_again_says_why(trained, root, raw, tmp_path):
    remove_cached(trained.name)
    shutil.rmtree(root)
    with pytest.raises(Event2VecError, match=r"is gone and cannot be rebuilt: .*data: does not exist"):
        reopen_for_training(trained, str(root), "folder", CLUSTERS)
    with pytest.raises(Event2VecError, match="is gone and cannot be rebuilt: `data` is required"):
        reopen_for_training(trained, None, "folder", CLUSTERS)
    with pytest.raises(Event2VecError, match=r"store: is gone, and event2vec did not make it .*`data`"):
        reopen_for_training(tmp_path / "store", str(tmp_path / "store"), "folder", Sampling())
    with pytest.raises(Event2VecError, match="is gone, and event2vec did not make it from other data"):
        reopen_for_training(trained, str(trained), "folder", Sampling())
    with pytest.raises(Event2VecError, match="would not give the same store"):
        reopen_for_training(trained, str(raw.folder), "folder", Sampling())


def test_the_verb_lists_and_removes(root, raw, cache, capsys):
    assert main(["cache"]) == 0
    assert capsys.readouterr().err == f"0 entries, 0 bytes in {cache}\n"
    stores = [open_for_training(data, "folder", CLUSTERS).store for data in (root, raw.folder)]
    assert main(["cache"]) == 0
    said = capsys.readouterr()
    assert f"folder in {root}, 16 clusters" in said.out
    assert said.out.count("kB") == 2
    assert said.err.startswith("2 entries, ")
    assert main(["cache", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["folder"] == str(cache)
    assert {each["name"]: each["recordings"] for each in facts["stores"]} == {
        stores[0].folder.name: 20,
        stores[1].folder.name: 6,
    }
    assert main(["cache", "--remove", stores[1].folder.name, "nonsense"]) == 2, "what there is, is removed"
    said = capsys.readouterr().err
    assert f"removed {stores[1].folder.name}, " in said
    assert f"has no entry 'nonsense'; it has {stores[0].folder.name}" in said
    assert "freed" in said
    assert main(["cache", "--remove-all", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["removed"], facts["refused"]) == ([stores[0].folder.name], [])
    assert facts["freed"] > 0
    assert list(cache.iterdir()) == []
    assert main(["cache", "--remove-all", "--remove", "x"]) == 2
    assert "--remove and --remove-all cannot be combined; omit one" in capsys.readouterr().err
