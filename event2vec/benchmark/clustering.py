"""Clustering a recording: ours on both engines, scikit-learn and Faiss (Table 5)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from event2vec.benchmark.measure import best_seconds, peak_bytes
from event2vec.benchmark.measurement import Measurement
from event2vec.clustering import SEED, Settings, cluster_events, cluster_with, to_unit_cube
from event2vec.clustering.alternatives import cluster_faiss, cluster_sklearn
from event2vec.clustering.torch_engine import TorchCloud
from event2vec.errors import Event2VecError
from event2vec.events import Events
from event2vec.io import read_recording
from event2vec.machine.devices import CPU, Compute
from event2vec.sensor import Sensor

SIZES = (4_000, 16_000, 64_000, 256_000)
CLUSTERS = (256, 512, 1024)
ITERATIONS = 20
ROUNDS = 3
OURS_COMPILED, OURS_TORCH, SKLEARN, SKLEARN_LONG, FAISS = (
    "ours",
    "ours, torch",
    "scikit-learn",
    "scikit-learn 300",
    "faiss",
)


def measure_clustering(recordings: Path | None, compute: Compute = CPU) -> list[Measurement]:
    """Each size with each number of clusters, the memory of the largest, and how our cost grows with the events.

    Only our torch engine runs elsewhere than on the CPU. Memory is that of the CPU.
    """
    timings, memory = list[Timing](), list[Measurement]()
    for count in SIZES:
        events = _take_events(count, recordings)
        timings += [_compare(events, clusters, compute) for clusters in CLUSTERS if clusters < count]
        memory.append(_memory(events, CLUSTERS[-1]))
    return [timing.measurement() for timing in timings] + memory + _growth(timings)


@dataclass(frozen=True)
class Timing:
    """How long each side took, and the inertia that it reached over scikit-learn's."""

    events: int
    clusters: int
    seconds: dict[str, float]
    inertia: dict[str, float]

    def measurement(self) -> Measurement:
        ours = self.seconds[OURS_COMPILED]
        faster = {f"x {name}": self.seconds[name] / ours for name in (SKLEARN, FAISS)}
        return Measurement(
            case={"events": self.events, "clusters": self.clusters},
            figures={f"{name} ms": value * 1e3 for name, value in self.seconds.items()},
            ratios=faster | {f"inertia {name}": value for name, value in self.inertia.items()},
        )


def _ours_on_torch(events: Events, clusters: int, compute: Compute = CPU) -> Events:
    settings = Settings(64, ITERATIONS, 1e-4, torch.Generator(compute.device).manual_seed(SEED))
    return cluster_with(TorchCloud, events.to(compute.device), clusters, settings).to("cpu")


SIDES: dict[str, Callable[[Events, int], Events]] = {
    OURS_COMPILED: partial(cluster_events, iterations=ITERATIONS),
    OURS_TORCH: _ours_on_torch,
    SKLEARN: partial(cluster_sklearn, iterations=ITERATIONS),
    FAISS: partial(cluster_faiss, iterations=ITERATIONS),
}


def _compare(events: Events, clusters: int, compute: Compute) -> Timing:
    sides = {name: partial(side, events, clusters) for name, side in SIDES.items()}
    sides[OURS_TORCH] = partial(_ours_on_torch, events, clusters, compute)
    seconds = best_seconds(sides, ROUNDS, compute)
    # One round is enough for the side that takes minutes and has no target.
    seconds |= best_seconds({SKLEARN_LONG: partial(cluster_sklearn, events, clusters, 300)}, 1)
    spread = {name: inertia(events, side()) for name, side in sides.items()}
    relative = {name: value / spread[SKLEARN] for name, value in spread.items() if name != SKLEARN}
    return Timing(len(events), clusters, seconds, relative)


def _memory(events: Events, clusters: int) -> Measurement:
    """The peak memory that each side adds, measured in a separate process."""
    few = events.select(slice(0, 500))
    peaks = {f"{name} MB": peak_bytes(side, (few, 20), events, clusters) / 1e6 for name, side in SIDES.items()}
    return Measurement(case={"events": len(events), "clusters": clusters}, figures=peaks)


def _growth(timings: list[Timing]) -> list[Measurement]:
    """Time of the largest recording over that of the smallest, beside the same ratio of events."""
    grown = []
    for clusters in dict.fromkeys(timing.clusters for timing in timings):
        first, *_, last = sorted(
            (timing for timing in timings if timing.clusters == clusters), key=lambda timing: timing.events
        )
        times = last.seconds[OURS_COMPILED] / first.seconds[OURS_COMPILED]
        growth = {"events grow": last.events / first.events}
        grown.append(Measurement(case={"clusters": clusters}, figures=growth, ratios={"time grows": times}))
    return grown


def inertia(events: Events, centres: Events) -> float:
    """The sum of squared distances in the unit cube from each event to the nearest centre of its polarity."""
    from scipy.spatial import cKDTree

    places, points = to_unit_cube(centres, events).numpy(), to_unit_cube(events).numpy()
    total = 0.0
    for polarity in (False, True):
        mine, theirs = events.p.numpy() == polarity, centres.p.numpy() == polarity
        if mine.any():
            total += float((cKDTree(places[theirs]).query(points[mine])[0] ** 2).sum())
    return total


def _take_events(count: int, recordings: Path | None) -> Events:
    """The first events of the smallest recording in the folder that has enough, else simulated ones."""
    found = []
    for path in sorted(recordings.iterdir()) if recordings else []:
        try:
            events = read_recording(path).events
        except Event2VecError:
            continue  # there may be other files next to the recordings
        found += [events] if len(events) >= count else []
    return min(found, key=len).select(slice(0, count)) if found else _simulate(count)


def _simulate(count: int) -> Events:
    """Digits all over a larger sensor, one after the other and side by side."""
    from event2vec.data.datasets import open_dataset

    digits, sensor = open_dataset("digits", None, "train"), Sensor(346, 260)
    random = np.random.default_rng((0, 0, count))
    parts: list[Events] = []
    while sum(map(len, parts)) < count:
        events, _ = digits[len(parts)]
        right, down, later = random.integers(0, (346 - 34, 260 - 34, 10**6))
        parts.append(replace(events, x=events.x + int(right), y=events.y + int(down), t=events.t + int(later)))
    columns = (torch.cat([getattr(part, name) for part in parts]) for name in ("x", "y", "t", "p"))
    return Events.from_arrays(*columns, sensor=sensor).select(slice(0, count))
