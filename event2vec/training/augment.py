"""Changes that leave the class of a recording as it is (App. A.9).

Each transform draws its parameters, for each recording its own, and applies them in two steps. A policy turns each
transform on with one probability, for each recording or for a whole batch; events that end outside the sensor are
dropped after all of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from event2vec.events import COLUMNS, EventBatch
from event2vec.sensor import Sensor
from event2vec.training.config import AugmentConfig, LengthUnit


class Transform(ABC):
    """One change to a batch: parameters for each row, then their exact effect."""

    @abstractmethod
    def draw(self, batch: EventBatch, generator: torch.Generator) -> Any: ...

    @abstractmethod
    def apply(self, batch: EventBatch, parameters: Any) -> EventBatch: ...


def _unit(batch: EventBatch, columns: int, generator: torch.Generator) -> Tensor:
    """U(0, 1) for each row, in `columns` columns."""
    return torch.rand(len(batch), columns, generator=generator, device=batch.x.device)


def _uniform(batch: EventBatch, low: float, high: float, columns: int, generator: torch.Generator) -> Tensor:
    return low + (high - low) * _unit(batch, columns, generator)


def lengths_in_pixels(amount: float, unit: LengthUnit, sensor: Sensor) -> tuple[float, float]:
    """An amount along x and along y."""
    return (amount, amount) if unit == "pixels" else (amount * sensor.width, amount * sensor.height)


@dataclass(frozen=True)
class Resize(Transform):
    """(x, y) becomes (s_x x, s_y y)."""

    spread: float
    """Factors are drawn from 1 - spread to 1 + spread."""

    def draw(self, batch: EventBatch, generator: torch.Generator) -> Float[Tensor, "batch 2"]:
        return _uniform(batch, 1 - self.spread, 1 + self.spread, 2, generator)

    def apply(self, batch: EventBatch, parameters: Float[Tensor, "batch 2"]) -> EventBatch:
        return replace(batch, x=batch.x * parameters[:, :1], y=batch.y * parameters[:, 1:])


@dataclass(frozen=True)
class Rotate(Transform):
    """Turn each recording about the sensor's centre by its own angle."""

    degrees: float

    def draw(self, batch: EventBatch, generator: torch.Generator) -> Float[Tensor, "batch 1"]:
        return torch.deg2rad(_uniform(batch, -self.degrees, self.degrees, 1, generator))

    def apply(self, batch: EventBatch, parameters: Float[Tensor, "batch 1"]) -> EventBatch:
        centre_x, centre_y = batch.sensor.centre
        dx, dy = batch.x - centre_x, batch.y - centre_y
        cosine, sine = parameters.cos(), parameters.sin()
        return replace(batch, x=centre_x + dx * cosine - dy * sine, y=centre_y + dx * sine + dy * cosine)


@dataclass(frozen=True)
class Shear(Transform):
    """x moves by a share of y and y by a share of x, both as they were, about the sensor's centre."""

    spread: float

    def draw(self, batch: EventBatch, generator: torch.Generator) -> Float[Tensor, "batch 2"]:
        return _uniform(batch, -self.spread, self.spread, 2, generator)

    def apply(self, batch: EventBatch, parameters: Float[Tensor, "batch 2"]) -> EventBatch:
        centre_x, centre_y = batch.sensor.centre
        dx, dy = batch.x - centre_x, batch.y - centre_y
        return replace(batch, x=batch.x + parameters[:, :1] * dy, y=batch.y + parameters[:, 1:] * dx)


@dataclass(frozen=True)
class Flip(Transform):
    """Mirror left and right, for a share of the recordings."""

    share: float

    def draw(self, batch: EventBatch, generator: torch.Generator) -> Bool[Tensor, "batch 1"]:
        return _unit(batch, 1, generator) < self.share

    def apply(self, batch: EventBatch, parameters: Bool[Tensor, "batch 1"]) -> EventBatch:
        return replace(batch, x=torch.where(parameters, batch.sensor.width - 1 - batch.x, batch.x))


