"""Where every random draw comes from: a generator that three numbers decide."""

import numpy as np
import torch


def seeded(seed: int, epoch: int, index: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator of its own for each (seed, epoch, index): workers and restarts change no draw."""
    state = np.random.SeedSequence((seed, epoch, index)).generate_state(1, np.uint64)[0]
    return torch.Generator(device).manual_seed(int(state) >> 1)  # torch takes what fits a signed number
