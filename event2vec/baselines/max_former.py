"""Max-Former (Fang et al., NeurIPS 2025): a spiking Transformer that keeps high frequencies by max pooling.

Published: 16 frames of 128 x 128 with equal numbers of events; four convolutions with max pooling as patch embedding;
a block with depthwise convolution, then one with spiking attention (no softmax) at half the resolution; leaky neurons
before each convolution but the first, shortcuts between what comes before the neurons. 1,455,883 parameters with 11
classes: this file has the same number. Trained with mixup, cutmix, flips, shears, shifts, rotations and cutouts.
Kept: the network as it is.
Simplified: the small size has 8 frames of 32 x 32 and a quarter of the channels; augmentation is that of all
networks.
"""

import copy

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from event2vec.baselines.config import MaxFormerConfig
from event2vec.baselines.layers import BatchNorm
from event2vec.baselines.spiking import LeakyNeurons
from event2vec.data.sampling import Sampling
from event2vec.events import EventBatch
from event2vec.model.classifier import Classifier, check_sensor
from event2vec.model.frames import coarsen, count_events, stretches_of_events

Maps = Float[Tensor, "time batch _ _ _"]  # channels, height, width


class MaxFormer(Classifier):
    """Patch embedding, a block of depthwise convolution, a block of spiking attention, and the mean over time."""

    def __init__(self, config: MaxFormerConfig, class_names: tuple[str, ...], sampling: Sampling) -> None:
        super().__init__(config, class_names, sampling)
        self.settings = config
        self.resolution = config.side  # of frames, which are scaled down to it and up again (Figure 4)
        dim = config.dim
        self.embed = PatchEmbedding(dim // 2)
        self.near = nn.Sequential(Mixer(dim // 2), ChannelMixer(dim // 2))
        self.down = Downsampling(dim // 2, dim)
        self.far = nn.Sequential(Attention(dim, config.heads), ChannelMixer(dim))
        self.last = LeakyNeurons()
        self.head = nn.Linear(dim, config.classes)

    def forward(self, batch: EventBatch, generator: torch.Generator | None = None) -> Float[Tensor, "batch classes"]:
        check_sensor(batch.sensor, self.config.sensor)
        bins, side = self.settings.bins, self.settings.side
        frames = count_events(batch, stretches_of_events(batch, bins), bins, "bilinear", side)
        if self.resolution < side:
            frames = coarsen(frames, self.resolution)
        frames = frames.to(self.head.weight.dtype).transpose(0, 1)
        maps = self.far(self.down(self.near(self.embed(frames))))
        return self.head(self.last(maps.mean(dim=(3, 4))).mean(dim=0))

    def at_resolution(self, pixels: int) -> "MaxFormer":
        """The same network, which reads frames that were scaled down to this many pixels and up again."""
        other = copy.copy(self)
        other.resolution = pixels
        return other


class SpikingConvolution(nn.Module):
    """Leaky neurons, a convolution of their spikes, a norm and max pooling if asked for."""

    def __init__(self, narrow: int, wide: int, kernel: int = 1, pool: bool = False, **more: int | bool) -> None:
        super().__init__()
        self.neurons = LeakyNeurons()
        self.convolution = PooledConvolution(narrow, wide, kernel, pool, **more)

    def forward(self, maps: Maps) -> Maps:
        return self.convolution(self.neurons(maps))


class PooledConvolution(nn.Module):
    """A convolution of each frame with a norm, and max pooling if asked for."""

    def __init__(self, narrow: int, wide: int, kernel: int, pool: bool = False, **more: int | bool) -> None:
        super().__init__()
        self.pool = pool
        self.convolution = nn.Conv2d(narrow, wide, kernel, padding=kernel // 2, **({"bias": False} | more))  # type: ignore[arg-type]
        self.norm = BatchNorm(wide)

    def forward(self, maps: Maps) -> Maps:
        frames = self.norm(self.convolution(maps.flatten(0, 1)))
        frames = F.max_pool2d(frames, 3, 2, 1) if self.pool else frames
        return frames.unflatten(0, maps.shape[:2])


class PatchEmbedding(nn.Module):
    """Four convolutions, an eighth of the resolution; spikes of the second skip the last two."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first = PooledConvolution(2, dim // 8, 3)
        self.second = SpikingConvolution(dim // 8, dim // 4, 3, pool=True)
        self.neurons = LeakyNeurons()
        self.third = PooledConvolution(dim // 4, dim // 2, 3, pool=True)
        self.fourth = SpikingConvolution(dim // 2, dim, 3, pool=True)
        self.shortcut = PooledConvolution(dim // 4, dim, 1, stride=4)

    def forward(self, frames: Maps) -> Maps:
        spikes = self.neurons(self.second(self.first(frames)))
        return self.fourth(self.third(spikes)) + self.shortcut(spikes)


class Mixer(nn.Module):
    """A depthwise convolution: neighbours, each channel by itself."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.depthwise = SpikingConvolution(dim, dim, 3, groups=dim, bias=True)

    def forward(self, maps: Maps) -> Maps:
        return maps + self.depthwise(maps)


class ChannelMixer(nn.Module):
    """Channels of each place, twice, each time added to what came in."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(SpikingConvolution(dim, dim, bias=True) for _ in range(2))

    def forward(self, maps: Maps) -> Maps:
        for layer in self.layers:
            maps = maps + layer(maps)
        return maps


class Downsampling(nn.Module):
    """Half the resolution and twice the channels."""

    def __init__(self, narrow: int, wide: int) -> None:
        super().__init__()
        self.neurons = LeakyNeurons()
        self.first = PooledConvolution(narrow, wide, 3, pool=True)
        self.second = SpikingConvolution(wide, wide, 3)
        self.shortcut = PooledConvolution(narrow, wide, 1, pool=True)

    def forward(self, maps: Maps) -> Maps:
        spikes = self.neurons(maps)
        return self.second(self.first(spikes)) + self.shortcut(spikes)


class Attention(nn.Module):
    """Spiking attention between the places of a frame, without softmax: q (k^T v)."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.neurons = LeakyNeurons()
        self.q, self.k, self.v = (PooledConvolution(dim, dim, 1) for _ in range(3))
        self.neurons_of_each = LeakyNeurons()
        self.neurons_of_all = LeakyNeurons(threshold=0.5)
        self.out = PooledConvolution(dim, dim, 1, bias=True)

    def forward(self, maps: Maps) -> Maps:
        spikes = self.neurons(maps)
        q, k, v = (self._by_head(self.neurons_of_each(part(spikes))) for part in (self.q, self.k, self.v))
        mixed = (q @ (k.mT @ v)) * 0.125
        return maps + self.out(self.neurons_of_all(mixed.mT.reshape(maps.shape)))

    def _by_head(self, spikes: Maps) -> Float[Tensor, "time batch heads places width"]:
        return spikes.flatten(3).unflatten(2, (self.heads, -1)).mT
