"""Sections of settings: dataclasses built from YAML, JSON or options with every name, type and limit checked.

Neither this module nor those that define sections import torch, so that `event2vec VERB --help` answers at once.
"""

import math
import operator
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from event2vec.errors import Event2VecError
from event2vec.names import nearest, shorten, shown
from event2vec.sensor import Sensor

LARGEST = 2**53  # of whole numbers: no setting needs more, and what computes with them may not hold it
EXPECTED = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Sensor: "WIDTHxHEIGHT"}
LIMITS = {
    "least": ("at least", operator.ge),
    "most": ("at most", operator.le),
    "above": ("above", operator.gt),
    "below": ("below", operator.lt),
}
Value = TypeVar("Value")
Bound = int | float


def setting(
    default: Value, explanation: str, *, choices: Callable[[], tuple[Any, ...]] | None = None, **limits: Bound
) -> Value:
    """A field of a section: its default, what it means, and its limits: least, most, above, below.

    `choices` lists what it may be where a type cannot, since the list grows.
    """
    assert limits.keys() <= LIMITS.keys()
    return field(default=default, metadata={"explanation": explanation, "limits": limits, "choices": choices})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every section derives from. One that is built in Python gets the same checks as one from a file."""

    section: ClassVar[str] = ""

    def __init_subclass__(cls, section: str = "") -> None:
        cls.section = section

    def __post_init__(self) -> None:
        for each in fields(self):
            name = f"{self.section}.{each.name}" if self.section else each.name
            _check(name, getattr(self, each.name), choices_of(type(self), each.name), each.metadata.get("limits", {}))


def _check(name: str, value: Any, choices: tuple[Any, ...], limits: Mapping[str, Bound]) -> None:
    _check_choice(name, value, choices)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value}")
    if not all(LIMITS[limit][1](value, bound) for limit, bound in limits.items()):
        raise ValueError(f"{name} must be {_in_words(limits)}, got {shown(value)}")


def _check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if choices and value not in choices:
        near = nearest(value, choices) if isinstance(value, str) else ""
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {shown(value)}{near}")


def _in_words(limits: Mapping[str, Bound]) -> str:
    return " and ".join(f"{LIMITS[limit][0]} {bound:g}" for limit, bound in limits.items())


@cache
def _types(section: Any) -> dict[str, Any]:
    return get_type_hints(section)


@cache
def _fields(section: Any) -> dict[str, Field[Any]]:
    return {each.name: each for each in fields(section)}


def choices_of(section: type, name: str) -> tuple[Any, ...]:
    """The values that a setting may have; none where they are not a list of names."""
    if listed := _fields(section)[name].metadata.get("choices"):
        return listed()
    kind = _types(section)[name]
    return get_args(kind) if get_origin(kind) is Literal else ()


@dataclass(frozen=True)
class Described:
    """A setting as help shows it."""

    name: str  # in full, such as training.epochs
    expected: str  # type or choices, and limits
    value: str  # as YAML writes it
    explanation: str


def describe_settings(section: Settings, prefix: str = "") -> Iterator[Described]:
    """Every setting that is not a section."""
    kind: type = type(section)
    for each in fields(section):
        name, value = prefix + each.name, getattr(section, each.name)
        if isinstance(value, Settings):
            yield from describe_settings(value, f"{name}.")
            continue
        expected = " | ".join(choices_of(kind, each.name)) or _expected(_types(kind)[each.name])
        if limits := each.metadata["limits"]:
            expected += f", {_in_words(limits)}"
        shown_value = str(value).lower() if isinstance(value, bool) else str(value)
        yield Described(name, expected, shown_value, each.metadata["explanation"])


def _kinds(kind: Any) -> tuple[type, ...]:
    """The types that a union is of, or the one."""
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _expected(kind: Any) -> str:
    return " or ".join(EXPECTED[each] for each in _kinds(kind))


def build_settings(section: type, content: Any, where: str = "") -> Any:
    """A dataclass from what YAML or JSON hold, with every name and type checked."""
    if not isinstance(content, Mapping):
        raise Event2VecError(
            f"{where or 'the recipe'} must be a mapping of setting names to values, got {shown(content)}"
        )
    known = [each.name for each in fields(section)]
    values = {}
    try:
        for name, value in content.items():
            full = f"{where}.{name}" if where else str(name)
            if name not in known:
                accepted = f"{where or 'a recipe'} accepts {', '.join(known)}"
                raise ValueError(f"unknown setting {shorten(full)}{nearest(str(name), known)}; {accepted}")
            _check_choice(full, value, choices_of(section, name))
            values[name] = _convert(_kind(section, name, value), value, full)
        return section(**values)
    except (ValueError, TypeError) as error:  # TypeError: a setting without a default is missing
        raise Event2VecError(str(error)) from None


def _kind(section: type, name: str, value: Any) -> Any:
    """The type of a setting; a field may choose the class of its section by what the section holds."""
    choose = _fields(section)[name].metadata.get("choose")
    return choose(value) if choose else _types(section)[name]


def _convert(kind: Any, value: Any, name: str) -> Any:
    """A value of the type that a setting has, or one line that says what was expected."""
    if kind is Sensor:
        return _sensor(value, name)
    if is_dataclass(kind):
        return build_settings(kind, value, name)  # type: ignore[arg-type]
    if get_origin(kind) is Literal:
        return value  # one of its choices
    kinds = _kinds(kind)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kinds == (str,) and is_number:
        return str(value)  # a name such as 2024, or a precision such as 32
    if float in kinds and isinstance(value, str):
        value = _number(value)
    if isinstance(value, int) and abs(value) > LARGEST:
        raise ValueError(f"{name} must be at most 2^53, got {shown(value)}")
    if float in kinds and is_number:
        return float(value)
    if (isinstance(value, bool) and bool not in kinds) or not isinstance(value, kinds):
        raise ValueError(f"{name} must be {_expected(kind)}, got {shown(value)}")
    return value


def _number(text: str) -> Any:
    """YAML takes 1e-6 for text, since it has no point."""
    try:
        return float(text)
    except ValueError:
        return text


def _sensor(value: Any, name: str) -> Sensor:
    if isinstance(value, Sensor):
        return value
    if isinstance(value, Mapping):  # as JSON has it
        sensor: Sensor = build_settings(Sensor, value, name)
        return sensor
    try:
        return Sensor.parse(shorten(value) if isinstance(value, str) else shown(value))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def plain_settings(value: Any) -> Any:
    """What YAML can hold."""
    if isinstance(value, Sensor):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain_settings(getattr(value, each.name)) for each in fields(value)}
    return value
