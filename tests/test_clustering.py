"""Alg. 1: every event counts once, both engines agree, and an obvious version gives the same centres."""

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from conftest import assert_same
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import event2vec.clustering as module
import event2vec.clustering.compiled_engine as compiled_engine
from event2vec import Event2VecError, Events, EventStore, Sampling, Sensor, cluster_batch, cluster_events, open_dataset
from event2vec.benchmark.clustering import inertia
from event2vec.clustering import Settings, cluster_with, from_unit_cube, share_clusters, to_unit_cube
from event2vec.clustering.alternatives import cluster_faiss, cluster_sklearn
from event2vec.clustering.compiled_engine import CompiledCloud, along_curve, library
from event2vec.clustering.engine import AT_ONCE
from event2vec.clustering.torch_engine import TorchCloud, draw_distinct
from event2vec.data.prepare import prepare

NEEDS_COMPILED = pytest.mark.skipif(library() is None, reason="event2vec was installed without its compiled part")
ENGINES = [pytest.param(CompiledCloud, marks=NEEDS_COMPILED), TorchCloud]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def cloud_of(engine, points, weights):
    """An engine's cloud, from tensors: the compiled one takes arrays."""
    return engine(*(part.numpy() if engine is CompiledCloud else part for part in (points, weights)))


def cluster(engine, events, clusters, iterations=20, tolerance=1e-4, seed=0):
    return cluster_with(engine, events, clusters, Settings(64, iterations, tolerance, seeded(seed)))


def digit(number=0):
    return open_dataset("digits", None, "test")[number][0]


def check_promises(events, result, clusters):
    assert len(result) <= clusters
    assert bool((result.rho >= 1).all())
    assert result.rho.double().sum() == events.rho.double().sum()
    for polarity in (False, True):
        assert result.rho[result.p == polarity].sum() == events.rho[events.p == polarity].sum()
    assert bool((result.t.diff() >= 0).all())
    assert result.sensor == events.sensor
    Events.from_arrays(result.x, result.y, result.t, result.p, sensor=result.sensor, rho=result.rho)


@st.composite
def recordings(draw):
    """Also flat ones: one pixel, one instant, one polarity, many duplicates."""
    count = draw(st.integers(0, 300))
    width, height = draw(st.sampled_from([(1, 1), (1, 9), (34, 30), (3, 2)]))
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    span = draw(st.sampled_from([1, 5, 100_000, 2**40]))
    rising = draw(st.sampled_from([0.0, 0.02, 0.5, 1.0]))
    x, y = random.integers(0, width, count), random.integers(0, height, count)
    p = random.random(count) < rising
    return Events.from_arrays(x, y, random.integers(0, span, count), p, sensor=Sensor(width, height))


@pytest.mark.parametrize("engine", ENGINES)
def test_promises_hold_for_any_recording(engine):
    @settings(max_examples=80, deadline=None, derandomize=True)
    @given(recordings(), st.integers(2, 40), st.integers(1, 5))
    def check(events, clusters, iterations):
        if len(events) <= clusters:
            assert cluster_events(events, clusters) is events
        else:
            check_promises(events, cluster(engine, events, clusters, iterations), clusters)

    check()


def test_a_short_recording_comes_back_as_it_is(make_events):
    for count in (0, 1, 50):
        events = make_events(count)
        assert cluster_events(events, 50) is events


