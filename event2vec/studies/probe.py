"""Linear probing of a run on other data (Table 3): its network is frozen, and a linear classifier learns on top."""

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from event2vec.arguments import several
from event2vec.data.opening import open_for_training
from event2vec.data.sampling import Sampling
from event2vec.evaluation.probe import HeadTraining, ProbeRow, probe_network
from event2vec.execution import Execution, ExecutionOptions
from event2vec.model.checkpoint import load_event2vec
from event2vec.training.run import Run


def probe(
    run: str | Path | Run,
    data: str | Path | None = None,
    dataset: str = "folder",
    layers: int | Sequence[int] | None = None,
    *,
    sampling: Sampling | None = None,
    repeats: int = 10,
    training: HeadTraining | None = None,
    **how: Unpack[ExecutionOptions],
) -> list[ProbeRow]:
    """How well a linear classifier does on features of the run's frozen network, with other data.

        rows = probe("runs/digits", "N-MNIST/", "nmnist", layers=[0, 2])
        rows[-1].logistic.accuracy

    The first row is for raw events, each other one for the tokens after that many blocks; without `layers`, after 0
    blocks to all. 256 events are drawn of each recording unless `sampling` says otherwise.
    `how` is `workers`, `device`, `precision` and `progress`.
    """
    opened, given = Run.open(run), Execution(**how)
    sampling = sampling or Sampling(length=256)
    compute = opened.compute(given.device, given.precision)
    model = load_event2vec(opened).to(compute.device)
    store = open_for_training(data, dataset, sampling, given.workers, given.progress).store
    depths = range(model.config.blocks + 1) if layers is None else several(layers)
    with compute.autocast():
        return probe_network(model, store, sampling, depths, repeats, given.progress, training)
