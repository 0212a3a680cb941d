"""Repeat a table of the paper on your data: each row is trained with several seeds, and set beside the paper's figures.

    event2vec experiment embeddings --recipe digits --seeds 3
    event2vec experiment attention --recipe nmnist --data N-MNIST/

Runs that are finished are not repeated, and one that was stopped goes on, with the same command.
"""

import sys
from functools import partial
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from event2vec.cli.options import add_workers_option
from event2vec.cli.progress import TrainingProgress, progress_bar

NAMES = "attention, clustering, embeddings, events, sampling, sharing"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=f"the experiment: {NAMES}; or a file that ends in .yaml")
    parser.add_argument("--recipe", default="digits", metavar="RECIPE", help="what all rows have in common")
    parser.add_argument("--data", metavar="PATH", help="a store, or the data set as downloaded; digits need none")
    parser.add_argument("--init", metavar="RUN", help="start each training from this network, all but its head")
    parser.add_argument("--out", metavar="FOLDER", help="where runs and tables go (default: experiments/NAME-RECIPE)")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="trainings of each row")
    parser.add_argument("--epochs", type=int, metavar="N", help="epochs instead of the recipe's")
    add_workers_option(parser)


def run(options: Namespace) -> None:
    from event2vec.errors import Event2VecError
    from event2vec.experiment import NOTE, Setting, load_experiment, run_experiment, table, write_table
    from event2vec.recipe import load_recipe

    if options.seeds < 1:
        raise Event2VecError(f"--seeds must be at least 1, got {options.seeds}")
    experiment = load_experiment(options.name)
    recipe = load_recipe(options.recipe)
    if options.epochs is not None:
        recipe = recipe.with_settings({"training.epochs": options.epochs})
    folder = Path(options.out) if options.out else Path("experiments") / f"{Path(options.name).stem}-{recipe.name}"
    init = Path(options.init) if options.init else None
    setting = Setting(options.data, options.workers, init, TrainingProgress, progress_bar)
    tell = partial(print, file=sys.stderr, flush=True)
    results = run_experiment(experiment, recipe, setting, folder, options.seeds, tell)
    rows = table(results, recipe.data.dataset)
    write_table(rows, experiment.title, folder / "table")
    _print(experiment.title, rows)
    print(NOTE)
    print(f"The table is in {folder / 'table.csv'} and {folder / 'table.md'}", file=sys.stderr)


def _print(title: str, rows: list[dict[str, str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=title, box=None, header_style="bold", title_justify="left")
    for number, name in enumerate(rows[0]):
        shown.add_column(name, justify="right" if number else "left")
    for row in rows:
        shown.add_row(*row.values())
    Console(width=None if sys.stdout.isatty() else 160).print(shown)
