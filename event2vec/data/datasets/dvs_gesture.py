"""DVS Gesture: eleven hand and arm gestures, 128 x 128, as AEDAT 3.1 with label files or as SpikingJelly's folders."""

import csv
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch

from event2vec.data.datasets.dataset import (
    Dataset,
    FileDataset,
    check_root,
    file_fingerprint,
    files_by_class,
    find_base,
    wrong_layout,
)
from event2vec.documents import read_text
from event2vec.errors import Event2VecError, FileError
from event2vec.io import Recording, read_recording
from event2vec.names import excerpt, shown
from event2vec.sensor import Sensor

SENSOR = Sensor(128, 128)
CLASSES = (
    "hand clapping",
    "right hand wave",
    "left hand wave",
    "right arm clockwise",
    "right arm counter clockwise",
    "left arm clockwise",
    "left arm counter clockwise",
    "arm roll",
    "air drums",
    "air guitar",
    "other gestures",
)
PUBLISHED = "https://research.ibm.com/interactive/dvsgesture"
AGAIN = "Unpack the data set again"
LARGEST_TABLE = 2**16  # bytes of a list of files or gestures; they have hundreds
LONGEST_NAME = 200


@dataclass(frozen=True)
class RawDvsGesture(Dataset):
    """Gestures cut out of long files, as their label files say."""

    paths: tuple[Path, ...]
    windows: tuple[tuple[int, int], ...]  # start and stop on the camera's clock, in microseconds
    problems: tuple[str, ...]  # "" but for a file whose gestures are not known

    def read(self, index: int) -> Recording:
        path, (start, stop) = self.paths[index], self.windows[index]
        if self.problems[index]:
            raise Event2VecError(self.problems[index])
        whole = _read_whole(path)
        gesture = whole.events.between(start - whole.start, stop - whole.start)
        if len(gesture) == 0:
            raise FileError(path, f"has no events from {start} to {stop} us, where its labels name a gesture")
        first = int(whole.events.t[torch.searchsorted(whole.events.t, start - whole.start)])
        return replace(whole, events=gesture, start=whole.start + first)

    def fingerprint(self, index: int) -> str:
        return f"{file_fingerprint(self.paths[index])} {self.windows[index]} {self.problems[index]}"


@lru_cache(maxsize=1)
def _read_whole(path: Path) -> Recording:
    """A file holds about twelve gestures that are asked for one after the other."""
    return read_recording(path, sensor=SENSOR)


def open_dvs_gesture(root: Path | None, split: str) -> Dataset:
    root = check_root(root, "dvs_gesture")
    if base := find_base(root, lambda place: (place / f"trials_to_{split}.txt").is_file()):
        return _open_raw(base, split)
    if base := find_base(root, lambda place: (place / split / "0").is_dir()):
        folders = (base / split / str(label) for label in range(len(CLASSES)))
        found = files_by_class(folders, (".npz",))
        return FileDataset.of("dvs_gesture", split, CLASSES, base, found, sensor=SENSOR)
    layout = f"trials_to_{split}.txt with .aedat files, or {split}/0 to {split}/10 with .npz files"
    raise wrong_layout(root, layout, PUBLISHED)


def _open_raw(base: Path, split: str) -> RawDvsGesture:
    listed = base / f"trials_to_{split}.txt"
    trials = read_text(listed, LARGEST_TABLE).split()
    if not trials:
        raise FileError(listed, f"names no files. Unpack the data set again, from {PUBLISHED}")
    if strange := next((trial for trial in trials if len(trial) > LONGEST_NAME or "/" in trial), None):
        raise FileError(listed, f"names {shown(strange)}, expected a file beside it. {AGAIN}")
    found: list[tuple[str, int, Path, tuple[int, int], str]] = []
    for path in (base / trial for trial in trials):
        try:
            gestures = [(label, window, "") for label, window in _labels(path)]
        except FileError as error:  # told when its turn comes, so that the other files are still used
            gestures = [(0, (0, 0), str(error))]
        for number, (label, window, problem) in enumerate(gestures, 1):
            found.append((f"{path.name}#{number}", label, path, window, problem))
    names, labels, paths, windows, problems = zip(*found, strict=True)
    return RawDvsGesture("dvs_gesture", split, CLASSES, names, labels, paths, windows, problems)


def _labels(path: Path) -> list[tuple[int, tuple[int, int]]]:
    """(class, (start, stop)) of each gesture in a file; classes count from 1 there and from 0 here."""
    table = path.with_name(path.stem + "_labels.csv")
    if not table.is_file():
        raise FileError(table, f"does not exist, and says which gestures {path.name} holds. {AGAIN}")
    lines = read_text(table, LARGEST_TABLE).splitlines()[1:]
    try:
        rows = [(int(row[0]) - 1, (int(row[1]), int(row[2]))) for row in csv.reader(lines) if row]
    except (ValueError, IndexError, csv.Error) as error:
        raise FileError(table, f"is not a table of class, start and end ({excerpt(error)})") from None
    strange = [label + 1 for label, _ in rows if not 0 <= label < len(CLASSES)]
    if strange:
        raise FileError(table, f"has class {shown(strange[0])}, expected 1 to {len(CLASSES)}")
    return rows