def test_settings_that_cannot_be_are_refused(make_events):
    events = make_events(50)
    with pytest.raises(ValueError, match="both polarities needs at least 2 clusters"):
        cluster_events(events, 1)
    for name in ("clusters", "batch", "iterations"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
            cluster_events(events, **{"clusters": 5, name: 0})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tolerance must be 0 or more, got -1"):
        cluster_events(events, 5, tolerance=-1.0)
    one = replace(events, p=torch.ones(50, dtype=torch.bool))
    assert cluster_events(one, 1).rho.tolist() == [50]


@pytest.mark.parametrize(
    ("falling", "rising", "clusters", "shares"),
    [(50, 50, 10, (5, 5)), (90, 10, 10, (9, 1)), (999, 1, 10, (9, 1)), (1, 999, 10, (1, 9)), (0, 50, 10, (0, 10)),
     (3, 97, 50, (2, 48)), (50, 0, 3, (3, 0))],
)  # fmt: skip
def test_clusters_are_shared_in_proportion(falling, rising, clusters, shares):
    assert share_clusters(falling, rising, clusters) == shares


@given(st.integers(0, 2000), st.integers(0, 2000), st.integers(2, 500))
def test_every_cluster_is_shared_out_and_each_polarity_has_one_and_no_more_than_events(falling, rising, clusters):
    assume(falling + rising >= clusters)
    shares = share_clusters(falling, rising, clusters)
    assert sum(shares) == clusters
    for share, events in zip(shares, (falling, rising), strict=True):
        assert min(events, 1) <= share <= events
        exact = clusters * events / (falling + rising)
        assert abs(share - exact) <= 1 or share in (1, events), "in proportion, as far as that goes"


@given(recordings())
def test_the_unit_cube_holds_all_events_and_gives_them_back(events):
    for read in (events.torch(), events.arrays()):
        points = to_unit_cube(read)
        assert points.shape == (len(events), 3)
        if len(events):
            assert float(points.min()) >= 0
            assert float(points.max()) <= 1
            back = from_unit_cube(read, np.asarray(points), np.ones(len(read)), read.arrays().p)
            for name in ("x", "y", "t", "rho"):
                np.testing.assert_allclose(getattr(back.arrays(), name), getattr(read.arrays(), name), rtol=1e-6)
            assert type(back.t) is type(read.t)


def test_the_cube_of_centres_is_that_of_their_recording():
    whole = Events.from_arrays([0, 10], [0, 4], [0, 1000], [1, 0], sensor=(11, 5))
    centres = Events.from_arrays([5.0], [2.0], [0], [1], sensor=(11, 5))
    late = replace(centres, t=centres.t + 250)
    assert to_unit_cube(late, whole).tolist() == [[0.5, 0.5, 0.25]]
    assert to_unit_cube(late).tolist() == [[0.5, 0.5, 0.0]]


def test_centres_become_events_in_time_order_and_empty_ones_are_dropped():
    events = Events.from_arrays([0, 10], [0, 4], [0, 1000], [1, 0], sensor=(11, 5))
    events = replace(events, t=events.t + 70)
    centres = np.array([[0.5, 1.0, 0.9], [1.2, -0.1, 0.1], [0.3, 0.3, 0.5], [0.0, 0.5, 0.1]])
    made = from_unit_cube(events, centres, np.array([2, 3, 0, 1]), np.array([True, False, True, True]))
    assert made.t.tolist() == [170, 170, 970]
    assert made.x.tolist() == [10, 0, 5], "within the sensor; of equal times, the first centre is first"
    assert made.y.tolist() == [0, 2, 4]
    assert (made.rho.tolist(), made.p.tolist()) == ([3, 1, 2], [False, True, True])


@given(st.lists(st.tuples(*[st.integers(0, 1023)] * 3), max_size=50))
def test_the_curve_is_in_the_order_of_interleaved_bits(cells):
    points = np.array(cells, np.float64).reshape(-1, 3) / 1023
    cells = [tuple(cell) for cell in (points * 1023).astype(int).tolist()]

    def code(cell):
        return int("".join("".join(bits) for bits in zip(*(f"{side:010b}" for side in cell), strict=True)), 2)

    order = along_curve(points).tolist()
    assert order == sorted(range(len(cells)), key=lambda index: code(cells[index]))


def test_drawing_is_by_weight_and_never_twice():
    weights = torch.tensor([0.0, 1.0, 2.0, 3.0, 0.0], dtype=torch.float64)
    first = [int(draw_distinct(weights, 1, seeded(seed))[0]) for seed in range(3000)]
    share = np.bincount(first, minlength=5) / 3000
    np.testing.assert_allclose(share, [0, 1 / 6, 2 / 6, 3 / 6, 0], atol=0.035)
    for seed in range(20):
        assert sorted(draw_distinct(weights, 4, seeded(seed)).tolist()) == [1, 2, 3], "only those that weigh something"
    # Without replacement: given that 3 came first, 1 and 2 follow in the ratio of their weights.
    pairs = [draw_distinct(weights, 2, seeded(seed)).tolist() for seed in range(3000)]
    after = [second for one, second in pairs if one == 3]
    assert abs(np.mean([second == 1 for second in after]) - 1 / 3) < 0.05


@NEEDS_COMPILED
def test_the_compiled_engine_draws_by_weight_and_squared_distance():
    """The first of four points on a line by weight, the next by weight and squared distance, and none twice."""
    x = torch.tensor([0.0, 0.1, 0.2, 1.0], dtype=torch.float64)
    cloud = cloud_of(CompiledCloud, torch.stack([x, 0 * x, 0 * x], dim=1), torch.tensor([1.0, 2.0, 3.0, 4.0]))
    drawn = [(cloud.seed(2, 1, seeded(seed))[:, 0] * 10).round().astype(int).tolist() for seed in range(4000)]
    first = [sum(one == place for one, _ in drawn) / 4000 for place in (0, 1, 2, 10)]
    np.testing.assert_allclose(first, [0.1, 0.2, 0.3, 0.4], atol=0.03)
    after = [second for one, second in drawn if one == 10]
    chances = np.array([1 * 1.0**2, 2 * 0.9**2, 3 * 0.8**2])
    np.testing.assert_allclose(
        [after.count(place) / len(after) for place in range(3)], chances / chances.sum(), atol=0.04
    )
    assert sorted((cloud.seed(9, 64, seeded())[:, 0] * 10).round().astype(int).tolist()) == [0, 1, 2, 10]


@pytest.mark.parametrize("engine", ENGINES)
def test_seeding_goes_on_where_one_outweighs_all_others(engine):
    points = torch.rand(4, 3, generator=seeded(), dtype=torch.float64)
    cloud = cloud_of(engine, points, torch.tensor([1e-200, 1.0, 1e-100, 1e-300], dtype=torch.float64))
    assert {tuple(row) for row in cloud.seed(4, 64, seeded()).tolist()} == {tuple(row) for row in points.tolist()}


def compiled_draws(cloud, generator):
    """What `compiled_engine.c` draws: SplitMix64, and waiting times by rate."""
    random, turn = np.uint64(int(torch.randint(2**62, (), generator=generator))), 0

    def draw(mass, count):
        nonlocal turn
        with np.errstate(over="ignore", divide="ignore"):
            bits = random + (np.uint64(turn * len(mass)) + np.arange(1, len(mass) + 1, dtype=np.uint64)) * np.uint64(
                0x9E3779B97F4A7C15
            )
            bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            waits = -np.log((((bits ^ (bits >> np.uint64(31))) >> np.uint64(11)) + np.uint64(1)) * 2.0**-53) / mass
        turn += 1
        return np.argsort(waits, kind="stable")[: min(count, np.isfinite(waits).sum())]

    return draw


def torch_draws(cloud, generator):
    return lambda mass, count: draw_distinct(torch.from_numpy(mass), count, generator).numpy()


def obvious_plain(points, share, batch, iterations, tolerance, draw_positions):
    """Alg. 1 as the paper writes it, line by line, for one polarity of raw events."""
    centres = points[draw_positions(np.ones(len(points)), 1)]
    distance = ((points - centres[0]) ** 2).sum(-1)  # D^2
    while len(centres) < share:
        new = points[draw_positions(distance, min(batch, share - len(centres)))]
        centres = np.concatenate([centres, new])
        distance = np.minimum(distance, ((points[:, None] - new[None]) ** 2).sum(-1).min(1))
    for _ in range(iterations):
        labels = ((points[:, None] - centres[None]) ** 2).sum(-1).argmin(1)
        moved = np.array([points[labels == number].mean(0) for number in range(share)])
        shift, centres = np.sqrt(((moved - centres) ** 2).sum(1)).max(), moved
        if shift < tolerance:
            break
    return centres, np.bincount(labels, minlength=share)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("count", "clusters", "batch", "iterations"), [(200, 8, 64, 1), (300, 40, 7, 6), (5000, 20, 4, 20)]
)
def test_plain_seeding_is_the_papers_algorithm_to_the_letter(engine, count, clusters, batch, iterations, make_events):
    """5,000 events in 20 clusters: enough for groups of neighbours, if there were any."""
    events = make_events(count)
    chance = torch.rand(2, count, generator=seeded(1)) * 0.9  # between pixels, so that no two distances are the same
    events = replace(events, x=(events.x + chance[0]).clamp(max=33), y=(events.y + chance[1]).clamp(max=29))
    settings = Settings(batch, iterations, 1e-4, seeded(), "plain")
    result = cluster_with(engine, events, clusters, settings)
    chances = Settings(batch, iterations, 1e-4, seeded())
    for polarity, share in enumerate(share_clusters(int((~events.p).sum()), int(events.p.sum()), clusters)):
        mine = events.p == bool(polarity)
        cloud = cloud_of(engine, module.to_unit_cube(events)[mine], events.rho[mine].double())
        draws = (compiled_draws if engine is CompiledCloud else torch_draws)(cloud, chances.branch().generator)
        centres, counts = obvious_plain(np.asarray(cloud.points), share, batch, iterations, 1e-4, draws)
        theirs = result.p == bool(polarity)
        found = np.stack([result.x[theirs] / 33, result.y[theirs] / 29, result.t[theirs] / events.duration], 1)
        order, other = np.lexsort(found.round(4).T), np.lexsort(centres.round(4).T)
        np.testing.assert_allclose(found[order], centres[other], atol=1e-5)
        np.testing.assert_array_equal(result.rho[theirs].numpy()[order], counts[other])


