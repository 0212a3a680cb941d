"""Batched K-Means++ (Alg. 1): the paper's second way to bring a recording to L tokens, in which every event counts.

Each polarity on its own: seed with centres drawn in batches by squared distance, then Lloyd's iteration.

    seeding     more centres than asked for, in batches; each moves to the middle of its events; then those whose
                loss costs least are dropped. Batches alone end 4 to 30 % above scikit-learn's inertia.
    iteration   assign each event to its nearest centre, move each centre to the mean of its events

On a CPU, where a cluster has many events, groups of neighbours count as one heavy point in all but the last iterations.
The steps are written once. What they ask of a cloud of points (which centre is nearest, where is the middle) has two
engines: `BlockCloud` for a CPU, `TorchCloud` for an accelerator.
"""

import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from os import cpu_count
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from event2vec.events import Events

VERSION = 1  # raise it when the same recording gives other clusters
SEED = 0  # without a generator the same recording always gives the same clusters
SPARE_SHARE, SPARE_COUNT = 0.5, 32  # centres drawn beyond those that are kept: so many for each, and so many in all
FEW = 16  # spare centres that may all go in one round
FINE = 2  # last iterations, which see every event
LARGEST_GROUP = 16  # neighbouring events that count as one in the iterations before
BLOCK = 1 << 17  # distances of the CPU engine at a time, which stay in a core's cache
THREADED = 1 << 20  # distances from which on it uses two threads or more
DISTANCES = 1 << 24  # of the torch engine at a time
EXACT = "donot_use_mm_for_euclid_dist"  # a product of matrices subtracts large numbers to get small ones
SPREAD = np.array([sum((number >> bit & 1) << 3 * bit for bit in range(10)) for number in range(1024)], np.uint32)


def cluster_events(
    events: Events,
    clusters: int,
    *,
    batch: int = 64,
    iterations: int = 20,
    tolerance: float = 1e-4,
    generator: torch.Generator | None = None,
) -> Events:
    """At most `clusters` events that stand for all (Alg. 1); `rho` counts how many each of them stands for.

    `tolerance` is the largest step of a centre, in the unit cube, below which the iteration ends. A cluster that
    loses all its events is dropped, not seeded anew: that happens where events lie on top of each other, and a new
    seed would only halve one of its neighbours. So every rho is at least 1, and their sum is that of the rho given,
    the number of raw events. A recording that is short enough already comes back unchanged. On a CPU the same
    recording and generator give the same clusters to the bit.
    """
    _check_settings(clusters, batch, iterations)
    if len(events) <= clusters:
        return events
    if generator is None:
        generator = torch.Generator().manual_seed(SEED)
    cloud = BlockCloud if events.t.device.type == "cpu" else TorchCloud
    return cluster_with(cloud, events, clusters, Settings(batch, iterations, tolerance, generator))


def cluster_batch(recordings: Sequence[Events], clusters: int, **settings: Any) -> list[Events]:
    """`cluster_events` of each recording, spread over the cores; the settings are the same, without a generator."""
    if settings.get("generator") is not None:
        raise ValueError("recordings are clustered at the same time and cannot share a generator")
    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        return list(pool.map(lambda events: cluster_events(events, clusters, **settings), recordings))


def share_clusters(falling: int, rising: int, clusters: int) -> tuple[int, int]:
    """Clusters for falling and for rising events: in proportion, at least one where there are events, at most all."""
    if min(falling, rising) > 0 and clusters < 2:
        raise ValueError("a recording with both polarities needs at least 2 clusters, got 1")
    share = round(clusters * rising / (falling + rising))
    share = min(max(share, min(rising, 1)), rising, clusters - min(falling, 1))
    return min(clusters - share, falling), share


