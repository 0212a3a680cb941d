"""Repeat a table of the paper on your data: each row is trained with several seeds, and set beside the paper's figures.

    event2vec experiment embeddings --recipe digits --seeds 3
    event2vec experiment attention --recipe nmnist --data N-MNIST/
    event2vec experiment attention --recipe dvs_lip --data DVS-Lip/

Runs that are finished are not repeated, and one that was stopped is resumed, with the same command. On DVS-Lip each row
is pre-trained first, with its own model settings, as in the paper; --pretrain does so with other recipes.
"""

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from event2vec.cli.options import add_device_options, add_workers_option
from event2vec.cli.printing import print_table, say
from event2vec.cli.progress import TrainingProgress, progress_bar

NAMES = "attention, clustering, embeddings, events, sampling, sharing"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=f"the experiment: {NAMES}; or a file that ends in .yaml")
    parser.add_argument("--recipe", default="digits", metavar="RECIPE", help="what all rows have in common")
    parser.add_argument("--data", metavar="PATH", help="a store, or the data set as downloaded; digits need none")
    parser.add_argument("--init", metavar="RUN", help="start each training from this network, all but its head")
    parser.add_argument("--pretrain", metavar="RECIPE", help="pre-train each row with this recipe and start from that")
    parser.add_argument("--out", metavar="FOLDER", help="where runs and tables go (default: experiments/NAME-RECIPE)")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="trainings of each row")
    parser.add_argument("--epochs", type=int, metavar="N", help="epochs instead of the recipe's, in pre-training too")
    add_device_options(parser)
    add_workers_option(parser)


def run(options: Namespace) -> None:
    from event2vec.errors import Event2VecError
    from event2vec.studies.experiment import Setting, choose_pretraining, load_experiment, run_experiment
    from event2vec.studies.tables import NOTE, table, write_table
    from event2vec.training.recipe import load_recipe

    if options.init and options.pretrain:
        raise Event2VecError("--init starts all rows from one network and --pretrain each from its own; leave one out")
    if options.seeds < 1:
        raise Event2VecError(f"--seeds must be at least 1, got {options.seeds}")
    experiment = load_experiment(options.name)
    epochs = {} if options.epochs is None else {"training.epochs": options.epochs}
    recipe = load_recipe(options.recipe).with_settings(epochs)
    pretrain = None if options.init else choose_pretraining(experiment, recipe, options.pretrain)
    folder = Path(options.out) if options.out else Path("experiments") / f"{Path(options.name).stem}-{recipe.name}"
    init = Path(options.init) if options.init else None
    setting = Setting(
        data=options.data,
        workers=options.workers,
        init=init,
        watcher=TrainingProgress,
        stage=progress_bar,
        pretrain=pretrain.with_settings(epochs) if pretrain else None,
        device=options.device,
        precision=options.precision,
    )
    results = run_experiment(experiment, recipe, setting, folder, options.seeds, say)
    if not results:  # the first process of those that train together has them
        return
    write_table(results, recipe.data.dataset, experiment.title, folder / "table")
    rows = table(results, recipe.data.dataset)
    print_table(list(rows[0]), [list(row.values()) for row in rows], left=list(rows[0])[:1], title=experiment.title)
    print(NOTE)
    say(f"The table is in {folder / 'table.csv'}, {folder / 'table.md'} and {folder / 'table.json'}")
