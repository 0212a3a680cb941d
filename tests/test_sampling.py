"""Uniform sampling: every event equally likely, in time order, the same for the same seed."""

import math
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
from conftest import assert_same

from event2vec import Events, Sampling, cluster_events, sample_uniform
from event2vec.clustering import BatchedKMeans
from event2vec.data import thinning
from event2vec.data.clusters import Clusters
from event2vec.data.sampling import draw_events
from event2vec.data.thinning import (
    METHODS,
    PERIODS,
    SIGMA,
    TAU,
    causal_density,
    thin_by_density,
    thin_events,
    thin_in_space,
    thin_in_time,
)
from event2vec.data.uniform import draw_positions
from event2vec.mersenne import Mersenne


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


class TestThinning:
    """Parts of the recording, of its pixels, or of its busy places: written out in plain loops."""

    def test_in_time_the_kept_events_are_the_beginnings_of_ten_periods(self):
        t = np.arange(1000) * 100
        events = Events.from_arrays([0] * 1000, [0] * 1000, t, [1] * 1000, sensor=(1, 1))
        kept = thin_in_time(events, 200, seeded(3))
        runs = np.split(kept.t.numpy(), np.flatnonzero(np.diff(kept.t.numpy()) > 100) + 1)
        assert len(runs) in (10, 11)
        whole = [run for run in runs if run[0] > 0 and run[-1] < events.duration]
        assert {len(run) for run in whole} <= {19, 20, 21}
        starts = [run[0] for run in whole]
        assert np.abs(np.diff(starts) - events.duration / PERIODS).max() <= 100
        assert thin_in_time(events, 200, seeded(4)).t.tolist() != kept.t.tolist(), "where periods start is drawn"

    def test_events_of_one_instant_are_thinned_too(self):
        zeros = [0] * 50
        events = Events.from_arrays(zeros, zeros, zeros, zeros, sensor=(3, 3))
        for method in METHODS:
            assert len(thin_events(method, events, 7, seeded(0))) == 7, method

    @pytest.mark.parametrize("seed", range(6))
    def test_in_space_the_smallest_steps_that_are_enough_are_taken(self, seed):
        """Columns are thinned before rows, one more at a time."""
        pixels = [(x, y) for y in range(12) for x in range(20)]
        x, y = zip(*pixels, strict=True)
        events = Events.from_arrays(x, y, range(240), [1] * 240, sensor=(20, 12))
        for length, steps in ((239, (2, 1)), (119, (2, 2)), (59, (3, 2)), (30, (3, 3)), (1, (20, 12))):
            kept = thin_in_space(events, length, seeded(seed))
            columns, rows = sorted(set(kept.x.tolist())), sorted(set(kept.y.tolist()))
            assert len(kept) == len(columns) * len(rows) <= length, "whole columns and rows"
            across, down = steps
            if length > 1:
                assert {int(step) for step in np.diff(columns)} == {across}
                assert {int(step) for step in np.diff(rows)} <= {down}
            assert columns[0] < across
            assert rows[0] < down

    def test_one_pixel_with_nearly_all_events_is_thinned_in_time(self):
        events = Events.from_arrays([0] * 99 + [1], [0] * 100, range(100), [1] * 100, sensor=(2, 1))
        for seed in range(4):
            assert 0 < len(thin_in_space(events, 10, seeded(seed))) <= 10

    def test_busy_places_keep_more_and_lonely_ones_keep_some(self):
        random = np.random.default_rng((0, 0, 0))
        busy, lonely = 500, 500
        x = np.concatenate([np.full(busy, 5), random.integers(20, 500, lonely)])
        y = np.concatenate([np.full(busy, 5), random.integers(20, 500, lonely)])
        t = np.concatenate([np.arange(busy) * 100, np.arange(lonely) * 100])
        events = Events.from_arrays(x, y, t, [1] * 1000, sensor=(500, 500))
        kept = thin_by_density(events, 200, seeded(0))
        share = float((kept.x == 5).float().mean())
        assert 0.9 < share < 1

    def test_the_density_is_one_sum_whatever_chunks_it_is_computed_in(self, make_events, monkeypatch):
        events = make_events(200)
        whole = causal_density(events)
        for chunk in (1, 7, 64, 1000):
            monkeypatch.setattr(thinning, "CHUNK", chunk)
            torch.testing.assert_close(causal_density(events), whole)

    def test_the_edges_of_the_sensor_have_neighbours_of_their_own(self):
        """What is at the end of a row must not count for the beginning of the next, nor one polarity for the other."""
        apart = [(0, 1, 0), (9, 0, 0), (9, 7, 0), (0, 0, 1), (9, 7, 1)]
        x, y, p = zip(*apart, strict=True)
        events = Events.from_arrays(x, y, [0] * 5, p, sensor=(10, 8))
        alone = causal_density(events[:1])[0]
        torch.testing.assert_close(causal_density(events), alone.expand(5))

    def test_what_an_old_event_left_has_faded(self):
        events = Events.from_arrays([1, 1], [1, 1], [0, int(TAU)], [1, 1], sensor=(3, 3))
        first, second = causal_density(events).tolist()
        assert second / first == pytest.approx(1 + math.exp(-1))

    @pytest.mark.parametrize("method", METHODS)
    def test_arrays_are_thinned_as_tensors_are(self, method, make_events):
        events = make_events(300)
        arrays = thin_events(method, events.arrays(), 40, Mersenne(5))
        assert isinstance(arrays.t, np.ndarray)
        assert_same(arrays.torch(), thin_events(method, events, 40, seeded(5)))


