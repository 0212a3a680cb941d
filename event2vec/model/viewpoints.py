"""Viewpoints: tokens at places where nothing may have happened, which see what is around them (ours, not the paper's).

Events are where edges are. A hole in a shape, or a gap between two strokes, has none, so no token lies where it could
be seen whole. Viewpoints are spread evenly over the sensor and the recording (Halton's sequence), in training shifted
as a whole for each recording. They stand for no events: rho is 0, and they do not count in neighbourhoods.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from event2vec.events import COLUMNS, EventBatch

BASES = (2, 3, 5)  # of Halton's sequence, for x, y and t


def spread_evenly(count: int) -> Float[Tensor, "count 3"]:
    """Points in the unit cube, of which any number from the first on lies evenly."""
    return torch.tensor([[_mirrored(number, base) for base in BASES] for number in range(1, count + 1)]).view(count, 3)


def _mirrored(number: int, base: int) -> float:
    """The digits of a number behind the point, in reverse."""
    value, share = 0.0, 1.0
    while number:
        share /= base
        value += share * (number % base)
        number //= base
    return value


def with_viewpoints(batch: EventBatch, count: int, generator: torch.Generator | None = None) -> EventBatch:
    """A batch with viewpoints behind the padding of each row; those of a row without events are padding too.

    Their polarities alternate. A generator, which training passes, shifts them.
    """
    unit = spread_evenly(count).to(batch.x.device).expand(batch.x.shape[0], -1, -1)
    if generator is not None:
        shift = torch.rand(batch.x.shape[0], 1, 3, generator=generator, device=batch.x.device)
        unit = (unit + shift) % 1
    x, y, t = unit.unbind(-1)
    first = F.pad(batch.t, (0, 1))[:, :1]  # rows may have no place at all
    duration = F.pad((batch.t - first) * batch.valid, (0, 1)).amax(dim=1, keepdim=True)
    columns = {
        "x": x * (batch.sensor.width - 1),
        "y": y * (batch.sensor.height - 1),
        "t": first + (t * duration).long(),
        "p": (torch.arange(count, device=batch.x.device) % 2 == 0).expand(t.shape),
        "rho": torch.zeros_like(x),
    }
    valid = batch.valid.any(dim=1, keepdim=True).expand(t.shape)
    joined = {name: torch.cat([getattr(batch, name), columns[name]], dim=1) for name in COLUMNS}
    return EventBatch(**joined, valid=torch.cat([batch.valid, valid], dim=1), sensor=batch.sensor)


def among_tokens(
    t: Int64[Tensor, "batch all"],
    count: int,
    places: Int64[Tensor, "batch tokens"],
    valid: Bool[Tensor, "batch tokens"],
    seen: Bool[Tensor, "batch all"],
) -> tuple[Int64[Tensor, "batch more"], Bool[Tensor, "batch more"]]:
    """The places of tokens, and of the last `count` of a batch, its viewpoints, in order of time; padding last."""
    rows, length = t.shape
    own = torch.arange(length - count, length, device=t.device).expand(rows, -1)
    places = torch.cat([places, own], dim=1)
    valid = torch.cat([valid, seen[:, length - count :]], dim=1)
    late = torch.iinfo(torch.int64).max
    order = torch.argsort(torch.where(valid, t.gather(1, places), late), dim=1, stable=True)
    return places.gather(1, order), valid.gather(1, order)
