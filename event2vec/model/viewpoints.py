"""Viewpoints: tokens at places where nothing may have happened, which see what is around them (ours, not the paper's).

Events are where edges are. A hole in a shape, or a gap between two strokes, has none, so no token lies where it could
be seen whole. Viewpoints are spread evenly over the sensor and the recording (Halton's sequence), in training shifted
as a whole for each recording. They stand for no events: rho is 0, and they do not count in neighbourhoods.
"""

from functools import cache

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int64
from torch import Tensor

from event2vec.events import COLUMNS, EventBatch

BASES = (2, 3, 5, 7)  # of Halton's sequence, for x, y, t and p


@cache
def spread_evenly(count: int) -> tuple[tuple[float, ...], ...]:
    """Points from 0 to 1 in x, y, t and p, of which any number from the first on lies evenly."""
    return tuple(tuple(_mirrored(number, base) for base in BASES) for number in range(1, count + 1))


def _mirrored(number: int, base: int) -> float:
    """The digits of a number in this base, mirrored at the point."""
    value, share = 0.0, 1.0
    while number:
        share /= base
        value += share * (number % base)
        number //= base
    return value


def with_viewpoints(batch: EventBatch, count: int, generator: torch.Generator | None = None) -> EventBatch:
    """A batch with viewpoints behind the padding of each row, so that `valid` is no prefix: for `among_tokens`.

    Those of a row without events are padding too. A generator, which training passes, shifts them.
    """
    rows, device = batch.x.shape[0], batch.x.device
    unit = torch.tensor(spread_evenly(count), device=device).view(count, len(BASES)).expand(rows, -1, -1)
    if generator is not None:
        unit = (unit + torch.rand(rows, 1, len(BASES), generator=generator, device=device)) % 1
    x, y, t, p = unit.unbind(-1)
    first = F.pad(batch.t, (0, 1))[:, :1]  # rows may have no place at all
    duration = F.pad((batch.t - first) * batch.valid, (0, 1)).amax(dim=1, keepdim=True)
    columns = {
        "x": (x * (batch.sensor.width - 1)).round(),  # on whole pixels, as events are, for tables of them
        "y": (y * (batch.sensor.height - 1)).round(),
        "t": first + (t * duration).long(),
        "p": p < 0.5,
        "rho": torch.zeros_like(x),
    }
    valid = batch.valid.any(dim=1, keepdim=True).expand(-1, count)
    joined = {name: torch.cat([getattr(batch, name), columns[name]], dim=1) for name in COLUMNS}
    return EventBatch(**joined, valid=torch.cat([batch.valid, valid], dim=1), sensor=batch.sensor)


def among_tokens(
    batch: EventBatch, count: int, places: Int64[Tensor, "batch tokens"], valid: Bool[Tensor, "batch tokens"]
) -> tuple[Int64[Tensor, "batch more"], Bool[Tensor, "batch more"]]:
    """The places of tokens and of a batch's last `count`, its viewpoints, by time; padding last.

    Each is put where it belongs by counting what comes before it. A sort would do, but not every program that runs
    exported networks keeps events of the same microsecond in order.
    """
    rows, length = batch.t.shape
    views = torch.arange(length - count, length, device=places.device)
    of_token, of_view = batch.t.gather(1, places)[:, None, :], batch.t[:, length - count :, None]
    sooner = (of_token <= of_view) & valid[:, None, :]  # each token, seen from each viewpoint
    number, order = torch.arange(places.shape[1], device=places.device), torch.arange(count, device=places.device)
    other = of_view.mT
    first = (other < of_view) | ((other == of_view) & (order < order[:, None]))  # viewpoints before each viewpoint
    rank_of_token = number + torch.where(valid, count - sooner.sum(dim=1), count)
    rank = torch.cat([rank_of_token, sooner.sum(dim=2) + first.sum(dim=2)], dim=1)
    places = torch.cat([places, views.expand(rows, -1)], dim=1)
    total = valid.sum(dim=1, keepdim=True) + batch.valid[:, length - count :].sum(dim=1, keepdim=True)
    in_order = torch.zeros_like(places).scatter(1, rank, places)
    return in_order, torch.arange(places.shape[1], device=places.device) < total