@dataclass(frozen=True)
class Translate(Transform):
    """Move by whole or part pixels in x and in y."""

    farthest: float
    unit: LengthUnit = "pixels"

    def draw(self, batch: EventBatch, generator: torch.Generator) -> Float[Tensor, "batch 2"]:
        farthest = batch.x.new_tensor(lengths_in_pixels(self.farthest, self.unit, batch.sensor))
        return 2 * farthest * _unit(batch, 2, generator) - farthest

    def apply(self, batch: EventBatch, parameters: Float[Tensor, "batch 2"]) -> EventBatch:
        return replace(batch, x=batch.x + parameters[:, :1], y=batch.y + parameters[:, 1:])


@dataclass(frozen=True)
class Erase(Transform):
    """Drop the events of one rectangle, for a share of the recordings."""

    side: float
    """Height and width are drawn from 0 to this."""
    share: float = 0.1
    unit: LengthUnit = "pixels"

    def draw(self, batch: EventBatch, generator: torch.Generator) -> Float[Tensor, "batch 4"]:
        """Centre x, centre y, width, height; a width below 0 erases nothing."""
        unit = _unit(batch, 5, generator)
        centre_x, centre_y = unit[:, 0] * (batch.sensor.width - 1), unit[:, 1] * (batch.sensor.height - 1)
        widest, highest = lengths_in_pixels(self.side, self.unit, batch.sensor)
        width = torch.where(unit[:, 4] < self.share, unit[:, 2] * widest, -1)
        return torch.stack([centre_x, centre_y, width, unit[:, 3] * highest], dim=1)

    def apply(self, batch: EventBatch, parameters: Float[Tensor, "batch 4"]) -> EventBatch:
        centre_x, centre_y, width, height = parameters[:, None].unbind(-1)
        erased = ((batch.x - centre_x).abs() <= width / 2) & ((batch.y - centre_y).abs() <= height / 2)
        return batch.keep(~erased)


@dataclass(frozen=True)
class DropChunks(Transform):
    """Drop stretches of neighbouring events; they may overlap, or lie in the padding."""

    chunks: int
    longest: int
    """Lengths are drawn from 1 to this, times the share of the row that is valid."""

    def draw(self, batch: EventBatch, generator: torch.Generator) -> Int64[Tensor, "batch chunks 2"]:
        """Start and length of each chunk."""
        (rows, length), device = batch.valid.shape, batch.x.device
        size = (rows, self.chunks)
        lengths = torch.randint(1, self.longest + 1, size, generator=generator, device=device)
        lengths = lengths * batch.valid.sum(dim=1, keepdim=True) // max(length, 1)
        starts = torch.randint(max(length, 1), size, generator=generator, device=device)
        return torch.stack([starts, lengths], dim=-1)

    def apply(self, batch: EventBatch, parameters: Int64[Tensor, "batch chunks 2"]) -> EventBatch:
        place = torch.arange(batch.valid.shape[1], device=batch.x.device)
        starts, lengths = parameters[:, :, None].unbind(-1)
        return batch.keep(~((place >= starts) & (place < starts + lengths)).any(dim=1))


@dataclass(frozen=True)
class Policy:
    """Each transform is on with the same probability, independently of the others."""

    probability: float
    transforms: Sequence[Transform]
    whole_batch: bool = False
    """Turn a transform on for all recordings of a batch or for none, as the authors' code does."""

    def __call__(self, batch: EventBatch, generator: torch.Generator) -> EventBatch:
        """A row that would lose all its events keeps them as they were."""
        changed = batch
        for transform in self.transforms:
            on = _unit(batch, 1, generator) < self.probability
            on = on[:1].expand_as(on) if self.whole_batch else on
            changed = _choose(on, transform.apply(changed, transform.draw(changed, generator)), changed)
        changed = drop_outside(changed)
        return _choose(changed.valid.any(dim=1, keepdim=True), changed, batch)


