"""Labels of long recordings: tables that say what can be seen from when to when.

One table for many recordings (file, start, stop, class), or one next to each recording, as DVS Gesture has them
(class, startTime_usec, endTime_usec in NAME_labels.csv).
"""

import csv
import math
import warnings
from dataclasses import dataclass
from itertools import pairwise
from os.path import realpath
from pathlib import Path

from event2vec.data.windows import seconds
from event2vec.documents import read_text
from event2vec.errors import Event2VecWarning, FileError
from event2vec.io.chunks import first_time
from event2vec.io.folders import find_recordings
from event2vec.names import check_class_names, shown

BESIDE = "_labels.csv"  # of the recording user01.aedat: user01_labels.csv
LARGEST_TABLE = 2**24  # bytes
NAMES = {
    "file": ("file", "recording", "path", "filename"),
    "start": ("start", "start_s", "begin", "starttime_usec", "start_us"),
    "stop": ("stop", "stop_s", "end", "endtime_usec", "stop_us", "end_us"),
    "class": ("class", "label", "name"),
}
ORDER = ("file", "start", "stop", "class")  # of a table without a header
EXPECTED = "expected columns file, start, stop (seconds) and class"
LATEST = 2**62  # microseconds


@dataclass(frozen=True)
class Span:
    """A part of a recording in which one class is seen."""

    file: str  # "" in a table that is next to its recording
    start: int  # microseconds
    stop: int
    name: str  # of the class
    on_clock: bool = False  # times are those of the camera's clock; otherwise they count from the first event

    def since(self, clock: int) -> tuple[int, int]:
        """Start and stop in microseconds since the first event, for which the camera's clock showed `clock`."""
        offset = clock if self.on_clock else 0
        return self.start - offset, self.stop - offset

    def __str__(self) -> str:
        return f"{seconds(self.start)} to {seconds(self.stop)} s"


def read_labels(path: str | Path) -> list[Span]:
    """The labelled spans of a table, by file and then by time. Spans of one file must not overlap.

    Columns are found by their names, else they are file, start, stop, class. Times are seconds since the first event;
    columns whose names end in us or usec are microseconds on the camera's clock.
    """
    path = Path(path)
    rows = _rows(path)
    places, on_clock = _header(path, rows)
    spans = [_span(path, line, row, places, on_clock) for line, row in rows]
    if not spans:
        raise FileError(path, f"names no labelled span, {EXPECTED}")
    spans.sort(key=lambda span: (span.file, span.start))
    for one, other in pairwise(spans):
        if one.file == other.file and other.start < one.stop:
            of = f"{shown(one.file)} " if one.file else ""
            raise FileError(path, f"has two labels for one time: {of}{one} is {one.name}, {other} is {other.name}")
    return spans


def find_spans(root: Path, labels: str | Path) -> list[tuple[Path, Span]]:
    """The labelled spans of the recordings in a folder, file by file.

    `labels` is a table that names files as they are called in the folder (it may lie there too), or "beside": each
    recording has a table of its own next to it, NAME_labels.csv.
    """
    table = Path(labels)
    if str(labels) == "beside":
        found = _find_beside(root)
    else:
        table = _find_table(root, labels)
        found = [(_recording(root, table, span.file), span) for span in read_labels(table)]
    left = {path for path in find_recordings(root)[0] if not _is_table(path, table)} - {path for path, _ in found}
    if left:
        first = min(left).relative_to(root)
        counts = "1 recording has" if len(left) == 1 else f"{len(left):,} recordings have"
        warnings.warn(
            f"{root}: {counts} no labels and will not be used, such as {first}", Event2VecWarning, stacklevel=4
        )
    return found


def _find_table(root: Path, labels: str | Path) -> Path:
    return root / labels if (root / labels).is_file() else Path(labels)


def _is_table(path: Path, table: Path) -> bool:
    return path.name.endswith(BESIDE) or (path.name == table.name and realpath(path) == realpath(table))


def _find_beside(root: Path) -> list[tuple[Path, Span]]:
    recordings = [path for path in find_recordings(root)[0] if not path.name.endswith(BESIDE)]
    found = [
        (path, span)
        for path in recordings
        if labels_beside(path).is_file()
        for span in read_labels(labels_beside(path))
    ]
    if not found:
        raise FileError(root, f"has no recording with labels next to it, expected files called NAME{BESIDE}")
    return found


