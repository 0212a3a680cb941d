"""Training: every draw and every batch decided, kills that change nothing, processes that share the work."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from conftest import SMALL, make_recording

from event2vec import Event2VecError, EventStore, ModelConfig, Recipe, Sampling, load_model
from event2vec.atomic import SUFFIX
from event2vec.data.batches import Recordings, collate_indexed
from event2vec.data.seeding import seeded
from event2vec.errors import DiskFull
from event2vec.model.checkpoint import load_any_model
from event2vec.model.classifier import build_model
from event2vec.model.embedding import ConvolutionalTemporal
from event2vec.model.masked import build_masked_model
from event2vec.progress import Progress
from event2vec.training.callbacks import Checkpoints
from event2vec.training.config import AugmentConfig, DataConfig, ObjectiveConfig, TrainerConfig, TrainingConfig
from event2vec.training.lightning_module import Learner, learning_rate_factor, split_by_decay
from event2vec.training.metrics import append_row, read_rows
from event2vec.training.objectives import Classification
from event2vec.training.recipe import load_recipe
from event2vec.training.run import Run
from event2vec.training.steps import Batches, steps_in_epoch

RECIPE = Recipe(
    sampling=Sampling(length=32),
    augment=AugmentConfig(rotate=20.0, translate=2.0, chunks=1, chunk_length=8),
    model=ModelConfig(sensor=SMALL, classes=3, dim=16, hidden=16, heads=2, blocks=2, drop_path=0.2),
    objective=ObjectiveConfig(token_mix=0.5),
    training=TrainingConfig(epochs=3, batch=4, checkpoint_steps=4, learning_rate=0.1, warmup_epochs=1.0, clip=1.0),
    trainer=TrainerConfig(accelerator="cpu", devices=1),
)
FLAT = RECIPE.with_settings({"model.pooling": False})


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    recordings = [(make_recording(60, seed=index), index % 3) for index in range(36)]
    splits = ["train"] * 24 + ["validation"] * 6 + ["test"] * 6
    folder = tmp_path_factory.mktemp("data") / "store"
    return EventStore.create(folder, recordings, sensor=SMALL, classes=["a", "b", "c"], splits=splits)


@pytest.fixture(scope="module")
def whole(store, tmp_path_factory):
    """A run that nothing disturbed."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    Run.start(RECIPE, store, run, "train")
    return run


def evaluate_directly(model, store):
    """Accuracy on the draws that training tests on."""
    recordings = Recordings((store,), model.sampling, seed=0)
    batch, labels, _ = collate_indexed([recordings[0, index] for index in range(len(store))])
    return (model(batch).argmax(dim=1) == labels).float().mean().item()


def assert_same_networks(run, other):
    """Both of the last epoch and of the best, and what the best does with the test recordings."""
    for name in ("model", "best"):
        pairs = zip(load_model(run / name).parameters(), load_model(other / name).parameters(), strict=True)
        assert all(torch.equal(one, another) for one, another in pairs), name
    results = [(folder / "evaluation/test.json").read_bytes() for folder in (run, other)]
    assert results[0] == results[1]


class Watch(Progress):
    def __init__(self):
        self.started, self.steps, self.losses, self.lines = [], [], [], []

    def start(self, title, total=None):
        self.started.append((title, total))

    def advance(self, done, note=""):
        if note:
            self.steps.append(done)
            self.losses.append(float(note.split("loss ")[1].split()[0]))

    def say(self, line):
        self.lines.append(line)


def test_a_run_leaves_all_that_is_needed(store, tmp_path):
    watch, run = Watch(), tmp_path / "run"
    Run.start(RECIPE, store, run, "train", progress=watch)
    fitted = [("fitting the temperature", 6)] * 2  # of the last network and of the best
    assert watch.started == [("training", 3 * 6), *fitted, ("evaluating", 6)]
    assert watch.steps == list(range(1, 19))
    assert [row["epoch"] for row in read_rows(run / "metrics.csv")] == [1, 2, 3]
    assert {"train_loss", "train_accuracy", "validation_loss", "validation_accuracy", "learning_rate"} <= read_rows(
        run / "metrics.csv"
    )[-1].keys()
    epochs = [line for line in watch.lines if line.startswith("epoch")]
    assert [line.split("  ")[0] for line in epochs] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert all("validation accuracy" in line and line.endswith(" left") for line in epochs)
    assert (run / "curves.png").stat().st_size > 1000, "a Python user has the curves too"
    assert load_model(run).class_names == ("a", "b", "c")
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["last.ckpt"]
    best = max(read_rows(run / "metrics.csv"), key=lambda row: row["validation_accuracy"])["validation_accuracy"]
    found = evaluate_directly(load_model(run / "best"), store.split("validation"))
    assert found == pytest.approx(best, abs=1e-6), "best/ is the network of the best epoch"
    assert list((run / "tensorboard").glob("events.*"))
    assert Run.open(run).facts.data == str(store.folder.resolve())
    assert {"torch", "python", "command", "threads"} <= Run.open(run).facts.environment.keys()
    with pytest.raises(Event2VecError, match="exists already"):
        Run.start(RECIPE, store, run, "train")


