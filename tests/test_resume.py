"""Stops, kills and damage: a run that is resumed ends with the same weights, or one line says why it cannot be."""

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, make_recording
from processes import run_python
from trainings import RECIPE, StopAt, Stopped, Watch, accumulated, assert_same_networks, make_store

from event2vec import Event2VecError, EventStore, Sampling, load_model
from event2vec.data.batches import Recordings
from event2vec.errors import DiskFull
from event2vec.machine.atomic import SUFFIX
from event2vec.training.config import DataConfig
from event2vec.training.lightning_module import Learner
from event2vec.training.metrics import read_rows
from event2vec.training.recipe import load_recipe
from event2vec.training.run import Run


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("data") / "store")


@pytest.fixture(scope="module")
def whole(store, tmp_path_factory):
    """A run that nothing disturbed."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    Run.start(RECIPE, store, run, "train")
    return run


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
    task, run, step, *data = sys.argv[1:]
    if task == "resume":
        Run.open(run).resume()
    else:
        Run.start(load_recipe(data[0]), EventStore.open(data[1]), run, progress=Killer())
"""


COMPARED: dict[str, dict[str, Any]] = {  # one with means of norms, one with a penalty and dropout
    "voxel_grid": {"bins": 3, "side": 16, "channels": 4},
    "sparse_gru": {"bins": 4, "side": 16, "features": 8, "units": 8},
}


@pytest.mark.parametrize("network", sorted(COMPARED))
def test_a_compared_network_that_was_stopped_within_an_epoch_ends_with_the_same_weights(network, store, tmp_path):
    sizes = {f"model.{name}": value for name, value in COMPARED[network].items()}
    settings = {"model.network": network, **sizes, "objective.token_mix": 0.0, "training.epochs": 2}
    recipe = RECIPE.with_settings(settings)
    Run.start(recipe, store, tmp_path / "whole", "train")
    with pytest.raises(Stopped):
        Run.start(recipe, store, tmp_path / "stopped", "train", progress=StopAt(11))
    Run.open(tmp_path / "stopped").resume()
    assert_same_networks(tmp_path / "whole", tmp_path / "stopped")


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_weights(store, whole, tmp_path):
    """Two processes read ahead, which changes nothing either.

    Checkpoints are written every 4 steps, an epoch has 6: step 11 resumes in the middle of the second epoch.
    """
    (tmp_path / "recipe.yaml").write_text(replace(RECIPE, data=DataConfig(workers=2)).to_yaml())
    (tmp_path / "killed.py").write_text(KILLED)
    killed, started = tmp_path / "killed", ("start", tmp_path / "killed", 11, tmp_path / "recipe.yaml", store.folder)
    assert run_python(tmp_path / "killed.py", *started).returncode == -signal.SIGKILL
    run_python(tmp_path / "killed.py", "resume", killed, 0, check=True)
    assert_same_networks(whole, killed)
    same = [name for name in read_rows(whole / "metrics.csv")[0] if name not in ("seconds", "data_share")]
    for one, other in zip(*(read_rows(run / "metrics.csv") for run in (whole, killed)), strict=True):
        assert [one[name] for name in same] == [other[name] for name in same]


@pytest.mark.parametrize("step", [2, 6, 11])
def test_a_stop_at_any_step_changes_nothing(store, whole, tmp_path, step):
    with pytest.raises(Stopped):
        Run.start(RECIPE, store, tmp_path / "stopped", "train", progress=StopAt(step))
    Run.open(tmp_path / "stopped").resume()
    assert_same_networks(whole, tmp_path / "stopped")


@pytest.mark.parametrize("epoch", [1, 3])
@pytest.mark.parametrize("place", ["validation", "epoch"])
def test_a_stop_at_the_end_of_an_epoch_changes_nothing(store, whole, tmp_path, monkeypatch, epoch, place):
    """Where a checkpoint by steps falls on the last step of an epoch, and the stop comes after it."""
    recipe = replace(RECIPE, training=replace(RECIPE.training, checkpoint_steps=6))
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
    assert_same_networks(whole, tmp_path / "stopped")
    same = ("epoch", "step", "train_loss", "train_accuracy", "validation_loss", "validation_accuracy", "learning_rate")
    for one, other in zip(*(read_rows(run / "metrics.csv") for run in (whole, tmp_path / "stopped")), strict=True):
        assert [one[name] for name in same] == [other[name] for name in same]


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


def test_a_stop_in_a_training_with_patience_changes_nothing(store, tmp_path):
    recipe = replace(RECIPE, training=replace(RECIPE.training, learning_rate=1e-9, patience=2, epochs=9))
    whole = Run.start(recipe, store, tmp_path / "whole", "train")
    with pytest.raises(Stopped):
        Run.start(recipe, store, tmp_path / "stopped", "train", progress=StopAt(14))
    stopped = Run.open(tmp_path / "stopped").resume()
    assert len(whole.metrics) == len(stopped.metrics) < 9
    assert_same_networks(tmp_path / "whole", tmp_path / "stopped")


def test_a_run_goes_on_with_moved_data_and_on_as_many_devices(store, tmp_path, monkeypatch):
    moved = tmp_path / "moved"
    shutil.copytree(store.folder, tmp_path / "here")
    with pytest.raises(Stopped):
        Run.start(RECIPE, EventStore.open(tmp_path / "here"), tmp_path / "run", "train", progress=StopAt(5))
    (tmp_path / "here").rename(moved)
    with pytest.raises(Event2VecError, match=r"here: is gone, and event2vec did not make it.* `data`"):
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


def test_training_reads_all_sets_and_goes_on_with_as_many(tmp_path, monkeypatch):
    recordings = [(make_recording(12, seed=index), index % 3) for index in range(12)]
    recordings = [(events, index // 2 % 3) for index, (events, _) in enumerate(recordings)]
    names: dict[str, Any] = {"sensor": SMALL, "classes": ["a", "b", "c"]}
    two = EventStore.create(tmp_path / "two", recordings, sets=[0, 1] * 6, **names)
    seen = []
    read = Recordings.batch
    monkeypatch.setattr(Recordings, "batch", lambda self, keys: seen.append(self.sets) or read(self, keys))
    recipe = replace(RECIPE, sampling=Sampling(method="clusters", length=16))
    Run.start(recipe, two, tmp_path / "run", "train")
    assert [one.rows.tolist() for one in seen[0]] == [[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11]]
    assert load_recipe(tmp_path / "run/recipe.yaml").sampling.clusterings == 2, "what the store holds"
    one = EventStore.create(tmp_path / "one", recordings, **names)
    with pytest.raises(Event2VecError, match="it has 1 clustering per recording, expected 2"):
        Run.open(tmp_path / "run").resume(one.folder)


def test_a_finished_run_has_nothing_to_resume(whole):
    before = load_model(whole)
    Run.open(whole).resume()
    again = load_model(whole)
    assert all(torch.equal(one, other) for one, other in zip(before.parameters(), again.parameters(), strict=True))


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
    with pytest.raises(Event2VecError, match=r"exists already. Choose another `out`"):
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


@pytest.mark.pictures
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
    assert Run(tmp_path).can_start
    (tmp_path / "novel.writing").mkdir()
    assert not Run(tmp_path).can_start
