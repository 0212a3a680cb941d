"""ASL-DVS: hand signs of 24 letters, 240 x 180, a folder of `.mat` files for each letter."""

from dataclasses import dataclass, replace
from pathlib import Path

from event2vec.datasets.dataset import FileDataset, check_root, files_in, find_base, wrong_layout
from event2vec.errors import Event2VecError
from event2vec.events import Sensor
from event2vec.io import Recording

SENSOR = Sensor(240, 180)
CLASSES = tuple("abcdefghiklmnopqrstuvwxy")  # j and z are movements, not signs
TRAIN_PERCENT = 80
PUBLISHED = "https://github.com/PIX2NVS/NVS2Graph"
# Whether columns and rows count from the other end than in an upright picture. The published .mat files count rows
# upwards; SpikingJelly turns that by half for its npz files, so theirs are mirrored.
ORIENTATIONS = {"upright": (False, False), "mat": (False, True), "spikingjelly": (True, False)}
STORED = {".mat": "mat", ".npz": "spikingjelly"}


@dataclass(frozen=True)
class AslDvs(FileDataset):
    """Recordings of both kinds of files, brought to one orientation."""

    orientation: str = "upright"

    def read(self, index: int) -> Recording:
        recording = super().read(index)
        stored = ORIENTATIONS[STORED[self.paths[index].suffix.lower()]]
        mirror, flip = (one != other for one, other in zip(stored, ORIENTATIONS[self.orientation], strict=True))
        events = recording.events
        x = SENSOR.width - 1 - events.x if mirror else events.x
        y = SENSOR.height - 1 - events.y if flip else events.y
        return replace(recording, events=replace(events, x=x, y=y), warnings=())  # the file's way of counting is known

    def fingerprint(self, index: int) -> str:
        return f"{super().fingerprint(index)} {self.orientation}"


def open_asl_dvs(root: Path | None, split: str, *, orientation: str = "upright") -> FileDataset:
    """The data set has no split of its own: the first 80 % of each letter, by name, train.

    A network trained on another orientation is tested on that one: `mat` is how the published files count, and
    `spikingjelly` how its npz files do, whichever of the two kinds lies in `root`.
    """
    if orientation not in ORIENTATIONS:
        raise Event2VecError(f"orientation '{orientation}' is not known; there are {', '.join(ORIENTATIONS)}")
    root = check_root(root, "asl_dvs")
    base = find_base(root, lambda place: (place / "a").is_dir() and (place / "y").is_dir())
    if base is None:
        raise wrong_layout(root, "a folder for each letter from a to y but j, with .mat or .npz files", PUBLISHED)
    found: list[tuple[Path, int]] = []
    for label, letter in enumerate(CLASSES):
        paths = files_in(base / letter, tuple(STORED))
        border = len(paths) * TRAIN_PERCENT // 100
        found += [(path, label) for path in (paths[:border] if split == "train" else paths[border:])]
    return AslDvs.of("asl_dvs", split, CLASSES, base, found, sensor=SENSOR, orientation=orientation)