class TestSettings:
    @pytest.mark.parametrize(
        ("method", "lengths", "same"),
        [("random", [7, 8], True), ("random", [7, 9], False), ("random", [], True), ("clusters", [9], True)],
    )
    def test_only_what_is_left_out_makes_draws_differ(self, method, lengths, same):
        assert Sampling(method=method, length=8).same_every_time(lengths) == same

    @pytest.mark.parametrize(
        ("settings", "summary", "repeatable"),
        [
            ({}, "up to 1,024 random events", False),
            ({"method": "clusters", "length": 256}, "up to 256 clusters", True),
            ({"method": "temporal", "length": 7}, "up to 7 events (temporal)", False),
            ({"method": "spatial"}, "up to 1,024 events (spatial)", False),
            ({"method": "density"}, "up to 1,024 events (density)", False),
        ],
    )
    def test_what_a_network_reads_is_said_in_words(self, settings, summary, repeatable):
        assert (Sampling(**settings).summary, Sampling(**settings).repeatable) == (summary, repeatable)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"length": 0}, "sampling.length must be at least 1, got 0"),
            ({"method": "clusters", "length": 1}, "sampling.length must be at least 2, one cluster for each polarity"),
        ],
    )
    def test_what_cannot_be_sampled_is_refused(self, settings, message):
        with pytest.raises(ValueError, match=message):
            Sampling(**settings)

    def test_one_event_can_be_drawn_and_two_clusters_made(self, make_events):
        assert len(Sampling(length=1).shorten(make_events(9), seeded(0))) == 1
        assert len(Sampling(method="clusters", length=2).shorten(make_events(90), seeded(0))) == 2

    def test_clusters_take_no_number_from_the_generator_and_follow_their_seeding(self, make_events):
        events, generator = make_events(200), seeded(0)
        before = generator.get_state()
        plain = Sampling(method="clusters", length=20, seeding="plain")
        assert_same(plain.shorten(events, generator), cluster_events(events, 20, seeding="plain"))
        assert torch.equal(generator.get_state(), before)


class TestDraws:
    def test_a_draw_depends_on_seed_round_and_index_and_on_nothing_else(self, make_events):
        events, sampling = make_events(500), Sampling(length=50)
        drawn = {places: draw_events(events, sampling, *places).t.tolist() for places in permutations((0, 1, 2))}
        assert len({tuple(times) for times in drawn.values()}) == 6
        for places, times in drawn.items():
            assert draw_events(events, sampling, *places).t.tolist() == times

    @pytest.mark.parametrize("method", ["random", "clusters", *METHODS])
    def test_a_recording_that_is_short_enough_is_not_touched(self, method, make_events):
        events = make_events(20)
        assert draw_events(events, Sampling(method=method, length=20), 0, 0) is events

    def test_clusters_are_the_same_in_each_round(self, make_events):
        events, sampling = make_events(100), Sampling(method="clusters", length=20)
        assert_same(draw_events(events, sampling, 0, 0), draw_events(events, sampling, 7, 8, 9))


class TestClusters:
    def engine(self, events, clusters, seed):
        return events[seed : clusters + seed]

    def test_only_a_sampling_of_clusters_needs_any(self):
        assert Clusters.of(Sampling()) is None
        wanted = Clusters.of(Sampling(method="clusters", length=9, clusterings=3, seeding="plain"))
        assert wanted == Clusters(9, 3, BatchedKMeans(seeding="plain"))
        assert Clusters.of(Sampling(method="clusters", length=9), self.engine) == Clusters(9, 1, self.engine)

    def test_test_recordings_have_as_many_sets_only_where_all_of_them_train(self):
        many, one = (Sampling(method="clusters", length=9, clusterings=count) for count in (3, 1))
        assert Clusters.of(many, everywhere=True) == replace(Clusters(9, 3), everywhere=True)
        assert Clusters.of(one, everywhere=True) == Clusters(9), "with one set, there is no difference"

    def test_sets_come_from_seeds_of_their_own_and_the_first_is_that_of_predictions(self, make_events):
        events = make_events(40)
        for clusters, split, count in (
            (Clusters(9, 3, self.engine), "train", 3),
            (Clusters(9, 3, self.engine), "test", 1),
            (Clusters(9, 3, self.engine, everywhere=True), "test", 3),
        ):
            made = list(clusters.make(events, split))
            assert [one.t[0].item() for one in made] == events.t[:count].tolist()
            assert {len(one) for one in made} == {9}

    def test_a_store_says_for_people_and_for_itself_what_it_holds(self):
        assert Clusters(9).summary == "9 clusters"
        assert Clusters(9, 3).summary == "9 clusters in 3 sets"
        assert Clusters(9, 3, everywhere=True).summary == "9 clusters in 3 sets of all recordings"
        plain = Clusters(9, 1, BatchedKMeans(seeding="plain"))
        assert plain.summary == f"9 clusters by {plain.engine}"
        assert str(Clusters(9, 3, everywhere=True)) == f"9 clusters, 3 sets everywhere, {BatchedKMeans()}"
        texts = {str(Clusters(*each)) for each in ((9,), (8,), (9, 2), (9, 1, BatchedKMeans(7)), (9, 1, plain.engine))}
        assert len(texts) == 5, "whatever clusters depend on is in it"
