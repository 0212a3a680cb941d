"""What an engine must do: the phases of Alg. 1 over a cloud of points with weights."""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

AT_ONCE = 5  # one of so many centres may go in a round of pruning


class Cloud(ABC):
    """Points of the unit cube with weights."""

    weights: Float[Tensor, " n"]

    @abstractmethod
    def __init__(self, points: Float[Tensor, "n 3"], weights: Float[Tensor, " n"]) -> None: ...

    def __len__(self) -> int:
        return len(self.weights)

    @abstractmethod
    def seed(self, count: int, batch: int, generator: torch.Generator) -> Float[Tensor, "k 3"]:
        """Phase 1: the first centre drawn by weight, then batches drawn by weight and squared distance.

        Fewer than `count` where every point has a centre on it already.
        """

    @abstractmethod
    def prune(self, centres: Float[Tensor, "many 3"], share: int) -> Float[Tensor, "k 3"]:
        """Drop the centres whose loss costs least, which hands their points to the second nearest.

        Of two neighbours only the cheaper may go in one round: each was cheap because of the other.
        """

    @abstractmethod
    def iterate(
        self, centres: Float[Tensor, "k 3"], iterations: int, tolerance: float
    ) -> tuple[Float[Tensor, "k 3"], Float[Tensor, " k"]]:
        """Phase 2, Lloyd's iteration: centres, and the weight of the points that they are the means of.

        A centre without points stays where it is.
        """

    def coarser(self, size: int) -> "Cloud":
        """The same cloud with groups of `size` neighbours as one heavy point, if the engine knows them."""
        return self
