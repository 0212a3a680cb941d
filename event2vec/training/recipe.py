"""Recipe: all settings of a training, in YAML and on the command line. One dataclass for each section."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from event2vec.data.sampling import Sampling
from event2vec.documents import read_yaml
from event2vec.errors import Event2VecError, FileError
from event2vec.model.config import ModelConfig
from event2vec.settings import build_settings, nearest, plain_settings, settings_of
from event2vec.training.augment import AugmentConfig
from event2vec.training.objectives import ObjectiveConfig

FOLDER = Path(__file__).parents[1] / "recipes"


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which data set a recipe is for, and how it is read."""

    dataset: Literal["dvs_gesture", "asl_dvs", "dvs_lip", "nmnist", "folder", "digits"] = "folder"
    """What --data holds when it is not a store."""
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
    """Recordings in a batch of one device."""
    learning_rate: float = 0.001
    """For 256 recordings in a step; scaled by batch * devices * nodes * accumulate / 256."""
    final_learning_rate: float = 0.0
    """Where the cosine ends, lr_min in the paper; not scaled."""
    warmup_epochs: float = 4.0
    """Epochs in which the learning rate rises from 1 %."""
    weight_decay: float = 0.0
    """Of AdamW; none on norms, biases, the mask token and lookup tables."""
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
    accumulate: int = 1
    """Batches whose gradients make one step: with 4, one device takes the step that four take without."""

    def __post_init__(self) -> None:
        if self.accumulate < 1:
            raise ValueError(f"trainer.accumulate must be at least 1, got {self.accumulate}")


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
        content = plain_settings(self)
        known = [name for name, _ in setting_names()]
        for name, value in settings.items():
            if name not in known:
                raise Event2VecError(f"unknown setting {name}{nearest(name, known)}")
            *sections, last = name.split(".")
            place = content
            for section in sections:
                place = place[section]
            place[last] = value
        changed: Recipe = build_settings(Recipe, content)  # at once: settings may go together only with each other
        return changed

    def to_yaml(self) -> str:
        return yaml.safe_dump(plain_settings(self), sort_keys=False)


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_recipe(name_or_path: str | Path) -> Recipe:
    """A recipe of the package by its name, or any other by its file."""
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        path = FOLDER / f"{name_or_path}.yaml"
        if not path.is_file():
            near = nearest(str(name_or_path), recipe_names())
            raise Event2VecError(
                f"unknown recipe {str(name_or_path)!r}{near}; there are {', '.join(recipe_names())}, "
                "or name a file that ends in .yaml"
            )
    content = read_yaml(path)
    try:
        recipe: Recipe = build_settings(Recipe, {} if content is None else content)
    except Event2VecError as error:
        raise FileError(path, str(error)) from None
    return recipe


def setting_names() -> Iterator[tuple[str, str]]:
    """Every setting that has a value of its own, with its explanation."""
    yield from settings_of(Recipe)
