"""Linear probing: freeze a network and train a linear classifier on its features, on another data set (Table 3).

    event2vec probe runs/digits --dataset nmnist --data N-MNIST/ --layers 0,1,2

Rows: raw events, event2vec's tokens (0 blocks), and the tokens after the first K blocks. Columns: a linear head trained
by gradient descent, as in the paper, and logistic regression on the same features; mean and standard deviation over
draws.
"""

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path

from event2vec.cli.options import (
    DATA,
    RUN,
    add_data_option,
    add_execution_options,
    add_json_option,
    add_repeats_option,
    add_run_argument,
    execution_options,
    read_numbers,
)
from event2vec.cli.parser import at_least
from event2vec.cli.printing import say
from event2vec.data.datasets import DATASETS
from event2vec.data.sampling import Sampling
from event2vec.names import counted
from event2vec.settings import choices_of


def add_arguments(parser: ArgumentParser) -> None:
    add_run_argument(parser, f"{RUN}, pre-trained or trained")
    add_data_option(parser, f"{DATA}; digits need none")
    parser.add_argument(
        "--dataset",
        default="folder",
        choices=DATASETS,
        metavar="NAME",
        help="the kind of data in --data, if it is not a store",
    )
    parser.add_argument("--layers", metavar="K,K,...", help="numbers of blocks to probe after (default: 0 to all)")
    methods = choices_of(Sampling, "method")
    parser.add_argument(
        "--method", default="random", choices=methods, help="how events are chosen: sampling.method of a recipe"
    )
    parser.add_argument(
        "--events",
        type=at_least(1),
        default=256,
        metavar="N",
        help="events of each recording: sampling.length of a recipe",
    )
    add_repeats_option(parser)
    add_execution_options(parser)
    add_json_option(parser)


def run(options: Namespace) -> None:
    from event2vec.errors import Event2VecError
    from event2vec.studies.probe import probe

    try:
        sampling = Sampling(method=options.method, length=options.events)
    except ValueError as error:
        raise Event2VecError(str(error)) from None
    rows = probe(
        options.run,
        options.data,
        options.dataset,
        read_numbers(options.layers, "layers", least=0) if options.layers else None,
        sampling=sampling,
        repeats=options.repeats,
        **execution_options(options),
    )
    if options.json:
        print(json.dumps([row.facts() for row in rows], indent=2))
        return
    print(f"{'accuracy (%), 95 % interval':28} {'trained head':>32} {'logistic regression':>32}")
    for row in rows:
        blocks = "" if row.blocks is None else f", {counted(row.blocks, 'block')}"
        trained, logistic = row.trained.percent_with_interval(), row.logistic.percent_with_interval()
        print(f"{row.features + blocks:28} {trained:>32} {logistic:>32}")
    of = Path(options.data).resolve().name if options.data else options.dataset
    say(f"on {counted(rows[0].trained.recordings, 'test recording')} of {of}")
