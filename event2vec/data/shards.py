"""Shards: a store's columns in files of many recordings each, described by one index and read as they are needed."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.data.remote import fetch_shard
from event2vec.data.store_layout import PIXELS, SHARDS
from event2vec.errors import FileError
from event2vec.events import COLUMNS
from event2vec.names import shown

OPEN = 8  # shards that a process has open; those of a removed file still take their space
ALIGNED = 8  # bytes: where a column may begin


@dataclass(frozen=True)
class Shard:
    """One file: its columns one after another, each from a multiple of eight bytes."""

    events: int
    types: dict[str, str]  # of each column
    digest: str  # sha256 of the file

    @classmethod
    def read(cls, facts: Any) -> "Shard":
        match facts:
            case {"events": int(events), "types": dict(types), "sha256": str(digest)} if events >= 0:
                for name in COLUMNS:
                    if types.get(name) not in PIXELS[name]:
                        raise ValueError(f"column {name} of a shard is of type {shown(types.get(name))}")
                return cls(events, types, digest)
        raise ValueError(f"a shard must have events, types and sha256, got {shown(facts)}")

    def facts(self) -> dict[str, Any]:
        return {"events": self.events, "types": self.types, "sha256": self.digest}

    @property
    def places(self) -> Iterator[tuple[str, str, int]]:
        """Name, type and first byte of each column that the file holds."""
        place = 0
        for name in COLUMNS:
            kind = self.types[name]
            if kind != "ones":
                yield name, kind, place
                place = aligned(place + self.events * np.dtype(kind).itemsize)

    @property
    def size(self) -> int:
        ends = [place + aligned(self.events * np.dtype(kind).itemsize) for _, kind, place in self.places]
        return max(ends, default=0)


def aligned(place: int) -> int:
    return place + -place % ALIGNED


def shard_name(number: int) -> str:
    return f"{number:06d}.bin"


def note_of(shard: str) -> str:
    """The file beside a shard that says what is in it, while the store is being written."""
    return shard.removesuffix(".bin") + ".json"


@dataclass
class Shards:
    """The shards of one store. Some are open: mapped into memory."""

    folder: Path
    address: str | None  # where they are fetched from; None: they are in the folder
    shards: Sequence[Shard]
    starts: NDArray[np.int64] = field(init=False)  # the first event of each in the store
    mapped: OrderedDict[int, dict[str, NDArray[Any]]] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self.starts = np.cumsum([0, *(shard.events for shard in self.shards)])

    def columns(self) -> dict[str, "ShardedColumn"]:
        return {name: ShardedColumn(self, name) for name in COLUMNS}

    def open(self, number: int) -> dict[str, NDArray[Any]]:
        if number not in self.mapped:
            self.mapped[number] = self._map(number)
            if len(self.mapped) > OPEN:
                self.mapped.popitem(last=False)
        self.mapped.move_to_end(number)
        return self.mapped[number]

    def _map(self, number: int) -> dict[str, NDArray[Any]]:
        shard = self.shards[number]
        found = {name: np.broadcast_to(np.float32(1), shard.events) for name in COLUMNS if shard.types[name] == "ones"}
        content = self._content(number) if shard.events else np.empty(0, np.uint8)
        for name, kind, place in shard.places:
            found[name] = content[place : place + shard.events * np.dtype(kind).itemsize].view(kind)
        return found

    def _content(self, number: int) -> NDArray[np.uint8]:
        """The bytes of a shard. Of a store elsewhere, what is damaged here is fetched again, once."""
        shard, path = self.shards[number], self.folder / SHARDS / shard_name(number)
        fetched_again = False
        while True:
            if self.address:
                fetch_shard(self.folder, self.address, path.name, shard.size, shard.digest)
            try:
                return _map_file(path, shard.size)
            except FileNotFoundError:
                if not self.address:
                    raise FileError(path, "is missing: a shard of the store. Copy or prepare it again") from None
                # else another process has made room since: it is fetched again
            except FileError:
                if not self.address or fetched_again:
                    raise
                path.unlink(missing_ok=True)
                fetched_again = True


def _map_file(path: Path, expected: int) -> NDArray[np.uint8]:
    size = path.stat().st_size
    if size != expected:
        raise FileError(path, f"has {size:,} bytes, expected {expected:,}. Copy or prepare the store again")
    return np.asarray(np.memmap(path, np.uint8, mode="r"))


@dataclass(frozen=True)
class ShardedColumn:
    """One column of a store in shards, read as an array is: by a slice of one recording, or by positions."""

    shards: Shards
    name: str

    def __getitem__(self, places: slice | NDArray[np.int64]) -> NDArray[Any]:
        starts = self.shards.starts
        if isinstance(places, slice):
            number = self._shard(places.start)
            first = int(starts[number])
            return self._column(number)[places.start - first : places.stop - first]
        places = np.maximum(places, 0)  # padding of an empty recording may be before the first event
        lowest, highest = int(places.min()), int(places.max())
        number = self._shard(lowest)
        if highest < starts[number + 1]:
            return self._column(number)[places - starts[number]]
        return self._gather(places)

    def _gather(self, places: NDArray[np.int64]) -> NDArray[Any]:
        """From several shards."""
        numbers = np.searchsorted(self.shards.starts, places, side="right") - 1
        found = np.empty(places.shape, self.dtype)
        for number in np.unique(numbers).tolist():
            wanted = numbers == number
            found[wanted] = self._column(number)[places[wanted] - self.shards.starts[number]]
        return found

    @property
    def dtype(self) -> np.dtype[Any]:
        kinds = {shard.types[self.name] for shard in self.shards.shards} or {PIXELS[self.name][0]}  # of no recordings
        return np.result_type(*("<f4" if kind == "ones" else kind for kind in sorted(kinds)))

    @property
    def itemsize(self) -> int:
        """Bytes of each event on the disk."""
        return 0 if all(shard.types[self.name] == "ones" for shard in self.shards.shards) else self.dtype.itemsize

    def _shard(self, first: int) -> int:
        """Empty recordings may be at the end of the store, in no shard's events."""
        last = len(self.shards.shards) - 1
        return min(int(np.searchsorted(self.shards.starts, first, side="right")) - 1, last)

    def _column(self, number: int) -> NDArray[Any]:
        return self.shards.open(number)[self.name]
