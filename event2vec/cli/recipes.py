"""What `train` and `pretrain` share: both start or resume a run, with different objectives."""

from argparse import Namespace
from typing import TYPE_CHECKING

from event2vec.cli.progress import shown_progress
from event2vec.cli.recipe_options import overrides, read_recipe
from event2vec.errors import FileError

if TYPE_CHECKING:
    from event2vec.training.layout import Task


def run_task(options: Namespace, task: "Task") -> None:
    from event2vec.training.train import pretrain, train

    if options.resume is not None:
        _resume(options, task)
        return
    if options.print_config:
        print(read_recipe(options).to_yaml(), end="")
        return
    learn = {"train": train, "pretrain": pretrain}[task]
    places = (options.recipe, options.data, options.out, options.init)
    learn(*places, workers=options.workers, progress=shown_progress(), **overrides(options))


def _resume(options: Namespace, task: "Task") -> None:
    from event2vec.training.run import Run

    run = Run.open(options.resume)
    if run.facts.task != task:
        raise FileError(run.folder, f"was started by {run.facts.task}. Resume it with: {run.command(run.facts.task)}")
    if options.print_config:
        print(run.recipe.to_yaml(), end="")
        return
    run.resume(options.data, workers=options.workers, progress=shown_progress(), **overrides(options))
