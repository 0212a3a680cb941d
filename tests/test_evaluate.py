"""Evaluation: figures by hand, and draws that are independent and repeatable."""

import json
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from conftest import SMALL, assert_same, make_recording, randomise

from event2vec import Event2VecError, Events, EventStore, ModelConfig, Sampling, Sensor, build_model
from event2vec.evaluation.accuracy import wilson_interval
from event2vec.evaluation.calibration import Calibration
from event2vec.evaluation.evaluate import Evaluation, classify_store, evaluate
from event2vec.evaluation.sweeps import lower_resolution, onset_delay, sweep
from event2vec.machine.devices import Compute
from event2vec.progress import Progress

TINY = ModelConfig(sensor=SMALL, classes=3, dim=16, hidden=16, heads=2, blocks=1)


@pytest.fixture
def store(tmp_path):
    recordings = [(make_recording(80, seed=index), index % 3) for index in range(20)]
    return EventStore.create(tmp_path / "store", recordings, sensor=SMALL, classes=["a", "b", "c"])


def build(**sampling):
    return randomise(build_model(TINY, class_names=["a", "b", "c"], sampling=Sampling(**sampling)))


def test_figures_are_those_of_the_confusion():
    confusion = np.array([[8, 2, 0], [1, 9, 0], [0, 0, 0]])
    sure = Calibration.of(np.full((10, 3), 1 / 3), np.zeros(10, np.int64), 1.0)
    result = Evaluation(("a", "b", "c"), 10, 2, 1, (0.8, 0.9), None, confusion, sure)
    assert result.accuracy == pytest.approx(0.85)
    assert result.accuracy_std == pytest.approx(0.005**0.5), "of a sample: n - 1"
    assert Evaluation(("a", "b", "c"), 10, 1, 1, (0.8,), None, confusion, sure).accuracy_std == 0
    assert result.per_class == {"a": 0.8, "b": 0.9, "c": None}
    assert {"accuracy", "accuracy_std", "per_class"} <= result.facts().keys()


def test_every_accuracy_has_an_interval_of_the_recordings_and_not_of_their_draws():
    confusion = np.array([[8, 2, 0], [1, 9, 0], [0, 0, 0]])
    sure = Calibration.of(np.full((10, 3), 1 / 3), np.zeros(10, np.int64), 1.0)
    result = Evaluation(("a", "b", "c"), 10, 2, 1, (0.8, 0.9), 0.9, confusion, sure)
    assert result.interval == wilson_interval(0.85, 10)
    assert result.per_class_interval == {"a": wilson_interval(0.8, 5), "b": wilson_interval(0.9, 5), "c": None}
    facts = json.loads(json.dumps(result.facts()))
    assert facts["interval"] == list(result.interval)
    assert facts["per_class_interval"]["a"] == list(wilson_interval(0.8, 5))
    assert facts["top5_interval"] == list(wilson_interval(0.9, 10))


def test_repeats_are_independent_and_the_same_next_time(store):
    model = build(length=10)
    result = evaluate(model, store, repeats=6)
    assert len(set(result.accuracies)) > 1
    assert result.accuracies == evaluate(model, store, repeats=6).accuracies
    assert result.confusion.sum() == 120
    assert result.accuracy == pytest.approx(result.confusion.trace() / 120)


def test_batches_do_not_change_the_result(store):
    model = build(length=10)
    assert evaluate(model, store, 2, batch=3).accuracies == evaluate(model, store, 2, batch=64).accuracies


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("precision", "tolerance"), [("32-true", 1e-4), ("bf16-mixed", 0.05)])
def test_a_gpu_gives_the_same_scores(store, precision, tolerance):
    model = build(length=10)
    expected = classify_store(model, store, 0, 8)
    compute = Compute.choose("cuda", precision)
    with compute.autocast():
        found = classify_store(model.to(compute.device), store, 0, 8)
        assert evaluate(model, store, repeats=2).recordings == 20
    np.testing.assert_allclose(found, expected, atol=tolerance)


def test_clusters_need_one_repeat(store):
    result = evaluate(build(method="clusters", length=10), store, repeats=10, vote=5)
    assert (result.repeats, result.vote, result.accuracy_std) == (1, 1, 0)


def test_votes_average_the_scores_of_their_draws(store):
    model = build(length=10)
    one, two = evaluate(model, store, repeats=1, vote=2), evaluate(model, store, repeats=2)
    assert one.confusion.sum() == 20
    assert one.vote == 2
    first, second = (classify_store(model, store, draw, 32) for draw in range(2))
    scores = first + second
    assert one.accuracies == (float((scores.argmax(axis=1) == store.labels).mean()),)
    assert len(two.accuracies) == 2