def _check_settings(clusters: int, batch: int, iterations: int) -> None:
    for name, value in (("clusters", clusters), ("batch", batch), ("iterations", iterations)):
        if operator.index(value) < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def to_unit_cube(events: Events, cube: Events | None = None) -> Float[Tensor, "n 3"]:
    """x, y and t from 0 to 1 (Alg. 1, lines 2 and 3); a side of one pixel and an instant stay at 0.

    Cluster centres are measured in the `cube` of the recording that they stand for.
    """
    whole = events if cube is None else cube
    dtype = torch.float32 if events.t.device.type == "mps" else torch.float64  # the one accelerator without it
    width, height = max(events.sensor.width - 1, 1), max(events.sensor.height - 1, 1)
    t = (events.t - whole.t[:1]).to(dtype) / max(whole.duration, 1)
    return torch.stack([events.x.to(dtype) / width, events.y.to(dtype) / height, t], dim=1)


def from_unit_cube(events: Events, centres: Tensor, counts: Tensor, polarity: Tensor) -> Events:
    """Centres back to pixels and microseconds, in time order; one that holds nothing is dropped."""
    kept = counts > 0
    centres, counts, polarity = centres[kept].clamp(0, 1), counts[kept], polarity[kept]
    t = events.t[0] + (centres[:, 2].cpu().double() * events.duration).round().long().to(events.t.device)
    order = torch.argsort(t, stable=True)
    x, y = centres[:, 0] * (events.sensor.width - 1), centres[:, 1] * (events.sensor.height - 1)
    columns = (x.float()[order], y.float()[order], t[order], polarity[order], counts.float()[order])
    return Events(*columns, events.sensor)


def draw_distinct(weights: Tensor, count: int, generator: torch.Generator) -> Int64[Tensor, " drawn"]:
    """Positions drawn one after the other in proportion to their weights, none twice; fewer where too few weigh at all.

    A handful is drawn at a time and repeats are passed over, which is drawing without replacement.
    """
    weights = weights / weights.max().clamp(min=torch.finfo(weights.dtype).tiny)  # their sum could be too large
    count = min(count, int(torch.count_nonzero(weights)))
    drawn = torch.empty(0, dtype=torch.int64, device=weights.device)
    while len(drawn) < count:
        left = weights.index_fill(0, drawn, 0)  # else one that outweighs all others would come for ever
        edges = left.cumsum(0)
        fresh = torch.rand(2 * count, generator=generator, dtype=weights.dtype, device=generator.device)
        fresh = fresh.to(weights.device) * edges[-1]
        places = torch.searchsorted(edges, fresh, right=True).clamp(max=len(weights) - 1)
        drawn = torch.cat([drawn, _first_of_each(places[left[places] > 0])])
    return drawn[:count]


def _first_of_each(values: Int64[Tensor, " n"]) -> Int64[Tensor, " distinct"]:
    """Each value once, in the order in which they came."""
    order = torch.argsort(values, stable=True)
    ordered = values[order]
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return values[order[new].sort().values]


@dataclass(frozen=True)
class Settings:
    """Alg. 1: B, I_max and tol, and where chance comes from."""

    batch: int
    iterations: int
    tolerance: float
    generator: torch.Generator


class Cloud(ABC):
    """Points with weights, and what the steps of Alg. 1 ask of them."""

    def __init__(self, points: Float[Tensor, "n 3"], weights: Float[Tensor, " n"]) -> None:
        self.points, self.weights = points, weights

    @abstractmethod
    def nearest(self, centres: Float[Tensor, "k 3"]) -> Int64[Tensor, " n"]:
        """Which centre is nearest to each point."""

    @abstractmethod
    def two_nearest(
        self, centres: Float[Tensor, "k 3"], rows: Int64[Tensor, " some"]
    ) -> tuple[Int64[Tensor, "some 2"], Float[Tensor, "some 2"]]:
        """The two nearest centres of these points, and the squared distances to them."""

    @abstractmethod
    def middles(
        self, centre: Int64[Tensor, " n"], centres: Float[Tensor, "k 3"]
    ) -> tuple[Float[Tensor, "k 3"], Float[Tensor, " k"]]:
        """The weighted mean and the weight of each centre's points; a centre without any stays where it is."""


