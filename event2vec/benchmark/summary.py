"""A summary of all benchmarks as ratios, and how these changed since an earlier run."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from event2vec.benchmark.measurement import Measurement


@dataclass(frozen=True)
class Spread:
    """One ratio over all cases of a part."""

    part: str
    ratio: str
    lowest: float
    median: float
    highest: float


@dataclass(frozen=True)
class Change:
    """One figure in an earlier run and now."""

    part: str
    of: str  # the case
    figure: str
    before: float
    now: float

    def row(self) -> dict[str, Any]:
        return {**asdict(self), "now / before": self.now / self.before if self.before else None}


def summarise(parts: Mapping[str, Sequence[Measurement]]) -> list[Spread]:
    """The lowest, median and highest of each ratio over the cases of its part."""
    summary = []
    for part, measurements in parts.items():
        for name in dict.fromkeys(name for each in measurements for name in each.ratios):
            values = [value for each in measurements if (value := each.ratios.get(name)) is not None]
            if values:
                summary.append(Spread(part, name, min(values), median(values), max(values)))
    return summary


def compare(
    before: Mapping[str, Sequence[Mapping[str, Any]]], now: Mapping[str, Sequence[Measurement]]
) -> list[Change]:
    """Each figure of both runs that changed. `before` has the rows that an earlier run wrote as JSON."""
    changes = []
    for part, measurements in now.items():
        for each in measurements:
            earlier = [row for row in before.get(part, ()) if each.is_about(row)]
            changes += [change for row in earlier for change in _changes(part, each, row)]
    return changes


def _changes(part: str, now: Measurement, before: Mapping[str, Any]) -> list[Change]:
    of = ", ".join(map(str, now.case.values()))
    pairs = [(name, before.get(name), new) for name, new in now.measured.items()]
    return [
        Change(part, of, name, float(old), new)
        for name, old, new in pairs
        if new is not None and isinstance(old, float | int) and old != new
    ]
