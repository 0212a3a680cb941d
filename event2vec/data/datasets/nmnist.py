"""N-MNIST: handwritten digits shown to a moving camera, 34 x 34, `Train/<digit>/*.bin` and `Test/<digit>/*.bin`."""

from pathlib import Path

from event2vec.data.datasets.dataset import FileDataset, check_root, files_by_class, find_base, wrong_layout
from event2vec.sensor import Sensor

SENSOR = Sensor(34, 34)
CLASSES = tuple(str(digit) for digit in range(10))
PUBLISHED = "https://www.garrickorchard.com/datasets/n-mnist"


def open_nmnist(root: Path | None, split: str) -> FileDataset:
    root = check_root(root, "nmnist")
    base = find_base(root, lambda place: (place / "Train").is_dir() and (place / "Test").is_dir())
    if base is None:
        raise wrong_layout(root, "Train/0 to Train/9 and Test/0 to Test/9 with .bin files", PUBLISHED)
    folder = base / split.capitalize()
    found = files_by_class((folder / digit for digit in CLASSES), (".bin",))
    if not found:
        raise wrong_layout(folder, "folders 0 to 9 with .bin files", PUBLISHED)
    return FileDataset.of("nmnist", split, CLASSES, base, found, sensor=SENSOR)
