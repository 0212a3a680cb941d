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
from event2vec.errors import Event2VecError

if TYPE_CHECKING:
    from event2vec.model import Classifier


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run; more of them to compare their embeddings")
    parser.add_argument("--out", metavar="FOLDER", help="where the pictures go (default: figures in the first run)")
    parser.add_argument("--recordings", type=int, default=3, metavar="N", help="recordings to draw the attention of")
    add_json_option(parser)


def run(options: Namespace) -> None:
    from event2vec.checkpoint import load_any_model
    from event2vec.cli.evaluate import draw_evaluation, evaluate_run
    from event2vec.figures.embedding_maps import draw_embedding_maps
    from event2vec.model import Classifier

    runs = [Path(name) for name in options.runs]
    folder = Path(options.out) if options.out else runs[0] / "figures"
    models = {path.name: load_any_model(path) for path in runs}
    similar = draw_embedding_maps(models, folder / "embedding.png")
    first = models[runs[0].name]
    _draw_curves(runs[0], folder)
    try:
        _draw_samples(runs[0], folder)
        if isinstance(first, Classifier):
            draw_evaluation(runs[0], evaluate_run(runs[0], None), folder / "confusion.png")
            _draw_recordings(first, runs[0], folder, options.recordings)
    except Event2VecError as error:
        print(f"event2vec: warning: some pictures are not drawn: {error}", file=sys.stderr)
    if options.json:
        print(json.dumps({"neighbour_similarity": similar, "folder": str(folder)}, indent=2))
    else:
        for name, value in similar.items():
            print(f"{name}: pixels side by side have a cosine similarity of {value:.3f}")
    print(f"The pictures are in {folder}", file=sys.stderr)


def _draw_curves(run: Path, folder: Path) -> None:
    from event2vec.figures.curves import draw_curves
    from event2vec.runs import METRICS, read_rows

    if (run / METRICS).is_file():
        draw_curves(read_rows(run / METRICS), folder / "curves.png", f"Training of {run.name}")


def _draw_samples(run: Path, folder: Path) -> None:
    from event2vec.figures.samples import draw_samples
    from event2vec.runs import open_raw_recordings

    draw_samples(open_raw_recordings(run, None).split("test"), folder / "samples.png")


def _draw_recordings(model: "Classifier", run: Path, folder: Path, count: int) -> None:
    from event2vec.figures.attention_maps import draw_attention
    from event2vec.randomness import seeded
    from event2vec.runs import open_recordings

    store = open_recordings(run, None, model.sampling).split("test")
    for index in range(min(count, len(store))):
        events, label = store[index]
        shortened = model.sampling.shorten(events, seeded(0, 0, index))
        title = f"Attention to a recording of {store.classes[label]}, answer {model.predict(events).name}"
        draw_attention(model, shortened, title, folder / f"attention_{index + 1}.png")
