"""Spiking neurons over time, and the surrogate gradients with which they learn.

A neuron spikes where its potential reaches a threshold. That step has no useful gradient, so the backward pass uses the
slope of a smooth curve instead, a different one in each published system.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


class _Spike(torch.autograd.Function):
    """1 where the potential is at or above 0, else 0."""

    @staticmethod
    def forward(ctx: Any, over: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(over)
        return (over >= 0).to(over.dtype)


class SigmoidSpike(_Spike):
    """The slope of a sigmoid of 4 times the potential (Max-Former)."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (over,) = ctx.saved_tensors
        soft = (4 * over).sigmoid_()
        return gradient * (4 * soft * (1 - soft))


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
            spikes.append(SigmoidSpike.apply(v - self.threshold))
            v = v.masked_fill(spikes[-1].detach() > 0, 0.0)
        return torch.stack(spikes)
