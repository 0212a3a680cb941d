"""A recording as the event player takes it: columns as text, and what is said about them."""

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from event2vec.data.seeding import seeded
from event2vec.data.uniform import sample_uniform
from event2vec.events import Events


class Part(NamedTuple):
    """What was answered, or is true, for a part of a recording."""

    start: int  # microseconds since the first event
    stop: int
    name: str  # of the class, or why there is none
    label: int | None  # the number of the class, which has its colour
    confidence: float | None = None


@dataclass(frozen=True)
class Clip:
    """One recording for the player."""

    title: str
    events: Events  # those that are shown
    recorded: int  # events in the whole recording
    verdict: str = ""  # what a network said, if there was one
    right: bool = True
    attention: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 0), np.uint8))  # blocks x events
    answers: Sequence[Part] = ()  # over time, of a long recording
    truth: Sequence[Part] = ()  # what its labels say

    def facts(self) -> dict[str, Any]:
        """For the page: columns as base64, in the types that player.js reads."""
        events = self.events
        columns = (
            (events.x.round(), "<u2"),
            (events.y.round(), "<u2"),
            (events.t - events.t[:1], "<f8"),
            (events.p, "u1"),
        )
        x, y, t, p = (_text(column.cpu().numpy().astype(kind)) for column, kind in columns)
        return {
            "title": self.title,
            "verdict": self.verdict,
            "right": self.right,
            "recorded": self.recorded,
            "width": events.sensor.width,
            "height": events.sensor.height,
            "duration": events.duration,
            "columns": {"x": x, "y": y, "t": t, "p": p, "attention": [_text(row) for row in self.attention]},
            "answers": [part._asdict() for part in self.answers],
            "truth": [part._asdict() for part in self.truth],
        }


def thin(events: Events, most: int) -> Events:
    """At most this many events of a recording, picked at random, the same ones each time."""
    return sample_uniform(events, most, seeded(0, 0, 0, events.t.device))


class Thinner:
    """At most this many events of a recording that comes in chunks, picked at random, the same ones each time.

        thinner = Thinner(400_000)
        for chunk in thinner.watch(read_chunks("hour.raw")):
            ...
        thinner.events

    While more than twice as many are held, each is kept with a chance of one half, and so are those that follow.
    """

    def __init__(self, most: int) -> None:
        self.most, self.recorded = most, 0
        self._share, self._held, self._count = 1.0, list[Events](), 0
        self._generator = seeded(0, 0, 0)

    def watch(self, chunks: Iterable[Events]) -> Iterator[Events]:
        """The chunks as they are; some of their events are kept here."""
        for chunk in chunks:
            self.recorded += len(chunk)
            self._hold([*self._held, self._some(chunk.to("cpu"), self._share)])
            while self._count > 2 * self.most:
                self._share /= 2
                self._hold([self._some(part, 0.5) for part in self._held])
            yield chunk

    def _hold(self, parts: list[Events]) -> None:
        self._held, self._count = parts, sum(map(len, parts))

    def _some(self, events: Events, share: float) -> Events:
        if share == 1:
            return events
        return events.select(torch.rand(len(events), generator=self._generator) < share)

    @property
    def events(self) -> Events:
        """What is left, in order of time."""
        parts = [part for part in self._held if len(part)]
        return thin(Events.join(parts), self.most)


def _text(column: NDArray[Any]) -> str:
    return base64.b64encode(column.tobytes()).decode("ascii")
