"""Evaluate a trained network: accuracy overall and per class, and calibration, over independent draws of the events."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from event2vec.arguments import check_kind
from event2vec.data.batches import Recordings
from event2vec.data.store import EventStore
from event2vec.errors import Event2VecError, FileError
from event2vec.evaluation.accuracy import Interval, Repeated, wilson_interval
from event2vec.evaluation.calibration import Calibration
from event2vec.events import Events
from event2vec.model.classifier import Classifier
from event2vec.model.trained_on import extents_of
from event2vec.progress import SILENT, Progress

SEED = 1  # other draws than in training
BATCH = 32  # recordings that go through the network at once
TAKES_FOLDERS = ". Run.evaluate takes a folder"
MANY = 10  # with more classes than this, top-5 accuracy is reported too


@dataclass(frozen=True)
class Evaluation(Repeated):
    """The result of `evaluate`."""

    class_names: tuple[str, ...]
    recordings: int
    repeats: int
    vote: int
    accuracies: tuple[float, ...]  # one for each repeat
    top5: float | None  # share of recordings with the true class among the five best
    confusion: NDArray[np.int64]  # true class by predicted class, over all repeats
    calibration: Calibration  # over all repeats
    far: tuple[tuple[str, str], ...] = ()  # recordings far from those of the training: source, and in what

    @property
    def top5_interval(self) -> Interval | None:
        return None if self.top5 is None else wilson_interval(self.top5, self.recordings)

    @property
    def per_class(self) -> dict[str, float | None]:
        """The accuracy of each class; None for a class without recordings."""
        counts, right = self.confusion.sum(axis=1), self.confusion.diagonal()
        pairs = zip(self.class_names, counts, right, strict=True)
        return {name: float(hits / count) if count else None for name, count, hits in pairs}

    @property
    def per_class_interval(self) -> dict[str, Interval | None]:
        """The 95 % interval of each of these accuracies."""
        counts = self.confusion.sum(axis=1) // self.repeats
        pairs = zip(self.per_class.items(), counts, strict=True)
        return {name: None if share is None else wilson_interval(share, int(count)) for (name, share), count in pairs}

    def facts(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "accuracy": self.accuracy,
            "accuracy_std": self.accuracy_std,
            "interval": self.interval,
            "accuracies": list(self.accuracies),
            "top5": self.top5,
            "top5_interval": self.top5_interval,
            "per_class": self.per_class,
            "per_class_interval": self.per_class_interval,
            "confusion": self.confusion.tolist(),
            "calibration": self.calibration.facts(),
            "far_from_training": [{"source": source, "remark": remark} for source, remark in self.far],
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
    batch: int = BATCH,
    progress: Progress = SILENT,
    change: Callable[[Events], Events] | None = None,
) -> Evaluation:
    """Classify all recordings `repeats` times, each time with new draws of their events.

        evaluate(model, EventStore.open("my_store").split("test")).per_class

    Each prediction is the mean over `vote` draws. Clusters are the same every time, and so is all of a recording that
    the network reads whole: one repeat, one draw.
    The network runs on its current device, and inside `torch.autocast` in that precision.
    `change`, which adds no events, is applied to those of a recording before some are drawn or clustered. The store may
    lack some of the network's classes, or have them in another order.
    """
    check_kind(store, EventStore, "a store, such as EventStore.open(folder).split('test')", TAKES_FOLDERS)
    if repeats < 1 or vote < 1:
        raise Event2VecError(f"repeats and vote must be at least 1, got {repeats} and {vote}")
    store = store.with_classes(model.class_names)
    _check(model, store)
    if model.sampling.same_every_time(store.lengths.tolist()):
        repeats = vote = 1
    labels, classes = store.labels, model.config.classes
    confusion = np.zeros((classes, classes), np.int64)
    accuracies, among_five, all_scores = [], [], []
    with progress.stage("evaluating", repeats * vote * len(store)):
        for repeat in range(repeats):
            draws = range(repeat * vote, (repeat + 1) * vote)
            scores = np.mean([classify_store(model, store, draw, batch, progress, change) for draw in draws], axis=0)
            all_scores.append(scores)
            answers = scores.argmax(axis=1)
            np.add.at(confusion, (labels, answers), 1)
            accuracies.append(float((answers == labels).mean()))
            best = np.argsort(-scores, axis=1, kind="stable")[:, :5]
            among_five.append(float((best == labels[:, None]).any(axis=1).mean()))
    top5 = float(np.mean(among_five)) if classes > MANY else None
    calibration = Calibration.of(np.concatenate(all_scores), np.tile(labels, repeats), model.temperature)
    figures = (tuple(accuracies), top5, confusion, calibration)
    return Evaluation(model.class_names, len(store), repeats, vote, *figures, _far(model, store))


def _far(model: Classifier, store: EventStore) -> tuple[tuple[str, str], ...]:
    if model.trained_on is None:
        return ()
    remarks = zip(store.sources, map(model.trained_on.remarks, extents_of(store)), strict=True)
    return tuple((source, "; ".join(found)) for source, found in remarks if found)


def _check(model: Classifier, store: EventStore) -> None:
    if len(store) == 0:
        raise FileError(store.folder, "has no recordings to evaluate on")
    if store.sensor != model.config.sensor:
        raise FileError(store.folder, f"has a sensor of {store.sensor}, the network reads {model.config.sensor}")


@torch.no_grad()
def classify_store(
    model: Classifier,
    store: EventStore,
    draw: int,
    batch: int,
    progress: Progress = SILENT,
    change: Callable[[Events], Events] | None = None,
) -> NDArray[np.float64]:
    """Class probabilities for each recording, with one draw of its events and at temperature 1.

    `progress` starts at that draw.
    """
    model.eval()
    device = next(model.parameters()).device
    recordings = Recordings((store,), model.sampling, SEED, change)
    scores = []
    for start in range(0, len(store), batch):
        rows = range(start, min(start + batch, len(store)))
        events, _, _ = recordings.batch([(draw, index) for index in rows])
        scores.append(model(events.to(device)).cpu().double().softmax(dim=-1).numpy())
        progress.advance(draw * len(store) + rows.stop)
    return np.concatenate(scores)
