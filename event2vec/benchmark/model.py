"""Whole networks against the limit of this machine: the time that their matrix work alone would take."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from event2vec.benchmark.measure import best_seconds, peak_bytes
from event2vec.errors import Event2VecError
from event2vec.events import EventBatch, Events, Sensor
from event2vec.machine import flush_denormals, tune_cpu
from event2vec.model import Classifier, ModelConfig, build_model, count_parameters
from event2vec.recipe import load_recipe
from event2vec.sampling import Sampling

PAPER: dict[str, tuple[ModelConfig, Sampling]] = {
    recipe.name: (recipe.model, recipe.sampling) for recipe in map(load_recipe, ("dvs_gesture", "asl_dvs", "dvs_lip"))
}
BATCHES = (1, 8, 32)
SMALL = 16  # events a row of the call that loads the code before memory is measured
RAW_EVENTS = 64_000  # of the recording whose latency is measured
ROUNDS = 3
MATRIX = 1024


def measure_model(recipe: str | None, compiled: bool = False) -> list[dict[str, Any]]:
    """Throughput by batch size, then latency of one recording, for one recipe of the paper or for all three."""
    check_recipe(recipe)
    recipes = [recipe] if recipe else list(PAPER)
    rows = [_throughput(name, batch, compiled) for name in recipes for batch in BATCHES]
    return rows + [_latency(name) for name in recipes]


def check_recipe(name: str | None) -> None:
    if name is not None and name not in PAPER:
        raise Event2VecError(f"unknown recipe {name!r}, expected one of {', '.join(PAPER)}")


def _throughput(recipe: str, count: int, compiled: bool) -> dict[str, Any]:
    config, sampling = PAPER[recipe]
    model, batch = build_model(config), _batch(config.sensor, count, sampling.length)
    if compiled:
        model.compile(fullgraph=True)
    left, right = torch.randn(MATRIX, MATRIX), torch.randn(MATRIX, MATRIX)
    sides: dict[str, Callable[[], Any]] = {
        "product": lambda: [left @ right for _ in range(10)],
        "inference": lambda: _infer(model, batch),
        "training": lambda: _train(model, batch),
    }
    for side in sides.values():
        side()
    seconds = best_seconds(sides, ROUNDS)
    rate = 10 * 2 * MATRIX**3 / seconds["product"]
    limit = count * count_operations(config, sampling.length) / rate
    peaks = {work: peak_bytes(_run_on, (recipe, work, 1, SMALL), recipe, work, count, sampling.length) for work in WORK}
    row: dict[str, Any] = {"recipe": recipe, "batch": count, "events": sampling.length}
    for name, work in (("inference", 1), ("training", 3)):  # gradients of inputs and of weights: twice the products
        row[f"{name} recordings/s"] = count / seconds[name]
        row[f"{name} ms"] = seconds[name] * 1e3
        row[f"{name} limit ms"] = work * limit * 1e3
        row[f"{name} / limit"] = seconds[name] / (work * limit)
        row[f"{name} MB"] = peaks[name] / 2**20
    return row | {"product GFLOP/s": rate / 1e9}


def count_operations(config: ModelConfig, length: int) -> float:
    """Floating-point operations of matrix products for one recording; causal attention is half of the full product."""
    dim, hidden, heads = config.dim, config.hidden, config.heads
    key_dim = max(heads // 2, 1) * (dim // heads)
    total = 2.0 * length * (3 * dim / 4 + dim**2 / 8 + dim**2 / 2)  # phi; depthwise convolutions have no products
    for _ in range(config.blocks):
        projections = dim * (dim + 2 * key_dim + heads) + 2 * dim * dim + 2 * dim * hidden
        attention = 2 * 2 * dim * length / 2  # two directions, scores and values, half of the keys
        total += 2.0 * length * (projections + attention)
        length = -(-length // 2) if config.pooling else length
    return total + 2.0 * dim * config.classes


def _latency(recipe: str) -> dict[str, Any]:
    """One recording: to the events that the network reads, then through the network."""
    config, sampling = PAPER[recipe]
    model = build_model(config, sampling=sampling)
    speed = measure_speed(model, [_batch(config.sensor, 1, RAW_EVENTS).row(0)])
    row: dict[str, Any] = {"latency of": recipe, "raw events": RAW_EVENTS}
    row |= {"tokens": f"{sampling.length} {sampling.method}", "parameters": count_parameters(model)}
    return row | {name: value for name, value in speed.items() if name.endswith(" ms")}


def measure_speed(model: Classifier, recordings: Sequence[Events], batch: int = 32) -> dict[str, float]:
    """Milliseconds for one recording, the median of these, and recordings a second in batches (Table 2, Figure 7)."""
    model.eval()
    sampling = model.sampling
    prepared = [_prepare(sampling, events) for events in recordings]
    preparing, forward = [], []
    for raw, events in zip(recordings, prepared, strict=True):
        single = EventBatch.pad([events])
        seconds = best_seconds(
            {"preparing": partial(_prepare, sampling, raw), "forward": partial(_infer, model, single)}, 5
        )
        preparing.append(seconds["preparing"])
        forward.append(seconds["forward"])
    whole = EventBatch.pad([prepared[index % len(prepared)] for index in range(batch)])
    rates = best_seconds({"inference": partial(_infer, model, whole), "training": partial(_train, model, whole)}, 3)
    first, second = float(np.median(preparing)) * 1e3, float(np.median(forward)) * 1e3
    return {
        "preparing ms": first,
        "forward ms": second,
        "total ms": first + second,
        "inference recordings/s": batch / rates["inference"],
        "training recordings/s": batch / rates["training"],
    }


def _prepare(sampling: Sampling, recording: Events) -> Events:
    return sampling.shorten(recording, torch.Generator().manual_seed(0))


def _batch(sensor: Sensor, count: int, length: int) -> EventBatch:
    generator = torch.Generator().manual_seed(0)
    x, y, t, p = (torch.rand(count, length, generator=generator) for _ in range(4))
    x, y = (x * sensor.width).floor(), (y * sensor.height).floor()
    t = (t * 1e6).long().sort(dim=1).values
    ones = torch.ones(count, length)
    return EventBatch(x, y, t - t[:, :1], p < 0.5, ones, ones.bool(), sensor)


def _infer(model: Classifier, batch: EventBatch) -> None:
    with torch.no_grad():
        model(batch)


def _train(model: Classifier, batch: EventBatch) -> None:
    labels = torch.zeros(len(batch), dtype=torch.int64)
    loss = F.cross_entropy(model(batch), labels)
    with flush_denormals():
        loss.backward()
    model.zero_grad()


WORK = {"inference": _infer, "training": _train}


def _run_on(recipe: str, work: str, count: int, length: int) -> None:
    tune_cpu()
    config = PAPER[recipe][0]
    WORK[work](build_model(config), _batch(config.sensor, count, length))
