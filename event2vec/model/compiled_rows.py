"""What a network does to each token by itself, by compiled code (`compiled_rows.h`): one pass each way, with gradients.

Heads for attention (`ForgettingDirection.project` says what is computed), LayerNorm (`norm.py`), and the convolutions
of the temporal embedding (`ConvolutionalTemporal`; `compiled_times.h`), which also read each token's neighbours. And
what is around each event (`neighbourhood.py`; `compiled_neighbourhood.h`), which needs no gradient, and the spatial
embedding (`ParametricSpatial`; `compiled_places.h`) where none is asked for.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from event2vec.events import EventBatch
from event2vec.model import compiled_attention

EPSILON = 1e-5  # of every norm, here and in `compiled_rows.h`


def serves(rows: Tensor, width: int, *others: Tensor | None, rotation: Tensor | None = None) -> bool:
    """Whether the compiled code can do it, with vectors of `width` numbers: float32 on a CPU, outside of autocast.

    `others` are the weights and what else is read. torch.compile and torch.export join the plain operations themselves.
    """
    return (
        not torch.compiler.is_compiling()
        and not compiled_attention.is_traced()
        and type(rows) is Tensor
        and compiled_attention.takes(rows, width)
        and all(part is None or is_plain(part) for part in others)
        and compiled_attention.fits_rotation(rotation, rows, width)
    )


def is_plain(part: Tensor) -> bool:
    return type(part) in (Tensor, nn.Parameter) and compiled_attention.is_readable(part)


def make_heads(
    projected: Tensor,
    query_norm: Tensor,
    key_norm: Tensor,
    forget_bias: Tensor,
    width: int,
    rotation: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q, k and v as (batch, length, heads, width) and log gates, of a product with q, k, v and gates side by side.

    With a rotation (batch, length, 2, width / 2), q, k and v are rotated, as `relative.rotate` does it.
    """
    weights = [part.contiguous() for part in (projected, query_norm, key_norm, forget_bias)]
    rotation = None if rotation is None else rotation.contiguous()
    if torch.is_grad_enabled() and any(part.requires_grad for part in weights):
        return _Heads.apply(width, rotation, *weights)  # type: ignore[no-untyped-call]
    return _make_heads(width, rotation, weights)


