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
from conftest import assert_same, make_recording

import event2vec.data.prepare as module
from event2vec import Event2VecError, EventStore, Sampling, Sensor, cluster_events, open_dataset, write_events
from event2vec.atomic import SUFFIX
from event2vec.data.prepare import cache_folder, open_for_training, prepare
from event2vec.errors import Event2VecWarning


@pytest.fixture
def root(tmp_path, make_events):
    from event2vec import write_events

    for name in ("left", "right"):
        for number in range(8):
            write_events(tmp_path / "data" / name / f"{number}.npz", make_events(20 + number, seed=number))
    return tmp_path / "data"


def both(root, **options):
    return [open_dataset("folder", root, split, **options) for split in ("train", "test")]


def test_a_store_holds_every_recording_in_order(root, tmp_path):
    datasets = both(root)
    told = []
    report = prepare(datasets, tmp_path / "store", progress=lambda done, total: told.append((done, total)))
    store = report.store
    assert store.sources == datasets[0].sources + datasets[1].sources
    assert store.splits == ("train",) * 12 + ("test",) * 4
    assert (store.classes, store.sensor) == (("left", "right"), Sensor(34, 30))
    assert_same(store.split("test")[2][0], datasets[1][2][0])
    assert (told[0], told[-1]) == ((0, 16), (16, 16))
    assert report.rejected == ()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(("store", ".store"))] == ["store"]


def test_the_number_of_workers_changes_nothing(root, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PARTS", 5)
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
    assert set(reasons) == {"left/broken.npz", "left/empty.npz", "left/other.npz", "right/cut.bin"}
    assert "Is the file whole" in reasons["left/broken.npz"]
    assert reasons["left/empty.npz"] == "holds no events"
    assert reasons["left/other.npz"] == "was made with a sensor of 50x50, and the store is for 34x30"
    assert len(report.store) == 16
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
    assert (report.store.sensor, len(report.store)) == (Sensor(100, 100), 9)
    assert [note.source for note in report.rejected] == ["a/digit.bin"]


def test_a_folder_of_the_users_is_not_removed(root, tmp_path):
    (tmp_path / "store.partial").mkdir()
    (tmp_path / "store.partial" / "thesis.tex").touch()
    with pytest.raises(Event2VecError, match="is in the way"):
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
        Event2VecError, match=r"nothing in folder could be used\. The first of 3:.*begins with 'not events'"
    ):
        prepare(both(tmp_path / "data"), tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_finished_parts_are_not_read_again(root, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PARTS", 4)
    read = []

    def stop_at_nine(done, total):
        if done >= 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(both(root), tmp_path / "store", progress=stop_at_nine)
    assert not (tmp_path / "store").exists()
    work = module._work
    monkeypatch.setattr(module, "_work", lambda task: read.append(task.start) or work(task))
    store = prepare(both(root), tmp_path / "store").store
    assert read == [8, 0], "two of four parts were left to do"
    prepare(both(root), tmp_path / "other")
    for name in ("x.bin", "store.json", "offsets.npy"):
        assert (tmp_path / "other" / name).read_bytes() == (store.folder / name).read_bytes()


def test_parts_of_other_work_are_not_used(root, tmp_path, monkeypatch, make_events):
    from event2vec import write_events

    def stop(done, total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(both(root), tmp_path / "store", progress=stop)
    write_events(root / "left" / "0.npz", make_events(99))
    store = prepare(both(root), tmp_path / "store").store
    assert 99 in store.lengths.tolist()


def test_a_finished_store_is_opened_and_another_one_not_overwritten(root, tmp_path, make_events):
    from event2vec import write_events

    first = prepare(both(root), tmp_path / "store")
    assert prepare(both(root), tmp_path / "store").store.sources == first.store.sources
    write_events(root / "left" / "new.npz", make_events(5))
    with pytest.raises(Event2VecError, match="exists already, from other data"):
        prepare(both(root), tmp_path / "store")


@pytest.mark.parametrize("left", [[], [".lock"], [".lock", f".plan.0123abcd{SUFFIX}/.lock"]])
def test_a_kill_before_the_plan_was_written_is_not_in_the_way(root, tmp_path, left):
    (tmp_path / "store.partial").mkdir()
    for name in left:
        (tmp_path / "store.partial" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "store.partial" / name).touch()
    assert len(prepare(both(root), tmp_path / "store").store) == 16
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "store"]


def test_a_folder_of_somebody_else_is_in_the_way_and_stays(root, tmp_path):
    (tmp_path / "store.partial" / "thesis").mkdir(parents=True)
    with pytest.raises(Event2VecError, match="is in the way"):
        prepare(both(root), tmp_path / "store")
    assert [path.name for path in (tmp_path / "store.partial").iterdir()] == ["thesis"]


def test_a_kill_while_the_parts_were_removed_leaves_nothing_in_the_end(root, tmp_path):
    def stop(done, total):
        if done == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(both(root), tmp_path / "store", progress=stop)
    (tmp_path / "store.partial").rename(tmp_path / "parts")
    prepare(both(root), tmp_path / "store")
    (tmp_path / "parts").rename(tmp_path / "store.partial")
    assert len(prepare(both(root), tmp_path / "store").store) == 16
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "store"]


@pytest.fixture
def other_process(tmp_path, root):
    """Another process that prepares the same, and has begun."""
    for number in range(8, 300):
        os.link(root / "left" / "0.npz", root / "left" / f"{number}.npz")
    command = [sys.executable, "-m", "event2vec", "prepare", "folder", "--root", root, "--out", tmp_path / "store"]
    with subprocess.Popen(list(map(str, [*command, "--workers", "1"])), stderr=subprocess.DEVNULL) as process:
        while not any(tmp_path.glob("store.partial/train-*")):
            time.sleep(0.001)
        process.send_signal(signal.SIGSTOP)
        yield process
        process.kill()


def test_a_store_that_another_process_prepares_is_waited_for(other_process, root, tmp_path):
    told = []

    def let_it_end(done, total):
        told.append((done, total))
        other_process.send_signal(signal.SIGCONT)

    with pytest.warns(
        Event2VecWarning, match=f"in use by process {other_process.pid} on .* since .*; wait for it to finish"
    ):
        store = prepare(both(root), tmp_path / "store", progress=let_it_end).store
    assert other_process.wait() == 0, "its work was not taken from it"
    assert len(store) == 308
    assert 0 < told[0][0] < told[0][1] == 308, "what the other has done is shown"


def test_what_another_process_prepares_is_taken_over_when_it_is_killed(other_process, root, tmp_path, monkeypatch):
    read, work = [], module._work
    monkeypatch.setattr(module, "_work", lambda task: read.append(task.folder.name) or work(task))

    def kill_it(done, total):
        other_process.kill()
        other_process.wait()

    with pytest.warns(Event2VecWarning, match="in use by process"):
        store = prepare(both(root), tmp_path / "store", progress=kill_it).store
    assert len(store) == 308
    assert "train-00000000" not in read, "the part that it had finished is not read again"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "store"]


