"""A recording that was dropped on the live page: received, read, answered, and forgotten."""

import json
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from event2vec.errors import Event2VecError
from event2vec.io import read_events
from event2vec.model.classifier import Classifier
from event2vec.names import printable
from event2vec.player.clip import Clip, thin

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection

LARGEST_FILE = 1 << 25  # bytes
MOST_PLAYED = 200_000  # events that the page plays


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


def answer_recording(model: Classifier, name: str, data: bytes) -> dict[str, Any]:
    """What the page shows about a recording; its bytes are in a private folder only while they are read."""
    safe = "recording" + re.sub(r"[^.A-Za-z0-9]", "", Path(name).suffix)[:10]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / safe
        path.write_bytes(data)
        try:
            events = read_events(path)
        except Event2VecError as error:
            raise Event2VecError(str(error).replace(str(path), name)) from None
    if len(events) == 0:
        raise Event2VecError(f"{name}: holds no events, so there is nothing to classify")
    found = model.predict(events)
    order = found.scores.argsort(descending=True).tolist()
    verdict = f"{found.name} ({found.confidence:.0%}), from all of its {events.duration / 1e6:.3f} s"
    return {
        "verdict": printable(verdict + (f", scaled from {found.scaled_from}" if found.scaled_from else "")),
        "scores": {printable(model.class_names[label]): float(found.scores[label]) for label in order},
        "clip": Clip(printable(name), thin(events, MOST_PLAYED), len(events)).facts(),
    }
