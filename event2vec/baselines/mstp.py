"""MSTP (Tan et al., CVPR 2022): two ResNet-18s, over few and over many frames, and GRUs in both directions.

Published: voxel grids of 30 and of 210 frames of 88 x 88; for each a ResNet-18 whose first convolution spans 5
frames, the fast one with a quarter of the channels; after the first pooling and after each stage the fast branch is
brought to the slow rate by a convolution over time, fused with the slow one by attention, and added to it; three
layers of 1,024 units in each direction, the mean over time of a linear layer. 62.6 million parameters.
Kept: two rates, two branches, fusion after the pooling and after each stage, GRUs in both directions.
Simplified: the attention of the fusion is one gate from the mean over the frame; frames of equal duration over the
whole recording, and 4 instead of 7 fast frames for each slow one, as in their training example; the small size has 8
and 32 frames of 32 x 32, one block in each stage and one layer of 64 units.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from event2vec.baselines.config import MstpConfig
from event2vec.baselines.layers import BatchNorm, VolumeNorm, drop, residual_stages
from event2vec.data.sampling import Sampling
from event2vec.events import EventBatch
from event2vec.model.classifier import Classifier, check_sensor
from event2vec.model.frames import voxel_grid

STAGES = 4
FAST = 4  # times fewer channels in the fast branch
Maps = Float[Tensor, "batch _ _ _ _"]  # time, channels, height, width


class Mstp(Classifier):
    """Two branches of residual stages that meet after each stage, GRUs in both directions, the mean over time."""

    def __init__(self, config: MstpConfig, class_names: tuple[str, ...], sampling: Sampling) -> None:
        super().__init__(config, class_names, sampling)
        self.settings = config
        slow = [config.channels * 2**stage for stage in range(STAGES)]
        fast = [width // FAST for width in slow]
        blocks = [config.blocks] * STAGES
        self.slow_stem, self.fast_stem = Stem(slow[0]), Stem(fast[0])
        self.slow, self.fast = residual_stages(slow, blocks, slow[0]), residual_stages(fast, blocks, fast[0])
        widths = [(slow[0], fast[0]), *zip(slow, fast, strict=True)]
        self.meet = nn.ModuleList(Meeting(*pair, config.rate) for pair in widths)
        features = slow[-1] + 2 * fast[-1]
        self.gru = nn.ModuleList(
            nn.GRU(width, config.units, batch_first=True, bidirectional=True)
            for width in [features] + [2 * config.units] * (config.layers - 1)
        )
        self.head = nn.Linear(2 * config.units, config.classes)

    def forward(self, batch: EventBatch, generator: torch.Generator | None = None) -> Float[Tensor, "batch classes"]:
        check_sensor(batch.sensor, self.config.sensor)
        bins, rate, side = self.settings.bins, self.settings.rate, self.settings.side
        slow = self.slow_stem(self._frames(batch, bins, side))
        fast = self.fast_stem(self._frames(batch, bins * rate, side))
        slow, _ = self.meet[0](slow, fast)
        brought = slow
        for number in range(STAGES):
            slow = self.slow[number](slow.flatten(0, 1)).unflatten(0, slow.shape[:2])
            fast = self.fast[number](fast.flatten(0, 1)).unflatten(0, fast.shape[:2])
            slow, brought = self.meet[number + 1](slow, fast)
        moments = torch.cat([slow, brought], dim=2).mean(dim=(3, 4))
        for number, layer in enumerate(self.gru):
            moments = drop(moments, self.settings.dropout, generator) if number else moments
            moments = layer(moments)[0]
        return self.head(drop(moments, 0.5, generator)).mean(dim=1)

    def _frames(self, batch: EventBatch, bins: int, side: int) -> Maps:
        """Rising events count 1, falling ones -1."""
        grid = voxel_grid(batch, bins, side)
        return (grid[:, :, 1:] - grid[:, :, :1]).to(self.head.weight.dtype)


class Stem(nn.Module):
    """A convolution over 5 frames and 7 x 7 pixels, a norm and max pooling."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv3d(1, channels, (5, 7, 7), (1, 2, 2), (2, 3, 3), bias=False)
        self.norm = VolumeNorm(channels)

    def forward(self, frames: Maps) -> Maps:
        volume = F.relu(self.norm(self.convolution(frames.transpose(1, 2))))
        return F.max_pool3d(volume, (1, 3, 3), (1, 2, 2), (0, 1, 1)).transpose(1, 2)


class Meeting(nn.Module):
    """The fast branch at the slow rate, and the slow branch with what it gains from it through a gate."""

    def __init__(self, slow: int, fast: int, rate: int) -> None:
        super().__init__()
        kernel = 2 * rate - 1
        self.slower = nn.Conv3d(fast, 2 * fast, (kernel, 1, 1), (rate, 1, 1), (kernel // 2, 0, 0), bias=False)
        self.slower_norm = VolumeNorm(2 * fast)
        self.fuse = nn.Conv2d(slow + 2 * fast, slow, 1, bias=False)
        self.fuse_norm = BatchNorm(slow)
        self.near, self.whole = nn.Conv2d(slow, slow, 1), nn.Linear(slow, slow)

    def forward(self, slow: Maps, fast: Maps) -> tuple[Maps, Maps]:
        brought = F.relu(self.slower_norm(self.slower(fast.transpose(1, 2)))).transpose(1, 2)
        both = torch.cat([slow, brought], dim=2).flatten(0, 1)
        fused = F.relu(self.fuse_norm(self.fuse(both)))
        gate = (self.near(fused) + self.whole(fused.mean(dim=(2, 3)))[..., None, None]).sigmoid()
        return slow + (gate * fused).unflatten(0, slow.shape[:2]), brought
