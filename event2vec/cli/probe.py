"""Linear probing: freeze a network and train a linear classifier on its features, on another data set (Table 3).

    event2vec probe runs/digits --dataset nmnist --data N-MNIST/ --layers 0,1,2

Rows: raw events, event2vec's tokens (0 blocks), and the tokens after the first K blocks.
"""

import json
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from event2vec.cli.options import add_json_option, add_workers_option, read_numbers
from event2vec.cli.printing import say
from event2vec.cli.progress import progress_bar


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run, or a folder with a saved network, pre-trained or trained")
    parser.add_argument("--data", metavar="PATH", help="a store, or a data set as downloaded; digits need none")
    parser.add_argument("--dataset", default="folder", metavar="NAME", help="what --data holds when it is no store")
    parser.add_argument("--layers", metavar="K,K,...", help="blocks to go through (default: 0 to all)")
    parser.add_argument("--method", default="random", metavar="M", help="how events are chosen: random or clusters")
    parser.add_argument("--events", type=int, default=256, metavar="N", help="events of each recording")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="independent draws; clusters need one")
    add_workers_option(parser)
    add_json_option(parser)


def run(options: Namespace) -> None:
    from event2vec.checkpoint import load_any_model
    from event2vec.errors import Event2VecError
    from event2vec.prepare import open_for_training
    from event2vec.probe import probe
    from event2vec.sampling import Sampling

    try:
        sampling = Sampling(method=options.method, length=options.events)
    except ValueError as error:
        raise Event2VecError(str(error)) from None
    layers = read_numbers(options.layers, "layers", least=0) if options.layers else []
    if options.repeats < 1:
        raise Event2VecError(f"--repeats must be at least 1, got {options.repeats}")
    model = load_any_model(Path(options.run))
    with progress_bar("preparing") as progress:
        store = open_for_training(options.data, options.dataset, sampling, options.workers, progress).store
    with progress_bar("probing") as progress:
        chosen = layers or list(range(model.config.blocks + 1))
        rows = probe(model, store, sampling, chosen, options.repeats, progress)
    if options.json:
        facts = [
            {"features": row.features, "blocks": row.blocks, "accuracy": row.accuracy, "accuracy_std": row.accuracy_std}
            for row in rows
        ]
        print(json.dumps(facts, indent=2))
        return
    for row in rows:
        blocks = "" if row.blocks is None else f", {row.blocks} blocks"
        print(f"{row.features + blocks:24} {row.percent():>6} %")
    say(f"on {store.splits.count('test'):,} test recordings of {store.folder.name}")
