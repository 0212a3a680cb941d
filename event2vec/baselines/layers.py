"""Layers that several compared networks use: batch norms that can be saved, dropout by a generator, residual blocks."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class _Norm(nn.modules.batchnorm._BatchNorm):
    """Without the count of batches, which only a changing momentum needs: saved networks hold real numbers alone.

    Where a channel has a single value to learn from, it is scaled as after training.
    """

    def __init__(self, channels: int, weighted: bool = True) -> None:
        super().__init__(channels, affine=weighted)
        self.num_batches_tracked = None

    def forward(self, input: Tensor) -> Tensor:
        learns = self.training and input.numel() > input.shape[1]
        return F.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, learns, self.momentum or 0.0, self.eps
        )

    def _load_from_state_dict(self, *arguments: Any) -> None:
        nn.Module._load_from_state_dict(self, *arguments)  # torch's own adds the count


class BatchNorm(_Norm, nn.BatchNorm2d):
    """Batch norm of frames."""


class PointNorm(_Norm, nn.BatchNorm1d):
    """Batch norm of vectors: events, nodes, one for each row."""


class VolumeNorm(_Norm, nn.BatchNorm3d):
    """Batch norm of frames over time."""


def drop(features: Float[Tensor, "*shape"], share: float, generator: torch.Generator | None) -> Float[Tensor, "*shape"]:
    """Dropout, which like all that is random needs a generator."""
    if generator is None or share == 0:
        return features
    stays = torch.rand(features.shape, generator=generator, device=features.device) >= share
    return features * (stays / (1 - share)).to(features.dtype)


class ResidualBlock(nn.Module):
    """Two convolutions of 3 x 3 with norms, added to what came in: the block of ResNet-18 and ResNet-34."""

    def __init__(self, narrow: int, wide: int, stride: int = 1) -> None:
        super().__init__()
        self.first = nn.Conv2d(narrow, wide, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(wide, wide, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(BatchNorm(wide) for _ in range(2))
        self.shortcut = None
        if stride > 1 or narrow != wide:
            self.shortcut = nn.Sequential(nn.Conv2d(narrow, wide, 1, stride, bias=False), BatchNorm(wide))

    def forward(
        self, frames: Float[Tensor, "frames narrow height width"]
    ) -> Float[Tensor, "frames wide less_height less_width"]:
        inside = F.relu(self.norms[0](self.first(frames)))
        past = frames if self.shortcut is None else self.shortcut(frames)
        return F.relu(self.norms[1](self.second(inside)) + past)


def residual_stages(
    widths: list[int], blocks: list[int], before: int, block: Callable[[int, int, int], nn.Module] = ResidualBlock
) -> nn.Sequential:
    """Stages of residual blocks; each but the first halves the frame."""
    stages, narrow = [], before
    for number, (wide, count) in enumerate(zip(widths, blocks, strict=True)):
        strides = [1 if number == 0 else 2] + [1] * (count - 1)
        widths_in = [narrow] + [wide] * (count - 1)
        stages.append(nn.Sequential(*(block(a, wide, stride) for a, stride in zip(widths_in, strides, strict=True))))
        narrow = wide
    return nn.Sequential(*stages)