def _recording(root: Path, table: Path, file: str) -> Path:
    path = root / file
    if not file or ".." in Path(file).parts or Path(file).is_absolute():
        raise FileError(table, f"names {shown(file)}, expected a recording in {root}, named from there")
    if not path.is_file():
        raise FileError(table, f"names {shown(file)}, which is not in {root}")
    return path


def labels_beside(recording: Path) -> Path:
    """Where the labels of a recording are, in a data set that has a table next to each."""
    return recording.with_name(recording.stem + BESIDE)


def labels_of(recording: str | Path, labels: str | Path, root: str | Path = ".") -> tuple[list[Span], int]:
    """The labels of a recording, and what the camera's clock showed at its first event if they are on that clock.

    `labels` is a table, which may be about other recordings too and lie in `root`, or "beside" for NAME_labels.csv
    next to the recording.
    """
    path = Path(recording)
    table = labels_beside(path) if str(labels) == "beside" else _find_table(Path(root), labels)
    spans = [span for span in read_labels(table) if _names(span.file, path)]
    if not spans:
        raise FileError(table, f"has no label for {path.name}")
    return spans, first_time(path) if any(span.on_clock for span in spans) else 0


def _names(file: str, path: Path) -> bool:
    """Whether a table's name for a recording is its path, or the end of it."""
    parts = Path(file).parts
    return not parts or path.parts[-len(parts) :] == parts


def class_order(names: set[str]) -> tuple[str, ...]:
    """Classes in the order of their names; numbers by their value."""
    if all(name.isascii() and name.isdigit() and len(name) < 10 for name in names):
        return tuple(sorted(names, key=int))
    return tuple(sorted(names))


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """The lines that are not empty, with their numbers."""
    text = read_text(path, LARGEST_TABLE).lstrip("\ufeff")
    try:
        reader = csv.reader(text.splitlines(), skipinitialspace=True)
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except csv.Error as error:
        raise FileError(path, f"is not a table with commas ({error}), {EXPECTED}") from None
    return [(line, row) for line, row in rows if any(row) and not row[0].startswith("#")]


def _header(path: Path, rows: list[tuple[int, list[str]]]) -> tuple[dict[str, int], bool]:
    """The position of each column, and whether times are those of the camera's clock. Removes the header."""
    heads = [cell.lower() for cell in rows[0][1]] if rows else []
    places = {
        column: next((heads.index(name) for name in names if name in heads), -1) for column, names in NAMES.items()
    }
    if all(places[column] < 0 for column in NAMES):
        return {column: place for place, column in enumerate(ORDER)}, False
    missing = [column for column in ORDER[1:] if places[column] < 0]
    if missing:
        raise FileError(path, f"has no column {', '.join(missing)}, {EXPECTED}")
    del rows[0]
    start, stop = heads[places["start"]], heads[places["stop"]]
    on_clock = start.endswith(("us", "usec"))
    if stop.endswith(("us", "usec")) != on_clock:
        raise FileError(path, f"has the columns {start} and {stop}, expected both in seconds or both in microseconds")
    return places, on_clock


def _span(path: Path, line: int, row: list[str], places: dict[str, int], on_clock: bool) -> Span:
    if len(row) <= max(places.values()):
        raise FileError(path, f"has {len(row)} cells in line {line}, {EXPECTED}")
    start, stop = (_time(path, line, row[places[name]], on_clock) for name in ("start", "stop"))
    if not start < stop:
        raise FileError(
            path, f"has a span from {seconds(start)} to {seconds(stop)} s in line {line}; stop must be after start"
        )
    name = row[places["class"]]
    try:
        check_class_names([name])
    except ValueError as error:
        raise FileError(path, f"{error} (line {line})") from None
    return Span(row[places["file"]] if places["file"] >= 0 else "", start, stop, name, on_clock)


def _time(path: Path, line: int, cell: str, on_clock: bool) -> int:
    try:
        value = float(cell) * (1 if on_clock else 1e6)
    except ValueError:
        value = math.nan
    if not 0 <= value < LATEST:  # NaN fails both
        raise FileError(path, f"has the time {shown(cell)} in line {line}, expected a number of 0 or more")
    return round(value)