def drop_outside(batch: EventBatch) -> EventBatch:
    """Keep events with x in [0, W - 1] and y in [0, H - 1]."""
    inside_x = (batch.x >= 0) & (batch.x <= batch.sensor.width - 1)
    return batch.keep(inside_x & (batch.y >= 0) & (batch.y <= batch.sensor.height - 1))


def _choose(rows: Bool[Tensor, "batch 1"], one: EventBatch, other: EventBatch) -> EventBatch:
    pairs = {name: (getattr(one, name), getattr(other, name)) for name in (*COLUMNS, "valid")}
    columns = {name: new if new is old else torch.where(rows, new, old) for name, (new, old) in pairs.items()}
    return EventBatch(**columns, sensor=one.sensor)


def augment(batch: EventBatch, config: AugmentConfig, generator: torch.Generator) -> EventBatch:
    """A batch as training sees it, each recording changed in its own way."""
    if transforms := transforms_of(config):
        whole_batch = {"recording": False, "batch": True}[config.draw_for]
        batch = Policy(config.probability, transforms, whole_batch)(batch, generator)
    if not config.forget_intensity:
        return batch
    draws = {"recording": 1, "event": batch.valid.shape[1]}[config.forget_intensity_for]
    return forget_intensity(batch, config.forget_intensity, generator, draws)


def transforms_of(config: AugmentConfig) -> tuple[Transform, ...]:
    """The augmentations that are on, in the paper's order."""
    all_of_them: tuple[tuple[float, Transform], ...] = (
        (config.resize, Resize(config.resize)),
        (config.rotate, Rotate(config.rotate)),
        (config.shear, Shear(config.shear)),
        (config.flip, Flip(config.flip)),
        (config.translate, Translate(config.translate, config.unit)),
        (config.erase, Erase(config.erase, unit=config.unit)),
        (config.chunks, DropChunks(config.chunks, config.chunk_length)),
    )
    return tuple(transform for amount, transform in all_of_them if amount)


def forget_intensity(batch: EventBatch, share: float, generator: torch.Generator, draws: int = 1) -> EventBatch:
    """Set rho to 1 in a share of the recordings; with as many draws as places in a row, in a share of the events."""
    forgotten = _unit(batch, draws, generator) < share
    return replace(batch, rho=torch.where(forgotten, batch.valid.to(batch.rho.dtype), batch.rho))


@dataclass(frozen=True)
class TokenMix:
    """Replace a share of each row's tokens by those of a partner in the batch.

    Places where either row has padding are left alone.
    """

    def draw(
        self, valid: Bool[Tensor, "batch length"], generator: torch.Generator
    ) -> tuple[Int64[Tensor, " batch"], Bool[Tensor, "batch length"]]:
        """A partner for each row, and the places to replace; their share is Beta(1, 1), which is uniform."""
        rows, device = len(valid), valid.device
        partner = torch.randperm(rows, generator=generator, device=device)
        share = torch.rand(rows, 1, generator=generator, device=device)
        places = torch.rand(valid.shape, generator=generator, device=device) < share
        return partner, places & valid & valid[partner]

    def apply(
        self,
        rows: Float[Tensor, "batch length columns"],
        partner: Int64[Tensor, " batch"],
        places: Bool[Tensor, "batch length"],
    ) -> Float[Tensor, "batch length columns"]:
        """Mix tokens, or what belongs to them, such as their positions."""
        return torch.where(places[..., None], rows[partner], rows)

    def share(
        self, valid: Bool[Tensor, "batch length"], places: Bool[Tensor, "batch length"]
    ) -> Float[Tensor, " batch"]:
        """How much of each row is its partner's."""
        return places.sum(dim=1) / valid.sum(dim=1).clamp(min=1)
