"""Linear probing: how well a linear classifier on a frozen network does on another data set (Table 3).

Two classifiers use the same features: a linear layer trained by gradient descent with the settings of App. A.2, as
the paper appends one to the frozen network, and logistic regression, which finds the best such layer directly.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from event2vec.data.batches import Recordings
from event2vec.data.sampling import Sampling
from event2vec.data.seeding import seeded
from event2vec.data.store import EventStore
from event2vec.errors import Event2VecError, FileError
from event2vec.evaluation.accuracy import Accuracies
from event2vec.events import EventBatch
from event2vec.machine.cpu import using_threads
from event2vec.model.classifier import Event2VecClassifier
from event2vec.model.coordinates import normalised_coordinates, normalised_intervals
from event2vec.model.heads import mean_over_valid
from event2vec.model.masked import MaskedEventModel
from event2vec.model.tokens import read_tokens
from event2vec.progress import SILENT, Progress

Network = Event2VecClassifier | MaskedEventModel
SEED = 2  # other draws than in training and evaluation
Features = NDArray[np.float32]
HEADS = 2**32  # the index of the draws that train a head; no recording has it


@dataclass(frozen=True)
class HeadTraining:
    """How the linear layer is trained: AdamW, 4 warm-up epochs, then cosine decay to 0, like all networks of App. A.2.

    The learning rate is the paper's for four GPUs with 64 recordings each, and an epoch has at least as many steps as
    one on DVS Gesture does there.
    """

    epochs: int = 64
    batch: int = 256
    learning_rate: float = 0.001
    steps: int = 110  # minimum per epoch
    warmup_epochs: int = 4

    def rate(self, epoch: float) -> float:
        rising, falling = epoch / self.warmup_epochs, (epoch - self.warmup_epochs) / (self.epochs - self.warmup_epochs)
        return self.learning_rate * (0.01 + 0.99 * rising if rising < 1 else (1 + math.cos(math.pi * falling)) / 2)


@dataclass(frozen=True)
class ProbeRow:
    """One row of Table 3, each accuracy over repeats."""

    features: str
    blocks: int | None  # None: raw events, no network
    trained: Accuracies  # of a linear layer trained by gradient descent
    logistic: Accuracies  # of logistic regression

    def facts(self) -> dict[str, Any]:
        """What JSON holds."""
        facts: dict[str, Any] = {"features": self.features, "blocks": self.blocks}
        for name, found in (("trained_head", self.trained), ("logistic_regression", self.logistic)):
            facts[name] = {"accuracy": found.accuracy, "accuracy_std": found.accuracy_std, "interval": found.interval}
        return facts


def probe_network(
    model: Network,
    store: EventStore,
    sampling: Sampling,
    layers: Sequence[int],
    repeats: int = 10,
    progress: Progress = SILENT,
    training: HeadTraining | None = None,
) -> list[ProbeRow]:
    """Accuracy of linear classifiers on raw events, on event2vec tokens, and on tokens after the first K blocks.

    Features are means over the tokens of a recording. Recordings of another sensor are scaled to the network's.
    """
    deepest = model.config.blocks
    if any(not 0 <= blocks <= deepest for blocks in layers):
        raise Event2VecError(f"layers must be from 0 to {deepest}, the number of blocks, got {list(layers)}")
    for split in ("train", "test"):
        if split not in store.splits:
            raise FileError(store.folder, f"has no recordings in the split '{split}', which probing needs")
    if len(np.unique(store.split("train").labels)) < 2:
        raise FileError(store.folder, "has training recordings of one class alone, expected two classes at least")
    depths: list[int | None] = [None, *layers]
    rounds = 1 if sampling.repeatable else repeats
    parts = {split: store.split(split) for split in ("train", "test")}
    repeated = []
    with progress.stage("probing", rounds):
        for repeat in range(rounds):
            features = (
                extract(model, part, sampling, depths, 2 * repeat + number, progress)
                for number, part in enumerate(parts.values())
            )
            repeated.append([standardise(train, test) for train, test in zip(*features, strict=True)])
            progress.advance(repeat + 1)
    rows = []
    for blocks, pairs in zip(depths, zip(*repeated, strict=True), strict=True):
        train, test = (np.stack(side) for side in zip(*pairs, strict=True))
        given = (train, parts["train"].labels, test, parts["test"].labels)
        trained = train_heads(*given, training or HeadTraining(), seeded(SEED, 0, HEADS))
        name = "raw events" if blocks is None else "event2vec"
        found = (Accuracies(each, len(parts["test"])) for each in (trained, fit_logistic(*given)))
        rows.append(ProbeRow(name, blocks, *found))
    return rows


@torch.no_grad()
def extract(
    model: Network,
    store: EventStore,
    sampling: Sampling,
    depths: list[int | None],
    draw: int,
    progress: Progress = SILENT,
) -> list[Features]:
    """For each depth, one vector per recording."""
    model.eval()
    device = next(model.parameters()).device
    recordings = Recordings((store,), sampling, SEED, lambda events: events.on_sensor(model.config.sensor))
    rows: list[list[Features]] = [[] for _ in depths]
    with progress.stage("extracting features", len(store)):
        for start in range(0, len(store), 32):
            stop = min(start + 32, len(store))
            batch, _, _ = recordings.batch([(draw, index) for index in range(start, stop)])
            for number, vectors in enumerate(_at_depths(model, batch.to(device), depths)):
                rows[number].append(vectors.cpu().float().numpy())
            progress.advance(stop)
    return [np.concatenate(vectors) for vectors in rows]


def _at_depths(model: Network, batch: EventBatch, depths: list[int | None]) -> list[Tensor]:
    seconds = normalised_intervals(batch).cumsum(dim=1)[..., None]
    raw = torch.cat([normalised_coordinates(batch), seconds], dim=-1)
    wanted = {blocks for blocks in depths if blocks is not None}
    tokens, valid, positions = read_tokens(model, batch)
    layers = model.backbone.after_each_block(tokens, valid, max(wanted, default=0), positions)
    vectors = [mean_over_valid(*pair) for pair in layers]
    return [mean_over_valid(raw, batch.valid) if blocks is None else vectors[blocks] for blocks in depths]


def standardise(train: Features, test: Features) -> tuple[Features, ...]:
    """Scale to mean 0 and standard deviation 1 in training, so that every depth learns at the same speed."""
    mean, spread = (find(axis=0, dtype=np.float64) for find in (train.mean, train.std))
    spread[spread == 0] = 1
    return tuple(((part - mean) / spread).astype(np.float32) for part in (train, test))


def train_heads(
    train: Features,
    labels: NDArray[np.int64],
    test: Features,
    truth: NDArray[np.int64],
    config: HeadTraining,
    generator: torch.Generator,
) -> tuple[float, ...]:
    """Accuracy of a linear layer on frozen features, trained by gradient descent, for each repeat (first axis).

    All repeats are trained at once but independently: small steps are mostly overhead. On the CPU, since layers are
    small.
    """
    features, targets = torch.from_numpy(train), torch.from_numpy(labels)
    repeats, count, dim = features.shape
    classes = int(max(labels.max(), truth.max())) + 1
    weight = torch.zeros(repeats, dim, classes, requires_grad=True)
    bias = torch.zeros(repeats, 1, classes, requires_grad=True)
    optimizer = torch.optim.AdamW([weight, bias], lr=config.learning_rate, weight_decay=0.0)
    steps = max(math.ceil(count / config.batch), config.steps)
    which = torch.arange(repeats)[:, None]
    # Several threads would mostly wait for each other in many steps on small matrices; and the network's precision must
    # not affect the probe.
    with using_threads(1), torch.autocast("cpu", enabled=False):
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
        classifier = LogisticRegression(max_iter=2000).fit(one.astype(np.float64), labels)  # float32 stops too early
        scores.append(float(classifier.score(other, truth)))
    return tuple(scores)
