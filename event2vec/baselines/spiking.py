"""Spiking neurons over time, and the surrogate gradients with which they learn.

A neuron spikes where its potential reaches a threshold. That step has no useful gradient, so the backward pass uses
the slope of a smooth curve instead, a different one in each published system.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


class _Spike(torch.autograd.Function):
    """1 where the potential is at or above 0, else 0."""

    @staticmethod
    def forward(ctx: Any, over: Tensor) -> Tensor:
        ctx.save_for_backward(over)
        return (over >= 0).to(over.dtype)


class SigmoidSpike(_Spike):
    """The slope of a sigmoid of 4 times the potential (Max-Former)."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (over,) = ctx.saved_tensors
        soft = (4 * over).sigmoid_()
        return gradient * (4 * soft * (1 - soft))


def fire(over: Tensor, surrogate: type[_Spike]) -> Tensor:
    """Spikes where a potential is at or above 0, with the gradient of a surrogate."""
    return surrogate.apply(over)  # type: ignore[no-untyped-call]


class LeakyNeurons(nn.Module):
    """v += (x - v) / 2; a spike resets v to 0, and no gradient passes through the reset (Max-Former)."""

    def __init__(self, threshold: float = 1.0) -> None:
        super().__init__()
        self.threshold = threshold

    def forward(self, inputs: Float[Tensor, "time *shape"]) -> Float[Tensor, "time *shape"]:
        v = torch.zeros_like(inputs[0])
        spikes = []
        for x in inputs.unbind():
            v = v + (x - v) / 2
            spikes.append(fire(v - self.threshold, SigmoidSpike))
            v = v.masked_fill(spikes[-1].detach() > 0, 0.0)
        return torch.stack(spikes)


class RectangleSpike(_Spike):
    """A slope of 2 within a quarter around the threshold (MA-SNN)."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (over,) = ctx.saved_tensors
        return gradient * (2.0 * (over.abs() < 0.25))


class TriangleSpike(_Spike):
    """A slope of 0.7 at the threshold that falls to 0 on both sides (EGRU)."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (over,) = ctx.saved_tensors
        return gradient * (0.7 * (1 - 1.7 * over.abs()).clamp(min=0))


class BumpSpike(_Spike):
    """A slope of 1 / (1 + 10 v^2) (SpikGRU2+)."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (over,) = ctx.saved_tensors
        return gradient / (1 + 10 * over.square())


class ClippedNeurons(nn.Module):
    """What exceeds the threshold of 0.3 is clipped to it by a spike; then 0.3 of the potential is left (MA-SNN)."""

    def forward(self, inputs: Float[Tensor, "time *shape"]) -> Float[Tensor, "time *shape"]:
        left = torch.zeros_like(inputs[0])
        spikes = []
        for x in inputs.unbind():
            u = left + x
            spike = fire(u - 0.3, RectangleSpike)
            left = 0.3 * (0.3 * spike + (1 - spike) * u)
            spikes.append(spike)
        return torch.stack(spikes)


def keep_in_unit_range(leak: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """A leak of 0 to 1. Its gradient passes unchanged: that of a clamp is 0 outside, where it would stay for good."""
    return leak + (leak.clamp(0, 1) - leak).detach()


class AdaptiveNeurons(nn.Module):
    """v = alpha v + x - the last spike; alpha is learnt for each channel, or 1 without channels (SpikGRU2+)."""

    def __init__(self, channels: int | None) -> None:
        super().__init__()
        self.alpha = None if channels is None else nn.Parameter(torch.full((channels,), 0.9))

    def forward(
        self, inputs: Float[Tensor, "time batch channels *places"]
    ) -> Float[Tensor, "time batch channels *places"]:
        alpha: Tensor | float = 1.0
        if self.alpha is not None:
            alpha = keep_in_unit_range(self.alpha).view(-1, *[1] * (inputs.ndim - 3))
        v = spike = torch.zeros_like(inputs[0])
        spikes = []
        for x in inputs.unbind():
            v = alpha * v + x - spike
            spike = fire(v - 1, BumpSpike)
            spikes.append(spike)
        return torch.stack(spikes)
