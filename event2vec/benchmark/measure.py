"""How every benchmark measures: sides in turn, the best of several rounds, memory in a process of its own."""

import gc
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import torch

from event2vec.devices import CPU, Compute
from event2vec.workers import end_with_parent

Batch = TypeVar("Batch")
WORTH_DOUBLING = 1.05  # times the recordings a second that a batch twice as large must give
LONG = 0.2  # seconds; what takes so long has nothing to gain from a larger batch


def seconds_of(work: Callable[[], Any], compute: Compute = CPU) -> float:
    """What one call takes, with all that it has queued on the device."""
    compute.synchronise()
    start = time.perf_counter()
    work()  # its result is freed within the time: some sides free their intermediate data, others return it
    compute.synchronise()
    return time.perf_counter() - start


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
    """Memory that a call adds at its highest, over a first call with small arguments that loads the code."""
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=end_with_parent) as pool:
        return pool.submit(_grow, work, warm_up, arguments).result()


def peak_of(side: Callable[[], Any], compute: Compute, alone: Callable[[], int]) -> int:
    """Memory at its highest: of the GPU in `side`, or on a CPU what `alone` finds in a process of its own."""
    if not compute.counts_memory:
        return alone()
    compute.forget_peak()
    side()
    return compute.peak_bytes() or 0


def _grow(work: Callable[..., Any], warm_up: tuple[Any, ...], arguments: tuple[Any, ...]) -> int:
    work(*warm_up)
    before = highest_bytes()
    result = work(*arguments)
    grown = highest_bytes() - before
    del result
    return grown


def highest_bytes() -> int:
    """The most memory that this process has held, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux starts ru_maxrss at what the parent process held
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def choose_batch(fill: Callable[[int], Batch], work: Callable[[Batch], Any], compute: Compute) -> int:
    """The batch at which throughput is measured; `fill` makes one of a size."""
    return largest_batch(fill, work) if compute.counts_memory else quickest_batch(fill, work)


def largest_batch(fill: Callable[[int], Batch], work: Callable[[Batch], Any]) -> int:
    """The largest batch that the memory of a GPU holds: a power of 2 or the mean of two, as for Table 2."""

    def fits(size: int) -> bool:
        try:
            work(fill(size))
        except torch.OutOfMemoryError:
            return False
        return True

    work(fill(1))  # what fails here is not too large
    size = 1
    while fits(2 * size):
        size *= 2
    between = size + size // 2
    return between if between > size and fits(between) else size


def quickest_batch(fill: Callable[[int], Batch], work: Callable[[Batch], Any], limit: int | None = None) -> int:
    """On a CPU: the power of 2 from which doubling gains no more, within a quarter of the memory."""
    if limit is None:
        limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    batch = fill(1)
    work(batch)
    before = highest_bytes()
    size, taken = 1, seconds_of(partial(work, batch))
    while taken < LONG and 2 * (highest_bytes() - before) < limit:
        doubled = seconds_of(partial(work, fill(2 * size)))
        if WORTH_DOUBLING * doubled > 2 * taken:
            break
        size, taken = 2 * size, doubled
    return size