def test_every_epoch_has_draws_of_its_own(store, tmp_path, monkeypatch):
    seen = []
    read = Recordings.__getitem__
    monkeypatch.setattr(
        Recordings, "__getitem__", lambda self, key: seen.append((len(self.sets[0]), key)) or read(self, key)
    )
    recipe = replace(RECIPE, training=replace(RECIPE.training, epochs=2, repeats=2, batch=12))
    Run.start(recipe, store, tmp_path / "run", "train")
    keys = [key for count, key in seen if count == 24]
    assert [draw for draw, _ in keys] == [0] * 24 + [1] * 24 + [2] * 24 + [3] * 24
    orders = [[index for draw, index in keys if draw == number] for number in range(4)]
    assert len({tuple(order) for order in orders}) == 4
    assert all(sorted(order) == list(range(24)) for order in orders)


def test_it_learns(tmp_path, make_events):
    """Three classes in three corners: a few steps must tell them apart."""

    def corner(label, seed):
        events = make_events(60, seed=seed)
        return replace(events, x=events.x / 4 + 8 * label, y=events.y / 4 + 7 * label), label

    recordings = [corner(index % 3, index) for index in range(60)]
    store = EventStore.create(
        tmp_path / "store",
        recordings,
        sensor=SMALL,
        classes=["a", "b", "c"],
        splits=["train"] * 45 + ["validation"] * 15,
    )
    training = TrainingConfig(epochs=8, batch=8, learning_rate=0.3, warmup_epochs=1.0)
    Run.start(replace(RECIPE, augment=AugmentConfig(), training=training), store, tmp_path / "run", "train")
    rows = read_rows(tmp_path / "run/metrics.csv")
    assert rows[-1]["validation_accuracy"] > 0.9
    assert rows[-1]["train_loss"] < 0.7 * rows[0]["train_loss"]


KILLED = """
import os, signal, sys
import torch
torch.set_num_threads(1)
from pathlib import Path
from event2vec import EventStore, Progress, Run, load_recipe
class Killer(Progress):
    def advance(self, step, note=""):
        if note and step == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)
if __name__ == "__main__":
    run = Path(sys.argv[2])
    if sys.argv[1] == "resume":
        Run.open(run / "killed").resume()
    else:
        recipe, store = load_recipe(sys.argv[4]), EventStore.open(sys.argv[1])
        Run.start(recipe, store, run / "whole", "train")
        Run.start(recipe, store, run / "killed", "train", progress=Killer())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "step"), [(0, 11), (2, 2), (2, 11)])
def test_a_killed_run_ends_with_the_same_weights(store, tmp_path, workers, step):
    """Checkpoints are written every 4 steps, an epoch has 6: step 11 resumes in the middle of the second epoch."""
    recipe = replace(RECIPE, data=DataConfig(workers=workers))
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml())
    (tmp_path / "killed.py").write_text(KILLED)

    def process(*arguments):
        command = [sys.executable, "-W", "ignore", tmp_path / "killed.py", *map(str, arguments)]
        return subprocess.run(command, check=False, capture_output=True).returncode

    assert process(store.folder, tmp_path, step, tmp_path / "recipe.yaml") == -9
    assert process("resume", tmp_path) == 0
    assert_same_networks(tmp_path / "whole", tmp_path / "killed")
    same = [name for name in read_rows(tmp_path / "whole/metrics.csv")[0] if name not in ("seconds", "data_share")]
    for one, other in zip(*(read_rows(tmp_path / run / "metrics.csv") for run in ("whole", "killed")), strict=True):
        assert [one[name] for name in same] == [other[name] for name in same]


class Stopped(Exception):
    pass


@pytest.mark.parametrize("step", [2, 6, 11])
def test_a_stop_at_any_step_changes_nothing(store, whole, tmp_path, step):
    class Stopper(Watch):
        def advance(self, at, note=""):
            if note and at == step:
                raise Stopped

    with pytest.raises(Stopped):
        Run.start(RECIPE, store, tmp_path / "stopped", "train", progress=Stopper())
    Run.open(tmp_path / "stopped").resume()
    assert_same_networks(whole, tmp_path / "stopped")


@pytest.mark.parametrize("epoch", [1, 3])
@pytest.mark.parametrize("place", ["validation", "epoch"])
def test_a_stop_at_the_end_of_an_epoch_changes_nothing(store, tmp_path, monkeypatch, epoch, place):
    """Where a checkpoint by steps falls on the last step of an epoch, and the stop comes after it."""
    recipe = replace(RECIPE, training=replace(RECIPE.training, checkpoint_steps=6))
    Run.start(recipe, store, tmp_path / "whole", "train")
    validate = Learner.validation_step

    class Stopper(Watch):
        def say(self, line):
            if place == "epoch" and line.startswith(f"epoch {epoch}/"):
                raise Stopped

    def stop(learner, batch, batch_idx):
        if learner.current_epoch == epoch - 1:
            raise Stopped
        validate(learner, batch, batch_idx)

    if place == "validation":
        monkeypatch.setattr(Learner, "validation_step", stop)
    with pytest.raises(Stopped):
        Run.start(recipe, store, tmp_path / "stopped", "train", progress=Stopper())
    monkeypatch.setattr(Learner, "validation_step", validate)
    Run.open(tmp_path / "stopped").resume()
    assert_same_networks(tmp_path / "whole", tmp_path / "stopped")
    same = ("epoch", "step", "train_loss", "train_accuracy", "validation_loss", "validation_accuracy", "learning_rate")
    for one, other in zip(*(read_rows(tmp_path / run / "metrics.csv") for run in ("whole", "stopped")), strict=True):
        assert [one[name] for name in same] == [other[name] for name in same]


def accumulated(batches, batch=2, **training):
    changed = replace(RECIPE.training, batch=batch, **training)
    return replace(RECIPE, training=changed, trainer=replace(RECIPE.trainer, accumulate=batches))


def test_accumulated_batches_take_the_step_of_one_that_holds_them_all(store, tmp_path):
    """Draws of augmentation, drop path and TokenMix belong to a batch, so they are off here."""
    watches, rows = [], []
    for name, recipe in (("parts", accumulated(4, epochs=2)), ("whole", accumulated(1, batch=8, epochs=2))):
        recipe = replace(recipe, augment=AugmentConfig(), objective=ObjectiveConfig())
        recipe = recipe.with_settings({"model.drop_path": 0.0})
        watches.append(Watch())
        Run.start(recipe, store, tmp_path / name, "train", progress=watches[-1])
        rows.append(read_rows(tmp_path / name / "metrics.csv"))
    pairs = zip(
        load_model(tmp_path / "parts/model").parameters(),
        load_model(tmp_path / "whole/model").parameters(),
        strict=True,
    )
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in pairs)
    assert watches[0].started[0] == watches[1].started[0] == ("training", 2 * 3)
    assert watches[0].steps == [1, 2, 3, 4, 5, 6], "steps, not batches"
    assert watches[0].losses == pytest.approx(watches[1].losses, abs=2e-3)
    for parts, whole in zip(*rows, strict=True):
        for name in ("step", "train_loss", "train_accuracy", "validation_loss", "learning_rate"):
            assert parts[name] == pytest.approx(whole[name], rel=1e-4), name


@pytest.fixture(scope="module")
def whole_accumulated(store, tmp_path_factory):
    """Four steps of three batches in each epoch, checkpoints every two steps, all draws on."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    Run.start(accumulated(3, epochs=2, checkpoint_steps=2), store, run, "train")
    return run


