"""A convolutional network on frames: how events are usually classified.

Events become frames of counts by polarity and stretch of time, made on the fly from the same augmented events that
Event2Vec reads. Each stage is two convolutions of 3 x 3 with batch norm and ReLU, then 2 x 2 max pooling; the mean
over pixels goes to a linear layer. With `recurrent`, each frame goes through the stages on its own, and a GRU
reads their outputs.
"""

from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from event2vec.baselines.config import FrameCnnConfig
from event2vec.baselines.layers import BatchNorm, drop
from event2vec.data.sampling import Sampling
from event2vec.events import EventBatch
from event2vec.model.classifier import Classifier, check_sensor
from event2vec.model.frames import make_frames


class FrameCnn(Classifier):
    """Frames, stages of convolutions, a mean over pixels and a linear layer; with `recurrent`, a GRU before it."""

    def __init__(self, config: FrameCnnConfig, class_names: tuple[str, ...], sampling: Sampling) -> None:
        super().__init__(config, class_names, sampling)
        self.settings = config
        widths = [2 if config.recurrent else 2 * config.bins]
        widths += [config.channels * 2**stage for stage in range(config.stages)]
        self.stages = nn.ModuleList(Stage(*pair) for pair in pairwise(widths))
        self.gru = nn.GRU(widths[-1], widths[-1], batch_first=True) if config.recurrent else None
        self.head = nn.Linear(widths[-1], config.classes)

    def forward(self, batch: EventBatch, generator: torch.Generator | None = None) -> Float[Tensor, "batch classes"]:
        check_sensor(batch.sensor, self.config.sensor)
        frames = make_frames(batch, self.settings.bins, self.settings.placing).log1p()
        frames = frames.to(self.head.weight.dtype)
        if self.gru is None:
            features = self._see(frames.flatten(1, 2))
        else:
            moments = self._see(frames.flatten(0, 1)).unflatten(0, (batch.x.shape[0], -1))
            features = self.gru(moments)[0].mean(dim=1)
        return self.head(drop(features, self.settings.dropout, generator))

    def _see(self, frames: Float[Tensor, "frames channels height width"]) -> Float[Tensor, "frames features"]:
        frames = frames.contiguous(memory_format=torch.channels_last)  # two thirds of the time on a CPU
        for stage in self.stages:
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
