"""What training leaves out at random: features, and branches of a network. Only with a generator."""

import torch
from jaxtyping import Float
from torch import Tensor


def drop(features: Float[Tensor, "*shape"], share: float, generator: torch.Generator | None) -> Float[Tensor, "*shape"]:
    """Dropout, which like all that is random needs a generator."""
    if generator is None or share == 0:
        return features
    stays = torch.rand(features.shape, generator=generator, device=features.device) >= share
    return features * (stays / (1 - share)).to(features.dtype)


def drop_branch(
    branch: Float[Tensor, "batch length dim"], share: float, generator: torch.Generator | None
) -> Float[Tensor, "batch length dim"]:
    """Drop path: skip a branch for a share of the recordings, and scale it up for the others to compensate.

    Without a generator, nothing is drawn and nothing is skipped.
    """
    if generator is None or share == 0:
        return branch
    stays = torch.rand(len(branch), 1, 1, generator=generator, device=branch.device) >= share
    return branch * (stays / (1 - share)).to(branch.dtype)
