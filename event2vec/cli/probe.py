"""Linear probing: freeze a network and train a linear classifier on its features, on another data set (Table 3).

    event2vec probe runs/digits --dataset nmnist --data N-MNIST/ --layers 0,1,2

Rows: raw events, event2vec's tokens (0 blocks), and the tokens after the first K blocks. Columns: a linear head trained
by gradient descent, as in the paper, and logistic regression on the same features; mean and standard deviation over
draws.
"""

import json
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from event2vec.cli.options import (
    DATA,
    RUN,
    add_data_option,
    add_device_options,
    add_json_option,
    add_repeats_option,
    add_run_argument,
    add_workers_option,
    read_numbers,
)
from event2vec.cli.printing import say
from event2vec.cli.progress import ShownProgress
from event2vec.data.datasets import DATASETS
from event2vec.data.sampling import Sampling
from event2vec.names import counted
from event2vec.settings import choices_of

if TYPE_CHECKING:
    from event2vec.evaluation.probe import ProbeRow


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
        "--events", type=int, default=256, metavar="N", help="events of each recording: sampling.length of a recipe"
    )
    add_repeats_option(parser)
    add_device_options(parser)
    add_workers_option(parser)
    add_json_option(parser)


def run(options: Namespace) -> None:
    from event2vec.data.cache import open_for_training
    from event2vec.data.sampling import Sampling
    from event2vec.errors import Event2VecError
    from event2vec.evaluation.probe import probe
    from event2vec.model.checkpoint import load_event2vec
    from event2vec.training.run import Run

    try:
        sampling = Sampling(method=options.method, length=options.events)
    except ValueError as error:
        raise Event2VecError(str(error)) from None
    layers = read_numbers(options.layers, "layers", least=0) if options.layers else []
    compute = Run.open(options.run).compute(options.device, options.precision)
    model = load_event2vec(options.run).to(compute.device)
    progress = ShownProgress()
    store = open_for_training(options.data, options.dataset, sampling, options.workers, progress).store
    with compute.autocast():
        chosen = layers or list(range(model.config.blocks + 1))
        rows = probe(model, store, sampling, chosen, options.repeats, progress)
    if options.json:
        print(json.dumps([_facts(row) for row in rows], indent=2))
        return
    print(f"{'accuracy (%), 95 % interval':28} {'trained head':>32} {'logistic regression':>32}")
    for row in rows:
        blocks = "" if row.blocks is None else f", {counted(row.blocks, 'block')}"
        trained, logistic = row.trained.percent_with_interval(), row.logistic.percent_with_interval()
        print(f"{row.features + blocks:28} {trained:>32} {logistic:>32}")
    say(f"on {counted(store.splits.count('test'), 'test recording')} of {store.folder.name}")


def _facts(row: "ProbeRow") -> dict[str, Any]:
    facts: dict[str, Any] = {"features": row.features, "blocks": row.blocks}
    for name, found in (("trained_head", row.trained), ("logistic_regression", row.logistic)):
        facts[name] = {"accuracy": found.accuracy, "accuracy_std": found.accuracy_std, "interval": found.interval}
    return facts
