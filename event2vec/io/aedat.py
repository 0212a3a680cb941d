"""Files of jAER and cAER: AEDAT 2.0 from a DVS128 or a DAVIS, and AEDAT 3.1."""

import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.errors import FileError
from event2vec.io.headers import is_text
from event2vec.io.recording import Decoded, cut_short
from event2vec.names import counted, excerpt
from event2vec.sensor import Sensor

Columns = tuple[NDArray[Any], NDArray[Any], NDArray[np.int64], NDArray[np.bool_]]  # x, y, t, p

HEADER_LIMIT = 16 << 20  # jAER writes all its preferences into the header
AEDAT2_EVENT = np.dtype([("address", ">u4"), ("t", ">u4")])
POLARITY_EVENT = np.dtype([("data", "<u4"), ("t", "<i4")])
PACKET_HEADER = struct.Struct("<hhiiiiii")
POLARITY_PACKET = 1
DVS128 = Sensor(128, 128)
CHIPS = {
    "davis346": Sensor(346, 260),
    "davis240": Sensor(240, 180),
    "davis208": Sensor(208, 192),
    "davis128": Sensor(128, 128),
    "davis640": Sensor(640, 480),
    "dvs128": DVS128,
    "tmpdiff128": DVS128,
}


@dataclass(frozen=True)
class Aedat2Header:
    """The lines that begin with #."""

    chip: str  # the camera's name in the file, "" if there is none
    length: int


def read_aedat2_header(path: Path) -> Aedat2Header:
    """An event may begin with # too: about one file in fifty has one right after the header."""
    text = bytearray()
    with path.open("rb") as file:
        while len(text) < HEADER_LIMIT:
            line = file.readline(HEADER_LIMIT)
            if not (line.startswith(b"#") and is_text(line)):
                break
            text += line
            if b"End Of ASCII Header" in line:
                break
    chip = re.search(rb"^#\s*AEChip:\s*(\S+)", text, re.MULTILINE)
    return Aedat2Header(chip[1].decode("latin-1").rpartition(".")[2] if chip else "", len(text))


