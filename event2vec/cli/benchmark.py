"""Measure on this machine, ours and the alternatives in one run.

reading: files of each format, against eventcv alone where it decodes, and 10 million events where we do.
data: drawing a training batch from a store, against compressed npz files.
"""

import json
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from event2vec.cli.options import add_json_option

PARTS = ("reading", "data")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("part", metavar="PART", choices=PARTS, help=f"what to measure: {' or '.join(PARTS)}")
    parser.add_argument("--recordings", metavar="FOLDER", help="reading: measure the recordings in here too")
    add_json_option(parser)


def run(options: Namespace) -> None:
    rows = _measure(options)
    print(json.dumps(rows, indent=2)) if options.json else _print_rows(rows)


def _measure(options: Namespace) -> list[dict[str, Any]]:
    from event2vec.errors import FileError

    if options.part == "data":
        from event2vec.benchmark.data import measure_data

        return measure_data()
    from event2vec.benchmark.reading import measure_reading

    folder = Path(options.recordings) if options.recordings else None
    if folder is not None and not folder.is_dir():
        raise FileError(folder, "is not a folder, expected one with recordings")
    return measure_reading(folder)


def _print_rows(rows: list[dict[str, Any]]) -> None:
    """One table for each set of columns."""
    from rich.console import Console
    from rich.table import Table

    for columns in dict.fromkeys(tuple(row) for row in rows):
        table = Table(box=None, header_style="bold")
        for number, name in enumerate(columns):
            table.add_column(name, justify="right" if number else "left")
        for row in rows:
            if tuple(row) == columns:
                table.add_row(*(_cell(value) for value in row.values()))
        Console().print(table)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
