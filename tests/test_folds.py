"""Cross-validation: each recording is tested once, groups stay whole, and finished folds are kept."""

import csv
import json
import shutil
from typing import Any

import numpy as np
import pytest
from conftest import SMALL, make_recording
from shell import run

from event2vec import Event2VecError, EventStore, Progress, Run, cross_validate, train, write_events
from event2vec.data.splits import draw_folds, take_fold

pytestmark = pytest.mark.xdist_group("folds")  # one process: folds are trained once
QUICK: dict[str, Any] = {
    "model": {"dim": 16, "hidden": 16, "heads": 2, "blocks": 1, "pooling": False},
    "sampling": {"method": "random", "length": 16},
    "training": {"epochs": 1, "batch": 8},
    "trainer": {"accelerator": "cpu", "devices": 1},
}


def make_store(folder, count=30, **more):
    recordings = [(make_recording(30, seed=index), index % 2) for index in range(count)]
    return EventStore.create(folder, recordings, sensor=SMALL, classes=["a", "b"], **more)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("data") / "store")


@pytest.fixture(scope="module")
def three(store, tmp_path_factory):
    """Three folds that nothing disturbed."""
    return cross_validate("folder", store, tmp_path_factory.mktemp("three") / "out", folds=3, **QUICK)


@pytest.fixture(scope="module")
def two(store, tmp_path_factory):
    return cross_validate("folder", store, tmp_path_factory.mktemp("two") / "out", folds=2, **QUICK)


def test_folds_share_every_class_and_hold_each_recording_once():
    labels = np.array([0] * 50 + [1] * 23 + [2] * 5)
    folds = draw_folds(labels, [str(index) for index in range(78)], 5, seed=0)
    tables = [np.bincount(labels[folds == fold], minlength=3).tolist() for fold in range(5)]
    assert all(table[0] == 10 and table[1] in (4, 5) and table[2] == 1 for table in tables)
    assert folds.min() == 0
    assert (draw_folds(labels, [str(index) for index in range(78)], 5, seed=1) != folds).any()


@pytest.mark.parametrize("seed", range(5))
def test_folds_keep_groups_whole_and_classes_even(seed):
    """Thirty people, each with one to six recordings of some of four classes."""
    random = np.random.default_rng((seed, 0, 0))
    pairs = [
        (f"person {person}", label)
        for person in range(30)
        for label in random.choice(4, 2, replace=False).tolist()
        for _ in range(random.integers(1, 7))
    ]
    groups, labels = np.array([group for group, _ in pairs]), np.array([label for _, label in pairs])
    folds = draw_folds(labels, groups.tolist(), 5, seed=seed)
    assert all(len(set(folds[groups == group])) == 1 for group in set(groups))
    shares = [np.bincount(labels[folds == fold], minlength=4) / np.bincount(labels) for fold in range(5)]
    assert np.array(shares) == pytest.approx(np.full((5, 4), 0.2), abs=0.15)


def test_a_class_of_one_group_always_trains():
    labels, groups = [0] * 8 + [1] * 3, [*"abcdefgh", *"zzz"]
    folds = draw_folds(labels, groups, 4, seed=0)
    assert folds[8:].tolist() == [-1, -1, -1]
    assert sorted(folds[:8].tolist()) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_test_part_that_the_data_came_with_is_unused_unless_asked_for(tmp_path):
    store = make_store(tmp_path / "store", splits=["train"] * 20 + ["validation"] * 4 + ["test"] * 6)
    own = take_fold(store, 5, 2, "train", seed=0)
    assert [own.splits.count(name) for name in ("train", "validation", "test", "unused")] == [16, 4, 4, 6]
    everything = take_fold(store, 5, 2, "all", seed=0)
    assert [everything.splits.count(name) for name in ("train", "validation", "test", "unused")] == [24, 0, 6, 0]
    tested = [row for fold in range(1, 6) for row in take_fold(store, 5, fold, "all", 0).split("test").rows.tolist()]
    assert sorted(tested) == list(range(30))
    with pytest.raises(Event2VecError, match="has 20 groups of recordings, too few for 21 folds"):
        take_fold(store, 21, 1, "train", seed=0)


def test_cross_validation_trains_a_run_for_each_fold_and_sums_up(store, three):
    found = three
    assert [fold.recordings for fold in found.folds] == [10, 10, 10]
    tested = [source for run in found.runs() for source in run.store().split("test").sources]
    assert sorted(tested) == sorted(store.sources), "each once"
    assert found.accuracy == pytest.approx(np.mean(found.accuracies))
    assert found.accuracy_std == pytest.approx(np.std(found.accuracies, ddof=1))
    for fold_run, fold in zip(found.runs(), found.folds, strict=True):
        parts = {split: set(fold_run.store().split(split).sources) for split in ("train", "validation", "test")}
        assert sum(map(len, parts.values())) == len(store)
        assert fold_run.evaluate(repeats=1).accuracy == fold.accuracy
    facts = json.loads((found.folder / "folds.json").read_text())
    assert (facts["accuracy"], facts["recordings"], len(facts["folds"])) == (found.accuracy, 30, 3)
    rows = list(csv.DictReader((found.folder / "folds.csv").read_text().splitlines()))
    assert [row["fold"] for row in rows] == ["1", "2", "3"]
    assert [float(row["accuracy"]) for row in rows] == list(found.accuracies)


