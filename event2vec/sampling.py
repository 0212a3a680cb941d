"""Uniform random sampling: the paper's first way to bring a recording to L events (Sec. 3.4)."""

import torch
from jaxtyping import Int64
from torch import Tensor

from event2vec.events import Events

SPARSE = 4  # below one in four, drawing numbers until enough differ beats shuffling them all


def sample_uniform(events: Events, length: int, generator: torch.Generator) -> Events:
    """Keep `length` events picked at random, in time order (Sec. 3.4).

    A recording that is short enough already comes back unchanged.
    """
    if len(events) <= length:
        return events
    return events.select(draw_positions(len(events), length, generator))


def draw_positions(count: int, length: int, generator: torch.Generator) -> Int64[Tensor, " length"]:
    """Pick `length` of `count` positions, every set of them equally likely, in ascending order.

    The cost depends on `length` alone when that is small, so a long recording is no slower to sample.
    """
    if not 0 <= length <= count:
        raise ValueError(f"cannot draw {length} different positions from {count}")
    device = generator.device
    if length * SPARSE > count:
        return torch.randperm(count, generator=generator, device=device)[:length].sort().values
    # Only what is missing is drawn, so the set never grows past `length`; no position is treated
    # differently from another at any step, so every set is equally likely.
    positions = torch.empty(0, dtype=torch.int64, device=device)
    while len(positions) < length:
        more = torch.randint(count, (length - len(positions),), generator=generator, device=device)
        positions = torch.unique(torch.cat([positions, more]), sorted=True)
    return positions
