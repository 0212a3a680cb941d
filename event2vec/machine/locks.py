"""One process at a time in a folder, by a lock that the system releases when its owner ends, even if killed."""

import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from event2vec.errors import Busy, FileError, naming_a_full_disk

LOCK = ".lock"  # inside the folder it locks, so that both appear, move and disappear together
TRIES = 1000  # one fails only if another process removes the folder between two of our steps


@contextmanager
def own(folder: Path) -> Iterator[bool]:
    """Be the only process working in `folder`, which is created if missing and removed if it ends up empty.

    Raises `Busy` if another process holds it. The system releases the lock of a killed process; the file it leaves
    behind means nothing. Yields False on a file system without locks, where nobody can be kept out.
    """
    with naming_a_full_disk(folder):
        file, locked = _take(folder)
    try:
        yield locked
    finally:
        _leave(folder, file)


def _leave(folder: Path, file: TextIO) -> None:
    (folder / LOCK).unlink(missing_ok=True)
    with suppress(OSError):  # what could not be written on a full disk cannot be written now either
        file.close()  # after unlinking: a process that waits for this file must not mistake it for the lock
    with suppress(OSError):
        folder.rmdir()


def is_held(folder: Path) -> bool:
    """Whether another process is working in `folder` now; does not wait and creates nothing."""
    return _is_locked(folder / LOCK, fcntl.LOCK_SH)


def hold_shared(path: Path) -> int:
    """Let other processes see that this one reads `path`, until the descriptor is closed or the process ends."""
    descriptor = os.open(path, os.O_RDONLY)
    with suppress(OSError):  # no locks on this file system
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return descriptor


def is_shared(path: Path) -> bool:
    """Whether a process is reading `path`, as announced with `hold_shared`."""
    return _is_locked(path, fcntl.LOCK_EX)


def _is_locked(path: Path, kind: int) -> bool:
    """Whether a lock of this kind is refused."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:  # the file is missing, or there are no locks
        return False


def _take(folder: Path) -> tuple[TextIO, bool]:
    problem = "cannot be locked"
    for _ in range(TRIES):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = _open(folder / LOCK)
        except (FileNotFoundError, FileExistsError) as error:
            if is_in_the_way(folder):
                raise FileError(folder, "exists and is not a folder. Move it or choose another path") from None
            problem = f"cannot be created: {error.strerror}"
            continue  # its last owner removed the folder
        try:
            locked = _lock(file)
            if _is_named(file, folder / LOCK):
                _sign(file, folder)
                return file, locked
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "another process"
            file.close()
            raise Busy(folder, f"in use by {owner}; wait for it to finish") from None
        except BaseException:
            file.close()
            raise
        file.close()  # its owner removed it before we got the lock
    raise FileError(folder, problem)


def is_in_the_way(path: Path) -> bool:
    """Whether `path` exists and is not a folder. Only one look, because a folder may come and go meanwhile."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return not path.is_dir() if stat.S_ISLNK(mode) else not stat.S_ISDIR(mode)


def _open(path: Path) -> TextIO:
    """Opened for writing: NFS locks no other files. Links are not followed: their targets are not ours to create."""
    if path.is_symlink() or (path.exists() and not stat.S_ISREG(path.stat().st_mode)):
        raise FileError(path, "must be a regular file to serve as a lock. Remove it")
    return path.open("a+", encoding="utf-8")


def _lock(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # no locks on this file system
        return False
    return True


def _is_named(file: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _sign(file: TextIO, folder: Path) -> None:
    """Write who holds the lock. If the disk is full, nothing of it stays."""
    try:
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%Y-%m-%d %H:%M:%S')}")
        file.flush()
    except BaseException:
        _leave(folder, file)
        raise
