"""One page about a run: data, training, accuracy, mistakes, robustness, attention, embedding, speed, how to repeat it.

The page is one file. Pictures and events lie in it as text, and nothing is loaded from elsewhere. It is written again
after each section, so that a crash late in the work leaves all that was found before; a page of an earlier call is
replaced at the end alone.
"""

import base64
import html
import json
import shlex
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.atomic import whole_file
from event2vec.data.seeding import seeded
from event2vec.data.store import EventStore
from event2vec.devices import Compute
from event2vec.errors import Event2VecWarning, FileError
from event2vec.evaluation.evaluate import SEED, Evaluation, classify_store, evaluate, sweep_events, sweep_resolution
from event2vec.evaluation.figures.attention_maps import draw_attention
from event2vec.evaluation.figures.clips import make_clip
from event2vec.evaluation.figures.confusion import draw_confusion
from event2vec.evaluation.figures.curves import draw_curves, draw_sweep
from event2vec.evaluation.figures.embedding_maps import draw_embedding_maps
from event2vec.evaluation.figures.samples import draw_samples
from event2vec.evaluation.speed import measure_speed
from event2vec.events import Events
from event2vec.model.checkpoint import load_model
from event2vec.model.classifier import Classifier, count_parameters
from event2vec.names import excerpt, printable
from event2vec.progress import Stage, silently
from event2vec.training.run import (
    METRICS,
    RECIPE,
    choose_compute,
    environment,
    open_raw_recordings,
    open_recordings,
    raw_source,
    read_rows,
    read_run,
)

PAGE = Path(__file__).parent
CLASSES, MISTAKES = 10, 3  # recordings in the player: one of each of these classes, and those not recognised
SWEEP_DRAWS = 3  # draws of each point of a sweep
ATTENTION = 2  # recordings whose attention is drawn block by block


@dataclass(frozen=True)
class Report:
    """A page that was written, and what could not be put on it."""

    page: Path
    evaluation: Evaluation | None  # None where the accuracy could not be measured
    problems: dict[str, str]  # the title of a section, and why it is missing


@dataclass(frozen=True)
class Study:
    """A run, and all that the page shows of it: each thing is found out when it is first asked for."""

    run: Path
    model: Classifier
    whole: EventStore  # all splits, as the network reads them
    raw: EventStore  # test recordings with all their events
    repeats: int
    stage: Stage
    compute: Compute  # where the network answers; what it looks at is drawn there too

    @property
    def store(self) -> EventStore:
        return self.whole.split("test")

    @cached_property
    def evaluation(self) -> Evaluation:
        with self.stage("evaluating") as progress, self.compute.autocast():
            return evaluate(self.model, self.store, self.repeats, progress=progress)

    @property
    def measured(self) -> Evaluation | None:
        """The evaluation, if it has been made."""
        return self.__dict__.get("evaluation")

    @cached_property
    def chosen(self) -> list[int]:
        """Test recordings to look at."""
        with self.stage("choosing recordings") as progress, self.compute.autocast():
            answers = classify_store(self.model, self.store, 0, 32, progress).argmax(axis=1)
        return _choose(self.store, answers)

    def tokens(self, index: int) -> Events:
        """What the network reads of a recording in the first draw of the evaluation."""
        return self.model.sampling.shorten(self.store[index][0], seeded(SEED, 0, index))

    def truth(self, index: int) -> str:
        return self.store.classes[int(self.store.labels[index])]


def write_report(
    run: Path,
    path: Path,
    repeats: int = 10,
    workers: int = 1,
    stage: Stage = silently,
    data: str | None = None,
    compute: Compute | None = None,
) -> Report:
    """Evaluate a run in every way, draw it, and write the page. A section that fails says so, and the rest is made.

    `stage` is told what goes on; `data` says where the recordings are now, if they were moved; `compute` is by default
    the best device.
    """
    read_run(run)
    if path.is_dir():
        raise FileError(path, "is a folder, expected the name of a file for the page")
    compute = compute or choose_compute(run)
    model = load_model(run).to(compute.device)
    with stage("opening recordings") as progress:
        whole = open_recordings(run, data, model.sampling, workers, progress)
        raw = open_raw_recordings(run, data, workers, progress).split("test")
    study = Study(run, model, whole, raw, repeats, stage, compute)
    if raw.sources != study.store.sources:
        raise FileError(raw.folder, f"does not have the test recordings of {whole.folder}; name them with --data")
    sections, problems = dict.fromkeys(SECTIONS, "<p class=wrong>Not made yet.</p>"), dict[str, str]()
    keep_earlier = path.exists()
    for title, make in SECTIONS.items():
        try:
            sections[title] = make(study)
        except Exception as error:  # whatever it is, the other sections are worth having
            problems[title] = excerpt(error, 200) or type(error).__name__
            warnings.warn(f"the section '{title}' could not be made: {problems[title]}", Event2VecWarning, stacklevel=2)
            sections[title] = f"<p class=wrong>This could not be made: {html.escape(problems[title])}</p>"
        if not keep_earlier:
            _write_page(path, study, sections)
    if keep_earlier:
        _write_page(path, study, sections)
    return Report(path, study.measured, problems)