def test_both_seedings_can_be_asked_for_everywhere(tmp_path):
    recordings = [digit(number) for number in range(3)]
    plain = [cluster_events(events, 50, seeding="plain") for events in recordings]
    for events, result in zip(recordings, plain, strict=True):
        check_promises(events, result, 50)
        assert not torch.equal(result.x, cluster_events(events, 50).x)
        assert_same(Sampling(method="clusters", length=50, seeding="plain").shorten(events, seeded()), result)
    for result, together in zip(plain, cluster_batch(recordings, 50, seeding="plain"), strict=True):
        assert_same(together, result)
    means = [
        np.mean([inertia(events, cluster_events(events, 50, seeding=kind)) for events in recordings])
        for kind in ("pruned", "plain")
    ]
    assert means[0] < means[1], "what spare seeds are for"


def test_a_seeding_that_is_not_known_is_refused(make_events):
    for refused in (
        lambda: cluster_events(make_events(50), 5, seeding="best"),  # type: ignore[arg-type]
        lambda: cluster_batch([make_events(50)], 5, seeding="best"),  # type: ignore[arg-type]
        lambda: Sampling(seeding="best"),  # type: ignore[arg-type]
    ):
        with pytest.raises(Exception, match="seeding"):  # the tests' own checks of types may come first
            refused()


