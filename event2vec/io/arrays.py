"""Arrays saved by NumPy and MATLAB: npy, npz, mat. Pickles are never loaded."""

import io
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.errors import FileError
from event2vec.events import Events
from event2vec.io.matlab import read_matlab
from event2vec.io.recording import Decoded, check_content
from event2vec.io.units import to_microseconds
from event2vec.names import excerpt
from event2vec.sensor import Sensor

NAMES = {
    "x": ("x", "xs", "x_pos", "col"),
    "y": ("y", "ys", "y_pos", "row"),
    "t": ("t", "ts", "timestamp", "timestamps", "time"),
    "p": ("p", "ps", "pol", "polarity", "polarities", "on"),
}
INTENSITY = "intensity"  # rho in the authors' cluster files
ASL_DVS = {"ts", "x", "y", "pol"}  # the variables of its .mat files
ASL_DVS_SENSOR = Sensor(240, 180)
TURNED = "looks like a recording of ASL-DVS, which counts rows from the bottom: flipped upright"
SHARES = "its times from 0 to 1 were read as seconds; `time_unit` sets another unit"
LARGEST_HEADER = 10_000  # bytes; numpy's own limit, which it checks only after reading them


def find_columns(path: Path, names: list[str]) -> dict[str, str]:
    """The file's own names for x, y, t and p."""
    lowered = {name.lower(): name for name in names}
    found = {
        column: next((lowered[name] for name in synonyms if name in lowered), "") for column, synonyms in NAMES.items()
    }
    missing = [f"{column} ({'/'.join(NAMES[column][:4])})" for column, name in found.items() if not name]
    if missing:
        present = excerpt(", ".join(names[:12]) or "none", 200)
        raise FileError(path, f"has no column for {', '.join(missing)}; it has {present}")
    return found


def columns_to_decoded(path: Path, table: Mapping[str, Any], time_unit: str | None) -> Decoded:
    """Pick x, y, t, p (and rho and the sensor, if we wrote them) from named columns."""
    names = find_columns(path, list(table))
    x, y, t, p = (_numbers(path, name, table[names[name]]) for name in ("x", "y", "t", "p"))
    rho = _numbers(path, "rho", table["rho"]) if "rho" in table else _counts(table.get(INTENSITY), t)
    warnings: tuple[str, ...] = ()
    if "rho" not in table and rho is not None and time_unit is None and _are_shares(t):
        time_unit, warnings = "s", (SHARES,)
    return Decoded(x, y, to_microseconds(path, t, time_unit), p, _sensor(table.get("sensor")), rho, warnings)


def _counts(intensity: Any, t: NDArray[Any]) -> NDArray[Any] | None:
    """rho from a column called intensity, as in the authors' cluster files; in other files it may be a grey value."""
    column = np.asarray(intensity)
    if column.dtype.kind not in "iuf" or column.size != t.size or max(column.shape, default=1) != column.size:
        return None
    with np.errstate(invalid="ignore"):  # infinity % 1
        are_counts = bool(((column >= 1) & (column % 1 == 0)).all())
    return column.reshape(-1) if are_counts else None


def _are_shares(t: NDArray[Any]) -> bool:
    """Whether all times are from 0 to 1, as in the authors' cluster files."""
    return t.dtype.kind == "f" and bool(((t >= 0) & (t <= 1)).all())


def _numbers(path: Path, name: str, column: Any) -> NDArray[Any]:
    column = np.asarray(column)
    if column.dtype.kind not in "biuf":
        raise FileError(path, f"has column {name} of type {excerpt(column.dtype)}, expected numbers")
    if column.dtype.kind == "b":
        column = column.view(np.uint8) != 0  # a file may hold any byte there, and torch would compute with it
    # MATLAB has no one-dimensional arrays: a column is n x 1 or 1 x n, a single number 1 x 1 or without dimensions.
    return column.reshape(-1) if max(column.shape, default=1) == column.size else column


def _sensor(sides: Any) -> Sensor | None:
    """Width and height as we write them; another program's field with this name may hold anything."""
    sides = np.asarray(sides)
    if sides.shape != (2,) or sides.dtype.kind not in "iu":
        return None
    return Sensor.or_none(int(sides[0]), int(sides[1]))


def read_npy(path: Path, time_unit: str | None = None) -> Decoded:
    """A structured array with named fields, or a plain one with four columns t, x, y, p."""
    try:
        with path.open("rb") as file:
            _checked_header(path, file)
        array = np.load(path, allow_pickle=False)
    except Exception as error:  # numpy parses headers with Python's parser, which raises many kinds of errors
        raise FileError(path, f"cannot be read as a NumPy array: {describe(error)}. Is the file complete?") from None
    return _array_to_decoded(path, array, time_unit)


def read_npy_pieces(path: Path, rows: int, time_unit: str | None = None) -> Iterator[Decoded]:
    """The same in pieces of some rows. An array that is stored column by column is one piece."""
    try:
        with path.open("rb") as file:
            shape, by_column, dtype = _checked_header(path, file)
            start = file.tell()
        if by_column or dtype.hasobject or not shape:
            yield read_npy(path, time_unit)
            return
        width = math.prod(shape[1:])
        for first in range(0, shape[0], rows):
            count = min(rows, shape[0] - first)
            place = start + first * width * dtype.itemsize
            array = np.fromfile(path, dtype, count * width, offset=place).reshape(count, *shape[1:])
            yield _array_to_decoded(path, array, time_unit)
    except FileError:
        raise
    except Exception as error:
        raise FileError(path, f"cannot be read as a NumPy array: {describe(error)}. Is the file complete?") from None