def test_a_store_of_other_data_that_another_process_prepares_is_refused(other_process, root, tmp_path):
    with pytest.raises(Event2VecError, match=f"in use by process {other_process.pid} on .*; wait for it to finish"):
        prepare(both(root)[:1], tmp_path / "store")
    assert other_process.poll() is None


def test_a_full_disk_is_named_and_the_same_command_goes_on(root, small_disk, capfd):
    for number in range(8, 20):
        write_events(root / "left" / f"{number}.npz", make_recording(10_000, seed=number))
    arguments = ["prepare", "folder", "--root", root, "--out", small_disk.folder / "store", "--workers", "2"]
    command = [sys.executable, "-m", "event2vec", *map(str, arguments)]
    assert subprocess.run(command, check=False).returncode == 2
    said = capfd.readouterr().err.splitlines()[-1]
    assert said.startswith(f"event2vec: {small_disk.folder}/store")
    assert said.endswith(": the disk is full. Free some space and run the same command again")
    assert not list(small_disk.folder.rglob(f".*{SUFFIX}"))
    small_disk.grow()
    subprocess.run(command, check=True)
    assert len(EventStore.open(small_disk.folder / "store")) == 28


def test_the_cache_is_where_the_user_wants_it(monkeypatch, tmp_path):
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("EVENT2VEC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "event2vec"


def test_recordings_of_several_cameras_make_a_data_set_for_a_common_sensor(shared_data, tmp_path):
    for label, names in (("street", ("davis240c.aedat", "uzh_davis240.txt")), ("walk", ("dvs128.aedat", "nmnist.bin"))):
        (tmp_path / "data" / label).mkdir(parents=True)
        for name in names:
            (tmp_path / "data" / label / name).symlink_to(shared_data / "recordings" / name)
    report = prepare(both(tmp_path / "data", sensor=Sensor(240, 180)), tmp_path / "store")
    assert sorted(report.store.lengths.tolist()) == [4325, 50_000, 130_114, 162_771]
    assert report.store.sensor == Sensor(240, 180)


def test_training_data_is_found_again_and_clustered_once(tmp_path, make_events, monkeypatch):
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path / "cache"))
    recordings = [(make_events(60, seed=index), index % 2) for index in range(6)]
    raw = EventStore.create(
        tmp_path / "raw",
        recordings,
        sensor=recordings[0][0].sensor,
        classes=["a", "b"],
        splits=["train"] * 4 + ["test"] * 2,
    )
    random = open_for_training(raw.folder, "folder", Sampling(length=16)).store
    assert random.folder == raw.folder, "random events are drawn from the store as it is"
    clusters = Sampling(method="clusters", length=16)
    clustered = open_for_training(raw.folder, "folder", clusters).store
    assert clustered.folder.parent == tmp_path / "cache"
    assert (clustered.splits, clustered.classes) == (raw.splits, raw.classes)
    assert clustered.labels.tolist() == raw.labels.tolist()
    assert all(len(events) <= 16 and events.rho.sum() == 60 for events, _ in (clustered[index] for index in range(6)))
    again = open_for_training(raw.folder, "folder", clusters).store
    assert again.folder == clustered.folder
    assert open_for_training(clustered.folder, "folder", clusters).store.folder == clustered.folder
    with pytest.raises(Event2VecError, match="--data is missing"):
        open_for_training(None, "nmnist", clusters)


