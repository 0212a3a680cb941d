"""Dataclasses of settings: built from YAML, JSON or options with every name and type checked, and written again."""

import difflib
import math
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from event2vec.errors import Event2VecError
from event2vec.names import shorten, shown
from event2vec.sensor import Sensor

LARGEST = 2**53  # of whole numbers: no setting needs more, and what computes with them may not hold it


def settings_of(section: type, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every setting of a dataclass that has a value of its own, by its full name, with its explanation."""
    explained = _explanations(section)
    for setting in fields(section):
        kind = _types(section)[setting.name]
        if is_dataclass(kind) and kind is not Sensor:
            yield from settings_of(kind, f"{prefix}{setting.name}.")  # type: ignore[arg-type]
        else:
            yield f"{prefix}{setting.name}", explained.get(setting.name, "")


@cache
def _explanations(section: type) -> dict[str, str]:
    """The docstring below each field. Python does not keep them, so they are read from the source."""
    import ast
    import inspect
    import textwrap

    (body,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for line, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(line, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            assert isinstance(line.target, ast.Name)
            found[line.target.id] = str(after.value.value)
    return found


def build_settings(section: type, content: Any, where: str = "") -> Any:
    """A dataclass from what YAML or JSON hold, with every name and type checked."""
    if not isinstance(content, Mapping):
        raise Event2VecError(f"{where or 'the recipe'} must be settings with names, got {shown(content)}")
    known = [setting.name for setting in fields(section)]
    values = {}
    for name, value in content.items():
        full = f"{where}.{name}" if where else str(name)
        if name not in known:
            accepted = f"{where or 'a recipe'} accepts {', '.join(known)}"
            raise Event2VecError(f"unknown setting {shorten(full)}{nearest(str(name), known)}; {accepted}")
        values[name] = _convert(_types(section)[name], value, full)
    try:
        return section(**values)
    except (ValueError, TypeError) as error:  # TypeError: a setting without a default is missing
        raise Event2VecError(str(error)) from None


def _types(section: type) -> dict[str, Any]:
    return get_type_hints(section)


def _convert(kind: Any, value: Any, name: str) -> Any:
    """A value of the type that a setting has, or one line that says what was expected."""
    if kind is Sensor:
        return _sensor(value, name)
    if is_dataclass(kind):
        return build_settings(kind, value, name)  # type: ignore[arg-type]
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        if value not in choices:
            near = nearest(value, list(choices)) if isinstance(value, str) else ""
            raise Event2VecError(f"{name} must be one of {', '.join(map(str, choices))}, got {shown(value)}{near}")
        return value
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    if kinds == (str,) and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)  # a name such as 2024, or a precision such as 32
    if float in kinds and isinstance(value, str):
        value = _number(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise Event2VecError(f"{name} must be a finite number, got {value}")
    if isinstance(value, int) and abs(value) > LARGEST:
        raise Event2VecError(f"{name} must be at most 2^53, got {shown(value)}")
    if float in kinds and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if (isinstance(value, bool) and bool not in kinds) or not isinstance(value, kinds):
        expected = " or ".join(
            {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}[kind.__name__]
            for kind in kinds
        )
        raise Event2VecError(f"{name} must be {expected}, got {shown(value)}")
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
        raise Event2VecError(f"{name}: {error}") from None


def nearest(name: str, known: list[str]) -> str:
    """A hint at what was meant."""
    near = difflib.get_close_matches(shorten(name), known, n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def plain_settings(value: Any) -> Any:
    """What YAML can hold."""
    if isinstance(value, Sensor):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {setting.name: plain_settings(getattr(value, setting.name)) for setting in fields(value)}
    return value
