"""Forgetting attention on a CPU by compiled code (`compiled_attention.c`): both directions in one call, with gradients.

Tensors are (batch, length, heads, width) here, as projections leave them. `inputs` are q, k, v and log gates: four for
both directions, or eight where each direction has its own. The answer (batch, length, directions, heads, width) is laid
out as W_fb reads it (Eq. 10).
"""

import ctypes
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from event2vec.errors import Event2VecError
from event2vec.model.rotation import rotate_back

INTERFACE = 6  # of the functions in C; a library of another one may be left from an earlier installation
WIDEST = 128  # channels of a head
FUNCTIONS = [
    *("variants", "attend", "learn", "project", "project_back"),
    *("norm", "norm_back", "convolve", "convolve_back", "look_around", "embed_places", "think"),
]
BEFORE, BOTH = 1, 3  # directions: what was before each event, and also what comes after it


@cache
def library() -> ctypes.CDLL | None:
    """The compiled code, or None where event2vec was installed without what compiles it."""
    try:
        path = importlib.import_module("event2vec.model._compiled_attention").__file__
    except ImportError:
        return None
    compiled = ctypes.CDLL(str(path))
    if not hasattr(compiled, "interface") or compiled.interface() != INTERFACE:
        return None
    for name in FUNCTIONS:
        getattr(compiled, name).restype = ctypes.c_int64
    return compiled


INSTALLED = library() is not None  # constant for torch.compile; to declare a function as constant would load compilers


@cache
def team() -> int:
    """Where torch's own OpenMP runtime starts work on its threads: others would compete with those for the cores.

    0 where it has no such function; the compiled code then starts threads of its own.
    """
    function = getattr(ctypes.CDLL(None), "GOMP_parallel", None)
    return ctypes.cast(function, ctypes.c_void_p).value or 0 if function else 0


class Settings:
    """How the compiled code runs. For tests and benchmarks: the best is set, and results differ by rounding alone."""

    variant: int | None = None  # instructions: 0 is what every CPU has; None the widest
    stops = True  # whether rows end where the rest is below rounding
    used = True  # False: the folded form, as where nothing was compiled


@contextmanager
def set_aside() -> Iterator[None]:
    """Attention in operations that every exporter knows."""
    used, Settings.used = Settings.used, False
    try:
        yield
    finally:
        Settings.used = used


def variant() -> int:
    """Which instructions are used, from 0 on."""
    best = _best_variant()
    return best if Settings.variant is None else min(best, Settings.variant)


@cache
def _best_variant() -> int:
    compiled = library()
    return int(compiled.variants()) - 1 if compiled else 0


def serves(*inputs: Tensor, rotation: Tensor | None = None) -> bool:
    """Whether the compiled code can do it: float32 on a CPU, and heads of a width that it has been made for."""
    if is_traced():
        return False
    width = inputs[0].shape[-1]
    if not all(takes(part, width) for part in inputs) or width > WIDEST:
        return False
    return torch.compiler.is_compiling() or fits_rotation(rotation, inputs[0], width)  # compilers rotate themselves


def is_traced() -> bool:
    """Inside torch.jit.trace, which would keep compiled answers as constants."""
    return torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]


def takes(part: Tensor, width: int) -> bool:
    """Whether compiled code can read a tensor, whose vectors have `width` numbers."""
    return (
        Settings.used
        and is_readable(part)
        and width % 8 == 0
        and width > 0
        and not torch.is_autocast_enabled("cpu")
        and INSTALLED
    )


def is_readable(part: Tensor) -> bool:
    return part.dtype == torch.float32 and part.is_cpu


