"""A user's own recordings: one sub-folder for each class, any format."""

import re
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.data.datasets.dataset import Dataset, FileDataset, check_root, class_names, files_in
from event2vec.data.datasets.spans import SpanDataset
from event2vec.data.labels import class_order, find_spans
from event2vec.data.splits import TEST, draw_part
from event2vec.data.windows import Windows
from event2vec.errors import Event2VecError, Event2VecWarning, FileError
from event2vec.io.folders import describe_skipped, find_recordings
from event2vec.names import shorten, shown
from event2vec.sensor import Sensor

TEST_SHARE = 0.2
FEWEST = 2  # recordings of a class of which one is for testing; a single one is learnt from
LAYOUT = "one sub-folder for each class with recordings in it, or train/ and test/ with such sub-folders"
PARTS = {"train": ("train",), "validation": ("validation", "val"), "test": ("test",)}  # by split: what it may be called


def open_folder(
    root: Path | None,
    split: str,
    *,
    seed: int = 0,
    group_by: str = "folders",
    labels: str | Path | None = None,
    sensor: Sensor | None = None,
    columns: str | None = None,
    time_unit: str | None = None,
) -> Dataset:
    """The split is that of `train/` and `test/` if they exist; otherwise one in five of each class is for testing.

    Next to `train/` and `test/` there may be `validation/`. `group_by` says which recordings stay together: those of
    one sub-folder of a class ("folders"), those with the same match of a regular expression in their path below it,
    or "none". With `labels`, a table or "beside", recordings may lie anywhere in the folder: see `find_spans`.
    """
    root = check_root(root, "folder")
    reading = {"sensor": sensor, "columns": columns, "time_unit": time_unit}
    if labels:
        return _open_labelled(root, split, labels, seed, group_by, reading)
    divided = part_folder(root, "train") is not None
    classes = _classes(root / "train" if divided else root)
    if not divided and set(classes) <= {name for names in PARTS.values() for name in names}:
        raise FileError(root, f"has {' and '.join(f'{name}/' for name in classes)} only, expected {LAYOUT}")
    base = part_folder(root, split) or root
    if divided:
        strangers = sorted(set(_classes(base)) - set(classes))
        if strangers:
            raise FileError(base, f"has the class '{strangers[0]}', which train/ does not have")
    listed = [find_recordings(base / name) for name in classes]
    if skipped := [path for _, others in listed for path in others]:
        warnings.warn(describe_skipped(skipped, root), Event2VecWarning, stacklevel=2)
    found = [(path, label) for label, (recordings, _) in enumerate(listed) for path in recordings]
    groups = _groups(base, [path for path, _ in found], group_by)
    if not divided:
        remedy = "Set `group_by` to none if sub-folders mean nothing"
        chosen = _draw_split(split, classes, [label for _, label in found], groups, seed, remedy)
        found, groups = [found[index] for index in chosen], [groups[index] for index in chosen]
    return FileDataset.of("folder", split, classes, root, found, groups=tuple(groups), drawn=not divided, **reading)


def open_whole(root: Path, classes: Sequence[str], network: Sensor, windows: Windows | None) -> FileDataset:
    """All recordings of a folder that is not divided, to test a network on that knows these classes."""
    found = _classes(root)
    if strange := [name for name in found if name not in classes]:
        known = shorten(", ".join(classes), 200)
        problem = f"{shown(strange[0])} is not a class of the network ({known})"
        raise FileError(root / strange[0], f"{problem}. Rename the folder, or move it out of `data`")
    listed = [(path, label) for label, name in enumerate(found) for path in find_recordings(root / name)[0]]
    return FileDataset.of("folder", "test", found, root, listed, network=network, windows=windows)


def is_whole(root: Path) -> bool:
    """Whether a folder has recordings in sub-folders for classes, and is not divided into train and test."""
    if not root.is_dir() or part_folder(root, "train") is not None:
        return False
    return any(path.is_dir() and path.name not in PARTS and files_in(path) for path in root.iterdir())


def _open_labelled(
    root: Path, split: str, labels: str | Path, seed: int, group_by: str, reading: dict[str, Any]
) -> SpanDataset:
    """The spans that label tables name. Spans of one file stay together, and so do files of one group."""
    found = find_spans(root, labels)
    classes = class_order({span.name for _, span in found})
    place = part_folder(root, split)
    base = place or root
    if place is not None:
        found = [(path, span) for path, span in found if path.is_relative_to(place)]
    groups = _groups(base, [path for path, _ in found], group_by, above=0)
    if place is None:
        numbers = [classes.index(span.name) for _, span in found]
        chosen = _draw_split(split, classes, numbers, groups, seed, "Label a further recording with them")
        found, groups = [found[index] for index in chosen], [groups[index] for index in chosen]
    return SpanDataset.of("folder", split, classes, root, found, groups=tuple(groups), drawn=place is None, **reading)


def _draw_split(
    split: str, classes: Sequence[str], labels: Sequence[int], groups: Sequence[str], seed: int, remedy: str
) -> list[int]:
    """The recordings of a split, where the folder is not divided."""
    aside = draw_part(labels, groups, TEST_SHARE, FEWEST, seed, TEST)
    if split == "test":
        _warn_untested(classes, labels, aside, remedy)
    return np.flatnonzero(aside == (split == "test")).tolist()


def _warn_untested(classes: Sequence[str], labels: Sequence[int], aside: NDArray[np.bool_], remedy: str) -> None:
    """Name the classes of which nothing could be put aside, although there are enough recordings."""
    tested = {labels[index] for index in np.flatnonzero(aside).tolist()}
    missing = [classes[label] for label, count in Counter(labels).items() if count >= FEWEST and label not in tested]
    if missing:
        listed = shorten(", ".join(missing), 120)
        problem = "nothing is put aside for testing, since recordings of one group stay together"
        warnings.warn(f"{listed}: {problem}. {remedy}", Event2VecWarning, stacklevel=3)


def _groups(base: Path, paths: Sequence[Path], group_by: str, above: int = 1) -> list[str]:
    """What each recording belongs to; persons and sessions are the same in all classes.

    `above` folders of the path below `base` say nothing about that: the class, where there is one folder for each.
    """
    if group_by == "none":
        return [str(path.relative_to(base)) for path in paths]
    below = [path.relative_to(base).parts[above:] for path in paths]
    if group_by == "folders":
        pairs = zip(paths, below, strict=True)
        return [parts[0] if len(parts) > 1 else str(path.relative_to(base)) for path, parts in pairs]
    try:
        pattern = re.compile(group_by)
    except re.error as error:
        raise Event2VecError(
            f"`group_by` must be folders, none or a regular expression, got {shown(group_by)} ({error})"
        ) from None
    found = [pattern.search("/".join(parts)) for parts in below]
    for path, match in zip(paths, found, strict=True):
        if match is None:
            raise FileError(
                path, f"does not match `group_by` {shown(group_by)}; every recording must belong to a group"
            )
    return [match[1] if match.re.groups else match[0] for match in found if match is not None]


def part_folder(root: Path, split: str) -> Path | None:
    """The sub-folder with the recordings of a split, where the recordings are divided already."""
    if not all((root / name).is_dir() for name in ("train", "test")):
        return None
    return next((root / name for name in PARTS[split] if (root / name).is_dir()), None)


def _classes(folder: Path) -> tuple[str, ...]:
    folders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    classes = class_names(path for path in folders if files_in(path))
    if not classes:
        found = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
        raise FileError(folder, f"holds {shorten(found, 200)}, expected {LAYOUT}")
    return classes
