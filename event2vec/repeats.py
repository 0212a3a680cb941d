"""A figure that was found several times: its mean and deviation."""

import numpy as np


class Repeated:
    """Accuracies of independent repeats."""

    accuracies: tuple[float, ...]

    @property
    def accuracy(self) -> float:
        return float(np.mean(self.accuracies))

    @property
    def accuracy_std(self) -> float:
        """Over repeats, as the paper gives it; 0 where there is but one."""
        return float(np.std(self.accuracies))

    def percent(self, digits: int = 2) -> str:
        """For people: the mean, and the deviation where there is one."""
        spread = f" ± {100 * self.accuracy_std:.{digits}f}" if len(self.accuracies) > 1 else ""
        return f"{100 * self.accuracy:.{digits}f}{spread}"
