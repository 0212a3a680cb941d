"""Heads for attention by compiled code (`compiled_rows.h`): RMS norms and log gates in one pass, with gradients.

`ForgettingDirection.project` says what is computed; it takes this way where compiled attention follows.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from event2vec.model import compiled_attention


def serves(projected: Tensor, width: int) -> bool:
    """Whether the compiled code can do it. torch.compile and torch.export join the plain operations themselves."""
    if torch.compiler.is_compiling() or type(projected) is not Tensor:
        return False
    return compiled_attention.serves(projected.unflatten(-1, (1, -1))[..., :width])


def make_heads(
    projected: Tensor, query_norm: Tensor, key_norm: Tensor, forget_bias: Tensor, width: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q, k and v as (batch, length, heads, width) and log gates, of a product with q, k, v and gates side by side."""
    weights = [projected.contiguous(), query_norm, key_norm, forget_bias]
    if torch.is_grad_enabled() and any(part.requires_grad for part in weights):
        return _Heads.apply(width, *weights)  # type: ignore[no-untyped-call]
    return _forward(width, *weights)


class _Heads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, width: int, *weights: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        heads = _forward(width, *weights)
        ctx.save_for_backward(*weights, heads[-1])
        ctx.width = width
        return heads

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        *weights, log_forget = ctx.saved_tensors
        changes = [torch.empty_like(part) for part in weights]
        parts = [*weights, None, None, None, log_forget, *(part.contiguous() for part in gradients), *changes]
        _call("project_back", ctx.width, parts)
        return None, *changes


def _forward(width: int, *weights: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    projected, query_norm, key_norm, forget_bias = weights
    batch, length, _ = projected.shape
    q = projected.new_empty(batch, length, len(query_norm) // width, width)
    k = projected.new_empty(batch, length, len(key_norm) // width, width)
    v, log_forget = torch.empty_like(k), projected.new_empty(batch, length, len(forget_bias))
    _call("project", width, [*weights, q, k, v, log_forget, *[None] * 8])
    return q, k, v, log_forget


def _call(name: str, width: int, parts: list[Any]) -> None:
    """Numbers and addresses as `Projection` in `compiled_rows.h` has them. Other Python threads run meanwhile."""
    batch, length, _ = parts[0].shape
    heads, key_heads = len(parts[3]), len(parts[2]) // width
    numbers = [batch * length, heads, key_heads, width, compiled_attention.variant(), torch.get_num_threads()]
    numbers += [compiled_attention.team(), *(0 if part is None else part.data_ptr() for part in parts)]
    if getattr(compiled_attention.library(), name)((ctypes.c_int64 * len(numbers))(*numbers)) < 0:
        raise MemoryError(f"not enough memory for the heads of {batch} x {length} events")
