"""Transformer blocks, stages and pooling between them (Sec. 3.6)."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from event2vec.model import compiled_block
from event2vec.model.attention import Bidirectional, ForgettingDirection, build_attention
from event2vec.model.compiled_block import Weights, is_watched
from event2vec.model.config import ModelConfig
from event2vec.model.norm import LayerNorm, usual
from event2vec.model.relative import Rotations, build_rotations
from event2vec.model.rows import Rows

Positions = Float[Tensor, "batch length 3"] | None  # None without relative attention


class Block(nn.Module):
    """x = LN(x + attention(x)), then x = LN(x + FFN(x))."""

    def __init__(self, attention: Bidirectional, dim: int, hidden: int, drop_path: float) -> None:
        super().__init__()
        self.attention = attention
        self.widen = nn.Linear(dim, hidden, bias=False)
        self.narrow = nn.Linear(hidden, dim, bias=False)
        self.attention_norm = LayerNorm(dim)
        self.feed_norm = LayerNorm(dim)
        self.drop_path = drop_path

    def forward(
        self,
        tokens: Float[Tensor, "batch length dim"],
        rows: Rows,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "batch length dim"]:
        if generator is None and (answer := self._think_at_once(tokens, rows)) is not None:
            return answer
        seen = drop_branch(self.attention(tokens, rows), self.drop_path, generator)
        tokens = self.attention_norm(tokens, seen)
        thought = drop_branch(self.narrow(F.relu(self.widen(tokens), inplace=True)), self.drop_path, generator)
        return self.feed_norm(tokens, thought)

    def _think_at_once(self, tokens: Float[Tensor, "batch length dim"], rows: Rows) -> Tensor | None:
        """By one call of compiled code; None where it cannot, and where parts were replaced or are watched."""
        if torch.is_grad_enabled() or is_watched() or not self._is_as_built():
            return None
        (direction,), norms = self.attention.directions, (self.attention_norm, self.feed_norm)
        assert isinstance(direction, ForgettingDirection)
        after_attention, after_feed = ((norm.weight, norm.bias) for norm in norms)
        feed = self.widen.weight, self.narrow.weight
        weights = Weights(*direction.weights(), self.attention.output.weight, *after_attention, *feed, *after_feed)
        if not compiled_block.serves(tokens, rows, weights, direction.width) or not usual(norms):
            return None
        return compiled_block.think(tokens, rows, weights, direction.width)

    def _is_as_built(self) -> bool:
        """Whether all parts are of the classes that compiled code knows, and nothing is hooked into them."""
        if type(self.attention) is not Bidirectional:
            return False
        direction, *others = self.attention.directions
        if others or type(direction) is not ForgettingDirection:
            return False
        linears = direction.project_all, self.attention.output, self.widen, self.narrow
        norms = self.attention_norm, self.feed_norm
        return (
            all(type(part) is nn.Linear and part.bias is None for part in linears)
            and all(type(part) is LayerNorm for part in norms)
            and not any(
                part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part)
                for part in (self.attention, direction, *linears, *norms)
            )
        )


def drop_branch(
    branch: Float[Tensor, "batch length dim"], share: float, generator: torch.Generator | None
) -> Float[Tensor, "batch length dim"]:
    """Drop path: skip a branch for a share of the recordings, and scale it up for the others to compensate.

    Without a generator, nothing is drawn and nothing is skipped.
    """
    if generator is None or share == 0:
        return branch
    stays = torch.rand(len(branch), 1, 1, generator=generator, device=branch.device) >= share
    return branch * (stays / (1 - share)).to(branch.dtype)


class Stage(nn.Module):
    """Blocks on rows of one length, followed by a LayerNorm."""

    def __init__(self, blocks: list[Block], dim: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.norm = LayerNorm(dim)

    def forward(
        self,
        tokens: Float[Tensor, "batch length dim"],
        rows: Rows,
        generator: torch.Generator | None,
    ) -> Float[Tensor, "batch length dim"]:
        for block in self.blocks:
            tokens = block(tokens, rows, generator)
        return self.norm(tokens)


class Backbone(nn.Module):
    """All blocks as one stage; with pooling, one stage per block, and the length is halved after each.

    With rotations, attention is relative and needs the tokens' positions, which are pooled like the tokens.
    """

    def __init__(self, blocks: list[Block], dim: int, pooling: bool, rotations: Rotations | None = None) -> None:
        super().__init__()
        self.pooling = pooling
        self.rotations = rotations
        self.stages = nn.ModuleList(
            Stage(part, dim) for part in ([[block] for block in blocks] if pooling else [blocks])
        )

    def forward(
        self,
        tokens: Float[Tensor, "batch length dim"],
        valid: Bool[Tensor, "batch length"],
        generator: torch.Generator | None = None,
        positions: Positions = None,
    ) -> tuple[Float[Tensor, "batch shorter dim"], Bool[Tensor, "batch shorter"]]:
        """Tokens after the last block, and which of them are valid. A generator enables drop path."""
        for stage in self.stages:
            tokens = stage(tokens, self._rows(valid, positions), generator)
            if self.pooling:
                tokens, valid, positions = pool(tokens, valid, positions)
        return tokens, valid

    def _rows(self, valid: Bool[Tensor, "batch length"], positions: Positions) -> Rows:
        if self.rotations is None:
            return Rows(valid)
        if positions is None:
            raise ValueError("relative attention needs the positions of the tokens; see positions_of")
        return Rows(valid, self.rotations(positions))

    def after_each_block(
        self,
        tokens: Float[Tensor, "batch length dim"],
        valid: Bool[Tensor, "batch length"],
        count: int,
        positions: Positions = None,
    ) -> list[tuple[Tensor, Tensor]]:
        """Tokens and `valid` before the first block and after each of the first `count` blocks, for inspection.

        The norm that ends a stage is applied only after its last block.
        """
        found = [(tokens, valid)]
        for stage in self.stages:
            rows = self._rows(valid, positions)
            assert isinstance(stage, Stage)
            blocks = list(stage.blocks)
            for number, block in enumerate(blocks):
                if len(found) > count:
                    return found
                tokens = block(tokens, rows, None)
                last = number == len(blocks) - 1
                tokens = stage.norm(tokens) if last else tokens
                if last and self.pooling:
                    tokens, valid, positions = pool(tokens, valid, positions)
                found.append((tokens, valid))
        return found


def pool(
    tokens: Float[Tensor, "batch length dim"], valid: Bool[Tensor, "batch length"], positions: Positions
) -> tuple[Float[Tensor, "batch half dim"], Bool[Tensor, "batch half"], Float[Tensor, "batch half 3"] | None]:
    """Half as many tokens; each has the mean position of those that it stands for."""
    pooled, real = pool_pairs(tokens, valid)
    return pooled, real, None if positions is None else pool_pairs(positions, valid)[0]


def pool_pairs(
    tokens: Float[Tensor, "batch length dim"], valid: Bool[Tensor, "batch length"]
) -> tuple[Float[Tensor, "batch half dim"], Bool[Tensor, "batch half"]]:
    """Average pairs of valid neighbours: the last token of an odd row stays as it is."""
    odd = tokens.shape[1] % 2  # padded without an `if`, which would be compiled once for each case
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
    return Backbone(blocks, config.dim, config.pooling, build_rotations(config))
