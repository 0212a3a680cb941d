"""Measure on this machine, ours and the alternatives in one run.

    event2vec benchmark --json > before.json       # all parts; takes about fifteen minutes
    event2vec benchmark model --compare before.json

Without PART all are run, and a summary of their ratios ends the output. Stop other work first.

reading: files of each format, against eventcv alone where it decodes, and 10 million events where we do.
data: drawing a training batch from a store, against compressed npz files.
clustering: Alg. 1 on recordings of 4,000 to 256,000 events, against scikit-learn and Faiss. Takes some minutes.
attention: forgetting attention written out, as we compute it, and the stock kernel without gates.
model: the paper's networks, training and inference, against the time that their matrix products alone would take; then
Table 2: times of one recording, recordings a second in batches as large as fit, memory. On the GPU where there is one.
"""

import json
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from event2vec.cli.options import add_device_options, add_json_option
from event2vec.cli.printing import print_table, say

PARTS = ("reading", "data", "clustering", "attention", "model")


def add_arguments(parser: ArgumentParser) -> None:
    parser.usage = "%(prog)s [PART] [options]"
    parser.add_argument("part", nargs="?", metavar="PART", choices=PARTS, help=f"what to measure: {', '.join(PARTS)}")
    parser.add_argument(
        "--recordings", metavar="FOLDER", help="reading, clustering, model: real recordings to measure with"
    )
    parser.add_argument("--recipe", metavar="NAME", help="model: dvs_gesture, asl_dvs or dvs_lip instead of all three")
    parser.add_argument(
        "--compile", action="store_true", help="model: through torch.compile, which needs a C++ compiler"
    )
    add_device_options(parser)
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
        say(f"measuring {part}")
        parts[part] = _measure(part, options)
        if not options.json:
            _print_rows(parts[part])
    changes = compare(before, parts) if before is not None else []
    if before is not None and not changes:
        say(f"event2vec: warning: {options.compare} has nothing in common with this")
    if options.json:
        print(json.dumps(parts | ({"changes": changes} if before is not None else {}), indent=2))
        return
    _print_rows(summarise(parts))
    _print_rows(changes)


def _read(path: Path) -> dict[str, list[dict[str, Any]]]:
    """What an earlier run wrote with --json."""
    from event2vec.documents import read_json
    from event2vec.errors import FileError

    parts = read_json(path)
    rows = [row for part in parts.values() for row in (part if isinstance(part, list) else [None])]
    plain = all(
        isinstance(row, dict) and not any(isinstance(cell, list | dict) for cell in row.values()) for row in rows
    )
    if not plain or not parts.keys() <= {*PARTS, "changes"}:
        raise FileError(path, "is not what 'event2vec benchmark --json' writes: parts with rows, as JSON")
    return parts


def _measure(part: str, options: Namespace) -> list[dict[str, Any]]:
    from event2vec.devices import Compute
    from event2vec.errors import FileError

    folder = Path(options.recordings) if options.recordings else None
    if folder is not None and not folder.is_dir():
        raise FileError(folder, "is not a folder, expected one with recordings")
    if part == "data":
        from event2vec.benchmark.data import measure_data

        return measure_data()
    if part == "attention":
        from event2vec.benchmark.attention import measure_attention

        return measure_attention(Compute.choose(options.device, options.precision))
    if part == "model":
        from event2vec.benchmark.model import TRAINED, measure_model

        compute = Compute.choose(options.device, options.precision, TRAINED)
        return measure_model(options.recipe, options.compile, compute, folder)
    if part == "clustering":
        from event2vec.benchmark.clustering import measure_clustering

        return measure_clustering(folder, Compute.choose(options.device, options.precision))
    from event2vec.benchmark.reading import measure_reading

    return measure_reading(folder)


def _print_rows(rows: list[dict[str, Any]]) -> None:
    """One table for each set of columns."""
    for columns in dict.fromkeys(tuple(row) for row in rows):
        shown = [[_cell(value) for value in row.values()] for row in rows if tuple(row) == columns]
        print_table(columns, shown, left=columns[:1])


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
