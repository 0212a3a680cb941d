"""The usual Transformer block, with norms before attention and before the feed-forward network."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class Block(nn.Module):
    """x += attention(norm x); x += feed-forward(norm x)."""

    def __init__(self, dim: int, heads: int, widening: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.project, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.hidden = nn.Sequential(nn.Linear(dim, widening * dim), nn.GELU(), nn.Linear(widening * dim, dim))

    def forward(self, tokens: Float[Tensor, "batch length dim"]) -> Float[Tensor, "batch length dim"]:
        q, k, v = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in self.project(self.norm1(tokens)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        tokens = tokens + self.out(mixed)
        return tokens + self.hidden(self.norm2(tokens))
