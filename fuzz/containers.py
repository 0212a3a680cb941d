"""Changes inside of containers, packed again with the right checksums and lengths: damage that passes a first look."""

import ast
import io
import struct
import zipfile
import zlib
from pathlib import PurePath
from random import Random
from typing import Any

from fuzz.damage import LARGEST, NUMBERS, Change, damage_bytes, damage_json, damage_text, damage_tree, damage_yaml

BOMB = 24 << 20  # zeros that a few kilobytes are made to hold
LZ4 = b"\x04\x22\x4d\x18"
TYPES = (
    *("|b1", "|i1", "|u1", "<i2", ">i2", "<u2", "<i4", "<u4", "<i8", ">i8", "<u8", "<f2", "<f4", "<f8", ">f8", "<f16"),
    *(
        "<c8",
        "<c16",
        "|O",
        "|S1",
        "|S0",
        "|S9",
        "<U1",
        "<U9",
        "|V8",
        "|V0",
        "<M8",
        "<M8[us]",
        "<m8[s]",
        "",
        "zz",
        "i,i",
        7,
    ),
)


def damage(random: Random, name: str, data: bytes, other: bytes) -> bytes:
    """One change to a file, inside of what it contains where that can still be opened."""
    change = INSIDE.get(PurePath(name).suffix)
    if change is None or random.random() < 0.3:
        return damage_bytes(random, data, other)
    try:
        return change(random, data, other)
    except Exception:  # an earlier change broke it, and each kind of container says so in its own ways
        return damage_bytes(random, data, other)


def damage_zip(random: Random, data: bytes, other: bytes) -> bytes:
    """npz, and the checkpoints of torch. One that an earlier change made a bomb of is not unpacked again."""
    if _unpacked(data) > LARGEST:
        return damage_bytes(random, data, other)
    members = _members(data)
    place = random.randrange(len(members))
    name, content = members[place]
    kind = random.randrange(60)
    if kind == 0:
        members = [(name, _bomb(name)) for name, _ in members]
    elif kind < 4:
        del members[place]
    elif kind < 8:
        members[place] = (random.choice((random.choice(members)[0], "rho.npy", "sensor.npy", "../x.npy", "x")), content)
    elif kind < 12:
        members.append((name, random.choice(members)[1]))
    else:
        filling = random.choice(_members(other))[1] if _unpacked(other) <= LARGEST else content
        members[place] = (name, damage(random, name, content, filling))
    method = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name)  # with the date that it takes by itself, always the same
            info.compress_type = zipfile.ZIP_DEFLATED if kind == 0 else method
            archive.writestr(info, content)
    return packed.getvalue()


def _unpacked(data: bytes) -> int:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return sum(info.file_size for info in archive.infolist())


def _members(data: bytes) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(info.filename, archive.read(info)) for info in archive.infolist()]


def _bomb(name: str) -> bytes:
    return (
        _npy({"descr": "|u1", "fortran_order": False, "shape": (BOMB,)}, bytes(BOMB)) if name.endswith(".npy") else b""
    )


def damage_npy(random: Random, data: bytes, other: bytes) -> bytes:
    """What the header says of the array, or the array."""
    length = int.from_bytes(data[8:10], "little")
    header, body = ast.literal_eval(data[10 : 10 + length].decode("latin-1")), data[10 + length :]
    kind = random.randrange(6)
    if kind == 0:
        return _npy(header, damage_bytes(random, body, other))
    if kind == 1:
        return _npy(header, body, damage_text(random, repr(header).encode(), other))
    if kind == 2:
        return _npy(damage_tree(random, header), body)
    if kind == 3:
        return _npy(header | {"descr": _odd_type(random, header["descr"])}, body)
    return _npy(header | {"shape": _odd_shape(random, header["shape"])}, body)


def _npy(header: Any, body: bytes, text: bytes | None = None) -> bytes:
    text = repr(header).encode() if text is None else text
    text = text[:65000].ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


def _odd_type(random: Random, old: Any) -> Any:
    if not isinstance(old, list) or random.random() < 0.2:
        return random.choice((random.choice(TYPES), [("t", "<i8"), ("x", "<u2"), ("y", "<u2"), ("p", "?")]))
    fields = list(old)
    place = random.randrange(len(fields))
    name = random.choice((fields[place][0], random.choice(fields)[0], "rho", ""))
    kind = random.choice((random.choice(TYPES), [("a", "<i4")]))
    shaped = ((name, kind), (name, kind, random.choice(((2,), (0,), (10**6,), (1, 1), -1))))
    fields[place] = random.choice(shaped)
    return fields


