"""Rotating pairs of channels, which makes attention relative (`relative.py` says by which angles)."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def rotate_written_out(
    rows: Float[Tensor, "batch length *heads width"], rotation: Float[Tensor, "batch length 2 pairs"]
) -> Float[Tensor, "batch length *heads width"]:
    """Rotate pairs of channels half a head apart, for all heads alike: the definition, and what compilers take."""
    cosine, sine = _for_heads(rotation, rows)
    first, second = rows.to(rotation.dtype).chunk(2, dim=-1)
    rotated = torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)
    return rotated.to(rows.dtype)


def rotate(
    rows: Float[Tensor, "batch length *heads width"], rotation: Float[Tensor, "batch length 2 pairs"]
) -> Float[Tensor, "batch length *heads width"]:
    """`rotate_written_out` to the bit, with fewer copies and its own gradient."""
    if torch.compiler.is_compiling():
        return rotate_written_out(rows, rotation)
    return _Rotate.apply(rows, rotation, 1)  # type: ignore[no-untyped-call]


def rotate_back(
    rows: Float[Tensor, "batch length *heads width"], rotation: Float[Tensor, "batch length 2 pairs"]
) -> Float[Tensor, "batch length *heads width"]:
    """What undoes `rotate`."""
    if torch.compiler.is_compiling():
        return rotate_written_out(rows, rotation * rotation.new_tensor([[1.0], [-1.0]]))
    return _Rotate.apply(rows, rotation, -1)  # type: ignore[no-untyped-call]


class _Rotate(torch.autograd.Function):
    """Its gradient is the rotation back; torch would keep rows for the gradient of angles, which nobody asks for.

    In steps of one multiplication or sum: torch rounds those of complex numbers differently at the end of a thread's
    share, and then the number of threads would change the last bit.
    """

    @staticmethod
    def forward(rows: Tensor, rotation: Tensor, sign: int) -> Tensor:
        cosine, sine = _for_heads(rotation, rows)
        first, second = rows.to(rotation.dtype).chunk(2, dim=-1)
        rotated = torch.empty(rows.shape, dtype=rotation.dtype, device=rows.device)
        to_first, to_second = rotated.chunk(2, dim=-1)
        torch.mul(first, cosine, out=to_first).sub_(second * sine, alpha=sign)
        torch.mul(second, cosine, out=to_second).add_(first * sine, alpha=sign)
        return rotated.to(rows.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
        _, rotation, ctx.sign = inputs
        ctx.save_for_backward(rotation)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (rotation,) = ctx.saved_tensors
        return _Rotate.apply(gradients[0], rotation, -ctx.sign), None, None  # type: ignore[no-untyped-call]


def _for_heads(rotation: Float[Tensor, "batch length 2 pairs"], rows: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine, with a place for each dimension that rows have between length and width."""
    cosine, sine = rotation.unbind(2)
    places = (*rotation.shape[:2], *[1] * (rows.dim() - 3), rotation.shape[3])
    return cosine.view(places), sine.view(places)
