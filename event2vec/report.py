"""One page about a run: data, training, accuracy, mistakes, robustness, attention, embedding, speed, how to repeat it.

The page is one file. Pictures and events lie in it as text, and nothing is loaded from elsewhere.
"""

import base64
import html
import json
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.atomic import whole_file
from event2vec.benchmark.model import measure_speed
from event2vec.checkpoint import load_model
from event2vec.errors import FileError
from event2vec.evaluate import SEED, Evaluation, classify_store, evaluate, sweep_events, sweep_resolution
from event2vec.events import Events
from event2vec.figures.attention_maps import draw_attention
from event2vec.figures.clips import Clip, make_clip
from event2vec.figures.confusion import draw_confusion
from event2vec.figures.curves import draw_curves, draw_sweep
from event2vec.figures.embedding_maps import draw_embedding_maps
from event2vec.figures.samples import draw_samples
from event2vec.model import Classifier, count_parameters
from event2vec.randomness import seeded
from event2vec.runs import (
    METRICS,
    RECIPE,
    environment,
    open_raw_recordings,
    open_recordings,
    raw_source,
    read_rows,
    read_run,
)
from event2vec.stages import Progress, Stage, silently
from event2vec.store import EventStore

PAGE = Path(__file__).parent / "page"
CLASSES, MISTAKES = 10, 3  # recordings in the player: one of so many classes, and so many that were not recognised
SWEEP_DRAWS = 3  # draws of each point of a sweep
ATTENTION = 2  # recordings whose attention is drawn block by block


@dataclass(frozen=True)
class Findings:
    """All that the page shows of a network, beside its pictures."""

    evaluation: Evaluation
    events: list[dict[str, Any]]  # accuracy by the number of events
    resolution: list[dict[str, Any]]  # and by the pixels along each side
    speed: dict[str, float]
    clips: list[Clip]


def write_report(
    run: Path,
    path: Path,
    repeats: int = 10,
    workers: int = 1,
    stage: Stage = silently,
    data: str | None = None,
) -> Findings:
    """Evaluate a run in every way, draw it, and write the page.

    `stage` is told what goes on; `data` says where the recordings are now, if they were moved.
    """
    read_run(run)
    model = load_model(run)
    with stage("opening recordings") as progress:
        whole = open_recordings(run, data, model.sampling, workers, progress)
        raw = open_raw_recordings(run, data, workers, progress).split("test")
    store = whole.split("test")
    if raw.sources != store.sources:
        raise FileError(raw.folder, f"does not have the test recordings of {whole.folder}; name them with --data")
    found = _find(model, store, raw, repeats, stage)
    with tempfile.TemporaryDirectory() as folder, stage("drawing") as progress:
        pictures = _draw(run, model, store, raw, found, Path(folder), progress)
        page = _page(run, model, whole, raw, found, pictures)
    with whole_file(path) as temporary:
        temporary.write_text(page, "utf-8")
    return found


def _find(model: Classifier, store: EventStore, raw: EventStore, repeats: int, stage: Stage) -> Findings:
    with stage("evaluating") as progress:
        evaluation = evaluate(model, store, repeats, progress=progress)
    with stage("fewer and more events") as progress:
        events = sweep_events(model, raw, _event_counts(model), SWEEP_DRAWS, progress=progress)
    with stage("fewer pixels") as progress:
        resolution = sweep_resolution(model, raw, _sides(raw), SWEEP_DRAWS, progress=progress)
    with stage("choosing recordings") as progress:
        answers = classify_store(model, store, 0, 32, progress).argmax(axis=1)
        chosen = _choose(store, answers)
        clips = [
            make_clip(model, _tokens(model, store, index), raw[index][0], store.classes[store.labels[index]])
            for index in chosen
        ]
    with stage("measuring speed"):
        speed = measure_speed(model, [raw[index][0] for index in chosen])
    return Findings(evaluation, events, resolution, speed, clips)


def _tokens(model: Classifier, store: EventStore, index: int) -> Events:
    """What the network reads of a recording in the first draw of the evaluation."""
    return model.sampling.shorten(store[index][0], seeded(SEED, 0, index))


