"""One recording of each class: what the camera saw in four time slices."""

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from event2vec.data.store import EventStore
from event2vec.evaluation.figures import pyplot, save_figure
from event2vec.events import Events

QUARTERS = ("first", "second", "third", "last")
WIDEST = 12  # letters of a line above a column
RISING, FALLING, QUIET = "#d95f02", "#3b528b", "#f4f4f4"  # distinct for the colour-blind, and in print


def draw_samples(store: EventStore, path: Path, classes: int = 10) -> None:
    """Draw a column of images per class, for up to `classes` of them; one row per equal slice of time."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    plt = pyplot()
    shown = [int(np.flatnonzero(store.labels == label)[0]) for label in np.unique(store.labels)[:classes]]
    size = (max(1.1 * len(shown) + 0.8, 4.0), 1.15 * len(QUARTERS) + 1.0)
    figure, axes = plt.subplots(len(QUARTERS), len(shown), figsize=size, squeeze=False, layout="constrained")
    colours = ListedColormap([FALLING, QUIET, RISING])
    for column, index in zip(axes.T, shown, strict=True):
        events, label = store[index]
        for axis, picture in zip(column, _moments(events), strict=True):
            axis.imshow(picture, cmap=colours, vmin=-1, vmax=1, interpolation="nearest")
            axis.set(xticks=[], yticks=[])
        column[0].set_title(on_lines(store.classes[label]), fontsize=10)
    for moment, axis in enumerate(axes[:, 0]):
        axis.set_ylabel(f"{QUARTERS[moment]} quarter", fontsize=9)
    figure.suptitle(f"Events of each class from a {store.sensor} camera, in quarters of a recording", fontsize=11)
    handles = [Patch(color=RISING, label="brighter"), Patch(color=FALLING, label="darker")]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    save_figure(figure, path)


def on_lines(name: str) -> str:
    """A long name on several lines, broken after what separates its words."""
    lines = [""]
    for word in re.findall(r"[^_\-\s]*[_\-\s]|[^_\-\s]+", name):
        if lines[-1] and len(lines[-1] + word) > WIDEST:
            lines.append("")
        lines[-1] += word
    return "\n".join(line.strip() for line in lines)


def _moments(events: Events) -> list[NDArray[np.int64]]:
    """The sign of the last change at each pixel, in equal slices of the recording."""
    slices = (events.t * len(QUARTERS) // max(events.duration, 1)).clamp(max=len(QUARTERS) - 1)
    return [last_changes(events.select(slices == moment)) for moment in range(len(QUARTERS))]


def last_changes(events: Events) -> NDArray[np.int64]:
    """The sign of the last change at each pixel; 0 where there was none."""
    picture = np.zeros((events.sensor.height, events.sensor.width), np.int64)
    # In time order, so the last one stays.
    picture[events.y.long().numpy(), events.x.long().numpy()] = np.where(events.p.numpy(), 1, -1)
    return picture
