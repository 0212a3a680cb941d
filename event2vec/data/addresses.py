"""Addresses of stores on other machines, such as s3://bucket/store, beside paths. Without numpy: `--help` is fast."""

import os
import re
from pathlib import Path

from event2vec.errors import FileError

GIVE_SECRETS = 'Give secrets as fsspec expects them, such as FSSPEC_HTTPS=\'{"headers": {"Authorization": ...}}\''
COPY_LATER = ". Then copy the store there: event2vec copy FOLDER ADDRESS"


def is_address(place: str | os.PathLike[str]) -> bool:
    """Whether this is an address, such as s3://bucket/store, and not a path."""
    return re.match(r"[a-z][a-z0-9+.-]*://", os.fspath(place), re.IGNORECASE) is not None


def usual_form(address: str) -> str:
    """An address as fsspec knows it: its scheme in lower case, and without the slashes at its end."""
    scheme, _, rest = address.partition("://")
    return f"{scheme.lower()}://{rest.rstrip('/')}"


def check_address(address: str) -> None:
    """Refuse passwords and tokens: runs, caches and reports keep addresses, and other people read those."""
    scheme, _, rest = address.partition("://")
    user = rest.partition("/")[0].rpartition("@")[0]
    if "?" in address:
        raise FileError(address, f"has a query, expected the address of a folder. {GIVE_SECRETS}")
    if ":" in user or (user and scheme in ("http", "https")):
        raise FileError(address, f"was given with a password or a token, which runs would keep. {GIVE_SECRETS}")


def whole_name(place: str | os.PathLike[str] | None) -> str | None:
    """A path in full, so that it means the same elsewhere; an address in its usual form."""
    if place is None:
        return None
    return usual_form(os.fspath(place)) if is_address(place) else str(Path(place).resolve())


def local_place(place: str | os.PathLike[str], remedy: str = "") -> Path:
    """A folder to write. An address is refused: as a path, it would be a folder named 's3:'."""
    if is_address(place):
        raise FileError(os.fspath(place), f"is an address, expected a folder to write{remedy}")
    return Path(place)
