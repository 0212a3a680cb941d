"""Frames and voxel grids: events counted by pixel, polarity and time, at the size that a network reads."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from event2vec.events import EventBatch
from event2vec.sensor import Sensor

Placing = Literal["bilinear", "nearest"]
Placed = list[tuple[Int64[Tensor, "batch length"], Float[Tensor, "batch length"]]]  # pixels, and the share of each


def make_frames(
    batch: EventBatch, bins: int, placing: str, side: int | None = None
) -> Float[Tensor, "batch bins 2 height width"]:
    """Events counted by pixel, polarity and stretch of time; a cluster counts as the rho events that it stands for.

    With `side`, frames of any sensor have this width and height.
    """
    return count_events(batch, stretches_of_time(batch, bins), bins, placing, side)


def stretches_of_time(batch: EventBatch, bins: int) -> Int64[Tensor, "batch length"]:
    """The stretch that each event is in, of `bins` equally long ones."""
    return (elapsed(batch) * bins).long().clamp(max=bins - 1)  # the last event ends the last stretch


def stretches_of_events(batch: EventBatch, bins: int) -> Int64[Tensor, "batch length"]:
    """The stretch that each event is in, of `bins` with the same number of events."""
    place = torch.arange(batch.valid.shape[1], device=batch.valid.device)
    count = batch.valid.sum(dim=1, keepdim=True).clamp(min=1)
    return (place * bins // count).clamp(max=bins - 1)


def elapsed(batch: EventBatch) -> Float[Tensor, "batch length"]:
    """The share of the recording's duration that has passed at each event; of padding, nothing.

    Not the sum of intervals: over ten thousands of events it drifts, in each program that runs the network differently.
    """
    since = (batch.t - batch.t[:, :1]) * batch.valid
    return since / F.pad(since, (0, 1)).amax(dim=1, keepdim=True).clamp(min=1)  # rows may have no place at all


def count_events(
    batch: EventBatch,
    stretch: Int64[Tensor, "batch length"],
    bins: int,
    placing: str,
    side: int | None = None,
    weight: Float[Tensor, "batch length"] | None = None,
) -> Float[Tensor, "batch bins 2 height width"]:
    """Frames of the stretches that events are in. Each event counts rho times its weight."""
    shrunk = shrink(batch, side)
    height, width = shrunk.sensor.height, shrunk.sensor.width
    rows = batch.x.shape[0]  # not len(), which torch.export would take for a constant
    row = torch.arange(rows, device=batch.x.device)[:, None]
    plane = ((row * bins + stretch) * 2 + batch.p) * (height * width)
    frames = batch.x.new_zeros(rows * bins * 2 * height * width)
    counted = batch.rho * batch.valid if weight is None else batch.rho * batch.valid * weight
    for pixel, share in PLACING[placing](shrunk):
        frames.index_add_(0, (plane + pixel).flatten(), (share * counted).flatten())
    return _grow(frames.view(rows, bins, 2, height, width), side)


def voxel_grid(
    batch: EventBatch, bins: int, side: int | None = None, weight: Float[Tensor, "batch length"] | None = None
) -> Float[Tensor, "batch bins 2 height width"]:
    """Events shared between the two bins around their time, by distance."""
    weight = torch.ones_like(batch.x) if weight is None else weight
    place = elapsed(batch).clamp(max=1) * (bins - 1)
    before = place.floor().clamp(max=max(bins - 2, 0))
    late = (place - before).clamp(max=1)
    first = count_events(batch, before.long(), bins, "bilinear", side, (1 - late) * weight)
    return first + count_events(batch, (before.long() + 1).clamp(max=bins - 1), bins, "bilinear", side, late * weight)


def shrink(batch: EventBatch, side: int | None) -> EventBatch:
    """Coordinates scaled to at most `side` pixels, corner to corner. Scaling them up would leave gaps: see `_grow`."""
    if side is None:
        return batch
    sensor = Sensor(min(batch.sensor.width, side), min(batch.sensor.height, side))
    x = batch.x * ((sensor.width - 1) / max(batch.sensor.width - 1, 1))
    y = batch.y * ((sensor.height - 1) / max(batch.sensor.height - 1, 1))
    return EventBatch(
        x.clamp(max=sensor.width - 1), y.clamp(max=sensor.height - 1), batch.t, batch.p, batch.rho, batch.valid, sensor
    )


def _grow(
    frames: Float[Tensor, "batch bins 2 height width"], side: int | None
) -> Float[Tensor, "batch bins 2 larger_height larger_width"]:
    if side is None or frames.shape[-2:] == (side, side):
        return frames
    flat = F.interpolate(frames.flatten(0, 1), (side, side), mode="bilinear", align_corners=True)
    return flat.unflatten(0, frames.shape[:2])


def coarsen(
    frames: Float[Tensor, "batch bins channels height width"], side: int
) -> Float[Tensor, "batch bins channels height width"]:
    """Frames scaled down to side x side pixels and up again, bilinearly (Figure 4).

    A coarse pixel is a mean over the area that it covers; points of the fine frame alone would miss most of it.
    """
    flat = frames.flatten(0, 1)
    coarse = F.interpolate(flat, (side, side), mode="bilinear", align_corners=False, antialias=True)
    flat = F.interpolate(coarse, flat.shape[2:], mode="bilinear", align_corners=False)
    return flat.unflatten(0, frames.shape[:2])


def place_nearest(batch: EventBatch) -> Placed:
    """All of an event at the nearest pixel."""
    return [(batch.y.round().long() * batch.sensor.width + batch.x.round().long(), torch.ones_like(batch.x))]


def place_bilinear(batch: EventBatch) -> Placed:
    """An event shared among the four pixels around it, by distance."""
    sensor = batch.sensor
    left, top = batch.x.floor(), batch.y.floor()
    right_share, bottom_share = batch.x - left, batch.y - top
    placed: Placed = []
    for across, share_x in ((0, 1 - right_share), (1, right_share)):
        for down, share_y in ((0, 1 - bottom_share), (1, bottom_share)):
            x, y = (left.long() + across).clamp(max=sensor.width - 1), (top.long() + down).clamp(max=sensor.height - 1)
            placed.append((y * sensor.width + x, share_x * share_y))
    return placed


PLACING = {"nearest": place_nearest, "bilinear": place_bilinear}  # by the names of `Placing`
