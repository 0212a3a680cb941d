"""Events as text: one per line, columns separated by commas, semicolons or spaces."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from event2vec.errors import FileError
from event2vec.events import Events
from event2vec.io.arrays import NAMES, find_columns
from event2vec.io.recording import Decoded, cut_short
from event2vec.io.units import to_microseconds
from event2vec.names import excerpt
from event2vec.sensor import LARGEST_SIDE, Sensor

DEFAULT_COLUMNS = "txyp"
HEADER_LINES = 64
LONGEST_HEAD = 1 << 12  # bytes of a line before the events that are looked at
LONGEST_LINE = 1 << 16  # bytes


@dataclass(frozen=True)
class _Head:
    """Everything before the first row of numbers."""

    lines: int
    names: list[str] | None  # of the columns
    sensor: Sensor | None
    first: str  # the first row of numbers, "" if there is none


def read_text(path: Path, columns: str | None = None, time_unit: str | None = None) -> Decoded:
    """Columns from a header line, else t x y p. Times with a decimal point are seconds, others microseconds."""
    head = _read_head(path, columns)
    if not head.first:
        return Decoded.empty(head.sensor)
    order = _order(path, columns, head)
    ignored = _cut_line(path, len(_words(head.first)))
    # Read from the file itself if it is complete: a list of all lines takes many times the memory.
    source: Path | list[str] = _lines(path.read_bytes())[:-1] if ignored else path
    x, y, t, p = _table(path, source, head, order, head.lines)
    fractional = _is_fractional(head, order) or not np.array_equal(t, np.round(t))
    unit = time_unit or ("s" if fractional else "us")
    return Decoded(x, y, to_microseconds(path, t, unit), p, head.sensor, None, cut_short(ignored, "line"))


def read_text_pieces(
    path: Path, size: int, columns: str | None = None, time_unit: str | None = None
) -> Iterator[Decoded]:
    """The same in pieces of about `size` bytes. The first line decides whether times are seconds or microseconds."""
    head = _read_head(path, columns)
    if not head.first:
        yield Decoded.empty(head.sensor)
        return
    order = _order(path, columns, head)
    unit = time_unit or ("s" if _is_fractional(head, order) else "us")
    ignored = _cut_line(path, len(_words(head.first)))
    with path.open("rb") as file:
        for _ in range(head.lines):
            file.readline()
        end = path.stat().st_size - ignored
        while file.tell() < end:
            block = file.read(min(size, end - file.tell()))
            block += file.readline(LONGEST_LINE) if file.tell() < end else b""
            lines = [line for line in _lines(block) if line.strip()]
            if not lines:
                continue
            x, y, t, p = _table(path, lines, head, order)
            if time_unit is None and unit == "us" and not np.array_equal(t, np.round(t)):
                raise FileError(
                    path, "has whole times first and fractional ones later. Set `time_unit` to s, ms, us or ns"
                )
            yield Decoded(x, y, to_microseconds(path, t, unit), p, head.sensor)
    yield Decoded.empty(head.sensor, cut_short(ignored, "line"))


def _lines(text: bytes) -> list[str]:
    """The lines as a file has them; `splitlines` would also cut at a byte of some letters, such as Å in UTF-8."""
    return [line.rstrip("\r") for line in text.decode("latin-1").split("\n")]


def _is_fractional(head: _Head, order: dict[str, int]) -> bool:
    return "." in _words(head.first)[order["t"]]


def _read_head(path: Path, columns: str | None) -> _Head:
    """The sensor is given as we write it ('# sensor 240x180') or as E2VID does: a first line with width and height."""
    names, sensor = None, None
    with path.open("rb") as file:
        for count in range(HEADER_LINES):
            raw = _line(file)
            line = raw.decode("utf-8", "replace").strip().lstrip("\ufeff")
            comment = line.startswith(("#", "%"))
            words = _words(line.lstrip("#% "))
            if named := re.fullmatch(r"[#%]\s*sensor\s+(\d{1,5})x(\d{1,5})", line):
                sensor = _size(path, *named.groups())
            elif count == 0 and len(words) == 2 and all(re.fullmatch(r"\d{1,5}", word) for word in words):
                sensor = _size(path, *words)
            elif re.match(r"[-+]?\.?\d", line):
                return _Head(count, names, sensor, line)
            elif _names_columns(words):
                names = words
            elif not raw and names:
                return _Head(count, names, sensor, "")
            elif line and not comment and columns is None:
                raise FileError(
                    path,
                    f"begins with '{excerpt(line)}', expected a header with t, x, y, p or numbers. "
                    "Set their order with `columns`, such as txyp",
                )
    raise FileError(path, f"has no numbers in its first {HEADER_LINES} lines; expected t x y p on each line")


def _line(file: IO[bytes]) -> bytes:
    """The beginning of the next line; the rest of a long one is skipped, so that lines are counted rightly."""
    line = part = file.readline(LONGEST_HEAD)
    while part and not part.endswith(b"\n"):
        part = file.readline(LONGEST_HEAD)
    return line


def _names_columns(words: list[str]) -> bool:
    return all(any(name in words for name in synonyms) for synonyms in NAMES.values())


def _size(path: Path, width: str, height: str) -> Sensor:
    if not (0 < int(width) <= LARGEST_SIDE and 0 < int(height) <= LARGEST_SIDE):
        raise FileError(path, f"names a sensor of {width} x {height} pixels, expected 1 to {LARGEST_SIDE} per side")
    return Sensor(int(width), int(height))


def _order(path: Path, columns: str | None, head: _Head) -> dict[str, int]:
    """The position of each column."""
    if columns is not None:
        if sorted(columns) != sorted(DEFAULT_COLUMNS):
            raise FileError(
                path, f"columns '{excerpt(columns)}' must name each of t, x, y, p once, such as {DEFAULT_COLUMNS}"
            )
        order = {name: columns.index(name) for name in DEFAULT_COLUMNS}
    elif head.names is not None:
        order = {name: head.names.index(found) for name, found in find_columns(path, head.names).items()}
    else:
        order = {name: DEFAULT_COLUMNS.index(name) for name in DEFAULT_COLUMNS}
    count, needed = len(_words(head.first)), max(order.values()) + 1
    if needed > count:
        raise FileError(path, f"has {count} columns, expected at least {needed}: t x y p on each line")
    return order


def _table(
    path: Path, source: Path | list[str], head: _Head, order: dict[str, int], skipped: int = 0
) -> NDArray[np.float64]:
    """The columns x, y, t, p."""
    separator = next((mark for mark in ",;" if mark in head.first), None)
    try:
        table = np.loadtxt(
            source,
            delimiter=separator,
            skiprows=skipped,
            usecols=[order[name] for name in "xytp"],
            ndmin=2,
            encoding="latin-1",
        )
    except (ValueError, OverflowError, MemoryError) as error:
        raise FileError(
            path, f"is not a table of numbers: {excerpt(error, 160)}. Expected t x y p on each line"
        ) from None
    return table.T


def _cut_line(path: Path, width: int) -> int:
    """Bytes of a last line that has too few columns and no line end."""
    with path.open("rb") as file:
        file.seek(-min(4096, path.stat().st_size), 2)
        last = file.read().rpartition(b"\n")[2]
    return len(last) if last.strip() and len(_words(last.decode("latin-1"))) < width else 0


def _words(line: str) -> list[str]:
    """The cells of a line in lowercase, without quotes and without units in brackets."""
    line = re.sub(r"\s*[\[(][^\[\]()]*[\])]", "", line.strip())
    cells = re.split(r"\s*[,;]\s*", line) if re.search("[,;]", line) else line.split()
    return [cell.strip("\"' ").lower() for cell in cells]


def write_text(path: Path, events: Events) -> None:
    """Microseconds, x, y, polarity; commas for .csv, spaces for .txt."""
    separator = "," if path.suffix.lower() == ".csv" else " "
    table = np.stack([column.astype(np.int64) for column in (events.t, events.x, events.y, events.p)], axis=1)
    with path.open("w", encoding="ascii") as file:
        file.write(f"# sensor {events.sensor}\n{separator.join(DEFAULT_COLUMNS)}\n")
        np.savetxt(file, table, fmt="%d", delimiter=separator)
