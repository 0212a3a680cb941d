"""Networks beside each other: accuracy against size, time or latency, and sweeps of several networks."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from event2vec.evaluation.accuracy import Interval
from event2vec.evaluation.figures import pyplot, save_figure
from event2vec.evaluation.figures.curves import AXES
from event2vec.evaluation.sweeps import Kind, Point
from event2vec.names import printable

MARKERS = "osD^v<>PX*hpd"
OURS = "#d95f02"
GREYS = ("#3b528b", "#5ec962", "#21918c", "#440154", "#7f7f7f", "#9467bd")


@dataclass(frozen=True)
class Dot:
    """A network in a picture."""

    name: str
    value: int | float
    accuracy: float
    interval: Interval
    ours: bool = False


def draw_comparison(dots: Sequence[Dot], axis_title: str, path: Path) -> None:
    """Accuracy with its 95 % interval against a quantity on a logarithmic axis; shapes tell networks apart in print."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    plt = pyplot()
    figure, axis = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    for number, dot in enumerate(dots):
        ends = [[100 * (dot.accuracy - dot.interval.low)], [100 * (dot.interval.high - dot.accuracy)]]
        colour = OURS if dot.ours else GREYS[number % len(GREYS)]
        axis.errorbar(
            [dot.value],
            [100 * dot.accuracy],
            ends,
            color=colour,
            marker=MARKERS[number % len(MARKERS)],
            markersize=9 if dot.ours else 6,
            linestyle="none",
            elinewidth=0.8,
            label=printable(dot.name),
        )
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))  # formulas are off: no powers of 10
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set(xlabel=axis_title, ylabel="accuracy (%)")
    axis.grid(alpha=0.3)
    figure.legend(loc="outside right center", frameon=False, fontsize=8)
    save_figure(figure, path)


@dataclass(frozen=True)
class Line:
    """A network in a picture of sweeps."""

    name: str
    points: Sequence[Point]
    ours: bool = False


def draw_sweeps(lines: Sequence[Line], kind: Kind, path: Path, title: str) -> None:
    """The curves of several networks in one picture."""
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

    plt = pyplot()
    figure, axis = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    for number, line in enumerate(lines):
        values, shares = [point.value for point in line.points], [100 * point.found.accuracy for point in line.points]
        colour = OURS if line.ours else GREYS[number % len(GREYS)]
        axis.plot(values, shares, color=colour, marker=MARKERS[number % len(MARKERS)], label=printable(line.name))
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(FixedLocator(sorted({point.value for line in lines for point in line.points})))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.set(xlabel=AXES[kind], ylabel="accuracy (%)", title=title)
    axis.grid(alpha=0.3)
    figure.legend(loc="outside right center", frameon=False, fontsize=8)  # inside, it would cover a curve
    save_figure(figure, path)
