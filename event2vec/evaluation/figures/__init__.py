"""Pictures of events and of what a network makes of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from event2vec.atomic import whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def pyplot() -> Any:
    """matplotlib's drawing functions, for names that people chose: a $ in one begins no formula."""
    import matplotlib.pyplot as plt

    plt.rcParams["text.parse_math"] = False
    return plt


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure as PNG, to look at, and beside it as SVG, to print; and let it go."""
    plt = pyplot()
    # The same picture gives the same file: no random names in it, and no date.
    with plt.rc_context({"svg.hashsalt": "event2vec"}):
        for picture, options in (
            (path.with_suffix(".png"), {"dpi": 150}),
            (path.with_suffix(".svg"), {"metadata": {"Date": None}}),
        ):
            with whole_file(picture) as temporary:
                figure.savefig(temporary, **options)
    plt.close(figure)