@pytest.mark.parametrize("batch", [7, 17])
def test_a_stop_between_accumulated_batches_changes_nothing(store, whole_accumulated, tmp_path, monkeypatch, batch):
    recipe = accumulated(3, epochs=2, checkpoint_steps=2)
    step, begun = Learner.training_step, []

    def stop(learner, events, batch_idx):
        begun.append(batch_idx)
        if len(begun) == batch + 1:
            raise Stopped
        return step(learner, events, batch_idx)

    monkeypatch.setattr(Learner, "training_step", stop)
    with pytest.raises(Stopped):
        Run.start(recipe, store, tmp_path / "stopped", "train")
    monkeypatch.setattr(Learner, "training_step", step)
    Run.open(tmp_path / "stopped").resume()
    assert_same_networks(whole_accumulated, tmp_path / "stopped")
    same = ("epoch", "step", "train_loss", "train_accuracy", "validation_loss", "validation_accuracy", "learning_rate")
    rows = [read_rows(run / "metrics.csv") for run in (whole_accumulated, tmp_path / "stopped")]
    for one, other in zip(*rows, strict=True):
        assert [one[name] for name in same] == [other[name] for name in same]


def test_a_run_goes_on_with_as_many_batches_in_a_step(whole_accumulated):
    with pytest.raises(Event2VecError, match=r"started with trainer.accumulate 3 and must be resumed with it, got 1"):
        Run.open(whole_accumulated).resume(trainer={"accumulate": 1})


def test_every_accumulated_batch_has_draws_of_its_own(store, tmp_path, monkeypatch):
    import event2vec.training.lightning_module as learner

    drawn, draw = [], seeded
    monkeypatch.setattr(learner, "seeded", lambda *key: drawn.append(key[:3]) or draw(*key))
    Run.start(accumulated(2, batch=6, epochs=1), store, tmp_path / "run", "train")
    assert len(drawn) == len(set(drawn)) == 4


def test_more_devices_than_a_run_was_started_on_are_one_line(whole, tmp_path):
    run = shutil.copytree(whole, tmp_path / "run")
    command = [sys.executable, "-m", "event2vec", "train", "--resume", run, "--trainer.devices", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2
    assert done.stderr == "event2vec: the run was started on 1 device and must be resumed on as many, got 2\n"


def test_a_run_goes_on_with_moved_data_and_on_as_many_devices(store, tmp_path, monkeypatch):
    class Stopper(Watch):
        def advance(self, at, note=""):
            if note and at == 5:
                raise Stopped

    moved = tmp_path / "moved"
    shutil.copytree(store.folder, tmp_path / "here")
    with pytest.raises(Stopped):
        Run.start(RECIPE, EventStore.open(tmp_path / "here"), tmp_path / "run", "train", progress=Stopper())
    (tmp_path / "here").rename(moved)
    with pytest.raises(Event2VecError, match=r"here: is gone, and event2vec did not make it.* --data"):
        Run.open(tmp_path / "run").resume()
    last = tmp_path / "run/checkpoints/last.ckpt"
    content = torch.load(last, weights_only=True)
    torch.save(content | {"world_size": 4}, last)
    with pytest.raises(Event2VecError, match="started on 4 devices and must be resumed on as many, got 1"):
        Run.open(tmp_path / "run").resume(moved)
    last.write_bytes(last.read_bytes()[:100])
    with pytest.raises(Event2VecError, match="cannot be read"):
        Run.open(tmp_path / "run").resume(moved)
    torch.save(content, last)
    Run.open(tmp_path / "run").resume(moved)
    assert len(read_rows(tmp_path / "run/metrics.csv")) == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trainer.precision": "fp99"}, "the trainer settings do not work here"),
        ({"trainer.accelerator": "tpu"}, "the trainer settings do not work here"),
    ],
)
def test_trainer_settings_that_do_not_work_leave_no_run_behind(store, tmp_path, settings, message):
    with pytest.raises(Event2VecError, match=message):
        Run.start(RECIPE.with_settings(settings), store, tmp_path / "run", "train")
    assert not (tmp_path / "run").exists()


