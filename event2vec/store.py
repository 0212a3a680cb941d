"""EventStore: recordings as columns on disk, memory-mapped; what training reads."""

import itertools
import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray

from event2vec.atomic import whole_folder
from event2vec.errors import FileError
from event2vec.events import COLUMNS, Events, Sensor
from event2vec.sampling import draw_positions

VERSION = 1
DESCRIPTION = "store.json"

# Each column starts in the first type and moves to the next when a recording needs it.
TYPES: dict[str, tuple[str, ...]] = {
    "x": ("<u2", "<f4"),  # fractional for cluster centres
    "y": ("<u2", "<f4"),
    "t": ("<u4", "<i8"),  # 71 minutes fit in 32 bits
    "p": ("|b1",),
    "rho": ("ones", "<f4"),  # no file while every event stands for itself
}


@dataclass(frozen=True, eq=False)
class EventStore:
    """A folder of recordings with labels, or some of them: `split` and `subset` share the files."""

    folder: Path
    sensor: Sensor
    classes: tuple[str, ...]
    columns: dict[str, NDArray[Any]]
    offsets: NDArray[np.int64]  # where each recording starts; one more at the end
    all_labels: NDArray[np.int64]
    all_sources: tuple[str, ...]
    all_splits: tuple[str, ...]
    facts: dict[str, Any]  # what else the writer noted in store.json
    rows: NDArray[np.int64]  # the recordings that this store shows

    @classmethod
    def open(cls, folder: str | Path) -> "EventStore":
        """Map a store that was written whole; anything else is an error that says what is wrong."""
        folder = Path(folder)
        facts = _read_description(folder)
        try:
            sensor, classes = Sensor(*facts.pop("sensor")), tuple(facts.pop("classes"))
            sources, splits = tuple(facts.pop("sources")), tuple(facts.pop("splits"))
            types, events = dict(facts.pop("types")), int(facts.pop("events"))
            offsets = np.load(folder / "offsets.npy", allow_pickle=False)
            labels = np.load(folder / "labels.npy", allow_pickle=False)
            columns = {name: _map_column(folder, name, types[name], events) for name in COLUMNS}
            _check_index(folder, offsets, labels, events, len(classes), len(sources), len(splits))
        except FileError:
            raise
        except (KeyError, TypeError, ValueError, OSError, EOFError) as error:
            raise FileError(folder, f"is a damaged store ({error!r}). {_PREPARE_AGAIN}") from None
        rows = np.arange(len(labels))
        return cls(folder, sensor, classes, columns, offsets, labels, sources, splits, facts, rows)

    @classmethod
    def create(
        cls,
        folder: str | Path,
        recordings: Iterable[tuple[Events, int]],
        *,
        sensor: Sensor,
        classes: Sequence[str],
        splits: Sequence[str] | None = None,
        sources: Sequence[str] | None = None,
    ) -> "EventStore":
        """Write recordings into a new folder, which appears when all of it is there."""
        with StoreWriter(folder, sensor=sensor, classes=classes) as writer:
            for index, (events, label) in enumerate(recordings):
                split = splits[index] if splits is not None else "train"
                writer.append(events, label, split, sources[index] if sources is not None else str(index))
        return cls.open(folder)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Events, int]:
        row = self._row(index)
        return self._take(slice(int(self.offsets[row]), int(self.offsets[row + 1]))), int(self.all_labels[row])

    def sample(self, index: int, length: int, generator: torch.Generator) -> tuple[Events, int]:
        """The same as `sample_uniform(store[index], ...)`, reading only the rows that are kept."""
        row = self._row(index)
        first, count = int(self.offsets[row]), int(self.offsets[row + 1] - self.offsets[row])
        if count <= length:
            return self[index]
        positions = draw_positions(count, length, generator).cpu().numpy()
        return self._take(positions + first), int(self.all_labels[row])

    @property
    def labels(self) -> NDArray[np.int64]:
        return self.all_labels[self.rows]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Events in each recording."""
        return np.diff(self.offsets)[self.rows]

    @property
    def sources(self) -> tuple[str, ...]:
        """Where each recording came from."""
        return tuple(self.all_sources[row] for row in self.rows)

    @property
    def splits(self) -> tuple[str, ...]:
        """The split that each recording belongs to."""
        return tuple(self.all_splits[row] for row in self.rows)

    def split(self, name: str) -> "EventStore":
        """The recordings of one split, such as "train" or "test"."""
        names = self.splits
        if name not in names:
            raise FileError(self.folder, f"has no split '{name}'; it has {', '.join(sorted(set(names))) or 'none'}")
        return self.subset([index for index, split in enumerate(names) if split == name])

    def sets(self, name: str) -> tuple["EventStore", ...]:
        """A split, once for each set of clusters that was made of its recordings."""
        sets = {split: self.split(split) for split in self.names_of_sets(name)}
        for split, one in sets.items():
            if one.sources != sets[name].sources:
                raise FileError(self.folder, f"has other recordings in '{split}' than in '{name}'")
        return tuple(sets.values())

    def names_of_sets(self, name: str) -> list[str]:
        """The split itself, and those that hold further sets of clusters of its recordings (`name_of_set`)."""
        present = set(self.splits)
        further = (name_of_set(name, number) for number in itertools.count(2))
        return [name, *itertools.takewhile(present.__contains__, further)]

    def subset(self, indices: Sequence[int] | NDArray[np.int64]) -> "EventStore":
        """These recordings, in this order."""
        return self._show(self.rows[np.asarray(indices, dtype=np.int64)])

    def _show(self, rows: NDArray[np.int64]) -> "EventStore":
        return replace(self, rows=rows)

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker process maps the files itself; pickling the maps would copy all the events.
        return _reopen, (self.folder, self.rows)

    def _row(self, index: int) -> int:
        if not -len(self) <= index < len(self):
            raise IndexError(f"recording {index} of a store with {len(self)}")
        return int(self.rows[index])

    def _take(self, rows: slice | NDArray[np.int64]) -> Events:
        x, y, t, p, rho = (self.columns[name][rows] for name in COLUMNS)
        return Events(
            torch.from_numpy(x.astype(np.float32)),
            torch.from_numpy(y.astype(np.float32)),
            torch.from_numpy(t.astype(np.int64)),
            torch.from_numpy(p.astype(np.bool_)),
            # An absent rho is one number seen `n` times, as in Events.from_arrays.
            torch.ones(()).expand(len(t)) if rho.strides == (0,) else torch.from_numpy(rho.astype(np.float32)),
            self.sensor,
        )


def name_of_set(split: str, number: int) -> str:
    """The split that holds a set of clusters: "train" the first, "train 2" the second."""
    return split if number == 1 else f"{split} {number}"


_PREPARE_AGAIN = "Remove the folder and prepare it again"


def _reopen(folder: Path, rows: NDArray[np.int64]) -> EventStore:
    return EventStore.open(folder)._show(rows)


def _read_description(folder: Path) -> dict[str, Any]:
    path = folder / DESCRIPTION
    if not folder.is_dir():
        raise FileError(folder, "is not a folder, expected a store made by 'event2vec prepare'")
    if not path.is_file():
        raise FileError(folder, f"is not a store: it has no {DESCRIPTION}. Make one with 'event2vec prepare'")
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        version = facts.pop("version")
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise FileError(path, f"cannot be read as the description of a store ({error!r}). {_PREPARE_AGAIN}") from None
    if version != VERSION:
        raise FileError(path, f"has layout version {version}, this program reads {VERSION}. {_PREPARE_AGAIN}")
    return facts


def _map_column(folder: Path, name: str, kind: str, events: int) -> NDArray[Any]:
    if kind not in TYPES[name]:
        raise ValueError(f"column {name} of type {kind}")
    if kind == "ones":
        return np.broadcast_to(np.float32(1), events)
    path, dtype = folder / f"{name}.bin", np.dtype(kind)
    size = path.stat().st_size if path.is_file() else -1
    if size != events * dtype.itemsize:
        raise FileError(path, f"has {size} bytes, expected {events} events of {dtype.itemsize}. {_PREPARE_AGAIN}")
    # As a plain array: indexing np.memmap itself costs several times more.
    return np.asarray(np.memmap(path, dtype, mode="r")) if events else np.empty(0, dtype)


def _check_index(folder: Path, offsets: Any, labels: Any, events: int, classes: int, sources: int, splits: int) -> None:
    whole = (
        (offsets.ndim, labels.ndim, offsets.dtype.kind, labels.dtype.kind) == (1, 1, "i", "i")
        and offsets.shape == (len(labels) + 1,)
        and offsets[0] == 0
        and offsets[-1] == events
        and bool((np.diff(offsets) >= 0).all())
        and sources == splits == len(labels)
        and (len(labels) == 0 or (labels.min() >= 0 and labels.max() < classes))
    )
    if not whole:
        raise FileError(folder, f"is a damaged store: its index does not fit its {events} events. {_PREPARE_AGAIN}")


class StoreWriter:
    """Write a store recording by recording. Leaving the `with` block makes the folder appear, an error does not."""

    def __init__(self, folder: str | Path, *, sensor: Sensor, classes: Sequence[str], **facts: Any) -> None:
        self.folder = Path(folder)
        if self.folder.exists():
            raise FileError(self.folder, "exists already. Remove it or choose another name")
        self.sensor, self.classes, self.facts = sensor, tuple(classes), facts
        self.offsets, self.labels = [0], list[int]()
        self.sources, self.splits = list[str](), list[str]()
        self.cleanup = ExitStack()

    def __enter__(self) -> "StoreWriter":
        self.work = self.cleanup.enter_context(whole_folder(self.folder))
        self.columns = {
            name: self.cleanup.enter_context(_Column(self.work / f"{name}.bin", TYPES[name])) for name in COLUMNS
        }
        return self

    def append(self, events: Events, label: int, split: str, source: str) -> None:
        if events.sensor != self.sensor:
            raise ValueError(f"{source}: the store is for a sensor of {self.sensor}, got {events.sensor}")
        if not 0 <= label < len(self.classes):
            raise ValueError(f"{source}: label {label}, expected one of {len(self.classes)} classes")
        for name, column in self.columns.items():
            column.append(getattr(events, name).cpu().numpy())
        self.offsets.append(self.offsets[-1] + len(events))
        self.labels.append(label)
        self.splits.append(split)
        self.sources.append(source)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self.cleanup:
            if error is not None:
                raise error  # inside, so that the folder does not take its name
            np.save(self.work / "offsets.npy", np.array(self.offsets, np.int64))
            np.save(self.work / "labels.npy", np.array(self.labels, np.int64))
            self._describe()

    def _describe(self) -> None:
        description = {
            "version": VERSION,
            "sensor": [self.sensor.width, self.sensor.height],
            "classes": self.classes,
            "events": self.offsets[-1],
            "types": {name: column.kind for name, column in self.columns.items()},
            **self.facts,
            "splits": self.splits,
            "sources": self.sources,
        }
        (self.work / DESCRIPTION).write_text(json.dumps(description, indent=1), encoding="utf-8")


class _Column:
    """One file of values, in the smallest of its types that holds them all."""

    def __init__(self, path: Path, types: tuple[str, ...]) -> None:
        self.path = path
        self.kind, *self.wider = types
        self.count = 0
        self.file: BinaryIO | None = None

    def __enter__(self) -> "_Column":
        if self.kind != "ones":
            self.file = self.path.open("wb")
        return self

    def __exit__(self, *_: object) -> None:
        if self.file:
            self.file.close()

    def append(self, values: NDArray[Any]) -> None:
        while not self._holds(values):
            self._widen()
        if self.file:
            values.astype(self.kind).tofile(self.file)
        self.count += len(values)

    def _holds(self, values: NDArray[Any]) -> bool:
        if not self.wider or len(values) == 0:
            return True
        if self.kind == "ones":
            return bool((values == 1).all())
        return bool(values.min() >= 0 and (values.astype(self.kind) == values).all())

    def _widen(self) -> None:
        """Write what is there already once more, in the next type."""
        old, (self.kind, *self.wider) = self.kind, self.wider
        wider = self.path.with_suffix(".wider")
        with wider.open("wb") as file:
            for start in range(0, self.count, 1 << 20):
                length = min(1 << 20, self.count - start)
                values = np.ones(length) if old == "ones" else self._stored(old, start, length)
                values.astype(self.kind).tofile(file)
        self.__exit__()
        wider.replace(self.path)
        self.file = self.path.open("ab")

    def _stored(self, kind: str, start: int, length: int) -> NDArray[Any]:
        assert self.file is not None
        self.file.flush()
        return np.fromfile(self.path, kind, count=length, offset=start * np.dtype(kind).itemsize)
