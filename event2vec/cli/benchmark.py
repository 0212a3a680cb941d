"""Measure on this machine, ours and the alternatives in one run.

    event2vec benchmark --json > before.json       # all parts; takes about fifteen minutes
    event2vec benchmark model --compare before.json

Without PART all are run, and a summary of their ratios ends the output. Stop other work first.

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
    parser.usage = "%(prog)s [PART] [options]"
    parser.add_argument("part", nargs="?", metavar="PART", choices=PARTS, help=f"what to measure: {', '.join(PARTS)}")
    parser.add_argument("--recordings", metavar="FOLDER", help="reading, clustering: real recordings to measure with")
    parser.add_argument("--recipe", metavar="NAME", help="model: dvs_gesture, asl_dvs or dvs_lip instead of all three")
    parser.add_argument(
        "--compile", action="store_true", help="model: through torch.compile, which needs a C++ compiler"
    )
    parser.add_argument("--compare", metavar="FILE", help="show the change against what --json wrote earlier")
    add_json_option(parser)


def run(options: Namespace) -> None:
    from event2vec.benchmark.model import check_recipe
    from event2vec.benchmark.summary import compare, summarise

    before = _read(Path(options.compare)) if options.compare else None
    if options.part in (None, "model"):
        check_recipe(options.recipe)  # now, not after minutes of measuring
    parts = {}
    for part in [options.part] if options.part else PARTS:
        print(f"measuring {part}", file=sys.stderr, flush=True)
        parts[part] = _measure(part, options)
        if not options.json:
            _print_rows(parts[part])
    changes = compare(before, parts) if before is not None else []
    if before is not None and not changes:
        print(f"event2vec: warning: {options.compare} has nothing in common with this", file=sys.stderr)
    if options.json:
        print(json.dumps(parts | ({"changes": changes} if before is not None else {}), indent=2))
        return
    _print_rows(summarise(parts))
    _print_rows(changes)


def _read(path: Path) -> dict[str, list[dict[str, Any]]]:
    """What an earlier run wrote with --json."""
    from event2vec.errors import FileError

    try:
        parts = json.loads(path.read_text("utf-8"))
        known = parts.keys() <= {*PARTS, "changes"} and all(
            isinstance(row, dict) for part in parts.values() for row in part
        )
    except FileNotFoundError:
        raise FileError(path, "does not exist, expected what 'event2vec benchmark --json' wrote") from None
    except (OSError, ValueError, AttributeError, TypeError):
        known = False
    if not known:
        raise FileError(path, "is not what 'event2vec benchmark --json' writes: parts with rows, as JSON")
    return parts


def _measure(part: str, options: Namespace) -> list[dict[str, Any]]:
    from event2vec.errors import FileError

    if part == "data":
        from event2vec.benchmark.data import measure_data

        return measure_data()
    if part == "attention":
        from event2vec.benchmark.attention import measure_attention

        return measure_attention()
    if part == "model":
        from event2vec.benchmark.model import measure_model

        return measure_model(options.recipe, options.compile)
    folder = Path(options.recordings) if options.recordings else None
    if folder is not None and not folder.is_dir():
        raise FileError(folder, "is not a folder, expected one with recordings")
    if part == "clustering":
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
