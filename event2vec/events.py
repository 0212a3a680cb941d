"""Events and EventBatch: with Sensor, the only types that packages exchange.

Columns are torch tensors, or numpy arrays where torch is not needed: from a file to what a network reads. `torch()` and
`arrays()` turn one into the other and share memory. torch is imported only where there are tensors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int64
from numpy.typing import NDArray

from event2vec.arguments import several
from event2vec.columns import COLUMNS as COLUMNS
from event2vec.columns import arrange_columns, as_array, from_zero
from event2vec.names import counted, shown
from event2vec.sensor import Sensor, SensorLike

if TYPE_CHECKING:
    from torch import device as Device


@dataclass(frozen=True)
class Events:
    """One recording as parallel columns, ordered by time.

        events = Events.from_arrays([3, 7], [4, 4], [0, 1500], [1, 0], sensor=(34, 34))
        events[:1], events.between(0, 1000), events.numpy()

    Columns are tensors, or all are numpy arrays, and are not to be changed; `from_arrays` checks and sorts them.
    """

    x: Float[Any, " n"]  # column; fractional for cluster centres
    y: Float[Any, " n"]  # row, downwards as in an image
    t: Int64[Any, " n"]  # microseconds since the first event of the recording
    p: Bool[Any, " n"]  # True where brightness rose
    rho: Float[Any, " n"]  # raw events this row stands for (Sec. 3.5)
    sensor: Sensor

    @classmethod
    def from_arrays(cls, x: Any, y: Any, t: Any, p: Any, *, sensor: SensorLike, rho: Any = None) -> "Events":
        """Check external columns, sort them by time and start the clock at zero.

        Takes tensors, arrays or lists, and gives tensors. `t` is in whole microseconds; `p` is bool, 0/1 or -1/1.
        """
        return cls.from_numpy(x, y, t, p, sensor=sensor, rho=rho).to(getattr(t, "device", "cpu"))

    @classmethod
    def from_numpy(cls, x: Any, y: Any, t: Any, p: Any, *, sensor: SensorLike, rho: Any = None) -> "Events":
        """The same with numpy arrays as columns, without torch."""
        # Copied: the caller must not be able to change columns that have been checked.
        x, y, t, p, rho = (None if column is None else as_array(column).copy() for column in (x, y, t, p, rho))
        return arrange_events(x, y, t, p, sensor=Sensor.of(sensor), rho=rho)[0]

    @classmethod
    def join(cls, parts: Sequence["Events"]) -> "Events":
        """Parts of one recording, whose times continue from one to the next."""
        columns = {name: [getattr(part, name) for part in parts] for name in COLUMNS}
        return cls(**{name: _join(column) for name, column in columns.items()}, sensor=parts[0].sensor)

    def __len__(self) -> int:
        return len(self.t)

    def __getitem__(self, rows: Any) -> "Events":
        """Events by position: `events[:100]`, `events[::2]`. By time: `between`; others: `select`."""
        if isinstance(rows, slice):
            return self.select(rows)
        if isinstance(rows, int | np.integer):  # it would give columns without a length
            raise ValueError(f"events are taken by slices, got events[{rows}]. For one event: events[{rows}:][:1]")
        raise ValueError(f"events are taken by slices, got events[{shown(rows)}]. Use events.select(...) for others")

    def __repr__(self) -> str:
        return f"Events({counted(len(self), 'event')}, {self.duration / 1e3:,.0f} ms, {self.sensor})"

    def numpy(self) -> NDArray[Any]:
        """One structured array with the fields x, y, t, p and rho."""
        columns = [getattr(self.arrays(), name) for name in COLUMNS]
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

    def select(self, rows: Any) -> "Events":
        """Keep these rows, in the order given; times stay as they are."""
        return Events(self.x[rows], self.y[rows], self.t[rows], self.p[rows], self.rho[rows], self.sensor)

    def before(self, time: int) -> int:
        """How many events come before this time, in microseconds."""
        time = min(max(time, -(2**63)), 2**63 - 1)  # the range of int64
        if isinstance(self.t, np.ndarray):
            return int(np.searchsorted(self.t, time))
        import torch

        return int(torch.searchsorted(self.t, time))

    def between(self, start: int, stop: int) -> "Events":
        """The events with start <= t < stop, in microseconds. Their times count from the first of them."""
        first, last = self.before(start), self.before(stop)
        part = self.select(slice(first, max(first, last)))
        return replace(part, t=from_zero(part.t))

    def on_sensor(self, sensor: SensorLike) -> "Events":
        """The same events scaled to another sensor, corner to corner; coordinates become fractional."""
        sensor = Sensor.of(sensor)
        if sensor == self.sensor:
            return self
        x = self.x * ((sensor.width - 1) / max(self.sensor.width - 1, 1))
        y = self.y * ((sensor.height - 1) / max(self.sensor.height - 1, 1))
        return replace(self, x=x.clip(max=sensor.width - 1), y=y.clip(max=sensor.height - 1), sensor=sensor)

    def torch(self) -> "Events":
        """The same with tensors as columns."""
        return self if not isinstance(self.t, np.ndarray) else self._each(_as_tensor)

    def arrays(self) -> "Events":
        """The same with numpy arrays as columns."""
        return self if isinstance(self.t, np.ndarray) else self._each(lambda column: column.cpu().numpy())

    def like(self, other: "Events") -> "Events":
        """The same with columns of the other's kind, on its device."""
        if isinstance(other.t, np.ndarray):
            return self.arrays()
        tensors = self.torch()
        return tensors if tensors.t.device == other.t.device else tensors.to(other.t.device)

    def to(self, device: "Device | str") -> "Events":
        return self.torch()._each(lambda column: column.to(device))

    def _each(self, change: Any) -> "Events":
        return Events(**{name: change(getattr(self, name)) for name in COLUMNS}, sensor=self.sensor)


