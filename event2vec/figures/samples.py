"""One recording of each class: what the camera saw in four moments."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from event2vec.atomic import whole_file
from event2vec.events import Events
from event2vec.store import EventStore

MOMENTS = 4
RISING, FALLING, QUIET = "#d95f02", "#3b528b", "#f4f4f4"  # told apart by the colour-blind, and in print


def draw_samples(store: EventStore, path: Path, classes: int = 10) -> None:
    """A row of pictures for each class, up to `classes` of them; brightness changes in equal slices of time."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    shown = [int(np.flatnonzero(store.labels == label)[0]) for label in np.unique(store.labels)[:classes]]
    figure, axes = plt.subplots(
        len(shown), MOMENTS, figsize=(1.6 * MOMENTS, 1.55 * len(shown) + 0.7), squeeze=False, layout="constrained"
    )
    for position, (row, index) in enumerate(zip(axes, shown, strict=True)):
        events, label = store[index]
        for moment, (axis, picture) in enumerate(zip(row, _moments(events), strict=True)):
            axis.imshow(
                picture, cmap=ListedColormap([FALLING, QUIET, RISING]), vmin=-1, vmax=1, interpolation="nearest"
            )
            axis.set(xticks=[], yticks=[])
            if position == 0:
                first, last = (events.duration / 1e3 * edge / MOMENTS for edge in (moment, moment + 1))
                axis.set_title(f"{first:.0f}-{last:.0f} ms", fontsize=9)
        row[0].set_ylabel(store.classes[label], rotation=0, ha="right", va="center")
    figure.suptitle(f"What a {store.sensor} event camera reports", fontsize=11)
    handles = [Patch(color=RISING, label="brighter"), Patch(color=FALLING, label="darker")]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    with whole_file(path) as temporary:
        figure.savefig(temporary, dpi=150)
    plt.close(figure)


def _moments(events: Events) -> list[NDArray[np.int64]]:
    """The sign of the last change at each pixel, in equal slices of the recording."""
    x, y = events.x.long().numpy(), events.y.long().numpy()
    sign = np.where(events.p.numpy(), 1, -1)
    slices = np.minimum(events.t.numpy() * MOMENTS // max(events.duration, 1), MOMENTS - 1)
    pictures = []
    for moment in range(MOMENTS):
        picture = np.zeros((events.sensor.height, events.sensor.width), np.int64)
        here = slices == moment
        picture[y[here], x[here]] = sign[here]  # in time order: the last one stays
        pictures.append(picture)
    return pictures
