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
from event2vec.data.sampling import draw_positions
from event2vec.documents import read_json
from event2vec.errors import FileError
from event2vec.events import COLUMNS, Events
from event2vec.names import check_class_names, shorten, shown
from event2vec.sensor import Sensor, SensorLike

VERSION = 1
DESCRIPTION = "store.json"
LARGEST_DESCRIPTION = 2**30  # bytes; it names every recording

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
            sensor, events = Sensor(*_numbers(facts, "sensor")), _number(facts.pop("events", None), "events")
            classes, sources, splits = (_texts(facts, name) for name in ("classes", "sources", "splits"))
            check_class_names(classes)
            types = facts.pop("types", None)
            if not isinstance(types, dict):
                raise ValueError(f"types must be one for each column, got {shown(types)}")
            offsets = _read_index(folder / "offsets.npy", len(sources) + 1)
            labels = _read_index(folder / "labels.npy", len(sources))
            columns = {name: _map_column(folder, name, types.get(name), events) for name in COLUMNS}
            _check_index(offsets, labels, events, len(classes), len(sources), len(splits))
        except (TypeError, ValueError, OSError) as error:
            raise FileError(folder, f"is a damaged store: {error}. {_PREPARE_AGAIN}") from None
        rows = np.arange(len(labels))
        return cls(folder, sensor, classes, columns, offsets, labels, sources, splits, facts, rows)

    @classmethod
    def create(
        cls,
        folder: str | Path,
        recordings: Iterable[tuple[Events, int]],
        *,
        sensor: SensorLike,
        classes: Sequence[str],
        splits: Sequence[str] | None = None,
        sources: Sequence[str] | None = None,
    ) -> "EventStore":
        """Write recordings into a new folder, which appears when all of it is there."""
        with StoreWriter(folder, sensor=Sensor.of(sensor), classes=classes) as writer:
            for index, (events, label) in enumerate(recordings):
                split = splits[index] if splits is not None else "train"
                writer.append(events, label, split, sources[index] if sources is not None else str(index))
        return cls.open(folder)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        splits = ", ".join(f"{self.splits.count(name):,} {name}" for name in dict.fromkeys(self.splits))
        return f"EventStore({splits or 'no recordings'}, {len(self.classes)} classes, {self.sensor}, {self.folder})"

    def __getitem__(self, index: int) -> tuple[Events, int]:
        row = self._row(index)
        return self._take(row, slice(int(self.offsets[row]), int(self.offsets[row + 1]))), int(self.all_labels[row])

    def sample(self, index: int, length: int, generator: torch.Generator) -> tuple[Events, int]:
        """The same as `sample_uniform(store[index], ...)`, reading only the rows that are kept."""
        row = self._row(index)
        first, count = int(self.offsets[row]), int(self.offsets[row + 1] - self.offsets[row])
        if count <= length:
            return self[index]
        positions = draw_positions(count, length, generator).cpu().numpy()
        return self._take(row, positions + first), int(self.all_labels[row])

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
            present = shorten(", ".join(sorted(set(names))) or "none")
            raise FileError(self.folder, f"has no split '{name}'; it has {present}")
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

    def _take(self, row: int, rows: slice | NDArray[np.int64]) -> Events:
        """Some events of the recording `row`, by where they are in the columns."""
        x, y, t, p, rho = (self.columns[name][rows] for name in COLUMNS)
        try:
            _check_events(x, y, t, p, rho, self.sensor)
        except ValueError as error:
            recording = f"recording {row} ({shorten(self.all_sources[row])})"
            raise FileError(self.folder, f"is a damaged store: {recording} has {error}. {_PREPARE_AGAIN}") from None
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
    if not path.exists():
        raise FileError(folder, f"is not a store: it has no {DESCRIPTION}. Make one with 'event2vec prepare'")
    facts = read_json(path, LARGEST_DESCRIPTION)
    version = facts.pop("version", None)
    if version != VERSION:
        raise FileError(path, f"has layout version {shown(version)}, this program reads {VERSION}. {_PREPARE_AGAIN}")
    return facts


