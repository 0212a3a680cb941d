"""Runs from Python: all that the command line does with them."""

import json
import re
import shutil
from typing import Any

import pytest
import torch
from conftest import SMALL, make_recording

import event2vec
from event2vec import (
    Event2VecError,
    Event2VecWarning,
    EventStore,
    Progress,
    Run,
    Sensor,
    load_model,
    pretrain,
    save_model,
    train,
    write_events,
)

SMALL_NETWORK: dict[str, Any] = {
    "model": {"dim": 16, "hidden": 16, "heads": 2, "blocks": 1, "pooling": False},
    "sampling": {"method": "random", "length": 32},
    "training": {"epochs": 2, "batch": 4},
    "trainer": {"accelerator": "cpu", "devices": 1},
}


class Told(Progress):
    def __init__(self):
        self.lines, self.depth, self.deepest = [], 0, 0

    def start(self, title, total=None):
        self.depth += 1
        self.deepest = max(self.depth, self.deepest)

    def finish(self):
        self.depth -= 1

    def say(self, line):
        self.lines.append(line)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    recordings = [(make_recording(60, seed=index), index % 3) for index in range(24)]
    splits = ["train"] * 18 + ["test"] * 6
    folder = tmp_path_factory.mktemp("data") / "store"
    return EventStore.create(folder, recordings, sensor=SMALL, classes=["a", "b", "c"], splits=splits)


@pytest.fixture(scope="module")
def run(store, tmp_path_factory):
    return train("folder", store, tmp_path_factory.mktemp("runs") / "mine", **SMALL_NETWORK)


def test_a_training_from_python_leaves_what_the_command_line_leaves(run, store):
    assert sorted(path.name for path in run.folder.iterdir()) == [
        *("best", "checkpoints", "curves.png", "curves.svg", "evaluation", "metrics.csv", "model", "recipe.yaml"),
        *("run.json", "tensorboard"),
    ]
    assert (run.recipe.training.epochs, run.recipe.model.dim) == (2, 16)
    assert (run.facts.task, run.facts.data, run.facts.init) == ("train", str(store.folder), None)
    assert [row["epoch"] for row in run.metrics] == [1, 2]
    assert run.model().class_names == ("a", "b", "c")


