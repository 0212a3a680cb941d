"""The random numbers of torch's generator on a CPU, drawn by numpy: what reads recordings does not need torch.

torch draws from the Mersenne Twister, as numpy's RandomState does, and takes 32 bits of its seed.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Generator as TorchGenerator

WIDE = 2**28  # limits from here on take 64 bits of each draw
_UNUSED: list[np.random.RandomState] = []  # numpy makes one in 85 us and seeds it in 2, so they are used again


class Mersenne:
    """What `torch.Generator().manual_seed(seed)` draws."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._state = _UNUSED.pop() if _UNUSED else np.random.RandomState()
        self._state.seed(seed % 2**32)

    def __del__(self) -> None:
        _UNUSED.append(self._state)

    def integers(self, limit: int, count: int) -> Int64[NDArray[Any], " count"]:
        """As `torch.randint(limit, (count,))`: from 0 to limit - 1."""
        words = self._words(2 * count if limit >= WIDE else count)
        if limit >= WIDE:
            words = words[0::2] << np.uint64(32) | words[1::2]
        return (words % np.uint64(limit)).astype(np.int64)

    def shuffled(self, count: int, length: int) -> Int64[NDArray[Any], " length"]:
        """As the first `length` of `torch.randperm(count)`."""
        order = list(range(count))
        draws = max(min(length, count - 1), 0)
        steps = self._words(draws) % np.arange(count, count - draws, -1).astype(np.uint64)
        for place, step in enumerate(steps.tolist()):
            order[place], order[place + step] = order[place + step], order[place]
        return np.array(order[:length], np.int64)

    def torch(self) -> "TorchGenerator":
        """torch's own with this seed, for what is done on a device."""
        import torch

        return torch.Generator().manual_seed(self.seed)

    def _words(self, count: int) -> NDArray[np.uint64]:
        drawn = self._state.bytes(4 * count) if count else b""  # numpy draws once for no bytes, too
        return np.frombuffer(drawn, "<u4").astype(np.uint64)


if TYPE_CHECKING:
    Generator = TorchGenerator | Mersenne  # what draws: torch's on any device, or the same numbers without torch
else:
    Generator = Any


def draw_seed(generator: Generator) -> int:
    """A seed for another generator, or for compiled code: 62 bits."""
    if isinstance(generator, Mersenne):
        return int(generator.integers(2**62, 1)[0])
    import torch

    return int(torch.randint(2**62, (), generator=generator, device=generator.device))
