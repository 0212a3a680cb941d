"""Event MAE (ICASSP 2025), after Point-MAE: patches of nearby events as tokens of a Transformer.

Published: events as points in x, y and t; patch centres chosen against noise by fits of planes; a small PointNet
turns the events of a patch into a token; a masked auto-encoder is pre-trained on point clouds of objects (ShapeNet)
and fine-tuned on events. Its sizes are not published; those of Point-MAE are 64 patches of 32 points, 12 blocks of
width 384.
Kept: patches around centres far from each other, among points whose neighbours lie in a plane; the PointNet;
positions added before every block; a head on the class token and the maximum over tokens. In pre-training, the
encoder sees the visible patches alone, and a decoder predicts the events of the hidden ones (Chamfer distance).
Simplified: a quarter of the points, those whose neighbours fit a plane worst, cannot be centres. It is pre-trained on
the recordings that it is trained on, not on objects; `event2vec compare` does so for the first half of its time:

    event2vec pretrain event_mae_pretrain --data my_recordings/ --out runs/mae
    event2vec train event_mae --data my_recordings/ --init runs/mae
"""

from typing import NamedTuple

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
from event2vec.model.masked import MaskedModel

AROUND = 8  # neighbours through which a plane is laid
NOISE = 0.25  # of the points cannot be centres


class Patches(NamedTuple):
    """The patches of each recording: where their centres are, and their events as seen from there."""

    centre: Float[Tensor, "batch patches 3"]
    events: Float[Tensor, "batch patches patch 4"]  # x, y and t from the centre, and polarity


class EventMae(Classifier):
    """Patches, a token for each, a Transformer, and a head on the class token and the maximum."""

    reusable = ("encoder.",)

    def __init__(self, config: EventMaeConfig, class_names: tuple[str, ...], sampling: Sampling) -> None:
        super().__init__(config, class_names, sampling)
        self.settings = config
        dim = config.dim
        self.encoder = PatchEncoder(config)
        self.class_token, self.class_place = (nn.Parameter(torch.randn(1, 1, dim) * 0.02) for _ in range(2))
        self.head = nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, config.classes))

    def forward(self, batch: EventBatch, generator: torch.Generator | None = None) -> Float[Tensor, "batch classes"]:
        check_sensor(batch.sensor, self.config.sensor)
        patches = cut_patches(batch, self.settings)
        tokens, places = self.encoder.embed(patches), self.encoder.place(patches.centre.to(self.class_token.dtype))
        tokens = torch.cat([self.class_token.expand(batch.x.shape[0], -1, -1), tokens], dim=1)
        places = torch.cat([self.class_place.expand(batch.x.shape[0], -1, -1), places], dim=1)
        tokens = self.encoder(tokens, places)
        return self.head(torch.cat([tokens[:, 0], tokens[:, 1:].amax(dim=1)], dim=-1))


class MaskedEventMae(MaskedModel):
    """Pre-training without labels: predict where the events of hidden patches are."""

    reusable = ("encoder.",)

    def __init__(self, config: EventMaeConfig) -> None:
        super().__init__()
        self.config = config
        self.settings = config
        self.encoder = PatchEncoder(config)
        self.mask_token = nn.Parameter(torch.randn(config.dim) * 0.02)
        self.decoder = Transformer(config, max(config.blocks // 2, 1))
        self.answer = nn.Linear(config.dim, 3 * config.patch)

    def forward(
        self, patches: Patches, hidden: Bool[Tensor, "batch patches"]
    ) -> Float[Tensor, "hidden_patches patch 3"]:
        """Predicted events of the hidden patches, from their centres, row by row; every row hides as many."""
        rows, dim = len(hidden), self.settings.dim
        visible = ~hidden
        where = patches.centre.to(self.mask_token.dtype)
        centre = where[visible].unflatten(0, (rows, -1))
        seen = Patches(centre, patches.events[visible].unflatten(0, (rows, -1)))
        seen_tokens = self.encoder(self.encoder.embed(seen), self.encoder.place(centre))
        tokens = self.mask_token.expand(*hidden.shape, dim).masked_scatter(visible[..., None], seen_tokens)
        tokens = self.decoder(tokens, self.encoder.place(where))
        return self.answer(tokens[hidden]).unflatten(-1, (-1, 3))


class Transformer(nn.Module):
    """Blocks, with the places of tokens added before each, and a norm."""

    def __init__(self, config: EventMaeConfig, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(config.dim, config.heads, config.widening) for _ in range(blocks))
        self.norm = nn.LayerNorm(config.dim)

    def forward(
        self, tokens: Float[Tensor, "batch length dim"], places: Float[Tensor, "batch length dim"]
    ) -> Float[Tensor, "batch length dim"]:
        for block in self.blocks:
            tokens = block(tokens + places)
        return self.norm(tokens)


class PatchEncoder(Transformer):
    """What classification and pre-training share: tokens of patches, their places and the blocks."""

    def __init__(self, config: EventMaeConfig) -> None:
        super().__init__(config, config.blocks)
        self.patch_network = PatchNetwork(config.dim)
        self.place = nn.Sequential(nn.Linear(3, 128), nn.GELU(), nn.Linear(128, config.dim))

    def embed(self, patches: Patches) -> Float[Tensor, "batch patches dim"]:
        return self.patch_network(patches.events.to(self.norm.weight.dtype))


@torch.no_grad()
def cut_patches(batch: EventBatch, settings: EventMaeConfig) -> Patches:
    """Centres far from each other, and the events nearest to each."""
    points, valid, p = positions(batch, 3.0, 2.0) - 1, batch.valid, batch.p  # each axis from -1 to 1
    if points.shape[1] == 0:
        points, valid, p = F.pad(points, (0, 0, 0, 1)), F.pad(valid, (0, 1)), F.pad(p, (0, 1))
    rows = torch.arange(points.shape[0], device=points.device)[:, None]
    centre = points[rows, farthest(points, inliers(points, valid), settings.patches)]
    distance, place = nearest(centre, points, valid, settings.patch)
    place = torch.where(distance < PADDING, place, place[..., :1])  # too few events: the nearest again
    around = points[rows[..., None], place] - centre[:, :, None]
    polarity = 2 * p[rows[..., None], place].to(points.dtype) - 1
    return Patches(centre, torch.cat([around, polarity[..., None]], dim=-1))


def chamfer_distance(
    answers: Float[Tensor, "patches some 3"], truth: Float[Tensor, "patches others 3"]
) -> Float[Tensor, ""]:
    """The mean squared distance of each point to the nearest of the other side, both ways."""
    squares = (answers[:, :, None] - truth[:, None]).square().sum(dim=-1)
    count = max(len(squares), 1)  # without patches it is 0
    return (squares.amin(dim=2).mean(dim=1).sum() + squares.amin(dim=1).mean(dim=1).sum()) / count


def inliers(
    points: Float[Tensor, "batch length 3"], valid: Bool[Tensor, "batch length"]
) -> Bool[Tensor, "batch length"]:
    """Points whose neighbours lie in a plane, better than those of the worst quarter."""
    distance, place = nearest(points, points, valid, AROUND)
    rows = torch.arange(points.shape[0], device=points.device)[:, None, None]
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
