"""Transformer blocks, stages and pooling between them (Sec. 3.6)."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from event2vec.model.attention import Bidirectional, build_attention, reversal
from event2vec.model.config import ModelConfig


class Block(nn.Module):
    """x = LN(x + attention(x)), then x = LN(x + FFN(x))."""

    def __init__(self, attention: Bidirectional, dim: int, hidden: int, drop_path: float) -> None:
        super().__init__()
        self.attention = attention
        self.widen = nn.Linear(dim, hidden, bias=False)
        self.narrow = nn.Linear(hidden, dim, bias=False)
        self.attention_norm = nn.LayerNorm(dim)
        self.feed_norm = nn.LayerNorm(dim)
        self.drop_path = drop_path

    def forward(
        self,
        tokens: Float[Tensor, "batch length dim"],
        turn: Int64[Tensor, " places"],
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "batch length dim"]:
        seen = drop_branch(self.attention(tokens, turn), self.drop_path, generator)
        tokens = self.attention_norm(tokens + seen)
        thought = drop_branch(self.narrow(F.relu(self.widen(tokens))), self.drop_path, generator)
        return self.feed_norm(tokens + thought)


def drop_branch(
    branch: Float[Tensor, "batch length dim"], share: float, generator: torch.Generator | None
) -> Float[Tensor, "batch length dim"]:
    """Drop path: leave a branch out for a share of the recordings, and strengthen the rest to make up for it.

    Without a generator nothing is drawn and nothing is left out.
    """
    if generator is None or share == 0:
        return branch
    stays = torch.rand(len(branch), 1, 1, generator=generator, device=branch.device) >= share
    return branch * (stays / (1 - share)).to(branch.dtype)


class Stage(nn.Module):
    """Blocks at one length, ended by a LayerNorm."""

    def __init__(self, blocks: list[Block], dim: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(dim)

    def forward(
        self,
        tokens: Float[Tensor, "batch length dim"],
        valid: Bool[Tensor, "batch length"],
        generator: torch.Generator | None,
    ) -> Float[Tensor, "batch length dim"]:
        turn = reversal(valid)
        for block in self.blocks:
            tokens = block(tokens, turn, generator)
        return self.norm(tokens)


class Backbone(nn.Module):
    """All blocks, as one stage; or with pooling each as a stage of its own, after which the length is halved."""

    def __init__(self, blocks: list[Block], dim: int, pooling: bool) -> None:
        super().__init__()
        self.pooling = pooling
        self.stages = nn.ModuleList(
            Stage(part, dim) for part in ([[block] for block in blocks] if pooling else [blocks])
        )

    def forward(
        self,
        tokens: Float[Tensor, "batch length dim"],
        valid: Bool[Tensor, "batch length"],
        generator: torch.Generator | None = None,
    ) -> tuple[Float[Tensor, "batch shorter dim"], Bool[Tensor, "batch shorter"]]:
        """Tokens after the last block, and which of them are valid. A generator turns drop path on."""
        for stage in self.stages:
            tokens = stage(tokens, valid, generator)
            if self.pooling:
                tokens, valid = pool_pairs(tokens, valid)
        return tokens, valid

    def after_each_block(
        self, tokens: Float[Tensor, "batch length dim"], valid: Bool[Tensor, "batch length"], count: int
    ) -> list[tuple[Tensor, Tensor]]:
        """Tokens and `valid` before the first block and after each of the first `count`, for those who look inside.

        The norm that ends a stage counts only where a stage ends.
        """
        found = [(tokens, valid)]
        for stage in self.stages:
            turn = reversal(valid)
            assert isinstance(stage, Stage)
            blocks = list(stage.blocks)
            for number, block in enumerate(blocks):
                if len(found) > count:
                    return found
                tokens = block(tokens, turn, None)
                last = number == len(blocks) - 1
                tokens = stage.norm(tokens) if last else tokens
                if last and self.pooling:
                    tokens, valid = pool_pairs(tokens, valid)
                found.append((tokens, valid))
        return found


def pool_pairs(
    tokens: Float[Tensor, "batch length dim"], valid: Bool[Tensor, "batch length"]
) -> tuple[Float[Tensor, "batch half dim"], Bool[Tensor, "batch half"]]:
    """Average neighbours two by two, over valid tokens: the last one of an odd row stays as it is."""
    odd = tokens.shape[1] % 2  # padded without a branch, which would be compiled once for each answer
    tokens, valid = F.pad(tokens, (0, 0, 0, odd)), F.pad(valid, (0, odd))
    pairs, real = tokens.unflatten(1, (-1, 2)), valid.unflatten(1, (-1, 2))
    weight = (real / real.sum(dim=2, keepdim=True).clamp(min=1)).to(tokens.dtype)[..., None]
    return (pairs * weight).sum(dim=2), real[:, :, 0]


def build_backbone(config: ModelConfig) -> Backbone:
    deepest = max(config.blocks - 1, 1)
    blocks = [
        Block(build_attention(config), config.dim, config.hidden, config.drop_path * depth / deepest)
        for depth in range(config.blocks)
    ]
    return Backbone(blocks, config.dim, config.pooling)
