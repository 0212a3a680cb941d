"""Whole networks against the limit of this machine: the time that their matrix work alone would take."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F

from event2vec.benchmark.measure import best_seconds, peak_bytes, peak_of
from event2vec.benchmark.measurement import Measurement
from event2vec.data.datasets import open_dataset
from event2vec.data.sampling import Sampling
from event2vec.errors import Event2VecError, FileError
from event2vec.evaluation.speed import infer, measure_speed, split_answer
from event2vec.events import EventBatch, Events
from event2vec.io import read_recording
from event2vec.machine.cpu import flush_denormals
from event2vec.machine.devices import CPU, Compute
from event2vec.model.classifier import Classifier, build_model, count_parameters
from event2vec.model.config import ModelConfig
from event2vec.model.neighbourhood import counts_around
from event2vec.sensor import Sensor
from event2vec.training.recipe import load_recipe
from event2vec.training.timing import training_step

PAPER: dict[str, tuple[ModelConfig, Sampling]] = {
    recipe.name: (cast(ModelConfig, recipe.model), recipe.sampling)
    for recipe in map(load_recipe, ("dvs_gesture", "asl_dvs", "dvs_lip"))
}
TRAINED = "auto"  # the number type of all three
BATCHES = (1, 8, 32)
SMALL = 16  # events a row of the call that loads the code before memory is measured
RAW_EVENTS = 64_000  # of the recording whose latency is measured, if no real ones are given
ROUNDS = 3
MATRIX = 1024
ANSWERS = {"digits": 4.0, "dvs_gesture": 60.0}  # milliseconds that one answer should take at most, on two cores


def measure_model(
    recipe: str | None, compiled: bool = False, compute: Compute = CPU, recordings: Path | None = None
) -> list[Measurement]:
    """Throughput by batch size, then Table 2 on recordings, for one recipe of the paper or for all three.

    On a CPU also what each part of one answer takes, for digits and for DVS Gesture's network.
    """
    check_recipe(recipe)
    real = _read(recordings) if recordings else []
    recipes = [recipe] if recipe else list(PAPER)
    rows = [_throughput(name, batch, compiled, compute) for name in recipes for batch in BATCHES]
    rows += [_table2(name, real, compute) for name in recipes]
    if compute.device.type != "cpu" or compute.precision == "bf16-mixed":
        return rows
    return rows + [_answer(name, real) for name in ANSWERS if recipe in (None, name)]


def check_recipe(name: str | None) -> None:
    if name is not None and name not in PAPER:
        raise Event2VecError(f"unknown recipe {name!r}, expected one of {', '.join(PAPER)}")


def _throughput(recipe: str, count: int, compiled: bool, compute: Compute) -> Measurement:
    config, sampling = PAPER[recipe]
    model = build_model(config).to(compute.device)
    batch = made_batch(config.sensor, count, sampling.length).to(compute.device)
    if compiled:
        torch.compiler.reset()  # of all networks together, torch keeps only a few forms
        model.compile(fullgraph=True)
    left, right = (torch.randn(MATRIX, MATRIX, device=compute.device) for _ in range(2))
    sides: dict[str, Callable[[], Any]] = {
        "product": partial(_multiply, left, right, compute),
        "inference": partial(infer, model, batch, compute),
        "training": partial(pass_both_ways, model, batch, compute),
    }
    for side in sides.values():
        side()
    seconds = best_seconds(sides, ROUNDS, compute)
    rate = 10 * 2 * MATRIX**3 / seconds["product"]
    limit = count * count_operations(config, sampling.length) / rate
    peaks = {
        work: peak_of(
            sides[work],
            compute,
            partial(peak_bytes, _run_on, (recipe, work, 1, SMALL), recipe, work, count, sampling.length),
        )
        for work in WORK
    }
    figures, ratios = dict[str, float](), dict[str, float]()
    for name, work in (("inference", 1), ("training", 3)):  # gradients of inputs and of weights: twice the products
        figures[f"{name} recordings/s"] = count / seconds[name]
        figures[f"{name} ms"] = seconds[name] * 1e3
        figures[f"{name} limit ms"] = work * limit * 1e3
        figures[f"{name} MB"] = peaks[name] / 2**20
        ratios[f"{name} / limit"] = seconds[name] / (work * limit)
    figures["product GFLOP/s"] = rate / 1e9
    return Measurement({"recipe": recipe, "batch": count, "events": sampling.length}, figures, ratios)


def count_operations(config: ModelConfig, events: int) -> float:
    """Floating-point operations of matrix products for one recording; causal attention is half of the full product."""
    dim, hidden, heads, length = config.dim, config.hidden, config.heads, events
    key_dim = max(heads // 2, 1) * (dim // heads)
    total = 2.0 * length * (3 * dim / 4 + dim**2 / 8 + dim**2 / 2)  # phi; depthwise convolutions have no products
    for _ in range(config.blocks):
        projections = dim * (dim + 2 * key_dim + heads) + 2 * dim * dim + 2 * dim * hidden
        attention = 2 * 2 * dim * length / 2  # two directions, scores and values, half of the keys
        total += 2.0 * length * (projections + attention)
        length = -(-length // 2) if config.pooling else length
    return total + _count_neighbourhood(config, events) + 2.0 * dim * config.classes


def count_training_operations(config: ModelConfig, length: int) -> float:
    """Gradients of inputs and of weights take twice the products of a forward pass; the counts of events need none."""
    return 3 * count_operations(config, length) - _count_neighbourhood(config, length)


def _count_neighbourhood(config: ModelConfig, length: int) -> float:
    return 2.0 * length * counts_around(config.neighbourhood) * config.dim


def _table2(recipe: str, real: Sequence[Events], compute: Compute) -> Measurement:
    """A row of Table 2: on real recordings, scaled to the sensor of the network, or on a synthetic one."""
    config, sampling = PAPER[recipe]
    model = build_model(config, sampling=sampling).to(compute.device)
    recordings = [events.on_sensor(config.sensor) for events in real] or [
        made_batch(config.sensor, 1, RAW_EVENTS).row(0)
    ]
    case: dict[str, str | int] = {"network": recipe, "recordings": len(recordings)}
    case |= {"raw events": int(np.mean([len(events) for events in recordings]))}
    case |= {"tokens": f"{sampling.length} {sampling.method}", "parameters": count_parameters(model)}
    learn = training_step(model, load_recipe(recipe), compute)
    return Measurement(case, measure_speed(model, recordings, learn, compute).columns())


def _read(folder: Path) -> list[Events]:
    """All recordings of a folder, which may hold other files too."""
    found = []
    for path in sorted(folder.iterdir()):
        try:
            found.append(read_recording(path).events)
        except Event2VecError:
            continue
    found = [events for events in found if len(events)]
    if not found:
        raise FileError(folder, "has no recordings that can be read")
    return found


def made_batch(sensor: Sensor, count: int, length: int) -> EventBatch:
    """Recordings with events at random pixels and times."""
    generator = torch.Generator().manual_seed(0)
    x, y, t, p = (torch.rand(count, length, generator=generator) for _ in range(4))
    x, y = (x * sensor.width).floor(), (y * sensor.height).floor()
    t = (t * 1e6).long().sort(dim=1).values
    ones = torch.ones(count, length)
    return EventBatch(x, y, t - t[:, :1], p < 0.5, ones, ones.bool(), sensor)


def _answer(recipe: str, real: Sequence[Events]) -> Measurement:
    """One recording, from its events to its class; reading is left out."""
    model = build_model(cast(ModelConfig, load_recipe(recipe).model), sampling=load_recipe(recipe).sampling)
    if recipe == "digits":
        recording = open_dataset("digits", None, "test")[0][0]
    else:
        recording = real[0] if real else made_batch(model.config.sensor, 1, RAW_EVENTS).row(0)
    case: dict[str, str | int] = {"answer of": recipe, "raw events": len(recording)}
    case |= {"tokens": f"{model.sampling.length} {model.sampling.method}"}
    return Measurement(case, split_answer(model, recording).facts(), {}, {"at most ms": ANSWERS[recipe]})


def measure_rate(compute: Compute) -> float:
    """Floating-point operations a second of a large matrix product."""
    left, right = (torch.randn(MATRIX, MATRIX, device=compute.device) for _ in range(2))
    multiply = partial(_multiply, left, right, compute)
    multiply()
    return 10 * 2 * MATRIX**3 / best_seconds({"product": multiply}, ROUNDS, compute)["product"]


def _multiply(left: torch.Tensor, right: torch.Tensor, compute: Compute) -> None:
    with compute.autocast():
        for _ in range(10):
            left @ right


def pass_both_ways(model: Classifier, batch: EventBatch, compute: Compute) -> None:
    """Forward and backward passes: the part of a training step that is made of matrix products."""
    labels = torch.zeros(len(batch), dtype=torch.int64, device=compute.device)
    with compute.autocast():
        loss = F.cross_entropy(model(batch), labels)
    with flush_denormals():
        loss.backward()
    model.zero_grad()


WORK: dict[str, Callable[..., None]] = {"inference": infer, "training": pass_both_ways}


def _run_on(recipe: str, work: str, count: int, length: int) -> None:
    config = PAPER[recipe][0]
    WORK[work](build_model(config), made_batch(config.sensor, count, length), CPU)
