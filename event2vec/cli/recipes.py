"""What `train` and `pretrain` share: both start or resume a run, with different objectives."""

import json
from argparse import Namespace
from typing import TYPE_CHECKING

from event2vec.cli.progress import shown_progress
from event2vec.cli.recipe_options import overrides, read_recipe
from event2vec.errors import FileError
from event2vec.machine.ranks import is_first_rank
from event2vec.settings import plain_settings

if TYPE_CHECKING:
    from event2vec.training.layout import Task
    from event2vec.training.recipe import Recipe
    from event2vec.training.run import Run


def run_task(options: Namespace, task: "Task") -> None:
    from event2vec.training.train import pretrain, train

    if options.resume is not None:
        _resume(options, task)
        return
    if options.print_config:
        _print_settings(read_recipe(options, task), options)
        return
    learn = {"train": train, "pretrain": pretrain}[task]
    places = (options.recipe, options.data, options.out, options.init)
    run = learn(*places, workers=options.workers, progress=shown_progress(), **overrides(options))
    _print_facts(run, options)


def _resume(options: Namespace, task: "Task") -> None:
    from event2vec.training.run import Run

    run = Run.open(options.resume)
    if run.facts.task != task:
        raise FileError(run.folder, f"was started by {run.facts.task}. Resume it with: {run.command(run.facts.task)}")
    if options.print_config:
        _print_settings(run.recipe, options)
        return
    run.resume(options.data, workers=options.workers, progress=shown_progress(), **overrides(options))
    _print_facts(run, options)


def _print_settings(recipe: "Recipe", options: Namespace) -> None:
    print(json.dumps(plain_settings(recipe), indent=2) if options.json else recipe.to_yaml().rstrip("\n"))


def _print_facts(run: "Run", options: Namespace) -> None:
    """For programs alone: people have read it while the network was trained. Of several processes, one prints."""
    if options.json and is_first_rank():
        print(json.dumps(run.summary(), indent=2))