def _array_to_decoded(path: Path, array: NDArray[Any], time_unit: str | None) -> Decoded:
    if array.dtype.names:
        return columns_to_decoded(path, {name: array[name] for name in array.dtype.names}, time_unit)
    if array.ndim == 2 and array.shape[1] == 4:
        return columns_to_decoded(path, dict(zip("txyp", array.T, strict=True)), time_unit)
    raise FileError(
        path,
        f"holds an array of shape {array.shape[:4]} and type {excerpt(array.dtype)}, expected fields t, x, y, p or "
        "four columns",
    )


def read_npz(path: Path, time_unit: str | None = None) -> Decoded:
    """One array per column; our own files also have rho and sensor. Other arrays are ignored."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            columns = find_columns(path, names)
            wanted = [*columns.values(), *(name for name in ("rho", "sensor") if name in names)]
            if INTENSITY in names and _may_count(archive, columns["t"]):
                wanted.append(INTENSITY)
            check_content(path, sum(_claimed(path, archive, f"{name}.npy") for name in wanted))
        with np.load(path, allow_pickle=False) as arrays:
            table = {name: arrays[name] for name in wanted}
    except FileError:
        raise
    except Exception as error:  # zipfile, zlib and numpy raise a dozen kinds of errors on damage
        raise FileError(path, f"cannot be read as npz: {describe(error)}. Is the file complete?") from None
    return columns_to_decoded(path, table, time_unit)


def _may_count(archive: zipfile.ZipFile, times: str) -> bool:
    """Whether the array `intensity` has a number for each event, so that it is worth reading."""
    (shape, dtype), (length, _) = (_member_header(archive, f"{name}.npy") for name in (INTENSITY, times))
    return dtype.kind in "iuf" and math.prod(shape) == math.prod(length)


def _claimed(path: Path, archive: zipfile.ZipFile, member: str) -> int:
    """The size in bytes that an array claims: numpy would reserve it before reading."""
    shape, dtype = _member_header(archive, member)
    if dtype.hasobject:
        raise FileError(path, f"holds Python objects in '{member}', which are never loaded. Save plain numbers")
    claimed = math.prod(shape) * dtype.itemsize
    if claimed > archive.getinfo(member).file_size:
        raise ValueError(f"'{member}' claims {claimed} bytes but has {archive.getinfo(member).file_size}")
    return claimed


def _member_header(archive: zipfile.ZipFile, member: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    with archive.open(member) as file:
        shape, _, dtype = _array_header(file)
    return shape, dtype


def _checked_header(path: Path, file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """The header of an array that is as large as it claims."""
    shape, by_column, dtype = _array_header(file)
    claimed = math.prod(shape) * dtype.itemsize
    if claimed > path.stat().st_size:
        raise ValueError(f"the header claims {claimed} bytes, the file has {path.stat().st_size}")
    return shape, by_column, dtype


def _array_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """The shape, whether it is stored column by column, and the type."""
    major, _ = np.lib.format.read_magic(file)
    size = file.read(2 if major == 1 else 4)
    length = int.from_bytes(size, "little")
    if length > LARGEST_HEADER:
        raise ValueError(f"a header of {length} bytes")
    reader = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    header: tuple[tuple[int, ...], bool, np.dtype[Any]] = reader(io.BytesIO(size + file.read(length)))
    return header


def read_mat(path: Path, time_unit: str | None = None) -> Decoded:
    """MATLAB up to version 7: variables ts, x, y, pol, as in ASL-DVS, which counts rows from the bottom."""
    try:
        names, table = read_matlab(
            path, {"rho", INTENSITY, *(name for synonyms in NAMES.values() for name in synonyms)}
        )
    except (ValueError, struct.error, zlib.error) as error:
        raise FileError(path, f"cannot be read as a MATLAB file: {describe(error)}. Is the file complete?") from None
    find_columns(path, list(table) or names)  # if nothing is numeric, the error lists all variables
    decoded = columns_to_decoded(path, table, time_unit)
    return _turn_upright(decoded) if set(names) == ASL_DVS and _fits(decoded, ASL_DVS_SENSOR) else decoded


def _fits(decoded: Decoded, sensor: Sensor) -> bool:
    sides = ((decoded.x, sensor.width), (decoded.y, sensor.height))
    return all(bool(((column >= 0) & (column <= side - 1)).all()) for column, side in sides)


def _turn_upright(decoded: Decoded) -> Decoded:
    rows = decoded.y if decoded.y.dtype.kind == "f" else decoded.y.astype(np.int64)  # 179 is too much for int8
    y = ASL_DVS_SENSOR.height - 1 - rows
    return replace(decoded, y=y, sensor=ASL_DVS_SENSOR, warnings=(*decoded.warnings, TURNED))


def write_npz(path: Path, events: Events) -> None:
    """Lossless, with rho and sensor."""
    coordinate = np.uint16 if events.on_pixels else np.float32
    with path.open("wb") as file:  # given a path, numpy would append .npz to A.NPZ
        np.savez_compressed(
            file,
            x=events.x.astype(coordinate),
            y=events.y.astype(coordinate),
            t=events.t,
            p=events.p,
            rho=events.rho,
            sensor=np.array([events.sensor.width, events.sensor.height]),
        )


def describe(error: BaseException) -> str:
    """A library's error as one short line."""
    return excerpt(error, 160) or type(error).__name__
