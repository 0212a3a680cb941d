"""Where a network runs: the device, the number type there, and what must be waited for or counted on it."""

import os
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from event2vec.errors import Event2VecError
from event2vec.names import excerpt, shown

PRECISIONS = ("32-true", "bf16-mixed")
RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")  # as launchers number processes


def find_device(name: str | None = None) -> torch.device:
    """The device of this name, or the best that torch finds: a GPU of CUDA, then of Apple, then the CPU."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d{1,2})?|mps", name):
        raise Event2VecError(f"--device must be cpu, cuda, cuda:1 (or another number) or mps, got {shown(name)}")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)  # a name may be right and the device missing
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise Event2VecError(f"--device {name} does not work here: {excerpt(error, 160)}. Try --device cpu") from None
    return device


def is_first_rank() -> bool:
    """Of processes that train together, one writes and speaks for all. One that trains alone is the first."""
    return all(os.environ.get(name, "0") == "0" for name in RANKS)


@dataclass(frozen=True)
class Compute:
    """A device and the number type in which networks run on it."""

    device: torch.device
    precision: str = "32-true"

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise Event2VecError(f"--precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}")

    @classmethod
    def choose(cls, device: str | None = None, precision: str | None = None, trained: str = "32-true") -> "Compute":
        """What was asked for, else the best device; there bfloat16 where the network was trained so and CUDA runs it.

        Elsewhere bfloat16 saves no time, and 32 bits are the safer answer.
        """
        found = find_device(device)
        usual = "bf16-mixed" if found.type == "cuda" and trained.startswith("bf16") else "32-true"
        return cls(found, precision or usual)

    def autocast(self) -> AbstractContextManager[None]:
        """Networks called within run in the number type."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16-mixed")

    @property
    def counts_memory(self) -> bool:
        """Whether the device says how much of its memory was used."""
        return self.device.type == "cuda"

    def synchronise(self) -> None:
        """Wait for what was only queued, so that a clock shows what it took."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()

    def forget_peak(self) -> None:
        """Begin to count memory."""
        if self.counts_memory:
            torch.cuda.reset_peak_memory_stats(self.device)

    def peak_bytes(self) -> int | None:
        """The most memory that tensors took since `forget_peak`; None where the device does not count."""
        return torch.cuda.max_memory_allocated(self.device) if self.counts_memory else None


CPU = Compute(torch.device("cpu"))
