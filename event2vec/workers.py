"""Processes that work for another one, and end when it ends."""

import ctypes
import os
import signal
import sys
from multiprocessing import parent_process
from threading import Thread


def end_with_parent(_: int = 0) -> None:
    """Call first in a worker process: a parent that is killed cannot end it. (DataLoader passes a worker's number.)"""
    parent = parent_process()
    if parent is None:
        return
    if sys.platform == "linux" and os.getppid() == parent.pid:  # a fork server would be in between
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: works whatever this process is doing then
        if os.getppid() != parent.pid:  # it died before the call
            os._exit(1)
    else:
        Thread(target=_wait_for_end, daemon=True).start()


def _wait_for_end() -> None:
    """Ends at once where the parent has died already."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