@dataclass(frozen=True)
class EventBatch:
    """Padded recordings, one per row.

        batch = EventBatch.pad([events, shorter])
        model(batch).argmax(dim=1)

    Padding is zero, and `valid` is True on a prefix of every row. Columns are tensors where a network reads them.
    """

    x: Float[Any, "batch length"]
    y: Float[Any, "batch length"]
    t: Int64[Any, "batch length"]
    p: Bool[Any, "batch length"]
    rho: Float[Any, "batch length"]
    valid: Bool[Any, "batch length"]
    sensor: Sensor

    @classmethod
    def pad(cls, recordings: Events | Sequence[Events]) -> "EventBatch":
        """Pad recordings from one sensor to the length of the longest."""
        recordings = several(recordings)
        if not recordings:
            raise ValueError("a batch needs at least one recording")
        sensors = {recording.sensor for recording in recordings}
        if len(sensors) != 1:
            raise ValueError(f"a batch must have one sensor, got {', '.join(sorted(map(str, sensors)))}")
        lengths = [len(recording) for recording in recordings]
        columns = {name: [getattr(recording, name) for recording in recordings] for name in COLUMNS}
        join, valid = _pad_arrays, _prefixes(lengths)
        if not isinstance(recordings[0].t, np.ndarray):
            join, valid = _pad_tensors, _as_tensor(valid).to(recordings[0].t.device)
        padded = {name: join(column, lengths) for name, column in columns.items()}
        return cls(**padded, valid=valid, sensor=recordings[0].sensor)

    def __len__(self) -> int:
        return len(self.valid)

    def keep(self, wanted: Bool[Any, "batch length"]) -> "EventBatch":
        """Drop the other events and close the gaps they leave. For tensors."""
        import torch

        wanted = wanted & self.valid
        order = torch.argsort((~wanted).byte(), dim=1, stable=True)  # kept first, still by time
        valid = wanted.gather(1, order)
        columns = {name: getattr(self, name).gather(1, order) * valid for name in COLUMNS}
        return EventBatch(**columns, valid=valid, sensor=self.sensor)

    def row(self, index: int) -> Events:
        """One recording without its padding."""
        count = int(self.valid[index].sum())
        return Events(**{name: getattr(self, name)[index, :count] for name in COLUMNS}, sensor=self.sensor)

    def torch(self) -> "EventBatch":
        """The same with tensors as columns."""
        return self if not isinstance(self.t, np.ndarray) else self._each(_as_tensor)

    def to(self, device: "Device | str", non_blocking: bool = False) -> "EventBatch":
        return self.torch()._each(lambda column: column.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "EventBatch":
        return self._each(lambda column: column.pin_memory())

    def _each(self, change: Any) -> "EventBatch":
        return EventBatch(
            **{name: change(getattr(self, name)) for name in COLUMNS}, valid=change(self.valid), sensor=self.sensor
        )


def _as_tensor(column: NDArray[Any]) -> Any:
    """A tensor that shares memory. One expanded number stays one: torch warns of arrays that may not be written to."""
    import torch

    if column.strides == (0,):
        return torch.from_numpy(column[:1].copy()).expand(len(column))
    return torch.from_numpy(column)


def _join(columns: Sequence[Any]) -> Any:
    if isinstance(columns[0], np.ndarray):
        return np.concatenate(columns)
    import torch

    return torch.cat(list(columns))


def _prefixes(lengths: Sequence[int]) -> Bool[NDArray[Any], "batch length"]:
    return np.arange(max(lengths)) < np.array(lengths)[:, None]


def _pad_arrays(columns: Sequence[NDArray[Any]], lengths: Sequence[int]) -> NDArray[Any]:
    padded = np.zeros((len(columns), max(lengths)), columns[0].dtype)
    for row, column, length in zip(padded, columns, lengths, strict=True):
        row[:length] = column
    return padded


def _pad_tensors(columns: Sequence[Any], lengths: Sequence[int]) -> Any:
    import torch
    from torch.nn.utils.rnn import pad_sequence

    join = torch.stack if len(set(lengths)) == 1 else partial(pad_sequence, batch_first=True)  # nothing to pad
    return join(list(columns))


def arrange_events(x: Any, y: Any, t: Any, p: Any, *, sensor: Sensor, rho: Any = None) -> tuple[Events, int]:
    """Like `Events.from_numpy`, plus the number of events out of order. May share memory with its inputs."""
    columns, out_of_order = arrange_columns(x, y, t, p, rho, sensor)
    return Events(*columns, sensor), out_of_order
