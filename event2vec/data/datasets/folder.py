"""A user's own recordings: one sub-folder for each class, any format."""

from pathlib import Path

import numpy as np

from event2vec.data.datasets.dataset import FileDataset, check_root, class_names, files_by_class, files_in
from event2vec.errors import FileError
from event2vec.names import shorten
from event2vec.sensor import Sensor

TEST_SHARE = 0.2
LAYOUT = "one sub-folder for each class with recordings in it, or train/ and test/ with such sub-folders"


def open_folder(
    root: Path | None,
    split: str,
    *,
    seed: int = 0,
    sensor: Sensor | None = None,
    columns: str | None = None,
    time_unit: str | None = None,
) -> FileDataset:
    """The split is that of `train/` and `test/` where they exist, else one in five of each class is for testing."""
    root = check_root(root, "folder")
    divided = (root / "train").is_dir() and (root / "test").is_dir()
    classes = _classes(root / "train" if divided else root)
    if not divided and set(classes) <= {"train", "test"}:
        raise FileError(root, f"has {classes[0]}/ and not both train/ and test/, expected {LAYOUT}")
    if divided:
        strangers = sorted(set(_classes(root / "test")) - set(classes))
        if strangers:
            raise FileError(root / "test", f"has the class '{strangers[0]}', which train/ does not have")
    base = root / split if divided else root
    found = files_by_class(base / name for name in classes)
    if not divided:
        parts = _draw_split([label for _, label in found], seed)
        found = [file for file, part in zip(found, parts, strict=True) if part == split]
    return FileDataset.of("folder", split, classes, root, found, sensor=sensor, columns=columns, time_unit=time_unit)


def _classes(folder: Path) -> tuple[str, ...]:
    folders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    classes = class_names(path for path in folders if files_in(path))
    if not classes:
        found = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
        raise FileError(folder, f"has {shorten(found, 200)} in it, expected {LAYOUT}")
    return classes


def _draw_split(labels: list[int], seed: int) -> list[str]:
    """Put one in five recordings of each class aside, at random; a class with a single one keeps it to learn from."""
    parts = ["train"] * len(labels)
    for label in sorted(set(labels)):
        members = [index for index, other in enumerate(labels) if other == label]
        order = np.random.default_rng((seed, 0, label)).permutation(len(members))
        count = max(round(len(members) * TEST_SHARE), 1) if len(members) > 1 else 0
        for position in order[:count]:
            parts[members[position]] = "test"
    return parts
