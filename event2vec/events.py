"""Events and EventBatch: with Sensor, the only types that packages exchange."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from event2vec.names import counted
from event2vec.sensor import Sensor, SensorLike

COLUMNS = ("x", "y", "t", "p", "rho")


@dataclass(frozen=True)
class Events:
    """One recording as parallel columns, ordered by time.

        events = Events.from_arrays([3, 7], [4, 4], [0, 1500], [1, 0], sensor=(34, 34))
        events[:1], events.between(0, 1000), events.numpy()

    Columns are tensors that are not to be changed; `from_arrays` checks and sorts them.
    """

    x: Float[Tensor, " n"]  # column; fractional for cluster centres
    y: Float[Tensor, " n"]  # row, downwards as in an image
    t: Int64[Tensor, " n"]  # microseconds since the first event of the recording
    p: Bool[Tensor, " n"]  # True where brightness rose
    rho: Float[Tensor, " n"]  # raw events this row stands for (Sec. 3.5)
    sensor: Sensor

    @classmethod
    def from_arrays(cls, x: Any, y: Any, t: Any, p: Any, *, sensor: SensorLike, rho: Any = None) -> "Events":
        """Check external columns, sort them by time and start the clock at zero.

        Takes tensors, arrays or lists. `t` is in whole microseconds; `p` is bool, 0/1 or -1/1.
        """
        # Copied: the caller must not be able to change columns that have been checked.
        x, y, t, p, rho = (None if column is None else as_tensor(column).clone() for column in (x, y, t, p, rho))
        return arrange_events(x, y, t, p, sensor=Sensor.of(sensor), rho=rho)[0]

    def __len__(self) -> int:
        return len(self.t)

    def __getitem__(self, rows: slice) -> "Events":
        """Events by position: `events[:100]`, `events[::2]`. By time: `between`."""
        return self.select(rows)

    def __repr__(self) -> str:
        return f"Events({counted(len(self), 'event')}, {self.duration / 1e3:,.0f} ms, {self.sensor})"

    def numpy(self) -> NDArray[Any]:
        """One structured array with the fields x, y, t, p and rho."""
        columns = [getattr(self, name).cpu().numpy() for name in COLUMNS]
        kinds = [(name, column.dtype) for name, column in zip(COLUMNS, columns, strict=True)]
        table = np.empty(len(self), kinds)
        for name, column in zip(COLUMNS, columns, strict=True):
            table[name] = column
        return table

    @property
    def duration(self) -> int:
        """Microseconds from the first event to the last."""
        return int(self.t[-1] - self.t[0]) if len(self) else 0

    @property
    def on_pixels(self) -> bool:
        """Whether all coordinates are whole numbers; cluster centres are usually between pixels."""
        return bool((self.x == self.x.round()).all() and (self.y == self.y.round()).all())

    def select(self, rows: Tensor | slice) -> "Events":
        """Keep these rows, in the order given; times stay as they are."""
        return Events(self.x[rows], self.y[rows], self.t[rows], self.p[rows], self.rho[rows], self.sensor)

    def between(self, start: int, stop: int) -> "Events":
        """The events with start <= t < stop, in microseconds. Their times count from the first of them."""
        ends = [min(max(end, -(2**63)), 2**63 - 1) for end in (start, stop)]  # the range of int64
        first, last = torch.searchsorted(self.t, torch.tensor(ends, device=self.t.device)).tolist()
        part = self.select(slice(first, max(first, last)))
        return replace(part, t=_from_zero(part.t))

    def on_sensor(self, sensor: SensorLike) -> "Events":
        """The same events scaled to another sensor, corner to corner; coordinates become fractional."""
        sensor = Sensor.of(sensor)
        if sensor == self.sensor:
            return self
        x = self.x * ((sensor.width - 1) / max(self.sensor.width - 1, 1))
        y = self.y * ((sensor.height - 1) / max(self.sensor.height - 1, 1))
        return replace(self, x=x.clamp(max=sensor.width - 1), y=y.clamp(max=sensor.height - 1), sensor=sensor)

    def show(self, title: str = "events") -> Any:
        """The event player with these events, in a notebook. `view` writes it to a file."""
        return import_module("event2vec.player").show(self, title)  # by name: it is further down the flow

    def to(self, device: torch.device | str) -> "Events":
        return Events(**{name: getattr(self, name).to(device) for name in COLUMNS}, sensor=self.sensor)


@dataclass(frozen=True)
class EventBatch:
    """Padded recordings, one per row.

        batch = EventBatch.pad([events, shorter])
        model(batch).argmax(dim=1)

    Padding is zero, and `valid` is True on a prefix of every row.
    """

    x: Float[Tensor, "batch length"]
    y: Float[Tensor, "batch length"]
    t: Int64[Tensor, "batch length"]
    p: Bool[Tensor, "batch length"]
    rho: Float[Tensor, "batch length"]
    valid: Bool[Tensor, "batch length"]
    sensor: Sensor

    @classmethod
    def pad(cls, recordings: Sequence[Events]) -> "EventBatch":
        """Pad recordings from one sensor to the length of the longest."""
        if not recordings:
            raise ValueError("a batch needs at least one recording")
        sensors = {recording.sensor for recording in recordings}
        if len(sensors) != 1:
            raise ValueError(f"a batch must have one sensor, got {', '.join(sorted(map(str, sensors)))}")
        counts = [len(recording) for recording in recordings]
        join = torch.stack if len(set(counts)) == 1 else partial(pad_sequence, batch_first=True)  # nothing to pad
        columns = {name: join([getattr(recording, name) for recording in recordings]) for name in COLUMNS}
        device = columns["t"].device
        lengths = torch.tensor(counts, device=device)
        valid = torch.arange(columns["t"].shape[1], device=device) < lengths[:, None]
        return cls(**columns, valid=valid, sensor=recordings[0].sensor)

    def __len__(self) -> int:
        return len(self.valid)

    def keep(self, wanted: Bool[Tensor, "batch length"]) -> "EventBatch":
        """Drop the other events and close the gaps they leave."""
        wanted = wanted & self.valid
        order = torch.argsort((~wanted).byte(), dim=1, stable=True)  # kept first, still by time
        valid = wanted.gather(1, order)
        columns = {name: getattr(self, name).gather(1, order) * valid for name in COLUMNS}
        return EventBatch(**columns, valid=valid, sensor=self.sensor)

    def row(self, index: int) -> Events:
        """One recording without its padding."""
        count = int(self.valid[index].sum())
        return Events(**{name: getattr(self, name)[index, :count] for name in COLUMNS}, sensor=self.sensor)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "EventBatch":
        return self._each(lambda column: column.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "EventBatch":
        return self._each(lambda column: column.pin_memory())

    def _each(self, change: Any) -> "EventBatch":
        return EventBatch(
            **{name: change(getattr(self, name)) for name in COLUMNS}, valid=change(self.valid), sensor=self.sensor
        )


def arrange_events(x: Any, y: Any, t: Any, p: Any, *, sensor: Sensor, rho: Any = None) -> tuple[Events, int]:
    """Like `Events.from_arrays`, plus the number of events out of order. May share memory with its inputs."""
    t, p = _whole(as_tensor(t)), _rising(as_tensor(p))
    x, y = as_tensor(x).to(torch.float32), as_tensor(y).to(torch.float32)
    # One expanded number instead of a column of ones: raw recordings are large, and all have rho 1.
    rho = torch.ones((), device=t.device).expand(t.shape) if rho is None else _counts(as_tensor(rho))
    lengths = {name: tuple(column.shape) for name, column in zip(COLUMNS, (x, y, t, p, rho), strict=True)}
    if t.ndim != 1 or len(set(lengths.values())) != 1:
        raise ValueError(f"columns must be one-dimensional and equally long, got {lengths}")
    _check_inside(x, y, sensor)
    # Subtracting first makes the only copy of t that is needed, if any. A difference too large for 64 bits wraps to
    # a negative number, so it is found among the events out of order.
    since = t - t[:1] if len(t) and t[0] else t.contiguous()
    out_of_order = int(torch.count_nonzero(since[1:] < since[:-1]))
    if out_of_order:
        out_of_order = int(torch.count_nonzero(t[1:] < t[:-1]))
        order = torch.argsort(t, stable=True)
        x, y, t, p, rho = (column[order] for column in (x, y, t, p, rho))
        since = _from_zero(t)
    _check_span(int(since[-1]) if len(since) else 0)
    return Events(x, y, since, p, rho, sensor), out_of_order


def as_tensor(values: Any) -> Tensor:
    """The same real numbers as a tensor, which may share memory."""
    if isinstance(values, Tensor) and not values.is_complex():
        return values
    values = np.asarray(values)
    if values.dtype.kind not in "biuf":
        raise ValueError(f"columns must hold real numbers, got {str(values.dtype)[:60]}")
    # torch shares memory with numpy, which must be contiguous, writable and in native byte order. It accepts one
    # type of each size, and none above 8 bytes.
    plain = f"{values.dtype.kind}{min(values.dtype.itemsize, 8)}"
    return torch.from_numpy(np.require(values, plain, ["C", "W"]))


def _whole(t: Tensor) -> Int64[Tensor, " n"]:
    if t.is_floating_point() and not bool((t == t.round()).all()):
        raise ValueError("t must be in whole microseconds, got fractions or NaN")
    if t.is_floating_point() and t.numel() and bool(t.abs().max() >= 2**62):
        raise ValueError(f"t must be below 2^62 microseconds, got {float(t.abs().max()):.3g}")
    if t.dtype == torch.uint64 and bool((t.view(torch.int64) < 0).any()):
        raise ValueError("t must be below 2^63 microseconds, got a larger unsigned value")
    return t.to(torch.int64)


def _rising(p: Tensor) -> Bool[Tensor, " n"]:
    if p.dtype == torch.bool:
        return p
    p = p if p.is_floating_point() else p.to(torch.float64)  # torch cannot compare most unsigned types
    # NaN equals nothing, so it is found here too.
    strange = p[(p != 1) & (p != 0) & (p != -1)]
    if len(strange):
        raise ValueError(f"p must be 0/1, -1/1 or bool, got {strange[0].item():g}")
    if bool((p == -1).any()) and bool((p == 0).any()):
        raise ValueError("p must be 0/1, -1/1 or bool, got both 0 and -1")
    return p > 0


def _counts(rho: Tensor) -> Float[Tensor, " n"]:
    rho = rho.to(torch.float64)  # torch cannot compare most unsigned types
    strange = rho[~((rho >= 1) & (rho < 2**53))]  # NaN fails both
    if len(strange):
        raise ValueError(f"rho counts raw events and must be at least 1, got {float(strange[0])}")
    return rho.to(torch.float32)


def _check_inside(x: Tensor, y: Tensor, sensor: Sensor) -> None:
    for name, column, side in (("x", x, sensor.width), ("y", y, sensor.height)):
        if len(column) == 0:
            continue
        low, high = (float(value) for value in torch.aminmax(column))
        if not (low >= 0 and high <= side - 1):  # NaN fails both
            found = high if low >= 0 else low
            raise ValueError(f"an event at {name} = {found:g} is outside the sensor, which is {sensor}")


def _from_zero(t: Int64[Tensor, " n"]) -> Int64[Tensor, " n"]:
    if len(t) == 0:
        return t
    _check_span(int(t[-1]) - int(t[0]))  # in Python integers: the difference of two int64 may wrap
    return t - t[0]


def _check_span(microseconds: int) -> None:
    if microseconds >= 2**62:
        raise ValueError(f"timestamps span {microseconds} microseconds, more than any recording can")