def _number(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**62:
        raise ValueError(f"{name} must be a whole number, got {shown(value)}")
    return value


def _numbers(facts: dict[str, Any], name: str) -> tuple[int, int]:
    match facts.pop(name, None):
        case [width, height]:
            return _number(width, name), _number(height, name)
        case other:
            raise ValueError(f"{name} must be width and height, got {shown(other)}")


def _texts(facts: dict[str, Any], name: str) -> tuple[str, ...]:
    texts = facts.pop(name, None)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{name} must be a list of texts, got {shown(texts)}")
    return tuple(texts)


def _read_index(path: Path, count: int) -> NDArray[np.int64]:
    """Whole numbers that numpy wrote. What its header claims is compared with the file before memory is taken."""
    size = _size(path)
    with path.open("rb") as file:
        try:
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        except Exception:  # numpy reads the header with Python's own parser, which fails in many ways
            raise ValueError(f"{path.name} is not what numpy writes") from None
        if shape != (count,) or dtype.kind != "i" or size - file.tell() != count * dtype.itemsize:
            found = f"{shown(shape)} of {shown(dtype.str)} in {size:,} bytes"
            raise ValueError(f"{path.name} has {found}, expected {count} whole numbers")
        return np.fromfile(file, dtype, count).astype(np.int64)


def _map_column(folder: Path, name: str, kind: Any, events: int) -> NDArray[Any]:
    if kind not in TYPES[name]:
        raise ValueError(f"column {name} is of type {shown(kind)}, expected {' or '.join(TYPES[name])}")
    if kind == "ones":
        return np.broadcast_to(np.float32(1), events)
    path, dtype = folder / f"{name}.bin", np.dtype(kind)
    size = _size(path)
    if size != events * dtype.itemsize:
        raise ValueError(f"{path.name} has {size} bytes, expected {events} events of {dtype.itemsize}")
    # As a plain array: indexing np.memmap itself costs several times more.
    return np.asarray(np.memmap(path, dtype, mode="r")) if events else np.empty(0, dtype)


def _size(path: Path) -> int:
    if not path.is_file():
        raise ValueError(f"{path.name} {'is not a file' if path.exists() else 'is missing'}")
    return path.stat().st_size


def _check_index(
    offsets: NDArray[np.int64], labels: NDArray[np.int64], events: int, classes: int, sources: int, splits: int
) -> None:
    whole = (
        offsets[0] == 0
        and offsets[-1] == events
        and bool((offsets[1:] >= offsets[:-1]).all())
        and sources == splits
        and (len(labels) == 0 or (labels.min() >= 0 and labels.max() < classes))
    )
    if not whole:
        raise ValueError(f"its index does not fit its {events} events")


def _check_events(
    x: NDArray[Any], y: NDArray[Any], t: NDArray[Any], p: NDArray[Any], rho: NDArray[Any], sensor: Sensor
) -> None:
    """What `Events` promises, of what was read: a damaged store would otherwise train without a word."""
    if len(t) == 0:
        return
    for name, column, side in (("x", x, sensor.width), ("y", y, sensor.height)):
        low = 0 if column.dtype.kind == "u" else column.min()
        if not (low >= 0 and column.max() <= side - 1):  # NaN fails both
            found = column[~((column >= 0) & (column <= side - 1))][0]
            raise ValueError(f"an event at {name} = {found:g} outside the sensor, which is {sensor}")
    if t[0] < 0 or t[-1] >= 2**62 or (t[1:] < t[:-1]).any():
        raise ValueError("times that go back, begin below 0 or are too large")
    if p.view(np.uint8).max() > 1:
        raise ValueError("polarities other than 0 and 1")
    if rho.strides != (0,) and not (rho.min() >= 1 and rho.max() < 2**53):
        raise ValueError("rho below 1 or not a number")


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
            self.file.write(values.astype(self.kind).data)  # not `tofile`, which does not say why it fails
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
                file.write(values.astype(self.kind).data)
        self.__exit__()
        wider.replace(self.path)
        self.file = self.path.open("ab")

    def _stored(self, kind: str, start: int, length: int) -> NDArray[Any]:
        assert self.file is not None
        self.file.flush()
        return np.fromfile(self.path, kind, count=length, offset=start * np.dtype(kind).itemsize)
