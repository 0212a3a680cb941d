"""ASL-DVS: hand signs of 24 letters, 240 x 180, a folder of `.mat` files for each letter."""

from pathlib import Path

from event2vec.datasets.dataset import FileDataset, check_root, files_in, wrong_layout
from event2vec.events import Sensor

SENSOR = Sensor(240, 180)
CLASSES = tuple("abcdefghiklmnopqrstuvwxy")  # j and z are movements, not signs
TRAIN_PERCENT = 80
PUBLISHED = "https://github.com/PIX2NVS/NVS2Graph"


def open_asl_dvs(root: Path | None, split: str) -> FileDataset:
    """The data set has no split of its own: the first 80 % of each letter, by name, train (Sec. 4)."""
    root = check_root(root, "asl_dvs")
    base = next((place for place in (root, root / "events_np") if (place / "a").is_dir()), None)
    if base is None:
        raise wrong_layout(root, "a folder for each letter from a to y but j, with .mat or .npz files", PUBLISHED)
    found: list[tuple[Path, int]] = []
    for label, letter in enumerate(CLASSES):
        paths = files_in(base / letter)
        border = len(paths) * TRAIN_PERCENT // 100
        found += [(path, label) for path in (paths[:border] if split == "train" else paths[border:])]
    return FileDataset.of("asl_dvs", split, CLASSES, base, found, sensor=SENSOR)