def obvious(points, weights, share, iterations, tolerance, draw_positions):
    """Alg. 1 with the pruning of spare seeds, one step at a time and all distances written out."""

    def squared(centres):
        return ((points[:, None] - centres[None]) ** 2).sum(-1)

    def move(centres):
        label = squared(centres).argmin(1)
        for number in range(len(centres)):
            if (label == number).any():
                mine = label == number
                centres[number] = (weights[mine, None] * points[mine]).sum(0) / weights[mine].sum()
        return centres, np.array([weights[label == number].sum() for number in range(len(centres))])

    def draw(mass, count):
        return points[draw_positions(mass, count)]

    centres = draw(weights, 1)
    wanted = min(2 * share + module.SPARE, len(points))
    while len(centres) < wanted:
        new = draw(weights * squared(centres).min(1), min(64, wanted - len(centres)))
        if len(new) == 0:
            break
        centres = np.concatenate([centres, new])
    if len(centres) > share:
        centres = move(centres)[0]
    while len(centres) > share:
        spare = len(centres) - share
        ways = np.sort(squared(centres), axis=1)
        label = squared(centres).argmin(1)
        cost = np.array(
            [(weights * (ways[:, 1] - ways[:, 0]))[label == number].sum() for number in range(len(centres))]
        )
        apart = ((centres[:, None] - centres[None]) ** 2).sum(-1)
        np.fill_diagonal(apart, np.inf)
        cheaper = [number for number in np.argsort(cost) if cost[number] < cost[apart[number].argmin()]]
        going = set(cheaper[: min(spare, max(len(centres) // AT_ONCE, 1))])
        centres = centres[[number for number in range(len(centres)) if number not in going]]
    for _ in range(iterations):
        before = centres.copy()
        centres, counts = move(centres)
        if np.sqrt(((centres - before) ** 2).sum(1)).max() < tolerance:
            break
    return centres, counts


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("count", "clusters", "iterations"), [(200, 8, 1), (300, 25, 6), (500, 60, 20)])
def test_an_obvious_version_gives_the_same_clusters(engine, count, clusters, iterations, make_events, monkeypatch):
    monkeypatch.setattr(module, "LARGEST_GROUP", 1)  # the obvious version knows no groups
    events = make_events(count)
    # Between pixels and of different weights, so that no two distances or costs are the same.
    chance = torch.rand(3, count, generator=seeded(1)) * 0.9
    x, y = (events.x + chance[0]).clamp(max=33), (events.y + chance[1]).clamp(max=29)
    events = replace(events, x=x, y=y, rho=1 + chance[2])
    result = cluster(engine, events, clusters, iterations)
    chances = Settings(64, iterations, 1e-4, seeded())
    points, weights = module.to_unit_cube(events), events.rho.double()
    shares = share_clusters(int((~events.p).sum()), int(events.p.sum()), clusters)
    for polarity, share in enumerate(shares):
        cloud = cloud_of(engine, points[events.p == bool(polarity)], weights[events.p == bool(polarity)])
        draws = (compiled_draws if engine is CompiledCloud else torch_draws)(cloud, chances.branch().generator)
        centres, counts = obvious(np.asarray(cloud.points), np.asarray(cloud.weights), share, iterations, 1e-4, draws)
        centres, counts = centres[counts > 0], counts[counts > 0]
        theirs = result.p == bool(polarity)
        found = np.stack([result.x[theirs] / 33, result.y[theirs] / 29, result.t[theirs] / events.duration], 1)
        order, other = np.lexsort(found.round(4).T), np.lexsort(centres.round(4).T)
        np.testing.assert_allclose(found[order], centres[other], atol=1e-5)
        np.testing.assert_allclose(result.rho[theirs].numpy()[order], counts[other], rtol=1e-5)


def test_the_same_recording_gives_the_same_clusters_and_a_seed_other_ones():
    events = digit()
    assert_same(cluster_events(events, 64), cluster_events(events, 64))
    other = cluster_events(events, 64, generator=seeded(5))
    assert_same(other, cluster_events(events, 64, generator=seeded(5)))
    assert not torch.equal(other.x, cluster_events(events, 64).x)


def test_the_clock_of_the_recording_does_not_matter():
    events = digit()
    later = replace(events, t=events.t + 10**12)
    one, other = cluster_events(events, 64), cluster_events(later, 64)
    assert torch.equal(one.x, other.x)
    assert torch.equal(one.t + 10**12, other.t)


def test_cluster_batch_is_each_recording_on_its_own():
    recordings = [digit(number) for number in range(5)]
    together = cluster_batch(recordings, 50, iterations=3)
    for events, result in zip(recordings, together, strict=True):
        assert_same(result, cluster_events(events, 50, iterations=3))
    with pytest.raises(ValueError, match="clusters must be at least 1"):
        cluster_batch(recordings, 0)


@pytest.mark.parametrize("clusters", [32, 128, 512])
def test_both_engines_and_scikit_learn_reach_the_same_inertia(clusters):
    """Means over four recordings; ours may be better, and at most 3 % worse."""
    recordings = [digit(number) for number in range(4)]
    scores = {}
    for name, run in {
        "compiled": lambda events: cluster(CompiledCloud, events, clusters),
        "torch": lambda events: cluster(TorchCloud, events, clusters),
        "sklearn": lambda events: cluster_sklearn(events, clusters, 20),
    }.items():
        results = [(events, run(events)) for events in recordings]
        for events, result in results:
            check_promises(events, result, clusters)
        scores[name] = np.mean([inertia(events, result) for events, result in results])
    assert scores["compiled"] < 1.03 * scores["sklearn"]
    assert scores["torch"] < 1.03 * scores["sklearn"]


@NEEDS_COMPILED
@pytest.mark.parametrize("spread", [1.0, 1e-6])
def test_leaving_out_centres_changes_nothing(spread):
    """Both engines prune and move alike: clouds of any shape, of points on top of each other, in runs of any length."""
    for count, many in ((1, 2), (31, 7), (33, 64), (257, 20), (3000, 300)):
        chance = seeded(count)
        points = torch.rand(count, 3, generator=chance, dtype=torch.float64) * torch.tensor([1, spread, 0.1])
        points[: count // 3] = points[0]
        weights = 1 + torch.rand(count, generator=chance, dtype=torch.float64)
        centres = torch.rand(many, 3, generator=chance, dtype=torch.float64) * torch.tensor([1, spread, 0.1])
        clouds = [cloud_of(engine, points, weights) for engine in (CompiledCloud, TorchCloud)]
        for iterations, tolerance in ((3, 0.0), (50, 0.02), (50, 9.0)):
            moved, counts = clouds[0].iterate(centres.numpy(), iterations, tolerance)
            right, theirs = clouds[1].iterate(centres, iterations, tolerance)
            np.testing.assert_allclose(moved, right, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(counts, theirs)
        kept, right = clouds[0].prune(centres.numpy(), many // 2), clouds[1].prune(centres, many // 2)
        assert len(kept) == many // 2
        assert count < 31 or np.array_equal(kept, right), "all costs are the same where nearly all centres are empty"


FORKED = """
import os, signal, torch
from event2vec import cluster_events, open_dataset
torch.set_num_threads(1)  # as a data loader does in its workers: OpenMP's own threads do not survive a fork
events = open_dataset("digits", None, "test")[0][0]
here = cluster_events(events, 32)
child = os.fork()
if child == 0:
    signal.alarm(250)
    os._exit(0 if torch.equal(cluster_events(events, 32).x, here.x) else 1)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_process_can_cluster_too():
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=300)


def test_the_torch_engine_is_as_good_in_float32():
    events = digit()
    points, weights = module.to_unit_cube(events).float(), events.rho.clone()
    mine = events.p
    settings = Settings(64, 20, 1e-4, seeded())
    scores = []
    for kind in (torch.float32, torch.float64):
        cloud = TorchCloud(points[mine].to(kind), weights[mine].to(kind))
        centres, counts = module.cluster_pruned(cloud, module.Part(True, len(cloud), 64, settings))
        assert counts.sum() == mine.sum()
        scores.append(float(torch.cdist(points[mine].double(), centres.double()).min(1).values.square().sum()))
    assert 0.95 < scores[0] / scores[1] < 1.05


def test_groups_of_neighbours_cost_little(monkeypatch):
    events = digit()
    grouped = inertia(events, cluster_events(events, 16))
    monkeypatch.setattr(module, "LARGEST_GROUP", 1)
    assert grouped < 1.05 * inertia(events, cluster_events(events, 16))


@pytest.mark.parametrize("engine", ENGINES)
def test_the_iteration_ends_with_the_first_step_below_the_tolerance(engine):
    points = torch.rand(500, 3, generator=seeded(), dtype=torch.float64)
    cloud = cloud_of(engine, points, torch.ones(500, dtype=torch.float64))
    centres = torch.rand(9, 3, generator=seeded(1), dtype=torch.float64)
    places = [centres.numpy() if engine is CompiledCloud else centres]
    for count in range(1, 12):
        places.append(cloud.iterate(places[0], count, 0.0)[0])
    steps = [float(((after - before) ** 2).sum(1).max()) ** 0.5 for before, after in pairwise(places)]
    tolerance = 1.01 * min(steps[:6])
    last = next(number for number, step in enumerate(steps) if step < tolerance) + 1
    np.testing.assert_allclose(cloud.iterate(places[0], 99, tolerance)[0], places[last])


@pytest.mark.parametrize("engine", ENGINES)
def test_what_cannot_be_clustered_is_refused(engine, make_events):
    events = make_events(100)
    for column, value in (
        ("x", torch.inf),
        ("x", torch.nan),
        ("y", -1.0),
        ("x", 99.0),
        ("rho", 0.0),
        ("rho", torch.nan),
    ):
        wrong = getattr(events, column).clone()
        wrong[50] = value
        with pytest.raises(ValueError, match="events must be on the sensor"):
            cluster(engine, replace(events, **{column: wrong}), 10)
    with pytest.raises(ValueError, match="in time order"):
        cluster(engine, replace(events, t=events.t.flip(0)), 10)


@pytest.mark.parametrize("engine", ENGINES)
def test_settings_beyond_all_bounds_are_as_good_as_large_ones(engine, make_events):
    events = make_events(100)
    for batch, iterations in ((2**61, 20), (64, 2**62)):
        settings = Settings(batch, iterations, 1e-4, seeded())
        check_promises(events, cluster_with(engine, events, 10, settings), 10)


def test_a_library_of_another_interface_is_not_used(monkeypatch):
    monkeypatch.setattr(compiled_engine, "INTERFACE", -1)
    library.cache_clear()
    assert library() is None
    library.cache_clear()


def test_without_a_compiler_torch_does_the_work_and_says_so(monkeypatch):
    events = digit()
    monkeypatch.setattr(module, "library", lambda: None)
    with pytest.warns(UserWarning, match="without its compiled part"):
        result = cluster_events(events, 64)
    assert_same(result, cluster(TorchCloud, events, 64))


def test_clusters_of_clusters_keep_the_counts():
    events = digit()
    once = cluster_events(events, 500)
    check_promises(once, cluster_events(once, 40), 40)


def test_faiss_does_the_same_task():
    pytest.importorskip("faiss")
    events = digit()
    check_promises(events, cluster_faiss(events, 64, 20), 64)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_an_accelerator_gives_clusters_of_the_same_quality():
    events = digit()
    result = cluster_events(events.to("cuda"), 128)
    assert result.x.device.type == "cuda"
    check_promises(events, result.to("cpu"), 128)
    assert inertia(events, result.to("cpu")) < 1.05 * inertia(events, cluster_events(events, 128))


def test_a_clustered_store_holds_the_clusters_whatever_the_number_of_workers(tmp_path, make_events):
    from event2vec import write_events

    for name in ("left", "right"):
        for number in range(4):
            write_events(tmp_path / "data" / name / f"{number}.npz", make_events(100 + number, seed=number))
    datasets = [open_dataset("folder", tmp_path / "data", split) for split in ("train", "test")]
    for workers in (1, 2):
        prepare(datasets, tmp_path / f"store{workers}", workers, clusters=20)
    store = EventStore.open(tmp_path / "store1")
    assert_same(store[0][0], cluster_events(datasets[0][0][0], 20))
    assert store.lengths.max() <= 20
    for name in ("x.bin", "t.bin", "rho.bin", "store.json"):
        assert (tmp_path / "store1" / name).read_bytes() == (tmp_path / "store2" / name).read_bytes()
    for other in ({"clusters": 30}, {"clusters": 20, "seeding": "plain"}):
        with pytest.raises(Event2VecError, match="with other options"):
            prepare(datasets, tmp_path / "store1", **other)
    plain = prepare(datasets, tmp_path / "plain", clusters=20, seeding="plain").store
    assert_same(plain[0][0], cluster_events(datasets[0][0][0], 20, seeding="plain"))
    with pytest.raises(Event2VecError, match="seeding requires clusters"):
        prepare(datasets, tmp_path / "other", seeding="plain")
    with pytest.raises(Event2VecError, match="at least 2"):
        prepare(datasets, tmp_path / "other", clusters=1)
