"""Parts of a store written side by side: by processes of this machine, or as tasks on a cluster."""

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import active_children, get_context

from event2vec.cluster import Cluster, Workers, do_pieces
from event2vec.data.parts import Part, write_part
from event2vec.errors import Event2VecError
from event2vec.machine.workers import begin_work, first_call
from event2vec.progress import Progress


def write_parts(parts: Sequence[Part], workers: Workers, progress: Progress) -> None:
    """Write those that are missing."""
    todo = [part for part in parts if not part.folder.exists()]
    done = sum(map(len, parts)) - sum(map(len, todo))
    progress.advance(done)
    if isinstance(workers, Cluster):
        alone = replace(workers, threads=1)
        names = [part.folder.name for part in todo]
        do_pieces(_write_once, todo, names, alone, progress, sizes=[*map(len, todo)], done=done)
        return
    for count in _in_parallel(todo, workers) if workers > 1 and len(todo) > 1 else map(write_part, todo):
        done += count
        progress.advance(done)


def _write_once(part: Part, progress: Progress) -> None:
    """Unless it is there: the task that wrote it may be lost before it says so."""
    if not part.folder.exists():
        write_part(part)


def _in_parallel(parts: list[Part], workers: int) -> Iterator[int]:
    # Spawned, not forked: torch and eventcv have threads of their own, which do not survive a fork.
    others, wait = set(active_children()), True
    pool = ProcessPoolExecutor(
        min(workers, len(parts)),
        get_context("spawn"),
        initializer=begin_work,
        initargs=(first_call(_start_worker, parts),),
    )
    try:
        for future in as_completed([pool.submit(_write_number, number) for number in range(len(parts))]):
            yield future.result()
    except KeyboardInterrupt:
        wait = False  # the pool's own thread may wait forever for killed workers
        for worker in set(active_children()) - others:
            worker.kill()  # parts appear complete or not at all, so nothing half-written is left
        raise
    except BrokenProcessPool:
        raise Event2VecError(
            "a worker process was killed, most likely because memory ran out. Finished parts are kept: "
            "do the same again with fewer `workers`"
        ) from None
    finally:
        pool.shutdown(wait=wait, cancel_futures=True)


_ALL_PARTS: list[Part] = []  # in a worker: all parts, so that messages need only their numbers


def _start_worker(parts: list[Part]) -> None:
    """One thread for each worker. Most need no torch, which takes a second to load; one that does gets it so too."""
    _ALL_PARTS[:] = parts
    os.environ["OMP_NUM_THREADS"] = "1"
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def _write_number(number: int) -> int:
    """Messages are single numbers: Ctrl-C in the middle of a long one would leave the parent waiting forever."""
    return write_part(_ALL_PARTS[number])
