"""Batched K-Means++ (Alg. 1): the paper's second way to reduce a recording to L tokens, in which every event counts.

Each polarity is clustered separately: seed with centres drawn in batches by squared distance, then Lloyd's iteration.

    pruned      more centres than needed are seeded; each moves to the mean of its events; then the centres that cost
                least to lose are dropped. If clusters are large, most of the work is done on groups of neighbours.
    plain       Alg. 1 to the letter: as many seeds as clusters. Ends 4 to 30 % above scikit-learn's inertia.
    iteration   assign each event to its nearest centre, then move each centre to the mean of its events

Two engines implement these phases: `CompiledCloud` on a CPU, `TorchCloud` on an accelerator.
"""

import operator
import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from os import cpu_count
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from event2vec.clustering.compiled_engine import CompiledCloud, library
from event2vec.clustering.engine import Cloud
from event2vec.clustering.torch_engine import TorchCloud
from event2vec.events import Events

Seeding = Literal["pruned", "plain"]
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
    generator: torch.Generator | None = None,
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
    settings = Settings(batch, iterations, tolerance, generator or torch.Generator().manual_seed(SEED), seeding)
    return _cluster_recording(events, clusters, settings, side_by_side=True)


@dataclass(frozen=True)
class BatchedKMeans:
    """`cluster_events` with its settings, as stores use it."""

    iterations: int = 20
    seeding: Seeding = "pruned"

    def __call__(self, events: Events, clusters: int, seed: int = SEED) -> Events:
        generator = torch.Generator().manual_seed(seed)
        return cluster_events(events, clusters, iterations=self.iterations, generator=generator, seeding=self.seeding)

    def __str__(self) -> str:
        """Everything that the clusters depend on; the compiled code and torch give different ones."""
        compiled = "compiled" if library() else "torch"
        return f"batched K-Means++ {VERSION} {compiled} {self.iterations} {self.seeding}"


