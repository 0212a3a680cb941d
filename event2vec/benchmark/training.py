"""Training on a CPU: the whole loop against its matrix products, and compiled attention against the folded form."""

import tempfile
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import cast

import torch

from event2vec.benchmark.measure import best_seconds
from event2vec.benchmark.measurement import Measurement
from event2vec.benchmark.model import count_training_operations, made_batch, measure_rate, pass_both_ways
from event2vec.data.store import EventStore
from event2vec.events import EventBatch
from event2vec.machine.devices import CPU
from event2vec.model import compiled_attention
from event2vec.model.classifier import Classifier, build_model
from event2vec.model.config import ModelConfig
from event2vec.model.tokens import tokens_in_training
from event2vec.progress import Progress
from event2vec.training.recipe import Recipe, load_recipe
from event2vec.training.run import Run

LOOPS = ("digits", "nmnist")
FORMS = {"digits": 32, "nmnist": 32, "dvs_gesture": 8, "asl_dvs": 8, "dvs_lip": 8}  # recordings of a step
STEPS = 24  # of a loop
ROUNDS = 3  # of each form
WITHIN = 2.5  # times the products that a step of a loop should take at most
FASTER = 1.8  # times as fast as the folded form that a step should be at least


def measure_training() -> list[Measurement]:
    """Each step of real trainings, from batch to batch; then forward and backward passes with and without C."""
    loops = [_measure_loop(name) for name in LOOPS]
    if not compiled_attention.INSTALLED:
        return loops
    return loops + [_compare_forms(name, batch) for name, batch in FORMS.items()]


def _measure_loop(name: str) -> Measurement:
    """With loader, augmentation, optimiser, callbacks and Lightning; the test and what an epoch saves are left out."""
    recipe = load_recipe(name).with_settings(
        {"training.epochs": 1, "trainer.accelerator": "cpu", "trainer.devices": 1, "training.checkpoint_steps": 10**6}
    )
    rates, steps = [measure_rate(CPU)], _time_steps(recipe)
    rates.append(measure_rate(CPU))
    config = cast(ModelConfig, recipe.model)
    tokens = tokens_in_training(config, recipe.sampling.length)
    operations = recipe.training.batch * count_training_operations(config, tokens)
    limit = operations / max(rates)
    return Measurement(
        {"loop": name, "batch": recipe.training.batch, "events": recipe.sampling.length},
        {"step ms": 1e3 * min(steps), "median ms": 1e3 * median(steps), "limit ms": 1e3 * limit},
        {"step / limit": min(steps) / limit},
        {"at most": WITHIN},
    )


class Watch(Progress):
    """Notes when each step of the training ended. Other stages, such as fitting a temperature, do not count."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.ends: list[float] = []

    def start(self, title: str, total: int | None = None) -> None:
        self.stages.append(title)

    def finish(self) -> None:
        self.stages.pop()

    def advance(self, done: int, note: str = "") -> None:
        if self.stages[-1:] == ["training"]:
            self.ends.append(time.perf_counter())


def _time_steps(recipe: Recipe) -> list[float]:
    """Seconds of each step of a training on made recordings, without the first two, which warm up, and the last."""
    batch = made_batch(recipe.model.sensor, STEPS * recipe.training.batch, recipe.sampling.length)
    pairs = ((batch.row(index), index % recipe.model.classes) for index in range(len(batch)))
    classes = [str(number) for number in range(recipe.model.classes)]
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        store = EventStore.create(Path(folder) / "store", pairs, sensor=recipe.model.sensor, classes=classes)
        Run.start(recipe, store, Path(folder) / "run", "train", progress=watch)
    return [stop - start for start, stop in pairwise(watch.ends)][2:-1]


def _compare_forms(name: str, count: int) -> Measurement:
    recipe = load_recipe(name)
    model = build_model(recipe.model)
    batch = made_batch(recipe.model.sensor, count, recipe.sampling.length)
    sides = {form: partial(_pass_both_ways, model, batch, form == "compiled") for form in ("compiled", "folded")}
    for side in sides.values():
        side()
    seconds = best_seconds(sides, ROUNDS if count * recipe.sampling.length > 10_000 else 5 * ROUNDS)
    return Measurement(
        {"step of": name, "batch": count, "events": recipe.sampling.length, "threads": torch.get_num_threads()},
        {f"{form} ms": 1e3 * seconds[form] for form in sides},
        {"folded / compiled": seconds["folded"] / seconds["compiled"]},
        {"at least": FASTER},
    )


def _pass_both_ways(model: Classifier, batch: EventBatch, compiled: bool) -> None:
    before, compiled_attention.Settings.used = compiled_attention.Settings.used, compiled
    try:
        pass_both_ways(model, batch, CPU)
    finally:
        compiled_attention.Settings.used = before
