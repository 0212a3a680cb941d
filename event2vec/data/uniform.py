"""Uniform random sampling: `length` events of a recording, picked at random (Sec. 3.4)."""

from typing import Any

import numpy as np
from jaxtyping import Int64

from event2vec.events import Events
from event2vec.mersenne import Generator, Mersenne

SPARSE = 4  # below one in four, drawing until enough numbers are distinct is faster than shuffling all


def sample_uniform(events: Events, length: int, generator: Generator) -> Events:
    """Keep `length` events picked at random, in time order (Sec. 3.4).

        few = sample_uniform(events, 1024, torch.Generator().manual_seed(0))

    A recording that is already short enough is returned unchanged.
    """
    if len(events) <= length:
        return events
    return events.select(draw_positions(len(events), length, generator))


def draw_positions(count: int, length: int, generator: Generator) -> Int64[Any, " length"]:
    """Pick `length` of `count` positions, every subset equally likely, in ascending order.

    If `length` is small, the cost depends on it alone, so long recordings are no slower to sample. A `Mersenne` gives
    an array of the positions that torch draws from the same seed.
    """
    if not 0 <= length <= count:
        raise ValueError(f"cannot draw {length} different positions from {count}")
    if isinstance(generator, Mersenne):
        return _draw_array(count, length, generator)
    import torch

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


def _draw_array(count: int, length: int, generator: Mersenne) -> Int64[Any, " length"]:
    """The same as above, step by step, in numpy."""
    if length * SPARSE > count:
        return np.sort(generator.shuffled(count, length))
    positions = np.empty(0, np.int64)
    while len(positions) < length:
        positions = np.union1d(positions, generator.integers(count, length - len(positions)))
    return positions
