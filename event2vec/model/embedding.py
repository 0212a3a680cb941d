"""Events to tokens: where and when an event happened, each as a vector of `dim` numbers (Sec. 3.1-3.5, Eq. 1-7).

Space: phi(x, y, p), a small network (Eq. 5), or a learnt table with a row for each pixel and polarity (Eq. 2).
Time: convolutions over the intervals between neighbours, or sine waves of the time itself.
Neighbourhood, if asked for: what is around the event, added to space (ours: `neighbourhood.py`).
Token: (ln rho + 1) * (space + time)                                                                       (Eq. 7)
       rho * (space + time) in the authors' released code
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from event2vec.events import EventBatch
from event2vec.model import compiled_rows
from event2vec.model.config import ModelConfig
from event2vec.model.coordinates import normalised_coordinates, normalised_intervals
from event2vec.model.neighbourhood import Neighbourhood
from event2vec.model.norm import LayerNorm, usual
from event2vec.model.tokens import Chosen, become_tokens
from event2vec.sensor import Sensor


def pixel_rows(batch: EventBatch) -> Int64[Tensor, "batch length"]:
    """The row of each event in a table over the sensor: p * H * W + y * W + x (Eq. 2, 5), at the nearest pixel."""
    width, height = batch.sensor.width, batch.sensor.height
    return batch.p * (height * width) + batch.y.round().long() * width + batch.x.round().long()


def on_pixels(batch: EventBatch) -> bool:
    """Whether all events are on whole pixels, where a table has a row for them."""
    return torch.equal(batch.x, batch.x.round()) and torch.equal(batch.y, batch.y.round())


def log_emphasis(batch: EventBatch) -> Float[Tensor, "batch length 1"]:
    """ln rho + 1, and 0 for padding (Eq. 7)."""
    return ((1 + batch.rho.clamp(min=1).log()) * batch.valid)[..., None]  # padding has rho 0, whose log is -inf


def linear_emphasis(batch: EventBatch) -> Float[Tensor, "batch length 1"]:
    """rho itself, and 0 for padding, as in the authors' released code."""
    return (batch.rho * batch.valid)[..., None]


