"""Convolutions on frames, beside the tokens (ours, not the paper's).

Where no event lies, no token does: a network of tokens alone does not see a gap in a stroke, or a hole that is nearly
closed. Frames show it. So with `model.frames`, a small convolutional network reads frames of the same events. It and
the Transformer are each trained to name the class by itself, and answer together (`mean_answer`): they are sure of
different mistakes, and both at once are wrong less often than either.
"""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from event2vec.events import EventBatch
from event2vec.model.batch_norm import BatchNorm
from event2vec.model.dropout import drop
from event2vec.model.frames import count_events, shrink, stretches_of_time

SIDE = 48  # pixels that a side of a frame has at most; larger sensors are scaled down to it
CHANNELS = 16  # of the first stage
STAGES = 3
DROPOUT = 0.2


class FrameBranch(nn.Module):
    """Logits from frames of this many stretches of time."""

    def __init__(self, frames: int, classes: int) -> None:
        super().__init__()
        self.count = frames
        self.stages = Stages(2 * frames, CHANNELS, STAGES)
        self.head = nn.Linear(self.stages.features, classes)

    def forward(self, batch: EventBatch, generator: torch.Generator | None = None) -> Float[Tensor, "batch classes"]:
        """A generator, which training passes, enables dropout."""
        with torch.no_grad():
            stretches = stretches_of_time(batch, self.count)
            frames = count_events(shrink(batch, SIDE), stretches, self.count, "bilinear").log1p()
        features = self.stages(frames.flatten(1, 2).to(self.head.weight.dtype))
        return self.head(drop(features, DROPOUT, generator))


class Stages(nn.ModuleList):
    """Stages of convolutions, each on half as many pixels and with twice as many channels, and a mean over pixels."""

    def __init__(self, before: int, channels: int, count: int) -> None:
        widths = [before, *(channels * 2**stage for stage in range(count))]
        super().__init__(Stage(*pair) for pair in pairwise(widths))
        self.features = widths[-1]

    def forward(self, frames: Float[Tensor, "frames channels height width"]) -> Float[Tensor, "frames features"]:
        frames = frames.contiguous(memory_format=torch.channels_last)  # half again as fast on a CPU
        for stage in self:
            frames = stage(frames)
        return frames.mean(dim=(2, 3))


class Stage(nn.Module):
    """Two convolutions with norms, then a frame of half the size; a side of one pixel stays."""

    def __init__(self, narrow: int, wide: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv2d(channels, wide, 3, padding=1, bias=False) for channels in (narrow, wide)
        )
        self.norms = nn.ModuleList(BatchNorm(wide) for _ in range(2))

    def forward(
        self, frames: Float[Tensor, "frames narrow height width"]
    ) -> Float[Tensor, "frames wide half_height half_width"]:
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            frames = F.relu(norm(convolution(frames)))
        return F.max_pool2d(frames, 2, ceil_mode=True)


def mean_answer(answers: Float[Tensor, "parts batch classes"]) -> Float[Tensor, "batch classes"]:
    """Logits of which the scores are the mean of those of all parts; of one part, its own."""
    if len(answers) == 1:
        return answers[0]
    return answers.log_softmax(dim=-1).logsumexp(dim=0) - math.log(len(answers))