def test_processes_that_were_started_together_train_together(store, tmp_path, monkeypatch):
    recipe = RECIPE.with_settings({"trainer.devices": 1})
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(
        Event2VecError, match=r"2 processes were started, but trainer.devices and trainer.num_nodes give 1"
    ):
        Run.start(recipe, store, tmp_path / "run", "train")


def test_a_finished_run_has_nothing_to_resume(whole):
    before = load_model(whole)
    Run.open(whole).resume()
    again = load_model(whole)
    assert all(torch.equal(one, other) for one, other in zip(before.parameters(), again.parameters(), strict=True))


@pytest.mark.slow
def test_two_processes_train_as_one_with_the_doubled_batch(store, tmp_path):
    """Draws of augmentation, drop path and TokenMix belong to a rank, so they are off here."""
    recipe = replace(RECIPE, augment=AugmentConfig(), objective=ObjectiveConfig())
    recipe = recipe.with_settings({"model.drop_path": 0.0})
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml())
    common = ["train", tmp_path / "recipe.yaml", "--data", store.folder]
    one = [sys.executable, "-m", "event2vec", *common, "--out", tmp_path / "one", "--training.batch", "8"]
    two = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    two += ["-m", "event2vec", *common, "--out", tmp_path / "two", "--trainer.devices", "auto"]
    for command in (one, two):
        done = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    rows = [read_rows(tmp_path / run / "metrics.csv") for run in ("one", "two")]
    assert len(rows[0]) == 3
    for alone, shared in zip(*rows, strict=True):
        for name in ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy", "learning_rate"):
            assert shared[name] == pytest.approx(alone[name], rel=1e-5), name


@pytest.mark.slow
def test_what_one_of_two_processes_meets_in_training_is_not_lost(store, tmp_path):
    (tmp_path / "recipe.yaml").write_text(RECIPE.with_settings({"training.learning_rate": 1e30}).to_yaml())
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "event2vec", "train", tmp_path / "recipe.yaml", "--data", store.folder]
    command += ["--out", tmp_path / "run", "--trainer.devices", "auto"]
    done = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith("event2vec: ")]
    assert any(
        line.startswith(("event2vec: the loss became", "event2vec: process 1: the loss became")) for line in said
    )
    assert sum("training recordings" in line for line in done.stderr.splitlines()) == 1


LATE = """
import os, sys, time
from pathlib import Path
from event2vec import Run, EventStore, load_recipe
recipe, store, folder = sys.argv[1:]
if os.environ["RANK"] == "1":
    time.sleep(2)
    assert Run(Path(folder)).is_free, "the first process began alone"
Run.start(load_recipe(recipe), EventStore.open(store), folder)
"""


@pytest.mark.slow
def test_a_run_begins_when_its_last_process_is_there(store, tmp_path):
    """A slow process would take what the first has written for a run that was stopped, and resume it."""
    (tmp_path / "recipe.yaml").write_text(RECIPE.with_settings({"trainer.devices": "auto"}).to_yaml())
    (tmp_path / "late.py").write_text(LATE)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [tmp_path / "late.py", tmp_path / "recipe.yaml", store.folder, tmp_path / "run"]
    done = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_ranks_share_a_step_without_overlap():
    config = TrainingConfig(batch=3, repeats=2, seed=5)
    ranks = [list(Batches(10, config, rank, 2, start=0)) for rank in range(2)]
    whole = list(Batches(10, replace(config, batch=6), 0, 1, start=0))
    assert [one + other for one, other in zip(*ranks, strict=True)] == whole
    keys = [key for batch in whole for key in batch]
    assert len(set(keys)) == len(keys) == 18, "no recording twice in a round, and what does not fill a step waits"
    assert {draw for draw, _ in keys} == {0, 1}
    assert steps_in_epoch(10, config, 2) == 3


def test_batches_that_are_accumulated_are_those_of_as_many_ranks():
    config = TrainingConfig(batch=3, repeats=2, seed=5)
    ranks = [list(Batches(10, config, rank, 2, start=0)) for rank in range(2)]
    alone = list(Batches(10, config, 0, 1, start=0, accumulate=2))
    assert alone == [batch for step in zip(*ranks, strict=True) for batch in step]
    both = [list(Batches(20, config, rank, 2, start=1, accumulate=2)) for rank in range(2)]
    whole = list(Batches(20, replace(config, batch=12), 0, 1, start=1))
    steps = [
        batch for pair in zip(*both, strict=True) for batch in pair
    ]  # first of each rank, second of each rank, ...
    assert [key for batch in steps for key in batch] == [key for batch in whole for key in batch]