def cluster_batch(
    recordings: Sequence[Events],
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
        settings = Settings(batch, iterations, tolerance, torch.Generator().manual_seed(SEED), seeding)
        return _cluster_recording(events, clusters, settings, side_by_side=False)

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
    if events.t.device.type != "cpu":
        return TorchCloud
    if library() is None:
        warnings.warn(
            "event2vec was installed without its compiled part, so clustering takes many times as long; install a C "
            "compiler and Python's headers (on Debian: gcc and python3-dev), then reinstall event2vec",
            stacklevel=4,
        )
        return TorchCloud
    return CompiledCloud


def _check_settings(clusters: int, batch: int, iterations: int, tolerance: float, seeding: str) -> None:
    if seeding not in get_args(Seeding):
        raise ValueError(f"seeding must be one of {', '.join(get_args(Seeding))}, got {seeding!r}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be 0 or more, got {tolerance}")
    for name, value in (("clusters", clusters), ("batch", batch), ("iterations", iterations)):
        if operator.index(value) < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def to_unit_cube(events: Events, cube: Events | None = None) -> Float[Tensor, "n 3"]:
    """x, y and t scaled to [0, 1] (Alg. 1, lines 2 and 3); a side of one pixel and an instant stay at 0.

    For cluster centres, `cube` is the recording that they represent.
    """
    whole = events if cube is None else cube
    dtype = torch.float32 if events.t.device.type == "mps" else torch.float64  # MPS has no float64
    width, height = max(events.sensor.width - 1, 1), max(events.sensor.height - 1, 1)
    t = (events.t - whole.t[:1]).to(dtype) / max(whole.duration, 1)
    return torch.stack([events.x.to(dtype) / width, events.y.to(dtype) / height, t], dim=1)


def from_unit_cube(events: Events, centres: Tensor, counts: Tensor, polarity: Tensor) -> Events:
    """Centres in pixels and microseconds, in time order; empty ones are dropped."""
    kept = counts > 0
    centres, counts, polarity = centres[kept].clamp(0, 1), counts[kept], polarity[kept]
    t = events.t[0] + (centres[:, 2].cpu().double() * events.duration).round().long().to(events.t.device)
    order = torch.argsort(t, stable=True)
    x, y = centres[:, 0] * (events.sensor.width - 1), centres[:, 1] * (events.sensor.height - 1)
    columns = (x.float()[order], y.float()[order], t[order], polarity[order], counts.float()[order])
    return Events(*columns, events.sensor)


@dataclass(frozen=True)
class Settings:
    """Alg. 1: B, I_max and tol, the source of randomness, and how centres are seeded."""

    batch: int
    iterations: int
    tolerance: float
    generator: torch.Generator
    seeding: Seeding = "pruned"

    def branch(self) -> "Settings":
        """The same with a generator of its own, for work in parallel."""
        seed = int(torch.randint(2**62, (), generator=self.generator, device=self.generator.device))
        return replace(self, generator=torch.Generator(self.generator.device).manual_seed(seed))


def cluster_with(
    engine: type[Cloud], events: Events, clusters: int, settings: Settings, side_by_side: bool = True
) -> Events:
    """`cluster_events` with a given engine, for comparisons."""
    rising = int(events.p.sum())
    points = to_unit_cube(events)
    weights = events.rho.to(points.dtype)
    _check_numbers(points, weights)

    def run(polarity: int, share: int, settings: Settings) -> tuple[Tensor, Tensor, Tensor]:
        mine = events.p == bool(polarity)
        cluster = cluster_plain if settings.seeding == "plain" else cluster_pruned
        centres, counts = cluster(engine(points[mine], weights[mine]), share, settings)
        return centres, counts, torch.full_like(counts, polarity, dtype=torch.bool)

    shares = share_clusters(len(events) - rising, rising, clusters)
    jobs = [(polarity, share, settings.branch()) for polarity, share in enumerate(shares) if share]
    threads = side_by_side and engine is CompiledCloud and os.getpid() == OWNER
    results = (_threads().map if threads else map)(run, *zip(*jobs, strict=True))
    centres, counts, polarities = (torch.cat(column) for column in zip(*results, strict=True))
    return from_unit_cube(events, centres, counts, polarities)


def _check_numbers(points: Tensor, weights: Tensor) -> None:
    """Check what `Events.from_arrays` guarantees: compiled code relies on it, and events can be built without it."""
    low, high = torch.aminmax(points)
    least, most = torch.aminmax(weights)
    if not (low >= 0 and high <= 1 and least > 0 and most < torch.inf):  # NaN fails all of these
        raise ValueError(
            "events must be on the sensor, in time order and with a finite rho above 0, got "
            f"x, y, t from {float(low):.3g} to {float(high):.3g} of their range and rho from {least} to {most}"
        )


def cluster_plain(cloud: Cloud, share: int, settings: Settings) -> tuple[Float[Tensor, "k 3"], Float[Tensor, " k"]]:
    """Alg. 1 for one polarity, to the letter: centres and their counts."""
    centres = cloud.seed(share, settings.batch, settings.generator)
    return cloud.iterate(centres, settings.iterations, settings.tolerance)


def cluster_pruned(cloud: Cloud, share: int, settings: Settings) -> tuple[Float[Tensor, "k 3"], Float[Tensor, " k"]]:
    """Alg. 1 for one polarity, keeping the best of spare seeds: centres and their counts.

    If clusters hold many events, all but the last iterations treat groups of neighbours as single weighted points.
    """
    coarse = cloud.coarser(min(len(cloud) // share // GROUPS, LARGEST_GROUP))
    centres = coarse.choose(min(2 * share + SPARE, len(cloud)), share, settings.batch, settings.generator)
    fine = settings.iterations
    if coarse is not cloud:
        fine = min(FINE, settings.iterations)
        centres, _ = coarse.iterate(centres, settings.iterations - fine, settings.tolerance)
    return cloud.iterate(centres, fine, settings.tolerance)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(cpu_count() or 1, 2))
