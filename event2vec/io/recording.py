"""The columns that a reader decodes from a file, and the checked recording made from them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from event2vec.errors import FileError
from event2vec.events import Events, arrange_events
from event2vec.names import excerpt
from event2vec.sensor import LARGEST_SIDE, Sensor, SensorLike, WrongSensor

SMALL_CONTENT = 32 << 20
LARGEST_RATIO = 100  # real recordings compress 2 to 20 times, endless zeros 1,000 times


@dataclass(frozen=True)
class Decoded:
    """Columns as stored in a file: absolute times, any order, not checked yet."""

    x: Any
    y: Any
    t: Any  # whole microseconds on the camera's clock, counted from `clock`
    p: Any
    sensor: Sensor | None = None  # None if the file does not say
    rho: Any = None
    warnings: tuple[str, ...] = ()
    clock: int = 0
    period: int = 0  # microseconds after which the camera's clock overflows; 0: never

    @classmethod
    def empty(cls, sensor: Sensor | None, warnings: tuple[str, ...] = ()) -> "Decoded":
        """A valid file without events."""
        nothing = np.empty(0, np.int64)
        return cls(nothing, nothing, nothing, nothing, sensor, None, warnings)


class ReadingOptions(TypedDict, total=False):
    """The options of `read_events` that other functions hand on."""

    sensor: SensorLike | None
    columns: str | None
    time_unit: str | None


@dataclass(frozen=True)
class Reading:
    """How a file is read that does not say all of what it holds."""

    sensor: Sensor | None = None  # instead of that in the file
    columns: str | None = None  # their order in a text file
    time_unit: str | None = None
    usual: Sensor | None = None  # of a file that names none, if its events are on this one

    @classmethod
    def of(
        cls,
        sensor: SensorLike | None = None,
        columns: str | None = None,
        time_unit: str | None = None,
        usual: SensorLike | None = None,
    ) -> "Reading":
        """From what `read_events` accepts."""
        own, other = (None if size is None else Sensor.of(size) for size in (sensor, usual))
        return cls(own, columns, time_unit, other)

    def check(self, path: Path, format: str, fixed: bool) -> None:
        """Refuse an option that would have no effect; `fixed` formats have one time unit."""
        if self.columns is not None and format != "text":
            raise FileError(path, f"is {format}, which names its columns; `columns` is only for text files")
        if self.time_unit is not None and fixed:
            raise FileError(path, f"is {format}, which has a fixed time unit; omit `time_unit`")


AS_STORED = Reading()  # the file says all


@dataclass(frozen=True)
class Recording:
    """Events, and facts about their file that the events themselves do not show."""

    events: Events
    format: str
    start: int  # the first event on the camera's own clock, in microseconds
    out_of_order: int  # events that came after a later one in the file
    sensor_declared: bool  # False: the size is the smallest that holds the events
    warnings: tuple[str, ...] = ()

    def torch(self) -> "Recording":
        """The same with tensors as columns."""
        return replace(self, events=self.events.torch())

    def facts(self) -> dict[str, Any]:
        """What `event2vec info` shows, for JSON; units are in the names."""
        events = self.events
        seconds = events.duration / 1e6
        return {
            "format": self.format,
            "width": events.sensor.width,
            "height": events.sensor.height,
            "sensor_declared": self.sensor_declared,
            "events": len(events),
            "start_us": self.start,
            "duration_us": events.duration,
            "rate_per_second": len(events) / seconds if seconds else None,
            "rising_share": float(events.p.sum()) / len(events) if len(events) else None,
            "out_of_order": self.out_of_order,
            "warnings": list(self.warnings),
        }

    def fits(self, sensor: Sensor) -> bool:
        """Whether the events can be from this sensor: it is theirs, or their file names none and they are all on it."""
        own = self.events.sensor
        return own == sensor or (not self.sensor_declared and own.width <= sensor.width and own.height <= sensor.height)

    def on_sensor(self, sensor: Sensor) -> Events:
        """The events as a network for this sensor reads them: as they are if they fit, otherwise scaled."""
        return replace(self.events, sensor=sensor) if self.fits(sensor) else self.events.on_sensor(sensor)


def check(path: Path, format: str, decoded: Decoded, sensor: Sensor | None) -> Recording:
    """Turn the result of a reader into a recording with numpy columns, or into one error that names the file."""
    declared = sensor or decoded.sensor
    try:
        size = declared or bounding_sensor(decoded.x, decoded.y)
        t = decoded.t
        events, out_of_order = arrange_events(decoded.x, decoded.y, t, decoded.p, sensor=size, rho=decoded.rho)
        if out_of_order and decoded.period:
            t = unwrap(t, decoded.period)
            events, out_of_order = arrange_events(decoded.x, decoded.y, t, decoded.p, sensor=size, rho=decoded.rho)
    except ValueError as error:
        raise refused(path, error) from None
    start = decoded.clock + int(t.min() if out_of_order else t[0]) if len(events) else 0
    return Recording(events, format, start, out_of_order, declared is not None, decoded.warnings)


def unwrap(t: NDArray[np.int64], period: int) -> NDArray[np.int64]:
    """Undo overflows of a clock: it fell back by more than half of its range."""
    wrapped = np.diff(t, prepend=t[:1]) < -(period // 2)
    return t + np.cumsum(wrapped) * period


def bounding_sensor(x: Any, y: Any) -> Sensor:
    """The smallest sensor that holds these events."""
    if len(x) == 0:
        raise WrongSensor("the file holds no events and does not name its sensor")
    width, height = float(x.max()) + 1, float(y.max()) + 1
    if not (1 <= width <= LARGEST_SIDE and 1 <= height <= LARGEST_SIDE):
        raise WrongSensor(f"the largest x is {width - 1:g} and the largest y {height - 1:g}, which no sensor has")
    return Sensor(int(np.ceil(width)), int(np.ceil(height)))


def refused(path: Path, error: ValueError) -> FileError:
    """The error for events that `arrange_events` refused, with what to do about them."""
    remedy = "The file is damaged or not in the format it seems to be"
    if isinstance(error, WrongSensor):
        remedy = "Set the sensor size with `sensor`, such as 346x260, if the file has none or a wrong one"
    return FileError(path, f"{excerpt(error, 240)}. {remedy}")


def cut_short(count: int, record: str) -> tuple[str, ...]:
    """The warning for bytes at the end that are not a complete record."""
    ignored = "1 byte at the end was ignored" if count == 1 else f"{count} bytes at the end were ignored"
    return (f"the last {record} is truncated: {ignored}",) if count else ()


def largest_content(path: Path) -> int:
    """How many bytes all columns of a compressed file may take in total."""
    return max(SMALL_CONTENT, LARGEST_RATIO * path.stat().st_size)


def check_content(path: Path, claimed: int) -> None:
    """Refuse a file that would unpack to far more than any real recording, before reserving memory for it."""
    if claimed > largest_content(path):
        raise FileError(
            path,
            f"would unpack from {path.stat().st_size:,} to {claimed:,} bytes, expected at most "
            f"{largest_content(path):,}. If it is a real recording, save it without compression",
        )
