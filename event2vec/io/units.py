"""Time units, for formats that do not define one."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.errors import FileError

MICROSECONDS = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}


def to_microseconds(path: Path, t: NDArray[Any], unit: str | None) -> NDArray[Any]:
    """Convert `t` from `unit` to whole microseconds; without a unit, whole numbers already are microseconds."""
    if unit is not None and unit not in MICROSECONDS:
        raise FileError(path, f"unknown time unit '{unit}'; expected one of {', '.join(MICROSECONDS)}")
    if unit is None and t.dtype.kind == "f" and not np.array_equal(t, np.round(t)):
        raise FileError(path, "has fractional times and no unit. Set `time_unit` to s, ms, us or ns")
    if t.dtype.kind != "f" and unit in (None, "us"):
        return t
    if t.dtype.kind in "iu" and unit == "ns":  # not as floats: since 1970 they have steps of 256 ns
        return (t // 1000 + (t % 1000 >= 500)).astype(np.int64)
    scaled = np.round(t.astype(np.float64) * MICROSECONDS[unit or "us"])
    if not (np.abs(scaled) < 2**62).all():
        raise FileError(path, "has times that are not numbers, or beyond 2^62 microseconds. Check `time_unit`")
    return scaled.astype(np.int64)