def test_epochs_differ_and_a_stopped_one_goes_on():
    batches = Batches(10, TrainingConfig(batch=2), 0, 1, start=3)
    first, second = list(batches), list(batches)
    assert (len(first), len(second)) == (2, 5), "only the first is short"
    assert first == second[3:]
    batches.set_epoch(1)
    later = list(batches)
    assert later != second
    assert list(Batches(10, TrainingConfig(batch=2), 0, 1, start=5 + 3)) == later[3:], "before set_epoch is called"


def test_a_data_set_smaller_than_a_step_fills_it():
    (batch,) = Batches(3, TrainingConfig(batch=8), 0, 1, start=0)
    assert len(batch) == 8
    assert {index for _, index in batch} == {0, 1, 2}


def test_a_recording_is_drawn_by_its_round_and_index(store):
    recordings = Recordings((store,), Sampling(length=16), seed=0)
    one, again, other = recordings[0, 5], recordings[0, 5], recordings[1, 5]
    assert torch.equal(one[0].t, again[0].t)
    assert not torch.equal(one[0].t, other[0].t)
    batch, labels, indices = collate_indexed([one, recordings[0, 7]])
    assert batch.valid.shape == (2, 16)
    assert (labels.tolist(), indices) == ([2, 1], [5, 7])


def test_sets_of_clusters_take_turns(store):
    sets = tuple(store.subset([number, number + 3]) for number in range(3))
    recordings = Recordings(sets, Sampling(method="clusters", length=1000), seed=0)
    for index, turns in ((0, (0, 1, 2, 0)), (1, (1, 2, 0, 1))):
        for draw, turn in enumerate(turns):
            assert torch.equal(recordings[draw, index][0].t, sets[turn][index][0].t)
    assert not torch.equal(sets[0][0][0].t, sets[1][0][0].t)


