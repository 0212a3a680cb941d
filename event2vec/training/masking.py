"""Which events to hide in pre-training: spans, so that a hidden event is no mean of its neighbours (App. A.5)."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class SpanMask:
    """Each event starts a span with probability share / length; the span's length is geometric, cut at `longest`."""

    share: float = 0.3
    """Share of events aimed at. Overlap and cutting leave somewhat fewer: `expected_share`."""
    length: int = 10
    """Mean length of a span before it is cut."""
    longest: int = 20
    """Where spans are cut."""

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"mask.share must be between 0 and 1, got {self.share}")
        if not self.length >= 1 or not self.longest >= 1:
            raise ValueError(f"mask.length and mask.longest must be at least 1, got {self.length} and {self.longest}")

    @property
    def expected_share(self) -> float:
        """An event is seen if none of the `longest` events up to it starts a span that reaches it.

        A span reaches d events on with probability (1 - 1 / length)^d.
        """
        start, goes_on = self.share / self.length, 1 - 1 / self.length
        seen = 1.0
        for distance in range(self.longest):
            seen *= 1 - start * goes_on**distance
        return 1 - seen

    def draw(self, valid: Bool[Tensor, "batch length"], generator: torch.Generator) -> Bool[Tensor, "batch length"]:
        """Events to hide; never padding."""
        place = torch.arange(valid.shape[1], device=valid.device)
        starts = torch.rand(valid.shape, generator=generator, device=valid.device) < self.share / self.length
        lengths = torch.ones(valid.shape, device=valid.device)
        if self.length > 1:  # torch's geometric counts the success too: it is the number of failures, plus 1
            lengths.geometric_(1 / self.length, generator=generator)
        lengths = lengths.clamp(max=self.longest).long()
        reach = torch.where(starts, place + lengths, 0).cummax(dim=1).values if valid.shape[1] else valid.long()
        return (place < reach) & valid
