"""SpikGRU2+ (Dampfhoffer et al., CVPRW 2024): a spiking ResNet-18 and spiking GRUs in both directions.

Published: 90 frames of 88 x 88 in steps of 13.3 ms; a convolution over 5 frames and 7 x 7 pixels, ResNet-18 with
leaky neurons after each convolution, whose leak is learnt for each channel; three layers of 1,024 units in each
direction whose spikes are -1, 0 or 1; the mean over time of a linear layer. 58.62 million parameters: this file has
the same number.
Kept: the network, its neurons and its cell.
Simplified: frames of equal duration over the whole recording; augmentation is that of all networks; one training
instead of a second one at a lower rate; the small size has one block in each stage, one layer of 64 units and 16 frames
of 32 x 32.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from event2vec.baselines.config import SpikGruConfig
from event2vec.baselines.layers import BatchNorm, VolumeNorm, drop, residual_stages
from event2vec.baselines.spiking import AdaptiveNeurons, BumpSpike, fire, keep_in_unit_range
from event2vec.data.sampling import Sampling
from event2vec.events import EventBatch
from event2vec.model.classifier import Classifier, check_sensor
from event2vec.model.frames import make_frames

STAGES = 4
Maps = Float[Tensor, "time batch _ _ _"]  # channels, height, width


class SpikGru(Classifier):
    """A convolution over time, spiking residual blocks, spiking GRUs in both directions, the mean over time."""

    def __init__(self, config: SpikGruConfig, class_names: tuple[str, ...], sampling: Sampling) -> None:
        super().__init__(config, class_names, sampling)
        self.settings = config
        self.stem = nn.Conv3d(2, config.channels, (5, 7, 7), (1, 2, 2), (2, 3, 3), bias=False)
        self.stem_norm = VolumeNorm(config.channels)
        self.stem_neurons = AdaptiveNeurons(config.channels)
        self.whole = AdaptiveNeurons(None)
        widths = [config.channels * 2**stage for stage in range(STAGES)]
        self.blocks = residual_stages(widths, [config.blocks] * STAGES, config.channels, SpikingBlock)
        given = [widths[-1]] + [2 * config.units] * (config.layers - 1)
        self.layers = nn.ModuleList(BothWays(width, config.units) for width in given)
        self.head = nn.Linear(2 * config.units, config.classes)

    def forward(self, batch: EventBatch, generator: torch.Generator | None = None) -> Float[Tensor, "batch classes"]:
        check_sensor(batch.sensor, self.config.sensor)
        frames = make_frames(batch, self.settings.bins, "bilinear", self.settings.side)
        signs = frames.new_tensor([-1.0, 1.0])[:, None, None]
        volume = (frames * signs).transpose(1, 2).to(self.head.weight.dtype)
        maps = self.stem_neurons(self.stem_norm(self.stem(volume)).permute(2, 0, 1, 3, 4))
        pooled = F.avg_pool2d(maps.flatten(0, 1), 3, 2, 1).unflatten(0, maps.shape[:2])
        maps = self.blocks(self.whole(pooled))
        spikes = self.whole(maps.mean(dim=(3, 4)))
        for number, layer in enumerate(self.layers):
            spikes = layer(drop(spikes, self.settings.dropout, generator) if number else spikes)
        return self.head(drop(spikes, 0.5, generator)).mean(dim=0)


class SpikingBlock(nn.Module):
    """The block of ResNet-18 with neurons after each convolution; what skips is added before the second ones."""

    def __init__(self, narrow: int, wide: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(narrow, wide, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(wide, wide, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(BatchNorm(wide) for _ in range(2))
        self.neurons = nn.ModuleList(AdaptiveNeurons(wide) for _ in range(2))
        self.shortcut = None
        if stride > 1 or narrow != wide:
            self.shortcut = nn.Sequential(nn.Conv2d(narrow, wide, 1, stride, bias=False), BatchNorm(wide))

    def forward(self, maps: Maps) -> Maps:
        shape = maps.shape[:2]
        frames = maps.flatten(0, 1)
        inside = self.neurons[0](self.norms[0](self.first(frames)).unflatten(0, shape))
        past = frames if self.shortcut is None else self.shortcut(frames)
        return self.neurons[1]((self.norms[1](self.second(inside.flatten(0, 1))) + past).unflatten(0, shape))


class BothWays(nn.Module):
    """A spiking GRU forwards in time and one backwards, side by side."""

    def __init__(self, features: int, units: int) -> None:
        super().__init__()
        self.forwards, self.backwards = SpikingGru(features, units), SpikingGru(features, units)

    def forward(self, given: Float[Tensor, "time batch features"]) -> Float[Tensor, "time batch doubled"]:
        return torch.cat([self.forwards(given), self.backwards(given.flip(0)).flip(0)], dim=-1)


class SpikingGru(nn.Module):
    """i = alpha i + W x + r U y; v = z v + (1 - z) i - y; spikes y of -1, 0 and 1 at the thresholds -1 and 1."""

    def __init__(self, features: int, units: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(features, 3 * units)
        self.recurrent = nn.Linear(units, 3 * units, bias=False)
        self.alpha = nn.Parameter(torch.full((units,), 0.9))

    def forward(self, given: Float[Tensor, "time batch features"]) -> Float[Tensor, "time batch units"]:
        inputs = self.inputs(given)
        i = v = y = inputs.new_zeros(inputs.shape[1], len(self.alpha))
        alpha = keep_in_unit_range(self.alpha)
        spikes = []
        for x in inputs.unbind():
            (x_z, x_r, x_i), (y_z, y_r, y_i) = x.chunk(3, dim=-1), self.recurrent(y).chunk(3, dim=-1)
            z, r = (x_z + y_z).sigmoid(), (x_r + y_r).sigmoid()
            i = alpha * i + x_i + r * y_i
            v = z * v + (1 - z) * i - y
            y = fire(v - 1, BumpSpike) - fire(-v - 1, BumpSpike)
            spikes.append(y)
        return torch.stack(spikes)
