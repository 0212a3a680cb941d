"""Preparing: every recording accounted for, the same store whatever the number of workers, and work taken up again."""

import csv
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from conftest import SMALL, assert_same, make_recording
from processes import NEEDS_PROC, SECONDS_TO_END, state_of

import event2vec.data.part_workers as module
import event2vec.data.parts as parts
from event2vec import (
    Event2VecError,
    EventBatch,
    EventStore,
    ModelConfig,
    Sampling,
    Sensor,
    build_model,
    cluster_events,
    open_dataset,
    write_events,
)
from event2vec.clustering.compiled_engine import library
from event2vec.data.datasets import open_splits
from event2vec.data.prepare import prepare
from event2vec.errors import Event2VecWarning
from event2vec.machine.atomic import SUFFIX
from event2vec.progress import Progress


@pytest.fixture
def root(tmp_path, make_events):
    from event2vec import write_events

    for name in ("left", "right"):
        for number in range(8):
            write_events(tmp_path / "data" / name / f"{number}.npz", make_events(20 + number, seed=number))
    return tmp_path / "data"


def both(root, **options):
    return [open_dataset("folder", root, split, **options) for split in ("train", "test")]


class Called(Progress):
    """Notes how much is done, and calls a function with it."""

    def __init__(self, call=lambda done: None):
        self.call, self.stages, self.seen = call, [], []

    def start(self, title, total=None):
        self.stages.append((title, total))

    def advance(self, done, note=""):
        self.seen.append(done)
        self.call(done)


def stop_at(count):
    def stop(done):
        if done >= count:
            raise KeyboardInterrupt

    return Called(stop)


def test_a_store_holds_every_recording_in_order(root, tmp_path):
    datasets = both(root)
    progress = Called()
    report = prepare(datasets, tmp_path / "store", progress=progress)
    store = report.store
    assert store.sources == datasets[0].sources + datasets[1].sources
    assert store.splits == ("train",) * 12 + ("test",) * 4
    assert (store.classes, store.sensor) == (("left", "right"), Sensor(34, 30))
    assert_same(store.split("test")[2][0], datasets[1][2][0])
    assert progress.stages == [("preparing folder", 16)]
    assert progress.seen == list(range(17))
    assert report.rejected == ()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(("store", ".store"))] == ["store"]


PART = """
import sys
from pathlib import Path
from event2vec.data.clusters import Clusters
from event2vec.clustering.compiled_engine import library
from event2vec.data.datasets import open_splits
from event2vec.data.parts import cut_into_parts
from event2vec.data.part_workers import _start_worker, _write_number
parts = cut_into_parts(open_splits("folder", sys.argv[1]), Path(sys.argv[2]), Clusters(8))
_start_worker(parts)
assert all(_write_number(number) == len(part) for number, part in enumerate(parts))
assert "torch" not in sys.modules
"""


def test_a_worker_needs_no_torch(root, tmp_path):
    """It would take each of them a second and 180 MB."""
    if library() is None:
        pytest.skip("without its compiled part event2vec clusters with torch")
    subprocess.run([sys.executable, "-c", PART, root, tmp_path / "parts"], check=True, timeout=SECONDS_TO_END)


def test_the_number_of_workers_changes_nothing(root, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "PARTS", 5)
    (root / "left" / "broken.npz").write_bytes(b"PK\x03\x04 no more")
    for workers in (1, 3):
        prepare(both(root), tmp_path / f"store{workers}", workers)
    names = sorted(path.name for path in (tmp_path / "store1").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "store3").iterdir())
    for name in names:
        assert (tmp_path / "store1" / name).read_bytes() == (tmp_path / "store3" / name).read_bytes(), name


