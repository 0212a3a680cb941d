"""Numeric arrays from MATLAB's level 5 files.

Not read with SciPy, whose loadmat kills the process if a length is damaged.
"""

import math
import struct
import zlib
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.errors import FileError
from event2vec.io.recording import check_content

HEADER_BYTES = 128
BYTE_ORDERS = {b"IM": "<", b"MI": ">"}
INT32, UINT32, MATRIX, COMPRESSED = 5, 6, 14, 15  # types of data elements
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
NUMBER_CLASSES = range(6, 16)  # double, single, int8 to uint64; logical is uint8 with a flag
COMPLEX = 1 << 11
BEGINNING = 1024  # bytes of an array, enough for its class, shape and name


def read_matlab(path: Path, wanted: Container[str]) -> tuple[list[str], dict[str, NDArray[Any]]]:
    """The names of all variables, and the real arrays whose lowercase names are wanted.

    Numbers keep their stored type: MATLAB stores whole doubles as small integers.
    """
    data = memoryview(path.read_bytes())
    order = BYTE_ORDERS.get(bytes(data[HEADER_BYTES - 2 : HEADER_BYTES]))
    if order is None:
        raise FileError(path, "is not a MATLAB file of level 5. Save it again in MATLAB: save(name, '-v7')")
    names, arrays, claimed = [], {}, 0
    for kind, size, body in _variables(data, order):
        inflate = zlib.decompressobj() if kind == COMPRESSED else None
        if inflate:
            body = memoryview(inflate.decompress(body, BEGINNING))
            kind, size = struct.unpack_from(order + "II", body)
            body = body[8:]
        if kind != MATRIX:
            continue
        name, numbers, start = _describe(body, order)
        names.append(name)
        if name.lower() not in wanted or not numbers:
            continue
        claimed += size
        check_content(path, claimed)
        if inflate:
            body = memoryview(_inflate_rest(inflate, bytes(body), size))
        arrays[name] = _numbers(body, start, order)
    return names, arrays


def _variables(data: memoryview, order: str) -> Iterator[tuple[int, int, memoryview]]:
    """Type, length and content of each element of the file."""
    position = HEADER_BYTES
    while position + 8 <= len(data):
        kind, size = struct.unpack_from(order + "II", data, position)
        position += 8
        if size > len(data) - position:
            raise ValueError(f"{size} bytes claimed at byte {position - 8}, the file has {len(data) - position}")
        yield kind, size, data[position : position + size]
        position += size


def _inflate_rest(inflate: Any, beginning: bytes, size: int) -> bytes:
    missing = size - len(beginning)
    rest = inflate.decompress(inflate.unconsumed_tail, missing) if missing > 0 else b""
    inflate.decompress(inflate.unconsumed_tail, 1)  # the end of the stream verifies its checksum
    if len(rest) < missing:
        raise ValueError(f"{size} bytes claimed, {len(beginning) + len(rest)} unpacked")
    return beginning + rest


def _describe(body: memoryview, order: str) -> tuple[str, bool, int]:
    """An array's name, whether it holds real numbers, and where its shape begins."""
    kind, flags, shape = _element(body, 0, order)
    if kind != UINT32 or len(flags) != 8:
        raise ValueError("an array without its class")
    flag = struct.unpack_from(order + "I", flags)[0]
    _, _, place = _element(body, shape, order)
    _, name, _ = _element(body, place, order)
    return bytes(name).decode("latin-1"), flag & 0xFF in NUMBER_CLASSES and not flag & COMPLEX, shape


def _numbers(body: memoryview, start: int, order: str) -> NDArray[Any]:
    """The array whose shape is at `start`; its name and numbers follow."""
    kind, sides, place = _element(body, start, order)
    if kind != INT32:
        raise ValueError("an array without its shape")
    shape = np.frombuffer(sides, order + "i4").tolist()
    _, _, place = _element(body, place, order)
    kind, content, _ = _element(body, place, order)
    if kind not in STORED:
        raise ValueError(f"numbers of unknown type {kind}")
    numbers = np.frombuffer(content, order + STORED[kind])
    if min(shape, default=0) < 0 or math.prod(shape) != len(numbers):
        raise ValueError(f"a shape of {shape[:4]} and {len(numbers)} numbers")
    return numbers.reshape(shape, order="F")


def _element(body: memoryview, position: int, order: str) -> tuple[int, memoryview, int]:
    """Type and content of the element at `position`, and where the next one begins."""
    kind, size = struct.unpack_from(order + "II", body, position)
    if (
        kind >> 16
    ):  # a small element: its length is in the upper half of its type, its content where the length usually is
        kind, size = kind & 0xFFFF, kind >> 16
        content, end = body[position + 4 : position + 4 + min(size, 4)], position + 8
    else:
        content, end = body[position + 8 : position + 8 + size], position + 8 + (size + 7) // 8 * 8
    if len(content) < size:
        raise ValueError(f"an element of {size} bytes where {len(content)} are left")
    return kind, content, end
