"""Settings that make torch faster on a CPU without visibly changing results."""

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

KEEP_BYTES = 2**30  # freed memory up to this size stays with the process
LARGEST_KEPT = 2**25  # the largest value that glibc accepts
PARALLEL = 2**20  # elements; enough for torch to use all its threads
ONE_ORDER = 2 | 0x10000  # MKL_CBWR_AUTO | MKL_CBWR_STRICT


def tune_cpu() -> None:
    """Call before torch's first parallel operation: its threads inherit these settings when they start.

    Freed memory is kept: tensors of a few megabytes come and go all the time, and the system must clear each new
    page on first touch. Torch's own threads flush denormals; the calling thread does not, because that would change
    the arithmetic of every other library (SciPy's k-d tree crashes).
    """
    import torch

    if sys.platform == "linux":
        allocator = ctypes.CDLL(None)
        if hasattr(allocator, "mallopt"):  # glibc; others have no such call
            allocator.mallopt(-1, KEEP_BYTES)  # M_TRIM_THRESHOLD
            allocator.mallopt(-3, LARGEST_KEPT)  # M_MMAP_THRESHOLD
    fix_order_of_sums()
    with flush_denormals():
        torch.ones(PARALLEL).add_(1)  # starts the threads


@cache
def fix_order_of_sums() -> None:
    """Let matrix products give the same bits for any number of threads, on Intel's processors too.

    There, the order in which MKL adds depends on the number of threads, and can be fixed only before the first product
    of the process: a program that multiplies matrices earlier must run with MKL_CBWR=AUTO,STRICT instead. A fixed order
    makes products 3 to 10 % slower. On AMD's processors, results were the same without it.
    """
    if (products := _products()) is None or not _is_intel():
        return
    if set_mode := getattr(products, "mkl_serv_cbwr_set", None):
        set_mode(ONE_ORDER)  # refused, and without effect, after the first product of the process


def _is_intel() -> bool:
    try:
        return "GenuineIntel" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Treat numbers below 1e-38 as 0 in this thread; some CPUs handle them many times slower.

    They come from forgetting over long rows, above all in gradients. Run only torch code inside: other libraries
    need denormals.
    """
    import torch

    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Let the calling thread compute by itself, without torch's other threads, which short work waits for.

    Other threads of the process keep theirs; `torch.set_num_threads` would count for all that start meanwhile.
    """
    import torch

    before, set_threads, set_of_products = torch.get_num_threads(), _openmp(), _mkl()
    if set_threads is None or before == 1:
        yield
        return
    set_threads(1)
    products = set_of_products(1)
    try:
        yield
    finally:
        set_of_products(products)
        set_threads(before)


@cache
def _openmp() -> Callable[[int], None] | None:
    """What sets the number of threads of the calling thread in the OpenMP runtime that torch has loaded."""
    return None if sys.platform == "win32" else getattr(ctypes.CDLL(None), "omp_set_num_threads", None)


@cache
def _mkl() -> Callable[[int], int]:
    """What sets the threads of the calling thread in torch's matrix products, and returns how many they were.

    After `torch.set_num_threads`, products no longer heed OpenMP. Where torch has no MKL, they do.
    """
    return getattr(_products(), "MKL_Set_Num_Threads_Local", lambda count: count)


def _products() -> ctypes.CDLL | None:
    """The library that has torch's matrix products; None where it is not on its own, as on Windows."""
    import torch

    try:
        return ctypes.CDLL(str(Path(torch.__file__).parent / "lib/libtorch_cpu.so"))
    except OSError:
        return None


@contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Let torch compute with this many threads, and with as many as before afterwards."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
