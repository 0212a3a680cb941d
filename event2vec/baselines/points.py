"""Events as points in x, y and t: nearest neighbours, points that lie far from each other, and edges between nodes.

Distances are sums of squared differences, so that padding and the rest of a batch change none of them by a bit.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from event2vec.events import EventBatch
from event2vec.model.frames import elapsed

PADDING = 1e9  # squared distance to what is no event


def positions(batch: EventBatch, side: int | float, depth: int | float) -> Float[Tensor, "batch length 3"]:
    """x and y as on a sensor of this many pixels to a side, and t with this duration."""
    x = batch.x * ((side - 1) / max(batch.sensor.width - 1, 1))
    y = batch.y * ((side - 1) / max(batch.sensor.height - 1, 1))
    return torch.stack([x, y, depth * elapsed(batch)], dim=-1)


def squared_distances(
    points: Float[Tensor, "batch some axes"], others: Float[Tensor, "batch many axes"]
) -> Float[Tensor, "batch some many"]:
    total = points.new_zeros(points.shape[0], points.shape[1], others.shape[1])
    for one, other in zip(points.unbind(-1), others.unbind(-1), strict=True):  # axis by axis, which takes less memory
        total = total + (one[:, :, None] - other[:, None, :]).square()
    return total


def nearest(
    points: Float[Tensor, "batch some axes"],
    others: Float[Tensor, "batch many axes"],
    valid: Bool[Tensor, "batch many"],
    count: int,
) -> tuple[Float[Tensor, "batch some count"], Int64[Tensor, "batch some count"]]:
    """Squared distances to the nearest of the others, and their places; where they are too few, PADDING."""
    missing = max(count - others.shape[1], 0)
    distance = squared_distances(points, others).masked_fill(~valid[:, None], PADDING)
    distance = torch.nn.functional.pad(distance, (0, missing), value=PADDING)
    found = distance.topk(count, largest=False)
    return found.values, found.indices.clamp(max=others.shape[1] - 1)


def farthest(
    points: Float[Tensor, "batch length axes"], allowed: Bool[Tensor, "batch length"], count: int
) -> Int64[Tensor, "batch count"]:
    """Places of points that lie far from each other: the first allowed one, then always the one farthest from all."""
    rows = torch.arange(points.shape[0], device=points.device)
    place = allowed.byte().argmax(dim=1)
    closest = torch.where(allowed, torch.inf, -1.0).to(points.dtype)
    chosen = []
    for _ in range(count):
        chosen.append(place)
        away = (points - points[rows, place][:, None]).square().sum(dim=-1)
        closest = torch.where(allowed, torch.minimum(closest, away), -1.0)
        place = closest.argmax(dim=1)
    return torch.stack(chosen, dim=1)


@dataclass(frozen=True)
class Graph:
    """Nodes of all recordings of a batch, one after the other, and edges from neighbours to nodes."""

    features: Float[Tensor, "nodes features"]
    position: Float[Tensor, "nodes axes"]
    row: Int64[Tensor, " nodes"]  # the recording that a node belongs to
    source: Int64[Tensor, " edges"]
    target: Int64[Tensor, " edges"]

    def gather(
        self, weight: Float[Tensor, " edges"], slot: Int64[Tensor, " edges"], slots: int
    ) -> Float[Tensor, "nodes slots features"]:
        """What neighbours have, weighted and summed at each node by the slot of the edge."""
        count, width = self.features.shape
        total = self.features.new_zeros(count * slots, width)
        given = self.features[self.source] * weight[:, None].to(self.features.dtype)
        return total.index_add(0, self.target * slots + slot, given).view(count, slots, width)

    def degree(self) -> Float[Tensor, "nodes 1"]:
        """Edges to each node, at least 1."""
        count = torch.bincount(self.target, minlength=len(self.row))
        return count.clamp(min=1)[:, None].to(self.features.dtype)


def connect(
    features: Float[Tensor, "batch length features"],
    points: Float[Tensor, "batch length axes"],
    valid: Bool[Tensor, "batch length"],
    neighbours: int,
    radius: float,
) -> Graph:
    """A graph with edges from a limited number of neighbours within the radius, and none from a node to itself."""
    distance, place = nearest(points, points, valid, neighbours + 1)
    node = torch.cumsum(valid.flatten(), 0).view(valid.shape) - 1
    itself = place == torch.arange(valid.shape[1], device=valid.device)[None, :, None]
    wanted = (distance <= radius**2) & valid[..., None] & ~itself
    source = node.gather(1, place.flatten(1)).view(place.shape)[wanted]
    target = node[..., None].expand(place.shape)[wanted]
    row = torch.arange(len(valid), device=valid.device)[:, None].expand(valid.shape)[valid]
    return Graph(features[valid], points[valid], row, source, target)
