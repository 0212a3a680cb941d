"""Draw what a network has learnt: its spatial embedding, the events it attends to, its classes, mistakes and curves.

Give two runs to see their embeddings one below the other, such as one with model.spatial parametric and one with
lookup. Pictures are written as PNG and SVG to RUN/figures.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser, Namespace

from event2vec.cli.options import add_device_options, add_json_option, add_workers_option
from event2vec.cli.printing import say
from event2vec.cli.progress import progress_bar
from event2vec.errors import Event2VecError
from event2vec.names import printable

if TYPE_CHECKING:
    from event2vec.model.classifier import Classifier


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run; more of them to compare their embeddings")
    parser.add_argument("--out", metavar="FOLDER", help="where the pictures go (default: figures in the first run)")
    parser.add_argument("--data", metavar="PATH", help="where the first run's recordings are now, if they were moved")
    parser.add_argument("--recordings", type=int, default=3, metavar="N", help="recordings to draw the attention of")
    add_device_options(parser)
    add_workers_option(parser)
    add_json_option(parser)


def run(options: Namespace) -> int:
    from event2vec.cli.evaluate import draw_evaluation, evaluate_run
    from event2vec.evaluation.figures.embedding_maps import draw_embedding_maps
    from event2vec.model.checkpoint import load_any_model
    from event2vec.model.classifier import Classifier

    runs = [Path(name) for name in options.runs]
    folder = Path(options.out) if options.out else runs[0] / "figures"
    loaded = [load_any_model(run) for run in runs]  # before names: what is no run may have none
    models = dict(zip(_names(runs), loaded, strict=True))
    similar = draw_embedding_maps(models, folder / "embedding.png")
    first = next(iter(models.values()))
    problem = None
    try:
        _draw_samples(runs[0], folder, options)
        if isinstance(first, Classifier):
            evaluation = evaluate_run(
                runs[0],
                options.data,
                workers=options.workers,
                device=options.device,
                precision=options.precision,
            )
            draw_evaluation(runs[0], evaluation, folder / "confusion.png")
            _draw_recordings(first, runs[0], folder, options)
        _draw_curves(runs[0], folder)
    except Event2VecError as error:
        problem = error
    if options.json:
        print(json.dumps({"neighbour_similarity": similar, "folder": str(folder)}, indent=2))
    else:
        for name, value in similar.items():
            print(printable(f"{name}: pixels side by side have a cosine similarity of {value:.3f}"))
    say(f"The pictures are in {folder}")
    if problem:
        say(f"event2vec: some pictures could not be drawn: {problem}")
    return 2 if problem else 0


def _names(runs: list[Path]) -> list[str]:
    """As short as can be told apart."""
    short = [printable(run.resolve().name) for run in runs]
    if len(set(short)) == len(runs):
        return short
    return [printable(f"{run.resolve().parent.name}/{run.resolve().name}") for run in runs]


def _draw_curves(run: Path, folder: Path) -> None:
    from event2vec.evaluation.figures.curves import draw_curves
    from event2vec.training.run import METRICS, read_rows

    if (run / METRICS).is_file():
        draw_curves(read_rows(run / METRICS), folder / "curves.png", printable(f"Training of {run.name}"))


def _draw_samples(run: Path, folder: Path, options: Namespace) -> None:
    from event2vec.evaluation.figures.samples import draw_samples
    from event2vec.training.run import open_raw_recordings

    with progress_bar("preparing") as progress:
        raw = open_raw_recordings(run, options.data, options.workers, progress)
    draw_samples(raw.split("test"), folder / "samples.png")


def _draw_recordings(model: "Classifier", run: Path, folder: Path, options: Namespace) -> None:
    from event2vec.data.seeding import seeded
    from event2vec.evaluation.figures.attention_maps import draw_attention
    from event2vec.training.run import open_recordings

    store = open_recordings(run, options.data, model.sampling, options.workers).split("test")
    for index in range(min(options.recordings, len(store))):
        events, label = store[index]
        shortened = model.sampling.shorten(events, seeded(0, 0, index))
        title = f"Attention to a recording of {store.classes[label]}, answer {model.predict(events).name}"
        draw_attention(model, shortened, title, folder / f"attention_{index + 1}.png")
