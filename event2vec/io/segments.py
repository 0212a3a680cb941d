"""Where a long file can be cut so that each piece is a small file of the same format.

A piece begins with the header of the file and with the words that a decoder would remember from what came before.
"""

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from event2vec.errors import FileError
from event2vec.io.aedat import PACKET_HEADER, aedat31_header_length, read_aedat2_header
from event2vec.io.native import AEDAT4_MAGIC
from event2vec.io.prophesee import Header, read_header

SEGMENT = 4 << 20  # bytes of a file that are decoded at once
SUFFIXES = {
    "aedat2": ".aedat",
    "aedat31": ".aedat",
    "aedat4": ".aedat4",
    "dat": ".dat",
    "evt2": ".raw",
    "evt21": ".raw",
    "evt3": ".raw",
}
PERIODS = {"evt2": 1 << 34, "evt21": 1 << 34}  # microseconds; other decoders name their own


@dataclass(frozen=True)
class Segment:
    """A piece of a file."""

    start: int  # bytes
    stop: int
    before: bytes = b""  # words that the decoder must have read before

    def write(self, source: Any, header: int, target: Path) -> None:
        """Make a file of it."""
        with target.open("wb") as file:
            source.seek(0)
            file.write(source.read(header) + self.before)
            source.seek(self.start)
            file.write(source.read(self.stop - self.start))


class _Bytes:
    """A file as bytes to slice. Mapped into memory, all of a long one would count as memory in use."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.size = file, os.fstat(file.fileno()).st_size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> bytes:
        self.file.seek(part.start)
        return self.file.read(part.stop - part.start)


def header_length(path: Path, format: str) -> int:
    """Bytes before the first record."""
    if format == "aedat2":
        return read_aedat2_header(path).length
    if format == "aedat31":
        return aedat31_header_length(path)
    if format == "aedat4":
        with path.open("rb") as file:
            head = file.read(len(AEDAT4_MAGIC) + 4)
        return len(head) + int.from_bytes(head[len(AEDAT4_MAGIC) :], "little")
    return read_header(path).length + (2 if format == "dat" else 0)


def segments(path: Path, format: str, header: int, size: int = SEGMENT) -> Iterator[Segment]:
    """The pieces of a file in one of the formats of `SUFFIXES`, each about `size` bytes."""
    with path.open("rb") as file:
        data = _Bytes(file)
        if format in ("aedat31", "aedat4"):
            yield from _packets(data, header, size, _next_aedat31 if format == "aedat31" else _next_aedat4)
        else:
            yield from _records(path, data, format, header, size)


def _packets(data: _Bytes, start: int, size: int, following: Callable[[_Bytes, int], int | None]) -> Iterator[Segment]:
    """Whole packets. What follows the last whole one is left to the decoder, which says what it is."""
    position = start
    while (end := following(data, position)) is not None:
        position = end
        if position - start >= size:
            yield Segment(start, position)
            start = position
    if start < len(data):
        yield Segment(start, len(data))


def _next_aedat31(data: _Bytes, position: int) -> int | None:
    if position + PACKET_HEADER.size > len(data):
        return None
    _, _, width, _, _, capacity, _, _ = PACKET_HEADER.unpack(data[position : position + PACKET_HEADER.size])
    end = position + PACKET_HEADER.size + width * capacity
    return end if width >= 1 and capacity >= 0 and end <= len(data) else None


def _next_aedat4(data: _Bytes, position: int) -> int | None:
    if position + 12 > len(data):
        return None
    stream, length = struct.unpack("<ii", data[position : position + 8])
    is_table = not 0 <= stream < 256 or length < 0 or data[position + 8 : position + 12] == b"FTAB"
    return position + 8 + length if not is_table and position + 8 + length <= len(data) else None


def _records(path: Path, data: _Bytes, format: str, start: int, size: int) -> Iterator[Segment]:
    """Records of one width. None begins like a line of the header, which a decoder would take it for."""
    width = {"aedat2": 8, "dat": 8, "evt2": 4, "evt21": 8, "evt3": 2}[format]
    memory = _Memory(format, read_header(path)) if format.startswith("evt") else None
    while start < len(data):
        stop = start + max(size // width, 1) * width
        while stop < len(data) and data[stop : stop + 1] in (b"#", b"%"):
            stop += width
        stop = min(stop, len(data))
        yield Segment(start, stop, memory.words if memory else b"")
        if memory:
            memory.read(data[start : stop - (stop - start) % width])
        start = stop


class _Memory:
    """What the words of Prophesee's formats leave for those that follow: the time, and in EVT3 the row and column."""

    def __init__(self, format: str, header: Header) -> None:
        self.format, self.swapped = format, header.swapped
        self.kept: dict[int, bytes] = {}

    @property
    def words(self) -> bytes:
        return b"".join(self.kept[kind] for kind in (8, 6, 0, 3) if kind in self.kept)  # high time, low time, y, x

    def read(self, data: bytes) -> None:
        if self.format == "evt3":
            self._read_evt3(np.frombuffer(data, "<u2"))
            return
        words = np.frombuffer(data, "<u4")
        if self.format == "evt21":  # the half with the type
            halves = words.reshape(-1, 2)
            kinds = halves[:, 0 if self.swapped else 1] >> 28
            self._keep(8, halves, kinds == 8)
        else:
            self._keep(8, words, words >> 28 == 8)

    def _read_evt3(self, words: NDArray[np.uint16]) -> None:
        kinds = words >> 12
        for kind in (8, 6, 0):
            self._keep(kind, words, kinds == kind)
        bases = np.flatnonzero(kinds == 3)
        if len(bases):
            self.kept[3] = words[bases[-1]].tobytes()
        if 3 in self.kept:  # each group of 12 or 8 pixels moves the column on
            after = kinds[bases[-1] + 1 :] if len(bases) else kinds
            moved = 12 * int(np.count_nonzero(after == 4)) + 8 * int(np.count_nonzero(after == 5))
            word = int.from_bytes(self.kept[3], "little")
            column = (word & 0x7FF) + moved
            self.kept[3] = (word & 0xF800 | column & 0x7FF).to_bytes(2, "little")

    def _keep(self, kind: int, words: NDArray[Any], found: NDArray[np.bool_]) -> None:
        places = np.flatnonzero(found)
        if len(places):
            self.kept[kind] = words[places[-1]].tobytes()


def misplaced(error: FileError, path: Path, segment: Segment) -> FileError:
    """An error about a piece, as one about the file."""
    place = f" (in the part from byte {segment.start:,} on)" if segment.start else ""
    return FileError(path, f"{error.problem}{place}")
