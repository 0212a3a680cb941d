"""A recording as a stream: paced as it was recorded, or faster or slower."""

import time

import numpy as np

from event2vec.errors import Event2VecError
from event2vec.events import Events
from event2vec.streaming.chunk import Chunk
from event2vec.streaming.source import PATIENCE, Source, StreamEnded

TICK = 0.002  # seconds between two looks at what is due: a thread that never sleeps would slow the one that answers
LATEST = 1.0  # seconds that an event may be late
MOST_DUE = 1 << 20  # events that are handed over at once


class RecordingSource(Source):
    """A recording, paced as it was recorded or `speed` times as fast, once or again and again."""

    def __init__(self, events: Events, speed: float = 1.0, loop: bool = False) -> None:
        super().__init__()
        if len(events) == 0:
            raise Event2VecError("the recording holds no events, so there is nothing to play")
        self.sensor, self.speed, self.loop = events.sensor, speed, loop
        x, y, t, p = (column.cpu().numpy() for column in (events.x, events.y, events.t, events.p))
        self.columns = Chunk.of(x.round(), y.round(), t - t[0], p, 0.0)
        self.period = events.duration + 1000  # microseconds; a loop begins a moment after its last event
        self.started: float | None = None
        self.looked = 0.0  # when it was last asked
        self.position, self.rounds = 0, 0

    def read(self) -> Chunk | None:
        time.sleep(max(0.0, self.looked + TICK - time.monotonic()))
        self.looked = now = time.monotonic()
        columns = self.columns
        if self.started is None:
            self.started = now
        if self.position == len(columns):
            self._turn()
        due = int((now - self.started) * self.speed * 1e6)
        self._catch_up(due)
        begun = self.rounds * self.period
        due -= begun
        stop = min(int(np.searchsorted(columns.t, due, "right")), self.position + MOST_DUE)
        if stop <= self.position:
            wait = (int(columns.t[self.position]) - due) / 1e6 / self.speed
            time.sleep(min(max(wait, 0.0), PATIENCE))
            return None
        part = slice(self.position, stop)
        t = columns.t[part] + begun
        happened = self.started + float(t[-1]) / 1e6 / self.speed
        self.position = stop
        return Chunk(columns.x[part], columns.y[part], t, columns.p[part], happened)

    def _catch_up(self, due: int) -> None:
        """Leave out what is too late, so that nothing queues up where the machine cannot keep up."""
        late = due - self.rounds * self.period - int(self.columns.t[self.position])
        if late < LATEST * self.speed * 1e6:
            return
        rounds = due // self.period if self.loop else 0
        position = int(np.searchsorted(self.columns.t[:-1], due - rounds * self.period))
        lost = (rounds - self.rounds) * len(self.columns) + position - self.position
        if not self.lost:
            self.notices.append("the recording is too fast for this machine: events that come too late are left out")
        self.lost, self.rounds, self.position = self.lost + lost, rounds, position

    def _turn(self) -> None:
        if not self.loop:
            raise StreamEnded("the recording has ended")
        self.position, self.rounds = 0, self.rounds + 1
