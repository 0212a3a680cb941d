"""LayerNorm of every part of the network, with what comes right before and after it."""

from collections.abc import Iterable

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from event2vec.model import compiled_rows


class LayerNorm(nn.LayerNorm):
    """LayerNorm of rows, or of rows and what is added to them; ReLU follows if `relu`. One pass where compiled."""

    def __init__(self, width: int, relu: bool = False) -> None:
        super().__init__(width)
        self.width, self.relu = width, relu

    def forward(
        self, rows: Float[Tensor, "*rows width"], added: Float[Tensor, "*rows width"] | None = None
    ) -> Float[Tensor, "*rows width"]:
        if compiled_rows.serves(rows, self.width, added, self.weight, self.bias) and self._fits(rows, added):
            return compiled_rows.layer_norm(rows, added, self.weight, self.bias, self.relu)
        normed = super().forward(rows if added is None else rows + added)
        return F.relu(normed) if self.relu else normed

    def _fits(self, rows: Tensor, added: Tensor | None) -> bool:
        """Whether compiled code, which broadcasts nothing and has one epsilon, can take this."""
        same = added is None or added.shape == rows.shape
        return same and rows.shape[-1] == self.width and self.eps == compiled_rows.EPSILON


def usual(norms: Iterable[LayerNorm]) -> bool:
    """Whether all norms have the one epsilon of compiled code."""
    return all(norm.eps == compiled_rows.EPSILON for norm in norms)
