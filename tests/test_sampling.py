"""Uniform sampling: every event equally likely, in time order, the same for the same seed."""

import pytest
import torch
from conftest import assert_same

from event2vec import Sampling, sample_uniform
from event2vec.data.uniform import draw_positions


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("length", [0, 1, 30, 99])
def test_samples_are_events_of_the_recording_in_time_order(length, make_events):
    events = make_events(100)
    sample = sample_uniform(events, length, seeded(0))
    assert len(sample) == length
    rows = {tuple(row) for row in zip(events.x.tolist(), events.y.tolist(), events.t.tolist(), strict=True)}
    assert set(zip(sample.x.tolist(), sample.y.tolist(), sample.t.tolist(), strict=True)) <= rows
    assert bool((sample.t.diff() >= 0).all())


@pytest.mark.parametrize("length", [100, 5000])
def test_a_short_recording_comes_back_unchanged(length, make_events):
    events = make_events(100)
    assert sample_uniform(events, length, seeded(0)) is events


def test_the_seed_decides(make_events):
    events = make_events(1000)
    assert_same(sample_uniform(events, 50, seeded(3)), sample_uniform(events, 50, seeded(3)))
    assert sample_uniform(events, 50, seeded(3)).t.tolist() != sample_uniform(events, 50, seeded(4)).t.tolist()


@pytest.mark.parametrize(("count", "length"), [(40, 5), (40, 10), (40, 30)])
def test_each_position_is_equally_likely(count, length):
    """Both ways to draw; 4 standard deviations of 4,000 draws."""
    draws = [draw_positions(count, length, seeded(seed)) for seed in range(4000)]
    assert all(len(set(draw.tolist())) == length for draw in draws)
    share = torch.bincount(torch.cat(draws), minlength=count) / len(draws)
    expected = length / count
    tolerance = 4 * (expected * (1 - expected) / len(draws)) ** 0.5
    torch.testing.assert_close(share, torch.full((count,), expected), atol=tolerance, rtol=0)


def test_more_than_there_are_cannot_be_drawn():
    with pytest.raises(ValueError, match="11 different positions from 10"):
        draw_positions(10, 11, seeded(0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "clusters", "clusterings": 0}, "sampling.clusterings must be at least 1, got 0"),
        ({"clusterings": 2}, "sampling.clusterings above 1 requires sampling.method clusters, got 2"),
    ],
)
def test_sets_of_clusters_need_clusters(settings, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**settings)
