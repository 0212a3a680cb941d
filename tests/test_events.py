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
from event2vec.events import COLUMNS

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
    for rows in ([1, 2], np.array([True, False]), "x"):
        with pytest.raises(
            ValueError, match=r"^events are taken by slices, got events\[.*\]. Use events.select\(...\)"
        ):
            events[rows]
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


def kinds(events):
    """The same events with tensors and with arrays as columns: all that is promised holds for both."""
    return (events.torch(), events.arrays())


WIDE = Sensor(101, 31)


def test_scaling_maps_corners_to_corners_each_side_by_its_own_share():
    corners = Events.from_arrays([0, 100, 0, 100, 50], [0, 0, 30, 30, 10], range(5), [1] * 5, sensor=WIDE, rho=[2] * 5)
    for events in kinds(corners):
        scaled = events.on_sensor((51, 301))
        assert scaled.sensor == Sensor(51, 301)
        assert scaled.x.tolist() == [0, 50, 0, 50, 25]
        assert scaled.y.tolist() == [0, 0, 300, 300, 100]
        assert (scaled.t.tolist(), scaled.rho.tolist()) == ([0, 1, 2, 3, 4], [2] * 5)
        assert events.on_sensor(WIDE) is events
        assert scaled.on_sensor(WIDE).x.tolist() == events.x.tolist(), "and back"


SIDES = st.integers(1, 4) | st.integers(1, 3000)


@given(SIDES, SIDES, SIDES, SIDES)
def test_no_rounding_puts_a_scaled_event_outside(width, height, other_width, other_height):
    edge = Events.from_arrays([0, width - 1], [0, height - 1], [0, 1], [1, 0], sensor=(width, height))
    for events in kinds(edge):
        scaled = events.on_sensor((other_width, other_height))
        x, y, t, p = (getattr(scaled, name).tolist() for name in "xytp")
        assert Events.from_arrays(x, y, t, p, sensor=(other_width, other_height)).x.tolist() == x
        assert x[1] == (pytest.approx(other_width - 1) if width > 1 else 0)
        assert y[1] == (pytest.approx(other_height - 1) if height > 1 else 0)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=30), st.integers(-10, 80), st.integers(-10, 80), st.booleans())
def test_between_is_from_start_on_and_before_stop(times, start, stop, as_tensors):
    zeros = [0] * len(times)
    tensors, arrays = kinds(Events.from_arrays(zeros, zeros, times, zeros, sensor=SENSOR))
    events = tensors if as_tensors else arrays
    inside = [time for time in events.t.tolist() if start <= time < stop]
    part = events.between(start, stop)
    assert part.t.tolist() == [time - inside[0] for time in inside]
    assert type(part.t) is type(events.t)
    assert events.before(start) == sum(time < start for time in events.t.tolist())


@pytest.mark.parametrize("time", [2**63 - 1, 2**63, 2**100, -(2**63), -(2**100)])
def test_any_whole_number_is_a_time_to_look_for(time):
    for events in kinds(build(4)):
        assert events.before(time) == (4 if time > 0 else 0)


@pytest.mark.parametrize(
    ("x", "y", "whole"), [([1, 2], [3, 4], True), ([1, 2.5], [3, 4], False), ([1, 2], [3.25, 4], False), ([], [], True)]
)
def test_coordinates_on_pixels_are_whole_in_both_directions(x, y, whole):
    for events in kinds(Events.from_arrays(x, y, range(len(x)), [1] * len(x), sensor=SENSOR)):
        assert events.on_pixels is whole


def test_parts_join_to_the_whole(make_events):
    for events in kinds(make_events(50)):
        joined = Events.join([events[:10], events[10:10], events[10:]])
        assert_same(joined.torch(), events.torch())
        assert type(joined.x) is type(events.x)
        assert joined.sensor == events.sensor


def test_events_are_shown_with_count_time_and_sensor():
    zeros = [0] * 1200
    events = Events.from_arrays(zeros, zeros, np.arange(1200) * 2_000, zeros, sensor=(346, 260))
    assert repr(events) == repr(events.arrays()) == "Events(1,200 events, 2,398 ms, 346x260)"
    assert repr(build(0)) == "Events(0 events, 0 ms, 8x6)"


def test_one_numpy_table_has_each_column_in_its_own_type():
    table = build(2, x=[1, 2.5], rho=[1, 7]).numpy()
    assert [table.dtype[name] for name in table.dtype.names] == ["<f4", "<f4", "<i8", "?", "<f4"]
    assert table.tolist() == [(1.0, 2.0, 0, True, 1.0), (2.5, 2.0, 1, True, 7.0)]
    assert build(2).numpy()["rho"].tolist() == [1, 1], "a table holds the expanded number for each event"


def test_tensors_and_arrays_share_memory_and_stay_what_they_are():
    tensors, arrays = kinds(build(3, rho=[1, 2, 3]))
    assert tensors.torch() is tensors
    assert arrays.arrays() is arrays
    for name in COLUMNS:
        assert np.shares_memory(getattr(tensors.arrays(), name), getattr(tensors, name).numpy()), name
    assert tensors.like(arrays).arrays() is not tensors
    assert isinstance(tensors.like(arrays).t, np.ndarray)
    assert isinstance(arrays.like(tensors).t, torch.Tensor)
    assert tensors.like(tensors) is tensors
    meta = tensors.to("meta")
    assert arrays.like(meta).t.device.type == "meta"
    assert meta.sensor == SENSOR


