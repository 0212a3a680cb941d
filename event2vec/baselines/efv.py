"""EFV (Yuan et al., PRCV 2023): a graph of voxels and event images, fused by a Transformer with bottleneck tokens.

Published: the 512 voxels with most events as nodes, with up to 8 polarities as features and edges to about 32 voxels
within 3; graph convolutions with mixtures of Gaussians; 8 event images through a ResNet-18 that was trained on
ImageNet, 4 x 4 patches of its output as 32 tokens of width 768, three Transformer blocks; 32 bottleneck tokens meet
the images in a fourth block and the graph in a fifth; a layer of 512 on the means of both. 57.2 million parameters.
Kept: both branches, the Gaussian kernels, the two blocks that fuse.
Simplified: voxels divide the sensor and the duration into equal parts; images have a channel for each polarity;
nothing is learnt on ImageNet; the small size has three convolutions instead of ResNet-18, four images of 32 x 32, and
128 of 8 x 8 x 8 voxels.
"""

import math
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from event2vec.baselines.config import EfvConfig
from event2vec.baselines.layers import BatchNorm, PointNorm, residual_stages
from event2vec.baselines.transformer import Block
from event2vec.data.sampling import Sampling
from event2vec.events import EventBatch
from event2vec.model.classifier import Classifier, check_sensor
from event2vec.model.frames import make_frames, stretches_of_time

HELD = 8  # polarities that a voxel keeps
RADIUS = 3.0  # voxels within which they are neighbours
KERNELS = 5  # Gaussians of a graph convolution
WIDENING = 4


