"""EGRU (Subramoney et al., ICLR 2023): frames to a GRU whose units send events only.

Published: slices of 1.7 s as 68 frames of 128 x 128, five convolutions, 512 features of each frame, 795 units with
learnt thresholds. A unit is heard by others, and by itself, only in the steps in which its state passes its
threshold. The answer is the mean over steps of a linear layer on a fading trace of what is sent. 5.72 million
parameters.
Kept: the cell, its pseudo-derivative, the trace, the penalty on activity and states, the convolutions and, in the
published size, their number.
Simplified: a recording is one slice, cut into frames of equal duration; frames hold the logarithm of counts instead
of counts divided by a constant; a ReLU follows the features of a frame; no zoneout and no drop-connect; the small size
has three convolutions, with norms, 20 frames of 32 x 32, and 4 x 4 places of 64 channels become its 64 features.
Sparse activity saves nothing on a CPU: all units are computed.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from event2vec.baselines.config import SparseGruConfig
from event2vec.baselines.layers import BatchNorm, drop
from event2vec.baselines.spiking import TriangleSpike, fire
from event2vec.data.sampling import Sampling
from event2vec.events import EventBatch
from event2vec.model.classifier import Classifier, check_sensor
from event2vec.model.frames import make_frames

TRACE = 0.9  # of the trace that is left after a step
PENALTY = 0.01  # weight of the penalty in the loss
ACTIVITY = 0.05  # share of the steps in which a unit should send, and how far below its threshold it should stay


class SparseGru(Classifier):
    """Convolutions on each frame, event-based units over frames, and a linear layer on their traces."""

    def __init__(self, config: SparseGruConfig, class_names: tuple[str, ...], sampling: Sampling) -> None:
        super().__init__(config, class_names, sampling)
        self.settings = config
        self.frames, seen = _convolutions(config.layout)
        self.reduce = nn.Linear(seen, config.features)
        self.cell = SparseUnits(config.features, config.units)
        self.head = nn.Linear(config.units, config.classes)

    def forward(self, batch: EventBatch, generator: torch.Generator | None = None) -> Float[Tensor, "batch classes"]:
        return self._answer(self._listen(batch, generator).sent)

    def learn(
        self, batch: EventBatch, generator: torch.Generator | None
    ) -> tuple[Float[Tensor, "batch classes"], Float[Tensor, ""]]:
        heard = self._listen(batch, generator)
        return self._answer(heard.sent), PENALTY * heard.penalty

    def _listen(self, batch: EventBatch, generator: torch.Generator | None) -> "Heard":
        check_sensor(batch.sensor, self.config.sensor)
        frames = make_frames(batch, self.settings.bins, "bilinear", self.settings.side)
        frames = frames.mean(dim=2, keepdim=True).log1p().to(self.head.weight.dtype)
        seen = F.relu(self.reduce(self.frames(frames.flatten(0, 1)))).unflatten(0, frames.shape[:2])
        return self.cell(drop(seen, self.settings.dropout, generator).transpose(0, 1))

    def _answer(self, sent: Float[Tensor, "time batch units"]) -> Float[Tensor, "batch classes"]:
        trace = torch.zeros_like(sent[0])
        logits = torch.zeros_like(self.head.bias)
        for step in sent.unbind():
            trace = TRACE * trace + (1 - TRACE) * step
            logits = logits + self.head(trace)
        return logits / len(sent)


def _convolutions(layout: str) -> tuple[nn.Sequential, int]:
    """The layers that turn a frame into features, and the number of these."""
    if layout == "published":
        sizes = [(1, 64, 11, 4, 2), (64, 192, 5, 1, 2), (192, 384, 3, 1, 1), (384, 256, 3, 1, 1), (256, 256, 3, 1, 1)]
        layers: list[nn.Module] = []
        for number, size in enumerate(sizes):
            layers += [nn.Conv2d(*size), nn.ReLU()]
            if number < 4:
                layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), 256
    layers = []
    for narrow, wide in ((1, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(narrow, wide, 3, 2, 1, bias=False), BatchNorm(wide), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten()), 1024


@dataclass(frozen=True)
class Heard:
    """What units do in each step."""

    sent: Float[Tensor, "time batch units"]  # nothing, where no event is
    events: Float[Tensor, "time batch units"]  # 1 where a unit sends
    above: Float[Tensor, "time batch units"]  # states minus thresholds

    @property
    def penalty(self) -> Float[Tensor, ""]:
        """For sending more or less than in a few of the steps, and for states near or above the thresholds."""
        return (self.events.mean() - ACTIVITY).square() + self.above.mean() + ACTIVITY


class SparseUnits(nn.Module):
    """c = z c + (1 - z) g; where c passes a unit's threshold it sends c, and the threshold is subtracted."""

    def __init__(self, features: int, units: int) -> None:
        super().__init__()
        self.inputs, self.recurrent = nn.Linear(features, 3 * units), nn.Linear(units, 3 * units)
        self.threshold = nn.Parameter(1 - torch.rand(units) ** (1 / 3))  # of a Beta(1, 3) distribution

    def forward(self, frames: Float[Tensor, "time batch features"]) -> Heard:
        given = self.inputs(frames)
        c = sent = given.new_zeros(given.shape[1], len(self.threshold))
        steps = []
        for x in given.unbind():
            (x_z, x_r, x_g), (y_z, y_r, y_g) = x.chunk(3, dim=-1), self.recurrent(sent).chunk(3, dim=-1)
            z, r = (x_z + y_z).sigmoid(), (x_r + y_r).sigmoid()
            c = z * c + (1 - z) * (x_g + r * y_g).tanh()
            above = c - self.threshold
            event = fire(above, TriangleSpike)
            sent = event * c
            c = c - event * self.threshold
            steps.append((sent, event, above))
        return Heard(*map(torch.stack, zip(*steps, strict=True)))
