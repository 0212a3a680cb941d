"""Names for files that libraries open by themselves, some of which take only ASCII or UTF-8."""

from pathlib import Path
from typing import IO


def plain_name(file: IO[bytes]) -> str:
    """A name in ASCII for an open file, whatever it and its folders are called; its own where there are none such."""
    return f"/dev/fd/{file.fileno()}" if Path("/dev/fd").is_dir() else file.name
