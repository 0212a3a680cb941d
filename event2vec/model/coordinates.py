"""Where and when events are, in the numbers that networks read: shares of the sensor and of the recording."""

import torch
from jaxtyping import Float
from torch import Tensor

from event2vec.events import EventBatch


def normalised_coordinates(batch: EventBatch) -> Float[Tensor, "batch length 3"]:
    """x, y and p scaled to [-1, 1] (Eq. 4). On a sensor one pixel wide, x is -1."""
    x = 2 * batch.x / max(batch.sensor.width - 1, 1) - 1
    y = 2 * batch.y / max(batch.sensor.height - 1, 1) - 1
    return torch.stack([x, y, 2 * batch.p.float() - 1], dim=-1)


def normalised_intervals(batch: EventBatch) -> Float[Tensor, "batch length"]:
    """Time since the previous event, as a share of the recording (Sec. 3.3).

    Eq. 7 divides by max(t). We start t at the first event: without that the intervals would change with the
    camera's clock. All events at one instant have intervals of 0.
    """
    intervals = torch.diff(batch.t, dim=1, prepend=batch.t[:, :1]) * batch.valid
    return intervals / intervals.sum(dim=1, keepdim=True).clamp(min=1)
