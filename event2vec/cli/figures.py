"""Draw what a network has learnt: its spatial embedding, the events it attends to, its classes, mistakes and curves.

Give two runs to see their embeddings one below the other, such as one with model.spatial parametric and one with
lookup. Pictures are written as PNG and SVG to RUN/figures.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser, Namespace

from event2vec.cli.options import add_json_option

if TYPE_CHECKING:
    from event2vec.model import Classifier
    from event2vec.store import EventStore


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run; more of them to compare their embeddings")
    parser.add_argument("--out", metavar="FOLDER", help="where the pictures go (default: figures in the first run)")
    parser.add_argument("--recordings", type=int, default=3, metavar="N", help="recordings to draw the attention of")
    add_json_option(parser)


def run(options: Namespace) -> None:
    from event2vec.checkpoint import load_any_model
    from event2vec.figures.embedding_maps import draw_embedding_maps
    from event2vec.figures.samples import draw_samples
    from event2vec.model import Classifier

    runs = [Path(name) for name in options.runs]
    folder = Path(options.out) if options.out else runs[0] / "figures"
    models = {path.name: load_any_model(path) for path in runs}
    similar = draw_embedding_maps(models, _both(folder / "embedding"))
    first = models[runs[0].name]
    store = _test_recordings(runs[0])
    if store is not None:
        draw_samples(_raw(runs[0], store), folder / "samples.png")
        if isinstance(first, Classifier):
            _draw_recordings(first, store, folder, options.recordings)
    _draw_curves(runs[0], folder)
    if options.json:
        print(json.dumps({"neighbour_similarity": similar, "folder": str(folder)}, indent=2))
    else:
        for name, value in similar.items():
            print(f"{name}: pixels side by side have a cosine similarity of {value:.3f}")
    print(f"The pictures are in {folder}", file=sys.stderr)


def _both(path: Path) -> list[Path]:
    return [path.with_name(f"{path.name}.png"), path.with_name(f"{path.name}.svg")]


def _test_recordings(run: Path) -> "EventStore | None":
    """What the run was tested on, if it says so and that is still there."""
    from event2vec.errors import Event2VecError
    from event2vec.runs import read_run
    from event2vec.store import EventStore

    try:
        return EventStore.open(read_run(run)["data"]).split("test")
    except Event2VecError as error:
        print(f"event2vec: warning: no attention is drawn: {error}", file=sys.stderr)
        return None


def _raw(run: Path, store: "EventStore") -> "EventStore":
    """The events that the clusters of a store were made of, where they are in a store themselves."""
    from event2vec.errors import Event2VecError
    from event2vec.runs import read_run
    from event2vec.store import EventStore

    try:
        return EventStore.open(read_run(run).get("source", "")).split("test")
    except Event2VecError:
        return store


def _draw_recordings(model: "Classifier", store: "EventStore", folder: Path, count: int) -> None:
    from event2vec.errors import Event2VecError
    from event2vec.figures.attention_maps import draw_attention
    from event2vec.randomness import seeded

    for index in range(min(count, len(store))):
        events, label = store[index]
        shortened = model.sampling.shorten(events, seeded(0, 0, index))
        answer = model.predict(events)
        title = f"Attention to a recording of {store.classes[label]}, answer {answer.name}"
        try:
            draw_attention(model, shortened, title, _both(folder / f"attention_{index + 1}"))
        except Event2VecError as error:
            print(f"event2vec: warning: {error}", file=sys.stderr)
            return


def _draw_curves(run: Path, folder: Path) -> None:
    from event2vec.figures.curves import draw_curves
    from event2vec.runs import METRICS, read_rows

    if (run / METRICS).is_file():
        draw_curves(read_rows(run / METRICS), folder / "curves.png", f"Training of {run.name}")
