"""Bring a recording to at most L events: `Sampling` says how, uniform random sampling is the first way (Sec. 3.4).

The second, clustering, has a file of its own.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Int64
from torch import Tensor

from event2vec.clustering import Seeding, cluster_events
from event2vec.events import Events

SPARSE = 4  # below one in four, drawing numbers until enough differ beats shuffling them all


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a recording of any length becomes the tokens that a network reads (Sec. 3.4)."""

    method: Literal["random", "clusters"] = "random"
    """random: a draw of the events, another one each time. clusters: centres that stand for all events (Alg. 1)."""
    length: int = 1024
    """Events that a network reads of each recording, L in the paper; shorter recordings stay as they are."""
    seeding: Seeding = "pruned"
    """How cluster centres are seeded. pruned: spare seeds, the best are kept. plain: Alg. 1 to the letter."""

    def __post_init__(self) -> None:
        if self.method not in ("random", "clusters"):
            raise ValueError(f"sampling.method must be random or clusters, got {self.method!r}")
        if self.seeding not in get_args(Seeding):
            raise ValueError(f"sampling.seeding must be {' or '.join(get_args(Seeding))}, got {self.seeding!r}")
        least = 2 if self.method == "clusters" else 1
        if self.length < least:
            raise ValueError(f"sampling.length must be at least {least}, got {self.length}")

    @property
    def repeatable(self) -> bool:
        """Whether the same recording always gives the same tokens."""
        return self.method == "clusters"

    def shorten(self, events: Events, generator: torch.Generator) -> Events:
        """At most `length` events of a recording. Clusters need no draw and take none from the generator."""
        if self.method == "clusters":
            return cluster_events(events, self.length, seeding=self.seeding)
        return sample_uniform(events, self.length, generator)


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