def fits_rotation(rotation: Tensor | None, rows: Tensor, width: int) -> bool:
    """Whether a rotation, if there is one, has a place for each of the rows (batch, length, ...): none is broadcast."""
    return rotation is None or (is_readable(rotation) and rotation.shape == (*rows.shape[:2], 2, width // 2))


def attend(inputs: list[Tensor], counts: Tensor | None, directions: int, rotation: Tensor | None = None) -> Tensor:
    """What each event sees of those before it, and with BOTH of those after it. `counts` are the rows' valid events.

    With the rotation (batch, length, 2, width / 2) of q, k and v, what is seen is rotated back.
    """
    if torch.compiler.is_compiling() or type(inputs[0]) is not Tensor:
        seen = _attend(inputs, counts, directions)[0]
        return seen if rotation is None else rotate_back(seen, rotation)
    rotation = None if rotation is None else rotation.contiguous()
    if torch.is_grad_enabled() and any(part.requires_grad for part in inputs):
        return _Attention.apply(counts, rotation, directions, *inputs)  # type: ignore[no-untyped-call]
    return _forward(inputs, counts, directions, rotation, wanted=False)[0]


class _Attention(torch.autograd.Function):
    """The operator below without its cost of a call, which for short rows is that of attention itself."""

    @staticmethod
    def forward(ctx: Any, counts: Tensor | None, rotation: Tensor | None, directions: int, *inputs: Tensor) -> Tensor:
        seen, norms = _forward(list(inputs), counts, directions, rotation)
        ctx.save_for_backward(*inputs, counts, rotation, seen, norms)
        ctx.directions = directions
        return seen

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        *inputs, counts, rotation, seen, norms = ctx.saved_tensors
        changes = _backward(gradients[0], inputs, counts, seen, norms, ctx.directions, rotation)
        return None, None, None, *changes


def _forward(
    inputs: list[Tensor], counts: Tensor | None, directions: int, rotation: Tensor | None = None, wanted: bool = True
) -> tuple[Tensor, Tensor]:
    """The answer, and what the backward pass needs of softmax if that is wanted."""
    _check(inputs, counts)
    batch, length, heads, width = inputs[0].shape
    ways = directions.bit_count()
    seen = inputs[0].new_empty(batch, length, ways, heads, width)
    norms = inputs[0].new_empty((ways, batch, heads, 2, length) if wanted else (0,))
    for part, mask in _calls(inputs, directions):
        _call("attend", part, counts, rotation, mask, [*_sides(seen), norms.data_ptr() if wanted else 0, *[0] * 24])
    return seen, norms


def _check(inputs: list[Tensor], counts: Tensor | None) -> None:
    """Compiled code reads what shapes promise."""
    shape, shapes = inputs[0].shape, [tuple(part.shape) for part in inputs]
    if len(shape) != 4 or shape[3] % 8 or not 0 < shape[3] <= WIDEST:
        raise ValueError(f"q must be (batch, length, heads, width), width a multiple of 8 up to {WIDEST}; got {shapes}")
    batch, length, heads, width = shape
    for q, k, v, gates in zip(*(shapes[first::4] for first in range(4)), strict=True):
        key_heads = k[2] if len(k) == 4 else 0
        if q != shape or k != (batch, length, key_heads, width) or v != k or gates != (batch, length, heads):
            raise ValueError(f"q, k, v and log gates must have the same batch, length, heads and width; got {shapes}")
        if not 0 < key_heads <= heads or heads % key_heads:
            raise ValueError(f"heads must be a multiple of the heads of k and v, got {heads} and {key_heads}")
    if not all(is_readable(part) for part in inputs):
        raise ValueError(f"compiled attention needs float32 on a CPU, got {[part.dtype for part in inputs]}")
    if counts is not None and (counts.shape != (batch,) or counts.dtype != torch.int64 or not counts.is_contiguous()):
        raise ValueError(f"counts must be {batch} int64 next to each other, got {tuple(counts.shape)} {counts.dtype}")


def _backward(
    gradient: Tensor,
    inputs: list[Tensor],
    counts: Tensor | None,
    seen: Tensor,
    norms: Tensor,
    directions: int,
    rotation: Tensor | None = None,
) -> list[Tensor]:
    gradient = gradient if gradient.stride(-1) == 1 else gradient.contiguous()
    changes: list[Tensor] = []
    for part, mask in _calls(inputs, directions):
        changes += [one.new_empty(one.shape) for one in part]
        sides = [*_sides(seen), norms.data_ptr(), *_sides(gradient)]
        _call(
            "learn", part, counts, rotation, mask, [*sides, *(number for one in changes[-4:] for number in _view(one))]
        )
    return changes


def _calls(inputs: list[Tensor], directions: int) -> list[tuple[list[Tensor], int]]:
    """Inputs and directions of each call: one, or one for each direction where they share nothing."""
    if len(inputs) == 4:
        return [(inputs, directions)]
    return [(inputs[:4], 1), (inputs[4:], 2)]


def _sides(rows: Tensor) -> list[int]:
    """The halves of both directions; where there is one direction, C does not look at the other."""
    first, (row, event, way, head, _) = rows.data_ptr(), rows.stride()
    last = first + rows.element_size() * way * (rows.shape[2] - 1)
    return [first, row, event, head, last, row, event, head]


def _view(rows: Tensor) -> tuple[int, ...]:
    """Where a tensor begins and its steps along batch, length and heads."""
    return rows.data_ptr(), *rows.stride()[:3]


def _call(
    name: str, inputs: list[Tensor], counts: Tensor | None, rotation: Tensor | None, mask: int, rest: list[int]
) -> None:
    """Numbers and addresses as `Job` in `compiled_attention.c` has them. Other Python threads run meanwhile."""
    compiled = library()
    if compiled is None:  # an exported program calls what was there when it was made
        raise Event2VecError(
            "this program was exported with compiled attention, which event2vec was installed without here. "
            "Install event2vec again where a C compiler is found, or export the program here"
        )
    inputs = [part if part.stride(-1) == 1 or part.dim() == 3 else part.contiguous() for part in inputs]
    batch, length, heads, width = inputs[0].shape
    if batch == 0 or length == 0:
        return
    numbers = [batch, length, heads, inputs[1].shape[2], width, mask, int(Settings.stops), variant()]
    numbers += [
        torch.get_num_threads(),
        team(),
        *(0 if part is None else part.data_ptr() for part in (counts, rotation)),
    ]
    for part in inputs:
        numbers += _view(part)
    numbers += rest
    if getattr(compiled, name)((ctypes.c_int64 * len(numbers))(*numbers)) < 0:
        raise MemoryError(f"not enough memory for attention over {batch} x {length} events")


@torch.library.custom_op("event2vec::forgetting_attention", mutates_args=(), device_types="cpu")
def _attend(inputs: list[Tensor], counts: Tensor | None, directions: int) -> tuple[Tensor, Tensor]:
    return _forward(inputs, counts, directions)


@_attend.register_fake
def _(inputs: list[Tensor], counts: Tensor | None, directions: int) -> tuple[Tensor, Tensor]:
    batch, length, heads, width = inputs[0].shape
    ways = directions.bit_count()
    return inputs[0].new_empty(batch, length, ways, heads, width), inputs[0].new_empty(ways, batch, heads, 2, length)


@torch.library.custom_op("event2vec::forgetting_attention_backward", mutates_args=(), device_types="cpu")
def _learn(
    gradient: Tensor, inputs: list[Tensor], counts: Tensor | None, seen: Tensor, norms: Tensor, directions: int
) -> list[Tensor]:
    return _backward(gradient, inputs, counts, seen, norms, directions)


@_learn.register_fake
def _(
    gradient: Tensor, inputs: list[Tensor], counts: Tensor | None, seen: Tensor, norms: Tensor, directions: int
) -> list[Tensor]:
    return [part.new_empty(part.shape) for part in inputs]


def _keep(ctx: Any, inputs: tuple[list[Tensor], Tensor | None, int], output: tuple[Tensor, Tensor]) -> None:
    parts, counts, ctx.directions = inputs
    ctx.save_for_backward(*parts, counts, *output)


def _differentiate(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[list[Tensor], None, None]:
    *inputs, counts, seen, norms = ctx.saved_tensors
    return _learn(gradient, inputs, counts, seen, norms, ctx.directions), None, None


_attend.register_autograd(_differentiate, setup_context=_keep)
