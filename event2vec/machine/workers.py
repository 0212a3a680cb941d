"""Worker processes that end when their parent ends."""

import ctypes
import os
import pickle
import signal
import sys
from collections.abc import Callable
from multiprocessing import parent_process
from threading import Thread
from typing import Any


def end_with_parent(_: int = 0) -> None:
    """Call first in a worker process: a killed parent cannot end it. (DataLoader passes the worker's number.)"""
    parent = parent_process()
    if parent is None:
        return
    if sys.platform == "linux" and os.getppid() == parent.pid:  # a fork server would be in between
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: works even if this process is busy
        if os.getppid() != parent.pid:  # it died before the call
            os._exit(1)
    else:
        Thread(target=_wait_for_end, daemon=True).start()


def first_call(function: Callable[..., None], *arguments: Any) -> bytes:
    """What `begin_work` calls in a worker, packed: nothing that it needs is loaded before the worker can be ended."""
    return pickle.dumps((function, arguments))


def begin_work(call: bytes) -> None:
    """The initializer of a pool's workers. Loading torch takes seconds, in which the parent may be killed."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends the pool
    function, arguments = pickle.loads(call)
    function(*arguments)


def _wait_for_end() -> None:
    """Exits at once if the parent is already dead."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
