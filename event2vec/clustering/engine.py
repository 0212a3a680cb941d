"""What an engine must do: the phases of Alg. 1 over a cloud of points with weights."""

from abc import ABC, abstractmethod
from typing import Any

from jaxtyping import Float

from event2vec.mersenne import Generator

AT_ONCE = 5  # a round of pruning drops at most one centre in five


class Cloud(ABC):
    """Points of the unit cube with weights: as arrays in compiled code, as tensors on a device."""

    weights: Float[Any, " n"]

    @abstractmethod
    def __init__(self, points: Float[Any, "n 3"], weights: Float[Any, " n"]) -> None: ...

    def __len__(self) -> int:
        return len(self.weights)

    @abstractmethod
    def seed(self, count: int, batch: int, generator: Generator) -> Float[Any, "k 3"]:
        """Phase 1: the first centre drawn by weight, then batches drawn by weight and squared distance.

        There are fewer than `count` if every point already coincides with a centre.
        """

    @abstractmethod
    def prune(self, centres: Float[Any, "many 3"], share: int) -> Float[Any, "k 3"]:
        """Drop the centres that cost least to lose; their points go to the second-nearest centre.

        A round drops only the cheaper of two neighbours: each is cheap because of the other.
        """

    @abstractmethod
    def iterate(
        self, centres: Float[Any, "k 3"], iterations: int, tolerance: float
    ) -> tuple[Float[Any, "k 3"], Float[Any, " k"]]:
        """Phase 2, Lloyd's iteration: the centres, and the total weight of the points of each.

        A centre without points stays where it is.
        """

    def choose(self, seeds: int, share: int, batch: int, generator: Generator) -> Float[Any, "k 3"]:
        """More seeds than needed; each moves to the mean of its points, and the `share` best are kept."""
        centres = self.seed(seeds, batch, generator)
        return self.prune(self.iterate(centres, 1, 0.0)[0], share) if len(centres) > share else centres

    def coarser(self, size: int) -> "Cloud":
        """The same cloud with groups of `size` neighbours as single weighted points, if the engine supports that."""
        return self
