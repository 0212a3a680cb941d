"""Linear probing: freeze a network and train a linear classifier on its features, on another data set (Table 3).

    event2vec probe runs/digits --dataset nmnist --data N-MNIST/ --layers 0,1,2

Rows: raw events, event2vec's tokens (0 blocks), and the tokens after the first K blocks. Columns: a linear head trained
by gradient descent, as in the paper, and logistic regression on the same features; mean and deviation over draws.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace

from event2vec.cli.options import add_device_options, add_json_option, add_workers_option, read_numbers
from event2vec.cli.printing import say
from event2vec.cli.progress import progress_bar

if TYPE_CHECKING:
    from event2vec.evaluation.probe import ProbeRow


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run, or a folder with a saved network, pre-trained or trained")
    parser.add_argument("--data", metavar="PATH", help="a store, or a data set as downloaded; digits need none")
    parser.add_argument("--dataset", default="folder", metavar="NAME", help="what --data holds when it is not a store")
    parser.add_argument("--layers", metavar="K,K,...", help="blocks to go through (default: 0 to all)")
    parser.add_argument("--method", default="random", metavar="M", help="how events are chosen: random or clusters")
    parser.add_argument("--events", type=int, default=256, metavar="N", help="events of each recording")
    parser.add_argument("--repeats", type=int, default=10, metavar="N", help="independent draws; clusters need one")
    add_device_options(parser)
    add_workers_option(parser)
    add_json_option(parser)


def run(options: Namespace) -> None:
    from event2vec.data.prepare import open_for_training
    from event2vec.data.sampling import Sampling
    from event2vec.errors import Event2VecError
    from event2vec.evaluation.probe import probe
    from event2vec.model.checkpoint import load_any_model
    from event2vec.training.run import choose_compute

    try:
        sampling = Sampling(method=options.method, length=options.events)
    except ValueError as error:
        raise Event2VecError(str(error)) from None
    layers = read_numbers(options.layers, "layers", least=0) if options.layers else []
    if options.repeats < 1:
        raise Event2VecError(f"--repeats must be at least 1, got {options.repeats}")
    compute = choose_compute(Path(options.run), options.device, options.precision)
    model = load_any_model(Path(options.run)).to(compute.device)
    with progress_bar("preparing") as progress:
        store = open_for_training(options.data, options.dataset, sampling, options.workers, progress).store
    with progress_bar("probing") as progress, compute.autocast():
        chosen = layers or list(range(model.config.blocks + 1))
        rows = probe(model, store, sampling, chosen, options.repeats, progress)
    if options.json:
        print(json.dumps([_facts(row) for row in rows], indent=2))
        return
    print(f"{'accuracy (%)':24} {'trained head':>16} {'logistic regression':>20}")
    for row in rows:
        blocks = "" if row.blocks is None else f", {row.blocks} blocks"
        print(f"{row.features + blocks:24} {row.trained.percent():>16} {row.logistic.percent():>20}")
    say(f"on {store.splits.count('test'):,} test recordings of {store.folder.name}")


def _facts(row: "ProbeRow") -> dict[str, Any]:
    facts: dict[str, Any] = {"features": row.features, "blocks": row.blocks}
    for name, found in (("trained_head", row.trained), ("logistic_regression", row.logistic)):
        facts[name] = {"accuracy": found.accuracy, "accuracy_std": found.accuracy_std}
    return facts
