"""Several runs evaluated alike, one after another or side by side on a cluster."""

import os
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

from event2vec.arguments import several
from event2vec.cluster import Cluster, do_pieces
from event2vec.evaluation.evaluate import Evaluation
from event2vec.execution import Execution, ExecutionOptions
from event2vec.progress import SILENT, Progress
from event2vec.training.run import Run


def evaluate_runs(
    runs: str | PathLike[str] | Iterable[str | PathLike[str]],
    data: str | Path | None = None,
    split: str | None = None,
    repeats: int = 10,
    vote: int = 1,
    *,
    cluster: str | Cluster | None = None,
    **how: Unpack[ExecutionOptions],
) -> list[Evaluation]:
    """`Run.evaluate` of each run, on a Ray `cluster` side by side.

        [found.accuracy for found in evaluate_runs(["runs/one", "runs/two"], cluster="auto")]

    Results are kept in each run, as those of a single one. `how` is `workers`, `device`, `precision` and `progress`.
    `workers` prepare data here; on a cluster, each task does it alone.
    """
    given, cluster, names = Execution(**how), Cluster.of(cluster), [os.fspath(run) for run in several(runs)]
    for run in names:  # all, before any is evaluated
        Run.open(run)
    gpus = cluster.gpus_for(given.device) if cluster else 0
    own = replace(given, workers=1 if cluster else given.workers, progress=SILENT)
    work = partial(_evaluate, (data, split, repeats, vote), own)
    with given.progress.stage("all runs", len(names)):
        return do_pieces(work, names, names, cluster, given.progress, gpus=gpus)


def _evaluate(what: tuple[Any, ...], how: Execution, run: str, progress: Progress) -> Evaluation:
    return Run.open(run).evaluate(*what, **replace(how, progress=progress).options)
