"""The phases of Alg. 1 on a CPU, in compiled code (`compiled_engine.c`) that skips most centres and is still exact."""

import ctypes
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int64
from numpy.typing import NDArray

from event2vec.clustering.engine import AT_ONCE, Cloud
from event2vec.mersenne import Generator, draw_seed

INTERFACE = 3  # version of the functions in C; an earlier installation may have left another one
MANY = 2**31  # more iterations than anyone would wait for


@cache
def library() -> ctypes.CDLL | None:
    """The compiled code, or None if event2vec was installed without a C compiler."""
    try:
        path = importlib.import_module("event2vec.clustering._compiled_engine").__file__
    except ImportError:
        return None
    compiled = ctypes.CDLL(str(path))
    if not hasattr(compiled, "interface") or compiled.interface() != INTERFACE:
        return None
    array, whole = ctypes.c_void_p, ctypes.c_int64
    points: list[Any] = [array, array, whole]  # coordinates, weights, number of points
    compiled.seed.argtypes = [*points, whole, whole, ctypes.c_uint64, array]
    compiled.prune.argtypes = [*points, array, whole, whole, whole]
    compiled.iterate.argtypes = [*points, array, whole, whole, ctypes.c_double, array]
    compiled.choose.argtypes = [*points, whole, whole, ctypes.c_uint64, whole, whole, array]
    compiled.follow_curve.argtypes = [array, whole, array]
    compiled.cluster.argtypes, compiled.cluster.restype = [array, array, whole, whole], None
    for function in (compiled.seed, compiled.prune, compiled.iterate, compiled.choose, compiled.follow_curve):
        function.restype = whole
    return compiled


class CompiledCloud(Cloud):
    """Points in an order that keeps neighbours together, so that only a few centres are near a run of them."""

    def __init__(self, points: Float[NDArray[Any], "n 3"], weights: Float[NDArray[Any], " n"]) -> None:
        order = along_curve(points)
        self.points, self.weights = points[order].astype(np.float64), weights[order].astype(np.float64)
        self._columns = np.ascontiguousarray(self.points.T)

    def seed(self, count: int, batch: int, generator: Generator) -> Float[NDArray[Any], "k 3"]:
        rows = np.empty((count, 3))
        return rows[: self._call("seed", count, min(batch, count), draw_seed(generator), rows.ctypes.data)]

    def prune(self, centres: Float[NDArray[Any], "many 3"], share: int) -> Float[NDArray[Any], "k 3"]:
        columns, kept = _copy_columns(centres), min(share, len(centres))
        self._call("prune", columns.ctypes.data, len(centres), share, AT_ONCE)
        return columns.reshape(-1)[: 3 * kept].reshape(3, kept).T

    def iterate(
        self, centres: Float[NDArray[Any], "k 3"], iterations: int, tolerance: float
    ) -> tuple[Float[NDArray[Any], "k 3"], Float[NDArray[Any], " k"]]:
        columns, counts = _copy_columns(centres), np.zeros(len(centres))
        settings = min(iterations, MANY), tolerance
        self._call("iterate", columns.ctypes.data, len(centres), *settings, counts.ctypes.data)
        return columns.T, counts

    def choose(self, seeds: int, share: int, batch: int, generator: Generator) -> Float[NDArray[Any], "k 3"]:
        columns = np.empty(3 * seeds)
        settings = seeds, min(batch, seeds), draw_seed(generator), share, AT_ONCE
        kept = self._call("choose", *settings, columns.ctypes.data)
        return columns[: 3 * kept].reshape(3, kept).T

    def coarser(self, size: int) -> Cloud:
        if size < 2:
            return self
        starts = np.arange(0, len(self.points), size)
        totals = np.add.reduceat(self.weights, starts)
        sums = np.add.reduceat(self.weights[:, None] * self.points, starts)
        return CompiledCloud(sums / totals[:, None], totals)

    def _call(self, name: str, *arguments: int | float) -> int:
        """Call C with the points, then these numbers and addresses. Other threads run meanwhile."""
        done: int = getattr(library(), name)(
            self._columns.ctypes.data, self.weights.ctypes.data, len(self.weights), *arguments
        )
        if done < 0:
            raise MemoryError(f"not enough memory to cluster {len(self.weights)} events")
        return done


