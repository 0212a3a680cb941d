"""A recording that was dropped on the live page: received, read, answered, and forgotten."""

import json
import re
import tempfile
import time
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from event2vec.data.windows import Windows
from event2vec.errors import Event2VecError
from event2vec.evaluation.figures.clips import make_answered_clip
from event2vec.evaluation.timeline import timeline
from event2vec.events import Events
from event2vec.io import read_events
from event2vec.model.predictor import Predictor
from event2vec.names import printable
from event2vec.player.clip import Clip, thin
from event2vec.progress import SILENT, Progress
from event2vec.sensor import Sensor
from event2vec.streaming.windows import fewest_events

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection

LARGEST_FILE = 1 << 25  # bytes
MOST_PLAYED = 200_000  # events that the page plays
MOST_WINDOWS = 400  # answers over time, which must not take long
LONG = 1.5  # windows; recordings that last longer are answered over time


async def receive_recording(connection: "ServerConnection") -> tuple[str, bytes]:
    """A name and a size, then the file in pieces."""
    try:
        said = json.loads(await connection.recv())
        name, size = Path(str(said["name"])[:200]).name or "recording", int(said["size"])
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Event2VecError("the page did not say what it sends") from None
    if not 0 < size <= LARGEST_FILE:
        raise Event2VecError(f"{printable(name)}: has {size:,} bytes, expected 1 to {LARGEST_FILE:,}")
    data = bytearray()
    while len(data) < size:
        piece = await connection.recv()
        if not isinstance(piece, bytes) or len(data) + len(piece) > size:
            raise Event2VecError(f"{printable(name)}: is not what the page announced. Drop it again")
        data += piece
    return name, bytes(data)


class Limit(Progress):
    """Ends work that takes too long, or that nobody waits for any more: a thread cannot be ended from outside."""

    def __init__(self, seconds: float, given_up: Event) -> None:
        self.end, self.given_up = time.monotonic() + seconds, given_up

    def advance(self, done: int, note: str = "") -> None:
        if self.given_up.is_set() or time.monotonic() >= self.end:
            raise TimeoutError


def answer_recording(
    model: Predictor, name: str, data: bytes, window: float, progress: Progress = SILENT
) -> dict[str, Any]:
    """What the page shows about a recording; its bytes are in a private folder only while they are read.

    One that is clearly longer than `window` seconds is answered over time.
    """
    safe = "recording" + re.sub(r"[^.A-Za-z0-9]", "", Path(name).suffix)[:10]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / safe
        path.write_bytes(data)
        try:
            events = read_events(path, usual=model.config.sensor)
        except Event2VecError as error:
            raise Event2VecError(str(error).replace(str(path), name)) from None
    progress.advance(0)
    if len(events) == 0:
        raise Event2VecError(f"{name}: holds no events, so there is nothing to classify")
    if events.duration > LONG * window * 1e6:
        return _answer_over_time(model, name, events, window, progress)
    found = model.predict(events)
    verdict = f"{found.name} ({found.confidence:.0%}), from all of its {events.duration / 1e6:.3f} s"
    verdict += f"; unlike the training recordings: {'; '.join(found.remarks)}" if found.remarks else ""
    clip = Clip(printable(name), thin(events, MOST_PLAYED), len(events))
    return _facts(model, verdict, np.asarray(found.scores), found.scaled_from, clip)


def _answer_over_time(model: Predictor, name: str, events: Events, window: float, progress: Progress) -> dict[str, Any]:
    seconds = events.duration / 1e6
    stride = max(window / 2, seconds / MOST_WINDOWS)
    windows = Windows(window=window, stride=stride, min_events=fewest_events(model))
    found = timeline(model, events, windows, progress=progress)
    clip = make_answered_clip(found, thin(events, MOST_PLAYED), len(events), printable(name))
    verdict = f"{clip.verdict}, {seconds:.1f} s; scores are means over all of them"
    return _facts(model, verdict, found.scores.mean(axis=0), found.scaled_from, clip)


def _facts(
    model: Predictor, verdict: str, scores: NDArray[Any], scaled_from: Sensor | None, clip: Clip
) -> dict[str, Any]:
    verdict += f", scaled from {scaled_from}" if scaled_from else ""
    order = np.argsort(-scores, kind="stable").tolist()
    return {
        "verdict": printable(verdict),
        "scores": {printable(model.class_names[label]): float(scores[label]) for label in order},
        "clip": clip.facts(),
    }
