"""The newest events of a stream, in memory that is reserved once and reused.

One thread writes and never waits for readers: a reader takes note of positions, copies what it needs, and then
asks whether the writer has passed over it in the meantime.
"""

from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.streaming.chunk import Chunk

SMALLEST, LARGEST = 1 << 16, 1 << 24  # events; the largest ring takes 218 MB
KINDS = (np.uint16, np.uint16, np.int64, np.bool_)  # x, y, t, p


@dataclass(frozen=True)
class View:
    """Positions of some events in a ring, as they were when it was asked."""

    ring: "Ring"
    columns: tuple[NDArray[Any], ...]
    start: int  # counted from the first event of the stream
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def take(self, positions: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
        """Columns x, y, t, p of the events at these positions, 0 for the first."""
        places = (self.start + positions) % len(self.columns[0])
        return tuple(column[places] for column in self.columns)

    def all(self) -> tuple[NDArray[Any], ...]:
        """Columns x, y, t, p of all its events, as copies."""
        return tuple(np.concatenate(self._pieces(column)) for column in self.columns)

    def newest(self, most: int) -> "View":
        return View(self.ring, self.columns, max(self.start, self.stop - most), self.stop)

    def since(self, time: int) -> "View":
        """The events after this time, in microseconds."""
        first = 0
        for piece in self._pieces(self.columns[2]):
            found = int(np.searchsorted(piece, time, "right"))
            first += found
            if found < len(piece):
                break
        return View(self.ring, self.columns, self.start + first, self.stop)

    @property
    def intact(self) -> bool:
        """Whether nothing of it has been written over yet. Ask after copying."""
        return self.ring.keeps(self)

    def _pieces(self, column: NDArray[Any]) -> list[NDArray[Any]]:
        """One piece, or two where the ring's end lies in between."""
        size = len(column)
        first, count = self.start % size, len(self)
        if first + count <= size:
            return [column[first : first + count]]
        return [column[first:], column[: first + count - size]]


class Ring:
    """The newest events. It doubles while a window fills half of it, up to a limit; then windows are cut short."""

    def __init__(self) -> None:
        self.short = False  # whether a window had more events than the largest ring holds for readers
        self._lock = Lock()
        self._columns = tuple(np.empty(SMALLEST, kind) for kind in KINDS)
        self._total = 0  # events ever written
        self._writing = 0  # the same, with those that are being written
        self._first = 0  # events before this one were left behind when the ring grew

    @property
    def total(self) -> int:
        return self._total

    def write(self, chunk: Chunk, window: int) -> None:
        """Add events; `window` is how far back in microseconds readers will look."""
        if len(chunk) > LARGEST // 2:
            last = slice(len(chunk) - LARGEST // 2, None)
            chunk = Chunk(chunk.x[last], chunk.y[last], chunk.t[last], chunk.p[last], chunk.happened)
        if len(chunk) == 0:
            return
        oldest = int(chunk.t[-1]) - window
        self._make_room(len(chunk), oldest)
        size, count = len(self._columns[0]), len(chunk)
        with self._lock:
            self._writing = self._total + count
        places, first = self._total % size, min(count, size - self._total % size)
        for column, new in zip(self._columns, _columns_of(chunk), strict=True):
            column[places : places + first] = new[:first]
            column[: count - first] = new[first:]
        with self._lock:
            self._total = self._writing
        self.short = self.short or self._cuts_short(oldest)

    def view(self) -> View:
        """All events that will not be overwritten soon: at most half of the ring."""
        with self._lock:
            start = max(self._first, self._total - len(self._columns[0]) // 2)
            return View(self, self._columns, start, self._total)

    def keeps(self, view: View) -> bool:
        with self._lock:
            replaced = view.columns is not self._columns  # by a larger ring: the smaller one is not written any more
            return replaced or self._writing - view.start <= len(self._columns[0])

    def _cuts_short(self, oldest: int) -> bool:
        held, size = self.view(), len(self._columns[0])
        full = size >= LARGEST and len(held) == size // 2 and held.start > 0
        return full and int(held.columns[2][held.start % size]) > oldest

    def _make_room(self, coming: int, oldest: int) -> None:
        held = self.view()
        size = len(self._columns[0])
        needed = coming + len(held.since(oldest))
        while needed > size // 2 and size < LARGEST:
            size *= 2
        if size == len(self._columns[0]):
            return
        grown = tuple(np.empty(size, kind) for kind in KINDS)
        places = np.arange(held.start, held.stop) % size
        for column, new in zip(grown, held.all(), strict=True):
            column[places] = new
        with self._lock:
            self._columns, self._first = grown, held.start


def _columns_of(chunk: Chunk) -> tuple[NDArray[Any], ...]:
    return chunk.x, chunk.y, chunk.t, chunk.p