def test_progress_covers_all_the_work(store):
    class Told(Progress):
        done: ClassVar[list[int]] = []

        def start(self, title, total=None):
            self.total = total

        def advance(self, done, note=""):
            self.done.append(done)

    told = Told()
    evaluate(build(length=10), store, repeats=2, vote=2, batch=10, progress=told)
    assert told.total == 80
    assert told.done == [10, 20, 30, 40, 50, 60, 70, 80]


def test_many_classes_count_the_best_five(tmp_path):
    names = [str(number) for number in range(12)]
    config = ModelConfig(sensor=SMALL, classes=12, dim=16, hidden=16, heads=2, blocks=1)
    recordings = [(make_recording(30, seed=index), index % 12) for index in range(36)]
    store = EventStore.create(tmp_path / "store", recordings, sensor=SMALL, classes=names)
    model = randomise(build_model(config, sampling=Sampling(length=20)))
    among = []
    for draw in range(2):
        scores = classify_store(model, store, draw, 32)
        better = (scores > scores[np.arange(36), store.labels][:, None]).sum(axis=1)
        among.append((better < 5).mean())
    result = evaluate(model, store, repeats=2)
    assert result.top5 == pytest.approx(np.mean(among))
    assert result.top5 is not None
    assert result.accuracy < result.top5 < 1, "neither the best answer alone nor all of them"


def test_few_classes_have_no_best_five(store):
    assert evaluate(build(length=10), store, repeats=1).top5 is None


def test_a_store_that_does_not_fit_is_refused(store, tmp_path):
    other = randomise(build_model(TINY, class_names=["x", "y", "z"]))
    with pytest.raises(Event2VecError, match=r"has recordings of 'a', expected one of the classes x, y, z"):
        evaluate(other, store)
    empty = store.subset([])
    with pytest.raises(Event2VecError, match="no recordings"):
        evaluate(build(length=10), empty)
    with pytest.raises(Event2VecError, match="at least 1, got 0 and 1"):
        evaluate(build(length=10), store, repeats=0)


def test_bfloat16_gives_nearly_the_same_scores(store):
    model = build(length=10)
    plain = classify_store(model, store, 0, 32)
    with torch.autocast("cpu", torch.bfloat16):
        coarse = classify_store(model, store, 0, 32)
    assert 0 < np.abs(plain - coarse).max() < 0.05
    np.testing.assert_allclose(coarse.sum(axis=1), 1, atol=1e-12)


def test_the_network_is_left_as_it_was(store):
    model = build(length=10)
    before = [parameter.clone() for parameter in model.parameters()]
    evaluate(model, store, repeats=1)
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))


def on_every_pixel(width, height):
    x, y = torch.meshgrid(torch.arange(width), torch.arange(height), indexing="ij")
    count = width * height
    return Events.from_arrays(x.flatten(), y.flatten(), range(count), [1] * count, sensor=Sensor(width, height))


