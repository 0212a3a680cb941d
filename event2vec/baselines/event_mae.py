"""Event MAE (ICASSP 2025), after Point-MAE: patches of nearby events as tokens of a Transformer.

Published: events as points in x, y and t; patch centres chosen against noise by fits of planes; a small PointNet
turns the events of a patch into a token; a masked auto-encoder is pre-trained on point clouds of objects (ShapeNet)
and fine-tuned on events. Its sizes are not published; those of Point-MAE are 64 patches of 32 points, 12 blocks of
width 384.
Kept: patches around centres far from each other, among points whose neighbours lie in a plane; the PointNet;
positions added before every block; a head on the class token and the maximum over tokens.
Simplified: a quarter of the points, those whose neighbours fit a plane worst, cannot be centres. There is no masked
pre-training: `event2vec pretrain` hides single events of an event2vec network, and has no patches to hide.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from event2vec.baselines.config import EventMaeConfig
from event2vec.baselines.layers import PointNorm
from event2vec.baselines.points import PADDING, farthest, nearest, positions
from event2vec.baselines.transformer import Block
from event2vec.data.sampling import Sampling
from event2vec.events import EventBatch
from event2vec.model.classifier import Classifier, check_sensor

AROUND = 8  # neighbours through which a plane is laid
NOISE = 0.25  # of the points cannot be centres


class EventMae(Classifier):
    """Patches, a token for each, a Transformer, and a head on the class token and the maximum."""

    def __init__(self, config: EventMaeConfig, class_names: tuple[str, ...], sampling: Sampling) -> None:
        super().__init__(config, class_names, sampling)
        self.settings = config
        dim = config.dim
        self.embed = PatchNetwork(dim)
        self.place = nn.Sequential(nn.Linear(3, 128), nn.GELU(), nn.Linear(128, dim))
        self.class_token, self.class_place = (nn.Parameter(torch.randn(1, 1, dim) * 0.02) for _ in range(2))
        self.blocks = nn.ModuleList(Block(dim, config.heads, config.widening) for _ in range(config.blocks))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, config.classes))

    def forward(self, batch: EventBatch, generator: torch.Generator | None = None) -> Float[Tensor, "batch classes"]:
        check_sensor(batch.sensor, self.config.sensor)
        points = positions(batch, 3.0, 2.0) - 1  # each axis from -1 to 1
        centre, patch = self._patches(points, batch)
        dtype = self.class_token.dtype
        tokens = torch.cat([self.class_token.expand(len(batch), -1, -1), self.embed(patch.to(dtype))], dim=1)
        place = torch.cat([self.class_place.expand(len(batch), -1, -1), self.place(centre.to(dtype))], dim=1)
        for block in self.blocks:
            tokens = block(tokens + place)
        tokens = self.norm(tokens)
        return self.head(torch.cat([tokens[:, 0], tokens[:, 1:].amax(dim=1)], dim=-1))

    @torch.no_grad()
    def _patches(
        self, points: Float[Tensor, "batch length 3"], batch: EventBatch
    ) -> tuple[Float[Tensor, "batch patches 3"], Float[Tensor, "batch patches patch 4"]]:
        """Centres, and the events nearest to each: where they are from there, and their polarity."""
        if points.shape[1] == 0:
            points, valid, p = F.pad(points, (0, 0, 0, 1)), F.pad(batch.valid, (0, 1)), F.pad(batch.p, (0, 1))
        else:
            valid, p = batch.valid, batch.p
        rows = torch.arange(len(points), device=points.device)[:, None]
        centre = points[rows, farthest(points, inliers(points, valid), self.settings.patches)]
        distance, place = nearest(centre, points, valid, self.settings.patch)
        place = torch.where(distance < PADDING, place, place[..., :1])  # too few events: the nearest again
        around = points[rows[..., None], place] - centre[:, :, None]
        polarity = 2 * p[rows[..., None], place].to(points.dtype) - 1
        return centre, torch.cat([around, polarity[..., None]], dim=-1)


def inliers(
    points: Float[Tensor, "batch length 3"], valid: Bool[Tensor, "batch length"]
) -> Bool[Tensor, "batch length"]:
    """Points whose neighbours lie in a plane, better than those of the worst quarter."""
    distance, place = nearest(points, points, valid, AROUND)
    rows = torch.arange(len(points), device=points.device)[:, None, None]
    near = torch.where((distance < PADDING)[..., None], points[rows, place], points[:, :, None])
    away = near - near.mean(dim=2, keepdim=True)
    residual = torch.linalg.eigvalsh(away.mT @ away)[..., 0]  # the smallest: how far points lie off the plane
    order = residual.masked_fill(~valid, torch.inf).argsort(dim=1).argsort(dim=1)
    count = valid.sum(dim=1, keepdim=True)
    return valid & (order < (count * (1 - NOISE)).ceil())


class PatchNetwork(nn.Module):
    """A token from the events of a patch, in any order: PointNet, twice."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        inner = min(dim, 256)
        self.first = nn.ModuleList([nn.Linear(4, inner // 2), nn.Linear(inner // 2, inner)])
        self.second = nn.ModuleList([nn.Linear(2 * inner, 2 * inner), nn.Linear(2 * inner, dim)])
        self.norms = nn.ModuleList([PointNorm(inner // 2), PointNorm(2 * inner)])

    def forward(self, patches: Float[Tensor, "batch patches patch 4"]) -> Float[Tensor, "batch patches dim"]:
        shape, points = patches.shape[:3], patches.flatten(0, 2)
        points = self.first[1](F.relu(self.norms[0](self.first[0](points)))).unflatten(0, shape)
        both = torch.cat([points.amax(dim=2, keepdim=True).expand_as(points), points], dim=-1).flatten(0, 2)
        both = self.second[1](F.relu(self.norms[1](self.second[0](both))))
        return both.unflatten(0, shape).amax(dim=2)
