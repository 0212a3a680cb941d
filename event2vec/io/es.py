"""Event Stream `.es` files, decoded by the event_stream package."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from event2vec.errors import FileError
from event2vec.io.names import plain_name
from event2vec.io.recording import Decoded, cut_short
from event2vec.names import excerpt
from event2vec.sensor import Sensor

HEADER_BYTES = 20
EMPTY = Decoded(np.empty(0, np.uint16), np.empty(0, np.uint16), np.empty(0, np.int64), np.empty(0, np.bool_))


def read_es(path: Path) -> Decoded:
    """DVS streams, and the brightness changes of ATIS streams."""
    pieces = list(read_es_pieces(path))
    x, y, t, p = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in "xytp")
    return replace(pieces[-1], x=x, y=y, t=t, p=p)


def read_es_pieces(path: Path) -> Iterator[Decoded]:
    """The same in pieces, as the decoder gives them; the last one has no events, and the warnings."""
    import event_stream

    size, last = HEADER_BYTES, 0
    try:
        # Without `with`, each decoder leaks its buffers. It cannot open files whose names are not ASCII.
        with path.open("rb") as file, event_stream.Decoder(plain_name(file)) as decoder:
            kind = decoder.type
            if kind not in ("dvs", "atis"):
                raise FileError(path, f"is an Event Stream of type '{kind}', expected 'dvs' or 'atis'")
            sensor = Sensor(decoder.width, decoder.height)
            for events in decoder:
                if kind == "atis":
                    events = events[~events["e"]]  # exposure measurements are not brightness changes
                t = events["t"].astype(np.int64)
                size, last = size + _dvs_bytes(t, last), int(t[-1]) if len(t) else last
                yield Decoded(events["x"], events["y"], t, events["p"].copy(), sensor)
    except (RuntimeError, ValueError) as error:
        raise FileError(
            path, f"cannot be decoded as Event Stream: {excerpt(error, 160)}. Is the file complete?"
        ) from None
    ignored = path.stat().st_size - size if kind == "dvs" else 0
    yield replace(EMPTY, sensor=sensor, warnings=cut_short(max(ignored, 0), "event"))


def _dvs_bytes(t: NDArray[np.int64], last: int) -> int:
    """The bytes of these events in a DVS stream: the decoder does not report leftover bytes.

    5 for each event, and one more for every 127 microseconds since the previous event.
    """
    return 5 * len(t) + int((np.diff(t, prepend=last) // 127).sum())