def test_the_same_call_continues_and_repeats_no_finished_fold(store, three, tmp_path, monkeypatch):
    class Stopper(Progress):
        folds = 0

        def advance(self, done, note=""):
            if note and done == 1:
                self.folds += 1
                if self.folds == 2:
                    raise KeyboardInterrupt

        def say(self, line):
            lines.append(line)

    lines: list[str] = []
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        cross_validate("folder", store, folds=3, progress=Stopper(), **QUICK)
    assert lines[-1] == "The same command continues with fold 2 of 3; finished folds are kept"
    folder = tmp_path / "runs/store-folds"
    first = (folder / "fold-1/model/model.safetensors").stat().st_mtime_ns
    assert len(json.loads((folder / "folds.json").read_text())["folds"]) == 1
    again = cross_validate("folder", store, folds=3, **QUICK)
    assert again.folder.resolve() == folder
    assert again.accuracies == three.accuracies
    assert (folder / "fold-1/model/model.safetensors").stat().st_mtime_ns == first
    trained = []
    monkeypatch.setattr(Run, "start", lambda *arguments, **settings: trained.append(arguments))
    assert cross_validate("folder", store, folds=3, **QUICK).accuracies == three.accuracies
    assert trained == [], "nothing is left to do"


def test_folds_of_other_work_are_left_alone(store, two, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(two.folder, "runs/store-folds")
    other = cross_validate("folder", store, folds=2, **QUICK, objective={"class_weights": "balanced"})
    assert str(other.folder) == "runs/store-folds-2"
    with pytest.raises(Event2VecError, match=r"exists already, with other data or settings. Choose another `out`"):
        cross_validate("folder", store, "runs/store-folds", folds=4, **QUICK)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").touch()
    with pytest.raises(Event2VecError, match="mine: exists already"):
        cross_validate("folder", store, tmp_path / "mine", folds=2, **QUICK)


def test_folds_that_cannot_be_are_refused_before_any_training(store, tmp_path):
    with pytest.raises(Event2VecError, match="too few for 31 folds"):
        cross_validate("folder", store, tmp_path / "out", folds=31, **QUICK)
    with pytest.raises(Event2VecError, match="folds must be at least 2, got 1"):
        cross_validate("folder", store, tmp_path / "out", folds=1, **QUICK)
    settings: dict[str, Any] = {**QUICK, "data.folds": 5}
    with pytest.raises(Event2VecError, match=r"data.folds needs data.fold, the test fold"):
        train("folder", store, tmp_path / "run", **settings)
    with pytest.raises(Event2VecError, match=r"data.fold must be at most data.folds, which is 5, got 6"):
        train("folder", store, tmp_path / "run", **{**settings, "data.fold": 6})
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "run").exists()


def test_drawn_test_recordings_take_part_with_all_their_clusterings(tmp_path):
    for index in range(20):
        write_events(tmp_path / "data" / "ab"[index % 2] / f"{index}.npz", make_recording(40, seed=index))
    settings = {**QUICK, "sampling": {"method": "clusters", "length": 16, "clusterings": 2}}
    found = cross_validate("folder", tmp_path / "data", tmp_path / "out", folds=2, **settings)
    assert found.recordings == 20, "the test part was drawn, so it takes part"
    first = found.runs()[0]
    assert [len(part) for part in first.store().sets("train")] == [8, 8]
    shutil.rmtree(first.store().folder)
    assert first.evaluate().accuracies == (found.folds[0].accuracy,), "the store is made again, the same"
    assert first.raw_store().split("test").sources == first.store().split("test").sources


def test_a_fold_can_be_trained_by_itself(store, two, tmp_path):
    settings: dict[str, Any] = {**QUICK, "data.folds": 2, "data.fold": 2}
    alone = train("folder", store, tmp_path / "alone", **settings)
    assert isinstance(alone, Run)
    assert json.loads(alone.result("test").read_text())["accuracy"] == two.accuracies[1]


def test_folds_from_the_command_line(store, tmp_path, capsys):
    quick = [f"--{section}.{name}={value}" for section, values in QUICK.items() for name, value in values.items()]
    command = ("train", "folder", "--data", store.folder, "--out", tmp_path / "out", "--folds", "2", *quick)
    assert run(*command) == 0
    told = capsys.readouterr()
    assert "accuracy" in told.out.splitlines()[0]
    assert "over 2 folds, 30 recordings; 95 % interval" in told.out
    assert "folds.csv" in told.err
    assert run("train", "--resume", tmp_path / "out/fold-1", "--folds", "2") == 2
    assert "--folds resumes by itself" in capsys.readouterr().err
    assert run("train", "folder", "--data", store.folder, "--folds", "1") == 2
    assert "--folds: must be at least 2, got 1" in capsys.readouterr().err
