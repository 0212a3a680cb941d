"""Prophesee's text header (RAW and DAT files), and EVT2.1, which we decode ourselves."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from event2vec.errors import FileError
from event2vec.io.headers import is_text
from event2vec.io.recording import Decoded, cut_short, unwrap
from event2vec.sensor import Sensor

HEADER_LIMIT = 1 << 20
LINE_LIMIT = 1 << 12

# Recordings from before 2022 identify the sensor only by the plug-in of its driver.
GENERATIONS = (
    ("genx320", Sensor(320, 320)),
    ("gen3", Sensor(640, 480)),
    ("gen4", Sensor(1280, 720)),
    ("imx636", Sensor(1280, 720)),
)


@dataclass(frozen=True)
class Header:
    """The lines that begin with % before the binary part."""

    encoding: str  # evt2, evt21, evt3 or dat, "" if not named
    sensor: Sensor | None
    swapped: bool  # EVT2.1 from an IMX636 stores the upper half of each word first
    length: int  # bytes up to the first record


def read_header(path: Path) -> Header:
    fields: dict[str, str] = {}
    length = 0
    with path.open("rb") as file:
        while file.tell() < HEADER_LIMIT:
            length = file.tell()
            line = file.readline(LINE_LIMIT)
            if not (line.startswith(b"% ") and is_text(line)):  # a record may begin with % too
                break
            words = line[1:].decode("latin-1").strip().split(None, 1)
            fields.setdefault(words[0].lower() if words else "", words[1].strip() if len(words) > 1 else "")
            if words == ["end"]:
                length = file.tell()
                break
    options = dict(option.partition("=")[::2] for option in fields.get("format", "").lower().split(";"))
    return Header(
        _encoding(fields),
        _sensor(fields, options),
        options.get("endianness") == "legacy",
        length,
    )


def _encoding(fields: dict[str, str]) -> str:
    if "format" in fields:
        return fields["format"].partition(";")[0].strip().lower()
    if "evt" in fields:
        return "evt" + fields["evt"].strip().replace(".0", "").replace(".", "")
    return "dat" if "version" in fields or "data" in fields else ""


def _sensor(fields: dict[str, str], options: dict[str, str]) -> Sensor | None:
    width, height = options.get("width", fields.get("width", "")), options.get("height", fields.get("height", ""))
    if size := re.fullmatch(r"(\d{1,5})\s*x\s*(\d{1,5})", fields.get("geometry", f"{width}x{height}")):
        return Sensor.or_none(*(int(side) for side in size.groups()))
    names = " ".join(fields.get(key, "").lower() for key in ("plugin_name", "sensor_name"))
    return next((sensor for name, sensor in GENERATIONS if name in names), None)


def read_evt21(path: Path) -> Decoded:
    """64-bit words: 4 bits of type, 6 of time, 11 of x, 11 of y, then a mask of which of 32 pixels fired."""
    header = read_header(path)
    size = path.stat().st_size - header.length
    words = np.fromfile(path, "<u8", count=size // 8, offset=header.length)
    if header.swapped:
        words = words << np.uint64(32) | words >> np.uint64(32)
    kind = (words >> np.uint64(60)).astype(np.uint8)
    pixels = kind <= 1
    high = _time_high(path, words, kind)
    early = int(np.count_nonzero(pixels[: np.argmax(kind == 8)])) if len(words) else 0
    pixels &= high >= 0
    words, high, rising = words[pixels], high[pixels], kind[pixels] == 1
    x, y = words >> np.uint64(43) & np.uint64(0x7FF), words >> np.uint64(32) & np.uint64(0x7FF)
    t = high << 6 | (words >> np.uint64(54) & np.uint64(0x3F)).astype(np.int64)
    row, bit = _fired(words)
    warnings = cut_short(size % 8, "word")
    if early:
        warnings += (f"words before the first timestamp were ignored: {early}",)
    return Decoded(
        x[row].astype(np.int32) + bit, y[row].astype(np.int32), t[row], rising[row], header.sensor, None, warnings
    )


def _time_high(path: Path, words: NDArray[np.uint64], kind: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The upper bits of each word's time; -1 before the first timestamp."""
    stamps = kind == 8
    values = (words[stamps] >> np.uint64(32) & np.uint64(0xFFFFFFF)).astype(np.int64)
    if len(values) == 0 and (kind <= 1).any():
        raise FileError(path, "holds EVT2.1 events but no timestamp. Is the file complete?")
    values = unwrap(values, 1 << 28)  # 28 bits overflow after 4.8 hours
    return np.concatenate([[-1], values])[np.cumsum(stamps)]


def _fired(words: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The word and the pixel in it (0 to 31) that each event comes from, in file order."""
    masks = (words & np.uint64(0xFFFFFFFF)).astype("<u4")
    bits = np.unpackbits(masks.view(np.uint8).reshape(-1, 4), axis=1, bitorder="little")
    row, bit = np.nonzero(bits)
    return row, bit.astype(np.int32)