def test_what_cannot_be_used_is_listed_and_the_rest_goes_on(root, tmp_path, make_events):
    from event2vec import write_events

    (root / "left" / "broken.npz").write_bytes(b"PK\x03\x04 no more")
    write_events(root / "left" / "empty.npz", make_events(0))
    write_events(root / "left" / "other.npz", make_events(9, sensor=Sensor(50, 50)))
    (root / "right" / "cut.bin").write_bytes(bytes([1, 2, 0x80, 0, 5, 9]))  # declares 34x34, as N-MNIST has
    report = prepare(both(root), tmp_path / "store")
    reasons = {note.source: note.message for note in report.rejected}
    assert set(reasons) == {"left/broken.npz", "left/empty.npz"}
    assert "Is the file complete" in reasons["left/broken.npz"]
    assert "broken.npz" not in reasons["left/broken.npz"], "the recording is named once"
    assert reasons["left/empty.npz"] == "holds no events"
    assert len(report.store) == 18, "recordings of other sensors are scaled"
    assert report.store.facts["scaled"] == {"50x50": 1, "34x34": 1}
    with (tmp_path / "store" / "rejected.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["source", "split", "reason"]
    assert {row[0] for row in rows[1:]} == set(reasons)
    assert [note.source for note in report.warnings] == ["right/cut.bin"]
    again = prepare(both(root), tmp_path / "store")
    assert (again.rejected, again.warnings) == (report.rejected, report.warnings)


def test_files_that_name_no_sensor_share_the_smallest_that_holds_all(tmp_path):
    for name, (x, y) in (("a", (5, 20)), ("b", (30, 2))):
        for number in range(2):
            (tmp_path / "data" / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / "data" / name / f"{number}.txt").write_text(f"0 {x} {y} 1\n5 0 0 0\n")
    assert prepare(both(tmp_path / "data"), tmp_path / "store").store.sensor == Sensor(31, 21)


def test_one_file_that_names_its_sensor_does_not_outvote_many_that_do_not(tmp_path):
    for number in range(9):
        (tmp_path / "data" / "a").mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / "a" / f"{number}.txt").write_text("0 99 99 1\n5 0 0 0\n")
    (tmp_path / "data" / "a" / "digit.bin").write_bytes(bytes([1, 2, 0x80, 0, 5]))
    report = prepare(both(tmp_path / "data"), tmp_path / "store")
    assert (report.store.sensor, len(report.store)) == (Sensor(100, 100), 10)
    assert report.store.facts["scaled"] == {"34x34": 1}


def test_a_folder_of_the_users_is_not_removed(root, tmp_path):
    (tmp_path / "store.partial").mkdir()
    (tmp_path / "store.partial" / "thesis.tex").touch()
    with pytest.raises(Event2VecError, match="is not a folder of unfinished parts"):
        prepare(both(root), tmp_path / "store")
    assert (tmp_path / "store.partial" / "thesis.tex").exists()


def test_an_empty_folder_may_be_filled(root, tmp_path):
    (tmp_path / "store").mkdir()
    assert len(prepare(both(root), tmp_path / "store").store) == 16


def test_names_that_are_no_text_and_links_to_nowhere_are_accounted_for(root, tmp_path):
    os.link(root / "left" / "0.npz", os.fsencode(root / "left") + b"/caf\xe9.npz")
    (root / "left" / "gone.npz").symlink_to(tmp_path / "nowhere.npz")
    report = prepare(both(root), tmp_path / "store")
    assert "left/caf\udce9.npz" in report.store.sources
    assert [note.source for note in report.rejected] == ["left/gone.npz"]


