"""How every benchmark measures: sides in turn, the best of several rounds, memory in a process of its own."""

import gc
import resource
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any


def best_seconds(sides: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The fastest run of each side. They take turns, so that a noisy moment hits all of them."""
    best = dict.fromkeys(sides, float("inf"))
    gc.disable()
    try:
        for _ in range(rounds):
            for name, side in sides.items():
                start = time.perf_counter()
                side()  # its result is freed within the time: some sides free their intermediate data, others return it
                best[name] = min(best[name], time.perf_counter() - start)
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