def test_a_run_without_a_place_gets_a_number(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {**SMALL_NETWORK, "training": {"epochs": 1}}
    names = [str(train("folder", store, **settings).folder) for _ in range(2)]
    assert names == ["runs/store", "runs/store-2"]


def test_a_place_that_is_taken_is_refused_before_the_data_is_opened(run, tmp_path):
    with pytest.raises(Event2VecError, match=r"exists already. Resume it with: event2vec train --resume"):
        train("folder", tmp_path / "missing", run.folder)


def test_settings_have_their_full_names_or_those_of_a_section(store, tmp_path):
    with pytest.raises(Event2VecError, match=r"unknown setting training.epoch .did you mean training.epochs"):
        train("folder", store, tmp_path / "run", training={"epoch": 3})
    with pytest.raises(Event2VecError, match=r"unknown setting model.dims .did you mean model.dim"):
        train("folder", store, tmp_path / "run", model={"dims": 3})
    assert not (tmp_path / "run").exists()


def test_all_that_is_to_be_known_is_said(store, tmp_path):
    told = Told()
    train("folder", store, tmp_path / "run", progress=told, **SMALL_NETWORK)
    assert told.lines[0] == (
        "15 training recordings, 3 validation recordings (drawn from the training recordings) and 6 test recordings, "
        f"3 classes, sensor 34x30. Run folder: {tmp_path}/run"
    )
    assert re.search(r"^Accuracy on 6 test recordings: [\d.]+ %; 95 % interval [\d.]+ to [\d.]+ %$", told.lines[-2])
    assert [line.split("  ")[0] for line in told.lines if line.startswith("epoch")] == ["epoch 1/2", "epoch 2/2"]
    assert told.lines[-1] == f"The network is in {tmp_path}/run/best, its curves in {tmp_path}/run/curves.png"
    assert told.depth == 0, "every stage was finished"


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """Ten people, two gestures, three recordings of each."""
    folder = tmp_path_factory.mktemp("people")
    for person in range(10):
        for name in ("wave", "clap"):
            for number in range(3):
                events = make_recording(60, seed=10 * person + number)
                write_events(folder / name / f"person{person}" / f"{number}.npz", events)
    return folder


def test_people_are_kept_together_in_all_parts_and_that_is_said(people, tmp_path):
    told = Told()
    settings = {**SMALL_NETWORK, "sampling": {"method": "clusters", "length": 16}, "training": {"epochs": 1}}
    run = train("folder", people, tmp_path / "run", progress=told, **settings)
    parts = {split: set(run.store().split(split).groups) for split in ("train", "validation", "test")}
    assert [len(part) for part in parts.values()] == [7, 1, 2]
    assert not parts["train"] & parts["validation"] | parts["train"] & parts["test"]
    raw = {split: run.raw_store().split(split).sources for split in parts}
    assert raw == {split: run.store().split(split).sources for split in parts}, "with all their events too"
    line = next(line for line in told.lines if line.startswith("10 groups of recordings that stay together: 7 train ("))
    assert f"1 validation ({min(parts['validation'])})" in line


def test_groups_that_would_be_ignored_or_lie_on_both_sides_are_said(people, store, run, tmp_path):
    ignored: dict[str, Any] = {"data.group_by": "none"}
    with pytest.raises(Event2VecError, match=r"is a store, made with its own groups.*Omit data.group_by"):
        train("folder", store, tmp_path / "run", **ignored)
    with pytest.raises(Event2VecError, match=r"data.group_by is for 'folder'; the layout of digits is known"):
        train("digits", None, tmp_path / "run", **ignored)
    for split, person in (("train", "person1"), ("train", "person2"), ("test", "person1")):
        shutil.copytree(people / "wave" / person, tmp_path / "data" / split / "wave" / person)
    with pytest.warns(
        Event2VecWarning, match="the group 'person1' is in train and test: accuracy will be overestimated"
    ):
        train("folder", tmp_path / "data", tmp_path / "both", **SMALL_NETWORK)
    assert not (tmp_path / "run").exists()


def test_a_finished_run_is_trained_for_longer(store, tmp_path):
    settings = {**SMALL_NETWORK, "training": {"epochs": 2, "batch": 4, "warmup_epochs": 0.0}}
    run = train("folder", store, tmp_path / "run", **settings)
    first = run.metrics
    run.resume(training={"epochs": 4})
    assert [row["epoch"] for row in run.metrics] == [1, 2, 3, 4]
    assert run.metrics[:2] == first, "what was trained before is kept"
    assert run.recipe.training.epochs == Run.open(run.folder).recipe.training.epochs == 4
    assert run.metrics[2]["learning_rate"] > first[1]["learning_rate"], "the longer schedule has not ended there"
    with pytest.raises(Event2VecError, match=r"training.epochs is 4 in .* and can only grow, got 3"):
        run.resume(training={"epochs": 3})
    with pytest.raises(Event2VecError, match=r"keeps its settings, except trainer.* omit model.dim"):
        run.resume(model={"dim": 32})


def test_a_stop_says_how_to_resume(store, tmp_path):
    class Stopped(Told):
        def advance(self, done, note=""):
            if note:
                raise KeyboardInterrupt

    told = Stopped()
    with pytest.raises(KeyboardInterrupt):
        train("folder", store, tmp_path / "a run", progress=told, **SMALL_NETWORK)
    assert told.lines[-1] == f"Stopped. Resume it with: event2vec train --resume '{tmp_path}/a run'"
    assert [row["epoch"] for row in Run.open(tmp_path / "a run").resume().metrics] == [1, 2]


def test_an_evaluation_is_kept_in_the_run(run, store, tmp_path):
    found = run.evaluate(repeats=2)
    assert found.accuracies == event2vec.evaluate(run.model(), store.split("test"), repeats=2).accuracies
    assert json.loads((run.folder / "evaluation/test.json").read_text())["accuracy"] == found.accuracy
    assert run.confusion("test", None).read_bytes().startswith(b"\x89PNG")
    run.evaluate(store.folder, split="train", repeats=1)
    assert (run.folder / "evaluation/store/confusion_train.png").is_file()
    points = run.sweep("events", [8, 16], repeats=1)
    assert [point.value for point in points] == [8, 16]
    assert (run.folder / "evaluation/events.csv").read_text().startswith("events,accuracy,accuracy_std,interval_low,")


def test_a_network_alone_opens_as_a_run_without_a_past(run, store, tmp_path):
    save_model(run.model(), tmp_path / "network")
    alone = Run.open(tmp_path / "network")
    assert not alone.is_started
    assert alone.evaluate(store.folder, repeats=1).accuracies == run.evaluate(repeats=1).accuracies
    assert sorted(path.name for path in alone.folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    with pytest.raises(Event2VecError, match=r": does not say what it was trained on\. Set `data`"):
        alone.evaluate()
    with pytest.raises(Event2VecError, match=r"is not a run: it has no recipe.yaml"):
        _ = alone.recipe
    for resume in (alone.resume, lambda: event2vec.report(alone)):
        with pytest.raises(Event2VecError, match=r"is not a run: it has no run.json"):
            resume()


@pytest.mark.parametrize("content", ["", "notes"])
def test_what_is_not_a_run_is_refused(tmp_path, content):
    with pytest.raises(Event2VecError, match="does not exist, expected a run or a folder with a saved network"):
        Run.open(tmp_path / "missing")
    if content:
        (tmp_path / "notes.txt").write_text(content)
    with pytest.raises(Event2VecError, match=r"is not a run: it has neither run.json nor a network"):
        Run.open(tmp_path)


def test_pretraining_and_fine_tuning(store, tmp_path):
    first = pretrain("folder", store, tmp_path / "first", **SMALL_NETWORK)
    assert first.facts.task == "pretrain"
    assert "train_loss_of_mean" in first.metrics[-1]
    told = Told()
    tuned = train("folder", store, tmp_path / "tuned", first.folder, progress=told, **SMALL_NETWORK)
    assert tuned.facts.init == str(first.folder)
    assert any(line.startswith("Copied") for line in told.lines)


def test_the_same_weights_from_python_and_from_settings_by_name(run, store, tmp_path):
    flat = {f"{section}.{name}": value for section, values in SMALL_NETWORK.items() for name, value in values.items()}
    again = train("folder", store.folder, tmp_path / "again", **flat)
    pairs = zip(run.model().parameters(), load_model(again.folder).parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_a_part_of_a_store_is_refused_instead_of_training_on_all_of_it(store, tmp_path):
    with pytest.raises(Event2VecError, match="got a part of this store, expected a whole one"):
        train("folder", store.subset([0, 1, 18]), tmp_path / "run", **SMALL_NETWORK)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("name", "value"), [("sensor", "64x64"), ("classes", 7)])
def test_what_the_data_decides_cannot_be_set_to_something_else(store, tmp_path, name, value):
    settings = {**SMALL_NETWORK, "model": {**SMALL_NETWORK["model"], name: value}}
    with pytest.raises(Event2VecError, match=rf"has model.{name} .*, got {value}. Omit model.{name}"):
        train("folder", store, tmp_path / "run", **settings)


def test_recordings_that_are_not_used_are_a_warning_without_any_progress(tmp_path, monkeypatch):
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path / "cache"))
    for name in ("a", "b"):
        for number in range(5):
            write_events(tmp_path / "data" / name / f"{number}.npz", make_recording(60, seed=number))
    (tmp_path / "data/a/broken.npz").write_bytes(b"nothing")
    with pytest.warns(Event2VecWarning, match=r"not used: a/broken.npz"):
        train("folder", tmp_path / "data", tmp_path / "run", **SMALL_NETWORK)


