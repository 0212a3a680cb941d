"""Recordings in chunks: what is too long for memory is decoded piece by piece.

Each piece is decoded as a file of its own, by the reader of whole files, so that both find the same events.
"""

import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from event2vec.errors import Event2VecWarning, FileError
from event2vec.events import Events, arrange_events, as_tensor
from event2vec.io import FIXED, detect_format, read_recording, refuse_options
from event2vec.io.recording import Decoded, bounding_sensor, unwrap
from event2vec.io.segments import PERIODS, SEGMENT, SUFFIXES, header_length, misplaced, segments
from event2vec.names import excerpt
from event2vec.sensor import Sensor, SensorLike

LARGE = 1 << 28  # bytes of a file that is read whole and should not be
DISORDER = 50_000  # microseconds by which an event may come late


def can_stream(path: str | Path) -> bool:
    """Whether a recording is in a format that is read in chunks: AEDAT, EVT2, EVT2.1, EVT3, DAT."""
    return detect_format(Path(path)) in SUFFIXES


def read_chunks(
    path: str | Path,
    *,
    sensor: SensorLike | None = None,
    columns: str | None = None,
    time_unit: str | None = None,
    segment: int = SEGMENT,
) -> Iterator[Events]:
    """The events of a recording in order, some hundred thousand at a time. Times count from its first event.

        for events in read_chunks("hours.raw"):
            ...

    Memory stays bounded for AEDAT 2.0, 3.1 and 4, EVT2, EVT2.1, EVT3 and DAT; `segment` bytes are decoded at once.
    Other formats are read whole. A file that does not name its sensor is read twice: give `sensor` if you know it.
    """
    path = Path(path)
    size = None if sensor is None else Sensor.of(sensor)
    format = detect_format(path)
    if format not in SUFFIXES:
        if path.stat().st_size > LARGE:
            warnings.warn(
                f"{path}: {format} cannot be read in chunks; it is read whole", Event2VecWarning, stacklevel=2
            )
        recording = read_recording(path, sensor=size, columns=columns, time_unit=time_unit)
        notes, chunks = recording.warnings, iter([recording.events])
    else:
        refuse_options(path, format, columns, time_unit)
        notes, chunks = (), _stream(path, format, size, segment)
    for warning in notes:
        warnings.warn(f"{path}: {warning}", Event2VecWarning, stacklevel=2)
    yield from chunks


def first_time(path: str | Path) -> int:
    """What the camera's clock showed at the first event of a recording, in microseconds."""
    path = Path(path)
    if not can_stream(path):
        return read_recording(path).start
    format = detect_format(path)
    pieces = (piece for piece in _decode(path, format, SEGMENT) if len(piece.t))
    first = next(pieces, None)
    return 0 if first is None else int(np.asarray(first.t).min()) + first.clock


def _stream(path: Path, format: str, sensor: Sensor | None, size: int) -> Iterator[Events]:
    clock, order = _Clock(), None
    for decoded in _decode(path, format, size):
        if len(decoded.t) == 0:
            continue
        sensor = sensor or decoded.sensor or _bounding(path, format, size)
        order = order or _Order(path, sensor)
        yield from order.feed(decoded, clock.times(decoded, PERIODS.get(format, decoded.period)))
    if order is not None:
        yield from order.finish()


def _decode(path: Path, format: str, size: int) -> Iterator[Decoded]:
    """The pieces of a file, decoded."""
    try:
        header = header_length(path, format)
        if header > path.stat().st_size:
            raise FileError(path, f"has a header of {header:,} bytes in a smaller file. Is the file complete?")
        with tempfile.TemporaryDirectory() as folder, path.open("rb") as source:
            piece = Path(folder) / f"recording{SUFFIXES[format]}"
            for segment in segments(path, format, header, size):
                segment.write(source, header, piece)
                try:
                    decoded = FIXED[format](piece)
                except FileError as error:
                    raise misplaced(error, path, segment) from None
                for warning in decoded.warnings:
                    warnings.warn(f"{path}: {warning}", Event2VecWarning, stacklevel=2)
                yield decoded
    except OSError as error:
        raise FileError(path, f"cannot be read: {excerpt(error.strerror or error)}") from None


def _bounding(path: Path, format: str, size: int) -> Sensor:
    """The smallest sensor that holds all events."""
    sides = [
        bounding_sensor(*map(as_tensor, (piece.x, piece.y))) for piece in _decode(path, format, size) if len(piece.t)
    ]
    return Sensor(max(side.width for side in sides), max(side.height for side in sides))


class _Clock:
    """Times that go on where the camera's clock, or the decoder of a piece, begins again."""

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

    x: Tensor
    y: Tensor
    t: Tensor
    p: Tensor


class _Order:
    """Events in order: late ones are put in their place, as long as they are not later than 50 ms."""

    def __init__(self, path: Path, sensor: Sensor) -> None:
        self.path, self.sensor = path, sensor
        self.held: _Held | None = None
        self.start, self.done = 0, -(2**62)

    def feed(self, decoded: Decoded, t: NDArray[np.int64]) -> Iterator[Events]:
        columns = [as_tensor(column) for column in (decoded.x, decoded.y, t, decoded.p)]
        new = _Held(columns[0].float(), columns[1].float(), columns[2], columns[3])
        if self.held is not None:
            pairs = ((getattr(self.held, name), getattr(new, name)) for name in "xytp")
            new = _Held(*(torch.cat(pair) for pair in pairs))
        if bool((new.t[1:] < new.t[:-1]).any()):
            order = torch.argsort(new.t, stable=True)
            new = _Held(*(getattr(new, name)[order] for name in "xytp"))
        if int(new.t[0]) < self.done:
            late = (self.done - int(new.t[0])) / 1e3
            raise FileError(
                self.path,
                f"has an event that comes {late:.0f} ms late, expected at most {DISORDER // 1000} ms in a recording "
                "that is read in chunks. Sort it: event2vec convert IN OUT",
            )
        ready = int(torch.searchsorted(new.t, int(new.t[-1]) - DISORDER))
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
            raise FileError(
                self.path, f"{excerpt(error, 240)}. Set the sensor size with --sensor WIDTHxHEIGHT"
            ) from None
        return replace(events, t=events.t + (first - self.start))
