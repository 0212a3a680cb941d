"""A residual network on a voxel grid: the classifier in a study of sampling strategies (Araghi et al. 2025).

Published: each event adds its time, weighted by a small network of the distance in time, to each of 9 bins of its
polarity (EST); the grid is scaled to 224 x 224 and read by a ResNet-34 that was trained on ImageNet.
Kept: the grid of 9 x 2 channels, events weighted by their time, one sampling strategy for training and testing
(`sampling.method`: random, temporal, spatial or density; see `data/thinning.py`).
Simplified: the weights in time are the triangle that the published network is fitted to at first; nothing is learnt
on ImageNet; the small size has three residual blocks, frames of 32 x 32 and 4,096 random events.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from event2vec.baselines.config import VoxelGridConfig
from event2vec.baselines.layers import BatchNorm, residual_stages
from event2vec.data.sampling import Sampling
from event2vec.events import EventBatch
from event2vec.model.classifier import Classifier, check_sensor
from event2vec.model.frames import elapsed, voxel_grid

BLOCKS = {"small": [1, 1, 1], "resnet34": [3, 4, 6, 3]}  # in each stage


class VoxelGrid(Classifier):
    """A grid over time, residual blocks, the mean over pixels and a linear layer."""

    def __init__(self, config: VoxelGridConfig, class_names: tuple[str, ...], sampling: Sampling) -> None:
        super().__init__(config, class_names, sampling)
        self.settings = config
        blocks = BLOCKS[config.layout]
        widths = [config.channels * 2**stage for stage in range(len(blocks))]
        kernel = 7 if config.layout == "resnet34" else 3
        self.stem = nn.Conv2d(2 * config.bins, config.channels, kernel, 2, kernel // 2, bias=False)
        self.stem_norm = BatchNorm(config.channels)
        self.stages = residual_stages(widths, blocks, config.channels)
        self.head = nn.Linear(widths[-1], config.classes)

    def forward(self, batch: EventBatch, generator: torch.Generator | None = None) -> Float[Tensor, "batch classes"]:
        check_sensor(batch.sensor, self.config.sensor)
        grid = voxel_grid(batch, self.settings.bins, self.settings.side, elapsed(batch)).flatten(1, 2)
        frames = F.relu(self.stem_norm(self.stem(grid.to(self.head.weight.dtype))))
        if self.settings.layout == "resnet34":
            frames = F.max_pool2d(frames, 3, 2, 1)
        return self.head(self.stages(frames).mean(dim=(2, 3)))
