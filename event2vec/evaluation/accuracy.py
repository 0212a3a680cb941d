"""How sure an accuracy is: its 95 % interval, and mean and standard deviation over several repeats."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

NORMAL = 1.959963984540054  # standard deviations to each side that hold 95 % of a normal distribution


def deviation(values: Sequence[float]) -> float:
    """Sample standard deviation (n - 1), as the authors report it; 0 for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def standard_error(accuracy: float, recordings: int) -> float:
    """By how much other recordings would typically have changed an accuracy; 0 if none are behind it.

    As if two more had been right and two wrong (Agresti and Coull 1998): all of a few right is no certainty.
    """
    if not recordings:
        return 0.0
    share = (accuracy * recordings + 2) / (recordings + 4)
    return math.sqrt(share * (1 - share) / (recordings + 4))


class Interval(NamedTuple):
    """Where the accuracy on endlessly many recordings like these may lie."""

    low: float
    high: float

    def percent(self, digits: int = 2) -> str:
        return f"{100 * self.low:.{digits}f} to {100 * self.high:.{digits}f}"


def wilson_interval(accuracy: float, recordings: int) -> Interval:
    """The 95 % interval of an accuracy (Wilson 1927), which holds for few recordings and for 0 and 100 % too.

    `recordings` counts distinct recordings; repeated draws of one add no evidence. Pass the mean over draws, or over
    networks: the interval is then too wide rather than too narrow.
    """
    if recordings < 1 or not 0 <= accuracy <= 1:
        raise ValueError(f"an interval needs an accuracy from 0 to 1 of some recordings, got {accuracy}, {recordings}")
    square = NORMAL**2 / recordings
    middle = accuracy + square / 2
    half = NORMAL * math.sqrt(accuracy * (1 - accuracy) / recordings + square / recordings / 4)
    low, high = (middle - half) / (1 + square), (middle + half) / (1 + square)
    return Interval(min(max(low, 0.0), accuracy), max(min(high, 1.0), accuracy))  # rounding may cross the ends


class Repeated:
    """Accuracies of independent repeats, on the same recordings."""

    accuracies: tuple[float, ...]
    recordings: int

    @property
    def accuracy(self) -> float:
        return float(np.mean(self.accuracies))

    @property
    def accuracy_std(self) -> float:
        """Standard deviation over repeats; 0 for a single one."""
        return deviation(self.accuracies)

    @property
    def interval(self) -> Interval:
        """What other recordings could have given; see `wilson_interval`."""
        return wilson_interval(self.accuracy, self.recordings)

    def percent(self, digits: int = 2) -> str:
        """The mean as text, with the standard deviation if there are several repeats."""
        spread = f" ± {100 * self.accuracy_std:.{digits}f}" if len(self.accuracies) > 1 else ""
        return f"{100 * self.accuracy:.{digits}f}{spread}"

    def percent_with_interval(self, digits: int = 2) -> str:
        """The same with the 95 % interval behind it: 97.78 ± 0.12 (95.69 to 98.87)."""
        return f"{self.percent(digits)} ({self.interval.percent(digits)})"


@dataclass(frozen=True)
class Accuracies(Repeated):
    """Accuracies and nothing else."""

    accuracies: tuple[float, ...]
    recordings: int
