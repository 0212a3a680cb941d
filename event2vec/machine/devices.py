"""Where a network runs: device, precision, synchronisation and memory statistics."""

import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import get_args

import torch

from event2vec.choices import Precision
from event2vec.errors import Event2VecError
from event2vec.names import excerpt, shown

PRECISIONS: tuple[str, ...] = get_args(Precision)


def find_device(name: str | None = None) -> torch.device:
    """The named device, or the best one that torch finds: CUDA, then Apple's MPS, then the CPU."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d{1,2})?|mps", name):
        raise Event2VecError(f"`device` must be cpu, cuda, cuda:1 (or another number) or mps, got {shown(name)}")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)  # a valid name may be a missing device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise Event2VecError(f"`device` {name} does not work here: {excerpt(error, 160)}. Try cpu") from None
    return device


def training_precision(precision: str, accelerator: str) -> str:
    """The number type of a training, by its recipe; `auto` is bfloat16 on GPUs that have it, and 32 bits elsewhere.

    A CPU has compiled attention in 32 bits alone. `accelerator` is Lightning's name of a device, or torch's.
    """
    if precision != "auto":
        return precision
    on_gpu = accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()
    return "bf16-mixed" if on_gpu and torch.cuda.is_bf16_supported(including_emulation=False) else "32-true"


@dataclass(frozen=True)
class Compute:
    """A device and the precision in which networks run on it."""

    device: torch.device
    precision: str = "32-true"

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise Event2VecError(f"`precision` must be one of {', '.join(PRECISIONS)}, got {self.precision!r}")

    @classmethod
    def choose(cls, device: str | None = None, precision: str | None = None, trained: str = "32-true") -> "Compute":
        """What was requested, else the best device; bfloat16 if the network was trained with it and runs on CUDA.

        Elsewhere bfloat16 saves no time, and 32 bits are safer.
        """
        found = find_device(device)
        trained = training_precision(trained, found.type)
        usual = "bf16-mixed" if found.type == "cuda" and trained.startswith("bf16") else "32-true"
        return cls(found, precision or usual)

    def autocast(self) -> AbstractContextManager[None]:
        """A context in which networks run in this precision."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16-mixed")

    @property
    def counts_memory(self) -> bool:
        """Whether the device reports its peak memory."""
        return self.device.type == "cuda"

    def synchronise(self) -> None:
        """Wait for queued work, so that timings are right."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()

    def forget_peak(self) -> None:
        """Reset the count of peak memory."""
        if self.counts_memory:
            torch.cuda.reset_peak_memory_stats(self.device)

    def peak_bytes(self) -> int | None:
        """Peak memory of tensors since `forget_peak`; None if the device does not report it."""
        return torch.cuda.max_memory_allocated(self.device) if self.counts_memory else None


CPU = Compute(torch.device("cpu"))
