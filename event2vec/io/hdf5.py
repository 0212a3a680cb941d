"""HDF5 in the layouts of DSEC, Metavision and plain columns, read by h5py in a child process.

eventcv reads HDF5 too, but not the files in use: DSEC is compressed with Blosc, polarity is often an int16,
and Metavision stores the sensor size in an attribute that eventcv ignores.
"""

import atexit
import io
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from event2vec.errors import FileError, MissingExtra
from event2vec.events import Events
from event2vec.io.arrays import NAMES, columns_to_decoded
from event2vec.io.recording import Decoded, check_content, largest_content
from event2vec.names import excerpt
from event2vec.sensor import Sensor

CHILD = Path(__file__).with_name("hdf5_child.py")
# Limits for reading a file: CPU time, a hundred times what it needs; and wall time, enough on a busy machine.
LEAST_SECONDS, SECONDS_PER_BYTE = 3.0, 1e-6
LEAST_WALL_SECONDS, WALL_SECONDS_PER_BYTE = 60.0, 1e-5


def read_hdf5(path: Path, time_unit: str | None = None) -> Decoded:
    """Columns in a group, or one table with named fields."""
    return _read(path, time_unit)[0]


def read_hdf5_pieces(path: Path, rows: int, time_unit: str | None = None) -> Iterator[Decoded]:
    """The same in pieces of some rows; Prophesee's own compression is one piece."""
    first, total = 0, 1
    while first < total:
        decoded, total = _read(path, time_unit, (first, first + rows))
        yield decoded
        first += rows


def _read(path: Path, time_unit: str | None, part: tuple[int, int] | None = None) -> tuple[Decoded, int]:
    """All of a recording or some of its rows, and how many rows it has; 0 if they cannot be chosen."""
    table, facts = _child().read(path, part)
    if "claimed" in facts:
        check_content(path, facts["claimed"])
    if "missing" in facts:
        raise MissingExtra(f"{path}: {facts['missing']}", facts["extra"])
    if "error" in facts:
        raise FileError(path, excerpt(facts["error"], 400))
    sensor = Sensor.or_none(*facts["sensor"]) if facts["sensor"] else None
    decoded = columns_to_decoded(path, table, time_unit)
    return replace(decoded, sensor=sensor, clock=_whole_offset(path, facts["offset"])), facts["rows"]


def _whole_offset(path: Path, offset: int | float) -> int:
    if not math.isfinite(offset) or abs(offset) >= 2**62 or offset != round(offset):
        raise FileError(path, f"has a t_offset of {offset:g}, expected whole microseconds below 2^62")
    return int(offset)


class _Child:
    """The process that reads HDF5 for this one, started when first needed and kept for further files."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.lock = threading.Lock()
        atexit.register(self.end)

    def read(self, path: Path, part: tuple[int, int] | None) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """The columns of a recording, and the final message: other facts, or what is wrong with the file."""
        size = path.stat().st_size
        seconds = LEAST_SECONDS + SECONDS_PER_BYTE * size
        wall_seconds = LEAST_WALL_SECONDS + WALL_SECONDS_PER_BYTE * size
        request = {
            "path": os.fsencode(path.absolute()).hex(),
            "names": list(NAMES.values()),
            "part": part,
            "bytes": largest_content(path),
            "seconds": seconds,
            "wall_seconds": wall_seconds,
        }
        with self.lock:
            process = self._running()
            assert process.stdin
            assert process.stdout
            start = time.monotonic()
            try:
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.flush()
                return _receive(process.stdout)
            except (EOFError, BrokenPipeError):
                code = process.wait()
                if code == -signal.SIGXCPU:
                    problem = f"reading it took more than {seconds:.0f} s of CPU time. Is the file damaged?"
                elif code < 0:
                    problem = "reading it crashed the HDF5 library. Is the file damaged?"
                elif time.monotonic() - start >= wall_seconds:
                    problem = f"reading it took more than {wall_seconds:.0f} s. Is the file damaged?"
                else:
                    problem = f"the HDF5 reader could not be started. Check it: {sys.executable} -c 'import h5py'"
                raise FileError(path, f"cannot be read as HDF5: {problem}") from None
            except BaseException:  # such as Ctrl-C: the rest of this answer must not be read as the next one
                self.end()
                raise

    def _running(self) -> "subprocess.Popen[bytes]":
        if self.process is None or self.process.poll() is not None:
            self.end()
            packages = os.pathsep.join(os.path.abspath(place) for place in sys.path if place)
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(CHILD)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=CHILD.parent,  # a folder that nobody will remove or unmount
                env={**os.environ, "PYTHONPATH": packages, "OPENBLAS_NUM_THREADS": "1"},
            )
        return self.process

    def end(self) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()


_CHILDREN: dict[int, _Child] = {}  # by process id: a fork must not talk to its parent's child


def _child() -> _Child:
    if os.getpid() not in _CHILDREN:
        _CHILDREN[os.getpid()] = _Child()
    return _CHILDREN[os.getpid()]


def _receive(answers: IO[bytes]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    table: dict[str, NDArray[Any]] = {}
    while line := answers.readline():
        message = json.loads(line)
        if "column" not in message:
            return table, message
        column = np.empty(message["shape"], message["type"])
        _fill(answers, column)
        table[message["column"]] = column
    raise EOFError


def _fill(answers: IO[bytes], column: NDArray[Any]) -> None:
    space = memoryview(column.reshape(-1).view(np.uint8).data)
    while len(space):
        count = answers.readinto(space)  # type: ignore[attr-defined]  # every buffered reader has it
        if not count:
            raise EOFError
        space = space[count:]


def write_hdf5(path: Path, events: Events) -> None:
    """The plain layout, events/{x,y,t,p}, with the sensor size."""
    import h5py

    image = io.BytesIO()  # the HDF5 library crashes on a full disk, so it writes to memory
    with h5py.File(image, "w") as file:
        group = file.create_group("events")
        group.attrs["width"], group.attrs["height"] = events.sensor.width, events.sensor.height
        for name, kind in (("x", np.uint16), ("y", np.uint16), ("t", np.int64), ("p", np.bool_)):
            group.create_dataset(name, data=getattr(events, name).astype(kind), compression="gzip", shuffle=True)
    path.write_bytes(image.getbuffer())
