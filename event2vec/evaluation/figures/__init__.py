"""Figures of events and of what a network learns from them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from event2vec.machine.atomic import whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def pyplot() -> Any:
    """matplotlib.pyplot with formulas off: a $ in the name of a file or class must not start one."""
    import matplotlib.pyplot as plt

    plt.rcParams["text.parse_math"] = False
    return plt


def save_figure(figure: "Figure", path: Path) -> None:
    """Save a figure as PNG, for the screen, and as SVG, for print; then close it."""
    plt = pyplot()
    # The same figure gives the same file: no random names in it, and no date.
    with plt.rc_context({"svg.hashsalt": "event2vec"}):
        for picture, options in (
            (path.with_suffix(".png"), {"dpi": 150}),
            (path.with_suffix(".svg"), {"metadata": {"Date": None}}),
        ):
            with whole_file(picture) as temporary:
                figure.savefig(temporary, **options)
            figure.set_layout_engine("none")  # laid out once: finding out where all parts go takes as long as drawing
    plt.close(figure)