def _odd_shape(random: Random, old: Any) -> Any:
    size = old[0] if isinstance(old, tuple) and old else 1
    number = random.choice((size + 1, size - 1, size // 2, size * 2, random.choice(NUMBERS)))
    odd = (
        (),
        (number,),
        (number, 4),
        (4, number),
        (number, 1),
        (1, number),
        (size, 0),
        (0, number),
        (1,) * 40 + (size,),
    )
    return random.choice((*odd, number, [size], (size, size), (str(size),), (1.5,), (True,), (None,), (number, number)))


def damage_mat(random: Random, data: bytes, other: bytes) -> bytes:
    """MATLAB 5: elements of type, length and content, some of them deflated."""
    elements, place = [], 128
    while place + 8 <= len(data):
        kind, length = struct.unpack("<II", data[place : place + 8])
        elements.append((kind, data[place + 8 : place + 8 + length]))
        place += 8 + length
    chosen = random.randrange(len(elements))
    kind, content = elements[chosen]
    if kind == 15:
        inside = zlib.decompress(content)
        bomb = random.randrange(100) == 0
        content = zlib.compress(inside + bytes(BOMB) if bomb else damage_bytes(random, inside, inside), 1)
    else:
        content = damage_bytes(random, content, content)
    elements[chosen] = (kind, content)
    return data[:128] + b"".join(struct.pack("<II", kind, len(content)) + content for kind, content in elements)


def damage_aedat4(random: Random, data: bytes, other: bytes) -> bytes:
    """Packets of stream, length and FlatBuffer, packed with LZ4; then a table, whose place stands in the header."""
    start = 18 + int.from_bytes(data[14:18], "little")
    packets, place = [], start
    while place + 8 <= len(data) and data[place : place + 4] != LZ4:
        length = int.from_bytes(data[place + 4 : place + 8], "little")
        packets.append((data[place : place + 4], data[place + 8 : place + 8 + length]))
        place += 8 + length
    header, chosen = data[18:start], random.randrange(len(packets) + 1)
    if chosen == len(packets):
        header = damage_bytes(random, header, other)
    else:
        stream, content = packets[chosen]
        packets[chosen] = stream, _lz4_frame(damage_bytes(random, _lz4_content(content), other))
    body = b"".join(stream + struct.pack("<I", len(content)) + content for stream, content in packets)
    header = header.replace(struct.pack("<q", place), struct.pack("<q", 18 + len(header) + len(body)))
    return data[:14] + struct.pack("<I", len(header)) + header + body + data[place:]


def _lz4_frame(content: bytes) -> bytes:
    """One block as it is, in a frame without checksums but that of its head."""
    return LZ4 + b"\x60\x70\x73" + struct.pack("<I", len(content) | 1 << 31) + content + bytes(4)


def _lz4_content(frame: bytes) -> bytes:
    flags, place = frame[4], 7
    place += 8 if flags & 8 else 0
    content = b""
    while length := int.from_bytes(frame[place : place + 4], "little"):
        block = frame[place + 4 : place + 4 + (length & 0x7FFFFFFF)]
        content += block if length >> 31 else _lz4_block(block)
        place += 4 + len(block) + (4 if flags & 16 else 0)
    return content


def _lz4_block(block: bytes) -> bytes:
    """Literals and references to what came before."""
    out, place = bytearray(), 0

    def extended(length: int) -> int:
        nonlocal place
        more = 255 if length == 15 else 0
        while more == 255:
            more = block[place]
            length, place = length + more, place + 1
        return length

    while place < len(block):
        token = block[place]
        place += 1
        literals = extended(token >> 4)
        out += block[place : place + literals]
        place += literals
        if place >= len(block):
            break
        offset = int.from_bytes(block[place : place + 2], "little")
        place += 2
        for _ in range(extended(token & 15) + 4):
            out.append(out[-offset])
    return bytes(out)


def damage_safetensors(random: Random, data: bytes, other: bytes) -> bytes:
    """The header, a JSON object of types, shapes and offsets, or what follows it."""
    end = 8 + int.from_bytes(data[:8], "little")
    if random.random() < 0.3:
        return data[:end] + damage_bytes(random, data[end:], other)
    header = damage_json(random, data[8:end], other)
    return struct.pack("<Q", len(header)) + header + data[end:]


INSIDE: dict[str, Change] = {
    ".npz": damage_zip,
    ".ckpt": damage_zip,
    ".npy": damage_npy,
    ".mat": damage_mat,
    ".aedat4": damage_aedat4,
    ".safetensors": damage_safetensors,
    ".json": damage_json,
    ".yaml": damage_yaml,
    ".txt": damage_text,
    ".csv": damage_text,
}
