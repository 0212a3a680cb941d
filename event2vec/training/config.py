"""Sections of a recipe: data, augmentation, objective, training. Without torch, so that `--help` is fast."""

from dataclasses import dataclass, field
from typing import Any, Literal

from event2vec.choices import FoldsOver
from event2vec.data.datasets import DatasetName
from event2vec.data.windows import LABELS, LONGEST, MIN_EVENTS, STRIDE, WINDOW, WINDOW_EVENTS, Windows
from event2vec.settings import Settings, setting

GROUPING = ("data.group_by", "data.labels")  # settings of the data set 'folder' alone
CUTTING = ("data.window", "data.stride", "data.min_events", "data.window_events")


@dataclass(frozen=True, kw_only=True)
class DataConfig(Settings, section="data"):
    """Which data set a recipe is for, and how it is read."""

    dataset: DatasetName = setting("folder", "the kind of data, if it is not a store")
    validation: float = setting(
        0.1,
        "fraction of each class's training recordings held out for validation, to choose the best epoch, if the data "
        "has no validation part of its own; 0: none, and the network of the last epoch is used",
        least=0,
        most=0.5,
    )
    group_by: str = setting(
        "folders",
        "recordings of 'folder' that stay together when parts are drawn: those of one sub-folder of a class (folders), "
        "those with the same match of a regular expression in their path below the class, such as '^[^_]+', or none",
    )
    folds: int = setting(
        0,
        "cross-validation: number of folds; each fold is the test set once; 0: none",
        least=0,
    )
    fold: int = setting(0, "the fold that is the test set, from 1; cross-validation trains all of them", least=0)
    folds_over: FoldsOver = setting(
        "train",
        "recordings to divide into folds: the training recordings, or all, with the data's test part",
    )
    window: float = setting(0.0, WINDOW, least=0, most=LONGEST)
    stride: float = setting(0.0, STRIDE, least=0, most=LONGEST)
    min_events: int = setting(1, MIN_EVENTS, least=1)
    window_events: int = setting(0, WINDOW_EVENTS, least=0)
    labels: str = setting("", LABELS)
    workers: int = setting(
        0,
        "processes that load batches while the network computes; 0: none. Others prepare the data beforehand",
        least=0,
    )
    shards_at_once: int = setting(
        0,
        "shuffle within this many shards of the store at a time: each is fetched once in a pass, even if the store "
        "is larger than the local cache; 0: shuffle all recordings",
        least=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.folds == 1:
            raise ValueError("data.folds must be 0 or at least 2, got 1")
        if self.fold > self.folds:
            raise ValueError(f"data.fold must be at most data.folds, which is {self.folds}, got {self.fold}")
        _ = self.windows  # checks that they go together

    @property
    def windows(self) -> Windows | None:
        """What recordings are cut into; None: they stay whole."""
        return Windows.of(self.window, self.stride, self.min_events, self.window_events)

    @property
    def options(self) -> dict[str, Any]:
        """What the data set itself is opened with."""
        own = {"group_by": self.group_by, "labels": self.labels} if self.dataset == "folder" else {}
        return {**own, "windows": self.windows}


LengthUnit = Literal["pixels", "sensor"]


@dataclass(frozen=True, kw_only=True)
class AugmentConfig(Settings, section="augment"):
    """How recordings are augmented in training (App. A.9); 0 turns an augmentation off. Defaults: none."""

    probability: float = setting(
        0.5, "probability that each of the following augmentations is applied to a recording", least=0, most=1
    )
    resize: float = setting(0.0, "factors for x and y are drawn from 1 minus to 1 plus this", least=0, below=1)
    rotate: float = setting(0.0, "largest angle in degrees, in either direction", least=0)
    shear: float = setting(0.0, "largest share of x added to y, and of y to x, in either direction", least=0)
    flip: float = setting(
        0.0, "probability of mirroring left and right when this augmentation is applied", least=0, most=1
    )
    unit: LengthUnit = setting(
        "pixels",
        "what translate and erase are counted in: pixels, or sides of the sensor, so that 0.1 is a tenth of it",
    )
    translate: float = setting(0.0, "largest shift in x and y, in either direction", least=0)
    erase: float = setting(0.0, "largest side of a rectangle that is erased in one of ten recordings", least=0)
    chunks: int = setting(0, "number of runs of neighbouring events that are dropped", least=0)
    chunk_length: int = setting(128, "longest of these runs", least=1)
    forget_intensity: float = setting(
        0.0, "share of recordings whose rho is set to 1, so that the network does not rely on it alone", least=0, most=1
    )
    draw_for: Literal["recording", "batch"] = setting(
        "recording", "draw which augmentations apply for each recording, or once per batch (the authors' code)"
    )
    forget_intensity_for: Literal["recording", "event"] = setting(
        "recording", "set rho to 1 in all events of a recording, or draw for each event (the authors' code)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("translate", "erase"):
            if self.unit == "sensor" and getattr(self, name) > 1:
                raise ValueError(
                    f"augment.{name} must be at most 1 with augment.unit sensor, got {getattr(self, name)}. "
                    "Set augment.unit to pixels"
                )


@dataclass(frozen=True, kw_only=True)
class SpanMask(Settings, section="objective.mask"):
    """Each event starts a span with probability share / length; span lengths are geometric, truncated at `longest`."""

    share: float = setting(
        0.3, "target share of hidden events; overlap and truncation leave somewhat fewer", above=0, below=1
    )
    length: int = setting(10, "mean length of a span before truncation", least=1)
    longest: int = setting(20, "longest span", least=1)

    @property
    def expected_share(self) -> float:
        """An event is visible if none of the `longest` events up to it starts a span that reaches it.

        A span reaches d events on with probability (1 - 1 / length)^d.
        """
        start, goes_on = self.share / self.length, 1 - 1 / self.length
        seen = 1.0
        for distance in range(self.longest):
            seen *= 1 - start * goes_on**distance
        return 1 - seen


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig(Settings, section="objective"):
    """What is learnt besides the labels themselves."""

    label_smoothing: float = setting(0.0, "share of each label that is spread over all classes", least=0, most=1)
    token_mix: float = setting(0.0, "share of batches in which recordings exchange tokens (TokenMix)", least=0, most=1)
    class_weights: Literal["none", "balanced"] = setting(
        "none",
        "none: every training recording counts the same; balanced: every class does, however many recordings it has",
    )
    mask: SpanMask = field(default=SpanMask())


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Settings, section="training"):
    """Optimiser, schedule and when to save (App. A.2)."""

    epochs: int = setting(64, "epochs, each of `repeats` passes over the training recordings", least=1)
    minutes: float = setting(
        0.0,
        "train for about this many minutes instead: the number of epochs that comes closest, found by timing the first "
        "steps; 0: epochs",
        least=0,
    )
    repeats: int = setting(1, "passes over the training recordings in one epoch", least=1)
    batch: int = setting(64, "recordings per batch on one device", least=1)
    optimizer: Literal["adamw", "muon"] = setting(
        "adamw", "adamw as in the paper; muon: matrices take steps of equal size in all directions (ours, with float32)"
    )
    learning_rate: float = setting(
        0.001, "for 256 recordings per step; scaled by batch * devices * nodes * accumulate / 256", least=0
    )
    final_learning_rate: float = setting(0.0, "end of the cosine schedule, lr_min in the paper; not scaled", least=0)
    warmup_epochs: float = setting(4.0, "epochs in which the learning rate rises from 1 %", least=0)
    weight_decay: float = setting(0.0, "of AdamW; none on norms, biases, the mask token and lookup tables", least=0)
    clip: float = setting(0.0, "largest norm of all gradients combined; 0: no limit", least=0)
    patience: int = setting(
        0, "stop after this many epochs in a row without a better result on validation; 0: train all epochs", least=0
    )
    checkpoint_steps: int = setting(
        200,
        "steps between checkpoints, from which a stopped training resumes; one more is written after each epoch",
        least=1,
    )
    seed: int = setting(0, "seed for initial weights and all random draws", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.final_learning_rate > self.learning_rate:
            rates = f"{self.final_learning_rate} and {self.learning_rate}"
            raise ValueError(f"training.final_learning_rate must not be above training.learning_rate, got {rates}")


@dataclass(frozen=True, kw_only=True)
class TrainerConfig(Settings, section="trainer"):
    """Where training runs: passed on to Lightning's Trainer."""

    accelerator: str = setting("auto", "cpu, gpu, mps, or auto for the best available")
    devices: int | str = setting("auto", "number of devices on each node, or auto for all")
    num_nodes: int = setting(1, "number of machines")
    strategy: str = setting("auto", "how devices share the work; auto is ddp for more than one device")
    precision: str = setting(
        "32-true", "32-true or bf16-mixed; auto: bf16-mixed on GPUs that have it, 32-true elsewhere"
    )
    accumulate: int = setting(
        1, "batches accumulated into one step: with 4, one device takes the same step as four devices with 1", least=1
    )
