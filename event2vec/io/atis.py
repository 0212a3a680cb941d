"""The `.bin` files of N-MNIST and N-Caltech101: five bytes per event, no header."""

from pathlib import Path

import numpy as np

from event2vec.errors import FileError
from event2vec.io.recording import Decoded, cut_short
from event2vec.sensor import Sensor

NMNIST = Sensor(34, 34)
OVERFLOW_ROW = 240  # an event in this row marks an overflow of the clock's 13-bit part
OVERFLOW_STEP = 1 << 13


def read_atis(path: Path) -> Decoded:
    """Bytes: x, y, then one bit of polarity and 23 bits of microseconds, highest first."""
    data = np.fromfile(path, np.uint8)
    whole = len(data) // 5 * 5
    if whole == 0:
        raise FileError(path, f"holds only {len(data)} of the 5 bytes of an event. Is it an N-MNIST .bin file?")
    x, y, high, middle, low = data[:whole].reshape(-1, 5).T
    t = (high & 0x7F).astype(np.int64) << 16 | middle.astype(np.int64) << 8 | low
    overflow = y == OVERFLOW_ROW
    t += np.cumsum(overflow, dtype=np.int64) * OVERFLOW_STEP
    kept = ~overflow
    x, y, t, p = x[kept], y[kept], t[kept], high[kept] >= 0x80
    small = len(x) == 0 or max(x.max(), y.max()) < NMNIST.width
    # N-Caltech101 uses the same records for images of many sizes, and does not store the size.
    return Decoded(x, y, t, p, NMNIST if small else None, warnings=cut_short(len(data) - whole, "event"))
