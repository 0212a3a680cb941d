"""Accuracy against the number of events (Figure 3), the resolution (Figure 4) and the time since the onset."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from event2vec.arguments import several
from event2vec.data.store import EventStore
from event2vec.data.windows import LONGEST
from event2vec.errors import Event2VecError
from event2vec.evaluation.evaluate import Evaluation, evaluate
from event2vec.events import Events
from event2vec.model.classifier import Classifier
from event2vec.progress import SILENT, Progress

Kind = Literal["events", "resolution", "windows"]
NEARLY = 0.9  # of the accuracy with the longest window


@dataclass(frozen=True)
class Point:
    """One point of a sweep."""

    value: int | float  # events per recording, pixels per side, or seconds from the onset
    found: Evaluation
    events_read: int | None = None  # median over recordings, which may have fewer than asked for
    seconds_read: float | None = None  # the same for windows

    @property
    def available(self) -> int | float | None:
        """What most recordings have; None where that does not matter."""
        return self.seconds_read if self.events_read is None else self.events_read

    @property
    def falls_short(self) -> bool:
        """Whether most recordings have fewer events, or last less long, than this point asks for."""
        return self.available is not None and self.available < self.value

    def facts(self, kind: Kind) -> dict[str, Any]:
        """For CSV and JSON."""
        read: dict[str, Any] = {} if self.events_read is None else {"events_read": self.events_read}
        read |= {} if self.seconds_read is None else {"seconds_read": self.seconds_read}
        low, high = self.found.interval
        accuracy = {"accuracy": self.found.accuracy, "accuracy_std": self.found.accuracy_std}
        return {kind: self.value, **accuracy, "interval_low": low, "interval_high": high, **read}


def sweep(
    kind: Kind,
    model: Classifier,
    raw: EventStore,
    values: int | float | Sequence[int] | Sequence[float],
    repeats: int = 10,
    vote: int = 1,
    progress: Progress = SILENT,
) -> list[Point]:
    """The accuracy at each value; `raw` holds recordings with all their events."""
    measure: Callable[..., Point] = {"events": _with_events, "resolution": _with_pixels, "windows": _at_onset}[kind]
    values = several(values)
    for value in values:  # check all values first: a wrong one must not waste minutes
        if kind == "events":
            _reading(model, int(value))
        if kind == "resolution" and value < 1:
            raise Event2VecError(f"resolution must be at least 1 pixel per side, got {value:g}")
        if kind == "windows" and not 1e-6 <= value <= LONGEST:
            raise Event2VecError(f"windows must be 0.000001 to {LONGEST:g} seconds, got {value:g}")
    points = []
    with progress.stage(f"sweep over {kind}", len(values)):
        for number, value in enumerate(values):
            points.append(measure(model, raw, value, repeats, vote, progress))
            progress.advance(number + 1)
    return points


def _with_events(model: Classifier, raw: EventStore, count: int, repeats: int, vote: int, progress: Progress) -> Point:
    """Accuracy with this number of events per recording (Figure 3), and the median number actually read."""
    found = evaluate(_reading(model, count), raw, repeats, vote, progress=progress)
    return Point(count, found, int(np.median(np.minimum(raw.lengths, count))))


def _with_pixels(model: Classifier, raw: EventStore, side: int, repeats: int, vote: int, progress: Progress) -> Point:
    """Accuracy with this number of pixels per side of the sensor (Figure 4), of events or of frames."""
    with_frames = model.at_resolution(side)
    if with_frames is not None:
        return Point(side, evaluate(with_frames, raw, repeats, vote, progress=progress))
    coarser = partial(lower_resolution, side=side)
    return Point(side, evaluate(model, raw, repeats, vote, progress=progress, change=coarser))


def _at_onset(model: Classifier, raw: EventStore, seconds: float, repeats: int, vote: int, progress: Progress) -> Point:
    """Accuracy when the network has seen the first seconds of each recording and no more."""
    start = partial(first_seconds, seconds=seconds)
    usual = float(np.median(raw.durations)) / 1e6
    found = evaluate(model, raw, repeats, vote, progress=progress, change=start)
    return Point(seconds, found, seconds_read=min(usual, seconds))


def first_seconds(events: Events, seconds: float) -> Events:
    """What came in the first seconds of a recording, from its onset."""
    return events.between(0, round(seconds * 1e6))


def onset_delay(points: Sequence[Point]) -> float | None:
    """The shortest window with 90 % of the accuracy of the longest: how soon after the onset answers are right."""
    longest = max(points, key=lambda point: point.value)
    wanted = NEARLY * longest.found.accuracy - 1e-12  # 0.9 of 80 % is a little above 72 % where it is rounded
    enough = [point.value for point in points if point.found.accuracy >= wanted]
    return min(enough) if longest.found.accuracy > 0 else None


def lower_resolution(events: Events, side: int) -> Events:
    """Events at the resolution of a side x side sensor, in the coordinates of their own sensor.

    Scaled down and rounded, scaled back and rounded again (Sec. 4.2): each event moves to the middle of its coarse
    pixel. With side 1, all share one position. A side of the sensor with no more pixels than that stays as it is.
    """

    def place(column: Tensor, pixels: int) -> Tensor:
        coarse = scale_to(column.double(), pixels, side)
        return column if side >= pixels else scale_to(coarse, side, pixels).to(column.dtype)

    return replace(events, x=place(events.x, events.sensor.width), y=place(events.y, events.sensor.height))


def scale_to(column: Tensor, pixels: int, others: int) -> Tensor:
    """Positions on `pixels` pixels as the nearest of `others` pixels that cover the same width.

    A position halfway between two goes to the one nearer the middle of the sensor, so that a mirrored recording stays
    mirrored; always rounding right, or to even, would move all events by half a pixel.
    """
    place = (column + 0.5) * others / pixels - 0.5
    return torch.where(place > (others - 1) / 2, (place - 0.5).ceil(), (place + 0.5).floor())


def _reading(model: Classifier, count: int) -> Classifier:
    """The same network, reading another number of events per recording."""
    other = copy.copy(model)
    try:
        other.sampling = replace(model.sampling, length=count)
    except ValueError as error:
        raise Event2VecError(str(error)) from None
    return other
