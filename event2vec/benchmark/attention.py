"""Forgetting attention in both directions: compiled, folded, written out; and two stock kernels without gates."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from event2vec.benchmark.measure import best_seconds, peak_bytes, peak_of
from event2vec.benchmark.measurement import Measurement
from event2vec.data.datasets import open_dataset
from event2vec.events import EventBatch, Events
from event2vec.machine.cpu import flush_denormals
from event2vec.machine.devices import CPU, Compute
from event2vec.model import compiled_attention
from event2vec.model.attention import Bidirectional, ForgettingDirection, folded_attention, forgetting_weights
from event2vec.model.checkpoint import load_model
from event2vec.model.classifier import Classifier

SHAPES = [
    (8, 2, 1024, 32),
    (8, 6, 1024, 32),
    (1, 2, 4096, 32),
    (1, 2, 16384, 32),
    (32, 2, 256, 32),  # what our recipes for a CPU use, and one recording of them
    (1, 2, 128, 32),
]
STOPS = [(1, 2, 4096, 32)]  # where the gain of stopping early is shown
GATES = (0.0, 4.0, 7.0)  # biases: as in the paper at the start, half-way, and as in our recipes at the start
WRITTEN_OUT_UP_TO = 4096  # beyond, its matrix of weights alone is gigabytes
SMALL = (1, 1, 64, 32)
ROUNDS = 12
MOST_ROUNDS = 200

Attention = Callable[[Tensor, Tensor, Tensor, Tensor], Iterable[Tensor]]


def compiled(q: Tensor, k: Tensor, v: Tensor, log_forget: Tensor) -> list[Tensor]:
    inputs = [part.transpose(1, 2) for part in (q, k, v, log_forget)]
    return [compiled_attention.attend(inputs, None, compiled_attention.BOTH)]


def plain(q: Tensor, k: Tensor, v: Tensor, log_forget: Tensor) -> list[Tensor]:
    """The stock causal kernel, which has no gates, once for each direction."""
    return [F.scaled_dot_product_attention(q, k, v, is_causal=True) for _ in range(2)]


def folded(*inputs: Tensor) -> list[Tensor]:
    return [folded_attention(*inputs), folded_attention(*(part.flip(2) for part in inputs)).flip(2)]


def written_out(q: Tensor, k: Tensor, v: Tensor, log_forget: Tensor) -> list[Tensor]:
    turned = [part.flip(2) for part in (q, k, v, log_forget)]
    after = (forgetting_weights(turned[0], turned[1], turned[3]) @ turned[2]).flip(2)
    return [forgetting_weights(q, k, log_forget) @ v, after]


SIDES: dict[str, Attention] = {"plain": plain, "compiled": compiled, "folded": folded, "written out": written_out}


def measure_attention(compute: Compute = CPU, network: Path | None = None) -> list[Measurement]:
    """A row for each shape (batch x heads x length x width) and for forward alone or with gradients.

    These rows compute every pair of events. What is gained by stopping early is shown in separate rows, by how far the
    gates are open, and for each block of a trained `network` with the gates that it learnt.
    """
    rows = [_measure(shape, gradients, compute) for shape in SHAPES for gradients in (False, True)]
    if not _is_compiled(compute):
        return rows
    rows += [_measure_stops(shape, grad, bias) for shape in STOPS for grad in (False, True) for bias in GATES]
    return rows + (_measure_trained(load_model(network)) if network else [])


def _is_compiled(compute: Compute) -> bool:
    return compute.device.type == "cpu" and compute.precision != "bf16-mixed" and compiled_attention.INSTALLED


def _measure(shape: tuple[int, ...], gradients: bool, compute: Compute) -> Measurement:
    missing = set() if shape[2] <= WRITTEN_OUT_UP_TO else {"written out"}
    missing |= set() if _is_compiled(compute) else {"compiled"}
    names = [name for name in SIDES if name not in missing]
    inputs = _inputs(shape, gradients, compute)
    sides = {name: partial(_run, name, inputs) for name in names}
    seconds = best_seconds(sides, _rounds(shape), compute)
    peaks = {
        name: peak_of(
            sides[name], compute, partial(peak_bytes, _run_on, (name, SMALL, gradients), name, shape, gradients)
        )
        for name in names
    }
    return Measurement(
        case={"shape": " x ".join(map(str, shape)), "pass": "with gradients" if gradients else "forward"},
        figures={f"{name} ms": seconds[name] * 1e3 if name in names else None for name in SIDES}
        | {f"{name} MB": peaks[name] / 2**20 if name in names else None for name in SIDES},
        ratios={
            f"{name} / plain": seconds[name] / seconds["plain"] if name in names else None
            for name in SIDES
            if name != "plain"
        },
    )


def _measure_stops(shape: tuple[int, ...], gradients: bool, bias: float) -> Measurement:
    return _compare_stops(f"drawn around {bias:g}", _inputs(shape, gradients, CPU, bias))


def _compare_stops(gates: str, inputs: list[Tensor]) -> Measurement:
    shape = tuple(inputs[0].shape)
    sides = {
        "whole": partial(_run, "compiled", inputs),
        "stopping": partial(_run, "compiled", inputs, stops=True),
    }
    seconds = best_seconds(sides, _rounds(shape))
    return Measurement(
        case={
            "shape": " x ".join(map(str, shape)),
            "gates": gates,
            "pass": "with gradients" if inputs[0].requires_grad else "forward",
        },
        figures={f"{name} ms": seconds[name] * 1e3 for name in sides},
        ratios={"stopping / whole": seconds["stopping"] / seconds["whole"]},
    )


def _measure_trained(model: Classifier) -> list[Measurement]:
    """Each block of a network as it reads all events of a digit."""
    recording = open_dataset("digits", None, "test")[0][0].on_sensor(model.config.sensor)
    rows = []
    for number, heads in enumerate(heads_of_blocks(model, recording)):
        parts = [part.transpose(1, 2).contiguous() for part in heads]
        for gradients in (False, True):
            inputs = [part.clone().requires_grad_(gradients) for part in parts]
            rows.append(_compare_stops(f"trained, block {number + 1}", inputs))
    return rows


@torch.no_grad()
def heads_of_blocks(model: Classifier, recording: Events) -> list[tuple[Tensor, ...]]:
    """q, k, v and log gates of every block of forgetting attention for one recording."""
    found: list[tuple[Tensor, ...]] = []

    def note(attention: nn.Module, arguments: tuple[Any, ...]) -> None:
        direction = cast(Bidirectional, attention).directions[0]
        if isinstance(direction, ForgettingDirection):
            found.append(direction.project(*arguments))

    hooks = [part.register_forward_pre_hook(note) for part in model.modules() if isinstance(part, Bidirectional)]
    try:
        model(EventBatch.pad([recording]))
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _rounds(shape: tuple[int, ...]) -> int:
    batch, heads, length, _ = shape
    return min(MOST_ROUNDS, max(5, ROUNDS * 2**24 // (batch * heads * length**2)))


def _inputs(shape: tuple[int, ...], gradients: bool, compute: Compute, bias: float = 4.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(shape, generator=generator) for _ in range(3))
    log_forget = F.logsigmoid(bias + torch.randn(shape[:3], generator=generator))
    dtype = torch.bfloat16 if compute.precision == "bf16-mixed" else torch.float32
    q, k, v = (part.to(compute.device, dtype) for part in (q, k, v))
    return [part.requires_grad_(gradients) for part in (q, k, v, log_forget.to(compute.device))]


def _run(name: str, inputs: list[Tensor], stops: bool = False) -> None:
    gradients = inputs[0].requires_grad
    before, compiled_attention.Settings.stops = compiled_attention.Settings.stops, stops
    try:
        with torch.set_grad_enabled(gradients):
            seen = SIDES[name](*inputs)
            if gradients:
                with flush_denormals():
                    torch.autograd.grad([part.sum() for part in seen], inputs, allow_unused=True)
    finally:
        compiled_attention.Settings.stops = before


def _run_on(name: str, shape: tuple[int, ...], gradients: bool) -> None:
    _run(name, _inputs(shape, gradients, CPU))