def test_training_reads_all_sets_and_goes_on_with_as_many(tmp_path, monkeypatch):
    recordings = [(make_recording(12, seed=index), index % 3) for index in range(12)]
    recordings = [(events, index // 2 % 3) for index, (events, _) in enumerate(recordings)]
    names: dict[str, Any] = {"sensor": SMALL, "classes": ["a", "b", "c"]}
    two = EventStore.create(tmp_path / "two", recordings, sets=[0, 1] * 6, **names)
    seen = []
    read = Recordings.__getitem__
    monkeypatch.setattr(Recordings, "__getitem__", lambda self, key: seen.append(self.sets) or read(self, key))
    recipe = replace(RECIPE, sampling=Sampling(method="clusters", length=16))
    Run.start(recipe, two, tmp_path / "run", "train")
    assert [one.rows.tolist() for one in seen[0]] == [[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11]]
    assert load_recipe(tmp_path / "run/recipe.yaml").sampling.clusterings == 2, "what the store holds"
    one = EventStore.create(tmp_path / "one", recordings, **names)
    with pytest.raises(Event2VecError, match="its clusterings per recording are 1, expected 2"):
        Run.open(tmp_path / "run").resume(one.folder)


def test_the_learning_rate_warms_up_and_cools_down():
    config = TrainingConfig(epochs=64, warmup_epochs=4.0, final_learning_rate=1e-6)
    rate = 0.001
    factors = [learning_rate_factor(epoch, config, rate) for epoch in (0.0, 2.0, 4.0, 34.0, 64.0, 70.0)]
    assert factors == pytest.approx([0.01, 0.505, 1, 0.5005, 0.001, 0.001])
    assert learning_rate_factor(0.0, TrainingConfig(warmup_epochs=0.0), rate) == 1


def test_a_loss_that_is_no_number_names_the_recordings(store, tmp_path):
    recipe = replace(RECIPE, training=replace(RECIPE.training, learning_rate=1e30, clip=0.0, warmup_epochs=0.0))
    with pytest.raises(Event2VecError, match=r"the loss became nan at step \d+, learning rate 1.5\de\+28, on \d+, \d+"):
        Run.start(recipe, store, tmp_path / "run", "train")


def test_pretraining_is_taken_over_all_but_the_head(store, tmp_path):
    Run.start(FLAT, store, tmp_path / "pretrained", "pretrain")
    row = read_rows(tmp_path / "pretrained/metrics.csv")[-1]
    assert {
        "train_loss_of_mean",
        "train_polarity_accuracy",
        "validation_x_error_pixels",
        "validation_y_error_pixels",
    } <= row.keys()
    still = replace(FLAT, training=replace(FLAT.training, learning_rate=0.0, epochs=1))
    watch = Watch()
    Run.start(still, store, tmp_path / "tuned", "train", init=tmp_path / "pretrained", progress=watch)
    theirs, ours = load_any_model(tmp_path / "pretrained").state_dict(), load_model(tmp_path / "tuned").state_dict()
    taken = {name for name in ours if not name.startswith("head.")}
    assert all(torch.equal(theirs[name], ours[name]) for name in taken)
    counts = [sum(name.startswith(part) for name in taken) for part in ("embed.", "backbone.")]
    said = f"Copied {counts[0]} weights of the embedding and {counts[1]} weights of the backbone"
    assert any(line.startswith(said) for line in watch.lines)
    wider = FLAT.with_settings({"model.hidden": 24})
    with pytest.raises(Event2VecError, match=r"does not fit: backbone.*narrow.weight has \(16, 16\)|widen"):
        Run.start(wider, store, tmp_path / "wider", "train", init=tmp_path / "pretrained")
    with pytest.raises(Event2VecError, match=r"model.pooling must be false"):
        Run.start(RECIPE, store, tmp_path / "pooled", "pretrain")


def test_bfloat16_trains(store, tmp_path):
    recipe = replace(RECIPE, trainer=replace(RECIPE.trainer, precision="bf16-mixed"))
    Run.start(recipe, store, tmp_path / "run", "train")
    assert all(parameter.isfinite().all() for parameter in load_model(tmp_path / "run").parameters())


def test_a_store_without_test_recordings_trains(tmp_path, make_events):
    """Three of each class are too few to take validation recordings from."""
    recordings = [(make_events(60, seed=index), index % 3) for index in range(9)]
    store = EventStore.create(tmp_path / "store", recordings, sensor=SMALL, classes=["a", "b", "c"])
    Run.start(RECIPE, store, tmp_path / "run", "train")
    assert "validation_loss" not in read_rows(tmp_path / "run/metrics.csv")[0]
    assert (tmp_path / "run/model").is_dir()
    assert not (tmp_path / "run/best").exists()
    assert not (tmp_path / "run/evaluation").exists()
    assert load_model(tmp_path / "run").class_names == ("a", "b", "c"), "that of the last epoch"
    patient = replace(RECIPE, training=replace(RECIPE.training, patience=2))
    with pytest.raises(Event2VecError, match=r"training.patience needs a validation part. Set data.validation"):
        Run.start(patient, store, tmp_path / "patient", "train")
    assert not (tmp_path / "patient/recipe.yaml").exists()


def test_the_test_part_is_read_once_and_after_the_last_epoch(store, tmp_path, monkeypatch):
    seen, read = [], EventStore.sample
    test = set(store.split("test").rows.tolist())
    monkeypatch.setattr(EventStore, "sample", lambda self, i, *how: seen.append(self.rows[i]) or read(self, i, *how))
    Run.start(RECIPE, store, tmp_path / "run", "train")
    reads = [row in test for row in seen]
    assert sum(reads) == len(test) == 6
    assert all(reads[-6:])
    found = Run.open(tmp_path / "run").evaluate(repeats=1)
    kept = json.loads((tmp_path / "run/evaluation/test.json").read_text())
    assert (kept["accuracy"], kept["recordings"]) == (found.accuracy, 6), "of the same network: the best"


def test_a_training_stops_when_validation_no_longer_gains_and_stays_stopped(store, tmp_path):
    """Without a learning rate no epoch is better than the first."""
    still = replace(RECIPE.training, learning_rate=0.0, patience=2, epochs=9)
    watch = Watch()
    run = Run.start(replace(RECIPE, training=still), store, tmp_path / "run", "train", progress=watch)
    assert len(run.metrics) == 3
    before = (tmp_path / "run/metrics.csv").read_bytes()
    (tmp_path / "run/evaluation/test.json").unlink()  # as a kill just before the end would leave it
    watch = Watch()
    run.resume(progress=watch)
    assert (tmp_path / "run/metrics.csv").read_bytes() == before
    assert watch.lines[0] == "Training stopped early: no better epoch in 2"
    assert (tmp_path / "run/evaluation/test.json").is_file()
    run.resume(training={"patience": 3})
    assert len(run.metrics) == 4
    assert run.recipe.training.patience == 3


def test_a_stop_in_a_training_with_patience_changes_nothing(store, tmp_path):
    class Stopper(Watch):
        def advance(self, at, note=""):
            if note and at == 14:
                raise Stopped

    recipe = replace(RECIPE, training=replace(RECIPE.training, learning_rate=1e-9, patience=2, epochs=9))
    whole = Run.start(recipe, store, tmp_path / "whole", "train")
    with pytest.raises(Stopped):
        Run.start(recipe, store, tmp_path / "stopped", "train", progress=Stopper())
    stopped = Run.open(tmp_path / "stopped").resume()
    assert len(whole.metrics) == len(stopped.metrics) < 9
    assert_same_networks(tmp_path / "whole", tmp_path / "stopped")


def test_of_equally_good_epochs_the_one_with_the_lowest_loss_is_best(store, tmp_path):
    score = Checkpoints(Run(tmp_path), Classification(build_model(RECIPE.model), RECIPE.objective), RECIPE.training)
    score.load_state_dict({"best": [0.5, -1.0], "waited": 1})
    assert (0.5, -0.9) > score.best > (0.5, -1.1)
    assert (0.6, -9.0) > score.best > (0.4, -0.1)


def test_a_run_trained_for_longer_reads_the_test_part_again(store, tmp_path):
    run = Run.start(RECIPE, store, tmp_path / "run", "train")
    run.evaluate(repeats=3)
    kept = (tmp_path / "run/evaluation/test.json").read_bytes()
    run.resume()
    assert (tmp_path / "run/evaluation/test.json").read_bytes() == kept, "nothing was trained"
    run.resume(training={"epochs": 4})
    assert json.loads((tmp_path / "run/evaluation/test.json").read_text())["repeats"] == 1


def test_pretraining_has_a_best_epoch_and_a_test_result(store, tmp_path):
    run = Run.start(FLAT, store, tmp_path / "run", "pretrain")
    losses = [row["validation_loss"] for row in run.metrics]
    assert (tmp_path / "run/best").is_dir()
    found = json.loads((tmp_path / "run/evaluation/test.json").read_text())
    assert found["recordings"] == 6
    assert found["loss"] == pytest.approx(min(losses), rel=0.5)
    assert found.keys() >= {"loss_of_mean", "polarity_accuracy"}


def test_weight_decay_spares_norms_and_biases(store, tmp_path):
    """With no gradient to speak of, only what decays gets smaller."""
    training = replace(RECIPE.training, weight_decay=0.5, learning_rate=1e-3, epochs=1)
    Run.start(replace(RECIPE, training=training), store, tmp_path / "decayed", "train")
    Run.start(replace(RECIPE, training=replace(training, weight_decay=0.0)), store, tmp_path / "free", "train")
    decayed, free = load_model(tmp_path / "decayed").state_dict(), load_model(tmp_path / "free").state_dict()
    changed = {name for name in free if not torch.allclose(decayed[name], free[name], rtol=1e-9, atol=1e-9)}
    assert any(name.endswith("project_all.weight") for name in changed)
    norms = {name for name in free if "norm" in name or free[name].ndim < 2}
    assert all(torch.allclose(decayed[name], free[name], atol=1e-5) for name in norms)


@pytest.mark.parametrize("attention", ["forgetting", "gated_linear"])
def test_what_is_spared_weight_decay(attention):
    config = replace(
        cast(ModelConfig, FLAT.model), attention=attention, spatial="lookup", temporal="sine", shared=False
    )
    for model in (build_model(config), build_masked_model(config)):
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        decayed, free = ({names[id(parameter)] for parameter in part} for part in split_by_decay(model))
        assert decayed | free == set(names.values())
        assert not decayed & free
        assert "embed.spatial.rows.weight" in free, "a lookup table"
        assert "embed.temporal.scale" in free
        assert {name for name in names.values() if "bias" in name or "norm" in name or "mask_token" in name} <= free
        assert "backbone.stages.0.blocks.0.widen.weight" in decayed
        assert all(name.endswith("weight") for name in decayed)
    temporal = build_model(cast(ModelConfig, FLAT.model)).embed.temporal
    assert isinstance(temporal, ConvolutionalTemporal)
    shapes = {weight.shape for weight in split_by_decay(build_model(FLAT.model))[0]}
    assert {kernel.shape for kernel in temporal.kernels} <= shapes


def test_a_row_that_was_trained_again_is_replaced(tmp_path):
    path = tmp_path / "metrics.csv"
    for epoch, loss in ((1.0, 3.0), (2.0, 2.0), (2.0, 1.0)):
        append_row(path, {"epoch": epoch, "loss": loss, "seconds": 1.0, "data_share": 0.0})
    assert [row["loss"] for row in read_rows(path)] == [3.0, 1.0]
    assert len(path.read_text().splitlines()) == 3


@pytest.mark.parametrize("content", ["", "\x00", "epoch\n1\n", "epoch,seconds,data_share\n1,2,x\n", "epoch\n1,2,3\n"])
def test_rubbish_in_the_metrics_of_a_run_is_one_error(tmp_path, content):
    path = tmp_path / "metrics.csv"
    path.write_text(content)
    with pytest.raises(Event2VecError, match=r"metrics.csv: is not a table of a run's epochs"):
        read_rows(path)


def widen(state):
    name = next(name for name in state["state_dict"] if name.endswith("head.linear.bias"))
    state["state_dict"][name] = torch.zeros(9)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda state: state.clear(), "it holds no complete training state"),
        (lambda state: state.pop("world_size"), "it holds no complete training state"),
        (lambda state: state.update(state_dict=[1]), "it holds no named weights"),
        (lambda state: state.update(sums=torch.zeros(9)), "its metrics are not those of this task"),
        (lambda state: state["state_dict"].popitem(), "does not match the recipe"),
        (lambda state: state["state_dict"].update(more=torch.zeros(1)), "more does not match the recipe"),
        (widen, "bias does not match the recipe"),
        (lambda state: next(iter(state["state_dict"].values())).fill_(torch.nan), "not finite numbers"),
        (lambda state: state.pop("loops"), "it holds no complete training state"),
        (lambda state: state.update(loops=[1]), "TypeError"),
        (lambda state: state.update(optimizer_states=[]), "its optimizer_states must have exactly one entry"),
        (lambda state: state["optimizer_states"][0]["param_groups"].pop(), "ValueError"),
        (lambda state: state["optimizer_states"][0]["state"][0].update(exp_avg=torch.zeros(9)), "its optimiser is for"),
        (lambda state: state.update(callbacks={"Checkpoints": {"worst": 1}}), "KeyError"),
    ],
)
def test_a_checkpoint_that_does_not_fit_the_run_is_one_error(whole, tmp_path, damage, message):
    run = shutil.copytree(whole, tmp_path / "run")
    path = run / "checkpoints" / "last.ckpt"
    state = torch.load(path, weights_only=True)
    damage(state)
    torch.save(state, path)
    recipe = (run / "recipe.yaml").read_text()
    (run / "recipe.yaml").write_text(recipe.replace("epochs: 3", "epochs: 4"))  # there is something left to do
    with pytest.raises(Event2VecError, match=f"last.ckpt: does not fit the run: .*{message}") as caught:
        Run.open(run).resume()
    assert str(caught.value).endswith("Remove it to restart the run")
    assert len(str(caught.value)) < 400


