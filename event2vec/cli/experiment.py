"""Reproduce a table of the paper on your data: each row is trained with several seeds and compared with the paper.

    event2vec experiment embeddings --recipe digits --seeds 3
    event2vec experiment attention --recipe nmnist --data N-MNIST/
    event2vec experiment attention --recipe dvs_lip --data DVS-Lip/

Run the same command again to resume: finished runs are not repeated. On DVS-Lip, each row is first pre-trained with its
own model settings, as in the paper; --pretrain does so with other recipes.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from event2vec.cli.options import DATA, RUN, add_data_option, add_device_options, add_workers_option
from event2vec.cli.parser import at_least, existing
from event2vec.cli.printing import print_table, say
from event2vec.cli.progress import ShownProgress
from event2vec.documents import EXPERIMENTS


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=f"{', '.join(EXPERIMENTS.names())}; or a file that ends in .yaml")
    parser.add_argument("--recipe", default="digits", metavar="RECIPE", help="what all rows have in common")
    add_data_option(parser, f"{DATA}; digits need none")
    parser.add_argument(
        "--init",
        metavar="RUN",
        type=existing(RUN),
        help="start each training from the weights of this network, except its head",
    )
    parser.add_argument("--pretrain", metavar="RECIPE", help="pre-train each row with this recipe and start from that")
    parser.add_argument("--out", metavar="FOLDER", help="where runs and tables go (default: experiments/NAME-RECIPE)")
    parser.add_argument("--seeds", type=at_least(1), default=3, metavar="N", help="trainings of each row")
    parser.add_argument(
        "--epochs", type=at_least(1), metavar="N", help="epochs instead of the recipe's, in pre-training too"
    )
    add_device_options(parser)
    add_workers_option(parser)


def run(options: Namespace) -> None:
    from event2vec.errors import Event2VecError
    from event2vec.studies.experiment import Setting, choose_pretraining, load_experiment, run_experiment
    from event2vec.studies.tables import NOTE, table, write_table
    from event2vec.training.recipe import load_recipe

    if options.init and options.pretrain:
        raise Event2VecError(
            "--init starts all rows from one network and --pretrain each from its own; omit one of them"
        )
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
        progress=ShownProgress(),
        pretrain=pretrain.with_settings(epochs) if pretrain else None,
        device=options.device,
        precision=options.precision,
    )
    results = run_experiment(experiment, recipe, setting, folder, options.seeds)
    if not results:  # the first process of those that train together has them
        return
    write_table(results, recipe.data.dataset, experiment.title, folder / "table")
    rows = table(results, recipe.data.dataset)
    print_table(list(rows[0]), [list(row.values()) for row in rows], left=list(rows[0])[:1], title=experiment.title)
    print(NOTE)
    say(f"The table is in {folder / 'table.csv'}, {folder / 'table.md'} and {folder / 'table.json'}")
