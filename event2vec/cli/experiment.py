"""Reproduce a table of the paper on your data: each row is trained with several seeds and compared with the paper.

    event2vec experiment embeddings --recipe digits --seeds 3
    event2vec experiment attention --recipe nmnist --data N-MNIST/
    event2vec experiment attention --recipe dvs_lip --data DVS-Lip/

Run the same command again to resume: finished runs are not repeated. On DVS-Lip, each row is first pre-trained with its
own model settings, as in the paper; --pretrain does so with other recipes.
"""

import json
from argparse import ArgumentParser, Namespace

from event2vec.cli.options import (
    DATA,
    RUN,
    add_cluster_options,
    add_data_option,
    add_execution_options,
    add_json_option,
    check_cluster_options,
    execution_options,
    read_cluster,
)
from event2vec.cli.parser import at_least, existing_run
from event2vec.cli.printing import print_rows, say
from event2vec.data.datasets import check_source
from event2vec.documents import EXPERIMENTS, read_yaml
from event2vec.errors import Event2VecError
from event2vec.training.recipe import load_recipe


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=f"{', '.join(EXPERIMENTS.names())}; or a file that ends in .yaml")
    parser.add_argument("--recipe", default="digits", metavar="RECIPE", help="the recipe that every row starts from")
    add_data_option(parser, f"{DATA}; digits need none")
    parser.add_argument(
        "--init",
        metavar="RUN",
        type=existing_run(RUN),
        help="start each training from the weights of this network, except its head",
    )
    parser.add_argument("--pretrain", metavar="RECIPE", help="pre-train each row with this recipe and start from that")
    parser.add_argument("--out", metavar="FOLDER", help="where runs and tables go (default: experiments/NAME-RECIPE)")
    parser.add_argument("--seeds", type=at_least(1), default=3, metavar="N", help="number of trainings per row")
    parser.add_argument(
        "--epochs", type=at_least(1), metavar="N", help="epochs instead of the recipe's, in pre-training too"
    )
    add_execution_options(parser)
    add_cluster_options(parser, "prepare the data, and train and evaluate rows and seeds side by side")
    add_json_option(parser)


def check(options: Namespace) -> None:
    check_cluster_options(options)
    if options.init and options.pretrain:
        raise Event2VecError(
            "--init starts all rows from one network and --pretrain each from its own; omit one of them"
        )
    read_yaml(EXPERIMENTS.find(options.name))
    if options.pretrain:
        load_recipe(options.pretrain)
    check_source(load_recipe(options.recipe).data.dataset, options.data)


def run(options: Namespace) -> None:
    from event2vec.studies.experiment import experiment
    from event2vec.studies.tables import NOTE

    found = experiment(
        options.name,
        options.data,
        recipe=options.recipe,
        seeds=options.seeds,
        epochs=options.epochs,
        init=options.init,
        pretrain=options.pretrain,
        out=options.out,
        cluster=read_cluster(options),
        **execution_options(options),
    )
    if not found.rows:  # the first process of those that train together has them
        return
    if options.json:
        print(json.dumps(found.facts(), indent=2))
    else:
        print_rows(found.rows, title=found.title)
        print(NOTE)
    written = (found.folder / f"table.{kind}" for kind in ("csv", "md", "json"))
    say("The table is in {}, {} and {}".format(*written))
