"""DVS Gesture: eleven hand and arm gestures, 128 x 128, as AEDAT 3.1 with label files or as SpikingJelly's folders."""

import csv
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from event2vec.datasets.dataset import Dataset, FileDataset, check_root, file_fingerprint, files_by_class, wrong_layout
from event2vec.errors import FileError
from event2vec.events import Sensor
from event2vec.io import Recording, read_recording

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


@dataclass(frozen=True)
class RawDvsGesture(Dataset):
    """Gestures cut out of long files, as their label files say."""

    paths: tuple[Path, ...]
    windows: tuple[tuple[int, int], ...]  # start and stop on the camera's clock, in microseconds

    def read(self, index: int) -> Recording:
        whole = _read_whole(self.paths[index])
        start, stop = (time - whole.start for time in self.windows[index])
        gesture = whole.events.between(start, stop)
        if len(gesture) == 0:
            raise FileError(self.paths[index], f"has no events from {self.windows[index][0]} us, as its labels say")
        return replace(whole, events=gesture, start=max(self.windows[index][0], whole.start))

    def fingerprint(self, index: int) -> str:
        return f"{file_fingerprint(self.paths[index])} {self.windows[index]}"


@lru_cache(maxsize=1)
def _read_whole(path: Path) -> Recording:
    """A file holds about twelve gestures that are asked for one after the other."""
    return read_recording(path, sensor=SENSOR)


def open_dvs_gesture(root: Path | None, split: str) -> Dataset:
    root = check_root(root, "dvs_gesture")
    for base in (root, root / "DvsGesture"):
        if (base / f"trials_to_{split}.txt").is_file():
            return _open_raw(base, split)
    for base in (root, root / "events_np"):
        if (base / split / "0").is_dir():
            found = files_by_class(base / split / str(label) for label in range(len(CLASSES)))
            return FileDataset.of("dvs_gesture", split, CLASSES, base, found, sensor=SENSOR)
    raise wrong_layout(
        root, f"trials_to_{split}.txt with .aedat files, or {split}/0 to {split}/10 with .npz files", PUBLISHED
    )


def _open_raw(base: Path, split: str) -> RawDvsGesture:
    trials = [line.strip() for line in (base / f"trials_to_{split}.txt").read_text("utf-8").splitlines()]
    found = [(base / trial, *row) for trial in trials if trial for row in _labels(base / trial)]
    counts: dict[Path, int] = {}
    names = []
    for path, *_ in found:
        counts[path] = counts.get(path, 0) + 1
        names.append(f"{path.name}#{counts[path]}")
    paths, labels, windows = zip(*found, strict=True) if found else ((), (), ())
    return RawDvsGesture("dvs_gesture", split, CLASSES, tuple(names), labels, paths, windows)


def _labels(path: Path) -> list[tuple[int, tuple[int, int]]]:
    """(class, (start, stop)) of each gesture in a file; classes count from 1 there and from 0 here."""
    table = path.with_name(path.stem + "_labels.csv")
    if not table.is_file():
        raise FileError(table, f"does not exist, and says which gestures {path.name} holds. Unpack the data set again")
    try:
        with table.open(newline="", encoding="utf-8") as file:
            rows = [(int(row[0]) - 1, (int(row[1]), int(row[2]))) for row in list(csv.reader(file))[1:] if row]
    except (ValueError, IndexError) as error:
        raise FileError(table, f"is no table of class, start and end ({error})") from None
    strange = [label + 1 for label, _ in rows if not 0 <= label < len(CLASSES)]
    if strange:
        raise FileError(table, f"has class {strange[0]}, expected 1 to {len(CLASSES)}")
    return rows
