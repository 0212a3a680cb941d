"""Forgetting attention: written out, folded into the stock kernel, and that kernel alone without gates."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from event2vec.benchmark.measure import best_seconds, peak_bytes, peak_of
from event2vec.cpu import flush_denormals, tune_cpu
from event2vec.devices import CPU, Compute
from event2vec.model.attention import forgetting_attention, forgetting_weights

SHAPES = [(8, 2, 1024, 32), (1, 2, 4096, 32), (8, 6, 1024, 32), (1, 2, 16384, 32)]
WRITTEN_OUT_UP_TO = 4096  # beyond, its matrix of weights alone is gigabytes
SMALL = (1, 1, 64, 32)
ROUNDS = 12

Attention = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def written_out(q: Tensor, k: Tensor, v: Tensor, log_forget: Tensor) -> Tensor:
    return forgetting_weights(q, k, log_forget) @ v


def plain(q: Tensor, k: Tensor, v: Tensor, log_forget: Tensor) -> Tensor:
    """The stock causal kernel, which knows no gates."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


SIDES: dict[str, Attention] = {"plain": plain, "folded": forgetting_attention, "written out": written_out}


def measure_attention(compute: Compute = CPU) -> list[dict[str, Any]]:
    """A row for each shape (batch x heads x length x width) and for forward alone or with gradients."""
    return [_measure(shape, gradients, compute) for shape in SHAPES for gradients in (False, True)]


def _measure(shape: tuple[int, ...], gradients: bool, compute: Compute) -> dict[str, Any]:
    names = [name for name in SIDES if name != "written out" or shape[2] <= WRITTEN_OUT_UP_TO]
    inputs = _inputs(shape, gradients, compute)
    rounds = max(5, ROUNDS * 1024 // shape[2])
    sides = {name: partial(_run, name, inputs) for name in names}
    seconds = best_seconds(sides, rounds, compute)
    peaks = {
        name: peak_of(
            sides[name], compute, partial(peak_bytes, _run_on, (name, SMALL, gradients), name, shape, gradients)
        )
        for name in names
    }
    row: dict[str, Any] = {"shape": " x ".join(map(str, shape)), "pass": "with gradients" if gradients else "forward"}
    row |= {f"{name} ms": seconds[name] * 1e3 if name in names else "-" for name in SIDES}
    row["folded / plain"] = seconds["folded"] / seconds["plain"]
    row["written out / folded"] = seconds["written out"] / seconds["folded"] if "written out" in names else "-"
    row |= {f"{name} MB": peaks[name] / 2**20 if name in names else "-" for name in SIDES}
    return row


def _inputs(shape: tuple[int, ...], gradients: bool, compute: Compute) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(shape, generator=generator) for _ in range(3))
    log_forget = F.logsigmoid(4 + torch.randn(shape[:3], generator=generator))
    dtype = torch.bfloat16 if compute.precision == "bf16-mixed" else torch.float32
    q, k, v = (part.to(compute.device, dtype) for part in (q, k, v))
    return [part.requires_grad_(gradients) for part in (q, k, v, log_forget.to(compute.device))]


def _run(name: str, inputs: list[Tensor]) -> None:
    gradients = inputs[0].requires_grad
    with torch.set_grad_enabled(gradients):
        seen = SIDES[name](*inputs)
        if gradients:
            with flush_denormals():
                torch.autograd.grad(seen.sum(), inputs, allow_unused=True)


def _run_on(name: str, shape: tuple[int, ...], gradients: bool) -> None:
    tune_cpu()
    _run(name, _inputs(shape, gradients, CPU))
