"""DVS Gesture: eleven hand and arm gestures, 128 x 128, from AEDAT 3.1 with label files or SpikingJelly's folders."""

import csv
from pathlib import Path

from event2vec.data.datasets.dataset import Dataset, FileDataset, check_root, files_by_class, find_base, wrong_layout
from event2vec.data.datasets.spans import SpanDataset
from event2vec.data.labels import Span, labels_beside
from event2vec.documents import read_text
from event2vec.errors import FileError
from event2vec.names import UNPRINTABLE, excerpt, shown
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


def _person(path: Path) -> str:
    """Files are called user01_fluorescent.aedat, or user01_fluorescent_0.npz."""
    return path.name.partition("_")[0]


def open_dvs_gesture(root: Path | None, split: str) -> Dataset:
    root = check_root(root, "dvs_gesture")
    if base := find_base(root, lambda place: (place / f"trials_to_{split}.txt").is_file()):
        return _open_raw(base, split)
    if base := find_base(root, lambda place: (place / split / "0").is_dir()):
        folders = (base / split / str(label) for label in range(len(CLASSES)))
        found = files_by_class(folders, (".npz",))
        people = tuple(_person(path) for path, _ in found)
        return FileDataset.of("dvs_gesture", split, CLASSES, base, found, sensor=SENSOR, groups=people)
    layout = f"trials_to_{split}.txt with .aedat files, or {split}/0 to {split}/10 with .npz files"
    raise wrong_layout(root, layout, PUBLISHED)


def _open_raw(base: Path, split: str) -> SpanDataset:
    listed = base / f"trials_to_{split}.txt"
    trials = read_text(listed, LARGEST_TABLE).split()
    if not trials:
        raise FileError(listed, f"names no files. Unpack the data set again, from {PUBLISHED}")
    if strange := next((trial for trial in trials if not _is_file_name(trial)), None):
        raise FileError(listed, f"names {shown(strange)}, expected a file beside it. {AGAIN}")
    found: list[tuple[str, int, Path, Span, str, str]] = []
    for path in (base / trial for trial in trials):
        try:
            gestures = [(label, window, "") for label, window in _labels(path)]
        except FileError as error:  # raised when it is read, so that the other files are still used
            gestures = [(0, (0, 0), str(error))]
        for number, (label, window, problem) in enumerate(gestures, 1):
            span = Span("", *window, CLASSES[label], on_clock=True)
            found.append((f"{path.name}#{number}", label, path, span, _person(path), problem))
    if not found:
        raise FileError(listed, f"names files without a gesture. {AGAIN}")
    names, labels, paths, spans, people, problems = zip(*found, strict=True)
    return SpanDataset("dvs_gesture", split, CLASSES, names, labels, paths, spans, people, problems, SENSOR)


def _is_file_name(name: str) -> bool:
    return len(name) <= LONGEST_NAME and "/" not in name and not UNPRINTABLE.search(name)


def _labels(path: Path) -> list[tuple[int, tuple[int, int]]]:
    """(class, (start, stop)) of each gesture in a file; classes count from 1 there and from 0 here."""
    table = labels_beside(path)
    if not table.is_file():
        raise FileError(table, f"does not exist; it names the gestures of the recording. {AGAIN}")
    lines = read_text(table, LARGEST_TABLE).splitlines()[1:]
    try:
        rows = [(int(row[0]) - 1, (int(row[1]), int(row[2]))) for row in csv.reader(lines) if row]
    except (ValueError, IndexError, csv.Error) as error:
        raise FileError(table, f"is not a table of class, start and end ({excerpt(error)})") from None
    strange = [label + 1 for label, _ in rows if not 0 <= label < len(CLASSES)]
    if strange:
        raise FileError(table, f"has class {shown(strange[0])}, expected 1 to {len(CLASSES)}")
    backwards = [window for _, window in rows if not 0 <= window[0] < window[1] < 2**63]
    if backwards:
        raise FileError(table, f"has a gesture from {shown(backwards[0][0])} to {shown(backwards[0][1])} us. {AGAIN}")
    return rows