class _Heads(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, width: int, rotation: Tensor | None, *weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        heads = _make_heads(width, rotation, weights)
        ctx.save_for_backward(rotation, *weights)
        ctx.width = width
        return heads

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        rotation, *weights = ctx.saved_tensors
        changes = [torch.empty_like(part) for part in weights]
        parts = [rotation, *weights, *[None] * 4, *(part.contiguous() for part in gradients), *changes]
        _call_heads("project_back", ctx.width, parts)
        return None, None, *changes


def _make_heads(width: int, rotation: Tensor | None, weights: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    projected, query_norm, key_norm, forget_bias = weights
    batch, length, _ = projected.shape
    q = projected.new_empty(batch, length, len(query_norm) // width, width)
    k = projected.new_empty(batch, length, len(key_norm) // width, width)
    v, log_forget = torch.empty_like(k), projected.new_empty(batch, length, len(forget_bias))
    _call_heads("project", width, [rotation, *weights, q, k, v, log_forget, *[None] * 8])
    return q, k, v, log_forget


def _call_heads(name: str, width: int, parts: list[Any]) -> None:
    """As `Projection` in `compiled_rows.h` has them."""
    _, projected, _, key_norm, forget_bias, *_ = parts
    batch, length, _ = projected.shape
    call(name, [batch * length, len(forget_bias), len(key_norm) // width, width], parts)


def layer_norm(rows: Tensor, added: Tensor | None, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    """LayerNorm of rows, or of rows + `added` of the same shape; then ReLU if `relu`."""
    rows = rows.contiguous()
    parts = [rows, None if added is None else added.contiguous(), weight.contiguous(), bias.contiguous()]
    if torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in parts):
        return _Norm.apply(relu, *parts)  # type: ignore[no-untyped-call]
    normed = torch.empty_like(rows)
    _call_norm("norm", relu, [*parts, None, normed, *[None] * 4])
    return normed


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, relu: bool, rows: Tensor, added: Tensor | None, weight: Tensor, bias: Tensor) -> Tensor:
        normed, sums = torch.empty_like(rows), None if added is None else torch.empty_like(rows)
        _call_norm("norm", relu, [rows, added, weight, bias, sums, normed, *[None] * 4])
        ctx.save_for_backward(rows if sums is None else sums, weight, bias, normed if relu else None)
        ctx.relu, ctx.both = relu, added is not None
        return normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        rows, weight, bias, normed = ctx.saved_tensors
        changes = [torch.empty_like(part) for part in (rows, weight, bias)]
        _call_norm("norm_back", ctx.relu, [rows, None, weight, bias, None, normed, gradients[0].contiguous(), *changes])
        return None, changes[0], changes[0] if ctx.both else None, *changes[1:]


def _call_norm(name: str, relu: bool, parts: list[Any]) -> None:
    """As `Norm` in `compiled_rows.h` has them."""
    rows, _, weight, *_ = parts
    width = len(weight)
    call(name, [rows.numel() // width, width, int(relu)], parts)


def convolve(intervals: Tensor, valid: Tensor, layers: Sequence[Tensor], dim: int) -> Tensor:
    """(batch, length, dim): convolutions over intervals; `layers` are kernel, weight and bias of the norm of each."""
    parts = [valid.contiguous(), intervals.contiguous(), *(part.contiguous() for part in layers)]
    if torch.is_grad_enabled() and any(part.requires_grad for part in layers):
        return _Convolutions.apply(dim, *parts)  # type: ignore[no-untyped-call]
    times = intervals.new_empty(*intervals.shape, dim)
    call("convolve", [*intervals.shape, dim], [*parts, times, *[None] * 10])
    return times


class _Convolutions(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dim: int, *parts: Tensor) -> Tensor:
        times = parts[1].new_empty(*parts[1].shape, dim)
        call("convolve", [*parts[1].shape, dim], [*parts, times, *[None] * 10])
        ctx.save_for_backward(*parts)
        return times

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        parts, gradient = ctx.saved_tensors, gradients[0].contiguous()
        changes = [torch.empty_like(part) for part in parts[2:]]
        call("convolve_back", [*gradient.shape], [*parts, None, gradient, *changes])
        return None, None, None, *changes


def embed_places(where: Tensor, layers: Sequence[Tensor], dim: int) -> Tensor:
    """(..., dim): phi of (..., 3); `layers` are matrix, weight and bias of the norm of each. Without gradients."""
    parts = [where.contiguous(), *(part.contiguous() for part in layers)]
    places = where.new_empty(*where.shape[:-1], dim)
    call("embed_places", [where.numel() // 3, dim], [*parts, places])
    return places


def look_around(
    batch: EventBatch, hidden: Tensor | None, places: Tensor | None, grid: list[int], around: Tensor
) -> None:
    """Into `around`: ln(1 + c) of `neighbourhood.see_around`. `grid`: side, bins, reach and width, as in C."""
    columns = [batch.x, batch.y, batch.t, batch.p, batch.rho, batch.valid, hidden, places]
    columns = [None if column is None else column.contiguous() for column in columns]
    sizes = [*batch.x.shape, around.shape[1], batch.sensor.width, batch.sensor.height, *grid]
    call("look_around", sizes, [*columns, around])


def call(name: str, numbers: list[int], parts: list[Any]) -> None:
    """Numbers first, then how to run, then addresses. Other Python threads run meanwhile."""
    numbers += [compiled_attention.variant(), torch.get_num_threads(), compiled_attention.team()]
    numbers += [0 if part is None else part.data_ptr() for part in parts]
    if getattr(compiled_attention.library(), name)((ctypes.c_int64 * len(numbers))(*numbers)) < 0:
        raise MemoryError(f"not enough memory for {numbers[0]} tokens")
