"""Processes that train together: they share the work, and one speaks for all."""

import subprocess
import sys
from dataclasses import replace

import pytest
from processes import SECONDS_TO_END, run_python, run_two
from trainings import RECIPE, make_store

from event2vec import Event2VecError
from event2vec.training.config import AugmentConfig, ObjectiveConfig
from event2vec.training.metrics import read_rows
from event2vec.training.run import Run


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("data") / "store")


def test_more_devices_than_a_run_was_started_on_are_one_line(store, tmp_path):
    run = tmp_path / "run"
    Run.start(RECIPE.with_settings({"training.epochs": 1}), store, run)
    done = run_python("-m", "event2vec", "train", "--resume", run, "--trainer.devices", "2")
    assert done.returncode == 2
    assert done.stderr == "event2vec: the run was started on 1 device and must be resumed on as many, got 2\n"


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


@pytest.mark.slow
def test_two_processes_train_as_one_with_the_doubled_batch(store, tmp_path):
    """Draws of augmentation, drop path and TokenMix belong to a rank, so they are off here."""
    recipe = replace(RECIPE, augment=AugmentConfig(), objective=ObjectiveConfig())
    recipe = recipe.with_settings({"model.drop_path": 0.0})
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml())
    common = ["train", tmp_path / "recipe.yaml", "--data", store.folder]
    run_python("-m", "event2vec", *common, "--out", tmp_path / "one", "--training.batch", "8", check=True)
    two = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    two += ["-m", "event2vec", *common, "--out", tmp_path / "two", "--trainer.devices", "auto"]
    done = subprocess.run(list(map(str, two)), check=False, capture_output=True, text=True, timeout=SECONDS_TO_END)
    assert done.returncode == 0, done.stderr
    rows = [read_rows(tmp_path / run / "metrics.csv") for run in ("one", "two")]
    assert len(rows[0]) == 3
    for alone, shared in zip(*rows, strict=True):
        for name in ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy", "learning_rate"):
            assert shared[name] == pytest.approx(alone[name], rel=1e-5), name


@pytest.mark.slow
def test_what_one_of_two_processes_meets_in_training_is_not_lost(store, tmp_path):
    (tmp_path / "recipe.yaml").write_text(RECIPE.with_settings({"training.learning_rate": 1e30}).to_yaml())
    train = ("train", tmp_path / "recipe.yaml", "--data", store.folder, "--out", tmp_path / "run")
    done = run_two("-m", "event2vec", *train, "--trainer.devices", "auto")
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith("event2vec: ")]
    assert any(
        line.startswith(("event2vec: the loss became", "event2vec: process 1: the loss became")) for line in said
    )
    assert sum("training recordings" in line for line in done.stderr.splitlines()) == 1


LATE = """
import os, sys, time
from pathlib import Path
import torch
from event2vec import Run, EventStore, load_recipe
recipe, store, folder = sys.argv[1:]
waits, meet = Path(folder).with_name("waits"), torch.distributed.init_process_group
def say_and_meet(*arguments, **options):
    waits.touch()
    meet(*arguments, **options)
if os.environ["RANK"] == "0":
    torch.distributed.init_process_group = say_and_meet
else:
    while not waits.exists():
        time.sleep(0.01)
    assert Run(Path(folder)).can_start, "the first process began alone"
Run.start(load_recipe(recipe), EventStore.open(store), folder)
"""


@pytest.mark.slow
def test_a_run_begins_when_its_last_process_is_there(store, tmp_path):
    """A slow process would take what the first has written for a run that was stopped, and resume it."""
    (tmp_path / "recipe.yaml").write_text(RECIPE.with_settings({"trainer.devices": "auto"}).to_yaml())
    (tmp_path / "late.py").write_text(LATE)
    done = run_two(tmp_path / "late.py", tmp_path / "recipe.yaml", store.folder, tmp_path / "run")
    assert done.returncode == 0, done.stderr
