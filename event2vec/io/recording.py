"""What a reader decodes from a file, and the checked recording that becomes of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from event2vec.errors import FileError
from event2vec.events import LARGEST_SIDE, Events, Sensor, arrange_events


@dataclass(frozen=True)
class Decoded:
    """Columns as they stand in a file: absolute times, any order, not checked yet."""

    x: Any
    y: Any
    t: Any  # whole microseconds on the camera's clock, from `clock` on
    p: Any
    sensor: Sensor | None = None  # None where the file does not say
    rho: Any = None
    warnings: tuple[str, ...] = ()
    clock: int = 0


@dataclass(frozen=True)
class Recording:
    """Events and the facts about their file that the events themselves no longer show."""

    events: Events
    format: str
    start: int  # the first event on the camera's own clock, in microseconds
    out_of_order: int  # events that stood after a later one in the file
    sensor_declared: bool  # False: the size is the smallest that holds the events
    warnings: tuple[str, ...] = ()


def check(path: Path, format: str, decoded: Decoded, sensor: Sensor | None) -> Recording:
    """Turn what a reader found into a recording, or into one error that names the file."""
    declared = sensor or decoded.sensor
    try:
        size = declared or bounding_sensor(decoded.x, decoded.y)
        columns = (decoded.x, decoded.y, decoded.t, decoded.p)
        events, out_of_order = arrange_events(*columns, sensor=size, rho=decoded.rho)
    except ValueError as error:
        raise FileError(path, f"{error}. {_remedy(str(error))}") from None
    start = decoded.clock + int(decoded.t.min() if out_of_order else decoded.t[0]) if len(events) else 0
    return Recording(events, format, start, out_of_order, declared is not None, decoded.warnings)


def bounding_sensor(x: Any, y: Any) -> Sensor:
    """The smallest sensor that holds these events."""
    if len(x) == 0:
        raise ValueError("the file holds no events and does not name its sensor")
    width, height = float(x.max()) + 1, float(y.max()) + 1
    if not (1 <= width <= LARGEST_SIDE and 1 <= height <= LARGEST_SIDE):
        raise ValueError(f"the last column is {width - 1:g} and the last row {height - 1:g}, which no sensor has")
    return Sensor(int(np.ceil(width)), int(np.ceil(height)))


def _remedy(problem: str) -> str:
    if "sensor" in problem:
        return "Give the size of the sensor (--sensor WIDTHxHEIGHT) if the file names a wrong one or none"
    return "The file is damaged or of another format than it seems"


def cut_short(count: int, record: str) -> tuple[str, ...]:
    """The warning for bytes at the end that are not a whole record."""
    return (f"the last {record} is cut short: {count} bytes at the end were ignored",) if count else ()
