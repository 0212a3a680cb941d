"""Uniform random sampling: `length` events of a recording, picked at random (Sec. 3.4)."""

import torch
from jaxtyping import Int64
from torch import Tensor

from event2vec.events import Events

SPARSE = 4  # below one in four, drawing until enough numbers are distinct is faster than shuffling all


def sample_uniform(events: Events, length: int, generator: torch.Generator) -> Events:
    """Keep `length` events picked at random, in time order (Sec. 3.4).

        few = sample_uniform(events, 1024, torch.Generator().manual_seed(0))

    A recording that is already short enough is returned unchanged.
    """
    if len(events) <= length:
        return events
    return events.select(draw_positions(len(events), length, generator))


def draw_positions(count: int, length: int, generator: torch.Generator) -> Int64[Tensor, " length"]:
    """Pick `length` of `count` positions, every subset equally likely, in ascending order.

    If `length` is small, the cost depends on it alone, so long recordings are no slower to sample.
    """
    if not 0 <= length <= count:
        raise ValueError(f"cannot draw {length} different positions from {count}")
    device = generator.device
    if length * SPARSE > count:
        return torch.randperm(count, generator=generator, device=device)[:length].sort().values
    # Only missing positions are drawn, so there are never more than `length`; every step treats all positions alike, so
    # every subset is equally likely.
    positions = torch.empty(0, dtype=torch.int64, device=device)
    while len(positions) < length:
        more = torch.randint(count, (length - len(positions),), generator=generator, device=device)
        positions = torch.unique(torch.cat([positions, more]), sorted=True)
    return positions
