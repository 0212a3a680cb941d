"""Curves: loss and accuracy over epochs, accuracy over a sweep."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from event2vec.evaluation.figures import pyplot, save_figure
from event2vec.evaluation.sweeps import Kind, Point

TRAIN, OTHERS = "#3b528b", "#d95f02"


@dataclass(frozen=True)
class Panel:
    """A metric of a training as it is drawn."""

    metric: str
    title: str
    scale: int = 1


PANELS = (
    Panel("loss", "loss"),
    Panel("accuracy", "accuracy (%)", 100),
    Panel("polarity_accuracy", "polarity of hidden events (% correct)", 100),
    Panel("x_error_pixels", "x of hidden events (error in pixels)"),
    Panel("y_error_pixels", "y of hidden events (error in pixels)"),
)
SHARES = {panel.metric for panel in PANELS if panel.scale == 100}


def draw_curves(rows: list[dict[str, float]], path: Path, title: str) -> None:
    """A panel per metric, with one line for training recordings and one for validation recordings."""
    plt = pyplot()
    shown = [panel for panel in PANELS if f"train_{panel.metric}" in rows[0]]
    figure, axes = plt.subplots(1, len(shown), figsize=(4.2 * len(shown), 3.2), squeeze=False, layout="constrained")
    epochs = [row["epoch"] for row in rows]
    marker = "o" if len(rows) == 1 else None  # a line of one point is invisible
    for axis, panel in zip(axes[0], shown, strict=True):
        for split, colour, style in (("train", TRAIN, "--"), ("validation", OTHERS, "-")):
            values = [row.get(f"{split}_{panel.metric}") for row in rows]
            if any(value is not None for value in values):
                line = [float("nan") if value is None else panel.scale * value for value in values]
                axis.plot(epochs, line, style, color=colour, marker=marker, label=f"{split} recordings")
        mean_of = "validation_loss_of_mean" if "validation_loss_of_mean" in rows[0] else "train_loss_of_mean"
        if panel.metric == "loss" and mean_of in rows[0]:
            mean = [row[mean_of] for row in rows]
            axis.plot(epochs, mean, ":", color="grey", marker=marker, label="predicting the mean")
        axis.set(xlabel="epoch", ylabel=panel.title)
        axis.grid(alpha=0.3)
    axes[0][0].legend(frameon=False)
    figure.suptitle(title)
    save_figure(figure, path)


AXES = {
    "events": "events per recording",
    "resolution": "resolution (pixels per side)",
    "windows": "windows from the onset (seconds)",
}


def draw_sweep(points: Sequence[Point], kind: Kind, path: Path, title: str) -> None:
    """Accuracy against a quantity on a logarithmic axis, with 95 % intervals as error bars."""
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

    plt = pyplot()
    figure, axis = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
    values = [point.value for point in points]
    found = [point.found for point in points]
    below = [100 * (each.accuracy - each.interval.low) for each in found]
    above = [100 * (each.interval.high - each.accuracy) for each in found]
    axis.errorbar(values, [100 * each.accuracy for each in found], (below, above), color=OTHERS, marker="o", capsize=3)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(FixedLocator(values))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.set(xlabel=AXES[kind], ylabel="accuracy (%)", title=title)
    axis.grid(alpha=0.3)
    save_figure(figure, path)
