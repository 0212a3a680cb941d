"""Classify recordings of any format: a table with the answer and the scores of each.

A recording of another sensor size is scaled to the network's, and that is said. A file that cannot be read is reported,
the others are answered, and the exit code is 2.
"""

import json
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace

from event2vec.cli.options import add_json_option, add_reading_options, reading_options
from event2vec.cli.printing import print_table, say

if TYPE_CHECKING:
    from event2vec.model.classifier import Classifier, Prediction

SHOWN = 3  # best answers in the table; JSON has all


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run, or a folder with a saved network")
    parser.add_argument("files", nargs="+", metavar="FILE", help="recordings, in any format")
    parser.add_argument("--vote", type=int, default=1, metavar="K", help="average the scores of K draws of the events")
    add_reading_options(parser)
    add_json_option(parser)


def run(options: Namespace) -> int:
    from event2vec.errors import Event2VecError, FileError
    from event2vec.io import read_events
    from event2vec.model.checkpoint import load_model

    if options.vote < 1:
        raise Event2VecError(f"--vote must be at least 1, got {options.vote}")
    model = load_model(options.run).for_reading(len(options.files) * options.vote)  # once, not for each file
    settings = reading_options(options)
    answers: list[dict[str, Any]] = []
    for file in options.files:
        try:
            events = read_events(file, **settings)
            if len(events) == 0:
                raise FileError(file, "holds no events, so there is nothing to classify")
            answers.append({"file": str(file), **_facts(model, model.predict(events, vote=options.vote))})
        except Event2VecError as error:
            answers.append({"file": str(file), "error": str(error)})
    good = [row for row in answers if "error" not in row]
    if options.json:
        print(json.dumps(answers, indent=2))
    elif good:
        _print_table(good)
    for row in answers:
        if row.get("scaled_from"):
            said = f"scaled from {row['scaled_from']} to the {model.config.sensor} that the network reads"
            say(f"event2vec: {row['file']}: {said}")
        if "error" in row:
            say(f"event2vec: {row['error']}")
    return 0 if len(good) == len(answers) else 2


def _facts(model: "Classifier", answer: "Prediction") -> dict[str, Any]:
    """For JSON and the table, the best class first."""
    order = answer.scores.argsort(descending=True).tolist()
    return {
        "label": answer.label,
        "name": answer.name,
        "scores": {model.class_names[label]: float(answer.scores[label]) for label in order},
        "events": answer.events,
        "scaled_from": str(answer.scaled_from) if answer.scaled_from else None,
    }


def _print_table(rows: list[dict[str, Any]]) -> None:
    shown = []
    for row in rows:
        best = list(row["scores"].items())[:SHOWN]
        shown.append((row["file"], f"{row['events']:,}", row["name"], "  ".join(f"{n} {s:.1%}" for n, s in best)))
    print_table(("file", "events", "answer", "scores"), shown, left=("file", "answer", "scores"))
