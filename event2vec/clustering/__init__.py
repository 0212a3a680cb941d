"""Batched K-Means++ (Alg. 1): the paper's second way to reduce a recording to L tokens, in which every event counts.

Each polarity is clustered separately: seed with centres drawn in batches by squared distance, then Lloyd's iteration.

    pruned      more centres than needed are seeded; each moves to the mean of its events; then the centres that cost
                least to lose are dropped. If clusters are large, most of the work is done on groups of neighbours.
    plain       Alg. 1 to the letter: as many seeds as clusters. Ends 4 to 30 % above scikit-learn's inertia.
    iteration   assign each event to its nearest centre, then move each centre to the mean of its events

Two engines implement these phases: `CompiledCloud` on a CPU, without torch, and `TorchCloud` on an accelerator.
"""

import operator
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from os import cpu_count
from typing import Any, get_args

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from event2vec.arguments import several
from event2vec.choices import Seeding as Seeding
from event2vec.clustering.compiled_engine import CompiledCloud, Task, cluster_polarities, library
from event2vec.clustering.engine import Cloud
from event2vec.columns import as_array
from event2vec.errors import Event2VecError
from event2vec.events import Events
from event2vec.mersenne import Generator, Mersenne, draw_seed

Result = tuple[NDArray[Any], NDArray[Any]]  # centres and counts of one polarity
VERSION = 2  # raise it if a change gives different clusters for the same recording
SEED = 0  # without a generator, the same recording always gives the same clusters
SPARE = 32  # seeds drawn in addition to two per cluster
GROUPS, LARGEST_GROUP = 40, 16  # the fewest groups per cluster, and the most events per group
FINE = 6  # final iterations on all events instead of groups
OWNER = os.getpid()  # a forked process has none of its parent's threads, and torch fails in threads started there


def cluster_events(
    events: Events,
    clusters: int,
    *,
    batch: int = 64,
    iterations: int = 20,
    tolerance: float = 1e-4,
    generator: Generator | None = None,
    seeding: Seeding = "pruned",
) -> Events:
    """Represent a recording by at most `clusters` events (Alg. 1); `rho` counts the raw events behind each of them.

        few = cluster_events(read_events("walk.aedat4"), 1024)
        few.rho.sum()  # the number of raw events

    `seeding` is "pruned", which fits the events more closely, or "plain", which is Alg. 1 to the letter.
    The iteration ends once no centre moves by `tolerance` or more, in the unit cube. A cluster that loses all its
    events is dropped and not seeded again: this happens if events coincide, and a new seed would only split one of its
    neighbours. So every rho is at least 1, and their sum is preserved: the number of raw events. A recording that is
    already short enough is returned unchanged. On a CPU, the same recording and generator give the same clusters to
    the bit; an installation without the compiled code gives different ones.
    """
    _check_settings(clusters, batch, iterations, tolerance, seeding)
    settings = Settings(batch, iterations, tolerance, generator or Mersenne(SEED), seeding)
    return _cluster_recording(events, clusters, settings, side_by_side=True)


@dataclass(frozen=True)
class BatchedKMeans:
    """`cluster_events` with its settings, as stores use it."""

    iterations: int = 20
    seeding: Seeding = "pruned"

    def __call__(self, events: Events, clusters: int, seed: int = SEED) -> Events:
        generator = Mersenne(seed)
        return cluster_events(events, clusters, iterations=self.iterations, generator=generator, seeding=self.seeding)

    def __str__(self) -> str:
        """Everything that the clusters depend on; the compiled code and torch give different ones."""
        compiled = "compiled" if library() else "torch"
        return f"batched K-Means++ {VERSION} {compiled} {self.iterations} {self.seeding}"


def cluster_batch(
    recordings: Events | Sequence[Events],
    clusters: int,
    *,
    batch: int = 64,
    iterations: int = 20,
    tolerance: float = 1e-4,
    seeding: Seeding = "pruned",
) -> list[Events]:
    """`cluster_events` for each recording, spread over the cores.

        few = cluster_batch([read_events(path) for path in paths], 512)

    The clusters are those that `cluster_events` gives.
    """
    _check_settings(clusters, batch, iterations, tolerance, seeding)

    def work(events: Events) -> Events:
        settings = Settings(batch, iterations, tolerance, Mersenne(SEED), seeding)
        return _cluster_recording(events, clusters, settings, side_by_side=False)

    recordings = several(recordings)
    if os.getpid() != OWNER:
        return list(map(work, recordings))
    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        return list(pool.map(work, recordings))


