"""How every benchmark measures: sides in turn, the best of several rounds, memory in a separate process."""

import gc
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from event2vec.evaluation.speed import highest_bytes, seconds_of
from event2vec.machine.cpu import tune_cpu
from event2vec.machine.devices import CPU, Compute
from event2vec.machine.workers import end_with_parent


def best_seconds(sides: Mapping[str, Callable[[], Any]], rounds: int, compute: Compute = CPU) -> dict[str, float]:
    """The fastest run of each side. They take turns, so that a noisy moment hits all of them."""
    best = dict.fromkeys(sides, float("inf"))
    gc.disable()
    try:
        for _ in range(rounds):
            for name, side in sides.items():
                best[name] = min(best[name], seconds_of(side, compute))
    finally:
        gc.enable()
    return best


def peak_bytes(work: Callable[..., Any], warm_up: tuple[Any, ...], *arguments: Any) -> int:
    """The peak memory that a call adds, after a first call with small arguments has loaded the code."""
    return seconds_and_peak(work, warm_up, *arguments)[1]


def seconds_and_peak(work: Callable[..., Any], warm_up: tuple[Any, ...], *arguments: Any) -> tuple[float, int]:
    """The time that a call takes and the memory that it adds, where it takes too long to be called twice."""
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=end_with_parent) as pool:
        return pool.submit(_grow, work, warm_up, arguments).result()


def peak_of(side: Callable[[], Any], compute: Compute, alone: Callable[[], int]) -> int:
    """Peak memory: of the GPU during `side`, or on a CPU what `alone` measures in a separate process."""
    if not compute.counts_memory:
        return alone()
    compute.forget_peak()
    side()
    return compute.peak_bytes() or 0


def _grow(work: Callable[..., Any], warm_up: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[float, int]:
    tune_cpu()
    work(*warm_up)
    before, started = highest_bytes(), time.perf_counter()
    result = work(*arguments)
    taken, grown = time.perf_counter() - started, highest_bytes() - before
    del result
    return taken, grown
