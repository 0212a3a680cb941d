"""Classify recordings of any format: a table with the answer and the scores of each.

    event2vec predict runs/digits clip.aedat4 another.raw
    event2vec predict runs/digits my_recordings/       all recordings below, by name
    event2vec predict digits.onnx clip.raw             a network that 'event2vec export' wrote
    event2vec predict runs/digits clip.raw --min-confidence 0.6
    event2vec predict runs/gestures hour.raw --window 0.5 --stride 0.1 --picture hour.png

A recording of another sensor size is scaled to the network's, with a note. A file that cannot be read is reported, the
others are still classified, and the exit code is 2. Files in a folder that clearly are not recordings are skipped.

A network that was trained on windows, or --window, gives answers over time: a table of spans, JSON lines with --json.
Long recordings are read in chunks, so that their length does not matter: all formats but npz, mat and N-MNIST's bin.
"""

import json
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from event2vec.cli.options import (
    PREDICTOR,
    add_confidence_option,
    add_json_option,
    add_reading_options,
    add_vote_option,
    check_files,
    reading_options,
)
from event2vec.cli.parser import existing_predictor
from event2vec.cli.printing import print_table, say
from event2vec.cli.timelines import (
    add_timeline_options,
    answer_over_time,
    check_timeline_options,
    wants_timeline,
)

if TYPE_CHECKING:
    from event2vec.model.predictor import Predictor

SHOWN = 3  # best answers in the table; JSON has all
Row = dict[str, Any]  # the facts of a file: its name, then an answer or an error


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", type=existing_predictor(PREDICTOR), help=PREDICTOR)
    parser.add_argument("files", nargs="+", metavar="FILE", help="recordings in any format, or folders with recordings")
    add_vote_option(parser)
    add_confidence_option(parser)
    add_timeline_options(parser)
    add_reading_options(parser)
    add_json_option(parser)


def check(options: Namespace) -> None:
    check_files(options.files, options.json)
    check_timeline_options(options)


def run(options: Namespace) -> int:
    from event2vec.evaluation.predict import find_files, predict
    from event2vec.runtime import open_predictor

    model = open_predictor(options.run)
    if wants_timeline(model, options):
        return answer_over_time(model, find_files(options.files), options)
    found = predict(
        model,
        options.files,
        vote=options.vote,
        min_confidence=options.min_confidence,
        **reading_options(options),
    )
    rows = [answer.facts(model.class_names) for answer in found]
    good = [row for row in rows if "error" not in row]
    if options.json:
        print(json.dumps(rows, indent=2))
    elif good:
        _print_table(good)
    for row in rows:
        _remark(row, model)
    _hint_at_windows(model, good)
    return 0 if len(good) == len(rows) else 2


def _remark(row: Row, model: "Predictor") -> None:
    """What people should know of a file besides the answer."""
    if row.get("scaled_from"):
        said = f"scaled from {row['scaled_from']} to the {model.config.sensor} that the network reads"
        say(f"event2vec: {row['file']}: {said}")
    if row.get("unknown"):
        say(f"event2vec: {row['file']}: {row['unknown']}")
    elif row.get("remarks"):
        say(f"event2vec: {row['file']}: unlike the training recordings: {'; '.join(row['remarks'])}")
    if "error" in row:
        say(f"event2vec: {row['error']}")


def _hint_at_windows(model: "Predictor", rows: list[Row]) -> None:
    """A network that learnt short recordings has no good answer for all of a long one."""
    seen = model.trained_on
    if seen and any(
        row["duration_s"] > seen.duration[-1] and seen.remark("duration", row["duration_s"]) for row in rows
    ):
        say(f"event2vec: for answers over time on windows as in training: --window {seen.usual_duration:.2g}")


def _print_table(rows: list[Row]) -> None:
    shown = []
    for row in rows:
        best = list(row["scores"].items())[:SHOWN]
        shown.append((row["file"], f"{row['events']:,}", row["name"], "  ".join(f"{n} {s:.1%}" for n, s in best)))
    print_table(("file", "events", "answer", "scores"), shown, left=("file", "answer", "scores"))
