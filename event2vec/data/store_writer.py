"""StoreWriter: write a store recording by recording; it appears complete or not at all."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from event2vec.data.store_layout import DESCRIPTION, LABELS, OFFSETS, PIXELS, SETS, VERSION, Types
from event2vec.errors import FileError
from event2vec.events import COLUMNS, Events
from event2vec.machine.atomic import whole_folder
from event2vec.sensor import Sensor


class StoreWriter:
    """The folder appears at the end of the `with` block, unless there was an error.

    `types` are `PIXELS`, or `CENTRES` for clusters: a column that changes its type meanwhile has to be written twice.
    `facts` are kept in the description of the store.
    """

    def __init__(
        self, folder: str | Path, *, sensor: Sensor, classes: Sequence[str], types: Types = PIXELS, **facts: Any
    ) -> None:
        self.folder = Path(folder)
        if self.folder.exists():
            raise FileError(self.folder, "exists already. Remove it or choose another name")
        self.sensor, self.classes, self.types, self.facts = sensor, tuple(classes), types, facts
        self.offsets, self.labels, self.sets = [0], list[int](), list[int]()
        self.sources, self.splits, self.groups = list[str](), list[str](), list[str]()
        self.cleanup = ExitStack()

    def __enter__(self) -> "StoreWriter":
        self.work = self.cleanup.enter_context(whole_folder(self.folder))
        self.columns = {
            name: self.cleanup.enter_context(_Column(self.work / f"{name}.bin", self.types[name])) for name in COLUMNS
        }
        return self

    def append(
        self, events: Events, label: int, split: str, source: str, number: int = 0, group: str | None = None
    ) -> None:
        """Add a recording. Its further sets of clusters must follow directly, with the numbers 1, 2, ...

        Without a `group` it is one by itself.
        """
        if events.sensor != self.sensor:
            raise ValueError(f"{source}: the store is for a sensor of {self.sensor}, got {events.sensor}")
        events = events.arrays()
        columns = {name: getattr(events, name) for name in COLUMNS}
        self.append_columns(columns, label, split, source, number, group)

    def append_columns(
        self,
        values: Mapping[str, NDArray[Any]],
        label: int,
        split: str,
        source: str,
        number: int = 0,
        group: str | None = None,
    ) -> None:
        """The same for columns that fit this store's sensor, such as those of another store."""
        if not 0 <= label < len(self.classes):
            raise ValueError(f"{source}: label {label}, expected one of {len(self.classes)} classes")
        group = source if group is None else group
        if number and (number, label, split, source, group) != self._next_set():
            raise ValueError(f"{source}: set {number} of a recording must follow its set {number - 1}")
        for name, column in self.columns.items():
            column.append(values[name])
        self.offsets.append(self.offsets[-1] + len(values["t"]))
        self.labels.append(label)
        self.splits.append(split)
        self.sources.append(source)
        self.groups.append(group)
        self.sets.append(number)

    def _next_set(self) -> tuple[int, int, str, str, str] | None:
        """What the next set of the last recording would be."""
        if not self.sets:
            return None
        return self.sets[-1] + 1, self.labels[-1], self.splits[-1], self.sources[-1], self.groups[-1]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self.cleanup:
            if error is not None:
                raise error  # inside, so that the folder does not appear
            for name, numbers in ((OFFSETS, self.offsets), (LABELS, self.labels), (SETS, self.sets)):
                np.save(self.work / name, np.array(numbers, np.int64))
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
            "groups": self.groups,
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
            # Not with `tofile`, which does not say why it failed.
            self.file.write(np.ascontiguousarray(values, self.kind).data)
        self.count += len(values)

    def _holds(self, values: NDArray[Any]) -> bool:
        if not self.wider or len(values) == 0 or values.dtype.str == self.kind:
            return True
        if self.kind == "ones":
            return bool((values[:1] == 1).all() if values.strides == (0,) else (values == 1).all())
        return bool(values.min() >= 0 and (values.astype(self.kind) == values).all())

    def _widen(self) -> None:
        """Rewrite the values so far in the next type."""
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
