"""What every data set offers: recordings with labels, classes and one split."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from event2vec.errors import FileError
from event2vec.events import Events
from event2vec.io import Recording, read_recording
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

    @abstractmethod
    def read(self, index: int) -> Recording:
        """One recording and the facts about its file."""

    @abstractmethod
    def fingerprint(self, index: int) -> str:
        """Changes when the recording would come out differently; work that stopped is taken up by it."""

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> tuple[Events, int]:
        return self.read(index).events, self.labels[index]


@dataclass(frozen=True)
class FileDataset(Dataset):
    """One file for each recording."""

    paths: tuple[Path, ...]
    sensor: Sensor | None = None  # None: as each file says
    columns: str | None = None
    time_unit: str | None = None

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
        """From paths with their labels; sources are named from `base` on."""
        paths = tuple(path for path, _ in found)
        sources = tuple(str(path.relative_to(base)) for path in paths)
        return cls(name, split, classes, sources, tuple(label for _, label in found), paths, **options)

    def read(self, index: int) -> Recording:
        return read_recording(self.paths[index], sensor=self.sensor, columns=self.columns, time_unit=self.time_unit)

    def fingerprint(self, index: int) -> str:
        return f"{file_fingerprint(self.paths[index])} {self.sensor} {self.columns} {self.time_unit}"


def file_fingerprint(path: Path) -> str:
    try:
        facts = path.stat()
    except OSError:
        return "missing"
    return f"{facts.st_size} {facts.st_mtime_ns}"


def files_in(folder: Path, suffixes: tuple[str, ...] = ()) -> list[Path]:
    """Every file below a folder by name, but for the hidden ones that file managers leave.

    A link to nowhere or a pipe counts: it is a recording that the user meant to have, and reading it says what is
    wrong.
    """
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    seen = (path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts))
    return sorted(path for path in seen if not suffixes or path.suffix.lower() in suffixes)


def files_by_class(folders: Iterable[Path], suffixes: tuple[str, ...] = ()) -> list[tuple[Path, int]]:
    """All files with their labels, from one folder for each class."""
    return [(path, label) for label, folder in enumerate(folders) for path in files_in(folder, suffixes)]


def class_names(folders: Iterable[Path]) -> tuple[str, ...]:
    """The names of folders, in their order, as names of classes; those that cannot be are refused before any work."""
    names = []
    for folder in folders:
        try:
            check_class_names([folder.name])
        except ValueError as error:
            raise FileError(folder, f"cannot be used as a class name: {error}. Rename the folder") from None
        names.append(folder.name)
    return tuple(names)


def find_base(root: Path, fits: Callable[[Path], bool]) -> Path | None:
    """Where a data set begins: at the root, or up to two folders down, as archives are often unpacked."""
    levels = ([root], root.glob("*/"), root.glob("*/*/"))
    return next((place for level in levels for place in sorted(level) if fits(place)), None)


def check_root(root: Path | None, name: str) -> Path:
    if root is None:
        raise FileError(name, "is read from a folder. Say where it is: --root FOLDER")
    if not root.is_dir():
        problem = "is not a folder" if root.exists() else "does not exist"
        raise FileError(root, f"{problem}, expected the folder of the data set '{name}'")
    return root


def wrong_layout(root: Path, looked_for: str, published: str) -> FileError:
    """The error for a root that is not what its data set looks like when unpacked."""
    entries = sorted(path.name + ("/" if path.is_dir() else "") for path in root.iterdir())
    found = ", ".join(entries[:8]) + (f" and {len(entries) - 8} more" if len(entries) > 8 else "")
    return FileError(root, f"has {found or 'nothing in it'}; looked for {looked_for}. Published at {published}")