class Efv(Classifier):
    """Image tokens, a vector of the graph, and bottleneck tokens that attend to the images, then to the graph."""

    def __init__(self, config: EfvConfig, class_names: tuple[str, ...], sampling: Sampling) -> None:
        super().__init__(config, class_names, sampling)
        self.settings = config
        dim = config.dim
        self.images = Images(config.layout, dim)
        tokens = config.bins * self.images.tokens(config.side)
        self.position = nn.Parameter(torch.randn(1, tokens, dim) * 0.02)
        self.bottleneck = nn.Parameter(torch.randn(1, config.bottleneck, dim) * 0.02)
        self.blocks = nn.ModuleList(Block(dim, config.heads, WIDENING) for _ in range(config.blocks + 2))
        widths = [config.channels * 2**layer for layer in range(config.layers + 1)]
        self.first = GaussianConvolution(HELD, widths[0])
        self.first_norm = PointNorm(widths[0])
        self.layers = nn.ModuleList(GaussianBlock(*pair) for pair in pairwise(widths))
        self.graph_token = nn.Linear(widths[-1], dim)
        hidden = 512 if config.layout == "published" else dim
        self.head = nn.Sequential(nn.Linear(2 * dim, hidden), nn.ReLU(), nn.Linear(hidden, config.classes))

    def forward(self, batch: EventBatch, generator: torch.Generator | None = None) -> Float[Tensor, "batch classes"]:
        check_sensor(batch.sensor, self.config.sensor)
        frames = make_frames(batch, self.settings.bins, "bilinear", self.settings.side).log1p()
        tokens = self.images(frames.to(self.position.dtype)) + self.position
        *alone, with_images, with_graph = self.blocks
        for block in alone:
            tokens = block(tokens)
        count = tokens.shape[1]
        both = with_images(torch.cat([tokens, self.bottleneck.expand(batch.x.shape[0], -1, -1)], dim=1))
        seen = with_graph(torch.cat([both[:, count:], self._graph(batch)[:, None]], dim=1))[:, :-1]
        return self.head(torch.cat([both[:, :count].mean(dim=1), seen.mean(dim=1)], dim=-1))

    def _graph(self, batch: EventBatch) -> Float[Tensor, "batch dim"]:
        features, points, valid = self._voxels(batch)
        voxels = Voxels(valid, points)
        features = voxels.apply(F.elu, voxels.apply(self.first_norm, self.first(features, voxels)))
        for layer in self.layers:
            features = layer(features, voxels)
        total = (features * valid[..., None]).sum(dim=1)
        return self.graph_token(total / valid.sum(dim=1, keepdim=True).clamp(min=1))

    def _voxels(
        self, batch: EventBatch
    ) -> tuple[Float[Tensor, "batch voxels held"], Float[Tensor, "batch voxels 3"], Bool[Tensor, "batch voxels"]]:
        """The voxels with most events: the polarities of their first events, where they are, and which are real."""
        cells, moments = self.settings.cells, self.settings.moments
        x = (batch.x * cells / batch.sensor.width).long().clamp(max=cells - 1)
        y = (batch.y * cells / batch.sensor.height).long().clamp(max=cells - 1)
        number = (stretches_of_time(batch, moments) * cells + y) * cells + x
        whole = cells * cells * moments
        row = torch.arange(batch.x.shape[0], device=x.device)[:, None]
        key = (row * whole + number)[batch.valid]
        order = key.argsort(stable=True)  # events are in the order of time
        key, polarity = key[order], (2 * batch.p[batch.valid].float() - 1)[order]
        count = torch.bincount(key, minlength=batch.x.shape[0] * whole)
        rank = torch.arange(len(key), device=key.device) - (count.cumsum(0) - count)[key]
        early = rank < HELD
        held = polarity.new_zeros(len(count), HELD).index_put((key[early], rank[early]), polarity[early])
        most, place = count.view(batch.x.shape[0], whole).topk(min(self.settings.voxels, whole), dim=1)
        features = held.view(batch.x.shape[0], whole, HELD)[row, place].to(self.position.dtype)
        points = torch.stack([place % cells, place // cells % cells, place // cells**2], dim=-1).float()
        return features, points, most > 0


class Images(nn.Module):
    """Tokens of event images: convolutions, then a token for each patch of their output."""

    def __init__(self, layout: str, dim: int) -> None:
        super().__init__()
        self.layout = layout
        if layout == "published":
            self.stem = nn.Sequential(nn.Conv2d(2, 64, 7, 2, 3, bias=False), BatchNorm(64), nn.ReLU())
            self.stages = residual_stages([64, 128, 256, 512], [2, 2, 2, 2], 64)
            self.patch = nn.Conv2d(512, dim, 4, 4)
        else:
            sizes = ((2, 16), (16, 32), (32, dim))
            parts = [
                nn.Sequential(nn.Conv2d(*size, 3, 2, 1, bias=False), BatchNorm(size[1]), nn.ReLU()) for size in sizes
            ]
            self.stem, self.stages = parts[0], nn.Sequential(*parts[1:])
            self.patch = nn.Conv2d(dim, dim, 2, 2)

    def tokens(self, side: int) -> int:
        """The tokens of each image."""
        step, patch = (32, 4) if self.layout == "published" else (8, 2)
        return max(math.ceil(side / step) // patch, 1) ** 2

    def forward(self, frames: Float[Tensor, "batch bins 2 height width"]) -> Float[Tensor, "batch tokens dim"]:
        images = self.stem(frames.flatten(0, 1))
        images = F.max_pool2d(images, 3, 2, 1) if self.layout == "published" else images
        images = self.stages(images)
        least = self.patch.kernel_size[0]
        images = F.pad(images, (0, max(least - images.shape[3], 0), 0, max(least - images.shape[2], 0)))
        return self.patch(images).flatten(2).mT.unflatten(0, frames.shape[:2]).flatten(1, 2)


class Voxels:
    """Positions of voxels relative to each other, and which are neighbours: few enough for matrices of all pairs."""

    def __init__(self, valid: Bool[Tensor, "batch voxels"], points: Float[Tensor, "batch voxels 3"]) -> None:
        self.valid = valid
        away = (points[:, None] - points[:, :, None]) / RADIUS
        self.shape = torch.cat([away.square(), away], dim=-1)
        near = (away.square().sum(dim=-1) <= 1) & valid[:, None] & valid[..., None]
        near = near & ~torch.eye(valid.shape[1], dtype=torch.bool, device=valid.device)
        self.share = near / near.sum(dim=-1, keepdim=True).clamp(min=1)

    def apply(
        self, change: Callable[[Tensor], Tensor], features: Float[Tensor, "batch voxels features"]
    ) -> Float[Tensor, "batch voxels features"]:
        """Apply a layer to real voxels alone, so that padding does not count in norms."""
        changed = torch.zeros_like(features)
        changed[self.valid] = change(features[self.valid])
        return changed


class GaussianConvolution(nn.Module):
    """The mean over neighbours, weighted by Gaussians of the relative position, and the voxel itself."""

    def __init__(self, narrow: int, wide: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(KERNELS * narrow, wide) / (KERNELS * narrow) ** 0.5)
        self.centre, self.width = nn.Parameter(torch.randn(KERNELS, 3)), nn.Parameter(torch.ones(KERNELS, 3))
        self.itself = nn.Linear(narrow, wide)

    def forward(
        self, features: Float[Tensor, "batch voxels narrow"], voxels: Voxels
    ) -> Float[Tensor, "batch voxels wide"]:
        narrowness = (self.width.abs() + 1e-3) ** -2
        # The square of (away - centre) / width, multiplied out: one product for all pairs and Gaussians.
        exponent = voxels.shape.to(features.dtype) @ torch.cat([narrowness, -2 * narrowness * self.centre], dim=-1).T
        exponent = exponent + (narrowness * self.centre.square()).sum(dim=-1)
        weight = (-0.5 * exponent).exp() * voxels.share[..., None].to(features.dtype)
        mixed = weight.permute(0, 3, 1, 2) @ features[:, None]
        return mixed.transpose(1, 2).flatten(2) @ self.weight + self.itself(features)


class GaussianBlock(nn.Module):
    """Two Gaussian convolutions and a linear layer past them, added."""

    def __init__(self, narrow: int, wide: int) -> None:
        super().__init__()
        self.first, self.second = GaussianConvolution(narrow, wide), GaussianConvolution(wide, wide)
        self.shortcut = nn.Linear(narrow, wide)
        self.norms = nn.ModuleList(PointNorm(wide) for _ in range(3))

    def forward(
        self, features: Float[Tensor, "batch voxels narrow"], voxels: Voxels
    ) -> Float[Tensor, "batch voxels wide"]:
        inside = voxels.apply(F.elu, voxels.apply(self.norms[0], self.first(features, voxels)))
        past = voxels.apply(self.norms[2], self.shortcut(features))
        return F.elu(voxels.apply(self.norms[1], self.second(inside, voxels)) + past)
