"""Relative attention: an event sees where and when others are as seen from itself (ours, not the paper's).

Pairs of channels of q, k and v are rotated by angles a that grow with x, y and t, and what attention gives is rotated
back by the angles of the event that asked:

    o_i = R(-a_i) sum_j softmax_j(R(a_i) q_i . R(a_j) k_j / sqrt(w) + C_i - C_j) R(a_j) v_j

So weights and sums depend on differences of position alone, as in a convolution: all events moved alike see each other
as before. Kernels, forget gates and both directions stay as they are.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from event2vec.events import EventBatch
from event2vec.model.config import ModelConfig
from event2vec.model.coordinates import normalised_coordinates, normalised_intervals

PLACE_SHARE = 3 / 8  # of a head's pairs, for x and again for y; the others are for t
FASTEST_PLACE = 26.0  # radians for each unit of x and y, which go from -1 to 1; the slowest has 1
FASTEST_TIME = 60.0  # radians for a whole recording; the slowest has 1


def positions_of(batch: EventBatch) -> Float[Tensor, "batch length 3"]:
    """x and y from -1 to 1 (Eq. 4), and t from 0 at the first event to 1 at the last."""
    elapsed = normalised_intervals(batch).cumsum(dim=1)
    return torch.cat([normalised_coordinates(batch)[..., :2], elapsed[..., None]], dim=-1)


def hide_places(
    positions: Float[Tensor, "batch length 3"], hidden: Bool[Tensor, "batch length"]
) -> Float[Tensor, "batch length 3"]:
    """Hidden events are rotated by t alone: x and y would give away what is to be predicted (App. A.5)."""
    time_alone = positions.new_tensor([0.0, 0.0, 1.0])
    return torch.where(hidden[..., None], positions * time_alone, positions)


class Rotations(nn.Module):
    """The rotation of each pair of a head's channels at given positions, as cosine and sine; the same for all heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        pairs = width // 2
        of_place = int(pairs * PLACE_SHARE)
        # Not saved, so on a real device even when weights are built without memory (`load_model`).
        self.register_buffer("place", equal_ratios(FASTEST_PLACE, of_place), persistent=False)
        self.register_buffer("time", equal_ratios(FASTEST_TIME, pairs - 2 * of_place), persistent=False)
        self.place: Tensor
        self.time: Tensor

    def forward(self, positions: Float[Tensor, "batch length 3"]) -> Float[Tensor, "batch length 2 pairs"]:
        x, y, t = positions.unsqueeze(-1).unbind(-2)
        place, time = self.place.float(), self.time.float()  # bfloat16 is too coarse for angles
        angles = torch.cat([x * place, y * place, t * time], dim=-1)
        return torch.stack([angles.cos(), angles.sin()], dim=2)


def equal_ratios(fastest: float, count: int) -> Float[Tensor, " count"]:
    """Radians per unit, from 1 to the fastest."""
    return torch.linspace(0, math.log(fastest), count, device="cpu").exp()


def build_rotations(config: ModelConfig) -> Rotations | None:
    return Rotations(config.dim // config.heads) if config.relative else None