def test_a_pipe_in_the_place_of_a_checkpoint_does_not_block(whole, tmp_path):
    run = shutil.copytree(whole, tmp_path / "run")
    (run / "checkpoints" / "last.ckpt").unlink()
    os.mkfifo(run / "checkpoints" / "last.ckpt")
    with pytest.raises(Event2VecError, match=r"last.ckpt: does not fit the run: it is not a file"):
        Run.open(run).resume()


def test_what_a_process_that_reads_ahead_met_is_one_line(tmp_path):
    recordings = [(make_recording(60, seed=index), index % 3) for index in range(8)]
    store = EventStore.create(tmp_path / "store", recordings, sensor=SMALL, classes=["a", "b", "c"])
    (store.folder / "x.bin").write_bytes(b"\xff" * (store.folder / "x.bin").stat().st_size)
    ahead = replace(RECIPE, data=DataConfig(workers=1))
    for recipe, run in ((RECIPE, "none"), (ahead, "one")):
        with pytest.raises(Event2VecError, match=r"store: is a damaged store: .* x = 65535 outside") as caught:
            Run.start(recipe, store, tmp_path / run, "train")
        assert "\\n" not in str(caught.value)


def test_a_folder_that_is_no_run_is_said(tmp_path):
    with pytest.raises(Event2VecError, match=r"is not a run: it has neither run.json nor a network"):
        Run.open(tmp_path).resume()
    for content, message in (
        ("[1]", "is not a JSON object"),
        ("[" * 100_000, "is nested too deeply"),
        ("{}", "is damaged"),
        ('{"task": "fly", "data": "x", "init": null}', "is damaged"),
        ('{"task": "train", "data": 5, "init": null}', "is damaged"),
        ('{"task": "train", "data": "x", "init": ["a"]}', "is damaged"),
    ):
        (tmp_path / "run.json").write_text(content)
        with pytest.raises(Event2VecError, match=f"run.json: .*{message}"):
            Run.open(Path(tmp_path)).resume()


