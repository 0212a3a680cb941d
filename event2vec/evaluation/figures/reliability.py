"""The reliability diagram: how often answers of each confidence are right."""

from pathlib import Path
from typing import TYPE_CHECKING

from event2vec.evaluation.accuracy import wilson_interval
from event2vec.evaluation.calibration import BINS, Calibration, Reliability
from event2vec.evaluation.figures import pyplot, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BEFORE, AFTER = "#9a9a9a", "#3b528b"


def draw_reliability(calibration: Calibration, repeats: int, path: Path, title: str) -> None:
    """Accuracy against confidence with 95 % intervals, above the share of recordings in each bin.

    Points on the diagonal are as often right as their scores say; below it they are too sure. Recordings count once,
    however many `repeats` drew their events.
    """
    plt = pyplot()
    figure, (upper, lower) = plt.subplots(
        2, 1, figsize=(5.2, 5.4), height_ratios=(3, 1), sharex=True, layout="constrained"
    )
    upper.plot((0, 100), (0, 100), ":", color="black", linewidth=1)
    parts = [("scores", calibration.after, AFTER)]
    if calibration.is_fitted:
        name = f"temperature {calibration.temperature:.2f}"
        parts = [("without a temperature", calibration.before, BEFORE), (name, calibration.after, AFTER)]
    for number, (name, found, colour) in enumerate(parts):
        _draw_bins(upper, found, repeats, f"{name}: ECE {100 * found.error:.1f} %", colour)
        width, count = 100 / BINS / (len(parts) + 0.2), max(sum(each.recordings for each in found.bins), 1)
        places = [100 * (place + 0.1) / BINS + number * width for place in range(BINS)]
        shares = [100 * each.recordings / count for each in found.bins]
        lower.bar(places, shares, width, align="edge", color=colour)
    upper.set(ylabel="accuracy (%)", xlim=(0, 100), ylim=(0, 100), title=title)
    figure.legend(*upper.get_legend_handles_labels(), frameon=False, loc="outside lower center", fontsize=9)
    lower.set(xlabel="confidence (%)", ylabel="recordings (%)")
    for axis in (upper, lower):
        axis.grid(alpha=0.3)
        axis.set_axisbelow(True)
    save_figure(figure, path)


def _draw_bins(axis: "Axes", found: Reliability, repeats: int, label: str, colour: str) -> None:
    sure, right, below, above = [], [], [], []
    for each in found.bins:
        if each.confidence is not None and each.accuracy is not None:
            low, high = wilson_interval(each.accuracy, max(round(each.recordings / repeats), 1))
            sure.append(100 * each.confidence)
            right.append(100 * each.accuracy)
            below.append(100 * (each.accuracy - low))
            above.append(100 * (high - each.accuracy))
    axis.errorbar(sure, right, (below, above), color=colour, marker="o", markersize=4, capsize=2, label=label)
