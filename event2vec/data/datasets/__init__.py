"""Data sets as people download them: recordings with labels and a split."""

from pathlib import Path
from typing import Any

from event2vec.data.datasets.asl_dvs import open_asl_dvs
from event2vec.data.datasets.dataset import Dataset
from event2vec.data.datasets.digits import open_digits
from event2vec.data.datasets.dvs_gesture import open_dvs_gesture
from event2vec.data.datasets.dvs_lip import open_dvs_lip
from event2vec.data.datasets.folder import open_folder
from event2vec.data.datasets.nmnist import open_nmnist
from event2vec.errors import Event2VecError

__all__ = ["DATASETS", "SPLITS", "Dataset", "open_dataset"]

DATASETS = {
    "dvs_gesture": open_dvs_gesture,
    "asl_dvs": open_asl_dvs,
    "dvs_lip": open_dvs_lip,
    "nmnist": open_nmnist,
    "folder": open_folder,
    "digits": open_digits,
}
SPLITS = ("train", "test")


def open_dataset(name: str, root: str | Path | None, split: str, **options: Any) -> Dataset:
    """One split of a data set that lies in `root`; `digits` needs none.

    `folder` takes the options seed, sensor, columns and time_unit; `digits` takes seed; `asl_dvs` takes orientation.
    """
    if name not in DATASETS:
        raise Event2VecError(f"data set '{name}' is not known; there are {', '.join(DATASETS)}")
    if split not in SPLITS:
        raise Event2VecError(f"split '{split}' is not known; there are {' and '.join(SPLITS)}")
    return DATASETS[name](None if root is None else Path(root), split, **options)
