"""What tests of training share: a small recipe, its recordings, and who watches or stops a training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from conftest import SMALL, make_recording

from event2vec import EventStore, ModelConfig, Progress, Recipe, Sampling, load_model
from event2vec.training.config import AugmentConfig, ObjectiveConfig, TrainerConfig, TrainingConfig

RECIPE = Recipe(
    sampling=Sampling(length=32),
    augment=AugmentConfig(rotate=20.0, translate=2.0, chunks=1, chunk_length=8),
    model=ModelConfig(sensor=SMALL, classes=3, dim=16, hidden=16, heads=2, blocks=2, drop_path=0.2),
    objective=ObjectiveConfig(token_mix=0.5),
    training=TrainingConfig(epochs=3, batch=4, checkpoint_steps=4, learning_rate=0.1, warmup_epochs=1.0, clip=1.0),
    trainer=TrainerConfig(accelerator="cpu", devices=1),
)
FLAT = RECIPE.with_settings({"model.pooling": False})


def make_store(folder: Path) -> EventStore:
    """36 recordings of three classes: 24 to train on, six for validation, six for testing."""
    recordings = [(make_recording(60, seed=index), index % 3) for index in range(36)]
    splits = ["train"] * 24 + ["validation"] * 6 + ["test"] * 6
    return EventStore.create(folder, recordings, sensor=SMALL, classes=["a", "b", "c"], splits=splits)


def assert_same_networks(run: Path, other: Path) -> None:
    """Both of the last epoch and of the best, and what the best does with the test recordings."""
    for name in ("model", "best"):
        one, another = load_model(run / name).state_dict(), load_model(other / name).state_dict()  # with means of norms
        assert all(torch.equal(one[part], another[part]) for part in one | another), name
    results = [(folder / "evaluation/test.json").read_bytes() for folder in (run, other)]
    assert results[0] == results[1]


class Watch(Progress):
    """What a training reports."""

    def __init__(self) -> None:
        self.started: list[tuple[str, int | None]] = []
        self.steps: list[int] = []
        self.losses: list[float] = []
        self.lines: list[str] = []

    def start(self, title: str, total: int | None = None) -> None:
        self.started.append((title, total))

    def advance(self, done: int, note: str = "") -> None:
        if note:
            self.steps.append(done)
            self.losses.append(float(note.split("loss ")[1].split()[0]))

    def say(self, line: str) -> None:
        self.lines.append(line)


class Stopped(Exception):
    """As Ctrl-C or an error would end a training."""


class StopAt(Watch):
    """Stops a training after this step."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def advance(self, done: int, note: str = "") -> None:
        if note and done == self.step:
            raise Stopped
        super().advance(done, note)


def accumulated(batches: int, batch: int = 2, **training: Any) -> Recipe:
    """The recipe with steps of several batches."""
    changed = replace(RECIPE.training, batch=batch, **training)
    return replace(RECIPE, training=changed, trainer=replace(RECIPE.trainer, accumulate=batches))
