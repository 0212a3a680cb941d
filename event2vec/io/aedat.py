"""jAER's and cAER's files: AEDAT 3.1, and AEDAT 2.0 of a DVS128."""

import re
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from event2vec.errors import FileError
from event2vec.events import Sensor
from event2vec.io.recording import Decoded, cut_short

HEADER_LIMIT = 16 << 20  # jAER writes all its preferences into the header
AEDAT2_EVENT = np.dtype([("address", ">u4"), ("t", ">u4")])
POLARITY_EVENT = np.dtype([("data", "<u4"), ("t", "<i4")])
PACKET_HEADER = struct.Struct("<hhiiiiii")
POLARITY_PACKET = 1

CHIPS = {
    "davis346": Sensor(346, 260),
    "davis240": Sensor(240, 180),
    "davis208": Sensor(208, 192),
    "davis128": Sensor(128, 128),
    "davis640": Sensor(640, 480),
    "dvs128": Sensor(128, 128),
    "dvs240": Sensor(240, 180),
}


def header_length(path: Path) -> int:
    """Bytes of the lines that begin with #, in AEDAT 2.0."""
    return len(_header_lines(path))


def chip_name(path: Path) -> str:
    """What an AEDAT 2.0 header calls the camera, "" where it does not."""
    found = re.search(rb"^#\s*AEChip:\s*(\S+)", _header_lines(path), re.MULTILINE)
    return found[1].decode("latin-1").rpartition(".")[2] if found else ""


def _header_lines(path: Path) -> bytes:
    header = b""
    with path.open("rb") as file:
        while len(header) < HEADER_LIMIT and file.peek(1)[:1] == b"#":
            header += file.readline(HEADER_LIMIT)
    return header


def is_dvs128(path: Path) -> bool:
    """Whether an AEDAT 2.0 file has a DVS128's addresses.

    Some data sets (CIFAR10-DVS) do not name the chip: 16 bits are enough for a DVS128, and a DAVIS uses all 32.
    """
    chip = chip_name(path).lower()
    if chip:
        return "dvs128" in chip or "tmpdiff128" in chip
    addresses = np.fromfile(path, AEDAT2_EVENT, count=1000, offset=header_length(path))["address"]
    return bool((addresses < 1 << 16).all())


def read_aedat2_dvs128(path: Path) -> Decoded:
    """Address bits: 0 falling, 1-7 column from the right, 8-14 row from the bottom, 15 not a pixel."""
    start = header_length(path)
    size = path.stat().st_size - start
    records = np.fromfile(path, AEDAT2_EVENT, count=size // AEDAT2_EVENT.itemsize, offset=start)
    address = records["address"].astype(np.uint32)
    t = _unwrap(records["t"].astype(np.int64), 1 << 32)
    del records  # a long recording should not be held three times
    if (address >= 1 << 16).any():
        raise FileError(
            path, f"has the address {int(address.max()):#x}, and a DVS128 has 16 bits. Is the chip another?"
        )
    pixels = address < 1 << 15
    if not pixels.all():
        address, t = address[pixels], t[pixels]
    address = address.astype(np.uint16)
    x, y = 127 - (address >> 1 & 127), 127 - (address >> 8 & 127)
    return Decoded(x, y, t, address & 1 == 0, CHIPS["dvs128"], None, cut_short(size % AEDAT2_EVENT.itemsize, "event"))


def _unwrap(t: NDArray[np.int64], period: int) -> NDArray[np.int64]:
    """Carry on a clock that went round: it fell back by more than half of its range."""
    wrapped = t[1:] < t[:-1] - period // 2
    if wrapped.any():
        t[1:] += np.cumsum(wrapped) * period
    return t


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
    valid = words & 1 == 1
    if not valid.all():  # the camera's own filters unset this bit
        words, t = words[valid], t[valid]
    x, y = (words >> 17).astype(np.uint16), (words >> 2 & 0x7FFF).astype(np.uint16)
    return Decoded(x, y, t, words & 2 == 2, sensor, None, cut_short(ignored, "packet"))


def _aedat31_header(path: Path, data: NDArray[np.uint8]) -> tuple[int, Sensor | None]:
    head = data[:HEADER_LIMIT].tobytes()
    text, end, _ = head.partition(b"#!END-HEADER\r\n")
    if not end:
        raise FileError(path, "is AEDAT 3 without the line '#!END-HEADER'. Is the file whole?")
    named = next((sensor for name, sensor in CHIPS.items() if name in text.decode("latin-1").lower()), None)
    return len(text) + len(end), named


def _polarity_packets(path: Path, data: NDArray[np.uint8], start: int) -> tuple[list[tuple[int, int, int]], int]:
    """(position, number, overflow) of each polarity packet, and the bytes of a cut one at the end."""
    packets = []
    size = len(data)
    while start + PACKET_HEADER.size <= size:
        kind, _, width, _, overflow, capacity, number, _ = PACKET_HEADER.unpack(data[start : start + 28].tobytes())
        if width < 1 or not 0 <= number <= capacity or overflow < 0:
            raise FileError(
                path,
                f"has a broken packet at byte {start}: {number} events of {width} bytes, room for {capacity}. "
                "The file is damaged from there on",
            )
        if kind == POLARITY_PACKET and width != POLARITY_EVENT.itemsize:
            raise FileError(path, f"has polarity events of {width} bytes at byte {start}, expected 8")
        start += PACKET_HEADER.size
        here = min(number, (size - start) // width)  # a packet cut short still holds whole events
        if kind == POLARITY_PACKET:
            packets.append((start, here, overflow))
        end = start + width * capacity
        if end > size:
            return packets, size - start - here * width
        start = end
    return packets, size - start
