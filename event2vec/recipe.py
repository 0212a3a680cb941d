"""Recipe: all settings of a training, in YAML and on the command line. One dataclass for each section."""

import difflib
import math
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from event2vec.augment import AugmentConfig
from event2vec.errors import Event2VecError, FileError
from event2vec.events import Sensor
from event2vec.model import ModelConfig
from event2vec.objectives import ObjectiveConfig
from event2vec.sampling import Sampling

FOLDER = Path(__file__).parent / "recipes"


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which data set a recipe is for, and how it is read."""

    dataset: Literal["dvs_gesture", "asl_dvs", "dvs_lip", "nmnist", "folder", "digits"] = "folder"
    """What --data holds when it is no store."""
    workers: int = 0
    """Processes that read ahead while the network computes; 0 reads in turn."""
    clusterings: int = 1
    """Sets of clusters to make of each recording to train on, read in turn. A store of clusters keeps those it has."""

    def __post_init__(self) -> None:
        if self.clusterings < 1:
            raise ValueError(f"data.clusterings must be at least 1, got {self.clusterings}")
        if self.workers < 0:
            raise ValueError(f"data.workers must not be negative, got {self.workers}")


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Optimiser, schedule and when to save (App. A.2)."""

    epochs: int = 64
    """Epochs, each of `repeats` passes over the training recordings."""
    repeats: int = 1
    """Passes over the training recordings in one epoch."""
    batch: int = 64
    """Recordings in a step of one device."""
    learning_rate: float = 0.001
    """For 256 recordings in a step; scaled by batch * devices * nodes / 256."""
    final_learning_rate: float = 0.0
    """Where the cosine ends, lr_min in the paper; not scaled."""
    warmup_epochs: float = 4.0
    """Epochs in which the learning rate rises from 1 %."""
    weight_decay: float = 0.0
    """Of AdamW; none on norms, biases and the mask token."""
    clip: float = 0.0
    """Largest norm of all gradients together; 0: no limit."""
    checkpoint_steps: int = 200
    """Steps between checkpoints, which a stopped training goes on from; one more is written after each epoch."""
    seed: int = 0
    """Decides starting weights and every draw."""

    def __post_init__(self) -> None:
        for name in ("epochs", "repeats", "batch", "checkpoint_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"training.{name} must be at least 1, got {getattr(self, name)}")
        for name in ("learning_rate", "final_learning_rate", "warmup_epochs", "weight_decay", "clip", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"training.{name} must not be negative, got {getattr(self, name)}")
        if self.final_learning_rate > self.learning_rate:
            rates = f"{self.final_learning_rate} and {self.learning_rate}"
            raise ValueError(f"training.final_learning_rate must not be above training.learning_rate, got {rates}")


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """Where training runs: passed on to Lightning's Trainer."""

    accelerator: str = "auto"
    """cpu, gpu, mps, or auto for the best there is."""
    devices: int | str = "auto"
    """How many of them on each node, or auto for all."""
    num_nodes: int = 1
    """Machines that train together."""
    strategy: str = "auto"
    """How they share the work; auto is ddp for more than one device."""
    precision: str = "32-true"
    """Number type: 32-true or bf16-mixed."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All settings of one training."""

    name: str = "recipe"
    """What the run is called."""
    data: DataConfig = field(default_factory=DataConfig)
    sampling: Sampling = field(default_factory=Sampling)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)

    def with_settings(self, settings: Mapping[str, Any]) -> "Recipe":
        """A copy with some settings changed, by their full names such as training.epochs."""
        content = _plain(self)
        known = [name for name, _ in setting_names()]
        for name, value in settings.items():
            if name not in known:
                raise Event2VecError(f"unknown setting {name}{_nearest(name, known)}")
            *sections, last = name.split(".")
            place = content
            for section in sections:
                place = place[section]
            place[last] = value
        changed: Recipe = _build(Recipe, content, "")  # at once: settings may go together only with each other
        return changed

    def to_yaml(self) -> str:
        return yaml.safe_dump(_plain(self), sort_keys=False)


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_recipe(name_or_path: str | Path) -> Recipe:
    """A recipe of the package by its name, or any other by its file."""
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        path = FOLDER / f"{name_or_path}.yaml"
        if not path.is_file():
            near = _nearest(str(name_or_path), recipe_names())
            raise Event2VecError(
                f"unknown recipe {str(name_or_path)!r}{near}; there are {', '.join(recipe_names())}, "
                "or name a file that ends in .yaml"
            )
    if not path.is_file():
        raise FileError(path, "does not exist, expected a recipe")
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise FileError(path, f"is not YAML: {' '.join(str(error).split())}") from None
    try:
        recipe: Recipe = _build(Recipe, content or {}, "")
    except Event2VecError as error:
        raise FileError(path, str(error)) from None
    return recipe