class ParametricSpatial(nn.Module):
    """phi: a network that maps position and polarity to a vector, and nearby positions to similar vectors (Eq. 5)."""

    def __init__(self, dim: int, sensor: Sensor) -> None:
        super().__init__()
        self.sensor = sensor
        self.layers = nn.ModuleList(
            nn.Linear(width, wider, bias=False)
            for width, wider in ((3, dim // 4), (dim // 4, dim // 2), (dim // 2, dim))
        )
        self.norms = nn.ModuleList(LayerNorm(width, relu=width < dim) for width in (dim // 4, dim // 2, dim))

    def forward(self, batch: EventBatch) -> Float[Tensor, "batch length dim"]:
        return self.embed(normalised_coordinates(batch))

    def embed(self, where: Float[Tensor, "*rows 3"]) -> Float[Tensor, "*rows dim"]:
        """phi of normalised coordinates. Answers need no gradients, and take one call of compiled code."""
        linears, norms = cast("Iterable[nn.Linear]", self.layers), cast("Iterable[LayerNorm]", self.norms)
        pairs = zip(linears, norms, strict=True)
        weights = [part for linear, norm in pairs for part in (linear.weight, norm.weight, norm.bias)]
        where = where.to(weights[0].dtype)
        if not torch.is_grad_enabled() and compiled_rows.serves(where, len(weights[0]), *weights) and usual(norms):
            return compiled_rows.embed_places(where, weights, len(weights[-1]))
        where = self.norms[0](self.layers[0](where))
        where = self.norms[1](self.layers[1](where))
        return self.norms[2](self.layers[2](where))

    @torch.no_grad()
    def table(self) -> Float[Tensor, "rows dim"]:
        """W_phi: phi of every pixel and polarity, in the order of `pixel_rows` (Eq. 5)."""
        device = next(self.parameters()).device
        return self.embed(normalised_coordinates(every_pixel(self.sensor)).to(device))[0]


def every_pixel(sensor: Sensor) -> EventBatch:
    """One row with an event at every pixel, first p = 0 and then p = 1: the index sequence c of Sec. 3.2."""
    index = torch.arange(2 * sensor.height * sensor.width)[None]
    x, y = index % sensor.width, index // sensor.width % sensor.height
    ones = torch.ones_like(index)
    p = index >= sensor.height * sensor.width
    return EventBatch(x.float(), y.float(), 0 * index, p, ones.float(), ones.bool(), sensor)


class TabulatedSpatial(nn.Module):
    """A trained phi, looked up in a table if all events are on whole pixels and computed if not (Eq. 5).

    For inference only: the table is not updated when phi is trained.
    """

    def __init__(self, network: ParametricSpatial) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("rows", network.table(), persistent=False)
        self.rows: Tensor

    def forward(self, batch: EventBatch) -> Float[Tensor, "batch length dim"]:
        return F.embedding(pixel_rows(batch), self.rows) if on_pixels(batch) else self.network(batch)


class LookupSpatial(nn.Module):
    """A learnt vector for each pixel and polarity (Eq. 2), independent of its neighbours."""

    def __init__(self, dim: int, sensor: Sensor) -> None:
        super().__init__()
        self.sensor = sensor
        self.rows = nn.Embedding(2 * sensor.height * sensor.width, dim)

    def forward(self, batch: EventBatch) -> Float[Tensor, "batch length dim"]:
        return self.rows(pixel_rows(batch))

    def table(self) -> Float[Tensor, "rows dim"]:
        """W_s, in the order of `pixel_rows`."""
        return self.rows.weight.detach()


class ConvolutionalTemporal(nn.Module):
    """Convolutions over the intervals (Sec. 3.3, 3.6): one dense, then two depthwise, each doubling the channels.

    Padding is cleared before each of them: clearing it once would let it leak into the last two events.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        widths = (dim // 4, dim // 2, dim)
        self.kernels = nn.ParameterList(nn.Parameter(torch.empty(width, 3)) for width in widths)
        self.norms = nn.ModuleList(LayerNorm(width, relu=width < dim) for width in widths)
        for kernel in self.kernels:
            nn.init.uniform_(kernel, -(3**-0.5), 3**-0.5)  # as nn.Conv1d starts: one input channel, three taps

    def forward(self, batch: EventBatch) -> Float[Tensor, "batch length dim"]:
        intervals = normalised_intervals(batch).to(self.kernels[0].dtype)
        kernels, norms = list(self.kernels), cast("Iterable[LayerNorm]", self.norms)
        pairs = zip(kernels, norms, strict=True)
        layers = [part for kernel, norm in pairs for part in (kernel, norm.weight, norm.bias)]
        if compiled_rows.serves(intervals, len(kernels[0]), *layers) and usual(norms):
            return compiled_rows.convolve(intervals, batch.valid, layers, len(kernels[2]))
        when, real = intervals[..., None], batch.valid[..., None]
        when = self.norms[0](convolve(when, self.kernels[0]))
        when = self.norms[1](convolve(when * real, self.kernels[1]))
        return self.norms[2](convolve(when * real, self.kernels[2]))


def convolve(
    signal: Float[Tensor, "batch length narrow"], kernel: Float[Tensor, "wide 3"]
) -> Float[Tensor, "batch length wide"]:
    """A depthwise convolution over neighbours, zero-padded at both ends; each channel feeds wide / narrow new ones.

    Channels stay last, as the norms need them: three neighbours are one overlapping window of memory, and the kernel
    is a matrix of mostly zeros. Their product takes half the time of a convolution call with its transposed copies.
    """
    narrow = signal.shape[-1]
    diagonal = torch.eye(narrow, dtype=kernel.dtype, device=kernel.device)[None, :, :, None]
    matrix = (diagonal * kernel.view(narrow, -1, 3).permute(2, 0, 1)[:, None]).flatten(2).flatten(0, 1)
    # One zero more than needed, so that an empty row has a window too.
    windows = F.pad(signal, (0, 0, 1, 2)).flatten(1).unfold(1, 3 * narrow, narrow)
    return windows[:, : signal.shape[1]] @ matrix


class SineTemporal(nn.Module):
    """Sine and cosine of t * s at the usual wavelengths 10000^(2j/D), t from 0 to 1 and s learnt (Table 4)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1000.0))
        # Not saved, so on a real device even when weights are built without memory (`load_model`).
        places = torch.arange(0, dim, 2, device="cpu")
        self.register_buffer("frequencies", 10000.0 ** (-places / dim), persistent=False)
        self.frequencies: Tensor

    def forward(self, batch: EventBatch) -> Float[Tensor, "batch length dim"]:
        elapsed = normalised_intervals(batch).cumsum(dim=1)
        angle = (elapsed * self.scale.float())[
            ..., None
        ] * self.frequencies.float()  # bfloat16 is too coarse for angles
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(2).to(self.scale.dtype)


SPATIAL: dict[str, type[ParametricSpatial] | type[LookupSpatial]] = {
    "parametric": ParametricSpatial,
    "lookup": LookupSpatial,
}
TEMPORAL: dict[str, type[ConvolutionalTemporal] | type[SineTemporal]] = {
    "convolution": ConvolutionalTemporal,
    "sine": SineTemporal,
}
INTENSITY: dict[str, Callable[[EventBatch], Tensor]] = {"log": log_emphasis, "linear": linear_emphasis}


class Parts(NamedTuple):
    """The three parts of a token before they are fused."""

    where: Float[Tensor, "batch length dim"]
    when: Float[Tensor, "batch length dim"]
    emphasis: Float[Tensor, "batch length 1"]

    def fuse(self) -> Float[Tensor, "batch length dim"]:
        """Eq. 7; padding becomes 0."""
        return self.emphasis.to(self.where.dtype) * (self.where + self.when)

    def separate(self, tokens: Float[Tensor, "batch length dim"]) -> Float[Tensor, "batch length dim"]:
        """Remove intensity and time from tokens, which leaves space (Eq. 11). Padding is not divided."""
        return tokens / self.emphasis.where(self.emphasis > 0, 1).to(tokens.dtype) - self.when


class Event2Vec(nn.Module):
    """Eq. 7: each event becomes one token, from its position and the times of its neighbours.

    `intensity` selects how rho enters: see `INTENSITY`. A neighbourhood adds what is around each event.
    """

    def __init__(
        self, spatial: nn.Module, temporal: nn.Module, intensity: str = "log", neighbourhood: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.spatial = spatial
        self.temporal = temporal
        self.intensity = intensity
        self.neighbourhood = neighbourhood

    def forward(self, batch: EventBatch, chosen: Chosen | None = None) -> Float[Tensor, "batch tokens dim"]:
        return self.parts(batch, chosen=chosen).fuse()

    def parts(
        self, batch: EventBatch, hidden: Bool[Tensor, "batch length"] | None = None, chosen: Chosen | None = None
    ) -> Parts:
        """Parts of all events, or of the chosen ones. Hidden events are not in the neighbourhood of others."""
        read = become_tokens(batch, chosen)
        where = self.spatial(read)
        if self.neighbourhood is not None:
            where = where + self.neighbourhood(batch, hidden, None if chosen is None else chosen.places)
        return Parts(where, self.temporal(read), INTENSITY[self.intensity](read))

    def with_table(self) -> "Event2Vec":
        """The same embedding with phi precomputed for every pixel; a lookup table already is one."""
        if not isinstance(self.spatial, ParametricSpatial):
            return self
        return Event2Vec(TabulatedSpatial(self.spatial), self.temporal, self.intensity, self.neighbourhood)


def build_embedding(config: ModelConfig) -> Event2Vec:
    spatial, temporal = SPATIAL[config.spatial](config.dim, config.sensor), TEMPORAL[config.temporal](config.dim)
    neighbourhood = Neighbourhood(config.neighbourhood, config.dim) if config.neighbourhood else None
    return Event2Vec(spatial, temporal, config.intensity, neighbourhood)
