"""A recording clustered in one call of compiled code: what the phases give one by one, to the bit."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from event2vec import Events, Sensor, cluster_events
from event2vec import clustering as module
from event2vec.clustering import Part, Settings, compiled_engine
from event2vec.clustering.compiled_engine import CompiledCloud, along_curve, cluster_polarities, library
from event2vec.mersenne import Mersenne

pytestmark = pytest.mark.skipif(library() is None, reason="event2vec was installed without its compiled part")


def make_cube(count, seed=0, cells=40):
    """Points of the unit cube, many of them at the same place, with weights and polarities."""
    random = np.random.default_rng((seed, count))
    points = random.integers(0, cells, (count, 3)) / max(cells - 1, 1)
    return points, random.integers(1, 4, count).astype(np.float64), random.random(count) < 0.4


def make_parts(rising, share, iterations=20, tolerance=1e-4):
    many = int((~rising).sum()), int(rising.sum())
    drawn = Settings(16, iterations, tolerance, Mersenne(5))
    return [
        Part(polarity, many[polarity], min(share, many[polarity]), drawn.branch())
        for polarity in (False, True)
        if many[polarity]
    ]


def cluster(points, weights, rising, share, iterations=20, tolerance=1e-4, side_by_side=False):
    tasks = [part.task() for part in make_parts(rising, share)]
    return cluster_polarities(points, weights, rising, tasks, iterations, tolerance, side_by_side)


def assert_same_clusters(found, expected):
    assert len(found) == len(expected)
    for (centres, counts), (others, other_counts) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(centres, others)
        np.testing.assert_array_equal(counts, other_counts)


@pytest.mark.parametrize(("count", "share"), [(2, 1), (30, 3), (300, 64), (2000, 40), (500, 500)])
@pytest.mark.parametrize(("iterations", "tolerance"), [(20, 1e-4), (1, 0.0), (7, 0.5)])
def test_one_call_gives_what_the_phases_give(count, share, iterations, tolerance):
    points, weights, rising = make_cube(count)
    parts = make_parts(rising, share, iterations, tolerance)
    expected = [module._cluster_part(CompiledCloud, points, weights, rising, part) for part in parts]
    assert all(len(counts) <= share for _, counts in expected)
    assert_same_clusters(cluster(points, weights, rising, share, iterations, tolerance), expected)


@settings(max_examples=40, deadline=None)
@given(
    arrays(np.float64, st.tuples(st.integers(1, 60), st.just(3)), elements=st.sampled_from([0.0, 0.25, 0.5, 1.0])),
    st.integers(1, 20),
    st.booleans(),
)
def test_points_at_one_place_and_single_polarities_are_no_exception(points, share, alone):
    rising = np.zeros(len(points), bool) if alone else np.arange(len(points)) % 3 == 0
    weights = np.ones(len(points))
    expected = [
        module._cluster_part(CompiledCloud, points, weights, rising, part) for part in make_parts(rising, share)
    ]
    assert_same_clusters(cluster(points, weights, rising, share), expected)
    assert sum(counts.sum() for _, counts in expected) == len(points)


def test_a_thread_of_its_own_changes_no_bit():
    points, weights, rising = make_cube(3000)
    alone = cluster(points, weights, rising, 100)
    assert_same_clusters(cluster(points, weights, rising, 100, side_by_side=True), alone)


def test_any_byte_but_0_is_a_rising_event():
    """numpy takes it so, where a camera's bytes are read as truth values."""
    points, weights, rising = make_cube(400)
    odd = (rising * np.arange(2, 402).astype(np.uint8).clip(2)).astype(np.uint8).view(np.bool_)
    assert odd.view(np.uint8).max() > 1
    assert_same_clusters(cluster(points, weights, odd, 30), cluster(points, weights, rising, 30))


def test_columns_may_lie_anywhere_in_memory():
    points, weights, rising = make_cube(400)
    scattered = np.asfortranarray(points), np.repeat(weights, 2)[::2], np.repeat(rising, 2)[::2]
    assert not any(part.flags.c_contiguous for part in scattered)
    assert_same_clusters(cluster(*scattered, 30), cluster(points, weights, rising, 30))


@pytest.mark.parametrize(
    ("count", "clusters", "seeding", "calls"),
    [(2000, 64, "pruned", 1), (20_000, 32, "pruned", 0), (2000, 64, "plain", 0)],
)
def test_only_long_recordings_and_plain_seeding_take_phase_after_phase(
    monkeypatch, make_events, count, clusters, seeding, calls
):
    called = []
    monkeypatch.setattr(module, "cluster_polarities", lambda *given: called.append(given) or cluster_polarities(*given))
    few = cluster_events(make_events(count), clusters, seeding=seeding)
    assert len(called) == calls
    assert few.rho.sum() == count


def test_a_recording_is_the_same_in_one_call_and_in_phases(monkeypatch, make_events):
    events = make_events(2500)
    at_once = cluster_events(events, 96)
    monkeypatch.setattr(
        module,
        "cluster_polarities",
        lambda points, weights, rising, tasks, iterations, tolerance, _: [
            (cloud := CompiledCloud(points[rising == task.polarity], weights[rising == task.polarity])).iterate(
                cloud.choose(task.seeds, task.share, task.batch, task.generator), iterations, tolerance
            )
            for task in tasks
        ],
    )
    in_phases = cluster_events(events, 96)
    for name in ("x", "y", "t", "p", "rho"):
        np.testing.assert_array_equal(getattr(at_once, name), getattr(in_phases, name))


def test_too_little_memory_is_an_error(monkeypatch, make_events):
    class Short:
        def __getattr__(self, name):
            return getattr(library(), name)

        def cluster(self, recording, shares, number, side_by_side):
            shares[number - 1].done = -1

    with monkeypatch.context() as patch:
        patch.setattr(compiled_engine, "library", Short)
        with pytest.raises(MemoryError, match="not enough memory to cluster 300 events"):
            cluster_events(make_events(300), 20)


def interleave(x, y, t):
    """The definition: bits of x, y and t in turn, from the highest on."""
    return sum((number >> bit & 1) << (3 * bit + place) for place, number in enumerate((t, y, x)) for bit in range(10))


def test_the_curve_goes_through_the_cube_bit_by_bit():
    points, *_ = make_cube(500, cells=1024)
    codes = [interleave(*(int(value * 1023) for value in point)) for point in points]
    order = along_curve(points)
    assert sorted(order) == list(range(500))
    assert [codes[place] for place in order] == sorted(codes)


def test_points_at_one_place_of_the_curve_keep_their_order():
    order = along_curve(np.array([[0.9, 0.1, 0.5], [0.2, 0.2, 0.2]] * 50))
    np.testing.assert_array_equal(order, [*range(1, 100, 2), *range(0, 100, 2)])


@pytest.mark.parametrize("count", [0, 1])
def test_the_curve_of_hardly_any_points(count):
    assert list(along_curve(np.full((count, 3), 0.5))) == list(range(count))


def test_events_at_the_corners_of_the_sensor_stay_there():
    corners = [(x, y) for x in (0, 9) for y in (0, 4)] * 5
    x, y = (np.array(part) for part in zip(*corners, strict=True))
    make = partial(Events.from_arrays, sensor=Sensor(10, 5))
    few = cluster_events(make(x, y, np.zeros(20, np.int64), np.ones(20)), 4)
    assert sorted(zip(few.x.tolist(), few.y.tolist(), few.rho.tolist(), strict=True)) == [
        (0, 0, 5),
        (0, 4, 5),
        (9, 0, 5),
        (9, 4, 5),
    ]
