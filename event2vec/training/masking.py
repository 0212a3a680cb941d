"""Which events to hide in pre-training (App. A.5): spans, so that none can be guessed as the mean of its neighbours."""

import torch
from jaxtyping import Bool
from torch import Tensor

from event2vec.training.config import SpanMask


def draw_spans(
    mask: SpanMask, valid: Bool[Tensor, "batch length"], generator: torch.Generator
) -> Bool[Tensor, "batch length"]:
    """Events to hide; never padding."""
    place = torch.arange(valid.shape[1], device=valid.device)
    starts = torch.rand(valid.shape, generator=generator, device=valid.device) < mask.share / mask.length
    lengths = torch.ones(valid.shape, device=valid.device)
    if mask.length > 1:  # torch's geometric counts the success too: it is the number of failures, plus 1
        lengths.geometric_(1 / mask.length, generator=generator)
    lengths = lengths.clamp(max=mask.longest).long()
    reach = torch.where(starts, place + lengths, 0).cummax(dim=1).values if valid.shape[1] else valid.long()
    return (place < reach) & valid


def draw_patches(share: float, shape: torch.Size, generator: torch.Generator) -> Bool[Tensor, "batch patches"]:
    """Patches to hide, as many in each row; at least one is hidden and one is not, if there are two."""
    rows, count = shape
    hidden = min(max(round(share * count), 1), count - 1)
    order = torch.rand(rows, count, generator=generator, device=generator.device).argsort(dim=1)
    return order < hidden
