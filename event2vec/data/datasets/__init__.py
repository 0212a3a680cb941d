"""Data sets as downloaded: recordings with labels and a split. The code of each is loaded when it is opened."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from event2vec.data.windows import Windows
from event2vec.errors import Event2VecError
from event2vec.names import nearest, shown

if TYPE_CHECKING:
    from event2vec.data.datasets.dataset import Dataset

DatasetName = Literal["dvs_gesture", "asl_dvs", "dvs_lip", "nmnist", "folder", "digits"]
DATASETS: tuple[str, ...] = get_args(DatasetName)  # the file of each has a function open_<name>
SPLITS = ("train", "validation", "test")


def describe_source(name: str) -> str:
    """What a data set is read from, for people."""
    return "the folder with your recordings" if name == "folder" else f"the folder with {name} as downloaded"


def check_source(name: str, data: object) -> None:
    """Refuse to train without data, unless it is built in."""
    if data is None and name != "digits":
        raise Event2VecError(f"`data` is required: a prepared store, or {describe_source(name)}")


def open_dataset(
    name: str, root: str | Path | None, split: str, *, windows: Windows | None = None, **options: Any
) -> "Dataset":
    """One split of the data set in the folder `root`; `digits` needs none.

        events, label = open_dataset("nmnist", "N-MNIST/", "train")[0]

    `folder` takes the options seed, group_by, labels, sensor, columns and time_unit; `digits` takes seed; `asl_dvs`
    takes orientation. With `windows`, each recording is cut into these when it is prepared.
    """
    if name not in DATASETS:
        raise Event2VecError(
            f"unknown data set {shown(name)}{nearest(name, DATASETS)}; expected one of {', '.join(DATASETS)}"
        )
    if split not in SPLITS:
        raise Event2VecError(f"unknown split {shown(split)}; expected one of {', '.join(SPLITS)}")
    if split not in splits_of(name, root):
        raise Event2VecError(f"{name} has no {split} part; training takes one from the training recordings")
    open_split = getattr(import_module(f"event2vec.data.datasets.{name}"), f"open_{name}")
    return replace(open_split(None if root is None else Path(root), split, **options), windows=windows)


def open_splits(name: str, root: str | Path | None, **options: Any) -> list["Dataset"]:
    """All splits that a data set has.

        prepare(open_splits("folder", "my_recordings/"), "my_store")

    The options are those of `open_dataset`.
    """
    return [open_dataset(name, root, split, **options) for split in splits_of(name, root)]


def splits_of(name: str, root: str | Path | None) -> tuple[str, ...]:
    """Train and test; of a folder of your own also validation, if it has a sub-folder for it."""
    from event2vec.data.datasets.folder import part_folder

    own = name == "folder" and root is not None and part_folder(Path(root), "validation") is not None
    return SPLITS if own else ("train", "test")
