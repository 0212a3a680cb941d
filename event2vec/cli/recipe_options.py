"""The options of `train` and `pretrain`: a recipe, and every one of its settings."""

from argparse import SUPPRESS, Action, ArgumentParser, Namespace, _ActionsContainer
from pathlib import Path
from typing import Any

from event2vec.cli.options import DATA, add_json_option, add_workers_option
from event2vec.cli.parser import existing, existing_run
from event2vec.data.addresses import local_place
from event2vec.data.datasets import check_source
from event2vec.documents import parse_yaml
from event2vec.errors import Event2VecError
from event2vec.settings import Described, describe_settings
from event2vec.training.config import CUTTING, GROUPING
from event2vec.training.layout import Layout, Task
from event2vec.training.recipe import Recipe, load_recipe, recipes_by_use, recipes_of_networks, setting_names

SHORT = {name: f"--{name.removeprefix('data.').replace('_', '-')}" for name in GROUPING + CUTTING}  # as in `prepare`
NOT_YAML = GROUPING  # in a regular expression, brackets and stars have their own meaning


def add_recipe_arguments(parser: ArgumentParser) -> None:
    parser.usage = "%(prog)s RECIPE [--data PATH] [--out RUN] [--init RUN] [settings]  or  --resume RUN"
    parser.epilog = f"'{parser.prog} RECIPE --help' shows the values of a recipe, and the settings of its network."
    names = "; ".join(f"{use}: {', '.join(recipes)}" for use, recipes in recipes_by_use().items())
    recipe = parser.add_argument(
        "recipe", nargs="?", metavar="RECIPE", action=NameRecipe, help=f"{names}; or a file that ends in .yaml"
    )
    assert isinstance(recipe, NameRecipe)
    parser.add_argument("--data", metavar="PATH", type=existing(DATA), help=f"{DATA}, which is prepared first")
    parser.add_argument("--out", metavar="RUN", help="folder of the run (default: runs/ and a name, numbered)")
    parser.add_argument(
        "--init",
        metavar="RUN",
        type=existing_run("a run"),
        help="start from the weights of this network, except its head; may be hf://OWNER/NAME",
    )
    parser.add_argument(
        "--resume",
        metavar="RUN",
        type=existing_run("a run"),
        help="resume a run that was stopped, or train it for longer with --training.epochs",
    )
    parser.add_argument("--print-config", action="store_true", help="print all settings as YAML, and train nothing")
    add_json_option(parser)
    add_workers_option(parser, "prepare the data set before training (--data.workers read batches during it)")
    _add_settings(parser, recipe)


def _add_settings(parser: ArgumentParser, recipe: "NameRecipe") -> None:
    """One option for each setting, in one group for each section. Help shows those of one network: the recipe's."""
    groups = {}
    for plain in recipes_of_networks():
        for each in describe_settings(plain):
            section = each.name.partition(".")[0]
            if each.name in recipe.settings:  # of all networks, or of one before
                continue
            if section not in groups:
                groups[section] = parser.add_argument_group(*_title(plain, section))
            names = (f"--{each.name}", *([SHORT[each.name]] if each.name in SHORT else []))
            explanation = _explain(each) if plain.model.network == Recipe().model.network else SUPPRESS
            option = groups[section].add_argument(*names, dest=each.name, metavar="X", help=explanation)
            recipe.settings[each.name] = option
    recipe.model = groups["model"]


def _title(plain: Recipe, section: str) -> tuple[str, str | None]:
    content = getattr(plain, section)
    if isinstance(content, str):
        return "settings, which override the recipe's", None
    return section, (content.__doc__ or "").partition("\n")[0]


def _explain(each: Described) -> str:
    return f"{each.explanation} ({each.expected}; default: {each.value or 'none'})".replace("%", "%%")


class NameRecipe(Action):
    """RECIPE: help that follows it shows the values of this recipe."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.settings: dict[str, Action] = {}
        self.model: _ActionsContainer | None = None  # the group of the network's settings

    def __call__(self, parser: ArgumentParser, options: Namespace, name: Any, option: str | None = None) -> None:
        setattr(options, self.dest, name)
        if name is not None:
            loaded = load_recipe(name)
            if self.model:
                self.model.description = _title(loaded, "model")[1]
            for setting in self.settings.values():
                setting.help = SUPPRESS
            for each in describe_settings(loaded):
                self.settings[each.name].help = _explain(each)


def read_recipe(options: Namespace, task: Task) -> Recipe:
    """The recipe that was named, with the settings that were given."""
    if options.recipe is None:
        example = "such as folder for your own recordings, or digits"
        raise Event2VecError(f"RECIPE is required, {example}. See 'event2vec {task} --help'")
    return load_recipe(options.recipe).with_settings(overrides(options))


def overrides(options: Namespace) -> dict[str, Any]:
    """Settings that were given on the command line, as YAML reads them."""
    given = {name: vars(options).get(name) for name in setting_names()}
    values = {}
    for name, text in given.items():
        try:
            if text is not None:
                values[name] = text if name in NOT_YAML else parse_yaml(text)
        except Event2VecError as error:
            raise Event2VecError(f"--{name} {error}") from None
    return values


def check_recipe_options(options: Namespace, task: Task) -> None:
    """What can be refused before torch is loaded."""
    if options.resume is not None:
        _check_resuming(options)
    elif not options.print_config:
        check_source(read_recipe(options, task).data.dataset, options.data)
        if options.out and getattr(options, "folds", None) is None:  # folds continue in the folder that they began
            Layout(local_place(options.out)).check_free(task)


def _check_resuming(options: Namespace) -> None:
    """Only the place of the data, the trainer and the number of epochs may differ from the start."""
    for name, value in {"RECIPE": options.recipe, "--out": options.out, "--init": options.init}.items():
        if value is not None:
            raise Event2VecError(f"--resume continues the run as it was started; omit {name}")
    Layout(Path(options.resume)).check_facts()
