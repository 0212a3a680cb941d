"""From tokens to a prediction: a class, or the position and polarity of hidden events (Eq. 11)."""

from itertools import pairwise

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from event2vec.model.norm import LayerNorm


class ClassHead(nn.Module):
    """The mean over valid tokens, then a linear layer. A row without events gets the layer's biases."""

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, classes)

    def forward(
        self, tokens: Float[Tensor, "batch length dim"], valid: Bool[Tensor, "batch length"]
    ) -> Float[Tensor, "batch classes"]:
        return self.linear(mean_over_valid(tokens, valid))


def mean_over_valid(
    tokens: Float[Tensor, "batch length dim"], valid: Bool[Tensor, "batch length"]
) -> Float[Tensor, "batch dim"]:
    """One vector per row; zeros for a row without events."""
    share = valid / valid.sum(dim=1, keepdim=True).clamp(min=1)
    return (share[:, None].to(tokens.dtype) @ tokens).squeeze(1)


class EventDecoder(nn.Module):
    """The spatial embedding in reverse: D > D/2 > D/4 > 3, then tanh, to x, y and p in [-1, 1] (App. A.5)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        widths = (dim, dim // 2, dim // 4, 3)
        self.layers = nn.ModuleList(nn.Linear(width, narrower, bias=False) for width, narrower in pairwise(widths))
        self.norms = nn.ModuleList(LayerNorm(width, relu=True) for width in widths[1:3])

    def forward(self, where: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows 3"]:
        where = self.norms[0](self.layers[0](where))
        where = self.norms[1](self.layers[1](where))
        return F.tanh(self.layers[2](where))
