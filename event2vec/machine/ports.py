"""HOST:PORT as people write it: where a page is served, and where packets arrive."""

import re
from typing import NoReturn

from event2vec.errors import Event2VecError
from event2vec.names import shown

UDP = "udp:"
PAGE = "127.0.0.1:8765"  # an example
PACKETS = "udp://127.0.0.1:3333"


def parse_address(text: str, name: str = "address") -> tuple[str, int]:
    """HOST:PORT, [::1]:PORT, or :PORT for this machine alone; errors call it `name`."""
    return _read(text) or _refuse(text, name, "HOST:PORT", PAGE)


def parse_udp(text: str, name: str = "source") -> tuple[str, int]:
    """The same after udp:// or udp: alone."""
    place = text.removeprefix(UDP).removeprefix("//")
    return _read(place) or _refuse(text, name, f"{UDP}//HOST:PORT", PACKETS)


def _read(text: str) -> tuple[str, int] | None:
    found = re.fullmatch(r"(\[[0-9a-fA-F:]{2,45}\]|[A-Za-z0-9.\-]{0,253}):([0-9]{1,5})", text)
    if not found or int(found[2]) > 65535:
        return None
    return found[1].strip("[]") or "127.0.0.1", int(found[2])


def _refuse(text: str, name: str, form: str, example: str) -> NoReturn:
    raise Event2VecError(f"{name} must be {form}, such as {example}, got {shown(text)}")
