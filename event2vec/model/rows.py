"""The rows of a batch: where they end, how they are reversed, and how what is at their positions is rotated.

Events are valid on a prefix of each row and reversing leaves padding at the end, so no event ever sees padding and
attention needs no mask.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from event2vec.model.rotation import rotate, rotate_back


def reversal(valid: Bool[Tensor, "batch length"]) -> Int64[Tensor, " places"]:
    """How to reverse each row: for each place of the batch laid end to end, the place to take from.

    Padding stays at the end. Reversing twice restores the row.
    """
    batch, length = valid.shape
    place = torch.arange(length, device=valid.device)
    count = valid.sum(dim=1, keepdim=True)
    turned = torch.where(place < count, count - 1 - place, place)
    return (turned + length * torch.arange(batch, device=valid.device)[:, None]).flatten()


class Rows:
    """Where the rows of a batch end, how to reverse them, and how to rotate what is at their positions, if at all."""

    def __init__(
        self, valid: Bool[Tensor, "batch length"], rotation: Float[Tensor, "batch length 2 pairs"] | None = None
    ) -> None:
        self.valid = valid
        self.rotation = rotation
        self.counts = valid.sum(dim=1)
        self._turn: Tensor | None = None

    @property
    def turn(self) -> Int64[Tensor, " places"]:
        """What `reverse` needs, made when it is first asked for: compiled attention does without."""
        if self._turn is None:  # torch.compile takes no cached_property
            self._turn = reversal(self.valid)
        return self._turn

    def reversed(self) -> "Rows":
        """The same rows as the second direction reads them."""
        return Rows(self.valid, None if self.rotation is None else reverse(self.rotation, self.turn))

    def rotate(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values for relative attention; as they are without it."""
        return parts if self.rotation is None else tuple(rotate(part, self.rotation) for part in parts)

    def rotate_back(
        self, seen: Float[Tensor, "batch length *heads width"]
    ) -> Float[Tensor, "batch length *heads width"]:
        """What relative attention gave, as each event sees it from itself."""
        return seen if self.rotation is None else rotate_back(seen, self.rotation)


def reverse(
    rows: Float[Tensor, "batch length *rest"], turn: Int64[Tensor, " places"]
) -> Float[Tensor, "batch length *rest"]:
    """Reverse each row, as `reversal` says."""
    return _Reverse.apply(rows, turn)  # type: ignore[no-untyped-call]


class _Reverse(torch.autograd.Function):
    """Its own gradient: torch would add row by row where a second turn is a copy."""

    @staticmethod
    def forward(rows: Tensor, turn: Tensor) -> Tensor:
        return rows.flatten(0, 1).index_select(0, turn).view(rows.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return reverse(gradients[0], ctx.saved_tensors[0]), None
