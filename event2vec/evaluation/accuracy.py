"""A figure that was found several times: its mean and deviation."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


def deviation(values: Sequence[float]) -> float:
    """Standard deviation of a sample (n - 1), as the authors give it; 0 where there is only one value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


class Repeated:
    """Accuracies of independent repeats."""

    accuracies: tuple[float, ...]

    @property
    def accuracy(self) -> float:
        return float(np.mean(self.accuracies))

    @property
    def accuracy_std(self) -> float:
        """Over repeats; 0 where there is only one."""
        return deviation(self.accuracies)

    def percent(self, digits: int = 2) -> str:
        """For people: the mean, and the deviation where there is one."""
        spread = f" ± {100 * self.accuracy_std:.{digits}f}" if len(self.accuracies) > 1 else ""
        return f"{100 * self.accuracy:.{digits}f}{spread}"


@dataclass(frozen=True)
class Accuracies(Repeated):
    """Accuracies and nothing else."""

    accuracies: tuple[float, ...]
