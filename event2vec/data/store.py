"""EventStore: what training reads. Recordings as memory-mapped columns on disk.

torch is imported only where recordings are read: worker processes that prepare a store write numpy arrays.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from event2vec.data.addresses import is_address
from event2vec.data.remote import address_of, local_folder
from event2vec.data.shards import Shard, ShardedColumn, Shards
from event2vec.data.store_layout import DURATIONS, LABELS, OFFSETS, RECORDED, SETS
from event2vec.data.store_reader import (
    PREPARE_AGAIN,
    check_events,
    check_index,
    check_sets,
    map_column,
    read_amounts,
    read_description,
    read_index,
    take_number,
    take_sensor,
    take_texts,
)
from event2vec.data.store_writer import StoreWriter
from event2vec.data.uniform import draw_positions
from event2vec.data.windows import Windows
from event2vec.errors import Event2VecError, FileError
from event2vec.events import COLUMNS, EventBatch, Events, as_array
from event2vec.mersenne import Generator
from event2vec.names import check_class_names, counted, shorten, shown
from event2vec.sensor import Sensor, SensorLike
from event2vec.settings import build_settings


class Measures(NamedTuple):
    """What is known of all recordings without reading them."""

    durations: NDArray[np.int64]
    recorded: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class EventStore:
    """A folder of recordings with labels, or some of them: `split` and `subset` share the files.

        store = EventStore.open("my_store").split("train")
        events, label = store[0]
        store.classes[label]

    A recording may have been clustered several times, from different seeds. These sets are next to each other in the
    columns, numbered from 0. A store shows the first set of each recording; `sets` gives access to the others.
    """

    folder: Path
    sensor: Sensor
    classes: tuple[str, ...]
    columns: Mapping[str, Any]  # arrays, or columns in shards, which are read alike
    offsets: NDArray[np.int64]  # where each recording starts, and where the last one ends
    all_labels: NDArray[np.int64]
    all_sets: NDArray[np.int64]  # the number of each set of clusters in its recording; 0 is the first or only one
    all_sources: tuple[str, ...]
    all_splits: tuple[str, ...]
    all_groups: tuple[str, ...]  # what each belongs to, such as a person; recordings of one group stay together
    facts: dict[str, Any]  # everything else in store.json
    rows: NDArray[np.int64]  # the recordings that this store shows
    measures: Measures | None = None  # of a store in shards

    @classmethod
    def open(cls, folder: str | Path) -> "EventStore":
        """Map a complete store into memory; anything else is an error that says what is wrong.

        An address such as s3://bucket/store is opened through a local cache of the shards in use.
        """
        folder = local_folder(str(folder)) if is_address(folder) else Path(folder)
        facts = read_description(folder)
        try:
            sensor, events = take_sensor(facts), take_number(facts, "events")
            classes, sources, splits, groups = (
                take_texts(facts, name) for name in ("classes", "sources", "splits", "groups")
            )
            check_class_names(classes)
            offsets = read_index(folder / OFFSETS, len(sources) + 1)
            labels, sets = (read_index(folder / name, len(sources)) for name in (LABELS, SETS))
            columns, measures = _open_columns(folder, facts, events, offsets)
            check_index(offsets, labels, events, len(classes), len(sources), {len(splits), len(groups)})
            check_sets(sets, labels, splits, sources, groups)
        except (TypeError, ValueError, OSError) as error:
            raise FileError(folder, f"is a damaged store: {error}. {PREPARE_AGAIN}") from None
        rows = np.flatnonzero(sets == 0)
        return cls(
            folder, sensor, classes, columns, offsets, labels, sets, sources, splits, groups, facts, rows, measures
        )

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

    def length(self, index: int) -> int:
        """The number of events in one recording."""
        row = self._row(index)
        return int(self.offsets[row + 1] - self.offsets[row])

    def sample(self, index: int, length: int, generator: Generator) -> tuple[Events, int]:
        """Like `sample_uniform(store[index], ...)`, but reads only the events that are kept."""
        row = self._row(index)
        first, count = int(self.offsets[row]), int(self.offsets[row + 1] - self.offsets[row])
        if count <= length:
            return self[index]
        positions = as_array(draw_positions(count, length, generator))
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
        if self.measures:
            return self.measures.recorded[self.rows]
        rho, starts, stops = self.columns["rho"], self.offsets[self.rows], self.offsets[self.rows + 1]
        if rho.strides == (0,):  # all ones
            return self.lengths.astype(np.float64)
        return np.array([rho[start:stop].sum(dtype=np.float64) for start, stop in zip(starts, stops, strict=True)])

    @property
    def durations(self) -> NDArray[np.int64]:
        """Microseconds from the first event of each recording to its last; 0 without events."""
        if self.measures:
            return self.measures.durations[self.rows]
        t, starts, stops = self.columns["t"], self.offsets[self.rows], self.offsets[self.rows + 1]
        filled = stops > starts
        found = np.zeros(len(self), np.int64)
        found[filled] = t[stops[filled] - 1].astype(np.int64) - t[starts[filled]].astype(np.int64)
        return found

    @property
    def shard_numbers(self) -> NDArray[np.int64]:
        """The shard that holds each recording; 0 for all of a store without shards."""
        column = self.columns["t"]
        if not isinstance(column, ShardedColumn):
            return np.zeros(len(self), np.int64)
        return np.searchsorted(column.shards.starts[1:-1], self.offsets[self.rows], side="right").astype(np.int64)

    @property
    def windows(self) -> Windows | None:
        """What its recordings were cut by; None: they are whole."""
        found = self.facts.get("windows")
        try:
            return None if found is None else build_settings(Windows, found, "windows")
        except Event2VecError as error:
            raise FileError(self.folder, f"is a damaged store: {error}. {PREPARE_AGAIN}") from None

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
            raise FileError(self.folder, f"has {found}, expected equally many. {PREPARE_AGAIN}")
        return tuple(self._show(rows + number) for number in range(counts[0]))

    def subset(self, indices: Sequence[int] | NDArray[np.int64]) -> "EventStore":
        """These recordings, in this order."""
        return self._show(self.rows[np.asarray(indices, dtype=np.int64)])

    def all_rows(self) -> "EventStore":
        """All recordings with all their sets of clusters, as they are on the disk."""
        return self._show(np.arange(len(self.all_sets)))

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
            check_events(x, y, t, p, rho, self.sensor)
        except ValueError as error:
            recording = f"recording {row} ({shorten(self.all_sources[row])})"
            raise FileError(self.folder, f"is a damaged store: {recording} has {error}. {PREPARE_AGAIN}") from None
        import torch

        return Events(
            torch.from_numpy(x.astype(np.float32)),
            torch.from_numpy(y.astype(np.float32)),
            torch.from_numpy(t.astype(np.int64)),
            torch.from_numpy(p.astype(np.bool_)),
            # Without a rho column, rho is a single 1 expanded to n events, as in Events.from_arrays.
            torch.ones(()).expand(len(t)) if rho.strides == (0,) else torch.from_numpy(rho.astype(np.float32)),
            self.sensor,
        )


def read_together(recordings: Sequence[tuple[EventStore, int]]) -> tuple[EventBatch, Int64[Any, " batch"]]:
    """Whole recordings of stores that share their files, padded, and their labels: each column is read only once."""
    store = recordings[0][0]
    rows = np.array([each._row(index) for each, index in recordings])
    firsts = store.offsets[rows, None]
    counts = store.offsets[rows + 1, None] - firsts
    places = np.arange(counts.max())
    valid = places < counts
    if not valid.any():
        return _read_one_by_one(recordings)
    places = firsts + np.minimum(places, counts - 1)  # padding repeats the last event until the check is done
    x, y, t, p, rho = (store.columns[name][places] for name in COLUMNS)
    try:
        check_events(x, y, t, p, rho, store.sensor)
    except ValueError:
        return _read_one_by_one(recordings)  # which names the damaged one
    columns = (x.astype(np.float32), y.astype(np.float32), t.astype(np.int64), p.astype(np.bool_), rho)
    if not valid.all():
        columns = tuple(column * valid for column in columns)
    import torch

    x, y, t, p, rho = map(torch.from_numpy, columns)
    return EventBatch(x, y, t, p, rho, torch.from_numpy(valid), store.sensor), torch.from_numpy(store.all_labels[rows])


def _read_one_by_one(recordings: Sequence[tuple[EventStore, int]]) -> tuple[EventBatch, Int64[Any, " batch"]]:
    import torch

    events, labels = zip(*(store[index] for store, index in recordings), strict=True)
    return EventBatch.pad(events), torch.tensor(labels)


def _open_columns(
    folder: Path, facts: dict[str, Any], events: int, offsets: NDArray[np.int64]
) -> tuple[Mapping[str, Any], Measures | None]:
    """The columns, in one file each or in shards, which have their recordings measured."""
    if "shards" not in facts:
        types = facts.pop("types", None)
        if not isinstance(types, dict):
            raise ValueError(f"types must name one type for each column, got {shown(types)}")
        return {name: map_column(folder, name, types.get(name), events) for name in COLUMNS}, None
    facts.pop("index", None)  # for those who fetch it
    listed = facts.pop("shards")
    if not isinstance(listed, list):
        raise ValueError(f"shards must be a list, got {shown(listed)}")
    shards = Shards(folder, address_of(folder), [Shard.read(each) for each in listed])
    if shards.starts[-1] != events:
        raise ValueError(f"its shards have {counted(int(shards.starts[-1]), 'event')}, expected {events:,}")
    if not np.isin(shards.starts, offsets).all():
        raise ValueError("a recording is in two of its shards")
    durations = read_index(folder / DURATIONS, len(offsets) - 1)
    return shards.columns(), Measures(durations, read_amounts(folder / RECORDED, len(offsets) - 1))


def _reopen(
    folder: Path,
    rows: NDArray[np.int64],
    splits: tuple[str, ...],
    classes: tuple[str, ...],
    labels: NDArray[np.int64],
) -> EventStore:
    return replace(EventStore.open(folder), rows=rows, all_splits=splits, classes=classes, all_labels=labels)
