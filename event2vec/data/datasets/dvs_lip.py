"""DVS-Lip: spoken words, 128 x 128, `train/<word>/*.npy` and `test/<word>/*.npy`."""

from pathlib import Path

from event2vec.data.datasets.dataset import (
    FileDataset,
    check_root,
    class_names,
    files_by_class,
    find_base,
    wrong_layout,
)
from event2vec.sensor import Sensor

SENSOR = Sensor(128, 128)
PUBLISHED = "https://sites.google.com/view/event-based-lipreading"


def open_dvs_lip(root: Path | None, split: str) -> FileDataset:
    root = check_root(root, "dvs_lip")
    base = find_base(root, lambda place: (place / "train").is_dir() and (place / "test").is_dir())
    if base is None:
        raise wrong_layout(root, "train/<word> and test/<word> with .npy or .npz files", PUBLISHED)
    words = class_names(sorted(path for path in (base / "train").iterdir() if path.is_dir()))
    strangers = sorted({path.name for path in (base / "test").iterdir() if path.is_dir()} - set(words))
    if strangers or not words:
        raise wrong_layout(
            base / "test", f"the same words as in train/, without {', '.join(strangers[:5]) or 'any'}", PUBLISHED
        )
    found = files_by_class((base / split / word for word in words), (".npy", ".npz"))
    return FileDataset.of("dvs_lip", split, words, base, found, sensor=SENSOR)