def test_a_failed_resume_leaves_the_number_of_epochs_as_it_was(run, store, tmp_path):
    copy = Run.open(shutil.copytree(run.folder, tmp_path / "run"))
    with pytest.raises(Event2VecError, match=r"does not exist|is not a"):
        copy.resume(tmp_path / "nowhere", training={"epochs": 9})
    with pytest.raises(Event2VecError, match="trainer"):
        copy.resume(training={"epochs": 9}, trainer={"strategy": "nonsense"})
    assert copy.recipe.training.epochs == 2


def test_a_run_is_a_path_to_its_folder(run, store, tmp_path):
    assert load_model(run).class_names == ("a", "b", "c")
    assert run.store().sources == store.sources
    assert [run.store().splits.count(name) for name in ("train", "validation", "test")] == [15, 3, 6]
    tuned = train("folder", store, tmp_path / "tuned", run, **SMALL_NETWORK)
    assert tuned.facts.init == str(run.folder)


def test_a_folder_with_other_things_is_not_said_to_be_a_run(store, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(Event2VecError, match=r"exists already. Choose another `out`$"):
        train("folder", store, tmp_path, **SMALL_NETWORK)


def test_a_run_whose_cached_store_is_gone_makes_it_again(tmp_path, monkeypatch):
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path / "cache"))
    for name in ("a", "b"):
        for number in range(5):
            write_events(tmp_path / "data" / name / f"{number}.npz", make_recording(60, seed=number))
    run = train("folder", tmp_path / "data", tmp_path / "run", **SMALL_NETWORK)
    before = run.evaluate(repeats=1).accuracies
    shutil.rmtree(tmp_path / "cache")
    assert run.evaluate(repeats=1).accuracies == before
    shutil.rmtree(tmp_path / "cache")
    write_events(tmp_path / "data" / "a" / "0.npz", make_recording(99, seed=9))
    with pytest.raises(Event2VecError, match="would not give the same store"):
        run.evaluate(repeats=1)


@pytest.fixture
def letters(tmp_path):
    """A folder that is not divided, with recordings of two of the three classes that the network knows."""
    for name in ("c", "a"):
        for number in range(4):
            write_events(tmp_path / "letters" / name / f"{number}.npz", make_recording(60, seed=ord(name) + number))
    return tmp_path / "letters"


