"""A convolutional network on frames: how events are usually classified.

Events become frames of counts by polarity and stretch of time, made on the fly from the same augmented events that
Event2Vec reads. Each stage is two convolutions of 3 x 3 with batch norm and ReLU, then 2 x 2 max pooling; the mean over
pixels goes to a linear layer. With `recurrent`, each frame passes the stages alone, and a GRU reads what they give.
"""

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from event2vec.baselines.config import FrameCnnConfig
from event2vec.data.sampling import Sampling
from event2vec.events import EventBatch
from event2vec.model.classifier import Classifier, check_sensor
from event2vec.model.embedding import normalised_intervals


def make_frames(batch: EventBatch, bins: int, placing: str) -> Float[Tensor, "batch bins 2 height width"]:
    """Events counted by pixel, polarity and stretch of time; a cluster counts as the rho events that it stands for."""
    height, width = batch.sensor.height, batch.sensor.width
    elapsed = normalised_intervals(batch).cumsum(dim=1)
    stretch = (elapsed * bins).long().clamp(max=bins - 1)  # the last event ends the last stretch
    row = torch.arange(len(batch), device=batch.x.device)[:, None]
    plane = ((row * bins + stretch) * 2 + batch.p) * (height * width)
    frames = batch.x.new_zeros(len(batch) * bins * 2 * height * width)
    for pixel, share in PLACING[placing](batch):
        frames.index_add_(0, (plane + pixel).flatten(), (share * batch.rho * batch.valid).flatten())
    return frames.view(len(batch), bins, 2, height, width)


Placed = list[tuple[Int64[Tensor, "batch length"], Float[Tensor, "batch length"]]]  # pixels, and the share of each


def place_nearest(batch: EventBatch) -> Placed:
    """All of an event at the nearest pixel."""
    return [(batch.y.round().long() * batch.sensor.width + batch.x.round().long(), torch.ones_like(batch.x))]


def place_bilinear(batch: EventBatch) -> Placed:
    """An event shared among the four pixels around it, by distance."""
    sensor = batch.sensor
    left, top = batch.x.floor(), batch.y.floor()
    right_share, bottom_share = batch.x - left, batch.y - top
    placed: Placed = []
    for across, share_x in ((0, 1 - right_share), (1, right_share)):
        for down, share_y in ((0, 1 - bottom_share), (1, bottom_share)):
            x, y = (left.long() + across).clamp(max=sensor.width - 1), (top.long() + down).clamp(max=sensor.height - 1)
            placed.append((y * sensor.width + x, share_x * share_y))
    return placed


PLACING = {"nearest": place_nearest, "bilinear": place_bilinear}  # by the names that `FrameCnnConfig.placing` takes


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
            moments = self._see(frames.flatten(0, 1)).unflatten(0, (len(batch), -1))
            features = self.gru(moments)[0].mean(dim=1)
        return self.head(self._drop(features, generator))

    def _see(self, frames: Float[Tensor, "frames channels height width"]) -> Float[Tensor, "frames features"]:
        for stage in self.stages:
            frames = stage(frames)
        return frames.mean(dim=(2, 3))

    def _drop(
        self, features: Float[Tensor, "batch features"], generator: torch.Generator | None
    ) -> Float[Tensor, "batch features"]:
        """Dropout, which like all that is random needs a generator."""
        share = self.settings.dropout
        if generator is None or share == 0:
            return features
        stays = torch.rand(features.shape, generator=generator, device=features.device) >= share
        return features * (stays / (1 - share)).to(features.dtype)


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


class BatchNorm(nn.BatchNorm2d):
    """Without the count of batches, which only a changing momentum needs: saved networks hold real numbers alone."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.num_batches_tracked = None

    def _load_from_state_dict(self, *arguments: Any) -> None:
        nn.Module._load_from_state_dict(self, *arguments)  # torch's own adds the count
