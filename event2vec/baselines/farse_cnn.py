"""FARSE-CNN (Santambrogio et al., ECCV 2024): convolutions on active pixels, each with the state of a shared LSTM.

Published: windows of 100 ms of raw events, each with its polarity and the time since its pixel's last event; at each
event the pixels around it take a step of their LSTM, whose weights all pixels share, and those that fired themselves
give an output; residual pairs of such layers with 16 to 256 features; between pairs, max pooling of 2 x 2 pixels at
the same time and only every second output of a pixel; at the end an LSTM over the whole sensor. 2,828,651 parameters
with 11 classes.
Kept: the layer (submanifold rule, shared LSTM), sparse pooling, temporal dropout, residual pairs, outputs at the
quarters of a recording; in the published size, the number of parameters.
Simplified: a recording is one window, its times are rounded to moments, whose events are read at once, and no state
is stored between windows; the mean over the quarters is the answer, in training too. Norms without weights after each
pair and before the last layer are ours: without them it learnt nothing in minutes. The small size reads 1,024 random
events on 16 x 16 pixels at 16 moments, so that times since a pixel's last event are longer than those of all events.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from event2vec.baselines.config import FarseCnnConfig
from event2vec.baselines.layers import PointNorm
from event2vec.baselines.points import positions
from event2vec.data.sampling import Sampling
from event2vec.events import EventBatch
from event2vec.model.classifier import Classifier, check_sensor
from event2vec.model.frames import stretches_of_time

SLOW = 100_000  # microseconds after which the time since a pixel's last event counts as 1


@dataclass(frozen=True)
class Sparse:
    """Features of sites at moments, ordered by site and then by moment."""

    features: Float[Tensor, "entries features"]
    key: Int64[Tensor, " entries"]  # (site) * moments + moment, where site = (row * side + y) * side + x
    rows: int
    side: int
    moments: int

    @property
    def site(self) -> Int64[Tensor, " entries"]:
        return self.key // self.moments

    def merge(self, key: Int64[Tensor, " entries"], side: int, reduce: str) -> "Sparse":
        """Entries of the same new key become one: the largest or the mean of each feature."""
        unique, place = key.unique(return_inverse=True)
        index = place[:, None].expand(self.features.shape)
        start = self.features.new_zeros(len(unique), self.features.shape[1])
        merged = start.scatter_reduce(0, index, self.features, reduce, include_self=False)
        return replace(self, features=merged, key=unique, side=side)

    def pool(self, side: int, reduce: str) -> "Sparse":
        """Sites of a cell at the same moment become one."""
        row, place = self.site // self.side**2, self.site % self.side**2
        cell = max(self.side // side, 1)
        y = (place // self.side // cell).clamp(max=side - 1)
        x = (place % self.side // cell).clamp(max=side - 1)
        return self.merge(((row * side + y) * side + x) * self.moments + self.key % self.moments, side, reduce)

    def thin(self) -> "Sparse":
        """Every second entry of a site, and always its last."""
        rank, last = _rank(self.site)
        kept = (rank % 2 == 1) | last
        return replace(self, features=self.features[kept], key=self.key[kept])


def _rank(site: Int64[Tensor, " entries"]) -> tuple[Int64[Tensor, " entries"], Tensor]:
    """The number of each entry within its site, and whether it is the last there."""
    place = torch.arange(len(site), device=site.device)
    first = torch.ones_like(site, dtype=torch.bool)
    first[1:] = site[1:] != site[:-1]
    start = torch.where(first, place, 0).cummax(dim=0).values if len(site) else place
    return place - start, first.roll(-1)


class FarseCnn(Classifier):
    """Residual pairs of sparse recurrent layers with pooling between them, and an LSTM over the whole sensor."""

    def __init__(self, config: FarseCnnConfig, class_names: tuple[str, ...], sampling: Sampling) -> None:
        super().__init__(config, class_names, sampling)
        self.settings = config
        widths = [config.channels * 2**stage for stage in range(config.stages)]
        self.first = SharedLstm(2, widths[0])
        self.pairs = nn.ModuleList(Pair(widths[max(stage - 1, 0)], wide) for stage, wide in enumerate(widths))
        self.last = SharedLstm(widths[-1], config.features)
        self.norm = PointNorm(config.features, weighted=False)
        self.head = nn.Linear(config.features, config.classes)

    def forward(self, batch: EventBatch, generator: torch.Generator | None = None) -> Float[Tensor, "batch classes"]:
        check_sensor(batch.sensor, self.config.sensor)
        sparse = self._sites(batch)
        if len(sparse.key) == 0:
            return self.head(self.norm(sparse.features.new_zeros(len(batch), self.settings.features)))
        sparse = self.first(sparse)
        for number, pair in enumerate(self.pairs):
            if number:
                sparse = sparse.pool(max(sparse.side // 2, 1), "amax").thin()
            sparse = pair(sparse)
        whole = self.last(sparse.pool(1, "mean"))
        return self.head(self.norm(self._at_quarters(whole)))

    def _sites(self, batch: EventBatch) -> Sparse:
        """Polarity and delay of events on the grid, one entry for each pixel and moment that has some."""
        side, moments = self.settings.side, self.settings.moments
        x, y, _ = positions(batch, side, 1.0)[batch.valid].round().long().unbind(-1)
        row = torch.arange(len(batch), device=x.device)[:, None].expand(batch.valid.shape)[batch.valid]
        site, t = (row * side + y) * side + x, batch.t[batch.valid]
        order = site.argsort(stable=True)  # events are in the order of time
        delay = torch.full_like(t, SLOW)
        delay[order[1:]] = torch.where(site[order[1:]] == site[order[:-1]], t[order[1:]] - t[order[:-1]], SLOW)
        polarity = 2 * batch.p[batch.valid].float() - 1
        features = torch.stack([(delay / SLOW).clamp(max=1), polarity], dim=-1).to(self.head.weight.dtype)
        key = site * moments + stretches_of_time(batch, moments)[batch.valid]
        return Sparse(features, key, len(batch), side, moments).merge(key, side, "mean")

    def _at_quarters(self, whole: Sparse) -> Float[Tensor, "batch features"]:
        """The mean of the outputs at the quarters of each recording; zeros without events."""
        count = torch.bincount(whole.site, minlength=whole.rows)
        start = count.cumsum(0) - count
        total = whole.features.new_zeros(whole.rows, whole.features.shape[1])
        for quarter in range(1, 5):
            place = (start + (count * quarter / 4).ceil().long() - 1).clamp(0, len(whole.key) - 1)
            total = total + whole.features[place] / 4
        return total * (count > 0)[:, None]


class SharedLstm(nn.Module):
    """An LSTM that all sites share, each with its own state."""

    def __init__(self, features: int, units: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, units)

    def forward(self, sparse: Sparse) -> Sparse:
        return replace(sparse, features=self.steps(sparse.features, sparse.site))

    def steps(
        self, inputs: Float[Tensor, "entries features"], site: Int64[Tensor, " entries"]
    ) -> Float[Tensor, "entries units"]:
        """The output after each entry; entries of a site follow each other.

        Sites with about as many entries are padded to sequences of one length: packed sequences train more slowly.
        """
        _, sequence, count = site.unique_consecutive(return_inverse=True, return_counts=True)
        rank, _ = _rank(site)
        places, outputs = [], []
        length = (2 ** count.double().log2().ceil()).long()[sequence]  # the next power of 2
        for most in length.unique().tolist():
            place = (length == most).nonzero()[:, 0]
            chosen, number = sequence[place].unique_consecutive(return_inverse=True)
            padded = inputs.new_zeros(most, len(chosen), inputs.shape[1])
            padded = padded.index_put((rank[place], number), inputs[place])
            places.append(place)
            outputs.append(self.lstm(padded)[0][rank[place], number])
        return torch.cat(outputs)[torch.cat(places).argsort()]


class SparseConvolution(nn.Module):
    """3 x 3 pixels: every event of the neighbourhood is a step of a site's LSTM; sites that fired give an output."""

    def __init__(self, narrow: int, wide: int) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(9, narrow, wide) / narrow**0.5)
        self.shared = SharedLstm(wide, wide)

    def forward(self, sparse: Sparse) -> Sparse:
        side, moments = sparse.side, sparse.moments
        active = torch.zeros(sparse.rows * side * side, dtype=torch.bool, device=sparse.key.device)
        active[sparse.site] = True
        y, x = sparse.site // side % side, sparse.site % side
        keys, given = [], []
        for position, (down, across) in enumerate((a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)):
            inside = (y + down >= 0) & (y + down < side) & (x + across >= 0) & (x + across < side)
            target = torch.where(inside, sparse.site + down * side + across, 0)
            inside &= active[target]
            keys.append(target[inside] * moments + (sparse.key % moments)[inside])
            given.append(sparse.features[inside] @ self.kernel[position])
        step, place = torch.cat(keys).unique(return_inverse=True)
        inputs = given[0].new_zeros(len(step), given[0].shape[1]).index_add(0, place, torch.cat(given))
        outputs = self.shared.steps(inputs, step // moments)
        return replace(sparse, features=outputs[torch.searchsorted(step, sparse.key)])


class Pair(nn.Module):
    """Two sparse convolutions, added to what came in, and a norm."""

    def __init__(self, narrow: int, wide: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(SparseConvolution(narrow, wide), SparseConvolution(wide, wide))
        self.shortcut = nn.Identity() if narrow == wide else nn.Linear(narrow, wide)
        self.norm = PointNorm(wide, weighted=False)

    def forward(self, sparse: Sparse) -> Sparse:
        through = self.layers(sparse)
        return replace(sparse, features=self.norm(through.features + self.shortcut(sparse.features)))
