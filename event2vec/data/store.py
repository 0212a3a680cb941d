"""EventStore: what training reads. Recordings as memory-mapped columns on disk.

torch is imported only where recordings are read: worker processes that prepare a store write numpy arrays.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.columns import as_array
from event2vec.data.addresses import is_address
from event2vec.data.remote import local_folder
from event2vec.data.shards import ShardedColumn
from event2vec.data.store_layout import LABELS, OFFSETS, SETS
from event2vec.data.store_reader import (
    PREPARE_AGAIN,
    Measures,
    check_events,
    check_index,
    check_sets,
    open_columns,
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
from event2vec.events import COLUMNS, Events
from event2vec.mersenne import Generator
from event2vec.names import check_class_names, counted, shorten, shown
from event2vec.sensor import Sensor, SensorLike
from event2vec.settings import build_settings

_MISSING: Any = object()


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
            columns, measures = open_columns(folder, facts, events, offsets)
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
        given = {"splits": splits, "sources": sources, "sets": sets, "groups": groups}
        named = {name: values for name, values in given.items() if values is not None}
        with StoreWriter(folder, sensor=Sensor.of(sensor), classes=classes) as writer:
            for index, (recording, *values) in enumerate(zip_longest(recordings, *named.values(), fillvalue=_MISSING)):
                if recording is _MISSING or _MISSING in values:
                    raise ValueError(f"{' and '.join(named)} must have one entry for each recording")
                (events, label), known = recording, dict(zip(named, values, strict=True))
                number = known.get("sets", 0)
                source = known.get("sources", str(index - number))
                writer.append(events, label, known.get("splits", "train"), source, number, known.get("groups"))
        return cls.open(folder)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        splits = ", ".join(f"{self.splits.count(name):,} {name}" for name in dict.fromkeys(self.splits))
        classes = counted(len(self.classes), "class", "classes")
        return f"EventStore({splits or 'no recordings'}, {classes}, {self.sensor}, {self.folder})"

    def __getitem__(self, index: int) -> tuple[Events, int]:
        row = self.row(index)
        return self._take(row, slice(int(self.offsets[row]), int(self.offsets[row + 1]))), int(self.all_labels[row])

    def length(self, index: int) -> int:
        """The number of events in one recording."""
        row = self.row(index)
        return int(self.offsets[row + 1] - self.offsets[row])

    def sample(self, index: int, length: int, generator: Generator) -> tuple[Events, int]:
        """Like `sample_uniform(store[index], ...)`, but reads only the events that are kept."""
        row = self.row(index)
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

    def subset(self, indices: Sequence[int] | NDArray[Any]) -> "EventStore":
        """These recordings, in this order."""
        chosen = np.asarray(indices)
        if chosen.size and chosen.dtype.kind not in "iu":  # a mask would be read as the recordings 0 and 1
            raise ValueError(f"recordings are chosen by index, got {chosen.dtype}. For a mask: np.flatnonzero(mask)")
        return self._show(self.rows[chosen.astype(np.int64)])

    def all_rows(self) -> "EventStore":
        """All recordings with all their sets of clusters, as they are on the disk."""
        return self._show(np.arange(len(self.all_sets)))

    def _show(self, rows: NDArray[np.int64]) -> "EventStore":
        return replace(self, rows=rows)

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker process maps the files itself; pickling the maps would copy all the events.
        return _reopen, (self.folder, self.rows, self.all_splits, self.classes, self.all_labels)

    def row(self, index: int) -> int:
        """Where a recording is among all that are on the disk."""
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


def _reopen(
    folder: Path,
    rows: NDArray[np.int64],
    splits: tuple[str, ...],
    classes: tuple[str, ...],
    labels: NDArray[np.int64],
) -> EventStore:
    return replace(EventStore.open(folder), rows=rows, all_splits=splits, classes=classes, all_labels=labels)
