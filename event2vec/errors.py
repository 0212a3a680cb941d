"""Errors that a user can cause. Each message names the file, what was found, what was expected and the remedy."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from event2vec.names import hide_secrets, printable

ROOM = 1 << 16  # bytes; a disk with less free space counts as full
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Event2VecError(Exception):
    """Anything the user can fix: bad input, a wrong call, a missing extra."""

    def __str__(self) -> str:
        return printable(super().__str__())


class FileError(Event2VecError):
    """A file, a folder or an address that cannot be used. Errors end up in logs: secrets of addresses are not shown."""

    def __init__(self, path: str | Path, problem: str) -> None:
        path, problem = hide_secrets(path) if isinstance(path, str) else path, hide_secrets(problem)
        super().__init__(path, problem)  # both as arguments, so that the error can be pickled
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return printable(f"{self.path}: {self.problem}")


class MissingExtra(Event2VecError):
    """An optional package is needed but not installed."""

    def __init__(self, purpose: str, extra: str, on_device: str | None = None) -> None:
        super().__init__(purpose, extra, on_device)
        self.purpose = purpose
        self.extra = extra
        self.on_device = extra if on_device is None else on_device  # the extra of event2vec-runtime, or none: ""

    def __str__(self) -> str:
        package = f"event2vec[{self.extra}]"
        if find_spec("event2vec.training") is None:  # only event2vec-runtime is installed
            package = f"event2vec-runtime[{self.on_device}]".removesuffix("[]")
        return f"{self.purpose} needs an optional package. Run: pip install '{package}'"


class Event2VecWarning(UserWarning):
    """Something was skipped or repaired; the result is usable."""


class Busy(FileError):
    """Another process is working in this folder."""


class Unreachable(FileError):
    """Another machine does not answer, or the network is not to be used: it may answer later."""


class DiskFull(FileError):
    """The disk has no space left for a file."""

    def __init__(self, path: str | Path, problem: str = "") -> None:
        super().__init__(path, problem or "the disk is full. Free some space and run the same command again")


@contextmanager
def naming_a_full_disk(path: Path) -> Iterator[None]:
    """Raise `DiskFull` if writing `path` fails on a full disk: libraries report that in many ways, or only "failed"."""
    try:
        yield
    except Event2VecError:
        raise
    except Exception as error:
        if has_no_room(error) or (not _tells_another_cause(error) and _free_bytes(path.parent) < ROOM):
            raise DiskFull(path) from error
        raise


def describe(error: OSError) -> str:
    """A system error as one line, without its number."""
    place = error.filename if error.filename is not None else ""
    if has_no_room(error):
        return str(DiskFull(place or "writing failed"))
    return f"{place}: {error.strerror}" if place and error.strerror else str(error)


def has_no_room(error: Exception) -> bool:
    number = error.errno if isinstance(error, OSError) else None
    return number in NO_ROOM or any(
        os.strerror(code) in str(error) for code in NO_ROOM
    )  # some libraries only quote the system's text


def _tells_another_cause(error: Exception) -> bool:
    """Whether the system named another cause; a failed write (EIO) may still mean a full disk."""
    return isinstance(error, OSError) and error.errno not in (None, errno.EIO)


def _free_bytes(folder: Path) -> int:
    try:
        disk = os.statvfs(folder)
    except OSError:
        return ROOM
    return disk.f_bavail * disk.f_frsize
