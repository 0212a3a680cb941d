"""What every data set offers: recordings with labels, classes and one split."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from event2vec.data.windows import Windows
from event2vec.errors import FileError
from event2vec.events import Events
from event2vec.io import Recording, decode_recording
from event2vec.io.folders import find_recordings
from event2vec.io.recording import Reading
from event2vec.names import check_class_names
from event2vec.sensor import Sensor


@dataclass(frozen=True)
class Dataset(ABC):
    """One split of a data set, read recording by recording."""

    name: str
    split: str
    classes: tuple[str, ...]
    sources: tuple[str, ...]  # what each recording is called in reports
    labels: tuple[int, ...]
    drawn: bool = field(default=False, kw_only=True)  # whether we drew the split, from recordings that came undivided
    windows: Windows | None = field(default=None, kw_only=True)  # what each recording is cut into; None: it stays whole

    @property
    def cut_by(self) -> Windows | None:
        """What the recordings of a store made from this are cut by."""
        return self.windows

    @abstractmethod
    def read(self, index: int) -> Recording:
        """One recording and the facts about its file."""

    @abstractmethod
    def fingerprint(self, index: int) -> str:
        """Changes if the recording would be read differently, so that stopped work is resumed only if it still fits."""

    def group(self, index: int) -> str:
        """What a recording belongs to, such as a person: one group is never divided between splits.

        A recording that belongs to nothing is a group by itself, named as the recording. Windows cut from one recording
        have the group of that recording.
        """
        return self.sources[index]

    def is_in_file_of_last(self, index: int) -> bool:
        """Whether a recording is from the same file as the one before it, so that one worker should read both."""
        return False

    def unused(self, index: int) -> int:
        """Microseconds of its file that belong to no recording, for the first recording of each file; else 0."""
        return 0

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> tuple[Events, int]:
        return self.read(index).events.torch(), self.labels[index]


@dataclass(frozen=True)
class FileDataset(Dataset):
    """One file for each recording."""

    paths: tuple[Path, ...]
    sensor: Sensor | None = None  # None: the one that each file names
    columns: str | None = None
    time_unit: str | None = None
    groups: tuple[str, ...] = ()  # of all recordings; none: each is by itself
    network: Sensor | None = None  # what recordings are brought to, as a network for this sensor reads them

    @classmethod
    def of(
        cls,
        name: str,
        split: str,
        classes: tuple[str, ...],
        base: Path,
        found: Sequence[tuple[Path, int]],
        **options: Any,
    ) -> "FileDataset":
        """From paths with their labels; sources are paths relative to `base`."""
        paths = tuple(path for path, _ in found)
        sources = tuple(str(path.relative_to(base)) for path in paths)
        return cls(name, split, classes, sources, tuple(label for _, label in found), paths, **options)

    def group(self, index: int) -> str:
        return self.groups[index] if self.groups else super().group(index)

    def read(self, index: int) -> Recording:
        recording = decode_recording(self.paths[index], Reading(self.sensor, self.columns, self.time_unit))
        if self.network is None:
            return recording
        return replace(recording, events=recording.on_sensor(self.network), sensor_declared=True)

    def fingerprint(self, index: int) -> str:
        return f"{file_fingerprint(self.paths[index])} {self.sensor} {self.columns} {self.time_unit} {self.network}"


def file_fingerprint(path: Path) -> str:
    try:
        facts = path.stat()
    except OSError:
        return "missing"
    return f"{facts.st_size} {facts.st_mtime_ns}"


def files_in(folder: Path, suffixes: tuple[str, ...] = ()) -> list[Path]:
    """Every file below a folder that may be a recording, sorted by name."""
    found, _ = find_recordings(folder)
    return [path for path in found if not suffixes or path.suffix.lower() in suffixes]


def files_by_class(folders: Iterable[Path], suffixes: tuple[str, ...] = ()) -> list[tuple[Path, int]]:
    """All files with their labels, from one folder per class."""
    return [(path, label) for label, folder in enumerate(folders) for path in files_in(folder, suffixes)]


def class_names(folders: Iterable[Path]) -> tuple[str, ...]:
    """The folders' names as class names, in the same order; unusable ones are refused before any work."""
    names = []
    for folder in folders:
        try:
            check_class_names([folder.name])
        except ValueError as error:
            raise FileError(folder, f"cannot be used as a class name: {error}. Rename the folder") from None
        names.append(folder.name)
    return tuple(names)


def find_base(root: Path, fits: Callable[[Path], bool]) -> Path | None:
    """The folder that holds a data set: the root, or one up to two levels below, as archives are often unpacked."""
    levels = ([root], root.glob("*/"), root.glob("*/*/"))
    return next((place for level in levels for place in sorted(level) if fits(place)), None)


def check_root(root: Path | None, name: str) -> Path:
    if root is None:
        raise FileError(name, "is read from a folder. Set it with `data`")
    if not root.is_dir():
        problem = "is not a folder" if root.exists() else "does not exist"
        expected = f"the folder of the data set '{name}'"
        if name == "folder":
            expected = "the folder with your recordings, one sub-folder for each class"
        raise FileError(root, f"{problem}, expected {expected}")
    return root


def wrong_layout(root: Path, looked_for: str, published: str) -> FileError:
    """The error for a folder that does not look like the unpacked data set."""
    entries = sorted(path.name + ("/" if path.is_dir() else "") for path in root.iterdir())
    found = ", ".join(entries[:8]) + (f" and {len(entries) - 8} more" if len(entries) > 8 else "")
    return FileError(root, f"holds {found or 'nothing'}, expected {looked_for}. Published at {published}")
