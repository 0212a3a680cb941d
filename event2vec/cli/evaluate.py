"""Evaluate a trained network: accuracy as mean and standard deviation over independent draws, and class by class.

    event2vec evaluate runs/gestures
    event2vec evaluate runs/gestures-folds/fold-*                  several runs, as a table
    event2vec evaluate runs/* --data other_recordings/ --cluster auto

Evaluates on the run's own test recordings. With --data: on the test part of that data, or on all of it if it is not
split. The network is that of the epoch that was best on validation (RUN/best; give RUN/model for the last one). The
confusion matrix and all figures are kept in RUN/evaluation.
"""

import json
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from event2vec.cli.options import (
    DATA,
    RUN,
    add_cluster_options,
    add_data_option,
    add_execution_options,
    add_json_option,
    add_repeats_option,
    add_vote_option,
    check_cluster_options,
    execution_options,
    read_cluster,
    read_numbers,
    read_seconds,
)
from event2vec.cli.parser import existing_run
from event2vec.cli.printing import print_evaluation, print_table, say, warn_of_far
from event2vec.errors import Event2VecError

if TYPE_CHECKING:
    from event2vec.evaluation.sweeps import Kind
    from event2vec.training.run import Run

SWEEPS: tuple["Kind", ...] = ("events", "resolution", "windows")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", type=existing_run(RUN), help=f"{RUN}; or several")
    add_data_option(parser, f"{DATA} (default: the run's own)")
    parser.add_argument(
        "--split",
        metavar="NAME",
        help="which split to evaluate: train, validation or test (default: test; all of a folder that is not split)",
    )
    add_repeats_option(parser)
    add_vote_option(parser)
    parser.add_argument("--events", metavar="N,N,...", help="accuracy with only N events of each recording")
    parser.add_argument("--resolution", metavar="N,N,...", help="accuracy with the sensor reduced to N x N pixels")
    parser.add_argument(
        "--windows", metavar="S,S,...", help="accuracy using only the first S seconds of each recording"
    )
    add_execution_options(parser)
    add_cluster_options(parser, "evaluate several runs side by side")
    add_json_option(parser)


def check(options: Namespace) -> None:
    kinds = [kind for kind in SWEEPS if getattr(options, kind)]
    if len(kinds) > 1:
        raise Event2VecError(f"only one sweep at a time: omit --{kinds[0]} or --{kinds[1]}")
    for kind in kinds:
        _values(options, kind)
    if kinds and (len(options.runs) > 1 or options.cluster):
        raise Event2VecError(f"--{kinds[0]} takes one run at a time, without --cluster")
    check_cluster_options(options)


def _values(options: Namespace, kind: str) -> list[int] | list[float]:
    text = getattr(options, kind)
    return read_seconds(text, kind) if kind == "windows" else read_numbers(text, kind, least=1)


def run(options: Namespace) -> None:
    from event2vec.training.run import Run

    if len(options.runs) > 1 or options.cluster:
        _evaluate_several(options)
        return
    run = Run.open(options.runs[0])
    for kind in SWEEPS:
        if getattr(options, kind):
            _sweep(run, kind, options)
            return
    evaluation = run.evaluate(repeats=options.repeats, vote=options.vote, **_common(options))
    print(json.dumps(evaluation.facts(), indent=2)) if options.json else print_evaluation(evaluation)
    warn_of_far(evaluation)
    if run.is_started:
        pictures = (draw(options.split or "test", options.data) for draw in (run.confusion, run.reliability))
        say("Confusion matrix: {}; reliability diagram: {}".format(*pictures))


def _evaluate_several(options: Namespace) -> None:
    from event2vec.training.evaluations import evaluate_runs

    cluster = read_cluster(options)
    found = evaluate_runs(options.runs, repeats=options.repeats, vote=options.vote, cluster=cluster, **_common(options))
    named = list(zip(options.runs, found, strict=True))
    if options.json:
        print(json.dumps([{"run": run} | each.facts() for run, each in named], indent=2))
    else:
        rows = [(run, each.percent(), each.interval.percent(), f"{each.recordings:,}") for run, each in named]
        print_table(("run", "accuracy (%)", "95 % interval", "recordings"), rows, left=("run",))
    for run, each in named:
        warn_of_far(each, run)


def _common(options: Namespace) -> dict[str, Any]:
    return {"data": options.data, "split": options.split, **execution_options(options)}


def _sweep(run: "Run", kind: "Kind", options: Namespace) -> None:
    """Accuracy against a quantity: a table, and CSV and a curve in the run."""
    from event2vec.evaluation.sweeps import onset_delay

    points = run.sweep(kind, _values(options, kind), repeats=options.repeats, vote=options.vote, **_common(options))
    if options.json:
        print(json.dumps([point.facts(kind) for point in points], indent=2))
    else:
        for point in points:
            short = "are shorter" if kind == "windows" else "have fewer"
            note = f" (most recordings {short}: {point.available:,})" if point.falls_short else ""
            interval = f"95 % interval {point.found.interval.percent()} %"
            print(f"{kind} {point.value:>6,}   accuracy {point.found.percent()} %   {interval}{note}")
    delay = onset_delay(points) if kind == "windows" else None
    if delay is not None:
        say(f"After {delay:g} s the accuracy is at least 90 % of that after {max(point.value for point in points):g} s")
    if run.is_started:
        table = run.sweep_file(kind, options.split or "test", options.data)
        say(f"Saved to {table}, plotted in {table.with_suffix('.png')}")