def _write_page(path: Path, study: Study, sections: Mapping[str, str]) -> None:
    with whole_file(path) as temporary:
        temporary.write_text(_page(study, sections), "utf-8", "backslashreplace")  # paths need not be text


def _page(study: Study, sections: Mapping[str, str]) -> str:
    name = html.escape(study.run.resolve().name)
    links = "".join(f"<a href='#s{number}'>{title}</a>" for number, title in enumerate(sections))
    body = "".join(
        f"<h2 id='s{number}'>{title}</h2>{content}" for number, (title, content) in enumerate(sections.items())
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{name}</title>"
        "<meta name=viewport content='width=device-width'><link rel=icon href='data:,'>"
        f"<style>{(PAGE / 'style.css').read_text('utf-8')}</style>"
        f"<h1>{name}</h1><p class=lead>{_lead(study)}</p>"
        f"<nav>{links}</nav>{body}<script>{(PAGE / 'player.js').read_text('utf-8')}</script></html>\n"
    )


def _lead(study: Study) -> str:
    parameters, evaluation = f"{count_parameters(study.model):,} parameters", study.measured
    if evaluation is None:
        return f"A network of {parameters}. Its accuracy is not known; see Accuracy below."
    share, of = evaluation.percent(1), f"{evaluation.recordings:,} test recordings"
    return f"Recognises <b>{share} %</b> of {of} of {len(evaluation.class_names)} classes, with {parameters}."


def _choose(store: EventStore, answers: NDArray[np.int64]) -> list[int]:
    """The first recording of each class, and the first mistakes; none without events."""
    labels = np.where(store.lengths > 0, store.labels, -1)
    firsts = [int(np.flatnonzero(labels == label)[0]) for label in np.unique(labels[labels >= 0])[:CLASSES]]
    mistakes = [int(index) for index in np.flatnonzero((labels >= 0) & (labels != answers)) if index not in firsts]
    return firsts + mistakes[:MISTAKES]


def _picture(name: str, draw: Callable[[Path], Any]) -> str:
    """A picture as an element of the page. Lines and letters are best as SVG; pixels and many points as PNG."""
    kind = "svg+xml" if name.endswith(".svg") else "png"
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder) / name)
        data = base64.b64encode((Path(folder) / name).read_bytes()).decode("ascii")
    return f"<p><img alt='{name.partition('.')[0]}' src='data:image/{kind};base64,{data}'></p>"


def _player(study: Study) -> str:
    with study.stage("following attention") as progress:
        clips = []
        for index in study.chosen:
            clips.append(make_clip(study.model, study.tokens(index), study.raw[index][0], study.truth(index)))
            progress(len(clips), len(study.chosen))
    data = json.dumps([clip.facts() for clip in clips]).replace("<", "\\u003c")  # which could end the script element
    page = (PAGE / "player.html").read_text("utf-8")
    return f'{page}<script type="application/json" id=clips>{data}</script>'