def test_sets_of_clusters_are_made_of_recordings_to_train_on(root, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PARTS", 2)  # several recordings in each part
    one = prepare(both(root), tmp_path / "one", clusters=8).store
    three = prepare(both(root), tmp_path / "three", clusters=8, clusterings=3).store
    assert {split: three.splits.count(split) for split in set(three.splits)} == {
        "train": 12,
        "train 2": 12,
        "train 3": 12,
        "test": 4,
    }
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


def test_a_recording_of_another_sensor_is_rejected_once_with_all_its_sets(root, tmp_path, make_events, monkeypatch):
    from event2vec import write_events

    monkeypatch.setattr(module, "PARTS", 2)
    before = prepare(both(root), tmp_path / "before", clusters=8, clusterings=2).store.sets("train")
    stranger = before[0].sources[1]
    write_events(root / stranger, replace(make_events(30), sensor=Sensor(64, 64)))
    report = prepare(both(root), tmp_path / "store", clusters=8, clusterings=2)
    assert [(note.source, note.split) for note in report.rejected] == [(stranger, "train")]
    after = report.store.sets("train")
    assert len(after) == 2
    for old, new in zip(before, after, strict=True):
        assert new.sources == (old.sources[0], *old.sources[2:])
        for index in range(1, len(new)):
            assert_same(new[index][0], old[index + 1][0])


def test_sets_of_clusters_are_made_anew_from_the_first(root, tmp_path, monkeypatch):
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path / "cache"))
    sets = prepare(both(root), tmp_path / "sets", clusters=8, clusterings=2).store
    few = Sampling(method="clusters", length=4)
    fewer = open_for_training(sets.folder, "folder", few, clusterings=3).store
    assert [len(one) for one in fewer.sets("train")] == [12, 12, 12]
    assert_same(fewer.split("train")[5][0], cluster_events(sets.split("train")[5][0], 4))
    assert fewer.splits.count("test") == 4
    assert open_for_training(fewer.folder, "folder", few, clusterings=9).store.folder == fewer.folder, "has its own"


def test_clusters_keep_splits_of_other_names(tmp_path, make_events, monkeypatch):
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path / "cache"))
    recordings = [(make_events(60, seed=index), 0) for index in range(3)]
    names = {"sensor": recordings[0][0].sensor, "classes": ["a"], "splits": ["train", "valid", "train 7"]}
    raw = EventStore.create(tmp_path / "raw", recordings, **names)
    few = open_for_training(raw.folder, "folder", Sampling(method="clusters", length=8), clusterings=2).store
    assert few.splits == ("train", "train 2", "valid", "train 7")


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
def test_whatever_is_in_the_way_is_one_error_and_stays(root, tmp_path, way):
    WAYS[way](tmp_path / "store.partial")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(Event2VecError, match=r"store\.partial: is in the way: .* Move it or choose another --out"):
        prepare(both(root), tmp_path / "store")
    assert sorted(tmp_path.rglob("*")) == before


def test_seeding_without_clusters_is_refused(root, tmp_path):
    with pytest.raises(Event2VecError, match=r"^--seeding needs --clusters$"):
        prepare(both(root), tmp_path / "store", seeding="plain")
