"""Events in UDP packets, as eventcv and AEStream send them.

A packet holds words of 32 bits, little-endian: bit 31 says that no time follows, bits 16 to 30 are x, bit 15 is the
polarity, bits 0 to 14 are y. Where bit 31 is 0, the next word is the time in microseconds modulo 2^32. (Both programs
send whole packets of one kind; eventcv can also send big-endian words, which are not read here.)
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.sensor import Sensor

UNTIMED = 1 << 31
RISING = 1 << 15
LONGEST = 1400  # bytes that any network transmits in one piece


@dataclass(frozen=True)
class Words:
    """Events of packets of one kind."""

    x: NDArray[np.uint16]
    y: NDArray[np.uint16]
    p: NDArray[np.bool_]
    t: NDArray[np.uint32] | None  # None if the sender does not say
    kept: NDArray[np.bool_]  # False for those left out: off the sensor, or of the other kind


def is_packet(data: Any) -> bool:
    """Whether the bytes can be a packet: whole words, whole pairs of them where there are times."""
    return len(data) > 0 and len(data) % (4 if is_untimed(data) else 8) == 0


def is_untimed(data: Any) -> bool:
    return len(data) >= 4 and data[3] >= 0x80


def decode(data: Any, untimed: bool, sensor: Sensor) -> Words:
    """Events of one or more packets of one kind."""
    words = np.frombuffer(data, "<u4")
    places, t = (words, None) if untimed else (words[::2], words[1::2])
    x, y = (places >> 16) & 0x7FFF, places & 0x7FFF
    kept = ((places >= UNTIMED) == untimed) & (x < sensor.width) & (y < sensor.height)
    p = (places & RISING) != 0
    return Words(x[kept].astype(np.uint16), y[kept].astype(np.uint16), p[kept], None if t is None else t[kept], kept)


def encode(x: NDArray[Any], y: NDArray[Any], p: NDArray[Any], t: NDArray[Any] | None = None) -> list[bytes]:
    """Packets that hold these events, with times if they are given."""
    places = (x.astype(np.uint32) << 16) | y.astype(np.uint32) | (p.astype(np.uint32) * RISING)
    if t is None:
        words = places | UNTIMED
    else:
        words = np.stack([places, (t & 0xFFFFFFFF).astype(np.uint32)], axis=1).reshape(-1)
    data = words.astype("<u4").tobytes()
    return [data[start : start + LONGEST] for start in range(0, len(data), LONGEST)]