def cluster_with(engine: type[Cloud], events: Events, clusters: int, settings: Settings) -> Events:
    """`cluster_events` with an engine of one's choice, for comparisons."""
    rising = int(events.p.sum())
    points = to_unit_cube(events)
    results = []
    for polarity, share in enumerate(share_clusters(len(events) - rising, rising, clusters)):
        mine = events.p == bool(polarity)
        if share:
            centres, counts = _cluster(engine, points[mine], events.rho[mine].to(points.dtype), share, settings)
            results.append((centres, counts, torch.full_like(counts, polarity, dtype=torch.bool)))
    centres, counts, polarities = (torch.cat(column) for column in zip(*results, strict=True))
    return from_unit_cube(events, centres, counts, polarities)


def _cluster(
    engine: type[Cloud], points: Tensor, weights: Tensor, share: int, settings: Settings
) -> tuple[Float[Tensor, "k 3"], Float[Tensor, " k"]]:
    """Alg. 1 for one polarity: centres and their counts.

    With many events to a cluster, seeding and the first iterations see groups of neighbours as one heavy point.
    """
    whole = engine(points, weights)
    size = group_size(len(points) // share) if engine is BlockCloud else 1
    coarse = whole if size < 2 else engine(*_group(points, weights, size))
    fine = 0 if size < 2 else min(FINE, settings.iterations)
    centres = _prune(coarse, _seed(coarse, share + int(SPARE_SHARE * share) + SPARE_COUNT, settings), share)
    centres, counts = _lloyd(coarse, centres, settings.iterations - fine, settings.tolerance)
    return _lloyd(whole, centres, fine, settings.tolerance) if fine else (centres, counts)


def _seed(cloud: Cloud, count: int, settings: Settings) -> Float[Tensor, "k 3"]:
    """Alg. 1, phase 1: the first centre at random, then batches drawn by squared distance."""
    points, weights = cloud.points, cloud.weights
    centres = points[draw_distinct(weights, 1, settings.generator)]
    distance = _squares(points - centres)
    count = min(count, len(points))
    while len(centres) < count:
        wanted = min(settings.batch, count - len(centres))
        new = points[draw_distinct(weights * distance, wanted, settings.generator)]
        if len(new) == 0:
            break  # every point has a centre on it already
        distance = torch.minimum(distance, _squares(points - new[cloud.nearest(new)]))
        centres = torch.cat([centres, new])
    return centres


def _squares(vectors: Float[Tensor, "n 3"]) -> Float[Tensor, " n"]:
    x, y, t = vectors.unbind(1)
    return x * x + y * y + t * t  # torch sums rows of three slowly


def _prune(cloud: Cloud, centres: Float[Tensor, "many 3"], share: int) -> Float[Tensor, "k 3"]:
    """Move each centre to the middle of its points, then drop the spare ones whose loss costs least, half at a time."""
    if len(centres) <= share:
        return centres
    centres = cloud.middles(cloud.nearest(centres), centres)[0]
    near, distance = cloud.two_nearest(centres, torch.arange(len(cloud.points), device=centres.device))
    while len(centres) > share:
        cost = torch.zeros(len(centres), dtype=distance.dtype, device=centres.device)
        cost.index_add_(0, near[:, 0], cloud.weights.to(distance.dtype) * (distance[:, 1] - distance[:, 0]))
        dropped = _cheapest(centres, cost, len(centres) - share)
        centres = centres[~dropped]
        if len(centres) > share:
            orphans = dropped[near].any(1).nonzero()[:, 0]
            near = ((~dropped).cumsum(0) - 1)[near]  # centres that stay move up into the gaps
            near[orphans], distance[orphans] = cloud.two_nearest(centres, orphans)
    return centres


def _cheapest(centres: Tensor, cost: Tensor, spare: int) -> Bool[Tensor, " many"]:
    """Half of the spare centres, but no two neighbours: each was cheap because of the other."""
    cheap = cost.argsort(stable=True)[: max((spare + 1) // 2, min(spare, FEW))]
    dropped = torch.zeros(len(centres), dtype=torch.bool, device=centres.device)
    dropped[cheap] = True
    ways = torch.cdist(centres[cheap], centres, compute_mode=EXACT)
    neighbour = ways.scatter_(1, cheap[:, None], torch.inf).argmin(1)
    # Of two that cost the same, the one that stands first goes.
    cheaper = (cost[neighbour] < cost[cheap]) | ((cost[neighbour] == cost[cheap]) & (neighbour < cheap))
    dropped[cheap[dropped[neighbour] & cheaper]] = False
    return dropped


def _lloyd(
    cloud: Cloud, centres: Float[Tensor, "k 3"], iterations: int, tolerance: float
) -> tuple[Float[Tensor, "k 3"], Float[Tensor, " k"]]:
    """Alg. 1, phase 2: centres, and the weight of the points that they are the means of."""
    counts = torch.zeros(len(centres), dtype=centres.dtype, device=centres.device)
    for _ in range(iterations):
        moved, counts = cloud.middles(cloud.nearest(centres), centres)
        step = _squares(moved - centres).max().sqrt()
        centres = moved
        if step < tolerance:
            break
    return centres, counts


class BlockCloud(Cloud):
    """For a CPU: |c|^2 - 2 p c as one small product of matrices after the other, each done with while it is in cache.

    In float32 with numpy, which looks for the smallest of a row many numbers at a time, this beats a k-d tree and
    bounds that skip most of the search; see docs/log.md.
    """

    def __init__(self, points: Float[Tensor, "n 3"], weights: Float[Tensor, " n"]) -> None:
        super().__init__(points, weights)
        # Counted from the middle of most points: 24 bits are few for what lies close together far from 0.
        self._origin = points[:: max(len(points) // 1000, 1)].median(0).values
        ones = torch.ones(len(points), 1, dtype=points.dtype)
        self._rows = torch.cat([points - self._origin, ones], dim=1).float().numpy()
        self._weighted = [(weights * column).numpy() for column in points.T]

    def nearest(self, centres: Float[Tensor, "k 3"]) -> Int64[Tensor, " n"]:
        found = np.empty(len(self._rows), np.int64)

        def search(distances: NDArray[np.float32], rows: slice) -> None:
            distances.argmin(1, out=found[rows])

        _in_blocks(self._rows, centres - self._origin, search)
        return torch.from_numpy(found)

    def two_nearest(
        self, centres: Float[Tensor, "k 3"], rows: Int64[Tensor, " some"]
    ) -> tuple[Int64[Tensor, "some 2"], Float[Tensor, "some 2"]]:
        points = self._rows[rows.numpy()]
        found, lowest = np.empty((len(points), 2), np.int64), np.empty((len(points), 2), np.float32)

        def search(distances: NDArray[np.float32], rows: slice) -> None:
            here = np.arange(len(distances))
            for rank in (0, 1):
                found[rows, rank] = distances.argmin(1)
                lowest[rows, rank] = distances[here, found[rows, rank]]
                distances[here, found[rows, 0]] = np.inf

        _in_blocks(points, centres - self._origin, search)
        lowest += np.einsum("ij,ij->i", points[:, :3], points[:, :3])[:, None]
        return torch.from_numpy(found), torch.from_numpy(lowest.clip(0))

    def middles(
        self, centre: Int64[Tensor, " n"], centres: Float[Tensor, "k 3"]
    ) -> tuple[Float[Tensor, "k 3"], Float[Tensor, " k"]]:
        index, many = centre.numpy(), len(centres)
        counts = np.bincount(index, self.weights.numpy(), many)
        sums = np.stack([np.bincount(index, column, many) for column in self._weighted], axis=1)
        held = counts > 0
        moved = centres.numpy().copy()
        moved[held] = sums[held] / counts[held, None]
        return torch.from_numpy(moved), torch.from_numpy(counts)


def _in_blocks(
    points: NDArray[np.float32], centres: Tensor, search: Callable[[NDArray[np.float32], slice], None]
) -> None:
    """Hand each block of squared distances, less the square of the point, to `search`."""
    columns = np.concatenate([-2 * centres.numpy(), (centres**2).sum(1, keepdim=True).numpy()], axis=1)
    columns = np.ascontiguousarray(columns.T, np.float32)
    height = max(BLOCK // len(centres), 16)

    def work(start: int, stop: int) -> None:
        distances = np.empty((height, len(centres)), np.float32)
        for first in range(start, stop, height):
            rows = slice(first, min(first + height, stop))
            part = distances[: rows.stop - rows.start]
            search(np.matmul(points[rows], columns, out=part), rows)

    workers = (cpu_count() or 1) if len(points) * len(centres) >= THREADED else 1
    edges = [len(points) * number // workers for number in range(workers + 1)]
    list((_threads().map if workers > 1 else map)(work, edges[:-1], edges[1:]))


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cpu_count() or 1)


if hasattr(os, "register_at_fork"):  # a forked process has none of its parent's threads and would wait for them
    os.register_at_fork(after_in_child=_threads.cache_clear)


class TorchCloud(Cloud):
    """For an accelerator: all distances, some rows at a time."""

    def nearest(self, centres: Float[Tensor, "k 3"]) -> Int64[Tensor, " n"]:
        return torch.cat([distances.argmin(1) for distances in _distances(self.points, centres)])

    def two_nearest(
        self, centres: Float[Tensor, "k 3"], rows: Int64[Tensor, " some"]
    ) -> tuple[Int64[Tensor, "some 2"], Float[Tensor, "some 2"]]:
        found = [distances.topk(2, largest=False) for distances in _distances(self.points[rows], centres)]
        return torch.cat([part.indices for part in found]), torch.cat([part.values for part in found]) ** 2

    def middles(
        self, centre: Int64[Tensor, " n"], centres: Float[Tensor, "k 3"]
    ) -> tuple[Float[Tensor, "k 3"], Float[Tensor, " k"]]:
        counts = torch.zeros(len(centres), dtype=centres.dtype, device=centres.device)
        counts = counts.index_add_(0, centre, self.weights)
        sums = torch.zeros_like(centres).index_add_(0, centre, self.weights[:, None] * self.points)
        return torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], centres), counts


def _distances(points: Tensor, centres: Tensor) -> Iterator[Tensor]:
    for part in torch.split(points, max(DISTANCES // len(centres), 1)):
        yield torch.cdist(part, centres, compute_mode=EXACT)


def group_size(events_per_cluster: int) -> int:
    """Events that may count as one before the last iterations: as many as cost about a hundredth of the inertia."""
    if events_per_cluster < 20:
        return 1
    return min(max(events_per_cluster // 40, 2 if events_per_cluster < 60 else 3), LARGEST_GROUP)


def _group(points: Tensor, weights: Tensor, size: int) -> tuple[Float[Tensor, "groups 3"], Float[Tensor, " groups"]]:
    """The middles and weights of groups of `size` points that follow each other on a Z-order curve through the cube."""
    order = _along_curve(points.numpy())
    starts = np.arange(0, len(order), size)
    heavy = weights.numpy()[order]
    totals = np.add.reduceat(heavy, starts)
    sums = np.add.reduceat(heavy[:, None] * points.numpy()[order], starts)
    return torch.from_numpy(sums / totals[:, None]), torch.from_numpy(totals)


def _along_curve(points: NDArray[np.float64]) -> NDArray[np.int64]:
    """The order of points in which neighbours stay together."""
    x, y, t = (points * 1023).astype(np.uint16).T
    code = SPREAD[x] << 2 | SPREAD[y] << 1 | SPREAD[t]
    # 16 bits at a time numpy sorts by counting.
    order = np.argsort(code.astype(np.uint16), kind="stable")
    return order[np.argsort((code >> 16).astype(np.uint16)[order], kind="stable")]