def read_aedat2(path: Path) -> Decoded:
    """Pairs of address and time; the meaning of an address depends on the camera."""
    header = read_aedat2_header(path)
    size = path.stat().st_size - header.length
    records = np.fromfile(path, AEDAT2_EVENT, count=size // AEDAT2_EVENT.itemsize, offset=header.length)
    address, t = records["address"].astype(np.uint32), records["t"].astype(np.int64)
    del records  # a long recording should not be in memory three times
    sensor = _aedat2_sensor(path, header.chip, address)
    decode = _decode_dvs128 if sensor == DVS128 and "davis" not in header.chip.lower() else _decode_davis
    x, y, t, p = decode(path, address, t, sensor)
    warnings = cut_short(size % AEDAT2_EVENT.itemsize, "event")
    return Decoded(x, y, t, p, sensor, None, warnings, period=1 << 32)


def _named_sensor(text: str) -> Sensor | None:
    return next((sensor for name, sensor in CHIPS.items() if name in text.lower()), None)


def _aedat2_sensor(path: Path, chip: str, address: NDArray[np.uint32]) -> Sensor:
    if sensor := _named_sensor(chip):
        return sensor
    # Some data sets (CIFAR10-DVS) do not name the chip: 16 bits are enough for a DVS128, and a DAVIS uses all 32.
    if not chip and bool((address < 1 << 16).all()):
        return DVS128
    found = f"a camera called '{excerpt(chip)}'" if chip else "an unnamed camera"
    raise FileError(path, f"is AEDAT 2.0 from {found}, expected one of {', '.join(CHIPS)}")


def _decode_dvs128(path: Path, address: NDArray[np.uint32], t: NDArray[np.int64], sensor: Sensor) -> Columns:
    """Address bits: 0 falling, 1-7 column from the right, 8-14 row from the bottom, 15 not a pixel."""
    if (address >= 1 << 16).any():
        raise FileError(path, f"has the address {int(address.max()):#x}, but a DVS128 has 16 bits. Is it another chip?")
    address, t = _only(address < 1 << 15, address, t)
    address = address.astype(np.uint16)
    return 127 - (address >> 1 & 127), 127 - (address >> 8 & 127), t, address & 1 == 0


def _decode_davis(path: Path, address: NDArray[np.uint32], t: NDArray[np.int64], sensor: Sensor) -> Columns:
    """Address bits: 10 not a pixel, 11 rising, 12-21 column, 22-30 row from the bottom, 31 a frame or a measurement."""
    address, t = _only(address & (1 << 31 | 1 << 10) == 0, address, t)
    x, row = (address >> 12 & 0x3FF).astype(np.int16), (address >> 22 & 0x1FF).astype(np.int16)
    return x, sensor.height - 1 - row, t, address & 1 << 11 != 0


def _only(
    wanted: NDArray[np.bool_], address: NDArray[np.uint32], t: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    return (address, t) if wanted.all() else (address[wanted], t[wanted])


def read_aedat31(path: Path) -> Decoded:
    """Packets of a 28-byte header and `number` events; only polarity packets hold brightness changes."""
    data = np.fromfile(path, np.uint8)
    start, sensor = _aedat31_header(path, data)
    packets, ignored = _polarity_packets(path, data, start)
    count = sum(number for _, number, _ in packets)
    words, t = np.empty(count, np.uint32), np.empty(count, np.int64)
    row = 0
    for position, number, overflow in packets:
        events = data[position : position + number * POLARITY_EVENT.itemsize].view(POLARITY_EVENT)
        words[row : row + number] = events["data"]
        t[row : row + number] = events["t"]
        t[row : row + number] += overflow << 31
        row += number
    del data
    words, t = _only(words & 1 == 1, words, t)  # filters in the camera clear this bit
    x, y = (words >> 17).astype(np.uint16), (words >> 2 & 0x7FFF).astype(np.uint16)
    return Decoded(x, y, t, words & 2 == 2, sensor, None, cut_short(ignored, "packet"))


def aedat31_header_length(path: Path) -> int:
    """Bytes before the first packet."""
    with path.open("rb") as file:
        return _aedat31_header(path, np.frombuffer(file.read(HEADER_LIMIT), np.uint8))[0]


def _aedat31_header(path: Path, data: NDArray[np.uint8]) -> tuple[int, Sensor | None]:
    head = data[:HEADER_LIMIT].tobytes()
    end = re.search(rb"#!END-HEADER\r?\n", head)
    if not end:
        raise FileError(path, "is AEDAT 3 without the line '#!END-HEADER'. Is the file complete?")
    text = head[: end.start()].decode("latin-1")
    coding = re.search(r"^#Format:\s*(\S+)", text, re.MULTILINE)
    if coding and coding[1] != "RAW":
        raise FileError(
            path, f"is AEDAT 3 in the format {excerpt(coding[1])}, expected RAW. Export it without compression"
        )
    return end.end(), _named_sensor(text)


def _polarity_packets(path: Path, data: NDArray[np.uint8], start: int) -> tuple[list[tuple[int, int, int]], int]:
    """(position, number, overflow) of each polarity packet, and the bytes of a truncated one at the end."""
    packets = []
    size = len(data)
    while start + PACKET_HEADER.size <= size:
        kind, _, width, _, overflow, capacity, number, _ = PACKET_HEADER.unpack(data[start : start + 28].tobytes())
        if width < 1 or not 0 <= number <= capacity or overflow < 0:
            found = f"{counted(number, 'event')} of {width} bytes, capacity {capacity}"
            raise FileError(path, f"has a broken packet at byte {start}: {found}. The file is damaged from there on")
        if kind == POLARITY_PACKET and width != POLARITY_EVENT.itemsize:
            raise FileError(path, f"has polarity events of {width} bytes at byte {start}, expected 8")
        start += PACKET_HEADER.size
        here = min(number, (size - start) // width)  # a truncated packet still holds complete events
        if kind == POLARITY_PACKET:
            packets.append((start, here, overflow))
        end = start + width * capacity
        if end > size:
            return packets, size - start - here * width
        start = end
    return packets, size - start
