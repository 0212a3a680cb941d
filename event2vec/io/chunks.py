"""Recordings in chunks: what is too long for memory is decoded piece by piece.

Each piece of a camera's file is decoded as a file of its own, by the reader of whole files, so that both find the same
events. Event Stream, HDF5, npy and text are read in pieces by their own readers.
"""

import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.arguments import path_of
from event2vec.columns import as_array
from event2vec.errors import Event2VecWarning, FileError
from event2vec.events import Events, arrange_events
from event2vec.io import A_FILE, FIXED, arrays, decode_recording, detect_format, es, hdf5, read_arrays, text
from event2vec.io.recording import AS_STORED, Decoded, Reading, bounding_sensor, refused, unwrap
from event2vec.io.segments import PERIODS, SEGMENT, SUFFIXES, header_length, misplaced, segments
from event2vec.names import excerpt
from event2vec.sensor import Sensor, SensorLike

LARGE = 1 << 28  # bytes of a file that is read whole and should not be
ROW = 16  # bytes that an event takes in a file, roughly
DISORDER = 50_000  # microseconds by which an event may come late

PIECES: dict[str, Callable[[Path, Reading, int], Iterator[Decoded]]] = {  # with about this many bytes at once
    "es": lambda path, how, size: es.read_es_pieces(path),
    "hdf5": lambda path, how, size: hdf5.read_hdf5_pieces(path, max(size // ROW, 1), how.time_unit),
    "npy": lambda path, how, size: arrays.read_npy_pieces(path, max(size // ROW, 1), how.time_unit),
    "text": lambda path, how, size: text.read_text_pieces(path, size, how.columns, how.time_unit),
}


def can_stream(path: str | Path) -> bool:
    """Whether a recording is in a format that is read in chunks: all but npz, mat and N-MNIST's bin."""
    return detect_format(Path(path)) in (*SUFFIXES, *PIECES)


def read_chunks(
    path: str | Path,
    *,
    sensor: SensorLike | None = None,
    columns: str | None = None,
    time_unit: str | None = None,
    usual: SensorLike | None = None,
    segment: int = SEGMENT,
) -> Iterator[Events]:
    """The events of a recording in order, some hundred thousand at a time. Times count from its first event.

        for events in read_chunks("hours.raw"):
            ...

    Memory stays bounded for AEDAT, EVT2, EVT2.1, EVT3, DAT, Event Stream, HDF5, npy and text; about `segment` bytes are
    decoded at once. Other formats, small files and clusters are read whole. A file that does not name its sensor is
    read twice: give `sensor` if you know it. It has the `usual` one if its events are on that.
    """
    for chunk in decode_chunks(path, Reading.of(sensor, columns, time_unit, usual), segment):
        yield chunk.torch()


def decode_chunks(path: str | Path, how: Reading = AS_STORED, segment: int = SEGMENT) -> Iterator[Events]:
    """`read_chunks` with numpy arrays as columns, without torch."""
    path = path_of(path, A_FILE)
    format = detect_format(path)
    size, streamed = path.stat().st_size, can_stream(path)
    if size > LARGE and not streamed:
        warnings.warn(f"{path}: {format} cannot be read in chunks; it is read whole", Event2VecWarning, stacklevel=3)
    if size > segment and streamed:
        how.check(path, format, fixed=format in FIXED)
        stream = _Stream(path, format, how, segment)
        if not stream.has_counts():
            yield from stream
            return
    yield read_arrays(path, how)


def first_time(path: str | Path) -> int:
    """What the camera's clock showed at the first event of a recording, in microseconds."""
    path = Path(path)
    if not can_stream(path):
        return decode_recording(path).start
    first = _Stream(path, detect_format(path)).first()
    return 0 if first is None else int(np.asarray(first.t).min()) + first.clock


class _Stream:
    """A file that is read in pieces: its events in order."""

    def __init__(self, path: Path, format: str, how: Reading = AS_STORED, segment: int = SEGMENT) -> None:
        self.path, self.format, self.how, self.segment = path, format, how, segment

    def __iter__(self) -> Iterator[Events]:
        clock, order = _Clock(), None
        for decoded in self.pieces():
            for warning in decoded.warnings:
                warnings.warn(f"{self.path}: {warning}", Event2VecWarning, stacklevel=4)
            if len(decoded.t) == 0:
                continue
            order = order or _Order(self.path, self.how.sensor or decoded.sensor or self.bounding())
            yield from order.feed(decoded, clock.times(decoded, PERIODS.get(self.format, decoded.period)))
        if order is not None:
            yield from order.finish()

    def pieces(self) -> Iterator[Decoded]:
        """The pieces of a file, decoded."""
        path, format, size = self.path, self.format, self.segment
        try:
            yield from PIECES[format](path, self.how, size) if format in PIECES else _segments(path, format, size)
        except OSError as error:
            raise FileError(path, f"cannot be read: {excerpt(error.strerror or error)}") from None

    def first(self) -> Decoded | None:
        """The first piece that has events."""
        return next((piece for piece in self.pieces() if len(piece.t)), None)

    def has_counts(self) -> bool:
        """Whether these are clusters."""
        first = self.first() if self.format in PIECES else None
        return first is not None and first.rho is not None

    def bounding(self) -> Sensor:
        """The usual sensor if it holds all events, else the smallest that does."""
        sides = [bounding_sensor(piece.x, piece.y) for piece in self.pieces() if len(piece.t)]
        width, height = max(side.width for side in sides), max(side.height for side in sides)
        usual = self.how.usual
        if usual is not None and width <= usual.width and height <= usual.height:
            return usual
        return Sensor(width, height)


def _segments(path: Path, format: str, size: int) -> Iterator[Decoded]:
    """The pieces of a camera's file, each decoded as a file of its own."""
    header = header_length(path, format)
    if header > path.stat().st_size:
        raise FileError(path, f"has a header of {header:,} bytes in a smaller file. Is the file complete?")
    with tempfile.TemporaryDirectory() as folder, path.open("rb") as source:
        piece = Path(folder) / f"recording{SUFFIXES[format]}"
        for segment in segments(path, format, header, size):
            segment.write(source, header, piece)
            try:
                yield FIXED[format](piece)
            except FileError as error:
                raise misplaced(error, path, segment) from None


class _Clock:
    """Times that continue where the camera's clock, or the decoder of a piece, starts again."""

    def __init__(self) -> None:
        self.last: int | None = None

    def times(self, decoded: Decoded, period: int) -> NDArray[np.int64]:
        """On the camera's clock, without its overflows."""
        t = np.asarray(decoded.t).astype(np.int64) + decoded.clock
        if period and self.last is not None:
            behind = self.last - period // 2 - int(t[0])
            t = t + max(-(-behind // period), 0) * period
        if period and bool((t[1:] < t[:-1]).any()):
            t = unwrap(t, period)
        self.last = int(t[-1])
        return t


@dataclass
class _Held:
    """Events that may still be overtaken by late ones."""

    x: NDArray[Any]
    y: NDArray[Any]
    t: NDArray[Any]
    p: NDArray[Any]


class _Order:
    """Events in order: late ones are put in their place, as long as they are not later than 50 ms."""

    def __init__(self, path: Path, sensor: Sensor) -> None:
        self.path, self.sensor = path, sensor
        self.held: _Held | None = None
        self.start, self.done = 0, -(2**62)

    def feed(self, decoded: Decoded, t: NDArray[np.int64]) -> Iterator[Events]:
        x, y, p = (as_array(column) for column in (decoded.x, decoded.y, decoded.p))
        with np.errstate(over="ignore"):  # what is not on the sensor is found when events are arranged
            new = _Held(x.astype(np.float32), y.astype(np.float32), t, p)
        if self.held is not None:
            pairs = ((getattr(self.held, name), getattr(new, name)) for name in "xytp")
            new = _Held(*(np.concatenate(pair) for pair in pairs))
        if bool((new.t[1:] < new.t[:-1]).any()):
            order = np.argsort(new.t, kind="stable")
            new = _Held(*(getattr(new, name)[order] for name in "xytp"))
        if int(new.t[0]) < self.done:
            late = (self.done - int(new.t[0])) / 1e3
            raise FileError(
                self.path,
                f"has an event that comes {late:.0f} ms late, expected at most {DISORDER // 1000} ms in a recording "
                "that is read in chunks. Sort it: event2vec convert IN OUT",
            )
        ready = int(np.searchsorted(new.t, int(new.t[-1]) - DISORDER))
        self.held = _Held(*(getattr(new, name)[ready:] for name in "xytp"))
        if ready:
            yield self._events(_Held(*(getattr(new, name)[:ready] for name in "xytp")))

    def finish(self) -> Iterator[Events]:
        if self.held is not None and len(self.held.t):
            yield self._events(self.held)

    def _events(self, part: _Held) -> Events:
        if self.done == -(2**62):
            self.start = int(part.t[0])
        first, self.done = int(part.t[0]), int(part.t[-1])
        try:
            events, _ = arrange_events(part.x, part.y, part.t, part.p, sensor=self.sensor)
        except ValueError as error:
            raise refused(self.path, error) from None
        return replace(events, t=events.t + (first - self.start))
