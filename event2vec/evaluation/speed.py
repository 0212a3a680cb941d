"""How fast a network is on this machine: Table 2's columns, for reports and tables."""

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from event2vec.data.sampling import Sampling
from event2vec.evaluation.accuracy import deviation
from event2vec.events import EventBatch, Events
from event2vec.machine.devices import CPU, Compute
from event2vec.machine.workers import end_with_parent
from event2vec.model.backbone import Block
from event2vec.model.classifier import Classifier, Event2VecClassifier

Batch = TypeVar("Batch")
WORTH_DOUBLING = 1.05  # times the recordings a second that a batch twice as large must give
SEARCH = 5.0  # seconds of work in which the quickest batch is looked for
LARGEST = 256  # recordings that a CPU gains from, at most
TRIES = 3  # of a batch, after one that warms up; the quickest counts
ANSWERS = 30  # rounds in which one answer is timed
RATES = 5  # batches whose rates give a mean and a deviation
INCLUDED = (
    "Recordings a second are of the network alone, in batches that are ready at the quickest size; training is "
    "augmentation, loss, gradients and optimiser. Milliseconds are for one recording: preparing is drawing or "
    "clustering its events, forward is the network, total is both."
)


@dataclass(frozen=True)
class Figure:
    """A mean, and the standard deviation of the values that it was taken over."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure":
        return cls(float(np.mean(values)), deviation(values))


@dataclass(frozen=True)
class Throughput:
    """Recordings a second, in batches of the size that suits the device."""

    batch: int
    rate: Figure


@dataclass(frozen=True)
class Speed:
    """Table 2's columns: milliseconds for one recording, recordings a second, megabytes of a GPU."""

    preparing: Figure
    forward: Figure
    total: Figure
    inference: Throughput
    training: Throughput
    gpu_memory: float | None = None  # None on a CPU

    def columns(self) -> dict[str, float | int]:
        """One number under each heading, for tables."""
        found = dict[str, float | int]()
        for name, taken in (("preparing", self.preparing), ("forward", self.forward), ("total", self.total)):
            found |= {f"{name} ms": taken.mean, f"{name} ms ±": taken.deviation}
        if self.gpu_memory is not None:
            found["GPU memory MB"] = self.gpu_memory
        for name, work in (("inference", self.inference), ("training", self.training)):
            found |= {f"{name} batch": work.batch, f"{name} recordings/s": work.rate.mean}
            found[f"{name} recordings/s ±"] = work.rate.deviation
        return found

    def facts(self) -> dict[str, Any]:
        """For JSON, by the names of the fields."""
        return asdict(self)

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "Speed":
        """What `facts` gave; LookupError, TypeError or ValueError where it is something else."""

        def figure(found: Mapping[str, Any]) -> Figure:
            return Figure(float(found["mean"]), float(found["deviation"]))

        def throughput(found: Mapping[str, Any]) -> Throughput:
            return Throughput(int(found["batch"]), figure(found["rate"]))

        memory = facts["gpu_memory"]
        return cls(
            figure(facts["preparing"]),
            figure(facts["forward"]),
            figure(facts["total"]),
            throughput(facts["inference"]),
            throughput(facts["training"]),
            None if memory is None else float(memory),
        )


def measure_speed(
    model: Classifier, recordings: Sequence[Events], learn: Callable[[EventBatch], Any], compute: Compute = CPU
) -> Speed:
    """Table 2: milliseconds for one recording, recordings a second in batches, and memory of a GPU for one.

    Each recording is timed once, after one that loads the code; ± is the deviation over recordings, and over batches
    for recordings a second. The batch is the largest that a GPU holds, or the quickest on a CPU. `learn` is a step of
    training (`training.timing.training_step`). Batches are there before the clock starts: recordings a second are of
    the network alone, milliseconds include drawing or clustering the events.
    """
    model = model.eval().for_reading(1)  # as `predict` answers one recording
    preparing, forward = list[float](), list[float]()
    infer(model, _prepare(model.sampling, recordings[0], compute), compute)
    compute.forget_peak()
    for events in recordings:
        preparing.append(1e3 * seconds_of(partial(_prepare, model.sampling, events, compute), compute))
        single = _prepare(model.sampling, events, compute)
        forward.append(1e3 * seconds_of(partial(infer, model, single, compute), compute))
    total = [sum(both) for both in zip(preparing, forward, strict=True)]
    memory = compute.peak_bytes()
    whole = [_shorten(model.sampling, events) for events in recordings]
    inference = _rate(partial(infer, model, compute=compute), whole, compute)
    training = _rate(learn, whole, compute)
    megabytes = None if memory is None else memory / 2**20
    return Speed(Figure.of(preparing), Figure.of(forward), Figure.of(total), inference, training, megabytes)


