"""RG-CNN (Bi et al., ICCV 2019): residual graph convolutions with spline kernels on neighbouring events.

Published: a graph of sampled events with edges to at most 32 neighbours within a radius in x, y and t; graph
convolutions whose kernel is a spline over the relative position in x and y, 5 x 5; residual blocks; between them,
nodes of a cell in x and y become one; a last pooling into 64 cells, a layer of 1,024 and the classes. The file for
CIFAR10-DVS has 47 million parameters; that for ASL-DVS (19.46 MB in the paper) is not published.
Kept: the radius graph, spline kernels, residual blocks, max pooling by cells.
Simplified: events are sampled at random, not by an octree; coordinates are scaled to a square of `side` pixels and
the duration to as many, so that sensors and recordings of any size have such a graph; the small size has three
levels.
"""

from dataclasses import replace
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from event2vec.baselines.config import RgCnnConfig
from event2vec.baselines.layers import PointNorm, drop
from event2vec.baselines.points import Graph, connect, positions
from event2vec.data.sampling import Sampling
from event2vec.events import EventBatch
from event2vec.model.classifier import Classifier, check_sensor

RADIUS = 3.0  # pixels within which events are neighbours
KERNEL = 5  # knots of the spline along x and along y
LEVELS = {"small": (1, 2, 3), "published": (1, 2, 4, 8)}  # features, in those of the first level
CELLS = {"small": (16, 8, 4), "published": (64, 32, 16, 8)}  # along each side, after each level


class RgCnn(Classifier):
    """A graph of events, spline convolutions with pooling between them, and two layers on a grid of cells."""

    def __init__(self, config: RgCnnConfig, class_names: tuple[str, ...], sampling: Sampling) -> None:
        super().__init__(config, class_names, sampling)
        self.settings = config
        widths = [config.channels * factor for factor in LEVELS[config.layout]]
        self.first = SplineConvolution(1, widths[0], KERNEL)
        self.first_norm = PointNorm(widths[0])
        self.blocks = nn.ModuleList(GraphBlock(*pair) for pair in pairwise(widths))
        self.hidden = nn.Linear(widths[-1] * CELLS[config.layout][-1] ** 2, config.hidden)
        self.head = nn.Linear(config.hidden, config.classes)

    def forward(self, batch: EventBatch, generator: torch.Generator | None = None) -> Float[Tensor, "batch classes"]:
        check_sensor(batch.sensor, self.config.sensor)
        side, cells = self.settings.side, CELLS[self.settings.layout]
        polarity = (2 * batch.p.to(self.head.weight.dtype) - 1)[..., None]
        points = positions(batch, side, side)
        graph = connect(polarity, points, batch.valid, self.settings.neighbours, RADIUS)
        graph = replace(graph, features=F.elu(self.first_norm(self.first(graph, RADIUS))))
        for number, block in enumerate(self.blocks):
            graph = pool(graph, side / cells[number], cells[number])
            graph = replace(graph, features=block(graph, 2 * side / cells[number]))
        hidden = F.elu(self.hidden(self._on_grid(graph, len(batch), cells[-1])))
        return self.head(drop(hidden, self.settings.dropout, generator))

    def _on_grid(self, graph: Graph, rows: int, cells: int) -> Float[Tensor, "batch features"]:
        """The largest of each feature in each of cells x cells; 0 where there is no node."""
        slot = _cell_of(graph, self.settings.side / cells, cells)
        start = graph.features.new_zeros(rows * cells * cells, graph.features.shape[1])
        index = slot[:, None].expand(graph.features.shape)
        return start.scatter_reduce(0, index, graph.features, "amax", include_self=False).view(rows, -1)


def _cell_of(graph: Graph, size: int | float, cells: int) -> Tensor:
    """The number of the cell in x and y that each node lies in, recording by recording."""
    x, y = ((graph.position[:, axis] / size).long().clamp(0, cells - 1) for axis in (0, 1))
    return (graph.row * cells + y) * cells + x


def pool(graph: Graph, size: int | float, cells: int) -> Graph:
    """Nodes of a cell become one: the largest of each feature, at their mean position, with all their edges."""
    unique, place = _cell_of(graph, size, cells).unique(return_inverse=True)
    count = len(unique)
    start = graph.features.new_zeros(count, graph.features.shape[1])
    index = place[:, None].expand(graph.features.shape)
    features = start.scatter_reduce(0, index, graph.features, "amax", include_self=False)
    members = torch.bincount(place, minlength=count).clamp(min=1)[:, None]
    position = graph.position.new_zeros(count, graph.position.shape[1]).index_add(0, place, graph.position) / members
    source, target = place[graph.source], place[graph.target]
    edges = (source * count + target)[source != target].unique()
    return Graph(features, position, unique // cells**2, edges // max(count, 1), edges % max(count, 1))


class SplineConvolution(nn.Module):
    """The mean over neighbours of what a spline of the relative position makes of them, and the node itself."""

    def __init__(self, narrow: int, wide: int, kernel: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.weight = nn.Parameter(torch.randn(kernel * kernel * narrow, wide) / (kernel * narrow) ** 0.5)
        self.itself = nn.Linear(narrow, wide)

    def forward(self, graph: Graph, reach: int | float) -> Float[Tensor, "nodes wide"]:
        away = (graph.position[graph.source] - graph.position[graph.target])[:, :2]
        knot = (away / (2 * reach) + 0.5).clamp(0, 1) * (self.kernel - 1)
        low = knot.floor().clamp(max=max(self.kernel - 2, 0))
        high_share = knot - low
        total = None
        for across in range(min(self.kernel, 2)):
            for down in range(min(self.kernel, 2)):
                share = (high_share[:, 0] if across else 1 - high_share[:, 0]) * (
                    high_share[:, 1] if down else 1 - high_share[:, 1]
                )
                slot = (low[:, 0].long() + across) * self.kernel + low[:, 1].long() + down
                part = graph.gather(share, slot, self.kernel**2)
                total = part if total is None else total + part
        assert total is not None
        return (total / graph.degree()[..., None]).flatten(1) @ self.weight + self.itself(graph.features)


class GraphBlock(nn.Module):
    """Two spline convolutions and one of a single knot, added."""

    def __init__(self, narrow: int, wide: int) -> None:
        super().__init__()
        self.first, self.second = SplineConvolution(narrow, wide, KERNEL), SplineConvolution(wide, wide, KERNEL)
        self.shortcut = SplineConvolution(narrow, wide, 1)
        self.norms = nn.ModuleList(PointNorm(wide) for _ in range(3))

    def forward(self, graph: Graph, reach: int | float) -> Float[Tensor, "nodes wide"]:
        inside = replace(graph, features=F.elu(self.norms[0](self.first(graph, reach))))
        past = self.norms[2](self.shortcut(graph, reach))
        return F.elu(self.norms[1](self.second(inside, reach)) + past)