def test_a_column_of_ones_takes_the_memory_of_one():
    events = build(3)
    assert events.rho.tolist() == events.arrays().rho.tolist() == [1, 1, 1]
    assert events.arrays().rho.strides == (0,)
    assert events.rho.stride() == (0,)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"x": ["a"] * 3}, "columns must hold real numbers, got <U1"),
        ({"x": [1j, 2, 3]}, "columns must hold real numbers, got complex128"),
        ({"p": [None, 0, 1]}, "columns must hold real numbers, got object"),
        ({"t": np.array([1, 2, 2**63], np.uint64)}, r"t must be below 2\^63 microseconds, got a larger unsigned value"),
        ({"t": [0.0, 1.0, 2.0**62]}, r"t must be below 2\^62 microseconds, got 4.61e\+18"),
        ({"t": [0.0, 1.0, float("nan")]}, "t must be in whole microseconds, got fractions or NaN"),
        ({"x": 1}, r"one-dimensional and equally long, got {'x': \(\), 'y': \(3,\)"),
        ({"rho": [1, 1]}, r"equally long, got .*'rho': \(2,\)"),
        ({"rho": [1, 1, 2.0**53]}, "rho counts raw events and must be at least 1, got 9007199254740992.0"),
        ({"rho": [1, 1, float("nan")]}, "must be at least 1, got nan"),
        ({"x": [0, 7.01, 3]}, "an event at x = 7.01 is outside the sensor, which is 8x6"),
        ({"y": [0, -0.5, 9]}, "an event at y = -0.5 is outside the sensor, which is 8x6"),
        ({"p": [0, 1, 255]}, "p must be 0/1, -1/1 or bool, got 255"),
        ({"p": [0, 1, 0.5]}, "p must be 0/1, -1/1 or bool, got 0.5"),
    ],
)
def test_columns_that_cannot_be_events_are_refused(columns, problem):
    with pytest.raises(ValueError, match=problem):
        build(**columns)
    with pytest.raises(ValueError, match=problem):
        Events.from_numpy(**{"x": [1] * 3, "y": [2] * 3, "t": [0, 1, 2], "p": [1] * 3, **columns}, sensor=SENSOR)


def test_the_largest_numbers_that_fit_are_kept():
    events = build(3, x=[0, 7, 7.0], y=[5, 0, 5], rho=[1, 2**52, 3], t=[-(2**61), 0, 2**61 - 1])
    assert events.duration == 2**62 - 1
    assert events.t.tolist() == [0, 2**61, 2**62 - 1]
    assert events.rho.tolist() == [1, 2**52, 3]
    assert build(2, t=np.array([2**63 - 2, 2**63 - 1], np.uint64)).t.tolist() == [0, 1]


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64, torch.uint8])
def test_tensors_of_any_type_are_taken(kind):
    x = torch.tensor([1, 2, 3], dtype=kind, requires_grad=kind.is_floating_point)
    assert build(x=x, rho=x).x.tolist() == [1, 2, 3]


def test_equal_times_keep_their_order_and_all_columns_move_together():
    times = [5, 3, 5, 3, 9, 5]
    events = Events.from_arrays(range(6), [5, 4, 3, 2, 1, 0], times, [1, 0, 0, 1, 1, 0], sensor=SENSOR, rho=range(1, 7))
    assert events.t.tolist() == [0, 0, 2, 2, 2, 6]
    assert events.x.tolist() == [1, 3, 0, 2, 5, 4]
    assert events.y.tolist() == [4, 2, 5, 3, 0, 1]
    assert events.p.tolist() == [False, True, True, False, False, True]
    assert events.rho.tolist() == [2, 4, 1, 3, 6, 5]


class TestBatches:
    def test_arrays_are_padded_as_tensors_are(self, make_events):
        recordings = [make_events(count, seed=count) for count in (4, 0, 7, 1)]
        tensors = EventBatch.pad(recordings)
        arrays = EventBatch.pad([events.arrays() for events in recordings])
        for name in (*COLUMNS, "valid"):
            assert isinstance(getattr(arrays, name), np.ndarray)
            np.testing.assert_array_equal(getattr(tensors, name).numpy(), getattr(arrays, name), err_msg=name)
            assert getattr(tensors, name).dtype == getattr(arrays.torch(), name).dtype
        assert len(tensors) == len(arrays) == 4
        assert (tensors.sensor, arrays.sensor) == (recordings[0].sensor,) * 2

    def test_recordings_without_events_are_rows_without_columns(self, make_events):
        batch = EventBatch.pad([make_events(0)] * 3)
        assert batch.x.shape == batch.valid.shape == (3, 0)
        assert len(batch.row(2)) == 0

    def test_recordings_of_one_length_are_not_padded(self, make_events):
        batch = EventBatch.pad([make_events(5), make_events(5, seed=1)])
        assert batch.valid.all()
        assert_same(batch.row(1), make_events(5, seed=1))

    def test_padding_is_never_kept(self, make_events):
        batch = EventBatch.pad([make_events(2), make_events(5)])
        every = batch.keep(torch.ones(2, 5, dtype=torch.bool))
        for name in (*COLUMNS, "valid"):
            assert torch.equal(getattr(every, name), getattr(batch, name))
        none = batch.keep(torch.zeros(2, 5, dtype=torch.bool))
        assert not any(bool(getattr(none, name).any()) for name in (*COLUMNS, "valid"))
        assert none.x.shape == (2, 5), "a network's rows stay as long as they were"

    def test_the_types_of_columns_survive_keeping(self, make_events):
        batch = EventBatch.pad([make_events(6)])
        kept = batch.keep(batch.p)
        assert [getattr(kept, name).dtype for name in COLUMNS] == [getattr(batch, name).dtype for name in COLUMNS]

    def test_a_batch_of_arrays_goes_to_a_device_as_tensors(self, make_events):
        batch = EventBatch.pad([make_events(3).arrays()])
        assert batch.to("meta", non_blocking=True).valid.device.type == "meta"
        assert batch.torch().torch().x.tolist() == batch.x.tolist()
