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
from typing import Any

from event2vec.devices import CPU, Compute

WORTH_DOUBLING = 1.05  # times the recordings a second that a batch twice as large must give
LONG = 0.5  # seconds; what takes so long has nothing to gain from a larger batch


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
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_grow, work, warm_up, arguments).result()


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


def choose_batch(run: Callable[[int], Any], compute: Compute) -> int:
    """The batch at which throughput is measured, for work that takes its size."""
    return largest_batch(run) if compute.counts_memory else quickest_batch(run, compute)


def largest_batch(run: Callable[[int], Any]) -> int:
    """The largest batch that the memory of a GPU holds: a power of 2 or the mean of two, as for Table 2."""
    run(1)
    size = 1
    while _runs(run, 2 * size):
        size *= 2
    between = size + size // 2
    return between if between > size and _runs(run, between) else size


def _runs(run: Callable[[int], Any], size: int) -> bool:
    try:
        run(size)
    except RuntimeError:  # out of memory, or more than a kernel takes
        return False
    return True


def quickest_batch(run: Callable[[int], Any], compute: Compute = CPU, limit: int | None = None) -> int:
    """On a CPU: the power of 2 from which doubling gains no more, within a quarter of the memory."""
    if limit is None:
        limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    run(1)
    before = highest_bytes()
    size, taken = 1, seconds_of(partial(run, 1), compute)
    while taken < LONG and 2 * (highest_bytes() - before) < limit:
        doubled = seconds_of(partial(run, 2 * size), compute)
        if WORTH_DOUBLING * doubled > 2 * taken:
            break
        size, taken = 2 * size, doubled
    return size
