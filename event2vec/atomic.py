"""Write a file or a folder whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path`; what was written there takes its place at the end."""
    with _beside(path) as work:
        temporary = work / path.name  # the suffix stays: some writers pick the format by it
        yield temporary
        os.replace(temporary, path)


@contextmanager
def whole_folder(path: Path, replace: bool = False) -> Iterator[Path]:
    """Give a temporary folder beside `path`, renamed to it at the end. `path` must not exist yet, unless replaced."""
    with _beside(path) as work:
        temporary = work / path.name
        temporary.mkdir()
        yield temporary
        if replace and path.exists():
            os.rename(path, work / "old")  # removed with the rest
        try:
            os.rename(temporary, path)
        except OSError:
            if (work / "old").exists():
                os.rename(work / "old", path)
            raise


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
