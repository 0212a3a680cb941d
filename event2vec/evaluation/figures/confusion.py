"""The confusion matrix: which classes are mistaken for which."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from event2vec.evaluation.figures import pyplot, save_figure

WITH_NUMBERS = 26  # with up to this many classes, cells show their values


def draw_confusion(confusion: NDArray[np.int64], class_names: tuple[str, ...], path: Path, title: str) -> None:
    """True classes down, predicted classes across, in percent of each true class."""
    plt = pyplot()
    counts = confusion.sum(axis=1, keepdims=True)
    percent = 100 * confusion / np.maximum(counts, 1)
    side = min(max(0.42 * len(class_names) + 2, 4.5), 14)
    figure, axis = plt.subplots(figsize=(side + 0.8, side), layout="constrained")
    picture = axis.imshow(percent, cmap="viridis", vmin=0, vmax=100)
    figure.colorbar(picture, ax=axis, label="% of recordings of the true class", shrink=0.8)
    if len(class_names) <= WITH_NUMBERS:
        axis.set_xticks(range(len(class_names)), class_names, rotation=45, ha="right", rotation_mode="anchor")
        axis.set_yticks(range(len(class_names)), class_names)
        for row, column in zip(*np.nonzero(confusion), strict=True):
            colour = "black" if percent[row, column] > 60 else "white"
            axis.text(column, row, f"{percent[row, column]:.0f}", ha="center", va="center", color=colour, fontsize=8)
    axis.set(xlabel="predicted class", ylabel="true class", title=title)
    save_figure(figure, path)
