"""Changes to bytes, text and trees, each drawn from a seeded generator."""

import copy
import json
import math
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Literal

import yaml

Change = Callable[[Random, bytes, bytes], bytes]  # the second bytes are those of another seed

LARGEST = 1 << 20  # bytes of an input: many changes in a row must not blow it up
LARGEST_TREE = 1 << 14  # bytes of YAML that are parsed to be changed
HEADER = 256  # where most lengths and counts stand
INTEGERS = (0, 1, 2, 3, 7, 8, 127, 255, 256, 1000, 65535, 65536, 10**6, 10**9)
EDGES = tuple(2**power + step for power in (15, 31, 32, 62, 63, 64) for step in (-1, 0))
NUMBERS = (*INTEGERS, *EDGES, *(-number for number in (1, 2, *EDGES)))
WORDS = (
    *("", " ", "nan", "inf", "-inf", "1e308", "-1e400", "1e-400", "0.5", "1_000", "0x10", "007", "9" * 5000, "1e99999"),
    *("true", "null", "~", "[", "]", "{", "}", ":", "- ", "? ", "#", "%", ",", ";", "\t", "'", '"', "|", ">", "\\"),
    *("!!python/object/apply:os.getcwd []", "!!binary x", "!!timestamp x", "!!set {1}", "!x 1", "!!int x", "!!float x"),
    *("2001-12-14", "2001-99-99", "12:30:45", "&a [*a]", "*a", "<<: 1", "=", "0o17", ".inf", "--- a\n--- b", "%YAML 9"),
    *("\0", "\x1b[31m", "\r", "\n\n", "\u2028", "\x85", "é手", "٣", "\ufeff", "[red]", "%s%n", "../..", "x" * 3000),
)
DEPTHS = (30, 300, 3000, 100_000)


def damage_bytes(random: Random, data: bytes, other: bytes) -> bytes:
    """One change to bytes of any meaning."""
    return random.choice(BYTE_CHANGES)(random, data, other)[:LARGEST]


def damage_text(random: Random, data: bytes, other: bytes) -> bytes:
    """One change to lines and words."""
    return random.choice(TEXT_CHANGES)(random, data, other)[:LARGEST]


def damage_json(random: Random, data: bytes, other: bytes) -> bytes:
    if random.random() < 0.3:
        return damage_text(random, data, other)
    return json.dumps(damage_tree(random, json.loads(data))).encode()


def damage_yaml(random: Random, data: bytes, other: bytes) -> bytes:
    """The tree is written as JSON, which YAML contains. Anchors and deep nests would hang us as they may a reader."""
    if random.random() < 0.6 or b"*" in data or len(data) > LARGEST_TREE:
        return damage_text(random, data, other)
    return json.dumps(damage_tree(random, yaml.load(data, yaml.CSafeLoader)), default=str).encode()


def damage_tree(random: Random, tree: Any) -> Any:
    """A copy with one node changed, removed, renamed, repeated or wrapped."""
    tree = copy.deepcopy(tree)
    places = list(_places(tree))
    if not places:
        return odd_value(random)
    parent, key = random.choice(places)
    kind = random.randrange(8)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, dict):
        names = [str(name) for _, name in places]
        parent[random.choice([*names, random.choice(WORDS)])] = parent.pop(key)
    elif kind == 1 and isinstance(parent, list):
        parent[key:key] = [parent[key]] * random.choice((1, 2, 1000))
    elif kind == 2:
        parent[key] = random.choice(([parent[key]], {"x": parent[key]}, str(parent[key])))
    elif kind == 3:
        giver, name = random.choice(places)
        parent[key] = copy.deepcopy(giver[name])
    else:
        parent[key] = odd_value(random)
    return tree


def odd_value(random: Random) -> Any:
    kinds: tuple[Any, ...] = (
        None,
        True,
        False,
        [],
        {},
        [[]],
        {"": 0},
        list(range(2000)),
        math.nan,
        math.inf,
        1e308,
        0.5,
    )
    return random.choice((random.choice(kinds), random.choice(NUMBERS), 10**400, random.choice(WORDS), "\ud800"))


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every node below the root, as its parent and its key there."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        yield tree, key
        yield from _places(tree[key])


def _place(random: Random, size: int) -> int:
    return random.randrange(max(1, min(size, HEADER) if random.random() < 0.5 else size))


def _slice(random: Random, data: bytes) -> tuple[int, int]:
    start = _place(random, len(data))
    length = random.choice((1, 2, 4, 8, 16, 64, 256, len(data)))
    return start, min(len(data), start + length)


def _set_integer(random: Random, data: bytes, _: bytes) -> bytes:
    """A number that counts, measures or points, more often than not at a multiple of its width."""
    width = random.choice((1, 2, 4, 8))
    place = _place(random, len(data))
    place -= place % width if random.random() < 0.7 else 0
    order: Literal["little", "big"] = random.choice(("little", "little", "big"))
    old = int.from_bytes(data[place : place + width], order)
    value = random.choice(
        (random.choice(NUMBERS), old + random.randint(-9, 9), old * 2, old ^ 1 << random.randrange(64))
    )
    new = (value % (1 << 8 * width)).to_bytes(width, order)
    return data[:place] + new + data[place + width :]


