"""Event Stream `.es` files, decoded by the event_stream package."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from event2vec.errors import FileError
from event2vec.io.names import plain_name
from event2vec.io.recording import Decoded, cut_short
from event2vec.names import excerpt
from event2vec.sensor import Sensor


def read_es(path: Path) -> Decoded:
    """DVS streams, and the brightness changes of ATIS streams."""
    import event_stream

    try:
        # Without `with`, each decoder leaks its buffers. It cannot open files whose names are not ASCII.
        with path.open("rb") as file, event_stream.Decoder(plain_name(file)) as decoder:
            kind = decoder.type
            if kind not in ("dvs", "atis"):
                raise FileError(path, f"is an Event Stream of type '{kind}', expected 'dvs' or 'atis'")
            sensor = Sensor(decoder.width, decoder.height)
            chunks = list(decoder)
    except (RuntimeError, ValueError) as error:
        raise FileError(
            path, f"cannot be decoded as Event Stream: {excerpt(error, 160)}. Is the file complete?"
        ) from None
    if kind == "atis":
        chunks = [chunk[~chunk["e"]] for chunk in chunks]  # exposure measurements are not brightness changes
    nothing = np.empty(0, event_stream.dvs_dtype if kind == "dvs" else event_stream.atis_dtype)
    events = np.concatenate([*chunks, nothing])
    t = events["t"].astype(np.int64)
    ignored = path.stat().st_size - _dvs_bytes(t) if kind == "dvs" else 0
    return Decoded(events["x"], events["y"], t, events["p"].copy(), sensor, None, cut_short(max(ignored, 0), "event"))


def _dvs_bytes(t: NDArray[np.int64]) -> int:
    """The size of a DVS stream with these events: the decoder does not report leftover bytes.

    A header of 20 bytes, 5 per event, and one more for every 127 microseconds since the previous event.
    """
    return 20 + 5 * len(t) + int((np.diff(t, prepend=0) // 127).sum())
