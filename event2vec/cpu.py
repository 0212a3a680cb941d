"""Settings that make torch quicker on a CPU and change no result that can be seen."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

KEEP_BYTES = 2**30  # memory that is free again stays with the process up to here
LARGEST_KEPT = 2**25  # the most that glibc lets us ask for
PARALLEL = 2**20  # numbers that torch spreads over its threads


def tune_cpu() -> None:
    """Call before torch's first parallel operation: its threads take their settings over when they start.

    Freed memory is kept: tensors of a few megabytes come and go all the time, and pages fresh from the system must
    each be cleared on first touch. Torch's own threads flush denormals; the thread that calls does not, because
    that would change the arithmetic of every other library (SciPy's k-d tree crashes).
    """
    import torch

    if sys.platform == "linux":
        allocator = ctypes.CDLL(None)
        if hasattr(allocator, "mallopt"):  # glibc; others have no such call
            allocator.mallopt(-1, KEEP_BYTES)  # M_TRIM_THRESHOLD
            allocator.mallopt(-3, LARGEST_KEPT)  # M_MMAP_THRESHOLD
    with flush_denormals():
        torch.ones(PARALLEL).add_(1)  # starts the threads


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Numbers below 1e-38 become 0 in this thread: long rows forget that far, and some CPUs handle such numbers
    many times slower, above all in gradients. For torch's work alone: keep other libraries out of the block.
    """
    import torch

    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
