"""Measure our code and the alternatives on this machine, in one run.

    event2vec benchmark --json > before.json       # all parts; takes about fifteen minutes
    event2vec benchmark model --compare before.json

Without PART, all parts are run, and the output ends with a summary of their ratios. Close other programs first.

reading: files of each format: against eventcv alone for those that it decodes, with 10 million events for the others.
data: drawing a training batch from a store, against compressed npz files; and from shards: here, from the local cache
of a store on a web server, and fetched from it first.
clustering: Alg. 1 on recordings of 4,000 to 256,000 events, against scikit-learn and Faiss. Takes some minutes.
attention: forgetting attention in both directions, compiled, folded and written out, against two stock kernels.
model: the paper's networks, training and inference, against the time that their matrix products alone would take; then
Table 2: latency of one recording, throughput with the largest batch that fits, memory. On the GPU if there is one.
On a CPU also one answer by its parts: sampling, embedding, attention, rest.
training: whole training loops of digits and nmnist against their matrix products, and steps of five networks with
compiled attention against the folded form. On the CPU.
live: latency from a window's last event to its answer, by stage, on synthetic streams of 0.1 to 20 million events a
second and on a recording of --data at 1 to 50 times its speed; with --minutes, one long stream instead, for its memory.
streaming: a long DVS128 recording read in chunks and answered over time, against its own duration, at two lengths; with
--minutes, one of that length, as recorded and with 10^9 events an hour (8 GB of disk for an hour).
"""

import json
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from event2vec.benchmark import PARTS, run_benchmark
from event2vec.cli.options import add_device_options, add_json_option
from event2vec.cli.parser import existing, positive
from event2vec.cli.printing import print_rows, say


def add_arguments(parser: ArgumentParser) -> None:
    parser.usage = "%(prog)s [PART] [options]"
    parser.add_argument("part", nargs="?", metavar="PART", choices=PARTS, help=f"what to measure: {', '.join(PARTS)}")
    parser.add_argument(
        "--data",
        metavar="FOLDER",
        type=existing("a folder with recordings"),
        help="for reading, clustering, model, streaming, live: real recordings to measure with",
    )
    parser.add_argument("--recipe", metavar="NAME", help="for model: dvs_gesture, asl_dvs or dvs_lip only")
    parser.add_argument(
        "--network",
        metavar="FOLDER",
        type=existing("a run or a network"),
        help="for attention: a trained network; measures how much its forget gates speed up attention",
    )
    parser.add_argument(
        "--compile", action="store_true", help="for model: use torch.compile, which needs a C++ compiler"
    )
    parser.add_argument(
        "--minutes",
        type=positive,
        metavar="M",
        help="for live: one stream of a million events/s for this long; for streaming: a recording of this length",
    )
    add_device_options(parser)
    parser.add_argument(
        "--compare",
        metavar="FILE",
        type=existing("a file that --json wrote earlier"),
        help="show the change against a file that --json wrote earlier",
    )
    add_json_option(parser)


def run(options: Namespace) -> None:
    from event2vec.benchmark.model import check_recipe
    from event2vec.benchmark.summary import compare, summarise

    before = _read(Path(options.compare)) if options.compare else None
    if options.part in (None, "model"):
        check_recipe(options.recipe)  # before minutes of measuring
    names = ("data", "recipe", "network", "compile", "minutes", "device", "precision")
    settings, parts = {name: getattr(options, name) for name in names}, {}
    for part in [options.part] if options.part else PARTS:
        say(f"measuring {part}")
        parts[part] = run_benchmark(part, **settings)
        if not options.json:
            _print_rows([each.row() for each in parts[part]])
    changes = [change.row() for change in compare(before, parts)] if before is not None else []
    if before is not None and not changes:
        say(f"event2vec: warning: {options.compare} has no measurement in common with this run")
    if options.json:
        rows = {part: [each.row() for each in measured] for part, measured in parts.items()}
        print(json.dumps(rows | ({"changes": changes} if before is not None else {}), indent=2))
        return
    _print_rows([asdict(spread) for spread in summarise(parts)])
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
        raise FileError(path, "was not written by 'event2vec benchmark --json'")
    return parts


def _print_rows(rows: list[dict[str, Any]]) -> None:
    """One table for each set of columns."""
    for columns in dict.fromkeys(tuple(row) for row in rows):
        print_rows([{name: _cell(value) for name, value in row.items()} for row in rows if tuple(row) == columns])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