@pytest.mark.parametrize(
    "left", [[], [".lock"], [".lock", "run.json"], [".lock", f".recipe.yaml.0a1b2c3d{SUFFIX}/recipe.yaml"]]
)
def test_a_run_that_was_killed_before_it_began_begins_again(store, tmp_path, left):
    run = tmp_path / "run"
    run.mkdir()
    for name in left:
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("{}")
    with pytest.raises(Event2VecError, match=r"is not a run|is damaged"):
        Run.open(run).resume()
    Run.start(replace(RECIPE, training=replace(RECIPE.training, epochs=1)), store, run, "train")
    assert len(read_rows(run / "metrics.csv")) == 1
    assert not list(run.rglob(".*"))


def test_a_run_that_never_began_is_said_to_be_started_again(whole, tmp_path):
    shutil.copy(whole / "run.json", tmp_path)
    with pytest.raises(Event2VecError, match=r"was stopped before training started. Run the same command"):
        Run.open(tmp_path).resume()


def test_a_folder_with_anything_else_is_no_place_for_a_run(store, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.yaml").write_text("mine")
    with pytest.raises(Event2VecError, match=r"exists already. Choose another --out"):
        Run.start(RECIPE, store, tmp_path / "run", "train")
    assert (tmp_path / "run" / "recipe.yaml").read_text() == "mine"


def test_one_process_trains_in_a_run_at_a_time(store, whole):
    class Second(Watch):
        def advance(self, done, note=""):
            for enter in (lambda: Run.open(run).resume(), lambda: Run.start(RECIPE, store, run, "train")):
                with pytest.raises(
                    Event2VecError, match=rf"process {os.getpid()} on .* since .*; wait for it to finish"
                ):
                    enter()

    run = whole.with_name("shared")
    recipe = replace(RECIPE, training=replace(RECIPE.training, epochs=1))
    Run.start(recipe, store, run, "train", progress=Second())
    assert not (run / ".lock").exists()


def test_what_a_kill_left_half_written_is_cleared_though_nothing_is_left_to_train(whole, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    for name in (f".model.0a1b2c3d{SUFFIX}/model", f"checkpoints/.last.ckpt.0a1b2c3d{SUFFIX}/last.ckpt"):
        (run / name).mkdir(parents=True)
    Run.open(run).resume()
    assert not list(run.rglob(f".*{SUFFIX}"))


def test_a_run_on_a_full_disk_says_so_and_goes_on(store, small_disk):
    recipe = replace(RECIPE, training=replace(RECIPE.training, epochs=1))
    (small_disk.folder / "filler").write_bytes(bytes(900_000))
    with pytest.raises(DiskFull, match=f"^{small_disk.folder}/run/.*: the disk is full"):
        Run.start(recipe, store, small_disk.folder / "run", "train")
    assert not list(small_disk.folder.rglob(".*"))
    (small_disk.folder / "filler").unlink()
    Run.open(small_disk.folder / "run").resume()
    assert load_model(small_disk.folder / "run").class_names == ("a", "b", "c")


def test_a_users_own_folder_with_our_ending_is_no_free_place_for_a_run(tmp_path):
    assert Run(tmp_path).is_free
    (tmp_path / "novel.writing").mkdir()
    assert not Run(tmp_path).is_free
