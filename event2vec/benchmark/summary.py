"""What all benchmarks came to, in a few lines of ratios, and how that changed since an earlier run."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Row = dict[str, Any]


def is_ratio(name: str) -> bool:
    """Columns that compare two sides say so in their name; the others depend on the machine."""
    return name.startswith(("x ", "inertia ")) or " / " in name or name in ("times faster", "time grows")


def summarise(parts: Mapping[str, Sequence[Row]]) -> list[Row]:
    """The lowest, middle and highest of each ratio over the rows of its part."""
    summary = []
    for part, rows in parts.items():
        for name in dict.fromkeys(name for row in rows for name in row if is_ratio(name)):
            values = sorted(row[name] for row in rows if isinstance(row.get(name), float | int))
            if values:
                middle = values[len(values) // 2]
                summary.append(
                    {"part": part, "ratio": name, "lowest": values[0], "middle": middle, "highest": values[-1]}
                )
    return summary


def compare(before: Mapping[str, Sequence[Row]], now: Mapping[str, Sequence[Row]]) -> list[Row]:
    """Each figure that both runs have, and the change. Rows are the same if all that they were asked for is."""
    changes = []
    for part, rows in now.items():
        earlier = {_question(row): row for row in before.get(part, ())}
        for row in rows:
            for name, old, new in _figures(earlier.get(_question(row), {}), row):
                what = ", ".join(str(value) for _, value in _question(row))
                changes.append(
                    {"part": part, "of": what, "figure": name, "before": old, "now": new, "now / before": new / old}
                )
    return changes


def _question(row: Row) -> tuple[tuple[str, Any], ...]:
    """What a row is about: names and whole numbers; what was measured is a fraction."""
    return tuple((name, value) for name, value in row.items() if not isinstance(value, float) and value != "-")


def _figures(before: Row, now: Row) -> Iterator[tuple[str, float, float]]:
    for name, new in now.items():
        old = before.get(name)
        # What is measured is never quite the same; what is, is a constant.
        if isinstance(new, float) and isinstance(old, float) and old not in (0, new):
            yield name, old, new