def _event_counts(model: Classifier) -> list[int]:
    """From an eighth of what the network was trained on to twice as much."""
    length, least = model.sampling.length, 2
    return sorted({max(length * factor // 8, least) for factor in (1, 2, 4, 8, 16)})


def _sides(store: EventStore) -> list[int]:
    """One pixel, two, four, and so on, to the sensor as it is."""
    side = max(store.sensor.width, store.sensor.height)
    return [*(2**power for power in range(side.bit_length()) if 2**power < 0.85 * side), side]


def _choose(store: EventStore, answers: NDArray[np.int64]) -> list[int]:
    """The first recording of each class, and the first mistakes; none without events."""
    labels = np.where(store.lengths > 0, store.labels, -1)
    firsts = [int(np.flatnonzero(labels == label)[0]) for label in np.unique(labels[labels >= 0])[:CLASSES]]
    mistakes = [int(index) for index in np.flatnonzero((labels >= 0) & (labels != answers)) if index not in firsts]
    return firsts + mistakes[:MISTAKES]


def _draw(
    run: Path,
    model: Classifier,
    store: EventStore,
    raw: EventStore,
    found: Findings,
    folder: Path,
    progress: Progress,
) -> dict[str, str]:
    """Each picture as an element of the page. Lines and letters as SVG; pixels and many points as PNG."""
    drawings: dict[str, Callable[[Path], Any]] = {
        "samples.png": lambda path: draw_samples(raw, path),
        "confusion.svg": lambda path: draw_confusion(
            found.evaluation.confusion, found.evaluation.class_names, path, "Test recordings"
        ),
        "events.svg": lambda path: draw_sweep(found.events, "events", path, "Fewer and more events"),
        "resolution.svg": lambda path: draw_sweep(found.resolution, "resolution", path, "Fewer pixels"),
        "embedding.png": lambda path: draw_embedding_maps({run.resolve().name: model}, path),
    }
    if (run / METRICS).is_file():
        drawings["curves.svg"] = lambda path: draw_curves(read_rows(run / METRICS), path, "Training, epoch by epoch")
    if model.config.attention == "forgetting":
        for index in range(min(ATTENTION, len(store))):
            drawings[f"attention_{index + 1}.png"] = partial(_draw_recording, model, store, index)
    pictures = {}
    for number, (name, draw) in enumerate(drawings.items()):
        draw(folder / name)
        pictures[name.partition(".")[0]] = _image(folder / name)
        progress(number + 1, len(drawings))
    return pictures


def _draw_recording(model: Classifier, store: EventStore, index: int, path: Path) -> None:
    truth = store.classes[int(store.labels[index])]
    draw_attention(
        model, _tokens(model, store, index), f"Attention to test recording {index + 1}, of class {truth}", path
    )


def _image(path: Path) -> str:
    kind = "svg+xml" if path.suffix == ".svg" else "png"
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return f"<p><img alt='{path.stem}' src='data:image/{kind};base64,{data}'></p>"


def _page(
    run: Path, model: Classifier, whole: EventStore, raw: EventStore, found: Findings, pictures: Mapping[str, str]
) -> str:
    evaluation, name = found.evaluation, html.escape(run.resolve().name)
    sections = {
        "Watch it read": _player(found.clips),
        "Data": _data(whole, raw) + pictures["samples"],
        "Training": pictures.get("curves", "<p>The run has no metrics.</p>") + _training(run, model),
        "Accuracy": _classes(evaluation) + pictures["confusion"],
        "Robustness": _robustness(found, pictures),
        "What it attends to": _attention(pictures),
        "What its embedding learnt": _embedding(pictures),
        "Speed on this machine": _speed(found.speed),
        "How to repeat it": _repeat(run),
    }
    links = "".join(f"<a href='#s{number}'>{title}</a>" for number, title in enumerate(sections))
    body = "".join(
        f"<h2 id='s{number}'>{title}</h2>{content}" for number, (title, content) in enumerate(sections.items())
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{name}</title>"
        "<meta name=viewport content='width=device-width'><link rel=icon href='data:,'>"
        f"<style>{(PAGE / 'style.css').read_text('utf-8')}</style>"
        f"<h1>{name}</h1><p class=lead>Recognises <b>{evaluation.percent(1)} %</b> of {evaluation.recordings:,} test "
        f"recordings of {len(evaluation.class_names)} classes, with {count_parameters(model):,} parameters.</p>"
        f"<nav>{links}</nav>{body}<script>{(PAGE / 'player.js').read_text('utf-8')}</script></html>\n"
    )


def _player(clips: Sequence[Clip]) -> str:
    data = json.dumps([clip.facts() for clip in clips]).replace("<", "\\u003c")  # which could end the script element
    page = (PAGE / "player.html").read_text("utf-8")
    return f'{page}<script type="application/json" id=clips>{data}</script>'


def _data(whole: EventStore, raw: EventStore) -> str:
    parts = {split: np.asarray([name == split for name in whole.splits]) for split in ("train", "test")}
    rows = [
        [name, *(f"{int((whole.labels[rows] == label).sum()):,}" for rows in parts.values())]
        for label, name in enumerate(whole.classes)
    ]
    lengths = np.sort(raw.lengths)
    durations = np.sort([raw[index][0].duration / 1e3 for index in range(0, len(raw), -(-len(raw) // 100))])
    facts = (
        f"<p>Sensor {whole.sensor}. A test recording has {lengths[0]:,} to {lengths[-1]:,} events, "
        f"{lengths[len(lengths) // 2]:,} in the middle, and takes {durations[len(durations) // 2]:,.0f} ms.</p>"
    )
    return facts + _table(["class", "to train on", "to test on"], rows)


def _training(run: Path, model: Classifier) -> str:
    facts = read_run(run)
    config, sampling = model.config, model.sampling
    rows = read_rows(run / METRICS) if (run / METRICS).is_file() else []
    minutes = sum(row.get("seconds", 0) for row in rows) / 60
    took = f" {len(rows)} epochs took {minutes:.1f} minutes." if rows else ""
    begun = f" It began from {html.escape(str(facts['init']))}." if facts.get("init") else ""
    return (
        f"<p>{config.blocks} blocks of width {config.dim} with {config.heads} heads read {sampling.length} "
        f"{'clusters' if sampling.method == 'clusters' else 'random events'} of each recording.{took}{begun}</p>"
    )


def _classes(evaluation: Evaluation) -> str:
    rows = [[name, "-" if share is None else f"{share:.1%}"] for name, share in evaluation.per_class.items()]
    draws = f"Mean and deviation over {evaluation.repeats} draws of the events." if evaluation.repeats > 1 else ""
    best = f" Among the best five: {evaluation.top5:.1%}." if evaluation.top5 is not None else ""
    lead = f"<p><b>{evaluation.percent(1)} %</b> of {evaluation.recordings:,} recordings. {draws}{best}</p>"
    return lead + _table(["class", "recognised"], rows)


def _robustness(found: Findings, pictures: Mapping[str, str]) -> str:
    tables = [
        _table(
            [title, "accuracy (%)"],
            [[_point(row, kind), f"{100 * row['accuracy']:.1f}{_spread(found, row)}"] for row in rows],
        )
        for kind, title, rows in (
            ("events", "events", found.events),
            ("resolution", "pixels along each side", found.resolution),
        )
    ]
    return (
        "<p>The same network, not trained again, on fewer or more events of each recording, and on events moved to a "
        f"coarser grid of pixels.</p><div class=pair><div>{pictures['events']}{tables[0]}</div>"
        f"<div>{pictures['resolution']}{tables[1]}</div></div>"
    )


def _point(row: Mapping[str, Any], kind: str) -> str:
    fewer = row.get("events_read", row[kind]) < row[kind]
    return f"{row[kind]:,} (most have {row['events_read']:,})" if fewer else f"{row[kind]:,}"


def _spread(found: Findings, row: Mapping[str, Any]) -> str:
    return f" ± {100 * row['accuracy_std']:.1f}" if found.evaluation.repeats > 1 else ""


def _attention(pictures: Mapping[str, str]) -> str:
    drawn = [picture for name, picture in pictures.items() if name.startswith("attention")]
    if not drawn:
        return "<p>Gated linear attention has no weights to draw.</p>"
    return (
        "<p>What each token receives in each block, over the sensor and over time; 1 is its equal share.</p>"
        + "".join(drawn)
    )


def _embedding(pictures: Mapping[str, str]) -> str:
    return (
        "<p>The vector of each pixel. Principal components as colours: where colours are smooth, pixels side by side "
        f"have similar vectors.</p>{pictures['embedding']}"
    )


def _speed(speed: Mapping[str, float]) -> str:
    rows = [[name, f"{value:,.1f}"] for name, value in speed.items()]
    here = environment()
    machine = html.escape(f"torch {here['torch']} with {here['threads']} threads on {here['machine']}")
    return f"{_table(['', 'here'], rows)}<p class=note>Measured with {machine}.</p>"


def _repeat(run: Path) -> str:
    facts = read_run(run)
    options = {"--data": raw_source(run), "--init": facts["init"], "--out": f"{run}-again"}
    given = [part for name, value in options.items() if value for part in (name, value)]
    commands = [
        shlex.join(["event2vec", facts["task"], str(run / RECIPE), *given]),
        shlex.join(["event2vec", "evaluate", str(run)]),
        shlex.join(["event2vec", "report", str(run)]),
    ]
    began = "\n".join(f"{name}: {facts[name]}" for name in environment() if name in facts)
    parts = ("\n".join(commands), began, (run / RECIPE).read_text("utf-8"))
    again, how, recipe = (f"<pre>{html.escape(part)}</pre>" for part in parts)
    return f"{again}<p>How it was trained:</p>{how}<p>Its recipe, {RECIPE}:</p>{recipe}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}' for cell in row)}" for row in rows)
    return f"<table><tr>{''.join(f'<th>{html.escape(head)}' for head in heads)}{cells}</table>"
