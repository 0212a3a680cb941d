"""Write one page about a run: its data, training, accuracy, robustness, attention, embedding and speed.

    event2vec report runs/digits

The page is one HTML file that loads nothing from elsewhere. It has a player: drag through a recording's events and
see what the network attends to.
"""

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from event2vec.cli.options import (
    add_data_option,
    add_execution_options,
    add_json_option,
    add_repeats_option,
    add_run_argument,
    check_free,
    execution_options,
)
from event2vec.cli.parser import file_to_write
from event2vec.cli.printing import say
from event2vec.hub import is_on_hub
from event2vec.names import counted
from event2vec.training.layout import Layout

if TYPE_CHECKING:
    from event2vec.studies.report import Report


def add_arguments(parser: ArgumentParser) -> None:
    add_run_argument(parser, "a run that 'event2vec train' wrote")
    parser.add_argument(
        "--out", metavar="FILE", type=file_to_write, help="where the page goes (default: report.html in the run)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")
    add_data_option(parser, "where its recordings are now, if they were moved")
    add_repeats_option(parser)
    add_execution_options(parser)
    add_json_option(parser)


def check(options: Namespace) -> None:
    if not is_on_hub(options.run):
        Layout(Path(options.run)).check_facts()
    if options.out:
        check_free(options.out, options.overwrite, "--out")


def run(options: Namespace) -> int:
    from event2vec.studies.report import report

    made = report(
        options.run,
        options.out,
        repeats=options.repeats,
        data=options.data,
        **execution_options(options),
    )
    if options.json:
        print(json.dumps(made.facts(), indent=2))
    else:
        _summarise(made)
    return 2 if made.problems else 0


def _summarise(made: "Report") -> None:
    found = made.evaluation
    accuracy = f"{100 * found.accuracy:.1f} % of {counted(found.recordings, 'recording')}" if found else ""
    accuracy += f" (95 % interval {found.interval.percent(1)} %). " if found else ""
    say(f"{accuracy}The page: {made.page}")
