"""Answers over time: a running mean, and the most likely sequence of classes against all sequences."""

from itertools import product

import numpy as np
import pytest

from event2vec.evaluation.smoothing import CHANGE, most_likely_path, running_mean, smooth


def draw(windows, classes, seed=0):
    scores = np.random.default_rng(seed).random((windows, classes)) ** 3
    return scores / scores.sum(axis=1, keepdims=True)


def test_a_running_mean_is_over_neighbours_and_fewer_at_the_ends():
    scores = np.array([[1.0], [2.0], [4.0], [8.0]])
    assert running_mean(scores, 1).ravel().tolist() == [1, 2, 4, 8]
    assert running_mean(scores, 3).ravel().tolist() == pytest.approx([1.5, 7 / 3, 14 / 3, 6])
    assert running_mean(scores, 2).ravel().tolist() == pytest.approx([1.5, 3, 6, 8]), "a window and the next"
    assert running_mean(scores, 99).ravel().tolist() == pytest.approx([3.75] * 4)


def runs_of(path):
    """Lengths of stretches of one class."""
    edges = [0, *(np.flatnonzero(np.diff(path)) + 1), len(path)]
    return np.diff(edges)


@pytest.mark.parametrize("fewest", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_the_most_likely_path_is_the_best_of_all_that_are_allowed(fewest, seed):
    scores = draw(7, 2, seed)
    stay, change = np.log(1 - CHANGE), np.log(CHANGE)

    def value(path):
        # A class is entered for `fewest` windows at once, and stays window by window after that.
        switches = int((np.diff(path) != 0).sum())
        stays = len(path) - fewest * (switches + 1)
        return np.log(scores[np.arange(len(path)), path]).sum() + switches * change + stays * stay

    allowed = [np.array(path) for path in product((0, 1), repeat=7) if min(runs_of(np.array(path))) >= fewest]
    best = max(allowed, key=value)
    assert most_likely_path(scores, fewest).tolist() == best.tolist()


def test_one_odd_window_changes_nothing_where_classes_last():
    scores = np.tile([0.7, 0.3], (9, 1))
    scores[4] = [0.05, 0.95]
    assert smooth(scores, "none", 3).tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0]
    assert smooth(scores, "mean", 5).tolist() == [0] * 9
    assert smooth(scores, "hmm", 3).tolist() == [0] * 9


def test_a_change_that_lasts_is_followed_at_its_window():
    scores = np.array([[0.9, 0.1]] * 6 + [[0.1, 0.9]] * 6)
    assert smooth(scores, "hmm", 3).tolist() == [0] * 6 + [1] * 6


@pytest.mark.parametrize(("windows", "classes"), [(1, 3), (2, 1), (5, 1)])
def test_the_edges_have_an_answer_for_every_window(windows, classes):
    for how in ("none", "mean", "hmm"):
        found = smooth(draw(windows, classes), how, 4)
        assert len(found) == windows
        assert set(found.tolist()) <= set(range(classes))
