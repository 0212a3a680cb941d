"""A recording for the event player of a report: its events, and the attention that each of them receives."""

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.clustering import to_unit_cube
from event2vec.data.sampling import sample_uniform
from event2vec.data.seeding import seeded
from event2vec.evaluation.figures.attention_maps import attention_received
from event2vec.events import Events
from event2vec.model.classifier import Classifier

MOST = 20_000  # events of a recording on the page; more are drawn from


@dataclass(frozen=True)
class Clip:
    """What the player shows of one recording."""

    events: Events
    recorded: int  # events that there are
    attention: NDArray[np.uint8]  # blocks x events: 255 for what only one token in a hundred receives more than
    truth: str
    answer: str
    score: float

    def facts(self) -> dict[str, Any]:
        """For the page: numbers as text, columns in the types that player.js reads."""
        right = self.answer == self.truth
        events = self.events
        columns = (
            (events.x.round(), "<u2"),
            (events.y.round(), "<u2"),
            (events.t - events.t[:1], "<f8"),
            (events.p, "u1"),
        )
        x, y, t, p = (_text(column.numpy().astype(kind)) for column, kind in columns)
        return {
            "title": self.truth if right else f"{self.truth}, taken for {self.answer}",
            "verdict": f"answer {self.answer} ({self.score:.0%}), " + ("right" if right else f"really {self.truth}"),
            "right": right,
            "recorded": self.recorded,
            "width": events.sensor.width,
            "height": events.sensor.height,
            "duration": int(events.t[-1] - events.t[0]) if len(events) else 0,
            "columns": {"x": x, "y": y, "t": t, "p": p, "attention": [_text(row) for row in self.attention]},
        }


def _text(column: NDArray[Any]) -> str:
    return base64.b64encode(column.tobytes()).decode("ascii")


def make_clip(model: Classifier, tokens: Events, raw: Events, truth: str) -> Clip:
    """`tokens` are what the network reads, `raw` is what the camera gave."""
    prediction = model.predict(tokens)
    shown = sample_uniform(raw, MOST, seeded(0, 0, 0))
    drawn = model.config.attention == "forgetting"
    received = attention_received(model, tokens) if drawn else np.zeros((0, len(tokens)))
    bright = received / np.maximum(np.percentile(received, 99, axis=1, keepdims=True), 1e-12)
    attention = (255 * bright.clip(0, 1))[:, nearest_tokens(shown, tokens)].round().astype(np.uint8)
    score = float(prediction.scores[prediction.label])
    return Clip(shown, len(raw), attention, truth, prediction.name, score)


def nearest_tokens(events: Events, tokens: Events) -> NDArray[np.int64]:
    """Which token lies nearest to each event, in the unit cube and of the same polarity where there is one."""
    from scipy.spatial import cKDTree

    places, points = (to_unit_cube(part, events).numpy() for part in (tokens, events))
    found = np.empty(len(events), np.int64)
    for polarity in (False, True):
        mine, theirs = events.p.numpy() == polarity, np.flatnonzero(tokens.p.numpy() == polarity)
        candidates = theirs if len(theirs) else np.arange(len(tokens))
        found[mine] = candidates[cKDTree(places[candidates]).query(points[mine])[1]]
    return found
