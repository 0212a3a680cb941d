"""How good a trained network is: accuracy as mean and deviation over independent draws, class by class."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from event2vec.data.batches import Recordings, collate_indexed
from event2vec.data.sampling import Sampling
from event2vec.data.store import EventStore
from event2vec.errors import Event2VecError, FileError
from event2vec.evaluation.accuracy import Repeated
from event2vec.events import Events
from event2vec.model.classifier import Classifier

SEED = 1  # draws of the evaluation are not those of training
MANY = 10  # with more classes than this, the five best answers count too


@dataclass(frozen=True)
class Evaluation(Repeated):
    """What `evaluate` found."""

    class_names: tuple[str, ...]
    recordings: int
    repeats: int
    vote: int
    accuracies: tuple[float, ...]  # one for each repeat
    top5: float | None  # share of recordings with the right answer among the best five
    confusion: NDArray[np.int64]  # true class by answer, over all repeats

    @property
    def per_class(self) -> dict[str, float | None]:
        """The share of each class that was recognised; None for a class without recordings."""
        counts, right = self.confusion.sum(axis=1), self.confusion.diagonal()
        pairs = zip(self.class_names, counts, right, strict=True)
        return {name: float(hits / count) if count else None for name, count, hits in pairs}

    def facts(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "accuracy": self.accuracy,
            "accuracy_std": self.accuracy_std,
            "accuracies": list(self.accuracies),
            "top5": self.top5,
            "per_class": self.per_class,
            "confusion": self.confusion.tolist(),
            "class_names": list(self.class_names),
            "recordings": self.recordings,
            "repeats": self.repeats,
            "vote": self.vote,
        }


def evaluate(
    model: Classifier,
    store: EventStore,
    repeats: int = 10,
    vote: int = 1,
    batch: int = 32,
    progress: Callable[[int, int], None] | None = None,
    change: Callable[[Events], Events] | None = None,
) -> Evaluation:
    """Classify all recordings `repeats` times, each time with draws of their own.

    With `vote`, each answer is the mean over that many draws. Clusters are the same every time: one repeat, one draw.
    The network runs on the device that it is on, and within `torch.autocast` in that number type.
    `change` is done to the events of a recording, before clusters are made of them.
    """
    if repeats < 1 or vote < 1:
        raise Event2VecError(f"--repeats and --vote must be at least 1, got {repeats} and {vote}")
    _check(model, store)
    if model.sampling.repeatable:
        repeats = vote = 1
    labels, classes = store.labels, model.config.classes
    confusion = np.zeros((classes, classes), np.int64)
    accuracies, among_five = [], []
    for repeat in range(repeats):
        draws = range(repeat * vote, (repeat + 1) * vote)
        scores = sum(
            classify_store(model, store, draw, batch, _part(progress, draw, repeats * vote), change) for draw in draws
        )
        assert not isinstance(scores, int)
        answers = scores.argmax(axis=1)
        np.add.at(confusion, (labels, answers), 1)
        accuracies.append(float((answers == labels).mean()))
        best = np.argsort(-scores, axis=1, kind="stable")[:, :5]
        among_five.append(float((best == labels[:, None]).any(axis=1).mean()))
    top5 = float(np.mean(among_five)) if classes > MANY else None
    return Evaluation(model.class_names, len(store), repeats, vote, tuple(accuracies), top5, confusion)


def _check(model: Classifier, store: EventStore) -> None:
    if len(store) == 0:
        raise FileError(store.folder, "has no recordings to evaluate on")
    if store.classes != model.class_names:
        found, expected = ", ".join(store.classes[:5]), ", ".join(model.class_names[:5])
        raise FileError(store.folder, f"has the classes {found}..., the network was trained on {expected}...")
    if store.sensor != model.config.sensor:
        raise FileError(store.folder, f"has a sensor of {store.sensor}, the network reads {model.config.sensor}")


@torch.no_grad()
def classify_store(
    model: Classifier,
    store: EventStore,
    draw: int,
    batch: int,
    progress: Callable[[int, int], None],
    change: Callable[[Events], Events] | None = None,
) -> NDArray[np.float64]:
    """Probabilities of each class for each recording, with one draw of its events."""
    model.eval()
    device = next(model.parameters()).device
    recordings = Recordings((store,), model.sampling, SEED, change)
    scores = []
    for start in range(0, len(store), batch):
        rows = range(start, min(start + batch, len(store)))
        events, _, _ = collate_indexed([recordings[draw, index] for index in rows])
        scores.append(model(events.to(device)).cpu().double().softmax(dim=-1).numpy())
        progress(rows.stop, len(store))
    return np.concatenate(scores)


def sweep_events(
    model: Classifier,
    raw: EventStore,
    counts: Sequence[int],
    repeats: int = 10,
    vote: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """Accuracy with each number of events of each recording (Figure 3), and how many most of them really had."""
    rows = []
    try:
        samplings = [replace(model.sampling, length=count) for count in counts]
    except ValueError as error:
        raise Event2VecError(str(error)) from None
    for number, sampling in enumerate(samplings):
        reader = with_sampling(model, sampling)
        found = evaluate(reader, raw, repeats, vote, progress=_part(progress, number, len(counts)))
        read = int(np.median(np.minimum(raw.lengths, sampling.length)))
        rows.append(_point("events", sampling.length, found) | {"events_read": read})
    return rows


def sweep_resolution(
    model: Classifier,
    raw: EventStore,
    sides: Sequence[int],
    repeats: int = 10,
    vote: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """Accuracy with each number of pixels along each side of the sensor (Figure 4)."""
    rows = []
    for number, side in enumerate(sides):
        told, coarser = _part(progress, number, len(sides)), partial(lower_resolution, side=side)
        found = evaluate(model, raw, repeats, vote, progress=told, change=coarser)
        rows.append(_point("resolution", side, found))
    return rows


def _point(kind: str, value: int, found: Evaluation) -> dict[str, Any]:
    return {kind: value, "accuracy": found.accuracy, "accuracy_std": found.accuracy_std}


def lower_resolution(events: Events, side: int) -> Events:
    """Events as a sensor of side x side pixels would have placed them, on the pixels of the sensor that they came from.

    Scaled down and made whole, scaled back and made whole again (Sec. 4.2): each event goes to the middle of its coarse
    pixel. 1 leaves one place for all. A side of the sensor that has no more pixels than that stays as it is.
    """

    def place(column: Tensor, pixels: int) -> Tensor:
        coarse = scale_to(column.double(), pixels, side)
        return column if side >= pixels else scale_to(coarse, side, pixels).to(column.dtype)

    return replace(events, x=place(events.x, events.sensor.width), y=place(events.y, events.sensor.height))


def scale_to(column: Tensor, pixels: int, others: int) -> Tensor:
    """The nearest of `others` pixels that cover what `pixels` did, edge on edge.

    Half way between two it is the one nearer the middle of the sensor, so that a mirrored recording stays mirrored;
    always to the right, or always to an even one, would move all events by half a pixel.
    """
    place = (column + 0.5) * others / pixels - 0.5
    return torch.where(place > (others - 1) / 2, (place - 0.5).ceil(), (place + 0.5).floor())


def with_sampling(model: Classifier, sampling: Sampling) -> Classifier:
    """The same network, reading another number of events of each recording."""
    other = copy.copy(model)
    other.sampling = sampling
    return other


def _part(progress: Callable[[int, int], None] | None, number: int, parts: int) -> Callable[[int, int], None]:
    """Progress of one part of the work as progress of the whole."""
    return lambda done, total: progress(number * total + done, parts * total) if progress else None
