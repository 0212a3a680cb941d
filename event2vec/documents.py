"""JSON and YAML from files that may hold anything: what was written by us or by a person, or one short error."""

import json
import math
import re
from pathlib import Path
from typing import Any

import yaml

from event2vec.errors import Event2VecError, FileError
from event2vec.names import shorten, shown

LARGEST_JSON = 2**24  # bytes; the description of a store may have more
LARGEST_YAML = 2**16  # a recipe has two thousand
DEEPEST = 20  # sections within each other
LONGEST_NUMBER = 40  # characters
DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9_]*)")


def read_json(path: Path, largest: int = LARGEST_JSON) -> dict[str, Any]:
    """The facts that a file of ours holds by name."""
    text = read_text(path, largest)
    try:
        facts = json.loads(
            text, object_pairs_hook=_by_name, parse_int=_whole, parse_float=_finite, parse_constant=_finite
        )
    except RecursionError:
        raise FileError(path, "is nested too deeply") from None
    except ValueError as error:
        raise FileError(path, f"is not JSON: {shorten(str(error))}") from None
    if not isinstance(facts, dict):
        raise FileError(path, "is not a JSON object")
    return facts


def read_yaml(path: Path) -> Any:
    """What a person wrote into a file of settings."""
    text = read_text(path, LARGEST_YAML)
    try:
        return parse_yaml(text)
    except Event2VecError as error:
        raise FileError(path, str(error)) from None


def parse_yaml(text: str) -> Any:
    """Settings as YAML, without what they do not need: tags, dates, aliases, names that are given twice."""
    try:
        return yaml.load(text, _Loader)
    except _Refused as error:
        raise Event2VecError(f"cannot be used: {error}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Event2VecError(f"is not YAML: {shorten(' '.join(str(error).split()), 200)}") from None


def read_text(path: Path, largest: int) -> str:
    """The whole of a regular file; a pipe would block, and an endless device fill the memory."""
    try:
        if not path.is_file():
            raise FileError(path, "is not a file" if path.exists() else "does not exist")
        if path.stat().st_size > largest:
            raise FileError(path, f"has {path.stat().st_size:,} bytes, expected at most {largest:,}")
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(path, f"is not text in UTF-8 (byte {error.start})") from None
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror or error}") from None


def _by_name(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    facts = dict(pairs)
    if len(facts) < len(pairs):
        raise ValueError("a name is given twice")
    return facts


def _whole(text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise ValueError(f"a number has {len(text):,} digits")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{shorten(text)} is not a number")
    return number


class _Refused(yaml.YAMLError):  # type: ignore[misc]
    """YAML that settings do not need."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Each check stands before the work that it guards: nothing is built, or printed, that is larger than the text."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise _Refused("aliases (*) are not accepted here; write the value again")
        if event.tag not in (None, "!"):
            raise _Refused(f"tags such as {shorten(event.tag, 40)} are not accepted here")
        if self.depth == DEEPEST:
            raise _Refused(f"sections are nested more than {DEEPEST} deep")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:str":
                found = f"{shown(key.value)}; put it in quotes" if isinstance(key, yaml.ScalarNode) else f"a {key.id}"
                raise _Refused(f"names must be text, got {found}")
            if key.value in names:
                raise _Refused(f"{shown(key.value)} is given twice")
            names.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: Any) -> Any:
        if len(node.value) > LONGEST_NUMBER:
            raise _Refused(f"a number has {len(node.value):,} digits")
        if node.tag == "tag:yaml.org,2002:float" and ":" not in node.value:
            return self.construct_yaml_float(node)
        if not DECIMAL.fullmatch(node.value):  # to YAML, 010 is 8 and 1:30 is 90
            raise _Refused(f"{node.value} is not a decimal number")
        return int(node.value.replace("_", ""))


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Loader.construct_number)
# A date is text: settings have none, and 2024-99-99 would be an error of another kind.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
