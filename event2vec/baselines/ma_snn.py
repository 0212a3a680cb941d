"""MA-SNN (Yao et al., TPAMI 2023): spiking convolutions with attention over time, channels and places.

Published: 60 frames of 32 x 32 in steps of 25 ms; three convolutions of 64, 128 and 128 channels, a layer of 256 and
one of the classes, all of leaky neurons that are clipped at their threshold; before each layer of neurons, attention
over time, then channels, then places. The answer is the mean of the last layer's spikes. 2.34 million parameters.
Kept: the network, its neurons and its attention.
Simplified: frames of equal duration over the whole recording instead of ten random clips; cross entropy of the rates,
which are multiplied by 10, instead of their squared error; the small size has 10 frames and pools after each
convolution.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from event2vec.baselines.config import MaSnnConfig
from event2vec.baselines.layers import BatchNorm, PointNorm
from event2vec.baselines.spiking import ClippedNeurons
from event2vec.data.sampling import Sampling
from event2vec.events import EventBatch
from event2vec.model.classifier import Classifier, check_sensor
from event2vec.model.frames import make_frames

RATE = 10.0  # logits of a neuron that fires in every step: rates alone would leave all classes nearly equal

Maps = Float[Tensor, "time batch _ _ _"]  # channels, height, width


class MaSnn(Classifier):
    """Spiking convolutions with attention, two spiking layers, and the mean over time."""

    def __init__(self, config: MaSnnConfig, class_names: tuple[str, ...], sampling: Sampling) -> None:
        super().__init__(config, class_names, sampling)
        self.settings = config
        bins, channels = config.bins, config.channels
        widths = (2, channels, 2 * channels, 2 * channels)
        pools = (config.layout == "small", True, True)
        self.convolutions = nn.ModuleList(
            SpikingStage(widths[number], widths[number + 1], bins, pool) for number, pool in enumerate(pools)
        )
        side = config.side // 2 ** sum(pools)
        self.hidden = nn.Linear(widths[-1] * side * side, config.hidden)
        self.hidden_norm = PointNorm(config.hidden)
        self.over_time = TimeAttention(bins)
        self.head = nn.Linear(config.hidden, config.classes)
        self.head_norm = PointNorm(config.classes)
        self.neurons = ClippedNeurons()

    def forward(self, batch: EventBatch, generator: torch.Generator | None = None) -> Float[Tensor, "batch classes"]:
        check_sensor(batch.sensor, self.config.sensor)
        frames = make_frames(batch, self.settings.bins, "nearest", self.settings.side).transpose(0, 1)
        maps = frames.to(self.head.weight.dtype)
        for stage in self.convolutions:
            maps = stage(maps)
        flat = maps.flatten(0, 1).flatten(1)
        hidden = self.hidden_norm(self.hidden(flat)).unflatten(0, maps.shape[:2])
        spikes = self.neurons(F.relu(self.over_time(hidden)))
        out = self.head_norm(self.head(spikes.flatten(0, 1))).unflatten(0, maps.shape[:2])
        return RATE * self.neurons(out).mean(dim=0)


class SpikingStage(nn.Module):
    """A convolution with its norm, pooling, three kinds of attention and neurons."""

    def __init__(self, narrow: int, wide: int, bins: int, pool: bool) -> None:
        super().__init__()
        self.pool = pool
        self.convolution = nn.Conv2d(narrow, wide, 3, padding=1)
        self.norm = BatchNorm(wide)
        self.over_time = TimeAttention(bins)
        self.over_channels = ChannelAttention(wide)
        self.over_places = PlaceAttention()
        self.neurons = ClippedNeurons()

    def forward(self, maps: Maps) -> Maps:
        frames = self.norm(self.convolution(maps.flatten(0, 1)))
        frames = F.avg_pool2d(frames, 2) if self.pool else frames
        maps = frames.unflatten(0, maps.shape[:2])
        return self.neurons(F.relu(self.over_places(self.over_channels(self.over_time(maps)))))


class TimeAttention(nn.Module):
    """How much each step counts, from the mean and the maximum of each step."""

    def __init__(self, bins: int) -> None:
        super().__init__()
        self.weigh = nn.Sequential(nn.Linear(bins, max(bins // 5, 1)), nn.ReLU(), nn.Linear(max(bins // 5, 1), bins))

    def forward(self, maps: Float[Tensor, "time batch *features"]) -> Float[Tensor, "time batch *features"]:
        flat = maps.flatten(2).transpose(0, 1)
        weight = (self.weigh(flat.mean(dim=2)) + self.weigh(flat.amax(dim=2))).sigmoid()
        return maps * weight.T.reshape(*maps.shape[:2], *[1] * (maps.ndim - 2))


class ChannelAttention(nn.Module):
    """How much each channel counts, from its mean and its maximum."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weigh = nn.Sequential(nn.Linear(channels, channels // 8), nn.ReLU(), nn.Linear(channels // 8, channels))

    def forward(self, maps: Maps) -> Maps:
        weight = (self.weigh(maps.mean(dim=(0, 3, 4))) + self.weigh(maps.amax(dim=(0, 3, 4)))).sigmoid()
        return maps * weight[None, :, :, None, None]


class PlaceAttention(nn.Module):
    """How much each place counts, from the mean and the maximum over time and channels around it."""

    def __init__(self) -> None:
        super().__init__()
        self.weigh = nn.Conv2d(2, 1, 3, padding=1)

    def forward(self, maps: Maps) -> Maps:
        seen = torch.stack([maps.mean(dim=(0, 2)), maps.amax(dim=(0, 2))], dim=1)
        return maps * self.weigh(seen).sigmoid()[None]
