"""The `.bin` files of N-MNIST and N-Caltech101: five bytes an event, no header."""

from pathlib import Path

import numpy as np

from event2vec.errors import FileError
from event2vec.io.recording import Decoded, cut_short
from event2vec.sensor import Sensor

NMNIST = Sensor(34, 34)
OVERFLOW_ROW = 240  # an event in this row says that the 13-bit part of the clock went round
OVERFLOW_STEP = 1 << 13


def read_atis(path: Path) -> Decoded:
    """Bytes: x, y, then one bit polarity and 23 bits of microseconds, highest first."""
    data = np.fromfile(path, np.uint8)
    whole = len(data) // 5 * 5
    if whole == 0:
        raise FileError(path, f"holds {len(data)} bytes, and one event takes 5. Is it an N-MNIST .bin file?")
    x, y, high, middle, low = data[:whole].reshape(-1, 5).T
    t = (high & 0x7F).astype(np.int64) << 16 | middle.astype(np.int64) << 8 | low
    overflow = y == OVERFLOW_ROW
    t += np.cumsum(overflow, dtype=np.int64) * OVERFLOW_STEP
    kept = ~overflow
    x, y, t, p = x[kept], y[kept], t[kept], high[kept] >= 0x80
    small = len(x) == 0 or max(x.max(), y.max()) < NMNIST.width
    # N-Caltech101 uses the same records with pictures of many sizes, and names none of them.
    return Decoded(x, y, t, p, NMNIST if small else None, warnings=cut_short(len(data) - whole, "event"))
