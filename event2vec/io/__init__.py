"""Files to Events and back. The reader is chosen by a file's first bytes, then by its suffix.

What is decoded has numpy columns and does not need torch; `read_events` and `read_recording` give tensors.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from event2vec.arguments import path_of
from event2vec.errors import Event2VecWarning, FileError
from event2vec.events import Events
from event2vec.io import aedat, arrays, atis, es, hdf5, native, prophesee, text
from event2vec.io.recording import AS_STORED, Decoded, Reading, Recording, check
from event2vec.machine.atomic import whole_file
from event2vec.names import excerpt
from event2vec.sensor import SensorLike

__all__ = ["Recording", "read_arrays", "read_events", "read_recording", "write_events"]

Reader = Callable[..., Decoded]

# Formats without a fixed time unit take it as an option; text also takes the order of its columns.
TIMED: dict[str, Reader] = {
    "npy": arrays.read_npy,
    "npz": arrays.read_npz,
    "mat": arrays.read_mat,
    "hdf5": hdf5.read_hdf5,
}
FIXED: dict[str, Reader] = {
    "aedat4": native.read_aedat4,
    "aedat31": aedat.read_aedat31,
    "aedat2": aedat.read_aedat2,
    "evt2": native.read_evt2,
    "evt21": prophesee.read_evt21,
    "evt3": native.read_evt3,
    "dat": native.read_dat,
    "es": es.read_es,
    "atis": atis.read_atis,
}
SUFFIXES = {".bin": "atis", ".txt": "text", ".csv": "text", ".dat": "dat", ".mat": "mat"}
MAGIC = (
    (b"#!AER-DAT4.0", "aedat4"),
    (b"#!AER-DAT3.", "aedat31"),
    (b"Event Stream", "es"),
    (b"\x93NUMPY", "npy"),
    (b"PK\x03\x04", "npz"),
    (b"PK\x05\x06", "npz"),
    (b"\x89HDF\r\n\x1a\n", "hdf5"),
    (b"MATLAB 7.3", "hdf5"),
    (b"MATLAB", "mat"),
)
A_FILE = "the path of a recording"
READABLE = (
    "AEDAT 2.0, 3.1 and 4, Prophesee RAW (EVT2, EVT2.1, EVT3) and DAT, ES, HDF5, npz, npy, mat, N-MNIST bin, txt, csv"
)

WRITERS: dict[str, Callable[[Path, Events], None]] = {
    ".npz": arrays.write_npz,
    ".aedat4": native.write_native,
    ".raw": native.write_native,
    ".dat": native.write_native,
    ".h5": hdf5.write_hdf5,
    ".hdf5": hdf5.write_hdf5,
    ".csv": text.write_text,
    ".txt": text.write_text,
}
LIMITS = {
    ".raw": (1 << 11, 1 << 34),
    ".dat": (1 << 14, 1 << 32),
    ".aedat4": (1 << 15, 1 << 63),
}  # pixels per side, microseconds


def read_events(
    path: str | Path,
    *,
    sensor: SensorLike | None = None,
    columns: str | None = None,
    time_unit: str | None = None,
    usual: SensorLike | None = None,
) -> Events:
    """Read the events of a recording in any format, with a warning if something had to be skipped.

        events = read_events("walk.aedat4")
        events = read_events("walk.csv", columns="xytp", time_unit="ms", sensor=(346, 260))

    `sensor` overrides the size in the file; `columns` and `time_unit` are for formats that do not define them. A file
    that names no sensor has the `usual` one if its events are on it, otherwise the smallest that holds them.
    """
    return read_arrays(path, Reading.of(sensor, columns, time_unit, usual)).torch()


def read_arrays(path: str | Path, how: Reading = AS_STORED) -> Events:
    """`read_events` with numpy arrays as columns, without torch."""
    recording = decode_recording(path, how)
    for warning in recording.warnings:
        warnings.warn(f"{path}: {warning}", Event2VecWarning, stacklevel=3)
    if how.usual is not None and recording.fits(how.usual):
        return replace(recording.events, sensor=how.usual)
    return recording.events


def read_recording(
    path: str | Path, *, sensor: SensorLike | None = None, columns: str | None = None, time_unit: str | None = None
) -> Recording:
    """Read the events, and facts about their file: format, clock, order, warnings.

        read_recording("walk.aedat4").facts()["rate_per_second"]

    The options are those of `read_events`.
    """
    return decode_recording(path, Reading.of(sensor, columns, time_unit)).torch()


def decode_recording(path: str | Path, how: Reading = AS_STORED) -> Recording:
    """`read_recording` with numpy arrays as columns, without torch."""
    path = path_of(path, A_FILE)
    try:
        format = detect_format(path)
        how.check(path, format, fixed=format in FIXED)
        if format == "text":
            decoded = text.read_text(path, how.columns, how.time_unit)
        elif format in TIMED:
            decoded = TIMED[format](path, how.time_unit)
        else:
            decoded = FIXED[format](path)
    except OSError as error:
        raise FileError(path, f"cannot be read: {excerpt(error.strerror or error)}") from None
    return check(path, format, decoded, how.sensor)


def detect_format(path: Path) -> str:
    """The name of a file's format, by its first bytes and then by its suffix."""
    if not path.exists():
        raise FileError(path, "does not exist. Check the name and the folder")
    if path.is_dir():
        raise FileError(path, "is a folder, expected a recording: name a file in it. event2vec.predict takes folders")
    if not path.is_file():  # opening a pipe would wait for its writer
        raise FileError(path, "is a pipe, a socket or a device, expected a file")
    with path.open("rb") as file:
        head = file.read(4096)
    if not head:
        raise FileError(path, "is empty. Copy or record it again")
    for magic, format in MAGIC:
        if head.startswith(magic):
            return format
    if head.startswith(b"#!AER-DAT2.") or (head.startswith(b"#") and path.suffix.lower() == ".aedat"):
        return "aedat2"
    format = SUFFIXES.get(path.suffix.lower(), "")
    if head.startswith(b"%") and format != "text" and (encoding := _prophesee_encoding(path)):
        return encoding
    if not format:
        start = head[:8]
        raise FileError(path, f"begins with {start!r}, which is not a known format. Supported: {READABLE}")
    return format