def _cluster_recording(events: Events, clusters: int, settings: "Settings", side_by_side: bool) -> Events:
    if len(events) <= clusters:
        return events
    return cluster_with(choose_engine(events), events, clusters, settings, side_by_side)


def share_clusters(falling: int, rising: int, clusters: int) -> tuple[int, int]:
    """Clusters for falling and for rising events: in proportion, at least one if there are events, at most all."""
    if min(falling, rising) > 0 and clusters < 2:
        raise ValueError("a recording with both polarities needs at least 2 clusters, got 1")
    share = round(clusters * rising / (falling + rising))
    share = min(max(share, min(rising, 1)), rising, clusters - min(falling, 1))
    return min(clusters - share, falling), share


def choose_engine(events: Events) -> type[Cloud]:
    on_cpu = isinstance(events.t, np.ndarray) or events.t.device.type == "cpu"
    if on_cpu and library() is not None:
        return CompiledCloud
    try:
        from event2vec.clustering.torch_engine import TorchCloud
    except ImportError:
        raise Event2VecError("clustering needs event2vec's compiled part, or torch, and neither is installed") from None
    if on_cpu:
        warnings.warn(
            "event2vec was installed without its compiled part, so clustering takes many times as long; install a C "
            "compiler and Python's headers (on Debian: gcc and python3-dev), then reinstall event2vec",
            stacklevel=4,
        )
    return TorchCloud


def _check_settings(clusters: int, batch: int, iterations: int, tolerance: float, seeding: str) -> None:
    if seeding not in get_args(Seeding):
        raise ValueError(f"seeding must be one of {', '.join(get_args(Seeding))}, got {seeding!r}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be 0 or more, got {tolerance}")
    for name, value in (("clusters", clusters), ("batch", batch), ("iterations", iterations)):
        if operator.index(value) < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def to_unit_cube(events: Events, cube: Events | None = None) -> Float[Any, "n 3"]:
    """x, y and t scaled to [0, 1] (Alg. 1, lines 2 and 3); a side of one pixel and an instant stay at 0.

    For cluster centres, `cube` is the recording that they represent.
    """
    whole = events if cube is None else cube
    sides = max(events.sensor.width - 1, 1), max(events.sensor.height - 1, 1), max(whole.duration, 1)
    columns = events.x, events.y, events.t - whole.t[:1]
    if isinstance(events.t, np.ndarray):
        return np.stack([column.astype(np.float64) / side for column, side in zip(columns, sides, strict=True)], axis=1)
    import torch

    dtype = torch.float32 if events.t.device.type == "mps" else torch.float64  # MPS has no float64
    return torch.stack([column.to(dtype) / side for column, side in zip(columns, sides, strict=True)], dim=1)


def from_unit_cube(
    events: Events,
    centres: Float[NDArray[Any], "k 3"],
    counts: NDArray[Any],
    polarity: Bool[NDArray[Any], " k"],
) -> Events:
    """Centres in pixels and microseconds, in time order; empty ones are dropped."""
    kept = counts > 0
    centres, counts, polarity = centres[kept].clip(0, 1), counts[kept], polarity[kept]
    t = int(events.t[0]) + (centres[:, 2].astype(np.float64) * events.duration).round().astype(np.int64)
    order = np.argsort(t, kind="stable")
    x, y = centres[:, 0] * (events.sensor.width - 1), centres[:, 1] * (events.sensor.height - 1)
    x, y, rho = (column.astype(np.float32)[order] for column in (x, y, counts))
    return Events(x, y, t[order], polarity[order], rho, events.sensor).like(events)


@dataclass(frozen=True)
class Settings:
    """Alg. 1: B, I_max and tol, the source of randomness, and how centres are seeded."""

    batch: int
    iterations: int
    tolerance: float
    generator: Generator
    seeding: Seeding = "pruned"

    def branch(self) -> "Settings":
        """The same with a generator of its own, for work in parallel."""
        seed = draw_seed(self.generator)
        if isinstance(self.generator, Mersenne):
            return replace(self, generator=Mersenne(seed))
        return replace(self, generator=type(self.generator)(self.generator.device).manual_seed(seed))