def test_nothing_to_use_is_an_error_with_the_first_reason(tmp_path):
    (tmp_path / "data" / "a").mkdir(parents=True)
    for number in range(3):
        (tmp_path / "data" / "a" / f"{number}.txt").write_text("not events\n")
    with pytest.raises(
        Event2VecError, match=r"no recording of folder could be used\. The first of 3:.*begins with 'not events'"
    ):
        prepare(both(tmp_path / "data"), tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_finished_parts_are_not_read_again(root, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "PARTS", 4)
    read = []
    with pytest.raises(KeyboardInterrupt):
        prepare(both(root), tmp_path / "store", progress=stop_at(8))
    assert not (tmp_path / "store").exists()
    write = parts.write_part
    monkeypatch.setattr(module, "write_part", lambda part: read.append(part.start) or write(part))
    store = prepare(both(root), tmp_path / "store").store
    assert read == [8, 0], "two of four parts were left to do"
    prepare(both(root), tmp_path / "other")
    for name in ("x.bin", "store.json", "offsets.npy"):
        assert (tmp_path / "other" / name).read_bytes() == (store.folder / name).read_bytes()


def test_parts_of_other_work_are_not_used(root, tmp_path, monkeypatch, make_events):
    from event2vec import write_events

    with pytest.raises(KeyboardInterrupt):
        prepare(both(root), tmp_path / "store", progress=stop_at(1))
    write_events(root / "left" / "0.npz", make_events(99))
    store = prepare(both(root), tmp_path / "store").store
    assert 99 in store.lengths.tolist()


def test_a_finished_store_is_opened_and_another_one_not_overwritten(root, tmp_path, make_events):
    from event2vec import write_events

    first = prepare(both(root), tmp_path / "store")
    assert prepare(both(root), tmp_path / "store").store.sources == first.store.sources
    write_events(root / "left" / "new.npz", make_events(5))
    with pytest.raises(Event2VecError, match="exists already, made from other data"):
        prepare(both(root), tmp_path / "store")


def test_a_folder_with_other_files_is_refused_and_stays(root, tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "notes.txt").write_text("mine")
    with pytest.raises(Event2VecError, match=r"store: exists already and is not a store\. Choose another folder"):
        prepare(both(root), tmp_path / "store")
    assert [path.name for path in tmp_path.glob("store*")] == ["store"], "nothing was prepared first"
    assert (tmp_path / "store" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("left", [[], [".lock"], [".lock", f".plan.0123abcd{SUFFIX}/.lock"]])
def test_a_kill_before_the_plan_was_written_does_no_harm(root, tmp_path, left):
    (tmp_path / "store.partial").mkdir()
    for name in left:
        (tmp_path / "store.partial" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "store.partial" / name).touch()
    assert len(prepare(both(root), tmp_path / "store").store) == 16
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "store"]


def test_a_folder_of_somebody_else_is_refused_and_stays(root, tmp_path):
    (tmp_path / "store.partial" / "thesis").mkdir(parents=True)
    with pytest.raises(Event2VecError, match="is not a folder of unfinished parts"):
        prepare(both(root), tmp_path / "store")
    assert [path.name for path in (tmp_path / "store.partial").iterdir()] == ["thesis"]


def test_a_kill_while_the_parts_were_removed_leaves_nothing_in_the_end(root, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        prepare(both(root), tmp_path / "store", progress=stop_at(12))
    (tmp_path / "store.partial").rename(tmp_path / "parts")
    prepare(both(root), tmp_path / "store")
    (tmp_path / "parts").rename(tmp_path / "store.partial")
    assert len(prepare(both(root), tmp_path / "store").store) == 16
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "store"]


STOPS = """
import os, signal, sys
import event2vec.data.part_workers as module
from event2vec.cli import main
write, stops = module.write_part, [signal.SIGSTOP]
def write_and_stop(part):
    done = write(part)
    if stops:
        os.kill(os.getpid(), stops.pop())
    return done
module.write_part = write_and_stop
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def other_process(tmp_path, root):
    """Another process that prepares the same, and stopped after its first part."""
    for number in range(8, 300):
        os.link(root / "left" / "0.npz", root / "left" / f"{number}.npz")
    arguments = ["prepare", "folder", "--data", root, "--out", tmp_path / "store", "--workers", "1"]
    command = [sys.executable, "-c", STOPS, *map(str, arguments)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while state_of(process.pid) != "T":
            assert process.poll() is None, "it ended before it had prepared anything"
            time.sleep(0.01)
        yield process
        process.kill()


@NEEDS_PROC
def test_a_store_that_another_process_prepares_is_waited_for(other_process, root, tmp_path):
    progress = Called(lambda done: other_process.send_signal(signal.SIGCONT))

    with pytest.warns(
        Event2VecWarning, match=f"in use by process {other_process.pid} on .* since .*; wait for it to finish"
    ):
        store = prepare(both(root), tmp_path / "store", progress=progress).store
    assert other_process.wait(SECONDS_TO_END) == 0, "its work was not taken from it"
    assert len(store) == 308
    assert progress.stages == [("preparing folder", 308)]
    assert 0 < progress.seen[0] < 308, "what the other has done is shown"


@NEEDS_PROC
def test_what_another_process_prepares_is_taken_over_when_it_is_killed(other_process, root, tmp_path, monkeypatch):
    read, write = [], parts.write_part
    monkeypatch.setattr(module, "write_part", lambda part: read.append(part.folder.name) or write(part))

    def kill_it(done):
        other_process.kill()
        other_process.wait(SECONDS_TO_END)

    with pytest.warns(Event2VecWarning, match="in use by process"):
        store = prepare(both(root), tmp_path / "store", progress=Called(kill_it)).store
    assert len(store) == 308
    assert "train-00000000" not in read, "the part that it had finished is not read again"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "store"]


@NEEDS_PROC
def test_a_store_of_other_data_that_another_process_prepares_is_refused(other_process, root, tmp_path):
    with pytest.raises(Event2VecError, match=f"in use by process {other_process.pid} on .*; wait for it to finish"):
        prepare(both(root)[:1], tmp_path / "store")
    assert other_process.poll() is None


def test_a_full_disk_is_named_and_the_same_command_goes_on(root, small_disk, capfd):
    for number in range(8, 20):
        write_events(root / "left" / f"{number}.npz", make_recording(10_000, seed=number))
    arguments = ["prepare", "folder", "--data", root, "--out", small_disk.folder / "store", "--workers", "2"]
    command = [sys.executable, "-m", "event2vec", *map(str, arguments)]
    assert subprocess.run(command, check=False, timeout=SECONDS_TO_END).returncode == 2
    said = capfd.readouterr().err.splitlines()[-1]
    assert said.startswith(f"event2vec: {small_disk.folder}/store")
    assert said.endswith(": the disk is full. Free some space and run the same command again")
    assert not list(small_disk.folder.rglob(f".*{SUFFIX}"))
    small_disk.grow()
    subprocess.run(command, check=True, timeout=SECONDS_TO_END)
    assert len(EventStore.open(small_disk.folder / "store")) == 28


def test_recordings_of_several_cameras_make_a_data_set_for_a_common_sensor(shared_data, tmp_path):
    for label, names in (("street", ("davis240c.aedat", "uzh_davis240.txt")), ("walk", ("dvs128.aedat", "nmnist.bin"))):
        (tmp_path / "data" / label).mkdir(parents=True)
        for name in names:
            (tmp_path / "data" / label / name).symlink_to(shared_data / "recordings" / name)
    report = prepare(both(tmp_path / "data", sensor=Sensor(240, 180)), tmp_path / "store")
    assert sorted(report.store.lengths.tolist()) == [4325, 50_000, 130_114, 162_771]
    assert report.store.sensor == Sensor(240, 180)


def test_sets_of_clusters_are_made_of_recordings_to_train_on(root, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "PARTS", 2)  # several recordings in each part
    one = prepare(both(root), tmp_path / "one", clusters=8).store
    three = prepare(both(root), tmp_path / "three", clusters=8, clusterings=3).store
    assert three.splits == ("train",) * 12 + ("test",) * 4, "each recording once"
    first, *others = three.sets("train")
    for index in range(12):
        assert_same(first[index][0], one.split("train")[index][0])
        for other in others:
            assert other.sources[index] == first.sources[index]
            assert other[index][1] == first[index][1]
            assert other[index][0].rho.sum() == first[index][0].rho.sum(), "all stand for the same events"
    assert any(not torch.equal(others[0][index][0].x, others[1][index][0].x) for index in range(12))
    assert_same(three.split("test")[3][0], one.split("test")[3][0])
    assert len(three.sets("test")) == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_a_recording_of_another_sensor_is_scaled_before_it_is_clustered(
    root, tmp_path, make_events, monkeypatch, workers
):
    from event2vec import write_events

    monkeypatch.setattr(parts, "PARTS", 2)
    before = prepare(both(root), tmp_path / "before", clusters=8, clusterings=2).store.sets("train")
    stranger, other = before[0].sources[1], make_events(30, sensor=Sensor(64, 64))
    write_events(root / stranger, other)
    report = prepare(both(root), tmp_path / "store", workers, clusters=8, clusterings=2)
    assert report.rejected == ()
    assert report.store.facts["scaled"] == {"64x64": 1}
    after = report.store.sets("train")
    assert len(after) == 2
    for old, new in zip(before, after, strict=True):
        assert (new.sources, new.sensor) == (old.sources, SMALL)
        for index in range(len(new)):
            if index != 1:
                assert_same(new[index][0], old[index][0])
    assert_same(after[0][1][0], cluster_events(other.on_sensor(SMALL), 8))
    raw = prepare(both(root), tmp_path / "raw").store
    assert_same(raw.split("train")[1][0], other.on_sensor(SMALL))


def test_files_that_name_no_sensor_are_read_alike_in_training_and_prediction(tmp_path):
    """Most name 34x34. Of the others, those whose events are on it stay as they are, and larger ones are scaled."""
    from event2vec import write_events

    places = {"a/small.csv": Sensor(20, 12), "b/large.csv": Sensor(50, 40)}
    for name in ("a", "b"):
        for number in range(3):
            write_events(tmp_path / name / f"{number}.npz", make_recording(60, number, sensor=Sensor(34, 34)))
    for name, sensor in places.items():
        rows = [f"{x:.0f},{y:.0f},{t},{p:d}" for x, y, t, p, _ in make_recording(60, 9, sensor=sensor).numpy()]
        (tmp_path / name).write_text("\n".join(["x,y,t,p", *rows, ""]))
    store = prepare(open_splits("folder", tmp_path), tmp_path.with_name("store"), clusters=8).store
    assert store.sensor == Sensor(34, 34)
    assert sum(store.facts["scaled"].values()) == 1
    model = build_model(
        ModelConfig(sensor=store.sensor, classes=2, dim=16, hidden=16, heads=2, blocks=1, pooling=False),
        sampling=Sampling(method="clusters", length=8),
    ).eval()
    for name in places:
        index = store.sources.index(name)
        with torch.no_grad():
            trained_on = model(EventBatch.pad([store[index][0]])).softmax(-1)[0]
        answer = model.predict(tmp_path / name)
        torch.testing.assert_close(answer.scores, trained_on)
        assert (answer.scaled_from is None) == (name == "a/small.csv")


@pytest.mark.parametrize(("clusters", "clusterings"), [(8, 0), (None, 2)])
def test_sets_of_clusters_need_clusters(root, tmp_path, clusters, clusterings):
    with pytest.raises(Event2VecError, match=f"clusterings must be at least 1.*got {clusterings}"):
        prepare(both(root), tmp_path / "store", clusters=clusters, clusterings=clusterings)


@pytest.mark.parametrize("target", ["an empty folder", "nothing"])
def test_a_link_as_the_place_of_a_store_leads_to_it(root, tmp_path, target):
    if target == "an empty folder":
        (tmp_path / "disk").mkdir()
    (tmp_path / "store").symlink_to(tmp_path / "disk")
    report = prepare(both(root), tmp_path / "store")
    assert len(report.store) == 16
    assert (tmp_path / "store").is_symlink()
    assert len(EventStore.open(tmp_path / "disk")) == 16
    assert len(prepare(both(root), tmp_path / "store").store) == 16


WAYS = {
    "a file": lambda partial: partial.write_text("mine"),
    "a link to nothing": lambda partial: partial.symlink_to("missing"),
    "a plan in another encoding": lambda partial: (partial.mkdir(), (partial / "plan").write_bytes(b"\xff")),
    "a plan that is a folder": lambda partial: (partial / "plan").mkdir(parents=True),
}


@pytest.mark.parametrize("way", WAYS)
def test_whatever_has_the_name_of_the_parts_is_one_error_and_stays(root, tmp_path, way):
    WAYS[way](tmp_path / "store.partial")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        Event2VecError,
        match=r"store\.partial: exists already and is not a folder of .*\. Move it or choose another folder",
    ):
        prepare(both(root), tmp_path / "store")
    assert sorted(tmp_path.rglob("*")) == before


def test_seeding_without_clusters_is_refused(root, tmp_path):
    with pytest.raises(Event2VecError, match=r"^seeding requires clusters$"):
        prepare(both(root), tmp_path / "store", seeding="plain")


def test_every_file_is_looked_at_once(root, tmp_path, monkeypatch):
    """For the plan: on a network drive each look takes a while."""
    from event2vec.data.datasets.dataset import FileDataset

    looked, fingerprint = [], FileDataset.fingerprint
    monkeypatch.setattr(
        FileDataset, "fingerprint", lambda self, index: looked.append(self.sources[index]) or fingerprint(self, index)
    )
    store = prepare(both(root), tmp_path / "store").store
    assert looked == list(store.sources)


def test_clusters_and_what_is_short_enough_are_in_one_type_from_the_start(root, tmp_path):
    store = prepare(both(root), tmp_path / "store", clusters=23).store
    types = {name: column.dtype for name, column in store.columns.items()}
    assert types == {"x": "<f4", "y": "<f4", "t": "<u4", "p": "bool", "rho": "<f4"}
    datasets = both(root)
    for index in range(12):
        events, _ = datasets[0][index]
        assert_same(store[index][0], cluster_events(events, 23))


def test_a_data_set_without_recordings_is_an_error(root, tmp_path):
    none = replace(both(root)[0], sources=(), labels=(), paths=())
    with pytest.raises(Event2VecError, match="the data set folder has no recordings"):
        prepare([none], tmp_path / "store")
    assert not list(tmp_path.glob("store*"))
