"""Events on standard input."""

import os
import select
import time
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from event2vec.errors import Event2VecError
from event2vec.io.units import MICROSECONDS
from event2vec.names import shown
from event2vec.sensor import Sensor
from event2vec.streaming.chunk import Chunk, StreamClock
from event2vec.streaming.packets import decode
from event2vec.streaming.source import BUFFER, PATIENCE, Source, StreamEnded, StreamUnreadable

RECORDINGS = (b"#!AER", b"% ", b"Event Stream", b"\x89HDF", b"PK\x03\x04")  # first bytes of files


class PipeSource(Source):
    """Events on standard input: lines of text, or the words of UDP packets with times, 8 bytes an event.

    Text is `t,x,y,p` in each line, as AEStream and Faery print it, or another order; commas or spaces between.
    """

    def __init__(
        self, file: BinaryIO, sensor: Sensor, columns: str | None = None, time_unit: str | None = None
    ) -> None:
        super().__init__()
        self.file, self.sensor = file, sensor
        if sorted(columns or "txyp") != sorted("txyp"):
            raise Event2VecError(f"`columns` must be t, x, y and p in some order, such as xytp, got {shown(columns)}")
        if file.isatty():
            raise Event2VecError("- reads events from a pipe, such as: aestream ... | event2vec live RUN -")
        self.order = [(columns or "txyp").index(name) for name in "xytp"]
        self.scale = MICROSECONDS[time_unit or "us"]
        self.clock: StreamClock | None = None
        self.text: bool | None = None  # found out from the first bytes
        self.rest = b""

    def read(self) -> Chunk | None:
        if not select.select([self.file], [], [], PATIENCE)[0]:
            return None
        data = os.read(self.file.fileno(), BUFFER)
        if not data:
            return self._end()
        data = self.rest + data
        if self.text is None:
            if len(data) < 8:
                self.rest = data
                return None
            self._recognise(data)
        end = data.rfind(b"\n") + 1 if self.text else len(data) - len(data) % 8
        if self.text and not end and len(data) > BUFFER:
            raise StreamUnreadable(
                f"standard input has no line end in {BUFFER:,} bytes; it does not look like text with events"
            )
        self.rest = data[end:]
        return self._chunk(data[:end])

    def _end(self) -> Chunk | None:
        """What is left at the end: the last line may lack its line end, and half a word is dropped."""
        rest, self.rest = self.rest, b""
        if rest and self.text is None:
            self._recognise(rest)
        if rest and self.text:
            return self._chunk(rest + b"\n")
        self._reject(bool(rest), "standard input ended in the middle of an event")
        raise StreamEnded("the pipe was closed")

    def _chunk(self, data: bytes) -> Chunk | None:
        assert self.clock is not None
        x, y, t, p = self._lines(data) if self.text else self._words(data)
        return Chunk.of(x, y, self._follow(self.clock, t), p, time.monotonic()) if len(x) else None

    def close(self) -> None:
        self.file.close()

    def _recognise(self, data: bytes) -> None:
        if data.startswith(RECORDINGS):
            raise StreamUnreadable("standard input is a recording's file; give its name instead of -")
        self.text = all(letter in b"\t\r\n" or 32 <= letter < 127 for letter in data[:8])
        self.clock = StreamClock(64 if self.text else 32)

    def _words(self, data: bytes) -> tuple[NDArray[Any], ...]:
        words = decode(data, False, self.sensor)
        self._reject(len(words.kept) - len(words.x), f"an event outside the {self.sensor} sensor, or damaged")
        assert words.t is not None
        return words.x, words.y, words.t, words.p

    def _lines(self, data: bytes) -> tuple[NDArray[Any], ...]:
        lines = [line for line in data.replace(b",", b" ").splitlines() if not line.startswith((b"#", b"%"))]
        try:
            table = np.array([line.split() for line in lines], np.float64)
        except ValueError:
            good = [numbers for line in lines if (numbers := _four_numbers(line)) is not None]
            table = np.array(good, np.float64).reshape(-1, 4)
            self._reject(len(lines) - len(good), "standard input: a line that is not four numbers")
        if table.ndim != 2 or table.shape[1:] != (4,):
            self._reject(len(lines), "standard input: lines that are not four numbers")
            table = np.empty((0, 4))
        x, y, t, p = (table[:, place] for place in self.order)
        fits = (x >= 0) & (x < self.sensor.width) & (y >= 0) & (y < self.sensor.height) & (np.abs(t) < 2**62)
        self._reject(int(np.count_nonzero(~fits)), f"standard input: an event outside the {self.sensor} sensor")
        return x[fits], y[fits], (t[fits] * self.scale).round(), p[fits] > 0


def _four_numbers(line: bytes) -> list[float] | None:
    cells = line.split()
    try:
        return [float(cell) for cell in cells] if len(cells) == 4 else None
    except ValueError:
        return None
