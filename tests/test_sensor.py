"""Sensors: any form in which people write one, and none that no camera has."""

import json
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
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


@pytest.mark.parametrize("size", [(1, 1), (LARGEST_SIDE, 1), (1, LARGEST_SIDE), (346, 260)])
def test_a_size_from_a_file_keeps_its_width_and_its_height(size):
    assert Sensor.or_none(*size) == Sensor(*size)


def test_sides_become_plain_numbers_that_json_can_hold():
    sides: tuple[Any, Any] = np.uint16(346), np.int64(260)
    sensor = Sensor(*sides)
    assert (type(sensor.width), type(sensor.height)) == (int, int)
    assert json.dumps([sensor.width, sensor.height]) == "[346, 260]"
    assert sensor == Sensor.of(sides)


def test_a_sensor_is_a_key_that_nobody_can_change():
    assert {Sensor(3, 4): "here"}[Sensor.of("3x4")] == "here"
    with pytest.raises(FrozenInstanceError):
        Sensor(3, 4).width = 5  # type: ignore[misc]


def test_the_side_that_no_camera_has_is_named():
    with pytest.raises(ValueError, match="sensor width must be from 1 to 65536, got 0"):
        Sensor(0, 7)
    with pytest.raises(ValueError, match="sensor height must be from 1 to 65536, got 65537"):
        Sensor.parse("7x65537")


def test_the_centre_lies_between_the_middle_pixels():
    assert Sensor(4, 3).centre == (1.5, 1.0)
    assert Sensor(1, 1).centre == (0.0, 0.0)
