"""Residual blocks, which several compared networks use."""

from collections.abc import Callable

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from event2vec.model.batch_norm import BatchNorm


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
