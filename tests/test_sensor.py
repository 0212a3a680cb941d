"""Sensors: any form in which people write one, and none that no camera has."""

import pytest

from event2vec import Sensor
from event2vec.sensor import LARGEST_SIDE


@pytest.mark.parametrize("size", [Sensor(346, 260), (346, 260), "346x260", " 346 X 260 "])
def test_a_sensor_is_understood_in_any_form(size):
    assert Sensor.of(size) == Sensor(346, 260)


def test_a_sensor_is_written_as_it_is_read():
    assert str(Sensor(346, 260)) == "346x260"
    assert Sensor.parse(str(Sensor(1, LARGEST_SIDE))) == Sensor(1, LARGEST_SIDE)


@pytest.mark.parametrize("text", ["", "346", "346x", "x260", "346x260x3", "-3x4", "3.5x4", "9" * 20 + "x4", "ax4"])
def test_other_text_is_refused(text):
    with pytest.raises(ValueError, match="a sensor must be WIDTHxHEIGHT, such as 346x260, got"):
        Sensor.parse(text)


@pytest.mark.parametrize("size", [34, (10,), (10, 12, 3), (3.5, 4), None])
def test_what_is_not_two_whole_numbers_is_refused_in_one_line(size):
    with pytest.raises(ValueError, match=r"a sensor must be \(width, height\) or WIDTHxHEIGHT, such as 346x260, got"):
        Sensor.of(size)


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (-1, 5), (LARGEST_SIDE + 1, 5)])
def test_sizes_that_no_camera_has_are_refused(size):
    with pytest.raises(ValueError, match=f"must be from 1 to {LARGEST_SIDE}"):
        Sensor(*size)
    assert Sensor.or_none(*size) is None


def test_the_centre_lies_between_the_middle_pixels():
    assert Sensor(4, 3).centre == (1.5, 1.0)
    assert Sensor(1, 1).centre == (0.0, 0.0)
