"""Columns as files and people give them, made into those of `Events`: checked, sorted, in types that torch knows."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int64
from numpy.typing import NDArray

from event2vec.sensor import Sensor, WrongSensor

COLUMNS = ("x", "y", "t", "p", "rho")


@np.errstate(over="ignore", invalid="ignore")  # what is not finite is found by the checks
def arrange_columns(
    x: Any, y: Any, t: Any, p: Any, rho: Any, sensor: Sensor
) -> tuple[tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]], int]:
    """The columns of `Events`, and the number of events out of order. May share memory with its inputs."""
    t, p = _whole(as_array(t)), _rising(as_array(p))
    x, y = (as_array(column).astype(np.float32, copy=False) for column in (x, y))
    # One expanded number instead of a column of ones: raw recordings are large, and all have rho 1.
    rho = np.broadcast_to(np.float32(1), t.shape) if rho is None else _counts(as_array(rho))
    lengths = {name: tuple(column.shape) for name, column in zip(COLUMNS, (x, y, t, p, rho), strict=True)}
    if t.ndim != 1 or len(set(lengths.values())) != 1:
        raise ValueError(f"columns must be one-dimensional and equally long, got {lengths}")
    _check_inside(x, y, sensor)
    # Subtracting first makes the only copy of t that is needed, if any. A difference too large for 64 bits wraps to
    # a negative number, so it is found among the events out of order.
    since = t - t[:1] if len(t) and t[0] else t
    out_of_order = int(np.count_nonzero(since[1:] < since[:-1]))
    if out_of_order:
        out_of_order = int(np.count_nonzero(t[1:] < t[:-1]))
        order = np.argsort(t, kind="stable")
        x, y, t, p, rho = (column[order] for column in (x, y, t, p, rho))
        since = from_zero(t)
    _check_span(int(since[-1]) if len(since) else 0)
    return (x, y, since, p, rho), out_of_order


def as_array(values: Any) -> NDArray[Any]:
    """The same real numbers as an array, which may share memory; of a tensor, too."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()
    values = np.asarray(values)
    if values.dtype.kind not in "biuf":
        raise ValueError(f"columns must hold real numbers, got {str(values.dtype)[:60]}")
    # torch shares memory with arrays that are contiguous, writable and in native byte order. It accepts one type of
    # each size, and none above 8 bytes.
    plain = f"{values.dtype.kind}{min(values.dtype.itemsize, 8)}"
    return np.require(values, plain, ["C", "W"])


def _whole(t: NDArray[Any]) -> Int64[NDArray[Any], " n"]:
    if t.dtype.kind == "f" and not bool((t == t.round()).all()):
        raise ValueError("t must be in whole microseconds, got fractions or NaN")
    if t.dtype.kind == "f" and t.size and (largest := float(abs(t).max())) >= 2**62:
        raise ValueError(f"t must be below 2^62 microseconds, got {largest:.3g}")
    if t.dtype == np.uint64 and bool((t.view(np.int64) < 0).any()):
        raise ValueError("t must be below 2^63 microseconds, got a larger unsigned value")
    return t.astype(np.int64, copy=False)


def _rising(p: NDArray[Any]) -> Bool[NDArray[Any], " n"]:
    if p.dtype == np.bool_:
        return p
    # NaN equals nothing, so it is found here too.
    strange = p[(p != 1) & (p != 0) & (p != -1)]
    if len(strange):
        raise ValueError(f"p must be 0/1, -1/1 or bool, got {float(strange[0]):g}")
    if bool((p == -1).any()) and bool((p == 0).any()):
        raise ValueError("p must be 0/1, -1/1 or bool, got both 0 and -1")
    return p > 0


def _counts(rho: NDArray[Any]) -> Float[NDArray[Any], " n"]:
    rho = rho.astype(np.float64)  # 16 bits cannot be compared with the limit
    strange = rho[~((rho >= 1) & (rho < 2**53))]  # NaN fails both
    if len(strange):
        raise ValueError(f"rho counts raw events and must be at least 1, got {float(strange[0])}")
    return rho.astype(np.float32)


def _check_inside(x: NDArray[Any], y: NDArray[Any], sensor: Sensor) -> None:
    for name, column, side in (("x", x, sensor.width), ("y", y, sensor.height)):
        if len(column) == 0:
            continue
        low, high = float(column.min()), float(column.max())
        if not (low >= 0 and high <= side - 1):  # NaN fails both
            found = high if low >= 0 else low
            raise WrongSensor(f"an event at {name} = {found:g} is outside the sensor, which is {sensor}")


def from_zero(t: Int64[Any, " n"]) -> Int64[Any, " n"]:
    if len(t) == 0:
        return t
    _check_span(int(t[-1]) - int(t[0]))  # in Python integers: the difference of two int64 may wrap
    return t - t[0]


def _check_span(microseconds: int) -> None:
    if microseconds >= 2**62:
        raise ValueError(f"timestamps span {microseconds} microseconds, more than any recording can")
