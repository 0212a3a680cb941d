"""EventStore: what training reads. Recordings as memory-mapped columns on disk."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from event2vec.data.store_layout import DESCRIPTION, LABELS, OFFSETS, PIXELS, SETS, VERSION
from event2vec.data.store_writer import StoreWriter
from event2vec.data.uniform import draw_positions
from event2vec.data.windows import Windows
from event2vec.documents import read_json
from event2vec.errors import Event2VecError, FileError
from event2vec.events import COLUMNS, Events
from event2vec.names import check_class_names, counted, shorten, shown
from event2vec.sensor import Sensor, SensorLike
from event2vec.settings import build_settings

LARGEST_DESCRIPTION = 2**30  # bytes; it names every recording


@dataclass(frozen=True, eq=False)
class EventStore:
    """A folder of recordings with labels, or some of them: `split` and `subset` share the files.

    A recording may have been clustered several times, from different seeds. These sets are next to each other in the
    columns, numbered from 0. A store shows the first set of each recording; `sets` gives access to the others.
    """

    folder: Path
    sensor: Sensor
    classes: tuple[str, ...]
    columns: dict[str, NDArray[Any]]
    offsets: NDArray[np.int64]  # where each recording starts, and where the last one ends
    all_labels: NDArray[np.int64]
    all_sets: NDArray[np.int64]  # the number of each set of clusters in its recording; 0 is the first or only one
    all_sources: tuple[str, ...]
    all_splits: tuple[str, ...]
    all_groups: tuple[str, ...]  # what each belongs to, such as a person; recordings of one group stay together
    facts: dict[str, Any]  # everything else in store.json
    rows: NDArray[np.int64]  # the recordings that this store shows

    @classmethod
    def open(cls, folder: str | Path) -> "EventStore":
        """Map a complete store into memory; anything else is an error that says what is wrong."""
        folder = Path(folder)
        facts = _read_description(folder)
        try:
            sensor, events = Sensor(*_numbers(facts, "sensor")), _number(facts.pop("events", None), "events")
            classes, sources, splits, groups = (
                _texts(facts, name) for name in ("classes", "sources", "splits", "groups")
            )
            check_class_names(classes)
            types = facts.pop("types", None)
            if not isinstance(types, dict):
                raise ValueError(f"types must name one type for each column, got {shown(types)}")
            offsets = _read_index(folder / OFFSETS, len(sources) + 1)
            labels, sets = (_read_index(folder / name, len(sources)) for name in (LABELS, SETS))
            columns = {name: _map_column(folder, name, types.get(name), events) for name in COLUMNS}
            _check_index(offsets, labels, events, len(classes), len(sources), {len(splits), len(groups)})
            _check_sets(sets, labels, splits, sources, groups)
        except (TypeError, ValueError, OSError) as error:
            raise FileError(folder, f"is a damaged store: {error}. {_PREPARE_AGAIN}") from None
        rows = np.flatnonzero(sets == 0)
        return cls(folder, sensor, classes, columns, offsets, labels, sets, sources, splits, groups, facts, rows)

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
        sets: Sequence[int] | None = None,
        groups: Sequence[str] | None = None,
    ) -> "EventStore":
        """Write recordings into a new folder, which appears once it is complete.

        `sets` numbers the sets of clusters of each recording: 0, 1, 0, 1 means two recordings with two sets each.
        `groups` say which recordings belong together, such as those of one person: they are never divided.
        """
        with StoreWriter(folder, sensor=Sensor.of(sensor), classes=classes) as writer:
            for index, (events, label) in enumerate(recordings):
                number = sets[index] if sets is not None else 0
                split = splits[index] if splits is not None else "train"
                source = sources[index] if sources is not None else str(index - number)
                writer.append(events, label, split, source, number, groups[index] if groups is not None else None)
        return cls.open(folder)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        splits = ", ".join(f"{self.splits.count(name):,} {name}" for name in dict.fromkeys(self.splits))
        classes = counted(len(self.classes), "class", "classes")
        return f"EventStore({splits or 'no recordings'}, {classes}, {self.sensor}, {self.folder})"

    def __getitem__(self, index: int) -> tuple[Events, int]:
        row = self._row(index)
        return self._take(row, slice(int(self.offsets[row]), int(self.offsets[row + 1]))), int(self.all_labels[row])

    def sample(self, index: int, length: int, generator: torch.Generator) -> tuple[Events, int]:
        """Like `sample_uniform(store[index], ...)`, but reads only the events that are kept."""
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
        """The number of events in each recording."""
        return np.diff(self.offsets)[self.rows]

    @property
    def recorded(self) -> NDArray[np.float64]:
        """Events of each recording as the camera gave them: clusters stand for rho each."""
        rho, starts, stops = self.columns["rho"], self.offsets[self.rows], self.offsets[self.rows + 1]
        if rho.strides == (0,):  # all ones
            return self.lengths.astype(np.float64)
        return np.array([rho[start:stop].sum(dtype=np.float64) for start, stop in zip(starts, stops, strict=True)])

    @property
    def durations(self) -> NDArray[np.int64]:
        """Microseconds from the first event of each recording to its last; 0 without events."""
        t, starts, stops = self.columns["t"], self.offsets[self.rows], self.offsets[self.rows + 1]
        filled = stops > starts
        found = np.zeros(len(self), np.int64)
        found[filled] = t[stops[filled] - 1].astype(np.int64) - t[starts[filled]].astype(np.int64)
        return found

    @property
    def windows(self) -> Windows | None:
        """What its recordings were cut by; None: they are whole."""
        found = self.facts.get("windows")
        try:
            return None if found is None else build_settings(Windows, found, "windows")
        except Event2VecError as error:
            raise FileError(self.folder, f"is a damaged store: {error}. {_PREPARE_AGAIN}") from None

    @property
    def sources(self) -> tuple[str, ...]:
        """Where each recording came from."""
        return tuple(self.all_sources[row] for row in self.rows)

    @property
    def groups(self) -> tuple[str, ...]:
        """What each recording belongs to; one that belongs to nothing has its source as its group."""
        return tuple(self.all_groups[row] for row in self.rows)

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

    def with_classes(self, classes: Sequence[str]) -> "EventStore":
        """The same recordings, with labels that count in these classes, which must have all of theirs."""
        if tuple(classes) == self.classes:
            return self
        strange = [name for name in {self.classes[label]: None for label in self.labels} if name not in classes]
        if strange:
            known = shorten(", ".join(classes), 200)
            raise FileError(self.folder, f"has recordings of {shown(strange[0])}, expected one of the classes {known}")
        numbers = np.array([classes.index(name) if name in classes else -1 for name in self.classes], np.int64)
        return replace(self, classes=tuple(classes), all_labels=numbers[self.all_labels])

    def divided(self, splits: Sequence[str]) -> "EventStore":
        """The same recordings in other splits, one for each; nothing on the disk changes."""
        names = list(self.all_splits)
        for row, name in zip(self.rows.tolist(), splits, strict=True):
            names[row] = name
        return replace(self, all_splits=tuple(names))

    def sets(self, name: str) -> tuple["EventStore", ...]:
        """A split, once for each set of clusters of its recordings; the first is `split(name)`."""
        firsts = np.flatnonzero(self.all_sets == 0)
        rows = self.split(name).rows
        rows = rows - self.all_sets[rows]
        counts = np.diff(firsts, append=len(self.all_sets))[np.searchsorted(firsts, rows)]
        if counts.min() != counts.max():
            found = f"{counts.min()} to {counts.max()} sets of clusters per recording in '{shorten(name)}'"
            raise FileError(self.folder, f"has {found}, expected equally many. {_PREPARE_AGAIN}")
        return tuple(self._show(rows + number) for number in range(counts[0]))

    def subset(self, indices: Sequence[int] | NDArray[np.int64]) -> "EventStore":
        """These recordings, in this order."""
        return self._show(self.rows[np.asarray(indices, dtype=np.int64)])

    def _show(self, rows: NDArray[np.int64]) -> "EventStore":
        return replace(self, rows=rows)

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker process maps the files itself; pickling the maps would copy all the events.
        return _reopen, (self.folder, self.rows, self.all_splits, self.classes, self.all_labels)

    def _row(self, index: int) -> int:
        if not -len(self) <= index < len(self):
            raise IndexError(f"no recording {index}: the store has {counted(len(self), 'recording')}")
        return int(self.rows[index])

    def _take(self, row: int, rows: slice | NDArray[np.int64]) -> Events:
        """Some events of the recording `row`, by their positions in the columns."""
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
            # Without a rho column, rho is a single 1 expanded to n events, as in Events.from_arrays.
            torch.ones(()).expand(len(t)) if rho.strides == (0,) else torch.from_numpy(rho.astype(np.float32)),
            self.sensor,
        )


_PREPARE_AGAIN = "Remove the folder and prepare it again"


def _reopen(
    folder: Path,
    rows: NDArray[np.int64],
    splits: tuple[str, ...],
    classes: tuple[str, ...],
    labels: NDArray[np.int64],
) -> EventStore:
    return replace(EventStore.open(folder), rows=rows, all_splits=splits, classes=classes, all_labels=labels)


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
            raise ValueError(f"{name} must be a width and a height, got {shown(other)}")


def _texts(facts: dict[str, Any], name: str) -> tuple[str, ...]:
    texts = facts.pop(name, None)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{name} must be a list of strings, got {shown(texts)}")
    return tuple(texts)


def _read_index(path: Path, count: int) -> NDArray[np.int64]:
    """Integers saved by numpy. The size in the header is compared with the file before memory is reserved."""
    size = _size(path)
    with path.open("rb") as file:
        try:
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        except Exception:  # numpy parses headers with Python's parser, which raises many kinds of errors
            raise ValueError(f"{path.name} is not a NumPy file") from None
        if shape != (count,) or dtype.kind != "i" or size - file.tell() != count * dtype.itemsize:
            found = f"{shown(shape)} of {shown(dtype.str)} in {size:,} bytes"
            raise ValueError(f"{path.name} has {found}, expected {count} whole numbers")
        return np.fromfile(file, dtype, count).astype(np.int64)


def _map_column(folder: Path, name: str, kind: Any, events: int) -> NDArray[Any]:
    if kind not in PIXELS[name]:
        raise ValueError(f"column {name} is of type {shown(kind)}, expected {' or '.join(PIXELS[name])}")
    if kind == "ones":
        return np.broadcast_to(np.float32(1), events)
    path, dtype = folder / f"{name}.bin", np.dtype(kind)
    size = _size(path)
    if size != events * dtype.itemsize:
        raise ValueError(f"{path.name} has {size:,} bytes, expected {events:,} events of {dtype.itemsize} bytes each")
    # As a plain array: indexing np.memmap itself takes several times as long.
    return np.asarray(np.memmap(path, dtype, mode="r")) if events else np.empty(0, dtype)


def _size(path: Path) -> int:
    if not path.is_file():
        raise ValueError(f"{path.name} {'is not a file' if path.exists() else 'is missing'}")
    return path.stat().st_size


def _check_index(
    offsets: NDArray[np.int64], labels: NDArray[np.int64], events: int, classes: int, sources: int, others: set[int]
) -> None:
    whole = (
        offsets[0] == 0
        and offsets[-1] == events
        and bool((offsets[1:] >= offsets[:-1]).all())
        and others == {sources}
        and (len(labels) == 0 or (labels.min() >= 0 and labels.max() < classes))
    )
    if not whole:
        raise ValueError(f"its index does not match its {counted(events, 'event')}")


def _check_sets(
    sets: NDArray[np.int64],
    labels: NDArray[np.int64],
    splits: Sequence[str],
    sources: Sequence[str],
    groups: Sequence[str],
) -> None:
    """Each further set must follow the previous one of the same recording."""
    further = np.flatnonzero(sets)
    follows = bool((sets[further] == sets[further - 1] + 1).all()) and (len(sets) == 0 or sets[0] == 0)
    same = bool((labels[further] == labels[further - 1]).all()) and all(
        all(names[row] == names[row - 1] for names in (splits, sources, groups)) for row in further.tolist()
    )
    if not (follows and same):
        raise ValueError("its sets of clusters do not match its recordings")


def _check_events(
    x: NDArray[Any], y: NDArray[Any], t: NDArray[Any], p: NDArray[Any], rho: NDArray[Any], sensor: Sensor
) -> None:
    """Check what `Events` guarantees: training would not notice a damaged store otherwise."""
    if len(t) == 0:
        return
    for name, column, side in (("x", x, sensor.width), ("y", y, sensor.height)):
        low = 0 if column.dtype.kind == "u" else column.min()
        if not (low >= 0 and column.max() <= side - 1):  # NaN fails both
            found = column[~((column >= 0) & (column <= side - 1))][0]
            raise ValueError(f"an event at {name} = {found:g} outside the sensor, which is {sensor}")
    if t[0] < 0 or t[-1] >= 2**62 or (t[1:] < t[:-1]).any():
        raise ValueError("times that decrease, are negative or are too large")
    if p.view(np.uint8).max() > 1:
        raise ValueError("polarities other than 0 and 1")
    if rho.strides != (0,) and not (rho.min() >= 1 and rho.max() < 2**53):
        raise ValueError("rho below 1 or not a number")
