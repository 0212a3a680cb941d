"""File names for libraries that open files themselves, some of which accept only ASCII or UTF-8."""

from pathlib import Path
from typing import IO


def plain_name(file: IO[bytes]) -> str:
    """An ASCII name for an open file, whatever its path is; its own name if the system has no /dev/fd."""
    return f"/dev/fd/{file.fileno()}" if Path("/dev/fd").is_dir() else file.name
