"""One page about a run: what it was trained on, how it went, how good it is, and some of its answers.

The page is one file; pictures lie in it as text, and nothing is loaded from elsewhere.
"""

import base64
import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from event2vec.atomic import whole_file
from event2vec.events import Events
from event2vec.figures.samples import FALLING, QUIET, RISING, last_changes

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h1 { margin-bottom: 0 } h2 { margin-top: 2.2rem } img { max-width: 100%; height: auto }
.lead { font-size: 1.2rem } .answers { display: flex; flex-wrap: wrap; gap: 1rem }
figure { margin: 0; width: 10.5rem } figcaption { font-size: .85rem } .wrong { color: #b2182b; font-weight: bold }
table { border-collapse: collapse } td, th { padding: .1rem .8rem .1rem 0; text-align: right }
td:first-child, th:first-child { text-align: left } pre { background: #f4f4f4; padding: .8rem; overflow: auto }
"""


@dataclass(frozen=True)
class Answer:
    """A recording with its true class and the scores that the network gave, the best first."""

    events: Events
    truth: str
    scores: dict[str, float]


def write_report(run: Path, evaluation: Mapping[str, Any], answers: Sequence[Answer], path: Path) -> None:
    """Write the page from what lies in the run's folder and from the facts of an evaluation."""
    accuracy = f"{100 * evaluation['accuracy']:.1f} %"
    if evaluation["repeats"] > 1:
        accuracy += f" ± {100 * evaluation['accuracy_std']:.1f}"
    parts = [
        f"<h1>{html.escape(run.name)}</h1>",
        f"<p class=lead>Recognises <b>{accuracy}</b> of {evaluation['recordings']:,} test recordings of "
        f"{len(evaluation['class_names'])} classes.</p>",
        "<h2>Some answers</h2>",
        "<p>Where each pixel last became brighter (orange) or darker (blue), and what the network says.</p>",
        f"<div class=answers>{''.join(map(_answer, answers))}</div>",
        "<h2>How the training went</h2>",
        _picture(run / "curves.png", "Loss and accuracy by epoch"),
        "<h2>Which classes are taken for which</h2>",
        _picture(run / "evaluation/confusion_test.png", "Confusion matrix"),
        _classes(evaluation),
        "<h2>How to do it again</h2>",
        f"<pre>{html.escape((run / 'recipe.yaml').read_text('utf-8'))}</pre>",
    ]
    page = f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(run.name)}</title>"
    page += f"<meta name=viewport content='width=device-width'><style>{STYLE}</style>{''.join(parts)}</html>\n"
    with whole_file(path) as temporary:
        temporary.write_text(page, "utf-8")


def _answer(answer: Answer) -> str:
    name, score = next(iter(answer.scores.items()))
    verdict = f"{html.escape(name)} ({score:.0%})"
    if name != answer.truth:
        verdict = f"<span class=wrong>{verdict}, really {html.escape(answer.truth)}</span>"
    return f"<figure>{_events_picture(answer.events)}<figcaption>{verdict}</figcaption></figure>"


def _events_picture(events: Events) -> str:
    """What `last_changes` gives, in colour and enlarged."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import ListedColormap

    file = io.BytesIO()
    colours: Any = ListedColormap([FALLING, QUIET, RISING])
    zoomed = np.kron(last_changes(events), np.ones((-(-160 // events.sensor.height),) * 2, np.int64))
    plt.imsave(file, zoomed, cmap=colours, vmin=-1, vmax=1)
    return _image(file.getvalue(), "Events of a recording")


def _picture(path: Path, description: str) -> str:
    return f"<p>{_image(path.read_bytes(), description)}</p>" if path.is_file() else ""


def _image(content: bytes, description: str) -> str:
    data = base64.b64encode(content).decode("ascii")
    return f"<img alt='{html.escape(description)}' src='data:image/png;base64,{data}'>"


def _classes(evaluation: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(name)}<td>{'-' if share is None else f'{share:.1%}'}"
        for name, share in evaluation["per_class"].items()
    )
    return f"<table><tr><th>class<th>recognised{rows}</table>"
