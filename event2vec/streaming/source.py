"""What a stream of events is: read by one thread, again and again, until it ends.

A source waits a little at most, and gives what has come. What is wrong with the input is counted or said in `notices`,
and the stream continues until it ends.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.sensor import Sensor
from event2vec.streaming.chunk import Chunk, StreamClock

PATIENCE = 0.05  # seconds that a source waits for events before it says that there are none
BUFFER = 1 << 22  # bytes of packets or text that are decoded at once


class StreamEnded(Exception):
    """There will be no more events."""


class StreamUnreadable(StreamEnded):
    """What comes in holds no events that can be read."""


class Source(ABC):
    """One stream of events."""

    sensor: Sensor
    speed = 1.0  # seconds of the stream in one of ours

    def __init__(self) -> None:
        self.notices: list[str] = []  # what people should know, one line each
        self.rejected = 0  # packets, lines and events that were no events of this sensor
        self.lost = 0  # events that came faster than they could be read

    @abstractmethod
    def read(self) -> Chunk | None:
        """What has come, or None after waiting a little; `StreamEnded` at the end."""

    def close(self) -> None:  # noqa: B027  # a recording holds nothing
        """Free what the source holds."""

    def _follow(self, clock: StreamClock, raw: NDArray[Any]) -> NDArray[np.int64]:
        """A sender's times on the stream's clock; the first that went back are reported."""
        late, restarts = clock.late, clock.restarts
        times = clock.follow(raw)
        if clock.late and not late:
            self.notices.append("events came out of order; late ones get the time of the latest event before them")
        if clock.restarts and not restarts:
            self.notices.append("the sender's times went back by more than a second; the stream continues where it was")
        return times

    def _reject(self, count: int, what: str) -> None:
        """Count what cannot be used, and report it once."""
        if count and not self.rejected:
            self.notices.append(f"{what}; more like it will only be counted")
        self.rejected += count
