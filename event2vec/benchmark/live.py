"""Live answers under load: a recording played ever faster, and synthetic streams of up to 20 million events a second.

Latency is measured from the last event of a window, at the moment when it was due, to the answer: it includes a reader
that falls behind. Weights are random, as speed does not depend on them.
"""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from event2vec.benchmark.measurement import Measurement
from event2vec.errors import Event2VecError, FileError
from event2vec.events import Events
from event2vec.io import read_recording
from event2vec.io.folders import find_recordings
from event2vec.model.classifier import Classifier, build_model
from event2vec.sensor import Sensor
from event2vec.streaming import EVERY, Live
from event2vec.streaming.answers import Answer
from event2vec.streaming.recording_source import RecordingSource
from event2vec.streaming.windows import USUAL
from event2vec.training.recipe import load_recipe

RATES = (100_000, 1_000_000, 5_000_000, 20_000_000)  # events a second
SPEEDS = (1.0, 5.0, 20.0, 50.0)
SECONDS = 3.0  # of each case
TARGETS = {"digits": 20, "nmnist": 20, "dvs_gesture": 60}  # milliseconds for 95 % of answers, up to TARGET_RATE
TARGET_RATE = 1_000_000
GESTURE_CLUSTERS = 512
MADE = 0.1  # seconds of synthetic events, which are played in a loop
MEMORY_EVERY = 5.0  # seconds between two looks at memory


@dataclass
class Load:
    """What was seen of one stream."""

    latencies: list[float] = field(default_factory=list)  # seconds
    stages: dict[str, list[float]] = field(default_factory=lambda: {"sampling": [], "network": []})
    memory: list[int] = field(default_factory=list)  # bytes, from time to time
    answers: int = 0
    skipped: int = 0
    lost: int = 0  # events
    wall: float = 0.0
    cpu: float = 0.0

    def note(self, answer: Answer) -> None:
        self.answers += 1
        self.lost = answer.lost
        if answer.label is not None:
            self.latencies.append(answer.latency)
            for stage, taken in self.stages.items():
                taken.append(answer.stages[stage])

    def figures(self) -> dict[str, float | int | None]:
        found: dict[str, float | int | None] = {}
        for which in (50, 95, 99):
            found[f"p{which} ms"] = _percentile(self.latencies, which)
        for stage, taken in self.stages.items():
            found[f"{stage} p50 ms"], found[f"{stage} p95 ms"] = _percentile(taken, 50), _percentile(taken, 95)
        found |= {
            "answers/s": self.answers / self.wall,
            "skipped": self.skipped,
            "lost events": self.lost,
            "CPU share": self.cpu / self.wall,
        }
        growth = (max(self.memory) - self.memory[0]) / 2**20 if self.memory else None
        return found | {"memory MB": self.memory[-1] / 2**20 if self.memory else None, "memory growth MB": growth}


def measure_live(recordings: Path | None, minutes: float | None = None) -> list[Measurement]:
    """Synthetic streams for three networks, and the longest recording of a folder for that of DVS Gesture.

    With `minutes`, instead one stream of a million events a second for that long, to see that memory stays flat.
    """
    if minutes is not None:
        return [_measure("dvs_gesture", "made", made_events(_network("dvs_gesture"), TARGET_RATE), 1.0, 60 * minutes)]
    rows = []
    for name in TARGETS:
        for rate in RATES:
            rows.append(_measure(name, "made", made_events(_network(name), rate), 1.0, SECONDS))
    if recordings is not None:
        path, events = _longest(recordings)
        rows += [_measure("dvs_gesture", f"{path.name}, {speed:g} x", events, speed, SECONDS) for speed in SPEEDS]
    return rows


def _network(name: str) -> Classifier:
    recipe = load_recipe(name)
    if name == "dvs_gesture":
        recipe = recipe.with_settings({"sampling.method": "clusters", "sampling.length": GESTURE_CLUSTERS})
    return build_model(recipe.model, sampling=recipe.sampling)


def made_events(model: Classifier, rate: int) -> Events:
    """Events all over the sensor, evenly in time."""
    sensor, count = model.config.sensor, int(rate * MADE)
    random = np.random.default_rng((0, 0, count))
    x, y = random.integers(0, sensor.width, count), random.integers(0, sensor.height, count)
    t = np.sort(random.integers(0, int(MADE * 1e6) - 1000, count))  # a loop begins a millisecond later
    return Events.from_arrays(x, y, t, random.integers(0, 2, count), sensor=Sensor.of(sensor))


def _measure(network: str, stream: str, events: Events, speed: float, seconds: float) -> Measurement:
    load = run_load(_network(network), events, speed, seconds)
    rate = round(speed * len(events) / max(events.duration / 1e6, 1e-6))
    case: dict[str, str | int] = {"network": network, "stream": stream, "events/s": round(rate, -3)}
    targets = {"target p95 ms": TARGETS[network]} if rate < 1.1 * TARGET_RATE else {}
    return Measurement(case, load.figures(), targets=targets)


def run_load(model: Classifier, events: Events, speed: float, seconds: float) -> Load:
    """Answer a stream for some seconds, after one window that fills it."""
    load, looked = Load(), 0.0
    before: tuple[float, float, int] | None = None  # when measuring began
    with Live(model, RecordingSource(events, speed, loop=True), USUAL, EVERY) as stream:
        filled = time.monotonic() + USUAL + EVERY
        for answer in stream:
            now, cpu = time.monotonic(), time.process_time()
            if before is None or now < filled:
                before = now, cpu, answer.skipped
                continue
            load.note(answer)
            load.wall, load.cpu, load.skipped = now - before[0], cpu - before[1], answer.skipped - before[2]
            if now - looked >= MEMORY_EVERY:
                load.memory += held_bytes()
                looked = now
            if load.wall >= seconds:
                break
    load.memory += held_bytes()
    return load


def held_bytes() -> list[int]:
    """The memory that this process holds now; nothing where the system does not say."""
    status = Path("/proc/self/statm")
    return [int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")] if status.exists() else []


def _longest(folder: Path) -> tuple[Path, Events]:
    found: list[tuple[Path, Events]] = []
    for path in find_recordings(folder)[0]:
        try:
            found.append((path, read_recording(path).events))
        except Event2VecError:
            continue
    if not found:
        raise FileError(folder, "has no recordings that can be read")
    return max(found, key=lambda pair: pair[1].duration)


def _percentile(seconds: list[float], which: int) -> float | None:
    """In milliseconds."""
    return 1e3 * float(np.percentile(seconds, which)) if seconds else None
