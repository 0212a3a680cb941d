"""The one source of random draws: a generator determined by three numbers."""

from typing import TYPE_CHECKING

import numpy as np

from event2vec.mersenne import Mersenne

if TYPE_CHECKING:
    import torch


def seeded(seed: int, epoch: int, index: int, device: "torch.device | str" = "cpu") -> "torch.Generator":
    """An independent generator for each (seed, epoch, index): workers and restarts change no draw."""
    import torch

    return torch.Generator(device).manual_seed(_mixed(seed, epoch, index))


def seeded_arrays(seed: int, epoch: int, index: int) -> Mersenne:
    """What draws the same numbers on a CPU without torch."""
    return Mersenne(_mixed(seed, epoch, index))


def _mixed(seed: int, epoch: int, index: int) -> int:
    state = np.random.SeedSequence((seed, epoch, index)).generate_state(1, np.uint64)[0]
    return int(state) >> 1  # torch accepts 63 bits
