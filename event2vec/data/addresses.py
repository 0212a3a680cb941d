"""Addresses of stores on other machines, such as s3://bucket/store, beside paths. Without numpy: `--help` is fast."""

import os
import re
from pathlib import Path

from event2vec.errors import FileError

COPY_LATER = ". Then copy the store there: event2vec copy FOLDER ADDRESS"


def is_address(place: str | os.PathLike[str]) -> bool:
    """Whether this is an address, such as s3://bucket/store, and not a path."""
    return re.match(r"[a-z][a-z0-9+.-]*://", os.fspath(place)) is not None


def whole_name(place: str | os.PathLike[str] | None) -> str | None:
    """A path in full, so that it means the same elsewhere; an address without the slashes at its end."""
    if place is None:
        return None
    return os.fspath(place).rstrip("/") if is_address(place) else str(Path(place).resolve())


def local_place(place: str | os.PathLike[str], remedy: str = "") -> Path:
    """A folder to write. An address is refused: as a path, it would be a folder named 's3:'."""
    if is_address(place):
        raise FileError(hide_secrets(os.fspath(place)), f"is an address, expected a folder to write{remedy}")
    return Path(place)


def hide_secrets(text: str) -> str:
    """Addresses without what may be a password or a token: the user before the host, and the query."""
    return re.sub(r"(://[^\s?'\")]*)\?[^\s'\")]+", r"\1?...", re.sub(r"://[^/\s@]*@", "://", text))
