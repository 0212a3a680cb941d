"""A Transformer block by compiled code in one call (`compiled_block.h`), where no gradient is asked for.

`backbone.Block` says what is computed. For a row of a few hundred events, Python and torch take as long to call the
block's dozen operations as these take themselves.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.modules import module as every_module
from torch.utils._python_dispatch import _get_current_dispatch_mode

from event2vec.model import compiled_attention, compiled_rows
from event2vec.model.rows import Rows

MOST = 1024  # tokens; what lies between the steps of a block of more no longer stays in a core's caches
LARGEST = 2**16  # numbers of a matrix: all are packed in each call, and torch's own products suit larger ones


class Weights(NamedTuple):
    """Of a block, in the order of `Block` in C. Matrices are (outputs, inputs)."""

    project: Tensor
    query_norm: Tensor
    key_norm: Tensor
    forget_bias: Tensor
    output: Tensor
    attention_weight: Tensor
    attention_bias: Tensor
    widen: Tensor
    narrow: Tensor
    feed_weight: Tensor
    feed_bias: Tensor


def is_watched() -> bool:
    """Whether a compiler, a hook on all modules, or a mode such as a counter of operations, is to see each part."""
    if torch.compiler.is_compiling():  # first: what follows cannot be compiled
        return True
    hooks = every_module._global_forward_hooks or every_module._global_forward_pre_hooks
    return bool(hooks) or _get_current_dispatch_mode() is not None


def serves(tokens: Tensor, rows: Rows, weights: Weights, width: int) -> bool:
    """Whether the compiled code can do it: float32 on a CPU, widths that are multiples of 8, and shapes that fit."""
    return (
        compiled_rows.serves(tokens, width, *weights, rotation=rows.rotation)  # first: torch.export notes what is asked
        and 0 < tokens.shape[0] * tokens.shape[1] <= MOST
        and len(weights.widen) % 8 == 0
        and width <= compiled_attention.WIDEST
        and _fit(tokens, rows.counts, weights, width)
    )


def _fit(tokens: Tensor, counts: Tensor, weights: Weights, width: int) -> bool:
    """Whether C reads nothing beyond the tensors; where it would, the plain operations say what is wrong."""
    batch, _, dim = tokens.shape
    key_dim, heads, hidden = len(weights.key_norm), len(weights.forget_bias), len(weights.widen)
    matrices = weights.project, weights.output, weights.widen, weights.narrow
    shapes = [(dim + 2 * key_dim + heads, dim), (dim, 2 * dim), (hidden, dim), (dim, hidden)]
    norms = weights.attention_weight, weights.attention_bias, weights.feed_weight, weights.feed_bias
    return (
        dim == heads * width
        and key_dim % width == 0
        and [part.shape for part in matrices] == shapes
        and all(part.shape == (dim,) for part in (weights.query_norm, *norms))
        and counts.shape == (batch,)
        and counts.dtype == torch.int64
        and max(part.numel() for part in matrices) <= LARGEST
    )


def think(tokens: Tensor, rows: Rows, weights: Weights, width: int) -> Tensor:
    """The tokens after the block."""
    batch, length, dim = tokens.shape
    answer = tokens.new_empty(batch, length, dim)
    numbers = [batch, length, len(weights.widen), dim // width, len(weights.key_norm) // width, width]
    given = (rows.counts, rows.rotation, tokens, *weights)
    parts = [None if part is None else part.contiguous() for part in given]
    compiled_rows.call("think", [*numbers, int(compiled_attention.Settings.stops)], [*parts, answer])
    return answer
