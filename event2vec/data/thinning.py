"""Other ways to keep a number of events of a recording: by time, by place, or by density (Figure 3).

The strategies of Araghi et al. (2025), made to keep a given number of events. All draws come from the generator.
"""

import math

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from event2vec.events import Events
from event2vec.mersenne import Generator, Mersenne

PERIODS = 10  # of a recording, of each of which the first part is kept
REACH = 3  # pixels to each side whose events count in the density
SIGMA = 7 / 5  # pixels
TAU = 30_000.0  # microseconds in which the density of an event falls to 1 / e


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
    """The weight of each event and of those before it within 3 pixels: less with distance and with age."""
    width, height, count = events.sensor.width, events.sensor.height, len(events)
    x, y, t = events.x.round().long(), events.y.round().long(), events.t.double()
    plane = events.p.long() * (width * height)
    place = torch.arange(count, device=t.device)
    key = (plane + y * width + x) * count + place  # by pixel, then by time
    order = key.argsort()
    sorted_key, sorted_t = key[order], t[order]
    trace = _traces(sorted_key // count, sorted_t)
    span = range(-REACH, REACH + 1)
    total = sum(math.exp(-(a * a + b * b) / (2 * SIGMA**2)) for a in span for b in span)
    density = torch.zeros(count, dtype=torch.float64, device=t.device)
    for across in span:
        for down in span:
            beside_x, beside_y = x + across, y + down
            inside = (beside_x >= 0) & (beside_x < width) & (beside_y >= 0) & (beside_y < height)
            pixel = plane + beside_y * width + beside_x
            latest = (torch.searchsorted(sorted_key, pixel * count + place, right=True) - 1).clamp(min=0)
            seen = inside & (sorted_key[latest] // count == pixel) & (sorted_t[latest] <= t)
            weight = math.exp(-(across**2 + down**2) / (2 * SIGMA**2)) / total
            density += weight * seen * trace[latest] * torch.exp((sorted_t[latest] - t).clamp(max=0) / TAU)
    return density


def _traces(pixel: Int64[Tensor, " n"], t: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """What each pixel holds at each of its events: 1, and what it held before, less with the time that has passed."""
    trace = torch.ones_like(t)
    place = torch.arange(len(t), device=t.device)
    first = torch.ones_like(pixel, dtype=torch.bool)
    first[1:] = pixel[1:] != pixel[:-1]
    rank = place - torch.where(first, place, 0).cummax(dim=0).values
    for number in range(1, int(rank.max()) + 1 if len(rank) else 0):
        now = (rank == number).nonzero()[:, 0]
        trace[now] += trace[now - 1] * torch.exp((t[now - 1] - t[now]) / TAU)
    return trace


METHODS = {"temporal": thin_in_time, "spatial": thin_in_space, "density": thin_by_density}
