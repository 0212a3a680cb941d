"""What a network was trained on: durations, numbers of events and rates of the recordings, and what lies far outside.

For a network on clusters all of it is of the clusters, as it reads them: rho sums to the events that were recorded,
and the first and the last cluster are some percent closer than the first and the last event.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from event2vec.columns import as_array
from event2vec.data.sampling import Sampling
from event2vec.events import Events
from event2vec.names import shown

if TYPE_CHECKING:
    from event2vec.data.store import EventStore

QUANTILES = (0.001, 0.01, 0.25, 0.5, 0.75, 0.99, 0.999)
FAR = 2.0  # times beyond the outer quantiles
TOO_FEW = 10.0  # times fewer events than the lowest quantile: there is nothing to judge by


@dataclass(frozen=True)
class Extent:
    """The size of one recording."""

    events: float  # that were recorded
    duration: float  # seconds

    @classmethod
    def of(cls, events: Events) -> "Extent":
        return cls(float(as_array(events.rho).astype(np.float64).sum()), events.duration / 1e6)

    @property
    def rate(self) -> float | None:
        """Events per second; None if all came at the same moment."""
        return self.events / self.duration if self.duration > 0 else None


@dataclass(frozen=True)
class TrainedOn:
    """Quantiles over the recordings that a network was trained on."""

    recordings: int
    duration: tuple[float, ...]  # seconds
    events: tuple[float, ...]
    rate: tuple[float, ...]  # events per second

    @classmethod
    def of(cls, store: "EventStore") -> "TrainedOn":
        extents = list(extents_of(store))
        rates = [extent.rate for extent in extents if extent.rate is not None] or [0.0]
        columns = ([extent.duration for extent in extents], [extent.events for extent in extents], rates)
        return cls(len(extents), *(tuple(np.quantile(column, QUANTILES).tolist()) for column in columns))

    @classmethod
    def from_facts(cls, facts: Any) -> "TrainedOn":
        """What `facts` wrote; anything else is a ValueError."""
        if not isinstance(facts, Mapping) or not all(name in facts for name in ("recordings", *_UNITS)):
            raise ValueError(f"trained_on must have recordings, {', '.join(_UNITS)}, got {shown(facts)}")
        recordings = facts["recordings"]
        if not isinstance(recordings, int) or isinstance(recordings, bool) or recordings < 1:
            raise ValueError(f"trained_on.recordings must be a whole number above 0, got {shown(recordings)}")
        return cls(recordings, *(_quantiles(facts[name], name) for name in _UNITS))

    def facts(self) -> dict[str, Any]:
        return {"quantiles": list(QUANTILES), **{name: value for name, value in asdict(self).items()}}

    def remarks(self, extent: Extent) -> tuple[str, ...]:
        """What about a recording lies far from all that was seen: twice beyond the quantiles of 0.1 and 99.9 %."""
        found = {"duration": extent.duration, "events": extent.events, "rate": extent.rate}
        remarks = (self.remark(name, value) for name, value in found.items() if value is not None)
        return tuple(remark for remark in remarks if remark)

    def remark(self, name: str, value: float) -> str | None:
        """What is far about a duration, a number of events or a rate; None if nothing is."""
        low, *_, high = getattr(self, name)
        is_far = value * FAR < low or value > FAR * high
        return f"{_say(name, value)}, in training {self.range_of(name)}" if is_far else None

    def range_of(self, name: str) -> str:
        low, *_, high = getattr(self, name)
        return f"{_number(low)} to {_number(high)}"

    @property
    def usual_duration(self) -> float:
        """The median, in seconds."""
        return self.duration[QUANTILES.index(0.5)]

    def summary(self, sampling: Sampling) -> str:
        """One line for people."""
        duration = f"{self.range_of('duration')} s"
        if sampling.method == "clusters":
            duration += " from the first to the last cluster"
        events = f"{self.range_of('events')} events ({self.range_of('rate')} per second)"
        return f"{self.recordings:,} recordings of {duration} with {events} (0.1 to 99.9 % quantiles)"


_UNITS = {"duration": "{} s long", "events": "{} events", "rate": "{} events per second"}


def too_few(extent: Extent, trained_on: TrainedOn | None) -> str | None:
    """Why a recording has too few events to judge by; None if it has enough.

    A single event has neither a shape nor an interval. Where it is known what training saw, a tenth of the fewest
    events there is the limit.
    """
    count = "1 event is" if extent.events == 1 else f"{_number(extent.events)} events are"
    if trained_on is not None and extent.events * TOO_FEW < trained_on.events[0]:
        return f"{count} too few to judge by: in training {trained_on.range_of('events')}"
    return f"{count} too few to judge by" if extent.events < 2 else None


def extents_of(store: "EventStore") -> Iterator[Extent]:
    """Of each recording of a store, without reading all its events."""
    for events, duration in zip(store.recorded, store.durations, strict=True):
        yield Extent(float(events), float(duration) / 1e6)


def _quantiles(value: Any, name: str) -> tuple[float, ...]:
    numbers = value if isinstance(value, list) else []
    right = all(
        isinstance(each, int | float) and not isinstance(each, bool) and math.isfinite(each) for each in numbers
    )
    if len(numbers) != len(QUANTILES) or not right or numbers != sorted(numbers) or numbers[0] < 0:
        raise ValueError(f"trained_on.{name} must be {len(QUANTILES)} numbers that rise from 0, got {shown(value)}")
    return tuple(map(float, numbers))


def _say(name: str, value: float) -> str:
    return "1 event" if name == "events" and value == 1 else _UNITS[name].format(_number(value))


def _number(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
