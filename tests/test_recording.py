"""From what a reader decodes to a checked recording: its facts, its sensor, its clock, and errors that help."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import assert_same, make_recording
from hypothesis import given
from hypothesis import strategies as st

from event2vec import Event2VecError, Events, Sensor
from event2vec.errors import FileError
from event2vec.io.recording import (
    LARGEST_RATIO,
    SMALL_CONTENT,
    Decoded,
    Recording,
    bounding_sensor,
    check,
    check_content,
    cut_short,
    largest_content,
    refused,
    unwrap,
)

PATH = Path("walk.raw")
SMALL = Sensor(8, 6)


def decoded(t, sensor: Sensor | None = SMALL, **more):
    t = np.asarray(t)
    return Decoded(np.full(len(t), 3), np.full(len(t), 5), t, np.ones(len(t), bool), sensor, **more)


def recording(sensor=SMALL, declared=True, count=4, **more):
    events = Events.from_numpy(
        [1] * count, [2] * count, range(0, 250_000 * count, 250_000), [0, 1] * (count // 2), sensor=sensor
    )
    return Recording(events, "evt2", 0, 0, declared, **more)


class TestFacts:
    def test_they_are_what_info_shows(self):
        facts = replace(recording(warnings=("cut",)), start=17, out_of_order=2).facts()
        assert facts == {
            "format": "evt2",
            "width": 8,
            "height": 6,
            "sensor_declared": True,
            "events": 4,
            "start_us": 17,
            "duration_us": 750_000,
            "rate_per_second": pytest.approx(4 / 0.75),
            "rising_share": 0.5,
            "out_of_order": 2,
            "warnings": ["cut"],
        }
        assert replace(recording(), start=17, out_of_order=2, warnings=("cut",)).torch().facts() == facts

    def test_a_recording_of_an_instant_has_no_rate_and_one_without_events_no_share(self):
        one = Recording(make_recording(1), "dat", 0, 0, True).facts()
        assert (one["rate_per_second"], one["duration_us"]) == (None, 0)
        none = Recording(make_recording(0), "dat", 0, 0, True).facts()
        assert (none["rate_per_second"], none["rising_share"], none["events"]) == (None, None, 0)


class TestSensors:
    @pytest.mark.parametrize(
        ("own", "declared", "wanted", "fits"),
        [
            ((8, 6), True, (8, 6), True),
            ((8, 6), True, (9, 6), False),
            ((8, 6), False, (8, 6), True),
            ((8, 6), False, (9, 7), True),
            ((8, 6), False, (6, 8), False),
            ((8, 6), False, (7, 9), False),
            ((8, 6), False, (9, 5), False),
        ],
    )
    def test_a_size_that_the_file_names_must_agree_and_one_that_was_measured_must_fit(
        self, own, declared, wanted, fits
    ):
        found = recording(Sensor(*own), declared)
        assert found.fits(Sensor(*wanted)) is fits
        brought = found.on_sensor(Sensor(*wanted))
        assert brought.sensor == Sensor(*wanted)
        same = bool((brought.x == found.events.x).all() and (brought.y == found.events.y).all())
        assert same is fits, "moved exactly if they do not fit"

    @pytest.mark.parametrize(
        ("x", "y", "sensor"),
        [([0], [0], (1, 1)), ([3, 9], [7, 2], (10, 8)), ([3.0, 8.25], [1.5, 1], (10, 3)), ([65535], [0], (65536, 1))],
    )
    def test_the_smallest_sensor_holds_all_events(self, x, y, sensor):
        assert bounding_sensor(np.array(x), np.array(y)) == Sensor(*sensor)

    @pytest.mark.parametrize(
        ("x", "y", "problem"),
        [
            ([], [], "the file holds no events and does not name its sensor"),
            ([65536], [2], "the largest x is 65536 and the largest y 2, which no sensor has"),
            ([2], [1e9], "the largest x is 2 and the largest y 1e[+]09, which no sensor has"),
            ([-3], [2], "the largest x is -3 and the largest y 2, which no sensor has"),
            ([2], [float("nan")], "the largest x is 2 and the largest y nan, which no sensor has"),
        ],
    )
    def test_events_that_no_sensor_holds_are_refused(self, x, y, problem):
        with pytest.raises(ValueError, match=problem):
            bounding_sensor(np.array(x), np.array(y))

    @given(st.lists(st.integers(0, 200), min_size=1), st.lists(st.integers(0, 200), min_size=1))
    def test_a_sensor_that_was_measured_holds_every_event_and_no_smaller_one_does(self, x, y):
        sensor = bounding_sensor(np.array(x, np.uint16), np.array(y, np.uint8))
        assert (sensor.width, sensor.height) == (max(x) + 1, max(y) + 1)


class TestChecking:
    def test_a_sensor_that_is_given_comes_before_that_of_the_file_and_that_before_a_measured_one(self):
        given_, named = Sensor(30, 20), Sensor(9, 8)
        assert check(PATH, "dat", decoded([1], named), given_).events.sensor == given_
        assert check(PATH, "dat", decoded([1], named), None).events.sensor == named
        measured = check(PATH, "dat", decoded([1], None), None)
        assert (measured.events.sensor, measured.sensor_declared) == (Sensor(4, 6), False)
        assert check(PATH, "dat", decoded([1], None), given_).sensor_declared

    def test_the_start_is_the_earliest_event_on_the_clock_of_the_camera(self):
        assert check(PATH, "dat", decoded([7, 9], clock=1000), None).start == 1007
        late = check(PATH, "dat", decoded([9, 7, 8], clock=1000), None)
        assert (late.start, late.out_of_order, late.events.t.tolist()) == (1007, 1, [0, 1, 2])
        assert check(PATH, "dat", decoded([], clock=1000), None).start == 0

    def test_a_clock_with_a_period_is_unwrapped_and_disorder_that_is_left_is_counted(self):
        period = 1 << 24
        times = [period - 4, period - 2, 3, 1, 9]
        found = check(PATH, "evt3", decoded(times, period=period), None)
        assert found.events.t.tolist() == [0, 2, 5, 7, 13]
        assert (found.out_of_order, found.start) == (1, period - 4)
        assert check(PATH, "evt3", decoded(times), None).out_of_order == 2, "without a period, nothing is guessed"

    def test_events_in_order_are_not_unwrapped(self):
        times = [0, 1 << 30]
        assert check(PATH, "evt3", decoded(times, period=1 << 10), None).events.t.tolist() == times

    def test_warnings_of_the_reader_are_kept(self):
        assert check(PATH, "dat", decoded([1], warnings=("a", "b")), None).warnings == ("a", "b")

    def test_counts_are_kept(self):
        found = check(PATH, "npz", decoded([4, 2], rho=np.array([3, 5])), None)
        assert found.events.rho.tolist() == [5, 3]

    def test_an_event_outside_is_one_error_with_the_remedy(self):
        with pytest.raises(FileError) as caught:
            check(PATH, "dat", decoded([1], Sensor(3, 9)), None)
        assert str(caught.value) == (
            "walk.raw: an event at x = 3 is outside the sensor, which is 3x9. "
            "Set the sensor size with `sensor`, such as 346x260, if the file has none or a wrong one"
        )

    def test_other_damage_has_another_remedy(self):
        with pytest.raises(Event2VecError, match=r"^walk.raw: t must be in whole microseconds.*\. The file is damaged"):
            check(PATH, "dat", decoded([0.5]), None)
        assert refused(PATH, ValueError("p must be 0/1")).problem.endswith(
            "damaged or not in the format it seems to be"
        )


class TestClocks:
    @given(st.integers(4, 20).map(lambda bits: 1 << bits), st.data(), st.lists(st.integers(0, 1 << 20), max_size=30))
    def test_overflows_of_any_period_are_undone(self, period, data, steps):
        """As long as no two neighbours are half a period apart, which nobody can tell from going back."""
        start = data.draw(st.integers(0, period - 1))
        steps = [step % (period // 2 - 1) for step in steps]
        true = start + np.cumsum([0, *steps])
        np.testing.assert_array_equal(unwrap(true % period, period), true)

    def test_a_step_back_of_half_a_period_is_no_overflow_and_a_larger_one_is(self):
        assert unwrap(np.array([8, 0, 1]), 16).tolist() == [8, 0, 1]
        assert unwrap(np.array([9, 0, 1]), 16).tolist() == [9, 16, 17]
        assert unwrap(np.array([], np.int64), 16).tolist() == []


class TestLimits:
    @pytest.mark.parametrize(
        ("count", "warnings"),
        [
            (0, ()),
            (1, ("the last word is truncated: 1 byte at the end was ignored",)),
            (3, ("the last word is truncated: 3 bytes at the end were ignored",)),
        ],
    )
    def test_what_is_cut_short_is_said_in_one_line(self, count, warnings):
        assert cut_short(count, "word") == warnings

    def test_small_files_may_unpack_to_some_megabytes_and_large_ones_to_a_hundred_times_their_size(self, tmp_path):
        path = tmp_path / "a.npz"
        path.write_bytes(b"x" * 1000)
        assert largest_content(path) == SMALL_CONTENT
        with path.open("wb") as file:
            file.truncate(10**6)
        assert largest_content(path) == LARGEST_RATIO * 10**6
        check_content(path, LARGEST_RATIO * 10**6)
        with pytest.raises(FileError) as caught:
            check_content(path, LARGEST_RATIO * 10**6 + 1)
        assert caught.value.problem == (
            "would unpack from 1,000,000 to 100,000,001 bytes, expected at most 100,000,000. "
            "If it is a real recording, save it without compression"
        )


def test_tensors_and_arrays_are_the_same_recording():
    found = recording()
    assert_same(found.torch().events, found.events.torch())
    assert replace(found.torch(), events=found.events) == found
