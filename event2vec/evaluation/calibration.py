"""Calibration: whether recordings with a score of 80 % are right in 80 of 100 cases, and the temperature that helps.

Definitions: confidence is the score of the best class. The expected calibration error (ECE) puts recordings into 15
bins of equal width by confidence and averages |accuracy - mean confidence| over the bins, weighted by the recordings in
them (Guo et al. 2017). NLL is the mean of -ln of the true class's score; the Brier score is the mean over recordings of
the squared errors of all scores, summed over classes (Brier 1950).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from event2vec.model.classifier import temper

BINS = 15
HOTTEST = 100.0  # limit of the temperature, for a network that is no better than guessing
STEPS = 60  # of bisection: each halves the range, so the last ones change nothing

Scores = NDArray[np.float64]  # recordings by classes, each row sums to 1


class Bin(NamedTuple):
    """Recordings of similar confidence; means are None without any."""

    recordings: int  # counted in every draw of their events
    confidence: float | None
    accuracy: float | None

    @property
    def gap(self) -> float:
        return 0.0 if self.accuracy is None or self.confidence is None else abs(self.accuracy - self.confidence)


@dataclass(frozen=True)
class Reliability:
    """How far scores can be trusted."""

    error: float  # expected calibration error, see above
    nll: float
    brier: float
    confidence: float  # the mean
    bins: tuple[Bin, ...]

    @classmethod
    def of(cls, scores: Scores, labels: NDArray[np.int64]) -> "Reliability":
        sure, right = scores.max(axis=1), scores.argmax(axis=1) == labels
        places = np.ceil(sure * BINS).astype(np.int64).clip(1, BINS) - 1
        bins = tuple(_bin(sure[places == place], right[places == place]) for place in range(BINS))
        error = sum(each.recordings * each.gap for each in bins) / len(labels)
        truth = np.eye(scores.shape[1])[labels]
        true_scores = np.maximum(scores[np.arange(len(labels)), labels], np.finfo(np.float64).tiny)
        brier = np.square(scores - truth).sum(axis=1).mean()
        return cls(error, float(-np.log(true_scores).mean()), float(brier), float(sure.mean()), bins)

    def facts(self) -> dict[str, Any]:
        own = {"error": self.error, "nll": self.nll, "brier": self.brier, "confidence": self.confidence}
        edges = [place / BINS for place in range(BINS + 1)]
        bins = zip(edges, edges[1:], self.bins, strict=False)
        return own | {"bins": [{"from": low, "to": high, **each._asdict()} for low, high, each in bins]}


def _bin(sure: Scores, right: NDArray[np.bool_]) -> Bin:
    return Bin(len(sure), float(sure.mean()), float(right.mean())) if len(sure) else Bin(0, None, None)


@dataclass(frozen=True)
class Calibration:
    """The scores of a network as it gives them, and without the temperature that was fitted on validation."""

    temperature: float  # 1: none was fitted
    before: Reliability
    after: Reliability

    @classmethod
    def of(cls, scores: Scores, labels: NDArray[np.int64], temperature: float) -> "Calibration":
        """`scores` are those of the network itself, at temperature 1."""
        tempered = temper(torch.from_numpy(scores), temperature).numpy()
        return cls(temperature, Reliability.of(scores, labels), Reliability.of(tempered, labels))

    @property
    def is_fitted(self) -> bool:
        return self.temperature != 1

    @property
    def summary(self) -> str:
        """One line for people."""
        found, before = self.after, f"{100 * self.before.error:.1f} % without the temperature {self.temperature:.2f}"
        error = f"calibration error {100 * found.error:.1f} % ({before if self.is_fitted else 'no temperature fitted'})"
        return f"{error}, Brier score {found.brier:.3f}, mean confidence {100 * found.confidence:.1f} %"

    def facts(self) -> dict[str, Any]:
        return {"temperature": self.temperature, "before": self.before.facts(), "after": self.after.facts()}


def fit_temperature(scores: Scores, labels: NDArray[np.int64]) -> float:
    """The temperature that gives these recordings the lowest NLL (Guo et al. 2017).

    NLL is convex in 1 / temperature, so its slope crosses zero once, and bisection finds that to the last digit. As in
    Platt 1999, the true class of n recordings counts (n + 1) / (n + 2) and the others share the rest: a network that
    gets all of a small validation part right would be certain of everything otherwise.
    """
    logits = np.log(np.maximum(scores, np.finfo(np.float64).tiny))
    count, classes = logits.shape
    if count == 0 or classes < 2:
        return 1.0
    rest = 1 / (count + 2)
    targets = np.full_like(logits, rest / (classes - 1))
    targets[np.arange(count), labels] = 1 - rest
    wanted = float((targets * logits).sum(axis=1).mean())
    low, high = -np.log(HOTTEST), np.log(HOTTEST)  # of ln(1 / temperature)
    for _ in range(STEPS):
        middle = (low + high) / 2
        expected = temper(torch.from_numpy(scores), float(np.exp(-middle))).numpy() * logits
        low, high = (low, middle) if expected.sum(axis=1).mean() > wanted else (middle, high)
    return float(np.exp(-(low + high) / 2))
