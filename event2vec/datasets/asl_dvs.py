"""ASL-DVS: hand signs of 24 letters, 240 x 180, a folder of `.mat` files for each letter."""

from pathlib import Path

from event2vec.datasets.dataset import FileDataset, check_root, files_in, find_base, wrong_layout
from event2vec.events import Sensor

SENSOR = Sensor(240, 180)
CLASSES = tuple("abcdefghiklmnopqrstuvwxy")  # j and z are movements, not signs
TRAIN_PERCENT = 80
PUBLISHED = "https://github.com/PIX2NVS/NVS2Graph"


def open_asl_dvs(root: Path | None, split: str) -> FileDataset:
    """The data set has no split of its own: the first 80 % of each letter, by name, train.

    Coordinates are taken as they stand. SpikingJelly turns the picture by half when it makes its npz files, so a
    network trained on one kind should not be tested on the other.
    """
    root = check_root(root, "asl_dvs")
    base = find_base(root, lambda place: (place / "a").is_dir() and (place / "y").is_dir())
    if base is None:
        raise wrong_layout(root, "a folder for each letter from a to y but j, with .mat or .npz files", PUBLISHED)
    found: list[tuple[Path, int]] = []
    for label, letter in enumerate(CLASSES):
        paths = files_in(base / letter, (".mat", ".npz"))
        border = len(paths) * TRAIN_PERCENT // 100
        found += [(path, label) for path in (paths[:border] if split == "train" else paths[border:])]
    return FileDataset.of("asl_dvs", split, CLASSES, base, found, sensor=SENSOR)
