"""Atomic writes: a file or folder appears complete or not at all, even if the process or the machine dies.

Work in progress is in a folder `.NAME.XXXXXXXX.writing` next to the target, locked by its writer. What a killed
process leaves there is removed by the next process that writes to the same parent folder.
"""

import ctypes
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from event2vec.errors import Busy, FileError, naming_a_full_disk
from event2vec.machine.locks import LOCK, own

SUFFIX = ".writing"
OURS = re.compile(rf"\.(.+)\.[0-9a-f]{{8}}{re.escape(SUFFIX)}", re.DOTALL)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path; the file written there replaces `path` at the end."""
    with _beside(path) as work:
        temporary = work / path.name  # the suffix stays: some writers pick the format by it
        yield temporary
        _settle(temporary, work)
        move(temporary, path)


@contextmanager
def whole_folder(path: Path, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary folder, renamed to `path` at the end. `path` must not exist yet unless `replace` is set."""
    with _beside(path) as work:
        temporary = work / path.name
        temporary.mkdir()
        yield temporary
        _settle(temporary, work)
        if replace and path.exists():
            _replace(temporary, path, work / "old")  # removed with the rest
        else:
            move(temporary, path)


def move(source: Path, target: Path) -> None:
    """Rename something that is synced to disk, and wait until its new name is synced too."""
    os.replace(source, target)
    _sync(target.parent)


def clear_leftovers(folder: Path) -> None:
    """Remove what killed processes left half-written in this folder. What a running one writes is locked, and stays."""
    found = [work for work in folder.glob(f".*{SUFFIX}") if is_leftover(work)]
    if not found or not _has_locks(folder):
        return
    for work in found:
        with suppress(FileError, OSError), own(work):
            name = _name_of(work)
            if (work / "old").exists() and not (folder / name).exists():
                os.rename(work / "old", folder / name)  # killed between the two steps of replacing it
            empty(work)


def is_leftover(work: Path) -> bool:
    """Whether this is a temporary folder of ours, in use or left by a kill: users may have others with this suffix."""
    if not OURS.fullmatch(work.name) or work.is_symlink() or not work.is_dir():
        return False
    try:
        return {path.name for path in work.iterdir()} <= {LOCK, "old", _name_of(work)}
    except OSError:  # it cannot be read, or its writer has just ended
        return False


def _name_of(work: Path) -> str:
    """The name of the target of one of our temporary folders."""
    match = OURS.fullmatch(work.name)
    assert match
    return match[1]


def _has_locks(folder: Path) -> bool:
    with own(folder / f".locks.{secrets.token_hex(4)}{SUFFIX}") as locked:
        return locked


def empty(folder: Path) -> None:
    """Remove everything in a folder except its lock."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """A temporary folder next to `path` that only this process writes to, removed at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _clear_once(path.parent.absolute())
    with ExitStack() as cleanup:
        work = _take_place(path, cleanup)
        cleanup.callback(_empty_as_far_as_possible, work)
        with naming_a_full_disk(path):  # inside: cleaning up frees space again
            yield work


@cache
def _clear_once(folder: Path) -> None:
    """Only at a process's first write to a folder: scanning a large one for every file would be slow."""
    clear_leftovers(folder)


def _take_place(path: Path, cleanup: ExitStack) -> Path:
    work = path.with_name(f".{path.name}.{secrets.token_hex(4)}{SUFFIX}")
    try:
        cleanup.enter_context(own(work))
    except Busy:  # another process is clearing it as a leftover right now
        return _take_place(path, cleanup)
    return work


def _empty_as_far_as_possible(folder: Path) -> None:
    with suppress(OSError):
        empty(folder)


def _settle(path: Path, work: Path) -> None:
    """Sync everything to disk, with the permissions of the umask: some writers set their own."""
    mode = stat.S_IMODE((work / LOCK).stat().st_mode)  # reading the umask would change it for other threads
    for part in [*path.rglob("*"), path]:
        if part.is_file() and stat.S_IMODE(part.stat().st_mode) != mode:
            part.chmod(mode)
        _sync(part)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(source: Path, target: Path, old: Path) -> None:
    """Replace one folder with another, in one step if the system supports it."""
    if not _exchange(source, target):
        os.rename(target, old)
        try:
            os.rename(source, target)
        except OSError:
            os.rename(old, target)
            raise
    _sync(target.parent)


def _exchange(one: Path, other: Path) -> bool:
    if sys.platform != "linux":
        return False
    rename = getattr(ctypes.CDLL(None), "renameat2", None)  # not in every C library
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return rename is not None and rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0
