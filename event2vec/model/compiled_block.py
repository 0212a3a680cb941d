"""A Transformer block by compiled code in one call (`compiled_block.h`), where no gradient is asked for.

`backbone.Block` says what is computed. For a row of a few hundred events, Python and torch take as long to call the
block's dozen operations as these take themselves.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from event2vec.model import compiled_attention, compiled_rows

MOST = 1024  # tokens; what lies between the steps of a block of more no longer stays in a core's caches


def serves(tokens: Tensor, rotation: Tensor | None, weights: Sequence[Tensor], width: int) -> bool:
    """Whether the compiled code can do it: no gradients, float32 on a CPU, and vectors of whole eights."""
    return (
        not torch.is_grad_enabled()
        and compiled_rows.serves(tokens, width, *weights, rotation=rotation)  # first: torch.export notes what is asked
        and 0 < tokens.shape[0] * tokens.shape[1] <= MOST
        and len(weights[7]) % 8 == 0  # of the feed-forward network
        and width <= compiled_attention.WIDEST
    )


def think(tokens: Tensor, counts: Tensor, rotation: Tensor | None, weights: Sequence[Tensor], width: int) -> Tensor:
    """The tokens after the block. `weights` are in the order of `Block` in C; `counts` the rows' valid events."""
    batch, length, dim = tokens.shape
    answer = tokens.new_empty(batch, length, dim)
    key_norm, widen = weights[2], weights[7]
    heads, key_heads = dim // width, len(key_norm) // width
    numbers = [batch, length, len(widen), heads, key_heads, width, int(compiled_attention.Settings.stops)]
    parts = [None if part is None else part.contiguous() for part in (counts, rotation, tokens, *weights)]
    compiled_rows.call("think", numbers, [*parts, answer])
    return answer
