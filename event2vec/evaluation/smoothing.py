"""Answers over time that do not flicker: a running mean of the scores, or the most likely sequence of classes."""

import numpy as np
from numpy.typing import NDArray

from event2vec.choices import Smoothing

Scores = NDArray[np.float64]  # one row for each window, one column for each class
CHANGE = 0.05  # probability that the class changes from one window to the next
SMALLEST = 1e-6  # of a score, so that one window cannot rule a class out


def smooth(scores: Scores, how: Smoothing, width: int) -> NDArray[np.int64]:
    """The class of each window. `width` is the length of the running mean, or the fewest windows of one class."""
    if how == "hmm":
        return most_likely_path(scores, width)
    return (running_mean(scores, width) if how == "mean" else scores).argmax(axis=1)


def running_mean(scores: Scores, width: int) -> Scores:
    """Means over `width` neighbouring windows, each in their middle; fewer at the ends."""
    sums = np.concatenate([np.zeros((1, scores.shape[1])), scores.cumsum(axis=0)])
    places = np.arange(len(scores))
    first = np.maximum(places - (width - 1) // 2, 0)
    stop = np.minimum(places + width // 2 + 1, len(scores))
    means: Scores = (sums[stop] - sums[first]) / (stop - first)[:, None]
    return means


def most_likely_path(scores: Scores, fewest: int) -> NDArray[np.int64]:
    """The sequence of classes that explains the scores best, each for `fewest` windows at least (Viterbi 1967).

    A hidden Markov model: the class stays with probability 0.95 and otherwise changes to any other; a window's scores
    are the likelihoods of the classes. A new class is entered for `fewest` windows at once.
    """
    count, classes = scores.shape
    fewest = min(fewest, count)
    likelihood = np.log(np.maximum(scores, SMALLEST))
    sums = np.concatenate([np.zeros((1, classes)), likelihood.cumsum(axis=0)])
    stay, change = np.log(1 - CHANGE), np.log(CHANGE / max(classes - 1, 1))
    best = np.full((count, classes), -np.inf)  # of a sequence up to this window that ends in this class
    entered = np.full((count, classes), -1)  # from which class it came `fewest` windows ago; -1: it stayed
    best[fewest - 1] = sums[fewest]
    for window in range(fewest, count):
        best[window] = best[window - 1] + stay + likelihood[window]
        before, total = _best_other(best[window - fewest])
        total = total + change + sums[window + 1] - sums[window + 1 - fewest]
        better = total > best[window]
        best[window, better], entered[window, better] = total[better], before[better]
    return _trace(best, entered, fewest)


def _best_other(row: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """For each class the best of all others, and its value."""
    if len(row) == 1:
        return np.zeros(1, np.int64), np.full(1, -np.inf)
    second, first = np.argsort(row, kind="stable")[-2:]
    others = np.full(len(row), first)
    others[first] = second
    return others, row[others]


def _trace(best: NDArray[np.float64], entered: NDArray[np.int64], fewest: int) -> NDArray[np.int64]:
    window, label = len(best) - 1, int(best[-1].argmax())
    path = np.empty(len(best), np.int64)
    while window >= 0:
        before = int(entered[window, label])
        if before < 0:
            path[window] = label
            window -= 1
        else:
            path[window - fewest + 1 : window + 1] = label
            window, label = window - fewest, before
    return path
