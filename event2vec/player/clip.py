"""A recording as the event player takes it: columns as text, and what is said about them."""

import base64
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.data.seeding import seeded
from event2vec.data.uniform import sample_uniform
from event2vec.events import Events


@dataclass(frozen=True)
class Clip:
    """One recording for the player."""

    title: str
    events: Events  # those that are shown
    recorded: int  # events in the whole recording
    verdict: str = ""  # what a network said, if there was one
    right: bool = True
    attention: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 0), np.uint8))  # blocks x events

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
        }


def thin(events: Events, most: int) -> Events:
    """At most this many events of a recording, picked at random, the same ones each time."""
    return sample_uniform(events, most, seeded(0, 0, 0, events.t.device))


def _text(column: NDArray[Any]) -> str:
    return base64.b64encode(column.tobytes()).decode("ascii")