def _data(study: Study) -> str:
    whole, raw = study.whole, study.raw
    parts = {split: np.asarray([name == split for name in whole.splits]) for split in ("train", "test")}
    rows = [
        [name, *(f"{int((whole.labels[rows] == label).sum()):,}" for rows in parts.values())]
        for label, name in enumerate(whole.classes)
    ]
    lengths = np.sort(raw.lengths)
    durations = np.sort([raw[index][0].duration / 1e3 for index in range(0, len(raw), -(-len(raw) // 100))])
    facts = (
        f"<p>Sensor {whole.sensor}. Test recordings have {lengths[0]:,} to {lengths[-1]:,} events (median "
        f"{lengths[len(lengths) // 2]:,}) and take a median of {durations[len(durations) // 2]:,.0f} ms.</p>"
    )
    samples = _picture("samples.png", lambda path: draw_samples(raw, path))
    return facts + _table(["class", "to train on", "to test on"], rows) + samples


def _training(study: Study) -> str:
    facts, config, sampling = read_run(study.run), study.model.config, study.model.sampling
    kept = study.run / METRICS
    rows = read_rows(kept) if kept.is_file() else []
    minutes = sum(row.get("seconds", 0) for row in rows) / 60
    took = f" {len(rows)} epochs took {minutes:.1f} minutes." if rows else ""
    begun = f" It began from {html.escape(str(facts['init']))}." if facts.get("init") else ""
    curves = "<p>The run has no metrics.</p>"
    if rows:
        curves = _picture("curves.svg", lambda path: draw_curves(rows, path, "Training, epoch by epoch"))
    return (
        f"{curves}<p>{config.blocks} blocks of width {config.dim} with {config.heads} heads read {sampling.length} "
        f"{'clusters' if sampling.method == 'clusters' else 'random events'} of each recording.{took}{begun}</p>"
    )


def _accuracy(study: Study) -> str:
    evaluation = study.evaluation
    rows = [[name, "-" if share is None else f"{share:.1%}"] for name, share in evaluation.per_class.items()]
    draws = f"Mean and deviation over {evaluation.repeats} draws of the events." if evaluation.repeats > 1 else ""
    best = f" Among the best five: {evaluation.top5:.1%}." if evaluation.top5 is not None else ""
    lead = f"<p><b>{evaluation.percent(1)} %</b> of {evaluation.recordings:,} recordings. {draws}{best}</p>"
    confusion = _picture(
        "confusion.svg",
        lambda path: draw_confusion(evaluation.confusion, evaluation.class_names, path, "Test recordings"),
    )
    return lead + _table(["class", "recognised"], rows) + confusion


def _robustness(study: Study) -> str:
    model, raw = study.model, study.raw
    with study.stage("fewer and more events") as progress, study.compute.autocast():
        events = sweep_events(model, raw, _event_counts(model), SWEEP_DRAWS, progress=progress)
    with study.stage("fewer pixels") as progress, study.compute.autocast():
        resolution = sweep_resolution(model, raw, _sides(raw), SWEEP_DRAWS, progress=progress)
    return (
        "<p>The same network, not trained again, on fewer or more events of each recording, and on events moved to a "
        f"coarser grid of pixels.</p><div class=pair><div>{_sweep(events, 'events', 'Fewer and more events')}</div>"
        f"<div>{_sweep(resolution, 'resolution', 'Fewer pixels')}</div></div>"
    )


def _event_counts(model: Classifier) -> list[int]:
    """From an eighth of what the network was trained on to twice as much."""
    length, least = model.sampling.length, 2
    return sorted({max(length * factor // 8, least) for factor in (1, 2, 4, 8, 16)})


def _sides(store: EventStore) -> list[int]:
    """One pixel, two, four, and so on, to the sensor as it is."""
    side = max(store.sensor.width, store.sensor.height)
    return [*(2**power for power in range(side.bit_length()) if 2**power < 0.85 * side), side]


def _sweep(rows: list[dict[str, Any]], kind: str, title: str) -> str:
    head = {"events": "events", "resolution": "pixels along each side"}[kind]
    spread = any(row["accuracy_std"] for row in rows)
    cells = [
        [_point(row, kind), f"{100 * row['accuracy']:.1f}" + (f" ± {100 * row['accuracy_std']:.1f}" if spread else "")]
        for row in rows
    ]
    curve = _picture(f"{kind}.svg", lambda path: draw_sweep(rows, kind, path, title))
    return curve + _table([head, "accuracy (%)"], cells)


def _point(row: Mapping[str, Any], kind: str) -> str:
    fewer = row.get("events_read", row[kind]) < row[kind]
    return f"{row[kind]:,} (most have {row['events_read']:,})" if fewer else f"{row[kind]:,}"


def _attention(study: Study) -> str:
    if study.model.config.attention != "forgetting":
        return "<p>Gated linear attention has no weights to draw.</p>"
    drawn = [
        _picture(f"attention_{index + 1}.png", partial(_draw_recording, study, index))
        for index in range(min(ATTENTION, len(study.store)))
    ]
    return (
        "<p>What each token receives in each block, over the sensor and over time; 1 is its equal share.</p>"
        + "".join(drawn)
    )


def _draw_recording(study: Study, index: int, path: Path) -> None:
    title = f"Attention to test recording {index + 1}, of class {study.truth(index)}"
    draw_attention(study.model, study.tokens(index), title, path)


def _embedding(study: Study) -> str:
    maps = _picture(
        "embedding.png", lambda path: draw_embedding_maps({printable(study.run.resolve().name): study.model}, path)
    )
    return (
        "<p>The vector of each pixel. Principal components as colours: where colours are smooth, pixels side by side "
        f"have similar vectors.</p>{maps}"
    )


def _speed(study: Study) -> str:
    with study.stage("measuring speed"):
        speed = measure_speed(study.model, [study.raw[index][0] for index in study.chosen], study.compute)
    rows = [[name, f"{value:,.1f}"] for name, value in speed.items()]
    here = environment()
    machine = html.escape(f"torch {here['torch']} with {here['threads']} threads on {here['machine']}")
    return f"{_table(['', 'here'], rows)}<p class=note>Measured with {machine}.</p>"


def _repeat(study: Study) -> str:
    run = study.run
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


SECTIONS: dict[str, Callable[[Study], str]] = {
    "Watch it read": _player,
    "Data": _data,
    "Training": _training,
    "Accuracy": _accuracy,
    "Robustness": _robustness,
    "What it attends to": _attention,
    "What its embedding learnt": _embedding,
    "Speed on this machine": _speed,
    "How to repeat it": _repeat,
}
