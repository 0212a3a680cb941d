"""The adapter to eventcv's decoders and encoders: AEDAT4, EVT2, EVT3, DAT.

eventcv silently drops events outside the sensor, guesses missing settings, picks the format by the suffix, and may
panic on damaged bytes. So we read sizes from the headers ourselves, ask it for every event, give it the suffix it
expects, and turn anything it raises into our own error.
"""

import mmap
import os
import re
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from event2vec.errors import FileError
from event2vec.events import Events
from event2vec.io.names import plain_name
from event2vec.io.packing import unpacked_at_most
from event2vec.io.prophesee import read_header
from event2vec.io.recording import Decoded, check_content, cut_short
from event2vec.names import excerpt
from event2vec.sensor import LARGEST_SIDE, Sensor

EVERY_PIXEL = (LARGEST_SIDE, LARGEST_SIDE)
CACHED = 1 << 16  # rows of eventcv's table that fit in a core's cache while their four columns are extracted
AEDAT4_MAGIC = b"#!AER-DAT4.0\r\n"


def read_aedat4(path: Path) -> Decoded:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        size, packets = len(data), len(AEDAT4_MAGIC) + 4
        length = int.from_bytes(data[len(AEDAT4_MAGIC) : packets], "little")
        # eventcv reserves as many bytes as the file claims for its header.
        if packets + length > size:
            raise FileError(path, f"has an AEDAT4 header of {length} bytes in a file of {size}. Is the file complete?")
        sensor = _aedat4_sensor(data[packets : packets + length])
        end, table, unpacked = _walk_packets(data, packets + length)
    check_content(path, unpacked)
    warnings = () if table else cut_short(size - end, "packet")
    try:
        return _decode(path, ".aedat4", sensor, warnings)
    except FileError:
        if not table:
            raise
    # eventcv rejects a file that is truncated inside the table after its packets, although no event is missing.
    with _copy(path, ".aedat4", end) as whole:
        return _decode(path, ".aedat4", sensor, cut_short(size - end, "table"), whole)


def _aedat4_sensor(header: bytes) -> Sensor | None:
    """The size of the first event stream in DV's description of its outputs."""
    stream = header.partition(b">EVTS<")[2].partition(b'key="typeIdentifier"')[0]
    sides = [re.search(rb'key="%s"[^>]*>(\d{1,5})<' % key, stream) for key in (b"sizeX", b"sizeY")]
    return Sensor.or_none(*(int(side[1]) if side else 0 for side in sides))


def _walk_packets(data: mmap.mmap, position: int) -> tuple[int, bool, int]:
    """The end of the last complete packet, whether the data table follows it, and the size of all unpacked packets."""
    unpacked, table = 0, False
    while position + 8 <= len(data):
        stream, length = struct.unpack("<ii", data[position : position + 8])
        # A compressed frame or a bare table is not a packet.
        table = not 0 <= stream < 256 or length < 0 or data[position + 8 : position + 12] == b"FTAB"
        if table or position + 8 + length > len(data):
            break
        unpacked += unpacked_at_most(data[position + 8 : position + 8 + length])
        position += 8 + length
    return position, table, unpacked + unpacked_at_most(data[position:])


def read_evt2(path: Path) -> Decoded:
    return _read_prophesee(path, ".raw", 4, "word")


def read_evt3(path: Path) -> Decoded:
    # eventcv misses an overflow of the clock after a long pause.
    return replace(_read_prophesee(path, ".raw", 2, "word"), period=1 << 24)


def read_dat(path: Path) -> Decoded:
    header = read_header(path)
    with path.open("rb") as file:
        file.seek(header.length)
        kind = file.read(2)
    if len(kind) == 2 and kind[1] != 8:
        raise FileError(path, f"has DAT records of {kind[1]} bytes, expected 8 (brightness changes, version 2)")
    return replace(_read_prophesee(path, ".dat", 8, "event", before=2), period=1 << 32)


def _read_prophesee(path: Path, suffix: str, width: int, record: str, before: int = 0) -> Decoded:
    header = read_header(path)
    body = path.stat().st_size - header.length - before
    if body < width:  # eventcv treats a file without records as broken
        return Decoded.empty(header.sensor, cut_short(max(body, 0), record))
    warnings = cut_short(body % width, record)
    with path.open("rb") as file:
        file.seek(header.length)
        misleading = file.read(1) == b"%"
    if not misleading:
        return _decode(path, suffix, header.sensor, warnings)
    # eventcv reads a record that begins with % as another header line. A record of type "others", which holds no
    # event, keeps the two apart.
    with _copy(path, suffix, header.length + before + body, header.length, b"\0" * (width - 1) + b"\xe0") as marked:
        return _decode(path, suffix, header.sensor, warnings, marked)


def _decode(
    path: Path, suffix: str, sensor: Sensor | None, warnings: tuple[str, ...], instead: Path | None = None
) -> Decoded:
    """Decode the file with eventcv, or a copy that stands in for it."""
    import eventcv

    with _named(instead or path, suffix) as name, _panics(path, f"cannot be decoded as {suffix[1:].upper()}"):
        table = eventcv.load(str(name), time_unit="us", sensor_size=EVERY_PIXEL).numpy()
    # Rows of x, y, t, p as 64-bit numbers.
    rows = table.view(np.int64)
    x, y, p = np.empty(len(rows), np.float32), np.empty(len(rows), np.float32), np.empty(len(rows), np.bool_)
    t, start = np.empty(len(rows), np.int64), int(rows[0, 2]) if len(rows) else 0
    for first in range(0, len(rows), CACHED):
        part = slice(first, first + CACHED)
        x[part], y[part] = rows[part, 0], rows[part, 1]
        np.subtract(rows[part, 2], start, out=t[part])
        np.not_equal(rows[part, 3], 0, out=p[part])
    return Decoded(x, y, t, p, sensor, None, warnings, start)


def write_native(path: Path, events: Events) -> None:
    """AEDAT4, EVT2 or DAT, by the suffix of `path`."""
    import eventcv

    x, y, t, p = (column.astype(np.int64) for column in (events.x, events.y, events.t, events.p))
    suffix = path.suffix.lower()
    with path.open("wb") as file, _panics(path, "cannot be written"):
        stream = eventcv.from_numpy(
            np.stack([x, y, t, p], axis=1), sensor_size=(events.sensor.width, events.sensor.height), time_unit="us"
        )
        eventcv.save(stream, plain_name(file), format={".raw": "evt2"}.get(suffix, suffix[1:]))


@contextmanager
def _named(path: Path, suffix: str) -> Iterator[Path]:
    """A UTF-8 name for the file, with the suffix that eventcv expects."""
    if path.suffix.lower() == suffix and str(path).isprintable():
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder) / f"recording{suffix}"
        link.symlink_to(path.absolute())
        yield link


@contextmanager
def _copy(path: Path, suffix: str, end: int, place: int = 0, record: bytes = b"") -> Iterator[Path]:
    """A temporary copy up to `end`, with an extra record at `place`."""
    with tempfile.TemporaryDirectory() as folder, path.open("rb") as source:
        copy = Path(folder) / f"recording{suffix}"
        with copy.open("wb") as target:
            target.write(source.read(place) + record)
            for start in range(place, end, 1 << 24):
                target.write(source.read(min(1 << 24, end - start)))
        yield copy


@contextmanager
def _panics(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a Rust panic is not an Exception
        # eventcv reports system errors, such as a full disk, only as text.
        if number := re.search(r"\(os error (\d+)\)", str(error)):
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from None
        raise FileError(path, f"{what}: {excerpt(error, 160)}. Is the file complete, and its suffix right?") from None