def test_a_lower_resolution_moves_events_to_the_middle_of_coarse_pixels():
    events = Events.from_arrays([0, 4, 5, 9], [0, 3, 4, 7], [0, 1, 2, 3], [1] * 4, sensor=Sensor(10, 8))
    half = lower_resolution(events, 2)
    assert half.x.tolist() == [2, 2, 7, 7]
    assert half.y.tolist() == [2, 2, 5, 5], "1.5 and 5.5 are half way between two pixels"
    for side in (10, 11):
        assert_same(lower_resolution(events, side), events)
    wide = on_every_pixel(9, 3)
    assert torch.equal(lower_resolution(wide, 3).y, wide.y), "this side has no more pixels than that"
    assert lower_resolution(wide, 3).x.tolist() == [[1, 4, 7][x // 3] for x in range(9) for _ in range(3)]


@pytest.mark.parametrize("size", [(34, 34), (128, 128), (240, 180), (35, 7), (2, 1)], ids=str)
def test_one_pixel_is_the_middle_of_the_sensor(size):
    one = lower_resolution(on_every_pixel(*size), 1)
    for column, pixels in zip((one.x, one.y), size, strict=True):
        assert set(column.tolist()) == {pixels // 2}


@pytest.mark.parametrize("pixels", [6, 33, 34, 128])
@pytest.mark.parametrize("side", [2, 3, 4, 5, 8, 16, 31, 32])
def test_a_lower_resolution_neither_shifts_nor_turns_a_recording(pixels, side):
    """Mirrored events stay mirrored; those in the very middle may have two pixels to go to, equally near."""
    events = on_every_pixel(pixels, 1)
    lower = lower_resolution(events, side).x
    middle, coarse = (pixels - 1) / 2, max(pixels / side, 1)
    mirrored = pixels - 1 - lower_resolution(replace(events, x=pixels - 1 - events.x), side).x
    apart = lower != mirrored
    assert bool(((events.x - middle).abs()[apart] < coarse / 2).all())
    assert abs(lower.mean() - middle) <= apart.float().mean() * (coarse + 1) / 2 + 1e-5, "the centre of mass stays"
    assert bool(((lower - events.x).abs() <= coarse / 2 + 0.5).all()), "no farther than its coarse pixel"
    assert bool(((lower >= 0) & (lower < pixels)).all())
    assert len(lower.unique()) == min(side, pixels)
    assert torch.equal(lower_resolution(replace(events, x=lower), side).x, lower), "once is as good as twice"


@pytest.mark.parametrize("method", ["random", "clusters"])
def test_the_sensors_own_resolution_changes_nothing_and_one_pixel_leaves_no_place(store, method):
    """Pixels are lost before clusters are made, so that nothing of them is left in the clusters either."""
    model = build(method=method, length=20)
    points = sweep("resolution", model, store, [1, 34], 2)
    assert points[1].found.accuracy == evaluate(model, store, 2).accuracy
    moved = [(replace(events, x=33 - events.x, y=29 - events.y), label) for events, label in store]
    turned = EventStore.create(store.folder.with_name("turned"), moved, sensor=SMALL, classes=["a", "b", "c"])
    assert sweep("resolution", model, turned, [1], 2)[0].found.accuracy == points[0].found.accuracy


def test_a_network_that_scales_frames_reads_every_event_where_it_is(store):
    model = build(length=10)
    asked: list[int] = []
    object.__setattr__(model, "at_resolution", lambda pixels: (asked.append(pixels), model)[1])
    points = sweep("resolution", model, store, [1, 5], 1)
    assert asked == [1, 5]
    assert points[0].found.accuracies == points[1].found.accuracies


def test_a_sweep_says_how_many_events_there_were(store):
    points = sweep("events", build(length=10), store, [40, 200], 1)
    assert [(point.events_read, point.falls_short) for point in points] == [(40, False), (80, True)]
    facts = points[0].facts("events")
    assert (facts["interval_low"], facts["interval_high"]) == points[0].found.interval
    assert 0 < facts["interval_low"] < facts["accuracy"] < facts["interval_high"] < 1
    with pytest.raises(Event2VecError, match="length must be at least 2"):
        sweep("events", build(method="clusters", length=10), store, [40, 1], 1)


@pytest.mark.parametrize("method", ["random", "clusters"])
def test_windows_hold_the_first_seconds_alone(store, method, tmp_path):
    model = build(method=method, length=20)
    points = sweep("windows", model, store, [0.1, 10.0], 2)
    assert points[1].found.accuracy == evaluate(model, store, 2).accuracy, "all of each recording"
    assert [point.falls_short for point in points] == [False, True]
    cut = [(events.between(0, 100_000), label) for events, label in store]
    short = EventStore.create(tmp_path / "short", cut, sensor=SMALL, classes=store.classes)
    assert points[0].found.accuracy == evaluate(model, short, 2).accuracy
    with pytest.raises(Event2VecError, match=r"windows must be 0.000001 to 1e.06 seconds, got 0"):
        sweep("windows", model, store, [0.1, 0.0], 2)


def test_the_onset_delay_is_the_shortest_window_that_is_nearly_as_good(store):
    found = sweep("windows", build(length=20), store, [0.1], 1)[0]
    shares = {0.1: 0.2, 0.2: 0.85, 0.4: 0.9, 1.0: 0.94}
    points = [replace(found, value=at, found=replace(found.found, accuracies=(share,))) for at, share in shares.items()]
    assert onset_delay(points) == 0.2
    assert onset_delay([replace(found, found=replace(found.found, accuracies=(0.0,)))]) is None


def test_another_number_of_events_leaves_the_network_as_it_was(store):
    model = build(length=10)
    before = evaluate(model, store, 1)
    sweep("events", model, store, [5], 1)
    assert model.sampling.length == 10
    assert evaluate(model, store, 1).accuracies == before.accuracies