def setting_names() -> Iterator[tuple[str, str]]:
    """Every setting that has a value of its own, with its explanation."""
    yield from _settings(Recipe, "")


def _settings(section: type, prefix: str) -> Iterator[tuple[str, str]]:
    explained = _explanations(section)
    for setting in fields(section):
        kind = _types(section)[setting.name]
        if is_dataclass(kind) and kind is not Sensor:
            yield from _settings(kind, f"{prefix}{setting.name}.")  # type: ignore[arg-type]
        else:
            yield f"{prefix}{setting.name}", explained.get(setting.name, "")


def _explanations(section: type) -> dict[str, str]:
    """The docstring below each field. Python does not keep them, so they are read from the source."""
    import ast
    import inspect
    import textwrap

    (body,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for line, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(line, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            assert isinstance(line.target, ast.Name)
            found[line.target.id] = str(after.value.value)
    return found


def _build(section: type, content: Any, where: str) -> Any:
    """A section from what YAML holds, with every name and type checked."""
    if not isinstance(content, Mapping):
        raise Event2VecError(f"{where or 'the recipe'} must be settings with names, got {content!r}")
    known = [setting.name for setting in fields(section)]
    values = {}
    for name, value in content.items():
        full = f"{where}.{name}" if where else str(name)
        if name not in known:
            near = _nearest(str(name), known)
            raise Event2VecError(f"unknown setting {full}{near}; {where or 'a recipe'} accepts {', '.join(known)}")
        values[name] = _convert(_types(section)[name], value, full)
    try:
        return section(**values)
    except ValueError as error:
        raise Event2VecError(str(error)) from None


def _types(section: type) -> dict[str, Any]:
    return get_type_hints(section)


def _convert(kind: Any, value: Any, name: str) -> Any:
    """A value of the type that a setting has, or one line that says what was expected."""
    if kind is Sensor:
        return _sensor(value, name)
    if is_dataclass(kind):
        return _build(kind, value, name)  # type: ignore[arg-type]
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        if value not in choices:
            near = _nearest(str(value), list(choices))
            raise Event2VecError(f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}{near}")
        return value
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    if kinds == (str,) and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)  # a name such as 2024, or a precision such as 32
    if float in kinds and isinstance(value, str):
        value = _number(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise Event2VecError(f"{name} must be a finite number, got {value}")
    if float in kinds and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if (isinstance(value, bool) and bool not in kinds) or not isinstance(value, kinds):
        expected = " or ".join(
            {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}[kind.__name__]
            for kind in kinds
        )
        raise Event2VecError(f"{name} must be {expected}, got {value!r}")
    return value


def _number(text: str) -> Any:
    """YAML takes 1e-6 for text, since it has no point."""
    try:
        return float(text)
    except ValueError:
        return text


def _sensor(value: Any, name: str) -> Sensor:
    if isinstance(value, Sensor):
        return value
    try:
        return Sensor.parse(str(value))
    except ValueError as error:
        raise Event2VecError(f"{name}: {error}") from None


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _plain(value: Any) -> Any:
    """What YAML can hold."""
    if isinstance(value, Sensor):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {setting.name: _plain(getattr(value, setting.name)) for setting in fields(value)}
    return value
