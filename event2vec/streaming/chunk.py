"""Events as they come from a stream: some columns at a time, on a clock that never goes back."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BACK = 1_000_000  # microseconds; a clock that falls back by more was started again


@dataclass(frozen=True)
class Chunk:
    """A few milliseconds of a stream, ordered by time."""

    x: NDArray[np.uint16]
    y: NDArray[np.uint16]
    t: NDArray[np.int64]  # microseconds on the stream's clock
    p: NDArray[np.bool_]
    happened: float  # when its last event came, or was due, in seconds of `time.monotonic`

    def __len__(self) -> int:
        return len(self.t)

    @classmethod
    def of(cls, x: Any, y: Any, t: Any, p: Any, happened: float) -> "Chunk":
        return cls(x.astype(np.uint16), y.astype(np.uint16), t.astype(np.int64), p.astype(np.bool_), happened)


class StreamClock:
    """Turns a sender's times into times that never go back: 32-bit times start again every 71.6 minutes.

    Times of 32 bits are compared modulo 2^32. Events that are late by less than a second get the time of the latest
    event before them, and are counted; a larger step back means that the sender was restarted, and its
    times continue where the stream was.
    """

    def __init__(self, bits: int = 32, start: int = 0) -> None:
        self.narrow = bits == 32
        self.late = 0
        self.restarts = 0
        self._raw: np.int64 | None = None  # the latest time as it was sent
        self._now = start  # the same on our clock
        self.latest = start  # the latest that was given out

    def follow(self, raw: NDArray[Any]) -> NDArray[np.int64]:
        """The times of a chunk on our clock, which begins at `start` with the first event."""
        if len(raw) == 0:
            return np.empty(0, np.int64)
        raw = raw.astype(np.int64)
        steps = np.diff(raw, prepend=raw[0] if self._raw is None else self._raw)
        if self.narrow:
            steps = steps.astype(np.uint32).astype(np.int32).astype(np.int64)  # across the overflow: a small step
        restarted = steps < -BACK
        self.restarts += int(np.count_nonzero(restarted))
        since = self._now + np.cumsum(np.where(restarted, 0, steps))
        times = np.maximum(np.maximum.accumulate(since), self.latest)
        self.late += int(np.count_nonzero(since < times))
        self._raw, self._now, self.latest = raw[-1], int(since[-1]), int(times[-1])
        return times
