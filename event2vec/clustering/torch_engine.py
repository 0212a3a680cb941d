"""The phases of Alg. 1 in torch, for accelerators; `compiled_engine.py` has them for a CPU."""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from event2vec.clustering.engine import AT_ONCE, Cloud
from event2vec.mersenne import Generator

DISTANCES = 1 << 24  # computed at a time
EXACT = "donot_use_mm_for_euclid_dist"  # a matrix product would lose precision: small differences of large numbers


class TorchCloud(Cloud):
    """All distances, computed a block of rows at a time."""

    def __init__(self, points: Float[Tensor, "n 3"], weights: Float[Tensor, " n"]) -> None:
        self.points, self.weights = points, weights

    def seed(self, count: int, batch: int, generator: Generator) -> Float[Tensor, "k 3"]:
        assert isinstance(generator, torch.Generator)  # `cluster_with` sees to it
        centres = self.points[draw_distinct(self.weights, 1, generator)]
        distance = self._distances(centres)
        while len(centres) < count:
            drawn = draw_distinct(self.weights * distance, min(batch, count - len(centres)), generator)
            if len(drawn) == 0:
                break
            distance = torch.minimum(distance, self._distances(self.points[drawn]))
            centres = torch.cat([centres, self.points[drawn]])
        return centres

    def prune(self, centres: Float[Tensor, "many 3"], share: int) -> Float[Tensor, "k 3"]:
        while (spare := len(centres) - share) > 0:
            found = [distances.topk(2, largest=False) for distances in _in_parts(self.points, centres)]
            near = torch.cat([part.indices[:, 0] for part in found])
            loss = torch.cat([part.values.square().diff(dim=1)[:, 0] for part in found])
            cost = torch.zeros_like(centres[:, 0]).index_add_(0, near, self.weights * loss)
            rank = cost.argsort(stable=True).argsort()
            rank[rank > rank[_neighbours(centres)]] += len(centres)
            most = int((rank < len(centres)).sum())
            going = rank.argsort()[: min(spare, max(len(centres) // AT_ONCE, 1), most)]
            centres = centres[torch.ones_like(rank, dtype=torch.bool).index_fill_(0, going, False)]
        return centres

    def iterate(
        self, centres: Float[Tensor, "k 3"], iterations: int, tolerance: float
    ) -> tuple[Float[Tensor, "k 3"], Float[Tensor, " k"]]:
        counts = torch.zeros_like(centres[:, 0])
        for _ in range(iterations):
            found = torch.cat([distances.argmin(1) for distances in _in_parts(self.points, centres)])
            counts = torch.zeros_like(counts).index_add_(0, found, self.weights)
            sums = torch.zeros_like(centres).index_add_(0, found, self.weights[:, None] * self.points)
            moved = torch.where(counts[:, None] > 0, sums / counts[:, None], centres)
            step = (moved - centres).square().sum(1).max().sqrt()
            centres = moved
            if step < tolerance:
                break
        return centres, counts

    def _distances(self, centres: Tensor) -> Float[Tensor, " n"]:
        """The squared distance of each point to its nearest centre."""
        return torch.cat([distances.min(1).values for distances in _in_parts(self.points, centres)]) ** 2


def _in_parts(points: Tensor, centres: Tensor) -> Iterator[Tensor]:
    for part in torch.split(points, max(DISTANCES // len(centres), 1)):
        yield torch.cdist(part, centres, compute_mode=EXACT)


def _neighbours(centres: Float[Tensor, "k 3"]) -> Int64[Tensor, " k"]:
    """The nearest other centre of each; the second-nearest may be the centre itself if two coincide."""
    pairs = [distances.topk(2, largest=False).indices for distances in _in_parts(centres, centres)]
    nearest, second = torch.cat(pairs).unbind(1)
    return torch.where(nearest == torch.arange(len(centres), device=centres.device), second, nearest)


def draw_distinct(weights: Float[Tensor, " n"], count: int, generator: torch.Generator) -> Int64[Tensor, " drawn"]:
    """Draw positions without replacement, in proportion to their weights; fewer if too few weights are above 0.

    Each position waits for a time drawn from an exponential distribution with its weight as rate; the first `count` to
    arrive are drawn.
    """
    waits = torch.empty(len(weights), dtype=weights.dtype, device=generator.device).exponential_(generator=generator)
    first = (waits.to(weights.device) / weights).topk(min(count, len(weights)), largest=False)
    return first.indices[first.values.isfinite()]