def test_all_of_a_folder_is_tested_with_its_labels_by_name(run, letters):
    found = run.evaluate(letters, repeats=1)
    assert (found.recordings, found.class_names) == (8, ("a", "b", "c"))
    assert found.confusion.sum(axis=1).tolist() == [4, 0, 4], "c is the third class, though the second folder"
    assert found.per_class["b"] is None
    assert run.result("test", letters).is_file()
    assert [point.value for point in run.sweep("events", [8, 16], letters, repeats=1)] == [8, 16]
    with pytest.raises(Event2VecError, match="has no split 'wrong'"):
        run.evaluate(letters, "wrong")


def test_a_folder_is_read_as_a_prediction_reads_it(run, letters, tmp_path):
    """Of another camera, and with all events, so that draws do not differ."""
    for path in sorted(letters.rglob("*.npz")):
        write_events(path, make_recording(30, seed=int(path.stem), sensor=Sensor(120, 90)))
    found = run.evaluate(letters, repeats=1)
    files = sorted(letters.rglob("*.npz"))
    right = [answer.name == path.parent.name for answer, path in zip(run.model().predict(files), files, strict=True)]
    assert found.accuracy == pytest.approx(sum(right) / 8)


def test_a_folder_with_a_class_that_the_network_does_not_know_is_refused_in_one_line(run, letters):
    write_events(letters / "zebra" / "1.npz", make_recording(60))
    with pytest.raises(Event2VecError, match=r"zebra: 'zebra' is not a class of the network \(a, b, c\)\. Rename"):
        run.evaluate(letters)


def test_of_a_divided_folder_the_test_part_is_tested(run, letters, tmp_path):
    shutil.copytree(letters, tmp_path / "divided/train")
    shutil.copytree(letters / "c", tmp_path / "divided/test/c")
    assert run.evaluate(tmp_path / "divided", repeats=1).confusion.sum(axis=1).tolist() == [0, 0, 4]
    assert run.evaluate(tmp_path / "divided", "train", repeats=1).confusion.sum(axis=1).tolist() == [4, 0, 4]


def test_of_the_folder_that_it_was_trained_on_only_the_test_part_is_tested(people, tmp_path):
    run = train("folder", people, tmp_path / "run", **SMALL_NETWORK)
    assert run.evaluate(people, repeats=1).recordings == run.evaluate(repeats=1).recordings == 12


def test_a_class_without_training_recordings_stops_with_the_reasons(tmp_path):
    for name in ("a", "b"):
        for number in range(3):
            write_events(tmp_path / "data" / name / f"{number}.npz", make_recording(60, seed=number))
    (tmp_path / "data/broken").mkdir()
    (tmp_path / "data/broken/1.npz").write_bytes(b"nothing")
    reason = r"of the class 'broken': 1 recording could not be used, such as broken/1.npz: .*remove the class"
    with pytest.raises(Event2VecError, match=reason):
        train("folder", tmp_path / "data", tmp_path / "run", **SMALL_NETWORK)
    pairs = [(make_recording(30, seed=index), index % 2) for index in range(6)]
    splits = ["train", "test"] * 3
    store = EventStore.create(tmp_path / "s", pairs, sensor=SMALL, classes=["a", "b", "unseen"], splits=splits)
    with pytest.raises(Event2VecError, match="no training recordings of the class 'b': all are in test"):
        train("folder", store, tmp_path / "run", **SMALL_NETWORK)
    assert not (tmp_path / "run").exists()


def test_other_cameras_and_unequal_classes_are_said_and_weights_change_the_training(tmp_path):
    for index in range(16):
        sensor = Sensor(60, 50) if index == 3 else SMALL
        events = make_recording(60, seed=index, sensor=sensor)
        write_events(tmp_path / "data" / ("rare" if index > 12 else "often") / f"{index}.npz", events)
    runs = []
    for weights in ("none", "balanced"):
        told = Told()
        settings = {**SMALL_NETWORK, "objective": {"class_weights": weights}, "training": {"epochs": 1, "batch": 4}}
        runs.append(train("folder", tmp_path / "data", tmp_path / weights, progress=told, **settings))
        assert "Recordings of other sensors are scaled to 34x30: 1 of 60x50" in told.lines
        said = any(line.startswith("Classes have from 2 to 9 training recordings; objective") for line in told.lines)
        assert said == (weights == "none")
    assert runs[0].metrics[0]["train_loss"] != runs[1].metrics[0]["train_loss"]


def test_a_choice_of_folds_that_would_be_ignored_is_refused(store, tmp_path):
    settings: dict[str, Any] = {"data.folds_over": "all"}
    with pytest.raises(
        Event2VecError, match=r"data.folds_over is for cross-validation. Omit it, or use cross_validate"
    ):
        train("folder", store, tmp_path / "run", **settings)
