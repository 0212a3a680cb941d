"""Uniform sampling: every event equally likely, in time order, the same for the same seed."""

import math

import pytest
import torch
from conftest import assert_same

from event2vec import Sampling, sample_uniform
from event2vec.data.thinning import SIGMA, TAU, causal_density, thin_in_space
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


@pytest.mark.parametrize("method", ["temporal", "spatial", "density"])
@pytest.mark.parametrize("length", [1, 40, 400])
def test_other_strategies_keep_events_in_time_order_and_no_more_than_asked_for(method, length, make_events):
    events = make_events(300)
    kept = Sampling(method=method, length=length).shorten(events, seeded(0))
    assert (0 < len(kept) <= length) if length < 300 else kept is events
    assert len(kept) == min(length, 300) or method == "spatial"
    assert bool((kept.t.diff() >= 0).all())
    rows = set(zip(events.x.tolist(), events.y.tolist(), events.t.tolist(), strict=True))
    assert set(zip(kept.x.tolist(), kept.y.tolist(), kept.t.tolist(), strict=True)) <= rows
    assert_same(kept, Sampling(method=method, length=length).shorten(events, seeded(0)))


def test_in_space_whole_columns_and_rows_are_kept(make_events):
    events = make_events(2000)
    kept = thin_in_space(events, 300, seeded(0))
    assert len(kept.x.unique()) <= 34 // 2 + 1
    kept_pixels = set(zip(kept.x.tolist(), kept.y.tolist(), strict=True))
    everything = sum((x, y) in kept_pixels for x, y in zip(events.x.tolist(), events.y.tolist(), strict=True))
    assert everything == len(kept)


def test_the_density_is_the_sum_over_earlier_events_written_out(make_events):
    events = make_events(150, duration=90_000)
    total = sum(math.exp(-(a * a + b * b) / (2 * SIGMA**2)) for a in range(-3, 4) for b in range(-3, 4))
    expected = torch.zeros(150, dtype=torch.float64)
    for late in range(150):
        for early in range(late + 1):
            across, down = float(events.x[late] - events.x[early]), float(events.y[late] - events.y[early])
            if events.p[late] == events.p[early] and max(abs(across), abs(down)) <= 3:
                age = float(events.t[late] - events.t[early]) / TAU
                expected[late] += math.exp(-(across**2 + down**2) / (2 * SIGMA**2) - age) / total
    torch.testing.assert_close(causal_density(events), expected)
