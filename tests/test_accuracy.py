"""Intervals of accuracies against other sources, and in the cases where simpler ones fail."""

import pytest
from scipy.stats import binom, binomtest

from event2vec.evaluation.accuracy import Accuracies, standard_error, wilson_interval


@pytest.mark.parametrize(
    ("right", "recordings"), [(352, 360), (0, 5), (5, 5), (1, 1), (50, 100), (287, 288), (1, 10**6)]
)
def test_the_interval_is_the_one_that_scipy_gives(right, recordings):
    expected = binomtest(right, recordings).proportion_ci(0.95, "wilson")
    found = wilson_interval(right / recordings, recordings)
    assert found == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= found.low <= right / recordings <= found.high <= 1


@pytest.mark.parametrize(("accuracy", "recordings"), [(0.9, 100), (0.5, 8), (1.0, 60), (0.0, 3)])
def test_the_standard_error_is_that_of_four_more_draws_half_of_them_right(accuracy, recordings):
    draws = recordings + 4
    share = (accuracy * recordings + 2) / draws
    assert standard_error(accuracy, recordings) == pytest.approx(binom(draws, share).std() / draws)
    assert standard_error(accuracy, 0) == 0, "nothing is behind it"


def test_an_error_more_or_less_of_seventy_is_within_a_standard_error():
    assert 1 - standard_error(1.0, 70) < 69 / 70


def test_the_interval_is_the_published_one():
    """Newcombe 1998, Table I, method 3."""
    published = {
        (81, 263): (0.2553, 0.3662),
        (15, 148): (0.0624, 0.1605),
        (0, 20): (0, 0.1611),
        (1, 29): (0.0061, 0.1718),
    }
    for (right, recordings), expected in published.items():
        assert wilson_interval(right / recordings, recordings) == pytest.approx(expected, abs=5e-5)


def test_all_right_is_not_certain():
    assert wilson_interval(1.0, 20).low < 0.85
    assert wilson_interval(1.0, 20).high == 1.0


@pytest.mark.parametrize(("accuracy", "recordings"), [(0.5, 0), (1.1, 10), (-0.1, 10), (float("nan"), 10)])
def test_what_is_no_share_of_recordings_has_no_interval(accuracy, recordings):
    with pytest.raises(ValueError, match="an interval needs an accuracy from 0 to 1"):
        wilson_interval(accuracy, recordings)


def test_text_has_mean_deviation_and_interval():
    found = Accuracies((0.9, 0.8), 50)
    assert found.percent_with_interval(1) == "85.0 ± 7.1 (72.6 to 92.4)"
    assert Accuracies((0.8,), 50).percent_with_interval() == "80.00 (66.96 to 88.76)"
