"""Events and batches keep what they promise, whatever goes in."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import assert_same
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from processes import run_python

from event2vec import EventBatch, Events, Sensor, read_events

SENSOR = Sensor(8, 6)


def build(count=3, **changed):
    columns = {"x": [1] * count, "y": [2] * count, "t": list(range(count)), "p": [1] * count}
    return Events.from_arrays(**{**columns, **changed}, sensor=SENSOR)


@given(
    hnp.arrays(np.int64, st.integers(0, 30), elements=st.integers(-(2**60), 2**60)),
    st.sampled_from([np.int64, np.float32, np.uint16, ">i4", np.uint64]),
)
def test_any_times_become_sorted_and_start_at_zero(t, kind):
    count = len(t)
    x = (np.arange(count) % 8).astype(kind)
    events = Events.from_arrays(x, x % 6, t, np.arange(count) % 2, sensor=SENSOR)
    assert events.t.dtype == torch.int64
    assert events.x.dtype == events.y.dtype == events.rho.dtype == torch.float32
    np.testing.assert_array_equal(events.t.numpy(), np.sort(t) - (t.min() if count else 0))
    np.testing.assert_array_equal(events.x.numpy(), x[np.argsort(t, kind="stable")].astype(np.float32))
    assert events.duration == (int(t.max() - t.min()) if count else 0)


@pytest.mark.parametrize("p", [[False, True, True], [0, 1, 1], [-1, 1, 1], [-1.0, 1.0, 1.0], np.array([0, 1, 1], "u2")])
def test_polarity_is_true_for_rising_in_each_convention(p):
    assert build(p=p).p.tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": [1, 2, 8]}, "x = 8 is outside the sensor, which is 8x6"),
        ({"y": [1, -1, 2]}, "y = -1 is outside"),
        ({"x": [1, float("nan"), 2]}, "x = nan is outside"),
        ({"t": [0, 1]}, "equally long"),
        ({"t": [0, 0.5, 1]}, "whole microseconds"),
        ({"t": [0, float("inf"), 1]}, "below 2"),
        ({"t": [-(2**62), 0, 2**62]}, "more than any recording"),
        ({"t": [2**62, 0, -(2**62) - 5]}, "more than any recording"),
        ({"p": [0, 1, 2]}, "0/1, -1/1 or bool, got 2"),
        ({"p": [0, 1, -1]}, "both 0 and -1"),
        ({"p": [0, 1, float("nan")]}, "got nan"),
        ({"rho": [1, 1, 0.5]}, "at least 1, got 0.5"),
        ({"rho": [1, 1, float("inf")]}, "at least 1, got inf"),
        ({"t": [0, 1, 2**63 - 2]}, "more than any recording"),
        ({"x": [[1, 2, 3]]}, "one-dimensional"),
    ],
)
def test_wrong_columns_are_refused_with_what_was_found(changed, message):
    with pytest.raises(ValueError, match=message):
        build(**changed)


def test_fractional_centres_and_their_counts_are_kept():
    events = build(x=[0.25, 7.0, 3.5], rho=[3, 1, 2])
    assert events.x.tolist() == [0.25, 7.0, 3.5]
    assert events.rho.tolist() == [3, 1, 2]


def test_arguments_are_not_changed(make_events):
    t = torch.tensor([5, 3, 9])
    build(t=t)
    assert t.tolist() == [5, 3, 9]
    x = np.array([1, 2, 3], np.float32)
    events = build(x=x, t=np.arange(3))
    x[0] = 7
    assert events.x.tolist() == [1, 2, 3], "nor do events change with the memory that they came from"
    batch = EventBatch.pad([make_events(4)])
    before = batch.x.clone()
    batch.keep(batch.p)
    assert torch.equal(batch.x, before)


def test_between_takes_a_part_on_a_clock_of_its_own():
    events = build(5, t=[0, 10, 20, 20, 30])
    assert events.between(10, 30).t.tolist() == [0, 10, 10]
    assert len(events.between(31, 99)) == 0
    assert len(events.between(20, 10)) == 0
    assert len(events.between(-(2**70), 2**70)) == len(events), "beyond what 64 bits hold"


@pytest.mark.parametrize("text", ["346x260", "346X260", " 346 x 260 "])
def test_a_sensor_is_read_as_people_write_it(text):
    assert Sensor.parse(text) == Sensor(346, 260)


@pytest.mark.parametrize("text", ["346", "x", "0x5", "70000x4", "axb", "-1x5", ""])
def test_a_sensor_that_cannot_be_is_refused(text):
    with pytest.raises(ValueError, match="sensor"):
        Sensor.parse(text)


def test_a_batch_is_valid_on_a_prefix_and_zero_behind_it(make_events):
    recordings = [make_events(5), make_events(0), make_events(3, seed=1)]
    batch = EventBatch.pad(recordings)
    assert batch.valid.tolist() == [[True] * 5, [False] * 5, [True] * 3 + [False] * 2]
    for name in ("x", "y", "t", "p", "rho"):
        assert not getattr(batch, name)[~batch.valid].any()
    for index, recording in enumerate(recordings):
        assert_same(batch.row(index), recording)


def test_keep_closes_the_gaps_in_time_order(make_events):
    batch = EventBatch.pad([make_events(6), make_events(4, seed=2)])
    wanted = torch.rand(2, 6, generator=torch.Generator().manual_seed(0)) < 0.5
    kept = batch.keep(wanted)
    for index in range(2):
        mask = (wanted & batch.valid)[index]
        assert kept.valid[index].tolist() == [True] * int(mask.sum()) + [False] * (6 - int(mask.sum()))
        assert torch.equal(kept.row(index).t, batch.t[index][mask])
    assert not kept.t[~kept.valid].any()


def test_a_batch_moves_between_devices(make_events):
    batch = EventBatch.pad([make_events(6), make_events(4)])
    assert batch.to("meta").x.device.type == "meta"
    assert batch.to("cpu").sensor == batch.sensor


COMPILED = """
import torch
from event2vec import EventBatch, Events, Sensor, read_events
events = Events.from_arrays([1, 2, 3], [1, 2, 3], [0, 5, 9], [1, 0, 1], sensor=Sensor(5, 5))
batch = EventBatch.pad([events, events])
keep = torch.compile(lambda batch: batch.keep(batch.p).x.sum(), fullgraph=True, backend="eager")
assert keep(batch) == 8
"""


def test_a_batch_compiles_without_breaks():
    """In a process of its own: the checks of shapes that tests run with cannot be compiled."""
    run_python("-c", COMPILED, check=True)


def test_a_batch_of_two_sensors_or_none_is_refused(make_events):
    with pytest.raises(ValueError, match="at least one"):
        EventBatch.pad([])
    with pytest.raises(ValueError, match="one sensor, got 34x30, 8x6"):
        EventBatch.pad([make_events(2), replace(build(), sensor=SENSOR)])


def test_events_are_cut_shown_and_handed_to_numpy(make_events):
    events = make_events(40)
    assert_same(events[10:30:2], events.select(slice(10, 30, 2)))
    for row in (3, np.int64(3)):
        with pytest.raises(ValueError, match=r"taken by slices, got events\[3\]. For one event: events\[3:\]\[:1\]"):
            events[row]
    assert repr(Events.from_arrays([1], [2], [5], [1], sensor=(34, 30))) == "Events(1 event, 0 ms, 34x30)"
    table = events.numpy()
    assert table.dtype.names == ("x", "y", "t", "p", "rho")
    np.testing.assert_array_equal(table["t"], events.t.numpy())
    np.testing.assert_array_equal(table["p"], events.p.numpy())


@pytest.mark.parametrize("size", [Sensor(34, 30), (34, 30), "34x30"])
def test_a_sensor_is_understood_as_people_give_it(size, tmp_path):
    events = Events.from_arrays([1], [2], [5], [1], sensor=size)
    assert events.sensor == Sensor(34, 30)
    (tmp_path / "a.txt").write_text("5 1 2 1\n")
    assert read_events(tmp_path / "a.txt", sensor=size).sensor == Sensor(34, 30)
