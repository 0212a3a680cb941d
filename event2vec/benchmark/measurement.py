"""What a benchmark finds: a row of a table, with its parts kept apart by what they mean."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """One case on this machine. Rows with the same case can be compared with those of an earlier run."""

    case: Mapping[str, str | int]  # what was measured: names and sizes
    figures: Mapping[str, float | int | None]  # milliseconds, megabytes, rates; None where a side was left out
    ratios: Mapping[str, float | int | None] = field(default_factory=dict)  # one side over another, for the summary
    targets: Mapping[str, float | int] = field(default_factory=dict)  # what a figure or ratio should reach

    def row(self) -> dict[str, Any]:
        """All columns, for a table and for JSON."""
        return {**self.case, **self.figures, **self.ratios, **self.targets}

    @property
    def measured(self) -> dict[str, float | int | None]:
        """What may differ in another run."""
        return {**self.figures, **self.ratios}

    def is_about(self, row: Mapping[str, Any]) -> bool:
        """Whether a row of an earlier run is of the same case."""
        return all(row.get(name) == value for name, value in self.case.items())
