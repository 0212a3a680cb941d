"""Several runs evaluated alike, one after another or side by side on a cluster."""

import os
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from event2vec.cluster import Cluster, do_pieces
from event2vec.evaluation.evaluate import Evaluation
from event2vec.progress import SILENT, Progress
from event2vec.training.run import Run


def evaluate_runs(
    runs: Sequence[str | PathLike[str]],
    data: str | Path | None = None,
    split: str | None = None,
    repeats: int = 10,
    vote: int = 1,
    *,
    workers: int = 1,
    device: str | None = None,
    precision: str | None = None,
    cluster: str | Cluster | None = None,
    progress: Progress = SILENT,
) -> list[Evaluation]:
    """`Run.evaluate` of each run, on a Ray `cluster` side by side.

        [found.accuracy for found in evaluate_runs(["runs/one", "runs/two"], cluster="auto")]

    Results are kept in each run, as those of a single one. `workers` prepare data here; on a cluster, each task does it
    alone.
    """
    cluster, names = Cluster.of(cluster), [os.fspath(run) for run in runs]
    how = {"data": data, "split": split, "repeats": repeats, "vote": vote, "workers": 1 if cluster else workers}
    how |= {"device": device, "precision": precision}
    for run in names:  # all, before any is evaluated
        Run.open(run)
    gpus = cluster.gpus_for(device) if cluster else 0
    with progress.stage("all runs", len(names)):
        return do_pieces(_evaluate, [(run, how) for run in names], names, cluster, progress, gpus=gpus)


def _evaluate(piece: tuple[str, dict[str, Any]], progress: Progress) -> Evaluation:
    run, how = piece
    return Run.open(run).evaluate(progress=progress, **how)
