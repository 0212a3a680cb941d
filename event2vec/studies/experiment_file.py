"""An experiment as a YAML file: a title, and rows of changes to a recipe with the paper's figures.

What is changed in all rows alike is said once, as `settings` beside the rows.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from event2vec.documents import EXPERIMENTS, read_yaml
from event2vec.errors import FileError
from event2vec.names import shorten, shown
from event2vec.studies.tables import Row, check_settings
from event2vec.training.recipe import Recipe, load_recipe

TIMED = 500  # test recordings, evenly spaced, on which times are measured; all, where there are no more


@dataclass(frozen=True)
class Experiment:
    title: str
    rows: tuple[Row, ...]
    speed: bool = False  # whether throughput and latency are measured too
    pretrain: dict[str, str] = field(default_factory=dict)  # by data set: the recipe that pre-trains each row there
    timed: int = TIMED  # test recordings on which times are measured
    repeats: int = 10  # draws of the events that each network is tested with

    def __post_init__(self) -> None:
        if not isinstance(self.title, str):
            raise ValueError(f"title must be text, got {shown(self.title)}")
        if not self.rows or len({row.name for row in self.rows}) < len(self.rows):
            raise ValueError("rows must be one or more, each with a name of its own")
        if not isinstance(self.pretrain, dict):
            raise ValueError(f"pretrain must name a recipe for each data set, got {shown(self.pretrain)}")
        for name in (*self.pretrain, *self.pretrain.values()):
            if not isinstance(name, str):
                raise ValueError(f"pretrain must name data sets and recipes as text, got {shown(name)}")


def load_experiment(name_or_path: str) -> Experiment:
    """An experiment of the package by its name, or any other by its file."""
    path = EXPERIMENTS.find(name_or_path)
    content = read_yaml(path)
    try:
        shared = content.pop("settings", {})
        check_settings(shared)
        rows = tuple(_read_row(row, shared) for row in content.pop("rows"))
        return Experiment(rows=rows, **content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        expected = "expected title, and rows of name and settings"
        raise FileError(path, f"is not an experiment: {expected} ({shorten(str(error))})") from None


def _read_row(row: dict[str, Any], shared: dict[str, Any]) -> Row:
    """YAML takes 75.88 for a number; the paper's figures are kept as it writes them. Rows of one's own have none."""
    paper = {name: shorten(str(value)) for name, value in row.get("paper", {}).items()}
    own = row.get("settings", {})
    check_settings(own)
    return Row(**row | {"settings": shared | own, "paper": paper})


def choose_pretraining(experiment: Experiment, recipe: Recipe, named: str | Path | None) -> Recipe | None:
    """The recipe that pre-trains each row: the one named, or the experiment's for this data set."""
    name = named or experiment.pretrain.get(recipe.data.dataset)
    return load_recipe(name) if name else None
