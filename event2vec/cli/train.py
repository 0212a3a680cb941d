"""Train a classifier: recordings in, a run folder with the network, its curves and its metrics out.

    event2vec train folder --data my_recordings/       one sub-folder for each class, any camera format
    event2vec train nmnist --data N-MNIST/ --training.epochs 20
    event2vec train mine.yaml --data my_recordings/    a recipe of your own; `base: folder` in it builds on another
    event2vec train folder --data my_recordings/ --folds 5    cross-validation: each recording is tested once
    event2vec train --resume runs/my_recordings        after a stop or a crash

Every setting of the recipe can be given as an option; --print-config prints them all with their values. The same
command trains on several GPUs (--trainer.devices) and, under torchrun or SLURM, on several nodes.
"""

import json
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from event2vec.cli.options import add_cluster_options, check_cluster_options, read_cluster
from event2vec.cli.parser import at_least
from event2vec.cli.printing import print_table, say
from event2vec.cli.progress import shown_progress
from event2vec.cli.recipe_options import add_recipe_arguments, check_recipe_options, overrides
from event2vec.errors import Event2VecError
from event2vec.names import counted

if TYPE_CHECKING:
    from event2vec.training.folds import CrossValidation


def add_arguments(parser: ArgumentParser) -> None:
    add_recipe_arguments(parser)
    parser.add_argument(
        "--folds",
        type=at_least(2),
        metavar="N",
        help="cross-validation: train N networks, each tested on one of N parts of the recordings. Each is a run in a "
        "sub-folder, and the same command continues after a stop",
    )
    add_cluster_options(parser, "with --folds: prepare the data and train folds side by side")


def check(options: Namespace) -> None:
    check_recipe_options(options, "train")
    check_cluster_options(options)
    if options.cluster is not None and options.folds is None:
        raise Event2VecError(
            "--cluster trains folds side by side: add --folds. To train one model on several nodes, use torchrun"
        )
    if options.folds is not None and options.resume is not None:
        raise Event2VecError("--folds resumes by itself: repeat the command that was stopped, without --resume")


def run(options: Namespace) -> None:
    from event2vec.cli.recipes import run_task

    if options.folds is None or options.print_config:
        run_task(options, "train")
    else:
        _cross_validate(options)


def _cross_validate(options: Namespace) -> None:
    from event2vec.machine.ranks import is_first_rank
    from event2vec.training.folds import cross_validate

    places = (options.recipe, options.data, options.out, options.init)
    workers, cluster, progress = options.workers, read_cluster(options), shown_progress()
    found = cross_validate(
        *places, folds=options.folds, workers=workers, cluster=cluster, progress=progress, **overrides(options)
    )
    if is_first_rank():
        files = {"folder": found.folder, "summary": found.summary_file, "table": found.table_file}
        if options.json:
            print(json.dumps({name: str(path) for name, path in files.items()} | found.facts(), indent=2))
        else:
            _print_folds(found)
        say(f"Saved to {found.summary_file} and {found.table_file}")


def _print_folds(found: "CrossValidation") -> None:
    rows = [
        (
            str(fold.fold),
            f"{100 * fold.accuracy:.2f} %",
            fold.interval.percent(),
            f"{fold.recordings:,}",
            str(fold.epochs),
            f"{fold.minutes:.1f}",
        )
        for fold in found.folds
    ]
    print_table(("fold", "accuracy", "95 % interval", "recordings", "epochs", "minutes"), rows)
    mean = f"accuracy {found.percent()} % over {len(found.folds)} folds, {counted(found.recordings, 'recording')}"
    print(f"{mean}; 95 % interval {found.interval.percent()} %; {found.minutes:.1f} minutes")