@dataclass(frozen=True)
class Split:
    """Milliseconds from the events of one recording to its class, part by part."""

    sampling: float  # making clusters, or drawing events
    embedding: float
    blocks: float  # attention and feed-forward layers, which are one call for a short recording
    rest: float  # positions, head, and all between

    @property
    def total(self) -> float:
        return self.sampling + self.embedding + self.blocks + self.rest

    def facts(self) -> dict[str, float | int]:
        return {"total ms": self.total} | {f"{name} ms": value for name, value in asdict(self).items()}


def split_answer(model: Event2VecClassifier, recording: Events, rounds: int = ANSWERS) -> Split:
    """What each part of one answer on a CPU takes, in the fastest of several rounds."""
    model.eval()
    blocks = [part for part in model.modules() if isinstance(part, Block)]
    parts: dict[str, Sequence[nn.Module]] = {"embedding": [model.embed], "blocks": blocks}
    model.predict(recording)
    splits = []
    for _ in range(rounds):
        with timing(parts) as taken:
            total = seconds_of(partial(model.predict, recording))
        taken["sampling"] = seconds_of(partial(_shorten, model.sampling, recording))
        rest = max(total - sum(taken.values()), 0.0)
        splits.append(Split(rest=1e3 * rest, **{name: 1e3 * value for name, value in taken.items()}))
    return min(splits, key=lambda split: split.total)


@contextmanager
def timing(parts: Mapping[str, Sequence[nn.Module]]) -> Iterator[dict[str, float]]:
    """Seconds that the calls of each group of modules take within."""
    taken = dict.fromkeys(parts, 0.0)

    def note(name: str, sign: int, *_: Any) -> None:
        taken[name] += sign * time.perf_counter()

    handles = []
    for name, modules in parts.items():
        for module in modules:
            handles.append(module.register_forward_pre_hook(partial(note, name, -1)))
            handles.append(module.register_forward_hook(partial(note, name, 1)))
    try:
        yield taken
    finally:
        for handle in handles:
            handle.remove()


def _rate(work: Callable[[EventBatch], Any], recordings: Sequence[Events], compute: Compute) -> Throughput:
    """Recordings a second at the batch that suits the device, over several batches."""

    def fill(size: int) -> EventBatch:
        return EventBatch.pad([recordings[index % len(recordings)] for index in range(size)]).to(compute.device)

    size = choose_batch(fill, work, compute)
    batch = fill(size)
    work(batch)
    rates = [size / seconds_of(lambda: work(batch), compute) for _ in range(RATES)]
    return Throughput(size, Figure.of(rates))


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
    """On a CPU: the power of 2 with most recordings a second, within a quarter of the memory and a few seconds.

    One size without a gain is passed over: a process beside us may have disturbed it.
    """
    if limit is None:
        limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    work(fill(1))
    before, spent, size, in_vain = highest_bytes(), 0.0, 1, 0
    best, rate = 1, 0.0
    while in_vain < 2 and size <= LARGEST:
        batch = fill(size)
        times = [seconds_of(partial(work, batch)) for _ in range(1 + TRIES)]
        taken, spent = min(times[1:]), spent + sum(times)
        if size / taken > WORTH_DOUBLING * rate:
            best, rate, in_vain = size, size / taken, 0
        else:
            in_vain += 1
        if spent + 2 * sum(times) > SEARCH or 2 * (highest_bytes() - before) >= limit:
            break
        size *= 2
    return best


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


def bytes_of_answer(model: Classifier, recording: Events) -> int:
    """Memory of a network and of one answer at its highest, in a separate process, beyond that of our code."""
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=end_with_parent) as pool:
        grown = pool.submit(_grow, model.cpu(), recording).result()
    return grown + sum(weight.nbytes for weight in model.state_dict().values())


def _grow(model: Classifier, recording: Events) -> int:
    F.conv2d(torch.zeros(1, 1, 4, 4), torch.zeros(1, 1, 3, 3))  # which loads the code of most layers
    before = highest_bytes()
    model.predict(recording)
    return highest_bytes() - before


def _shorten(sampling: Sampling, recording: Events) -> Events:
    return sampling.shorten(recording, torch.Generator().manual_seed(0))


def _prepare(sampling: Sampling, recording: Events, compute: Compute) -> EventBatch:
    """From all events of one recording to what the network reads, where it reads it."""
    return EventBatch.pad([_shorten(sampling, recording)]).to(compute.device)


def infer(model: Classifier, batch: EventBatch, compute: Compute) -> None:
    with torch.no_grad(), compute.autocast():
        model(batch)
