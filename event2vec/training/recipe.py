"""Recipe: all settings of a training, in YAML and on the command line. One dataclass for each section."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from event2vec.data.sampling import Sampling
from event2vec.documents import RECIPES, read_yaml
from event2vec.errors import Event2VecError, FileError
from event2vec.model.config import ModelConfig, NetworkConfig
from event2vec.model.networks import NETWORKS, section_of
from event2vec.names import UNPRINTABLE, nearest, nearest_names, printable, shown
from event2vec.settings import Settings, build_settings, describe_settings, plain_settings, setting
from event2vec.training.config import AugmentConfig, DataConfig, ObjectiveConfig, TrainerConfig, TrainingConfig

if TYPE_CHECKING:
    from event2vec.data.store import EventStore

DEEPEST = 10  # recipes that build on each other
PUBLISHED = "_published"  # ends the names of recipes of compared systems in their published size
LONGEST_BASE = 200  # characters of a name or path


@dataclass(frozen=True, kw_only=True)
class Recipe(Settings):
    """All settings of one training.

        load_recipe("digits").with_settings({"training.epochs": 5}).to_yaml()

    Each section is a dataclass of its own: data, sampling, augment, model, objective, training, trainer.
    """

    name: str = setting("recipe", "what the run is called")
    data: DataConfig = field(default_factory=DataConfig)
    sampling: Sampling = field(default_factory=Sampling)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    model: NetworkConfig = field(default_factory=ModelConfig, metadata={"choose": section_of})
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)

    def with_settings(self, settings: Mapping[str, Any]) -> "Recipe":
        """A copy with some settings changed: {"training.epochs": 20} or {"training": {"epochs": 20}}."""
        content, given = plain_settings(self), dict(by_full_name(settings))
        if "model.network" in given:
            content["model"] = _for_network(content["model"], given["model.network"])
        own = {name for name, _ in by_full_name(content)}
        for name, value in given.items():
            if isinstance(section := content.get(name), Mapping):
                raise Event2VecError(f"{name} must be settings, such as {_example(section)}, got {shown(value)}")
            if name not in own and name not in (known := setting_names()):  # of another network: a longer list
                raise Event2VecError(f"unknown setting {name}{_nearest_setting(name, value, known)}")
            *sections, last = name.split(".")
            place = content
            for section in sections:
                place = place[section]
            place[last] = value
        changed: Recipe = build_settings(Recipe, content)  # at once: settings may go together only with each other
        return changed

    def divide(self, store: "EventStore") -> "EventStore":
        """A store with the splits that the recipe trains on: train, validation and test."""
        from event2vec.data.splits import take_fold, take_validation

        data, seed = self.data, self.training.seed
        if data.folds:
            store = take_fold(store, data.folds, data.fold, data.folds_over, seed)
        return take_validation(store, data.validation, seed)

    def to_yaml(self) -> str:
        return yaml.safe_dump(plain_settings(self), sort_keys=False)


def recipes_by_use() -> dict[str, list[str]]:
    """The names of the package's recipes, in groups to choose from."""
    yours, to_try = ["folder", "folder_raw"], ["digits", "nmnist"]
    names = [name for name in RECIPES.names() if name not in yours + to_try]
    compared = [name for name in names if name.removesuffix(PUBLISHED).removesuffix("_pretrain") in NETWORKS]
    return {
        "yours": yours,
        "to try": to_try,
        "the paper's": [name for name in names if name not in compared],
        "compared systems": [name for name in compared if not name.endswith(PUBLISHED)],
        "in their published size": [name for name in compared if name.endswith(PUBLISHED)],
    }


def by_full_name(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings as (section.name, value), where a section may be a dictionary."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from by_full_name(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def setting_names() -> list[str]:
    """Every setting that is not a section, such as training.epochs, with those of all networks."""
    return list(dict.fromkeys(each.name for recipe in recipes_of_networks() for each in describe_settings(recipe)))


def recipes_of_networks() -> list[Recipe]:
    """A recipe with no settings for each network, ours first."""
    return [Recipe(), *(Recipe(model=baseline.section()) for baseline in NETWORKS.values())]


def _example(section: Mapping[str, Any]) -> dict[str, Any]:
    """One setting of a section, a number where there is one."""
    name = next((name for name, value in section.items() if type(value) in (int, float)), next(iter(section)))
    return {name: section[name]}


def _nearest_setting(name: str, value: Any, known: Sequence[str]) -> str:
    """A hint at the setting that was meant; where the section was left out, also how Python writes it."""
    own_names = [each.rpartition(".")[2] for each in known]
    near = [name] if name in own_names else nearest_names(name, own_names)
    if "." in name or not near:
        return nearest(name, known)
    meant = [full for full, own_name in zip(known, own_names, strict=True) if own_name == near[0]]
    section = meant[0].rpartition(".")[0]
    return f" (did you mean {' or '.join(meant)}, given as {section}={{{near[0]!r}: {shown(value)}}}?)"


def _for_network(model: dict[str, Any], network: Any) -> dict[str, Any]:
    """The settings of a model that are left where it becomes another network."""
    shared = {each.name for each in fields(NetworkConfig)}
    same = network == model["network"]
    return model if same else {name: value for name, value in model.items() if name in shared}


def load_recipe(name_or_path: str | Path) -> Recipe:
    """A recipe of the package by its name, or any other by its file.

        load_recipe("dvs_gesture").training.epochs

    A file may build on another recipe, and then has only what differs: `base: folder`, or `base: mine.yaml` beside it.
    """
    return _load(RECIPES.find(name_or_path), ())


def _load(path: Path, above: tuple[Path, ...]) -> Recipe:
    """`above` are the recipes that build on this one."""
    content = read_yaml(path)
    content = {} if content is None else content
    try:
        if isinstance(content, Mapping):
            base, content = content.get("base"), {name: value for name, value in content.items() if name != "base"}
            content.setdefault("name", printable(path.stem))
            if base is not None:
                content = _merge(plain_settings(_load(_find_base(base, path, above), (*above, path))), content)
        recipe: Recipe = build_settings(Recipe, content)
    except FileError:  # names its own file
        raise
    except Event2VecError as error:
        raise FileError(path, str(error)) from None
    return recipe


def _find_base(base: Any, path: Path, above: tuple[Path, ...]) -> Path:
    if not isinstance(base, str) or len(base) > LONGEST_BASE or UNPRINTABLE.search(base):
        raise Event2VecError(f"base must be the name of a recipe or a file that ends in .yaml, got {shown(base)}")
    found = RECIPES.find(base, path.parent)
    found = found if found.is_absolute() else path.parent / found
    chain = [*above, path]
    if os.path.realpath(found) in map(os.path.realpath, chain):  # Path.resolve fails on links in a circle
        raise Event2VecError(f"base {shown(base)} builds on this recipe itself")
    if len(chain) == DEEPEST:
        raise Event2VecError(f"base {shown(base)}: more than {DEEPEST} recipes build on each other")
    return found


def _merge(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a recipe over those that it builds on."""
    if "network" in below and "network" in above:
        below = _for_network(below, above["network"])
    merged = dict(below)
    for name, value in above.items():
        both = isinstance(below.get(name), Mapping) and isinstance(value, Mapping)
        merged[name] = _merge(below[name], value) if both else value
    return merged