def _prophesee_encoding(path: Path) -> str:
    encoding = prophesee.read_header(path).encoding
    if path.suffix.lower() == ".raw" and encoding not in FIXED:
        raise FileError(path, f"is Prophesee RAW with encoding '{excerpt(encoding)}', expected EVT2, EVT2.1 or EVT3")
    return encoding if encoding in ("evt2", "evt21", "evt3", "dat") else ""


def write_events(path: str | Path, events: Events) -> None:
    """Write a recording in the format given by the suffix; the file appears complete or not at all.

        write_events("part.aedat4", events.between(0, 1_000_000))

    A file of this name is replaced. Times count from the first event. Only .npz keeps cluster centres and their rho.
    """
    path = path_of(path, "the name of a file to write")
    check_output(path)
    if path.suffix.lower() != ".npz":
        _check_plain(path, events)
    columns = events.arrays()
    columns = replace(columns, t=columns.t - columns.t[:1])  # those of a slice count from an earlier event
    try:
        with whole_file(path) as temporary:
            WRITERS[path.suffix.lower()](temporary, columns)
    except OSError as error:
        raise FileError(path, f"cannot be written: {error.strerror or error}") from None


def check_output(path: Path) -> None:
    """Refuse what `write_events` cannot write, before a recording is read for it."""
    if path.suffix.lower() not in WRITERS:
        raise FileError(path, f"cannot be written: '{path.suffix}' is not one of {', '.join(WRITERS)}")
    if path.is_dir():
        raise FileError(path, "is a folder, expected the name of a file to write")


def _check_plain(path: Path, events: Events) -> None:
    """Refuse what the format cannot store: fractions, counts, empty recordings, numbers too large for it."""
    if not events.on_pixels or bool((events.rho != 1).any()):
        raise FileError(path, "cannot hold cluster centres or their counts. Write them as .npz")
    suffix = path.suffix.lower()
    if len(events) == 0 and suffix in (".aedat4", ".raw", ".dat"):
        raise FileError(path, "cannot hold a recording without events. Write it as .npz or .h5")
    side, microseconds = LIMITS.get(suffix, (1 << 16, 1 << 63))
    if max(events.sensor.width, events.sensor.height) > side or events.duration >= microseconds:
        raise FileError(path, f"cannot hold more than {side} pixels per side or {microseconds} microseconds. Use .h5")
