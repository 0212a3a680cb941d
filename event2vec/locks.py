"""One process at a time in a folder, by a lock that ends with its owner however that ends."""

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

LOCK = ".lock"  # in the folder that it locks, so that both appear, move and vanish together
TRIES = 1000  # each is lost only where another process removes the folder between two steps of this one


@contextmanager
def own(folder: Path) -> Iterator[bool]:
    """Be the only process that works in `folder`, which is made if it is missing and goes again if it stays empty.

    Raises `Busy` where another is at work. The system takes the lock from a process that is killed; what is left of
    the file means nothing. Gives False on a file system without locks, where nobody can be kept out.
    """
    with naming_a_full_disk(folder):
        file, locked = _take(folder)
    try:
        yield locked
    finally:
        (folder / LOCK).unlink(missing_ok=True)
        file.close()  # after its name is gone: who waits for this file must not take it for the lock
        with suppress(OSError):
            folder.rmdir()


def _take(folder: Path) -> tuple[TextIO, bool]:
    problem = "cannot be locked"
    for _ in range(TRIES):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = _open(folder / LOCK)
        except (FileNotFoundError, FileExistsError) as error:
            if is_in_the_way(folder):
                raise FileError(folder, "exists and is not a folder. Move it or choose another place") from None
            problem = f"cannot be made: {error.strerror}"
            continue  # the folder went with its last owner
        try:
            locked = _lock(file)
            if _is_named(file, folder / LOCK):
                _sign(file)
                return file, locked
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "another process"
            file.close()
            raise Busy(folder, f"in use by {owner}; wait for it to finish") from None
        except BaseException:
            file.close()
            raise
        file.close()  # its owner removed it before the lock was ours
    raise FileError(folder, problem)


def is_in_the_way(path: Path) -> bool:
    """Whether something stands there that is not a folder; one look, for a folder may come and go meanwhile."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return not path.is_dir() if stat.S_ISLNK(mode) else not stat.S_ISDIR(mode)


def _open(path: Path) -> TextIO:
    """To write: NFS locks no other files. A link is not followed: its target is not ours to make."""
    if path.is_symlink() or (path.exists() and not stat.S_ISREG(path.stat().st_mode)):
        raise FileError(path, "is in the way of a lock: it is not a file. Remove it")
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


def _sign(file: TextIO) -> None:
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%Y-%m-%d %H:%M:%S')}")
    file.flush()
