"""A timeline: the answer, the scores of the classes and the event rate over time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.data.labels import Span
from event2vec.evaluation.figures import pyplot
from event2vec.evaluation.timeline import Timeline
from event2vec.machine.atomic import whole_file
from event2vec.names import shorten

MOST_CLASSES = 16  # rows of scores; the classes with the highest are shown
COLUMNS = 1500  # points in time that a picture can show
NO_ANSWER = "#dddddd"


def draw_timeline(timeline: Timeline, path: Path, title: str, labels: Sequence[Span] = (), clock: int = 0) -> None:
    """The answers as a coloured bar (and the labels above it), scores as brightness, events per second below."""
    plt = pyplot()
    shown = np.sort(np.argsort(-timeline.scores.max(axis=0), kind="stable")[:MOST_CLASSES])
    height = 1.8 + 0.28 * len(shown)
    figure, (bar, map_axis, rate) = plt.subplots(
        3,
        1,
        figsize=(10, height + 2.2),
        sharex=True,
        layout="constrained",
        height_ratios=[0.7 if labels else 0.4, height, 1.2],
    )
    colours = plt.get_cmap("tab10" if len(timeline.class_names) <= 10 else "tab20")
    answers = [(span.start, span.stop, span.label) for span in timeline.spans]
    rows: list[tuple[str, Sequence[tuple[int, int, int | None]]]] = [("answer", answers)]
    if labels:
        wanted = [(*span.since(clock), timeline.class_names.index(span.name)) for span in labels]
        rows.append(("label", wanted))
    for row, (_, spans) in enumerate(rows):
        places = [(start / 1e6, (stop - start) / 1e6) for start, stop, _ in spans]
        tints = [NO_ANSWER if label is None else colours(label % colours.N) for _, _, label in spans]
        bar.broken_barh(places, (row - 0.4, 0.8), facecolors=tints)
    bar.set_yticks(range(len(rows)), [name for name, _ in rows])
    _draw_scores(map_axis, timeline, shown)
    for tick, label in zip(map_axis.get_yticklabels(), shown, strict=True):
        tick.set_color(colours(int(label) % colours.N))
    per_second = timeline.events / np.maximum((timeline.stops - timeline.starts) / 1e6, 1e-6)
    edges, (rates,) = _columns(timeline, per_second[:, None])
    rate.stairs(np.nan_to_num(rates), edges / 1e6, fill=True, color="#3b528b", alpha=0.6)
    rate.set(xlabel="seconds", ylabel="events / s", xlim=(0, max(timeline.duration / 1e6, 1e-6)), ylim=(0, None))
    bar.set_title(title)
    with whole_file(path) as temporary:
        figure.savefig(temporary, dpi=150, format=path.suffix[1:].lower() or "png")
    plt.close(figure)


def _columns(timeline: Timeline, values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The edges of a picture's columns, and the highest value of the windows in each; NaN where there is none."""
    edges = np.linspace(0, timeline.duration + 1, COLUMNS + 1)
    cells = timeline.cells
    picture = np.full((values.shape[1], COLUMNS), np.nan)
    first = np.minimum(np.searchsorted(edges, cells[:, 0], side="right") - 1, COLUMNS - 1)
    stop = np.maximum(np.searchsorted(edges, cells[:, 1]), first + 1)
    for index, row in enumerate(values):
        part = slice(int(first[index]), int(stop[index]))
        picture[:, part] = np.fmax(picture[:, part], row[:, None])
    return edges, picture


def _draw_scores(axis: Any, timeline: Timeline, shown: NDArray[np.int64]) -> None:
    """Rows are classes."""
    _, picture = _columns(timeline, timeline.scores[:, shown])
    extent = (0, (timeline.duration + 1) / 1e6, len(shown) - 0.5, -0.5)
    axis.imshow(picture, aspect="auto", extent=extent, vmin=0, vmax=1, cmap="viridis", interpolation="nearest")
    names = [shorten(timeline.class_names[label], 24) for label in shown]
    axis.set_yticks(range(len(shown)), names)
    axis.set_facecolor(NO_ANSWER)
