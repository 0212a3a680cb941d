"""Linear probing: what a frozen network tells a linear classifier about another data set (Table 3).

Two classifiers see the same features: a linear layer trained by gradient descent with the settings of App. A.2, as
the paper appends one to the frozen network, and logistic regression, which finds the best such layer directly.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from event2vec.data.sampling import Sampling
from event2vec.data.seeding import seeded
from event2vec.data.store import EventStore
from event2vec.errors import Event2VecError, FileError
from event2vec.evaluation.accuracy import Accuracies
from event2vec.events import EventBatch
from event2vec.model.classifier import Classifier
from event2vec.model.embedding import normalised_coordinates, normalised_intervals
from event2vec.model.heads import mean_over_valid
from event2vec.model.masked import MaskedEventModel

Network = Classifier | MaskedEventModel
SEED = 2  # draws of its own
Features = NDArray[np.float32]
HEADS = 2**32  # the index of the draws that train a head, which is no recording's


@dataclass(frozen=True)
class HeadTraining:
    """How the linear layer is trained: AdamW, 4 warm-up epochs, then a cosine to 0, as all networks of App. A.2.

    The rate is the paper's for its four GPUs of 64 recordings each, and an epoch has no fewer steps than one on DVS
    Gesture has there.
    """

    epochs: int = 64
    batch: int = 256
    learning_rate: float = 0.001
    steps: int = 110  # at least, in an epoch
    warmup_epochs: int = 4

    def rate(self, epoch: float) -> float:
        rising, falling = epoch / self.warmup_epochs, (epoch - self.warmup_epochs) / (self.epochs - self.warmup_epochs)
        return self.learning_rate * (0.01 + 0.99 * rising if rising < 1 else (1 + math.cos(math.pi * falling)) / 2)


@dataclass(frozen=True)
class ProbeRow:
    """One row of Table 3, each accuracy over repeats."""

    features: str
    blocks: int | None  # None: no network at all
    trained: Accuracies  # of a linear layer trained by gradient descent
    logistic: Accuracies  # of logistic regression


def probe(
    model: Network,
    store: EventStore,
    sampling: Sampling,
    layers: list[int],
    repeats: int = 10,
    progress: Callable[[int, int], None] = lambda done, total: None,
    training: HeadTraining | None = None,
) -> list[ProbeRow]:
    """Accuracy of linear classifiers on raw events, on event2vec's tokens, and on those after the first K blocks.

    Features are means over the tokens of a recording. Recordings of another sensor are scaled to the network's.
    """
    deepest = model.config.blocks
    if any(not 0 <= blocks <= deepest for blocks in layers):
        raise Event2VecError(f"--layers must be from 0 to {deepest}, the blocks of the network, got {layers}")
    for split in ("train", "test"):
        if split not in store.splits:
            raise FileError(store.folder, f"has no recordings in the split '{split}', which probing needs")
    depths: list[int | None] = [None, *layers]
    rounds = 1 if sampling.repeatable else repeats
    parts = {split: store.split(split) for split in ("train", "test")}
    repeated = []
    for repeat in range(rounds):
        told = _Told(progress, sum(map(len, parts.values())), repeat, rounds)
        features = (
            extract(model, part, sampling, depths, 2 * repeat + number, told)
            for number, part in enumerate(parts.values())
        )
        repeated.append([standardise(train, test) for train, test in zip(*features, strict=True)])
    rows = []
    for blocks, pairs in zip(depths, zip(*repeated, strict=True), strict=True):
        train, test = (np.stack(side) for side in zip(*pairs, strict=True))
        given = (train, parts["train"].labels, test, parts["test"].labels)
        trained = train_heads(*given, training or HeadTraining(), seeded(SEED, 0, HEADS))
        name = "raw events" if blocks is None else "event2vec"
        rows.append(ProbeRow(name, blocks, Accuracies(trained), Accuracies(fit_logistic(*given))))
    return rows


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
) -> list[Features]:
    """For each depth, one vector for each recording."""
    model.eval()
    device = next(model.parameters()).device
    rows: list[list[Features]] = [[] for _ in depths]
    for start in range(0, len(store), 32):
        recordings = []
        for index in range(start, min(start + 32, len(store))):
            events, _ = store[index]
            generator = seeded(SEED, draw, index)
            recordings.append(sampling.shorten(events.on_sensor(model.config.sensor), generator))
        batch = EventBatch.pad(recordings).to(device)
        for number, vectors in enumerate(_at_depths(model, batch, depths)):
            rows[number].append(vectors.cpu().float().numpy())
        told.add(len(recordings))
    return [np.concatenate(vectors) for vectors in rows]


def _at_depths(model: Network, batch: EventBatch, depths: list[int | None]) -> list[Tensor]:
    seconds = normalised_intervals(batch).cumsum(dim=1)[..., None]
    raw = torch.cat([normalised_coordinates(batch), seconds], dim=-1)
    wanted = {blocks for blocks in depths if blocks is not None}
    tokens = model.backbone.after_each_block(model.embed(batch), batch.valid, max(wanted, default=0))
    vectors = [mean_over_valid(*pair) for pair in tokens]
    return [mean_over_valid(raw, batch.valid) if blocks is None else vectors[blocks] for blocks in depths]


def standardise(train: Features, test: Features) -> tuple[Features, ...]:
    """Mean 0 and deviation 1 in the training recordings: a linear layer can undo it, and every depth learns as fast."""
    mean, spread = (find(axis=0, dtype=np.float64) for find in (train.mean, train.std))
    spread[spread == 0] = 1
    return tuple(((part - mean) / spread).astype(np.float32) for part in (train, test))


@contextmanager
def one_thread() -> Iterator[None]:
    """For many steps on small matrices, in which several threads mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def train_heads(
    train: Features,
    labels: NDArray[np.int64],
    test: Features,
    truth: NDArray[np.int64],
    config: HeadTraining,
    generator: torch.Generator,
) -> tuple[float, ...]:
    """Accuracy of a linear layer on frozen features, trained by gradient descent, for each repeat (first axis).

    All repeats are trained side by side, each as if alone: many small steps take most of their time to begin. On the
    CPU, since layers are small.
    """
    features, targets = torch.from_numpy(train), torch.from_numpy(labels)
    repeats, count, dim = features.shape
    classes = int(max(labels.max(), truth.max())) + 1
    weight = torch.zeros(repeats, dim, classes, requires_grad=True)
    bias = torch.zeros(repeats, 1, classes, requires_grad=True)
    optimizer = torch.optim.AdamW([weight, bias], lr=config.learning_rate, weight_decay=0.0)
    steps = max(math.ceil(count / config.batch), config.steps)
    which = torch.arange(repeats)[:, None]
    with one_thread(), torch.autocast("cpu", enabled=False):  # what the network runs in is not for its judge
        for step in range(config.epochs * steps):
            optimizer.param_groups[0]["lr"] = config.rate(step / steps)
            rows = torch.randint(count, (repeats, min(config.batch, count)), generator=generator)
            optimizer.zero_grad()
            logits = torch.baddbmm(bias, features[which, rows], weight)
            loss = F.cross_entropy(logits.flatten(0, 1), targets[rows].flatten())
            (repeats * loss).backward()  # the sum over repeats of their means
            optimizer.step()
        answers = torch.baddbmm(bias, torch.from_numpy(test), weight).argmax(dim=2).numpy()
    return tuple(float(share) for share in (answers == truth).mean(axis=1))


def fit_logistic(
    train: Features, labels: NDArray[np.int64], test: Features, truth: NDArray[np.int64]
) -> tuple[float, ...]:
    """The same for logistic regression."""
    from sklearn.linear_model import LogisticRegression

    scores = []
    for one, other in zip(train, test, strict=True):
        classifier = LogisticRegression(max_iter=2000).fit(one.astype(np.float64), labels)  # float32 ends early
        scores.append(float(classifier.score(other, truth)))
    return tuple(scores)
