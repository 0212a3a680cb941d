"""What tests of live streams share: chunks, a stream of digits, a source that is silent, and a clock of their own."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from golden.make import FOLDER
from numpy.typing import NDArray

from event2vec import Events, Sensor, read_events
from event2vec.streaming.chunk import Chunk
from event2vec.streaming.source import Source

SENSOR = Sensor(34, 34)
NETWORK = FOLDER / "network"
PATIENCE = 60.0  # seconds; only a test that fails waits that long


class Clock:
    """In the place of the module `time`: it stands still but while somebody sleeps, however busy the machine is."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Silent(Source):
    """Events put into the ring beforehand, and nothing more."""

    def __init__(self, sensor: Sensor = SENSOR) -> None:
        super().__init__()
        self.sensor = sensor

    def read(self) -> Chunk | None:
        time.sleep(0.001)
        return None


def chunk_of(events: Events, start: int = 0) -> Chunk:
    t = events.t.numpy() + start
    return Chunk.of(events.x.numpy(), events.y.numpy(), t, events.p.numpy(), time.monotonic())


def columns_of(events: Events) -> list[NDArray[np.int64]]:
    """x, y, t and p as packets and cameras have them."""
    return [getattr(events, name).numpy().astype(np.int64) for name in "xytp"]


def digits(*names: str, repeats: int = 1) -> Events:
    """Recordings of digits, one after the other: a stream whose class changes."""
    parts = [read_events(FOLDER / f"recordings/{name}/npz.npz") for name in names for _ in range(repeats)]
    starts = np.cumsum([0, *(part.duration + 1000 for part in parts)])
    columns = {column: np.concatenate([getattr(part, column).numpy() for part in parts]) for column in ("x", "y", "p")}
    t = np.concatenate([part.t.numpy() + start for part, start in zip(parts, starts, strict=False)])
    return Events.from_arrays(**columns, t=t, sensor=parts[0].sensor)


def read_all(source: Source, count: int) -> Sequence[NDArray[Any]]:
    """The columns x, y, t and p of the next `count` events, or a few more."""
    parts: list[Chunk] = []
    end = time.monotonic() + PATIENCE
    while sum(len(part) for part in parts) < count and time.monotonic() < end:
        chunk = source.read()
        parts += [chunk] if chunk is not None else []
    return [np.concatenate([getattr(part, name) for part in parts]) for name in "xytp"]
