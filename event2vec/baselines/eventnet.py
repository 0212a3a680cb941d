"""EventNet (Sekikawa et al., CVPR 2019): features of all events, kept up to date one event at a time.

Published: a network h on (x, y, p) of each event, with 1,024 features in [-1, 1]; a temporal code that subtracts the
age of the event from the modulus and turns the phase by it; for each feature, the event of the largest modulus; a
classifier g on the real and imaginary parts. Since ages add up, the maximum can be updated event by event, and after
training h is a table with a row for each pixel and polarity.
Kept: all of that. `update` is the recursion, `with_table` the table, and both equal the batch form.
Simplified: a negative feature keeps its sign, as a phase; the time constant may be the duration of the recording,
which is known only at its end; there is no head for single events.
"""

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from event2vec.baselines.config import EventNetConfig
from event2vec.baselines.layers import PointNorm
from event2vec.data.sampling import Sampling
from event2vec.errors import Event2VecError
from event2vec.events import EventBatch, Events
from event2vec.model.classifier import Classifier, check_sensor, with_part
from event2vec.model.coordinates import normalised_coordinates
from event2vec.model.embedding import every_pixel, on_pixels, pixel_rows
from event2vec.sensor import Sensor

WIDTHS = (64, 64, 64, 128)  # of the network on single events, before its features


@dataclass(frozen=True)
class Memory:
    """What EventNet keeps of all events so far."""

    modulus: Float[Tensor, "batch features"]
    phase: Float[Tensor, "batch features"]  # in turns
    t: int = 0  # microseconds, of the latest event

    def older(self, share: float) -> "Memory":
        """The same after a share of the time constant has passed."""
        return replace(self, modulus=(self.modulus - share).clamp(min=0), phase=self.phase - share)

    @property
    def features(self) -> Float[Tensor, "batch doubled"]:
        """Real and imaginary parts."""
        turn = 2 * math.pi * self.phase
        return torch.cat([self.modulus * turn.cos(), self.modulus * turn.sin()], dim=-1)


class EventNet(Classifier):
    """h on each event, the complex maximum over events, g on it."""

    def __init__(self, config: EventNetConfig, class_names: tuple[str, ...], sampling: Sampling) -> None:
        super().__init__(config, class_names, sampling)
        self.settings = config
        self.points: nn.Module = PointNetwork(config.features)
        widths = [2 * config.features, *(config.hidden // 2**layer for layer in range(config.hidden_layers))]
        self.hidden = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        self.head = nn.Linear(widths[-1], config.classes)

    def forward(self, batch: EventBatch, generator: torch.Generator | None = None) -> Float[Tensor, "batch classes"]:
        check_sensor(batch.sensor, self.config.sensor)
        batch = _with_an_event(batch)
        last = (batch.t * batch.valid).amax(dim=1, keepdim=True)
        duration = last - batch.t[:, :1]
        tau = duration if self.settings.tau == 0 else torch.full_like(duration, round(1e6 * self.settings.tau))
        age = (last - batch.t) / tau.clamp(min=1)
        return self.answer(self._remember(batch, age))

    def _remember(self, batch: EventBatch, age: Float[Tensor, "batch length"]) -> Memory:
        """The complex maximum over events of these ages; padding has no modulus."""
        z = self.points(batch).float()
        if batch.valid.all():
            z = z.view(*batch.valid.shape, -1)
        else:
            z = z.new_zeros(*batch.valid.shape, self.settings.features).index_put((batch.valid,), z)
        modulus = (z.abs() - age[..., None]).masked_fill(~batch.valid[..., None], -1)
        largest, place = modulus.max(dim=1)
        phase = torch.where(z.gather(1, place[:, None])[:, 0] < 0, 0.5, 0.0) - age.gather(1, place)
        return Memory(largest.clamp(min=0), phase)

    def answer(self, memory: Memory) -> Float[Tensor, "batch classes"]:
        features = memory.features.to(self.head.weight.dtype)
        for layer in self.hidden:
            features = F.relu(layer(features))
        return self.head(features)

    @torch.no_grad()
    def update(self, memory: Memory | None, events: Events) -> Memory:
        """What is remembered after further events, one or many, of a stream that started without a memory.

        Times are those of the stream. The time constant must not depend on the end of the stream.
        """
        if self.settings.tau == 0:
            raise Event2VecError("model.tau must be set to update EventNet event by event: 0 is a whole recording")
        check_sensor(events.sensor, self.config.sensor)
        batch, latest = EventBatch.pad([events]).to(self.device), int(events.t[-1])
        tau = 1e6 * self.settings.tau
        new = self._remember(batch, (latest - batch.t) / tau)
        if memory is None:
            return replace(new, t=latest)
        old = memory.older((latest - memory.t) / tau)
        stays = old.modulus > new.modulus
        modulus, phase = torch.where(stays, old.modulus, new.modulus), torch.where(stays, old.phase, new.phase)
        return Memory(modulus, phase, latest)

    @property
    def tabulated(self) -> int:
        return self.settings.features

    @torch.no_grad()
    def with_table(self) -> "EventNet":
        """A copy for inference on whole pixels, with the features of every pixel and polarity precomputed."""
        return with_part(self, "points", PointTable(self.points, self.config.sensor))


def _with_an_event(batch: EventBatch) -> EventBatch:
    """Room for an event, which is not valid, where no recording has any: a maximum needs one."""
    if batch.valid.shape[1]:
        return batch
    x, y, t, p, rho, valid = (
        F.pad(column, (0, 1)) for column in (batch.x, batch.y, batch.t, batch.p, batch.rho, batch.valid)
    )
    return EventBatch(x, y, t, p, rho, valid, batch.sensor)


class PointNetwork(nn.Module):
    """h: from x, y and p of an event to its features."""

    def __init__(self, features: int) -> None:
        super().__init__()
        widths = (3, *WIDTHS, features)
        pairs = list(pairwise(widths))
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairs)
        self.norms = nn.ModuleList(PointNorm(wide) for _, wide in pairs)

    def forward(self, batch: EventBatch) -> Float[Tensor, "events features"]:
        """The features of valid events alone, so that padding does not count in the norms."""
        points = normalised_coordinates(batch)[batch.valid].to(next(self.parameters()).dtype)
        for layer, norm in zip(self.layers[:-1], self.norms[:-1], strict=True):
            points = F.relu(norm(layer(points)))
        return self.norms[-1](self.layers[-1](points)).tanh()


class PointTable(nn.Module):
    """The same as a table with a row for each pixel and polarity; events between pixels are computed."""

    table: Float[Tensor, "rows features"]

    def __init__(self, points: nn.Module, sensor: Sensor) -> None:
        super().__init__()
        self.points = points
        table = points(every_pixel(sensor).to(next(points.parameters()).device))
        self.register_buffer("table", table, persistent=False)

    def forward(self, batch: EventBatch) -> Float[Tensor, "events features"]:
        return self.table[pixel_rows(batch)[batch.valid]] if on_pixels(batch) else self.points(batch)
