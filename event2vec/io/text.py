"""Events as text: one line each, separated by commas or blanks."""

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from event2vec.errors import FileError
from event2vec.events import LARGEST_SIDE, Events, Sensor
from event2vec.io.arrays import find_columns
from event2vec.io.recording import Decoded, cut_short
from event2vec.io.units import to_microseconds

DEFAULT_COLUMNS = "txyp"
HEADER_LINES = 64


def read_text(path: Path, columns: str | None = None, time_unit: str | None = None) -> Decoded:
    """Columns from a header line, else t x y p; seconds where t has a decimal point, else microseconds."""
    skip, header, sensor, first = _head(path)
    order = _order(path, columns, header, first)
    (x, y, t, p), ignored = _table(path, skip, order, first)
    fractional = any(mark in _words(first)[order["t"]].lower() for mark in ".e")
    unit = time_unit or ("s" if fractional else "us")
    return Decoded(x, y, to_microseconds(path, t, unit), p, sensor, None, cut_short(ignored, "line"))


def _head(path: Path) -> tuple[int, list[str] | None, Sensor | None, str]:
    """Lines to skip, the column names, the sensor and the first row of numbers.

    A sensor is written as we write it ('# sensor 240x180') or as E2VID does: a first line with width and height.
    """
    header, sensor = None, None
    with path.open("rb") as file:
        for skip in range(HEADER_LINES):
            line = file.readline(4096).decode("utf-8", "replace").strip().lstrip("\ufeff")
            words = _words(line.lstrip("#% ").lower())
            if named := re.fullmatch(r"[#%]\s*sensor\s+(\d{1,5}x\d{1,5})", line):
                sensor = _size(path, *named[1].split("x"))
            elif len(words) == 2 and all(re.fullmatch(r"\d{1,5}", word) for word in words) and skip == 0:
                sensor = _size(path, *words)
            elif re.match(r"[-+]?[.\d]", line):
                return skip, header, sensor, line
            elif len(words) >= 4 and words[0].isidentifier():
                header = words
    raise FileError(path, f"has no line of numbers among its first {HEADER_LINES}; expected t x y p on each line")


def _size(path: Path, width: str, height: str) -> Sensor:
    if not (0 < int(width) <= LARGEST_SIDE and 0 < int(height) <= LARGEST_SIDE):
        raise FileError(path, f"names a sensor of {width} x {height} pixels, expected 1 to {LARGEST_SIDE} a side")
    return Sensor(int(width), int(height))


def _order(path: Path, columns: str | None, header: list[str] | None, first: str) -> dict[str, int]:
    """The position of each column."""
    if columns is not None:
        if sorted(columns) != sorted(DEFAULT_COLUMNS):
            raise FileError(path, f"columns '{columns}' must name each of t, x, y, p once, such as {DEFAULT_COLUMNS}")
        order = {name: columns.index(name) for name in DEFAULT_COLUMNS}
    elif header is not None:
        order = {name: header.index(found) for name, found in find_columns(path, header).items()}
    else:
        order = {name: DEFAULT_COLUMNS.index(name) for name in DEFAULT_COLUMNS}
    if max(order.values()) >= len(_words(first)):
        raise FileError(
            path, f"has {len(_words(first))} columns, expected at least {max(order.values()) + 1}: t x y p on each line"
        )
    return order


def _table(path: Path, skip: int, order: dict[str, int], first: str) -> tuple[NDArray[np.float64], int]:
    """The columns x, y, t, p, and the bytes of a last line that is cut short."""
    separator = next((mark for mark in ",;" if mark in first), None)
    ignored = _cut_line(path, len(_words(first)))
    # Read from the file where that is whole: a list of all lines takes many times the memory.
    source: Path | list[str] = path.read_text("latin-1").splitlines()[:-1] if ignored else path
    try:
        table = np.loadtxt(
            source,
            delimiter=separator,
            skiprows=skip,
            usecols=[order[name] for name in "xytp"],
            ndmin=2,
            encoding="latin-1",
        )
    except (ValueError, OverflowError, MemoryError) as error:
        reason = " ".join(str(error).split())[:160]
        raise FileError(path, f"is not a table of numbers: {reason}. Expected t x y p on each line") from None
    return table.T, ignored


def _cut_line(path: Path, width: int) -> int:
    """Bytes of a last line that has fewer columns than the others and no end."""
    with path.open("rb") as file:
        file.seek(-min(4096, path.stat().st_size), 2)
        last = file.read().rpartition(b"\n")[2]
    return len(last) if last.strip() and len(_words(last.decode("latin-1"))) < width else 0


def _words(line: str) -> list[str]:
    return re.split(r"[,;\s]+", line.strip())


def write_text(path: Path, events: Events) -> None:
    """Microseconds, x, y, polarity; commas for .csv, blanks for .txt."""
    separator = "," if path.suffix == ".csv" else " "
    table = np.stack([column.numpy().astype(np.int64) for column in (events.t, events.x, events.y, events.p)], axis=1)
    with path.open("w", encoding="ascii") as file:
        file.write(f"# sensor {events.sensor}\n{separator.join(DEFAULT_COLUMNS)}\n")
        np.savetxt(file, table, fmt="%d", delimiter=separator)
