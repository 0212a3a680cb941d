"""One process at a time in a folder, by a lock that ends with its owner however that ends."""

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from event2vec.errors import Busy, naming_a_full_disk

LOCK = ".lock"  # in the folder that it locks, so that both appear, move and vanish together


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
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = (folder / LOCK).open("a+", encoding="utf-8")  # to write: NFS locks no other files
        except (FileNotFoundError, FileExistsError):
            if folder.is_file():
                raise
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
            raise Busy(folder, f"{owner} is at work on it. Wait until it has ended") from None
        except BaseException:
            file.close()
            raise
        file.close()  # its owner removed it before the lock was ours


def _lock(file: TextIO) -> bool:
    if sys.platform == "win32":
        return False
    import fcntl

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
    file.write(f"process {os.getpid()} on {socket.gethostname()}, since {time.strftime('%Y-%m-%d %H:%M:%S')},")
    file.flush()
