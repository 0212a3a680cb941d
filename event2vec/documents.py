"""JSON and YAML from untrusted files: valid content, or one short error."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from os.path import isfile
from pathlib import Path
from typing import Any

import yaml

from event2vec.errors import Event2VecError, FileError
from event2vec.machine.atomic import whole_file
from event2vec.names import nearest, shorten, shown

LARGEST_JSON = 2**24  # bytes; the description of a store may be larger
LARGEST_YAML = 2**16  # bytes; a recipe has about 2,000
DEEPEST = 20  # levels of nested sections
LONGEST_NUMBER = 40  # characters
DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9_]*)")


@dataclass(frozen=True)
class Shelf:
    """YAML files of one kind: the package's own are found by name, others by path."""

    kind: str  # the folder has the same name in the plural

    @property
    def folder(self) -> Path:
        return Path(__file__).parent / f"{self.kind}s"

    def names(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.yaml"))

    def find(self, name_or_path: str | Path, place: Path = Path()) -> Path:
        """The file of a name, or the path itself; for a file in `place` whose suffix was forgotten, a hint."""
        path = Path(name_or_path)
        if path.suffix in (".yaml", ".yml"):
            return path
        name, known = str(name_or_path), self.names()
        if name not in known:
            usual = [each for each in known if not each.endswith("_published")]  # they would make the line too long
            there_are = f"expected {', '.join(usual)}, or a file that ends in .yaml"
            hint = f" (did you mean {name}.yaml?)" if isfile(place / f"{name}.yaml") else nearest(name, known)
            raise Event2VecError(f"unknown {self.kind} {shown(name)}{hint}; {there_are}")
        return self.folder / f"{name}.yaml"


RECIPES, EXPERIMENTS = Shelf("recipe"), Shelf("experiment")


def read_json(path: Path, largest: int = LARGEST_JSON) -> dict[str, Any]:
    """The JSON object in a file."""
    return parse_json(path, read_text(path, largest))


def parse_json(path: str | Path, text: str) -> dict[str, Any]:
    """The JSON object in a text from this file."""
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


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    """Write a JSON object atomically."""
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(facts, indent=2) + "\n", "utf-8")


def read_yaml(path: Path) -> Any:
    """Settings from a YAML file that a person wrote."""
    text = read_text(path, LARGEST_YAML)
    try:
        return parse_yaml(text)
    except Event2VecError as error:
        raise FileError(path, str(error)) from None


def parse_yaml(text: str) -> Any:
    """Settings from YAML text. Tags, aliases and duplicate names are refused; dates stay text."""
    try:
        return yaml.load(text, _Loader)
    except _Refused as error:
        raise Event2VecError(f"cannot be used: {error}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Event2VecError(f"is not YAML: {shorten(' '.join(str(error).split()), 200)}") from None


def read_text(path: Path, largest: int) -> str:
    """The text of a regular file; a pipe would block, and an endless device would fill the memory."""
    try:
        if not path.is_file():
            problem = "is not a file" if path.exists() else "does not exist. Check the name and the folder"
            raise FileError(path, problem)
        if path.stat().st_size > largest:
            raise FileError(path, f"has {path.stat().st_size:,} bytes, expected at most {largest:,}")
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(path, f"is not UTF-8 text (byte {error.start})") from None
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
    """A YAML feature that settings may not use."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Each check runs before the work it guards: nothing larger than the text is built or printed."""

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
# Dates stay text: settings have none, and an invalid one such as 2024-99-99 would raise another kind of error.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
