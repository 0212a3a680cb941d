"""How fast a network is on this machine: Table 2's columns, for reports and tables."""

import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F

from event2vec.cpu import flush_denormals
from event2vec.data.sampling import Sampling
from event2vec.devices import CPU, Compute
from event2vec.evaluation.accuracy import deviation
from event2vec.events import EventBatch, Events
from event2vec.model.classifier import Classifier

Batch = TypeVar("Batch")
WORTH_DOUBLING = 1.05  # times the recordings a second that a batch twice as large must give
LONG = 0.2  # seconds; what takes so long has nothing to gain from a larger batch
RATES = 5  # batches whose rates give a mean and a deviation


def measure_speed(model: Classifier, recordings: Sequence[Events], compute: Compute = CPU) -> dict[str, float]:
    """Table 2: milliseconds for one recording, recordings a second in batches, and memory of a GPU for one.

    Each recording is timed once, after one that loads the code; ± is the deviation over recordings, and over batches
    for recordings a second. The batch is the largest that a GPU holds, or the quickest on a CPU.
    """
    model.eval()
    taken: dict[str, list[float]] = {"preparing ms": [], "forward ms": []}
    infer(model, _prepare(model.sampling, recordings[0], compute), compute)
    compute.forget_peak()
    for events in recordings:
        taken["preparing ms"].append(1e3 * seconds_of(partial(_prepare, model.sampling, events, compute), compute))
        single = _prepare(model.sampling, events, compute)
        taken["forward ms"].append(1e3 * seconds_of(partial(infer, model, single, compute), compute))
    taken["total ms"] = [sum(parts) for parts in zip(*taken.values(), strict=True)]
    memory = compute.peak_bytes()
    found: dict[str, float] = {}
    for name, values in taken.items():
        found |= {name: float(np.mean(values)), f"{name} ±": deviation(values)}
    if memory is not None:
        found["GPU memory MB"] = memory / 2**20
    whole = [_shorten(model.sampling, events) for events in recordings]
    for name, work in WORK.items():
        found |= _rate(name, partial(work, model, compute=compute), whole, compute)
    return found


def _rate(
    name: str, work: Callable[[EventBatch], Any], recordings: Sequence[Events], compute: Compute
) -> dict[str, float]:
    """Recordings a second at the batch that suits the device, over several batches."""

    def fill(size: int) -> EventBatch:
        return EventBatch.pad([recordings[index % len(recordings)] for index in range(size)]).to(compute.device)

    size = choose_batch(fill, work, compute)
    batch = fill(size)
    work(batch)
    rates = [size / seconds_of(lambda: work(batch), compute) for _ in range(RATES)]
    return {
        f"{name} batch": float(size),  # found, as all that is a fraction; whole numbers are what was asked for
        f"{name} recordings/s": float(np.mean(rates)),
        f"{name} recordings/s ±": deviation(rates),
    }


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


def seconds_of(work: Callable[[], Any], compute: Compute = CPU) -> float:
    """What one call takes, with all that it has queued on the device."""
    compute.synchronise()
    start = time.perf_counter()
    work()  # its result is freed within the time: some sides free their intermediate data, others return it
    compute.synchronise()
    return time.perf_counter() - start


def highest_bytes() -> int:
    """The most memory that this process has held, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux starts ru_maxrss at what the parent process held
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _shorten(sampling: Sampling, recording: Events) -> Events:
    return sampling.shorten(recording, torch.Generator().manual_seed(0))


def _prepare(sampling: Sampling, recording: Events, compute: Compute) -> EventBatch:
    """From all events of one recording to what the network reads, where it reads it."""
    return EventBatch.pad([_shorten(sampling, recording)]).to(compute.device)


def infer(model: Classifier, batch: EventBatch, compute: Compute) -> None:
    with torch.no_grad(), compute.autocast():
        model(batch)


def take_step(model: Classifier, batch: EventBatch, compute: Compute) -> None:
    labels = torch.zeros(len(batch), dtype=torch.int64, device=compute.device)
    with compute.autocast():
        loss = F.cross_entropy(model(batch), labels)
    with flush_denormals():
        loss.backward()
    model.zero_grad()


WORK: dict[str, Callable[..., None]] = {"inference": infer, "training": take_step}
