"""ASL-DVS: hand signs of 24 letters, 240 x 180, a folder of `.mat` files for each letter."""

from dataclasses import dataclass, replace
from pathlib import Path

from event2vec.data.datasets.dataset import FileDataset, check_root, files_in, find_base, wrong_layout
from event2vec.errors import Event2VecError, FileError
from event2vec.io import Recording
from event2vec.io.arrays import ASL_DVS_SENSOR as SENSOR
from event2vec.io.arrays import TURNED
from event2vec.names import shown

CLASSES = tuple("abcdefghiklmnopqrstuvwxy")  # j and z are movements, not signs
TRAIN_PERCENT = 80
PUBLISHED = "https://github.com/PIX2NVS/NVS2Graph"
# Whether columns and rows are counted from the opposite end, compared with an upright picture. The published .mat files
# count rows upwards, and our reader flips them; SpikingJelly rotates them by 180 degrees, so its files are mirrored.
ORIENTATIONS = {"upright": (False, False), "mat": (False, True), "spikingjelly": (True, False)}
READ = {".mat": "upright", ".npz": "spikingjelly"}


@dataclass(frozen=True)
class AslDvs(FileDataset):
    """Recordings from both kinds of files, in one orientation."""

    orientation: str = "upright"

    def read(self, index: int) -> Recording:
        recording = super().read(index)
        path = self.paths[index]
        if path.suffix.lower() == ".mat" and TURNED not in recording.warnings:
            raise FileError(path, f"is not a file of ASL-DVS: expected the variables ts, x, y, pol within {SENSOR}")
        read = ORIENTATIONS[READ[path.suffix.lower()]]
        mirror, flip = (one != other for one, other in zip(read, ORIENTATIONS[self.orientation], strict=True))
        events = recording.events
        x = SENSOR.width - 1 - events.x if mirror else events.x
        y = SENSOR.height - 1 - events.y if flip else events.y
        warnings = tuple(warning for warning in recording.warnings if warning != TURNED)  # expected in this data set
        return replace(recording, events=replace(events, x=x, y=y), warnings=warnings)

    def fingerprint(self, index: int) -> str:
        return f"{super().fingerprint(index)} {self.orientation}"


def open_asl_dvs(root: Path | None, split: str, *, orientation: str = "upright") -> FileDataset:
    """The data set has no split of its own: the first 80 % of each letter, by name, are for training.

    For networks trained on another orientation, `mat` gives the coordinates of the published files and `spikingjelly`
    those of its npz files, whichever of the two is in `root`.
    """
    if orientation not in ORIENTATIONS:
        raise Event2VecError(f"orientation must be one of {', '.join(ORIENTATIONS)}, got {shown(orientation)}")
    root = check_root(root, "asl_dvs")
    base = find_base(root, lambda place: (place / "a").is_dir() and (place / "y").is_dir())
    if base is None:
        raise wrong_layout(root, "a folder for each letter from a to y except j, with .mat or .npz files", PUBLISHED)
    found: list[tuple[Path, int]] = []
    for label, letter in enumerate(CLASSES):
        paths = files_in(base / letter, tuple(READ))
        border = len(paths) * TRAIN_PERCENT // 100
        found += [(path, label) for path in (paths[:border] if split == "train" else paths[border:])]
    return AslDvs.of("asl_dvs", split, CLASSES, base, found, sensor=SENSOR, orientation=orientation)
