"""Other ways to keep a number of events of a recording: by time, by place, or by density (Figure 3).

The strategies of Araghi et al. (2025), made to keep a given number of events. All draws come from the generator.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from event2vec.events import Events
from event2vec.mersenne import Generator, Mersenne

PERIODS = 10  # of a recording, of each of which the first part is kept
REACH = 3  # pixels to each side whose events count in the density
SIGMA = 7 / 5  # pixels
BELL = np.exp(-(np.arange(-REACH, REACH + 1) ** 2) / (2 * SIGMA**2))
BELL = BELL / BELL.sum()  # shares along one axis
TAU = 30_000.0  # microseconds in which the density of an event falls to 1 / e
CHUNK = 64  # events that are compared with each other


def thin_events(method: str, events: Events, length: int, generator: Generator) -> Events:
    """At most `length` events by one of `METHODS`; computed in torch, whatever the columns are."""
    if isinstance(generator, Mersenne):
        generator = generator.torch()
    return METHODS[method](events.torch(), length, generator).like(events)


def thin_in_time(events: Events, length: int, generator: torch.Generator) -> Events:
    """The first part of each of ten periods, as long as `length` events allow; where periods start is drawn."""
    if len(events) <= length:
        return events
    period = max(events.duration / PERIODS, 1.0)
    shift = torch.rand((), generator=generator, device=generator.device, dtype=torch.float64) * period
    phase = (events.t.double() + shift).remainder(period)
    return events.select(phase.argsort(stable=True)[:length].sort().values)


def thin_in_space(events: Events, length: int, generator: torch.Generator) -> Events:
    """Every h-th column and v-th row, with the smallest steps that leave at most `length` events.

    Where columns and rows start is drawn, so there may be fewer events than asked for.
    """
    if len(events) <= length:
        return events
    draw = torch.rand(2, generator=generator, device=generator.device)
    x, y = events.x.round().long(), events.y.round().long()
    width, height = events.sensor.width, events.sensor.height
    for number in range(2, 2 * max(width, height) + 1):
        across, down = min((number + 1) // 2, width), min(number // 2, height)
        start_x, start_y = int(draw[0] * across), int(draw[1] * down)
        kept = ((x % across == start_x) & (y % down == start_y)).nonzero()[:, 0]
        if 0 < len(kept) <= length:
            return events.select(kept)
    return thin_in_time(events, length, generator)  # one pixel has nearly all events


def thin_by_density(events: Events, length: int, generator: torch.Generator) -> Events:
    """`length` events drawn in proportion to the density of earlier events of their polarity around them."""
    if len(events) <= length:
        return events
    waiting = torch.empty(len(events), device=generator.device, dtype=torch.float64).exponential_(generator=generator)
    return events.select((waiting / causal_density(events)).argsort()[:length].sort().values)


def causal_density(events: Events) -> Float[Tensor, " n"]:
    """The weight of each event and of those before it within 3 pixels: less with distance and with age.

    What all earlier chunks left is held for each pixel, and brought up to date once a chunk; only within a chunk are
    pairs of events compared. Pixels have a margin, so that each has all its neighbours.
    """
    rows, stride = events.sensor.height + 2 * REACH, events.sensor.width + 2 * REACH
    x = events.x.round().long().numpy() + REACH
    row = events.y.round().long().numpy() + REACH + events.p.numpy() * rows  # polarities below each other
    t, pixel = events.t.numpy() / TAU, row * stride + x
    span = np.arange(-REACH, REACH + 1)
    beside = (span[:, None] * stride + span).ravel()
    held, density = np.zeros(2 * rows * stride), np.empty(len(t))
    for start in range(0, len(t), CHUNK):
        part, before = slice(start, start + CHUNK), t[max(start - 1, 0)]
        when, latest = t[part], t[part][-1]
        earlier = held[pixel[part][:, None] + beside] @ np.outer(BELL, BELL).ravel()
        density[part] = earlier * np.exp(before - when) + _density_within(x[part], row[part], when)
        held *= np.exp(before - latest)
        np.add.at(held, pixel[part], np.exp(when - latest))
    return torch.from_numpy(density)


def _density_within(x: NDArray[Any], row: NDArray[Any], t: NDArray[Any]) -> NDArray[Any]:
    """What events of one chunk give each other, and themselves."""
    across, down = x[:, None] - x + REACH, row[:, None] - row + REACH
    near = (across >= 0) & (across <= 2 * REACH) & (down >= 0) & (down <= 2 * REACH)
    later, earlier = np.tril(near).nonzero()
    weight = BELL[across[later, earlier]] * BELL[down[later, earlier]] * np.exp(t[earlier] - t[later])
    return np.bincount(later, weight, len(t))


METHODS = {"temporal": thin_in_time, "spatial": thin_in_space, "density": thin_by_density}
