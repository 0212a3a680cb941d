"""Linear probing: what a frozen network tells a linear classifier about another data set (Table 3)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from event2vec.embedding import normalised_coordinates, normalised_intervals
from event2vec.errors import Event2VecError, FileError
from event2vec.events import EventBatch
from event2vec.heads import mean_over_valid
from event2vec.model import Classifier, MaskedEventModel
from event2vec.randomness import seeded
from event2vec.repeats import Repeated
from event2vec.sampling import Sampling
from event2vec.store import EventStore

Network = Classifier | MaskedEventModel
SEED = 2  # draws of its own


@dataclass(frozen=True)
class ProbeRow(Repeated):
    """One row of Table 3."""

    features: str
    blocks: int | None  # None: no network at all
    accuracies: tuple[float, ...]  # one for each repeat


def probe(
    model: Network,
    store: EventStore,
    sampling: Sampling,
    layers: list[int],
    repeats: int = 3,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[ProbeRow]:
    """Accuracy of a linear classifier on raw events, on event2vec's tokens, and on those after the first K blocks.

    Features are means over the tokens of a recording. Recordings of another sensor are scaled to the network's.
    """
    deepest = model.config.blocks
    if any(not 0 <= blocks <= deepest for blocks in layers):
        raise Event2VecError(f"--layers must be from 0 to {deepest}, the blocks of the network, got {layers}")
    for split in ("train", "test"):
        if split not in store.splits:
            raise FileError(store.folder, f"has no recordings in the split '{split}', which probing needs")
    depths: list[int | None] = [None, *layers]
    found: list[list[float]] = [[] for _ in depths]
    rounds = 1 if sampling.repeatable else repeats
    for repeat in range(rounds):
        parts = {split: store.split(split) for split in ("train", "test")}
        told = _Told(progress, sum(map(len, parts.values())), repeat, rounds)
        features = {
            split: extract(model, part, sampling, depths, 2 * repeat + number, told)
            for number, (split, part) in enumerate(parts.items())
        }
        for number in range(len(depths)):
            train, test = features["train"][number], features["test"][number]
            found[number].append(_fit(train, parts["train"].labels, test, parts["test"].labels))
    names = ["raw events" if blocks is None else "event2vec" for blocks in depths]
    rows = zip(names, depths, found, strict=True)
    return [ProbeRow(name, blocks, tuple(accuracies)) for name, blocks, accuracies in rows]


class _Told:
    """Counts recordings over all repeats."""

    def __init__(self, progress: Callable[[int, int], None], recordings: int, repeat: int, repeats: int) -> None:
        self.progress, self.total, self.done = progress, recordings * repeats, recordings * repeat

    def add(self, count: int) -> None:
        self.done += count
        self.progress(self.done, self.total)


@torch.no_grad()
def extract(
    model: Network, store: EventStore, sampling: Sampling, depths: list[int | None], draw: int, told: _Told
) -> list[NDArray[np.float64]]:
    """For each depth, one vector for each recording."""
    model.eval()
    device = next(model.parameters()).device
    rows: list[list[NDArray[np.float64]]] = [[] for _ in depths]
    for start in range(0, len(store), 32):
        recordings = []
        for index in range(start, min(start + 32, len(store))):
            events, _ = store[index]
            generator = seeded(SEED, draw, index)
            recordings.append(sampling.shorten(events.on_sensor(model.config.sensor), generator))
        batch = EventBatch.pad(recordings).to(device)
        for number, vectors in enumerate(_at_depths(model, batch, depths)):
            rows[number].append(vectors.double().cpu().numpy())
        told.add(len(recordings))
    return [np.concatenate(vectors) for vectors in rows]


def _at_depths(model: Network, batch: EventBatch, depths: list[int | None]) -> list[Tensor]:
    seconds = normalised_intervals(batch).cumsum(dim=1)[..., None]
    raw = torch.cat([normalised_coordinates(batch), seconds], dim=-1)
    wanted = {blocks for blocks in depths if blocks is not None}
    tokens = model.backbone.after_each_block(model.embed(batch), batch.valid, max(wanted, default=0))
    vectors = [mean_over_valid(*pair) for pair in tokens]
    return [mean_over_valid(raw, batch.valid) if blocks is None else vectors[blocks] for blocks in depths]


def _fit(
    train: NDArray[np.float64], labels: NDArray[np.int64], test: NDArray[np.float64], truth: NDArray[np.int64]
) -> float:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    return float(classifier.fit(train, labels).score(test, truth))
