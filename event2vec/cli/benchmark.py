"""Measure on this machine, ours and the alternatives in one run.

reading: files of each format, against eventcv alone where it decodes, and 10 million events where we do.
data: drawing a training batch from a store, against compressed npz files.
clustering: Alg. 1 on recordings of 4,000 to 256,000 events, against scikit-learn and Faiss. Takes some minutes.
attention: forgetting attention written out, as we compute it, and the stock kernel without gates.
model: the paper's networks, training and inference, against the time that their matrix products alone would take.
"""

import json
import sys
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from event2vec.cli.options import add_json_option

PARTS = ("reading", "data", "clustering", "attention", "model")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("part", metavar="PART", choices=PARTS, help=f"what to measure: {', '.join(PARTS)}")
    parser.add_argument("--recordings", metavar="FOLDER", help="reading, clustering: real recordings to measure with")
    parser.add_argument("--recipe", metavar="NAME", help="model: dvs_gesture, asl_dvs or dvs_lip instead of all three")
    parser.add_argument(
        "--compile", action="store_true", help="model: through torch.compile, which needs a C++ compiler"
    )
    add_json_option(parser)


def run(options: Namespace) -> None:
    rows = _measure(options)
    print(json.dumps(rows, indent=2)) if options.json else _print_rows(rows)


def _measure(options: Namespace) -> list[dict[str, Any]]:
    from event2vec.errors import FileError

    if options.part == "data":
        from event2vec.benchmark.data import measure_data

        return measure_data()
    if options.part == "attention":
        from event2vec.benchmark.attention import measure_attention

        return measure_attention()
    if options.part == "model":
        from event2vec.benchmark.model import measure_model

        return measure_model(options.recipe, options.compile)
    folder = Path(options.recordings) if options.recordings else None
    if folder is not None and not folder.is_dir():
        raise FileError(folder, "is not a folder, expected one with recordings")
    if options.part == "clustering":
        from event2vec.benchmark.clustering import measure_clustering

        return measure_clustering(folder)
    from event2vec.benchmark.reading import measure_reading

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
        Console(width=None if sys.stdout.isatty() else 250).print(table)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
