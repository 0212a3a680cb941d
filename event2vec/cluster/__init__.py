"""Independent pieces of work, one after another here or side by side on many machines as plain Ray tasks.

What fails is tried again, a lost machine costs only what it was doing, and progress is that of all machines. Pieces
write to files that all machines see, and appear complete or not at all: so it does not matter where, how often or in
which order they are carried out.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from event2vec.cluster.connection import EXPECTED as EXPECTED
from event2vec.cluster.connection import Cluster as Cluster
from event2vec.cluster.job import Job
from event2vec.progress import SILENT, Progress

Piece = TypeVar("Piece")
Result = TypeVar("Result")
Workers = int | Cluster  # who does the work: this many processes on this machine, or a cluster


def do_pieces(
    work: Callable[[Piece, Progress], Result],
    pieces: Sequence[Piece],
    names: Sequence[str],
    cluster: Cluster | None = None,
    progress: Progress = SILENT,
    *,
    found: Callable[[int, Result], None] = lambda number, result: None,
    sizes: Sequence[int] | None = None,
    done: int = 0,
    gpus: int = 0,
) -> list[Result]:
    """The results of all pieces, in their order; each is reported to `found` when it is there.

    The current stage of `progress` counts what is `done`, by `sizes` or by pieces. On a cluster, `work` and the pieces
    are pickled, and each piece gets the cluster's threads and `gpus`. An `Event2VecError` ends all work: another
    machine would find the same. What is locked or does not answer, and all else that fails, is tried again.
    """
    sizes = sizes or [1] * len(pieces)
    if cluster is None:
        results = []
        for number, piece in enumerate(pieces):
            progress.advance(done, names[number])
            results.append(work(piece, progress))
            found(number, results[-1])
            done += sizes[number]
        return results
    return Job(cluster, names, progress, found, sizes, done).carry_out(work, pieces, gpus) if pieces else []
