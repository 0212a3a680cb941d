"""Sensor: the pixel grid of a camera. In its own file so that settings can use it without importing torch."""

import operator
import re
from dataclasses import dataclass

from event2vec.names import shown

LARGEST_SIDE = 65536  # coordinates are stored as 16-bit integers


class WrongSensor(ValueError):
    """Events that cannot be from this sensor; they may be from one of another size."""


@dataclass(frozen=True)
class Sensor:
    """The pixel grid of a camera.

        Sensor(346, 260).width

    There are always two polarities. Wherever a sensor is expected, (346, 260) and "346x260" are understood too.
    """

    width: int
    height: int

    def __post_init__(self) -> None:
        for name in ("width", "height"):
            side = operator.index(getattr(self, name))  # also converts numpy integers, which JSON cannot store
            if not 1 <= side <= LARGEST_SIDE:
                raise ValueError(f"sensor {name} must be from 1 to {LARGEST_SIDE}, got {side}")
            object.__setattr__(self, name, side)

    @classmethod
    def of(cls, size: "SensorLike") -> "Sensor":
        """A sensor from any accepted form: a Sensor, (346, 260) or "346x260"."""
        if isinstance(size, Sensor):
            return size
        if isinstance(size, str):
            return cls.parse(size)
        try:
            width, height = map(operator.index, size)
        except (TypeError, ValueError):  # not two, or not whole numbers
            expected = "(width, height) or WIDTHxHEIGHT, such as 346x260"
            raise ValueError(f"a sensor must be {expected}, got {shown(size)}") from None
        return cls(width, height)

    @classmethod
    def parse(cls, text: str) -> "Sensor":
        """A sensor from text such as 346x260."""
        sides = re.fullmatch(r"([0-9]{1,9})x([0-9]{1,9})", text.lower().replace(" ", ""))
        if sides is None:
            raise ValueError(f"a sensor must be WIDTHxHEIGHT, such as 346x260, got {shown(text)}")
        return cls(*map(int, sides.groups()))

    @classmethod
    def or_none(cls, width: int, height: int) -> "Sensor | None":
        """The sensor of this size, as stored in a file; None if the size is impossible."""
        return cls(width, height) if 1 <= width <= LARGEST_SIDE and 1 <= height <= LARGEST_SIDE else None

    @property
    def centre(self) -> tuple[float, float]:
        """The centre of rotation, as (x, y)."""
        return (self.width - 1) / 2, (self.height - 1) / 2

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


SensorLike = Sensor | tuple[int, int] | str  # what `Sensor.of` accepts
