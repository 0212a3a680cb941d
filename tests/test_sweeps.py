"""Sweeps: what a network reads at each point, what is noted beside the accuracy, and values that cannot be."""

import json

import numpy as np
import pytest
import torch
from conftest import SMALL, make_recording, randomise

from event2vec import Event2VecError, EventStore, ModelConfig, Sampling, build_model, evaluate
from event2vec.evaluation.calibration import Calibration
from event2vec.evaluation.evaluate import Evaluation
from event2vec.evaluation.sweeps import Kind, Point, first_seconds, lower_resolution, onset_delay, scale_to, sweep

TINY = ModelConfig(sensor=SMALL, classes=2, dim=16, hidden=16, heads=2, blocks=1)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Eight recordings of 50 to 85 events, which last 0.1 to 0.8 s."""
    recordings = [
        (make_recording(50 + 5 * number, seed=number, duration=100_000 * (number + 1)), number % 2)
        for number in range(8)
    ]
    folder = tmp_path_factory.mktemp("data") / "store"
    return EventStore.create(folder, recordings, sensor=SMALL, classes=["a", "b"])


@pytest.fixture(scope="module")
def model():
    return randomise(build_model(TINY, class_names=["a", "b"], sampling=Sampling(length=40)))


def test_points_of_events_say_how_many_most_recordings_had(model, store):
    few, some, many = sweep("events", model, store, [10, 67, 500], 2)
    assert [point.events_read for point in (few, some, many)] == [10, 66, 67], "medians of what could be read"
    assert [point.falls_short for point in (few, some, many)] == [False, True, True]
    assert [point.available for point in (few, some, many)] == [10, 66, 67]
    assert few.found.repeats == 2


def test_points_of_windows_say_how_long_most_recordings_last(model, store):
    short, long = sweep("windows", model, store, [0.05, 9.0], 1)
    assert short.seconds_read == 0.05
    usual = sorted(store.durations.tolist())
    assert long.seconds_read == pytest.approx((usual[3] + usual[4]) / 2 / 1e6)
    assert (short.falls_short, long.falls_short) == (False, True)
    assert long.found.accuracies == evaluate(model, store, 1).accuracies
    started = [(first_seconds(events, 0.05), label) for events, label in store]
    other = EventStore.create(store.folder.with_name("short"), started, sensor=SMALL, classes=["a", "b"])
    assert short.found.accuracies == evaluate(model, other, 1).accuracies


def test_facts_have_the_value_under_the_name_of_the_sweep(model, store):
    asked: list[tuple[Kind, float, str]] = [("events", 10, "events_read"), ("windows", 0.1, "seconds_read")]
    for kind, value, read in (*asked, ("resolution", 4, "")):
        (point,) = sweep(kind, model, store, [value], 2)
        facts = json.loads(json.dumps(point.facts(kind)))
        assert list(facts) == [
            kind,
            "accuracy",
            "accuracy_std",
            "interval_low",
            "interval_high",
            *([read] if read else []),
        ]
        assert facts[kind] == value
        assert facts["accuracy_std"] == point.found.accuracy_std
        assert (facts["interval_low"], facts["interval_high"]) == point.found.interval
    assert point.available is None
    assert not point.falls_short, "pixels are there or not"


@pytest.mark.parametrize(
    ("kind", "values", "said"),
    [
        ("resolution", [8, 0], "resolution must be at least 1 pixel per side, got 0"),
        ("resolution", [-3], "resolution must be at least 1 pixel per side, got -3"),
        ("windows", [0.1, 0.0], "windows must be 0.000001 to "),
        ("windows", [float("nan")], "windows must be 0.000001 to "),
        ("events", [10, 0], "sampling.length must be at least 1"),
    ],
)
def test_values_that_cannot_be_are_refused_before_anything_is_measured(kind, values, said, model, store):
    """With no pixels, all coordinates would be infinite, and an accuracy would come out all the same."""
    with pytest.raises(Event2VecError) as refusal:
        sweep(kind, model, store, values, 1)
    assert said in str(refusal.value)


def found(*accuracies: float) -> Evaluation:
    sure = Calibration.of(np.ones((10, 1)), np.zeros(10, np.int64), 1.0)
    return Evaluation(("a",), 10, len(accuracies), 1, accuracies, None, np.zeros((1, 1), np.int64), sure)


def test_the_onset_is_the_shortest_window_with_nine_tenths_of_the_longest():
    points = [Point(value, found(share)) for value, share in ((2.0, 0.8), (0.1, 0.5), (0.5, 0.72), (1.0, 0.9))]
    assert onset_delay(points) == 0.5, "in whatever order they come, and exactly nine tenths are enough"
    assert onset_delay([Point(0.1, found(0.9)), Point(1.0, found(0.3))]) == 0.1
    assert onset_delay([Point(0.1, found(0.9)), Point(1.0, found(0.0))]) is None, "the longest is never right"


@pytest.mark.parametrize(("pixels", "others"), [(8, 4), (9, 3), (10, 5), (34, 7)])
def test_every_coarse_pixel_covers_as_many_fine_ones(pixels, others):
    place = scale_to(torch.arange(pixels, dtype=torch.float64), pixels, others)
    counts = torch.bincount(place.long(), minlength=others)
    assert counts.max() - counts.min() <= 1
    assert (place.diff() >= 0).all()
    assert place[[0, -1]].tolist() == [0, others - 1]
    back = scale_to(torch.arange(others, dtype=torch.float64), others, pixels)
    assert torch.equal(scale_to(back, pixels, others), torch.arange(others, dtype=torch.float64))


def test_only_places_change_with_the_resolution():
    events = make_recording(40)
    coarse = lower_resolution(events, 3)
    for name in ("t", "p", "rho"):
        assert torch.equal(getattr(coarse, name), getattr(events, name))
    assert coarse.sensor == events.sensor
    assert coarse.x.dtype == events.x.dtype
    assert (len(coarse.x.unique()), len(coarse.y.unique())) == (3, 3)
