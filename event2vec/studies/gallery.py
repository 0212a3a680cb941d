"""Figures of what networks have learnt, in one folder: embeddings, attention, samples, confusion, curves."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from event2vec.arguments import several
from event2vec.data.batches import Recordings
from event2vec.data.store import EventStore
from event2vec.errors import Event2VecError
from event2vec.evaluation.evaluate import SEED
from event2vec.evaluation.figures.attention_maps import draw_attention
from event2vec.evaluation.figures.embedding_maps import draw_embedding_maps
from event2vec.evaluation.figures.samples import draw_samples
from event2vec.execution import Execution, ExecutionOptions
from event2vec.model.checkpoint import load_event2vec
from event2vec.model.classifier import Classifier
from event2vec.names import printable
from event2vec.training.run import Run


@dataclass(frozen=True)
class Gallery:
    """The figures that were drawn."""

    folder: Path
    neighbour_similarity: dict[str, float]  # of the vectors of neighbouring pixels, by the name of a run
    problem: Event2VecError | None  # why some of them are missing


def draw_gallery(
    runs: str | Path | Run | Iterable[str | Path | Run],
    folder: str | Path | None = None,
    *,
    recordings: int = 3,
    data: str | Path | None = None,
    **how: Unpack[ExecutionOptions],
) -> Gallery:
    """Draw the embeddings of all runs below each other, and every figure of the first run.

        draw_gallery(["runs/digits"]).folder

    They go to `folder`, else into the first run; a network alone is not changed, and has them in NAME-figures in the
    current folder. `recordings` is the number of recordings whose attention is drawn. Figures that need recordings are
    skipped if these cannot be opened. `how` is `workers`, `device`, `precision` and `progress`.
    """
    given = Execution(**how)
    opened = [Run.open(run) for run in several(runs)]
    if not opened:
        raise Event2VecError("runs must be one or more, got none")
    first = opened[0]
    folder = Path(folder) if folder else _usual_folder(first)
    networks = [load_event2vec(run.folder) for run in opened]
    samples, problem = _open_samples(first, data, given)  # before anything is drawn
    similarity = draw_embedding_maps(dict(zip(_names(opened), networks, strict=True)), folder / "embedding.png")
    if first.metrics_file.is_file():
        first.draw_curves(folder / "curves.png")
    if samples is None:
        return Gallery(folder, similarity, problem)
    try:
        draw_samples(samples, folder / "samples.png")
        if isinstance(networks[0], Classifier):
            found = first.evaluate(data, keep=False, **how)
            first.draw_confusion(found, folder / "confusion.png")
            _draw_recordings(first, networks[0], folder, recordings, data, given.workers)
    except Event2VecError as error:
        problem = error
    return Gallery(folder, similarity, problem)


def _usual_folder(run: Run) -> Path:
    return run.figures if run.is_started else Path(f"{run.folder.resolve().name}-figures")


def _open_samples(run: Run, data: str | Path | None, how: Execution) -> tuple[EventStore | None, Event2VecError | None]:
    """The test recordings with all their events, or why they cannot be opened."""
    try:
        return run.raw_store(data, how.workers, how.progress, "test").split("test"), None
    except Event2VecError as error:
        return None, error


def _names(runs: Sequence[Run]) -> list[str]:
    """The shortest ends of their paths that are unique."""
    folders = list(dict.fromkeys(run.folder.resolve() for run in runs))
    for depth in range(1, 1 + max(len(folder.parts) for folder in folders)):
        names = {folder: printable("/".join(folder.parts[-depth:])) for folder in folders}
        if len(set(names.values())) == len(folders):
            break
    return [names[run.folder.resolve()] for run in runs]


def _draw_recordings(
    run: Run, model: Classifier, folder: Path, count: int, data: str | Path | None, workers: int
) -> None:
    store = run.store(data, workers=workers).split("test")
    drawn = Recordings((store,), model.sampling, SEED)
    for index in range(min(count, len(store))):
        events, label, _ = drawn[0, index]
        title = f"Attention to a recording of {store.classes[label]}, predicted {model.predict(events).name}"
        draw_attention(model, events, title, folder / f"attention_{index + 1}.png")
