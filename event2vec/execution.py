"""How a call carries out its work: the arguments that many functions share, and one object that hands them on."""

from dataclasses import dataclass
from typing import TypedDict

from event2vec.progress import SILENT, Progress


class ExecutionOptions(TypedDict, total=False):
    """Arguments of functions that prepare data and run networks, such as `evaluate_runs(["runs/one"], workers=4)`."""

    workers: int  # processes that prepare data; usually 1
    device: str | None  # where networks run: "cpu", "cuda:1", ...; None: on the best device
    precision: str | None  # their number type; None: on CUDA that of the training, elsewhere 32-true
    progress: Progress  # where progress is reported; usually nowhere


@dataclass(frozen=True)
class Execution:
    """The same with its defaults, as functions hand it on."""

    workers: int = 1
    device: str | None = None
    precision: str | None = None
    progress: Progress = SILENT

    @property
    def options(self) -> ExecutionOptions:
        return {
            "workers": self.workers,
            "device": self.device,
            "precision": self.precision,
            "progress": self.progress,
        }