def _copy_columns(rows: Float[NDArray[Any], "k 3"]) -> Float[NDArray[Any], "3 k"]:
    return np.array(rows.T, np.float64, order="C")


def along_curve(points: Float[NDArray[Any], "n 3"]) -> Int64[NDArray[Any], " n"]:
    """An order of points in the unit cube that keeps neighbours together: a Z-order curve."""
    rows, order = np.ascontiguousarray(points, np.float64), np.empty(len(points), np.int64)
    compiled = library()
    assert compiled is not None
    if compiled.follow_curve(rows.ctypes.data, len(rows), order.ctypes.data) < 0:
        raise MemoryError(f"not enough memory to cluster {len(points)} events")
    return order


class _Recording(ctypes.Structure):
    """As in C."""

    _fields_: ClassVar = [
        *((name, ctypes.c_void_p) for name in ("points", "weights", "rising")),
        ("many", ctypes.c_int64),
    ]


class _Share(ctypes.Structure):
    """As in C."""

    _fields_: ClassVar = [
        *((name, ctypes.c_int64) for name in ("polarity", "many", "seeds", "batch", "share", "at_once", "iterations")),
        ("random", ctypes.c_uint64),
        ("tolerance", ctypes.c_double),
        ("centres", ctypes.c_void_p),
        ("counts", ctypes.c_void_p),
        ("done", ctypes.c_int64),
    ]


@dataclass(frozen=True)
class Task:
    """The events of one polarity: how many they are, and how many seeds and centres to make of them, drawn how."""

    polarity: bool
    many: int
    seeds: int
    share: int
    batch: int
    generator: Generator


def cluster_polarities(
    points: Float[NDArray[Any], "n 3"],
    weights: Float[NDArray[Any], " n"],
    rising: Bool[NDArray[Any], " n"],
    tasks: Sequence[Task],
    iterations: int,
    tolerance: float,
    side_by_side: bool,
) -> list[tuple[Float[NDArray[Any], "k 3"], Float[NDArray[Any], " k"]]]:
    """What `choose` and then `iterate` give for each polarity, to the bit, in one call for the whole recording."""
    points, weights = np.ascontiguousarray(points, np.float64), np.ascontiguousarray(weights, np.float64)
    rising = np.ascontiguousarray(rising, np.bool_)
    centres = [np.empty(3 * task.seeds) for task in tasks]
    counts = [np.zeros(task.share) for task in tasks]
    shares = (_Share * len(tasks))()
    for share, task, each, count in zip(shares, tasks, centres, counts, strict=True):
        share.polarity, share.many, share.share, share.seeds = task.polarity, task.many, task.share, task.seeds
        share.batch, share.at_once, share.iterations = min(task.batch, task.seeds), AT_ONCE, min(iterations, MANY)
        share.random, share.tolerance = draw_seed(task.generator), tolerance
        share.centres, share.counts = each.ctypes.data, count.ctypes.data
    addresses = (points.ctypes.data, weights.ctypes.data, rising.ctypes.data)
    recording = _Recording(*addresses, len(weights))
    compiled = library()
    assert compiled is not None
    compiled.cluster(ctypes.byref(recording), shares, len(tasks), side_by_side)
    if any(share.done < 0 for share in shares):
        raise MemoryError(f"not enough memory to cluster {len(weights)} events")
    kept = [share.done for share in shares]
    return [
        (each[: 3 * number].reshape(3, number).T, count[:number])
        for each, count, number in zip(centres, counts, kept, strict=True)
    ]
