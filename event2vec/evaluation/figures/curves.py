"""How a training went: loss and accuracy, epoch by epoch."""

from pathlib import Path
from typing import Any

from event2vec.evaluation.figures import pyplot, save_figure

TRAIN, TEST = "#3b528b", "#d95f02"
TITLES = {
    "loss": "loss",
    "accuracy": "accuracy (%)",
    "polarity_accuracy": "polarity of hidden events (% right)",
    "x_error_pixels": "x of hidden events (pixels off)",
    "y_error_pixels": "y of hidden events (pixels off)",
}


def draw_curves(rows: list[dict[str, float]], path: Path, title: str) -> None:
    """A panel for each metric, with the training recordings and the test recordings as lines."""
    plt = pyplot()
    shown = [name for name in TITLES if f"train_{name}" in rows[0]]
    figure, axes = plt.subplots(1, len(shown), figsize=(4.2 * len(shown), 3.2), squeeze=False, layout="constrained")
    epochs = [row["epoch"] for row in rows]
    marker = "o" if len(rows) == 1 else None  # a line of one point does not show
    for axis, name in zip(axes[0], shown, strict=True):
        scale = 100 if "accuracy" in name else 1
        for split, colour, style in (("train", TRAIN, "--"), ("test", TEST, "-")):
            values = [row.get(f"{split}_{name}") for row in rows]
            if any(value is not None for value in values):
                line = [float("nan") if value is None else scale * value for value in values]
                axis.plot(epochs, line, style, color=colour, marker=marker, label=f"{split} recordings")
        mean_of = "test_loss_of_mean" if "test_loss_of_mean" in rows[0] else "train_loss_of_mean"
        if name == "loss" and mean_of in rows[0]:
            mean = [row[mean_of] for row in rows]
            axis.plot(epochs, mean, ":", color="grey", marker=marker, label="predicting the mean")
        axis.set(xlabel="epoch", ylabel=TITLES[name])
        axis.grid(alpha=0.3)
    axes[0][0].legend(frameon=False)
    figure.suptitle(title)
    save_figure(figure, path)


AXES = {"events": "events of each recording", "resolution": "resolution (pixels along each side)"}


def draw_sweep(rows: list[dict[str, Any]], name: str, path: Path, title: str) -> None:
    """Accuracy against a quantity on a logarithmic axis, with the deviation over draws as bars."""
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

    plt = pyplot()
    figure, axis = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
    values = [row[name] for row in rows]
    accuracy = [100 * row["accuracy"] for row in rows]
    deviation = [100 * row["accuracy_std"] for row in rows]
    axis.errorbar(values, accuracy, deviation, color=TEST, marker="o", capsize=3)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(FixedLocator(values))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.set(xlabel=AXES[name], ylabel="accuracy (%)", title=title)
    axis.grid(alpha=0.3)
    save_figure(figure, path)
