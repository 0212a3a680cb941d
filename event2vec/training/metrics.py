"""CSV tables: the metrics of a run's epochs, and other results kept row by row."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from event2vec.documents import LARGEST_JSON, read_text
from event2vec.errors import FileError
from event2vec.machine.atomic import whole_file
from event2vec.names import shorten


def read_rows(path: Path) -> list[dict[str, float]]:
    """The rows of a run's metrics, one for each epoch."""
    text = read_text(path, LARGEST_JSON)
    try:
        table = list(csv.DictReader(text.splitlines()))
        if any(None in row for row in table):
            raise ValueError("a line is longer than the first")
        rows = [{name: float(value) for name, value in row.items() if value} for row in table]
        if not rows or not all({"epoch", "seconds", "data_share"} <= row.keys() for row in rows):
            raise ValueError("epochs or their metrics are missing")
    except (ValueError, csv.Error) as error:
        raise FileError(path, f"is not a table of a run's epochs: {shorten(str(error))}") from None
    return rows


def append_row(path: Path, row: dict[str, float]) -> None:
    """Add an epoch to the table; an existing one, trained again after a kill, is replaced."""
    rows = [old for old in read_rows(path) if old["epoch"] < row["epoch"]] if path.exists() else []
    write_rows(path, [*rows, row])


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a table as CSV, with the columns of its last row."""
    with whole_file(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[-1]))
        writer.writeheader()
        writer.writerows(rows)
