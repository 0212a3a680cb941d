"""Processes that tests start: what they are doing, and how much memory this one has held, as Linux tells."""

import os
from pathlib import Path

import pytest

SECONDS_TO_END = 900.0  # for a process that was started; only one that hangs takes that long
NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")


def state_of(process: int) -> str:
    """One letter: R runs, S sleeps, T was stopped, Z has ended and waits for somebody to ask how; "" is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_alive(process: int) -> bool:
    """In a container, one that has ended may stay in the table of processes: nobody asks how it ended."""
    return state_of(process) not in ("Z", "X", "")


def forget_highest_memory() -> None:
    """Linux starts to count again; elsewhere the highest of all tests before stays, and hides a smaller one."""
    if os.access("/proc/self/clear_refs", os.W_OK):
        Path("/proc/self/clear_refs").write_text("5")
