"""What callers give, as it enters: one value where several are expected, and values of the wrong kind."""

from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from event2vec.errors import Event2VecError
from event2vec.names import shown


def several(given: Any) -> list[Any]:
    """The values of a list. One by itself, such as a path or a run, is a list of one; a text is not its characters."""
    if isinstance(given, str | PathLike) or not isinstance(given, Iterable):
        return [given]
    return list(given)


def check_kind(given: Any, kind: Any, expected: str, remedy: str = "") -> None:
    """Refuse a value of another kind, in one line."""
    if not isinstance(given, kind):
        raise Event2VecError(f"expected {expected}, got {shown(given)}{remedy}")


def path_of(given: Any, expected: str) -> Path:
    """The path that was given; anything else is refused."""
    check_kind(given, str | PathLike, expected)
    return Path(given)
