"""Keep a stream in a file while it is answered, in a thread of its own and in bounded memory."""

import queue
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from event2vec.errors import FileError
from event2vec.names import excerpt
from event2vec.sensor import Sensor
from event2vec.streaming.chunk import Chunk

FORMATS = {".aedat4": "aedat4", ".raw": "evt2", ".dat": "dat", ".h5": None, ".csv": None, ".txt": None}
MOST_WAITING = 1 << 22  # events that may wait for the disk, 55 MB
AT_ONCE = 1 << 18  # events that are written in one call


class Recorder:
    """Appends chunks to a file, which is written in place: what a killed process had recorded can be read.

    If the disk cannot keep up, chunks are left out of the file, and counted.
    """

    def __init__(self, path: str | Path, sensor: Sensor, overwrite: bool = False) -> None:
        self.path, self.sensor = Path(path), sensor
        check_recording(self.path, overwrite)
        self.recorded = 0
        self.problem: str | None = None  # why nothing more is recorded
        self._start: int | None = None
        # Each counter has one thread that writes it.
        self._taken = self._refused = 0  # the reader
        self._done = 0  # ours
        self._queue: queue.SimpleQueue[Chunk | None] = queue.SimpleQueue()
        self._thread = Thread(target=self._run, daemon=True, name="event2vec recorder")
        self._thread.start()

    def __call__(self, chunk: Chunk) -> None:
        """Take a chunk, at once: the reader never waits for the disk."""
        if self.problem is not None or self._taken - self._done + len(chunk) > MOST_WAITING:
            self._refused += len(chunk)
            return
        self._taken += len(chunk)
        self._queue.put(chunk)

    @property
    def lost(self) -> int:
        """Events that are not in the file and never will be."""
        return self._refused + (0 if self.problem is None else self._taken - self.recorded)

    def close(self) -> None:
        """Write what is waiting, and complete the file."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        import eventcv

        sink: Any = None
        try:
            while (chunk := self._queue.get()) is not None:
                if sink is None:
                    self.path.parent.mkdir(parents=True, exist_ok=True)
                    sink = eventcv.EventSink(str(self.path), format=FORMATS[self.path.suffix.lower()])
                self._write(sink, chunk)
                self._done += len(chunk)
            if sink is not None:
                sink.finish()
        except BaseException as error:  # a full disk, or a Rust panic, which is not an Exception
            self.problem = f"{self.path}: recording has stopped: {excerpt(error, 160)}"

    def _write(self, sink: Any, chunk: Chunk) -> None:
        import eventcv

        if self._start is None:
            self._start = int(chunk.t[0])
        for first in range(0, len(chunk), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            columns = (chunk.x[part], chunk.y[part], chunk.t[part] - self._start, chunk.p[part])
            rows = np.stack([column.astype(np.int64) for column in columns], axis=1)
            sink.append(eventcv.from_numpy(rows, sensor_size=(self.sensor.width, self.sensor.height), time_unit="us"))
            self.recorded += len(rows)


def check_recording(path: Path, overwrite: bool) -> None:
    """Refuse what cannot be recorded, before anything is opened."""
    if path.suffix.lower() not in FORMATS:
        raise FileError(path, f"cannot be recorded: '{path.suffix}' is not one of {', '.join(FORMATS)}")
    if path.is_dir():
        raise FileError(path, "is a folder, expected the name of a file to record")
    if path.exists() and not overwrite:
        raise FileError(path, "exists already. Choose another file, or set `overwrite`")
