"""Classify recordings of any format: a table with the answer and the scores of each.

    event2vec predict runs/digits clip.aedat4 another.raw
    event2vec predict runs/digits my_recordings/       all recordings below, by name
    event2vec predict runs/digits clip.raw --min-confidence 0.6
    event2vec predict runs/gestures hour.raw --window 0.5 --stride 0.1 --picture hour.png

A recording of another sensor size is scaled to the network's, with a note. A file that cannot be read is reported, the
others are still classified, and the exit code is 2. Files in a folder that clearly are not recordings are skipped.

A network that was trained on windows, or --window, gives answers over time: a table of spans, JSON lines with --json.
Long recordings are read in chunks, so that their length does not matter: all formats but npz, mat and N-MNIST's bin.
"""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from event2vec.cli.options import (
    add_confidence_option,
    add_json_option,
    add_reading_options,
    add_run_argument,
    add_vote_option,
    check_files,
    reading_options,
)
from event2vec.cli.printing import print_table, say
from event2vec.cli.timelines import (
    add_timeline_options,
    answer_over_time,
    check_timeline_options,
    wants_timeline,
)
from event2vec.errors import Event2VecError, FileError

if TYPE_CHECKING:
    from event2vec.events import Events
    from event2vec.model.classifier import Classifier, Prediction

SHOWN = 3  # best answers in the table; JSON has all
Row = dict[str, Any]  # what is known of a file: its name, then an answer or an error


def add_arguments(parser: ArgumentParser) -> None:
    add_run_argument(parser)
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
    from event2vec.model.checkpoint import load_model

    model = load_model(options.run)
    rows = [row for file in options.files for row in _find(Path(file))]
    if wants_timeline(model, options):
        return answer_over_time(model, rows, options)
    _answer(model, rows, options)
    good = [row for row in rows if "error" not in row]
    if options.json:
        print(json.dumps(rows, indent=2))
    elif good:
        _print_table(good)
    for row in rows:
        if row.get("scaled_from"):
            said = f"scaled from {row['scaled_from']} to the {model.config.sensor} that the network reads"
            say(f"event2vec: {row['file']}: {said}")
        if row.get("unknown"):
            say(f"event2vec: {row['file']}: {row['unknown']}")
        elif row.get("remarks"):
            say(f"event2vec: {row['file']}: unlike the training recordings: {'; '.join(row['remarks'])}")
        if "error" in row:
            say(f"event2vec: {row['error']}")
    _hint_at_windows(model, good)
    return 0 if len(good) == len(rows) else 2


def _hint_at_windows(model: "Classifier", rows: list[Row]) -> None:
    """A network that learnt short recordings has no good answer for all of a long one."""
    seen = model.trained_on
    if seen and any(
        row["duration_s"] > seen.duration[-1] and seen.remark("duration", row["duration_s"]) for row in rows
    ):
        say(f"event2vec: for answers over time on windows as in training: --window {seen.usual_duration:.2g}")


def _find(path: Path) -> list[Row]:
    """The file, or all recordings of a folder."""
    from event2vec.io.folders import describe_skipped, find_recordings

    if not path.is_dir():
        return [{"file": str(path)}]
    recordings, skipped = find_recordings(path)
    if skipped:
        say(f"event2vec: {describe_skipped(skipped, path)}")
    if not recordings:
        return [{"file": str(path), "error": f"{path}: has no recordings in it"}]
    return [{"file": str(file)} for file in recordings]


def _answer(model: "Classifier", rows: list[Row], options: Namespace) -> None:
    """Add the prediction or the error to each row, in the batches of `Classifier.predict`."""
    from event2vec.model.classifier import BATCH

    network = model.for_reading(len(rows) * options.vote)  # decided once, for all batches
    readable = _read(rows, {**reading_options(options), "usual": model.config.sensor})
    while batch := list(islice(readable, BATCH)):
        recordings = [events for _, events in batch]
        answers = network.predict(recordings, vote=options.vote, min_confidence=options.min_confidence)
        for (row, events), answer in zip(batch, answers, strict=True):
            row |= _facts(model, answer) | {"duration_s": events.duration / 1e6}


def _read(rows: list[Row], settings: dict[str, Any]) -> Iterator[tuple[Row, "Events"]]:
    from event2vec.io import read_events

    for row in (row for row in rows if "error" not in row):
        try:
            events = read_events(row["file"], **settings)
            if len(events) == 0:
                raise FileError(row["file"], "holds no events, so there is nothing to classify")
            yield row, events
        except Event2VecError as error:
            row["error"] = str(error)


def _facts(model: "Classifier", answer: "Prediction") -> Row:
    """For JSON and the table, the best class first."""
    order = answer.scores.argsort(descending=True).tolist()
    return {
        "label": answer.label,
        "name": answer.name,
        "unknown": answer.unknown,
        "confidence": answer.confidence,
        "remarks": list(answer.remarks),
        "scores": {model.class_names[label]: float(answer.scores[label]) for label in order},
        "events": answer.events,
        "scaled_from": str(answer.scaled_from) if answer.scaled_from else None,
    }


def _print_table(rows: list[Row]) -> None:
    shown = []
    for row in rows:
        best = list(row["scores"].items())[:SHOWN]
        shown.append((row["file"], f"{row['events']:,}", row["name"], "  ".join(f"{n} {s:.1%}" for n, s in best)))
    print_table(("file", "events", "answer", "scores"), shown, left=("file", "answer", "scores"))