def _flip_bit(random: Random, data: bytes, _: bytes) -> bytes:
    place = _place(random, len(data))
    changed = data[place : place + 1] or b"\0"
    return data[:place] + bytes([changed[0] ^ 1 << random.randrange(8)]) + data[place + 1 :]


def _truncate(random: Random, data: bytes, _: bytes) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _remove(random: Random, data: bytes, _: bytes) -> bytes:
    start, stop = _slice(random, data)
    return data[:start] + data[stop:]


def _repeat(random: Random, data: bytes, _: bytes) -> bytes:
    start, stop = _slice(random, data)
    return data[:stop] + data[start:stop] * random.choice((1, 1, 3, 50)) + data[stop:]


def _insert(random: Random, data: bytes, _: bytes) -> bytes:
    place = _place(random, len(data))
    return data[:place] + random.randbytes(random.choice((1, 2, 4, 8, 64))) + data[place:]


def _fill(random: Random, data: bytes, _: bytes) -> bytes:
    start, stop = _slice(random, data)
    return data[:start] + random.choice((b"\0", b"\xff", b"\x80", b" ", b"A")) * (stop - start) + data[stop:]


def _splice(random: Random, data: bytes, other: bytes) -> bytes:
    """The beginning of one and the end of another, or a piece of the other in the same place."""
    place = _place(random, len(data))
    if random.random() < 0.5:
        return data[:place] + other[_place(random, len(other)) :]
    start, stop = _slice(random, other)
    return data[:place] + other[start:stop] + data[place + stop - start :]


def _change_number(random: Random, data: bytes, _: bytes) -> bytes:
    """One of the numbers that are written out in the text at the beginning."""
    found = list(re.finditer(rb"\d+", data[: 16 * HEADER]))
    if not found:
        return data
    number = random.choice(found)
    new = str(random.choice((random.choice(NUMBERS), int(number[0][:18]) + random.randint(-2, 2)))).encode()
    return data[: number.start()] + new + data[number.end() :]


def _change_word(random: Random, data: bytes, _: bytes) -> bytes:
    found = list(re.finditer(rb"[^\s,:=;<>{}\[\]]+", data[: 16 * HEADER]))
    place = random.choice(found).span() if found else (0, 0)
    return data[: place[0]] + random.choice(WORDS).encode() + data[place[1] :]


def _change_lines(random: Random, data: bytes, other: bytes) -> bytes:
    lines = data.split(b"\n")
    place = _place(random, len(lines))
    chosen = random.choice(([], lines[place : place + 1] * 2, lines[place : place + 1] * 300, other.split(b"\n")[:40]))
    ending = random.choice((b"\n", b"\n", b"\n", b"\r\n", b"\r"))
    return ending.join([*lines[:place], *chosen, *lines[place + 1 :]])


def _insert_word(random: Random, data: bytes, _: bytes) -> bytes:
    place = _place(random, len(data))
    return data[:place] + random.choice(WORDS).encode() + data[place:]


def _nest(random: Random, data: bytes, _: bytes) -> bytes:
    """Far deeper than any reader goes; some of the time with its ends, as whole text."""
    depth = random.choice(DEPTHS)
    opening, closing = random.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"- ", b""), (b"? ", b"")))
    nested = opening * depth + b"1" + closing * random.choice((0, depth))
    place = random.choice((0, data.find(b":") + 1, len(data)))
    return data[:place] + nested + data[place:]


def _explode(random: Random, data: bytes, _: bytes) -> bytes:
    """Anchors that stand for ten of the one before, so that a few lines are billions of values."""
    levels = random.choice((3, 6, 9, 20))
    anchors = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    anchors += [f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 10)}]" for level in range(1, levels)]
    name = random.choice(("name", "model", "training", f"a{levels}", "rows", "title"))
    return "\n".join([*anchors, f"{name}: *a{levels - 1}", ""]).encode() + random.choice((data, b""))


def _encode(random: Random, data: bytes, _: bytes) -> bytes:
    text = data.decode("utf-8", "replace")
    return text.encode(random.choice(("utf-16", "utf-8-sig", "utf-32", "utf-7")))


BYTE_CHANGES: tuple[Change, ...] = (
    *(_set_integer,) * 6,
    *(_flip_bit, _flip_bit, _truncate, _remove, _repeat, _insert, _fill, _splice, _change_number, _change_word),
)
TEXT_CHANGES: tuple[Change, ...] = (
    *(_change_number, _change_number, _change_word, _change_word, _change_lines, _change_lines, _insert_word),
    *(_nest, _explode, _encode, damage_bytes),
)
