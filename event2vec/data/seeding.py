"""The one source of random draws: a generator determined by three numbers."""

import numpy as np
import torch


def seeded(seed: int, epoch: int, index: int, device: torch.device | str = "cpu") -> torch.Generator:
    """An independent generator for each (seed, epoch, index): workers and restarts change no draw."""
    state = np.random.SeedSequence((seed, epoch, index)).generate_state(1, np.uint64)[0]
    return torch.Generator(device).manual_seed(int(state) >> 1)  # torch accepts 63 bits
