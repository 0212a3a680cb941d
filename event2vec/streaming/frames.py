"""What a page draws: the newest events as bytes, or what the network read with the attention that each event got."""

import copy
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.data.seeding import seeded_arrays
from event2vec.data.uniform import draw_positions
from event2vec.evaluation.figures.attention_maps import attention_received
from event2vec.events import Events
from event2vec.model.classifier import Classifier
from event2vec.sensor import Sensor
from event2vec.streaming.ring import Ring

MOST_DRAWN = 20_000  # events in a frame; more are thinned, at random
LONGEST = 100_000  # microseconds of events in a frame after a pause


def newest_events(ring: Ring, since: int, now: int) -> tuple[NDArray[Any], ...]:
    """Columns x, y, p of the events since a time, on the stream's clock; none if they were written over just now."""
    view = ring.view().since(max(since, now - LONGEST))
    if len(view) > MOST_DRAWN:
        columns = view.take(draw_positions(len(view), MOST_DRAWN, seeded_arrays(0, 0, max(since, 0))))
    else:
        columns = view.all()
    x, y, _, p = columns if view.intact else tuple(column[:0] for column in columns)
    return x, y, p


class AttentionViewer:
    """A copy of the network that is only looked at: the one that answers runs at the same time."""

    def __init__(self, model: Classifier, sensor: Sensor) -> None:
        self.model, self.sensor = copy.deepcopy(model).eval(), sensor

    def __call__(self, tokens: Events) -> tuple[NDArray[Any], ...]:
        """Columns x, y, p on the stream's sensor, and the attention received in the last block; 255 is the most."""
        received = attention_received(self.model, tokens)[-1]
        bright = 255 * (received / max(float(np.percentile(received, 99)), 1e-12)).clip(0, 1)
        placed = self.model.tokens_of(tokens).on_sensor(self.sensor).arrays()
        x, y = (column.round().astype(np.uint16) for column in (placed.x, placed.y))
        return x, y, placed.p, bright.round().astype(np.uint8)


def pack_frame(head: Mapping[str, Any], columns: tuple[NDArray[Any], ...]) -> bytes:
    """The length of the head, the head as JSON, then the columns; numbers of two bytes begin at even places."""
    x, y, p, *attention = columns
    text = json.dumps({**head, "count": len(x), "attention": bool(attention)}).encode("utf-8")
    text += b" " * (-len(text) % 4)
    seen = attention[0] if attention else np.zeros(len(x), np.uint8)
    parts = (x.astype("<u2"), y.astype("<u2"), p.astype(np.uint8), seen)
    return len(text).to_bytes(4, "little") + text + b"".join(part.tobytes() for part in parts)