def cluster_with(
    engine: type[Cloud], events: Events, clusters: int, settings: Settings, side_by_side: bool = True
) -> Events:
    """`cluster_events` with a given engine, for comparisons."""
    compiled = engine is CompiledCloud
    if not compiled and isinstance(settings.generator, Mersenne):
        settings = replace(settings, generator=settings.generator.torch())
    read = events.arrays() if compiled else events.torch()
    points = to_unit_cube(read)
    weights = read.rho.astype(np.float64) if compiled else read.rho.to(points.dtype)
    _check_numbers(points, weights)

    rising = int(read.p.sum())
    many = len(events) - rising, rising
    shares = share_clusters(*many, clusters)
    parts = [
        Part(polarity, many[polarity], shares[polarity], settings.branch())
        for polarity in (False, True)
        if shares[polarity]
    ]
    if compiled and settings.seeding == "pruned" and all(part.group == 1 for part in parts):
        tasks = [part.task() for part in parts]
        stop = settings.iterations, settings.tolerance
        results = cluster_polarities(points, weights, read.p, tasks, *stop, side_by_side)
    else:
        jobs = [partial(_cluster_part, engine, points, weights, read.p, part) for part in parts]
        results = _run_side_by_side(jobs) if side_by_side and compiled else [job() for job in jobs]
    centres, counts = (np.concatenate(column) for column in zip(*results, strict=True))
    polarities = [part.polarity for part in parts]
    return from_unit_cube(events, centres, counts, np.repeat(polarities, [len(counts) for _, counts in results]))


@dataclass(frozen=True)
class Part:
    """The events of one polarity, and how many clusters they get."""

    polarity: bool
    many: int
    share: int
    settings: Settings

    @property
    def seeds(self) -> int:
        return min(2 * self.share + SPARE, self.many)

    @property
    def group(self) -> int:
        """How many neighbours are first treated as one point, where clusters hold many events."""
        return max(min(self.many // self.share // GROUPS, LARGEST_GROUP), 1)

    def task(self) -> Task:
        return Task(self.polarity, self.many, self.seeds, self.share, self.settings.batch, self.settings.generator)


def _cluster_part(
    engine: type[Cloud], points: Float[Any, "n 3"], weights: Float[Any, " n"], rising: Bool[Any, " n"], part: Part
) -> Result:
    mine = rising == part.polarity
    cloud = engine(points[mine], weights[mine])
    cluster = cluster_plain if part.settings.seeding == "plain" else cluster_pruned
    centres, counts = map(as_array, cluster(cloud, part))
    return centres, counts


def _run_side_by_side(jobs: Sequence[Callable[[], Result]]) -> list[Result]:
    """The last job on this thread, which would only wait for others, and the rest on threads of their own."""
    *others, last = jobs
    if os.getpid() != OWNER:
        return [job() for job in jobs]
    started = [_threads().submit(job) for job in others]
    result = last()
    return [*(each.result() for each in started), result]


def _check_numbers(points: Float[Any, "n 3"], weights: Float[Any, " n"]) -> None:
    """Check what `Events.from_arrays` guarantees: compiled code relies on it, and events can be built without it."""
    low, high = float(points.min()), float(points.max())
    least, most = float(weights.min()), float(weights.max())
    if not (low >= 0 and high <= 1 and least > 0 and most < float("inf")):  # NaN fails all of these
        raise ValueError(
            "events must be on the sensor, in time order and with a finite rho above 0, got "
            f"x, y, t from {low:.3g} to {high:.3g} of their range and rho from {least} to {most}"
        )


def cluster_plain(cloud: Cloud, part: Part) -> tuple[Float[Any, "k 3"], Float[Any, " k"]]:
    """Alg. 1 for one polarity, to the letter: centres and their counts."""
    settings = part.settings
    centres = cloud.seed(part.share, settings.batch, settings.generator)
    return cloud.iterate(centres, settings.iterations, settings.tolerance)


def cluster_pruned(cloud: Cloud, part: Part) -> tuple[Float[Any, "k 3"], Float[Any, " k"]]:
    """Alg. 1 for one polarity, keeping the best of spare seeds: centres and their counts.

    If clusters hold many events, all but the last iterations treat groups of neighbours as single weighted points.
    """
    settings, coarse = part.settings, cloud.coarser(part.group)
    centres = coarse.choose(part.seeds, part.share, settings.batch, settings.generator)
    fine = settings.iterations
    if coarse is not cloud:
        fine = min(FINE, settings.iterations)
        centres, _ = coarse.iterate(centres, settings.iterations - fine, settings.tolerance)
    return cloud.iterate(centres, fine, settings.tolerance)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(cpu_count() or 1, 2))
