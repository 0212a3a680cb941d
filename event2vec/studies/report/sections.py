"""The sections of the page: each takes the study of a run and returns HTML."""

import base64
import html
import shlex
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from event2vec.data.labels import Span, labels_of
from event2vec.data.store import EventStore
from event2vec.errors import Event2VecError
from event2vec.evaluation.figures.attention_maps import draw_attention, has_attention_to_draw
from event2vec.evaluation.figures.clips import answer_thinned, make_answered_clip, make_clip
from event2vec.evaluation.figures.confusion import draw_confusion
from event2vec.evaluation.figures.curves import draw_curves, draw_sweep
from event2vec.evaluation.figures.embedding_maps import draw_embedding_maps
from event2vec.evaluation.figures.reliability import draw_reliability
from event2vec.evaluation.figures.samples import draw_samples
from event2vec.evaluation.speed import INCLUDED, measure_speed
from event2vec.evaluation.sweeps import Kind, Point, sweep
from event2vec.io.chunks import decode_chunks
from event2vec.io.recording import Reading
from event2vec.model.classifier import Classifier, Event2VecClassifier
from event2vec.model.config import ModelConfig, NetworkConfig
from event2vec.names import counted, excerpt, hide_secrets, printable
from event2vec.player.clip import Clip
from event2vec.player.page import embed_player
from event2vec.studies.report.study import Study
from event2vec.training.environment import environment
from event2vec.training.timing import training_step

PAGE = Path(__file__).parent
SWEEP_DRAWS = 3  # draws per point of a sweep
LONG_EVENTS = 100_000  # of a long recording that is played with its answers
ATTENTION = 2  # recordings whose attention is drawn block by block


def _picture(name: str, draw: Callable[[Path], Any]) -> str:
    """A figure as an HTML element. Lines and text are best as SVG; pixels and many points as PNG."""
    kind = "svg+xml" if name.endswith(".svg") else "png"
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder) / name)
        data = base64.b64encode((Path(folder) / name).read_bytes()).decode("ascii")
    return f"<p><img alt='{name.partition('.')[0]}' src='data:image/{kind};base64,{data}'></p>"


def _player(study: Study) -> str:
    clips = []
    with study.progress.stage("computing attention", len(study.chosen)):
        for index in study.chosen:
            clips.append(make_clip(study.model, study.tokens(index), study.raw[index][0], study.truth(index)))
            study.progress.advance(len(clips))
    long, problem = study.long_recording, ""
    if long is not None:
        try:
            clips.append(_answered(study, long))
        except Event2VecError as error:
            problem = f"<p class=wrong>Answers over time could not be computed: {html.escape(excerpt(error, 200))}</p>"
    return f"{embed_player(clips)}{problem}" + (
        "<p class=note>With attention on, the brightness of an event shows the attention that its nearest token "
        "receives in the chosen block, averaged over queries, heads and both directions.</p>"
    )


def _answered(study: Study, path: Path) -> Clip:
    """A long recording with its answers over time, and its labels."""
    settings, chunks = study.run.recipe.data, decode_chunks(path, Reading(usual=study.model.config.sensor))
    found, thinner = answer_thinned(study.model, chunks, LONG_EVENTS, progress=study.progress)
    if settings.labels:
        labels, clock = labels_of(path, settings.labels, study.run.raw_source or ".")
    else:
        labels, clock = [Span("", 0, found.duration + 1, study.class_of(path))], 0
    title = f"{path.name}, answers over time"
    return make_answered_clip(found, thinner.events, thinner.recorded, title, labels, clock)


def _data(study: Study) -> str:
    whole, raw = study.whole, study.raw
    names = {"train": "training", "validation": "validation", "test": "test"}
    parts = {
        f"{names[split]} recordings": np.asarray([name == split for name in whole.splits])
        for split in names
        if split in whole.splits
    }
    rows = [
        [name, *(f"{int((whole.labels[rows] == label).sum()):,}" for rows in parts.values())]
        for label, name in enumerate(whole.classes)
    ]
    lengths = raw.lengths
    facts = (
        f"<p>Sensor {whole.sensor}. Test recordings have {lengths.min():,} to {lengths.max():,} events (median "
        f"{np.median(lengths):,.0f}) and a median duration of {np.median(raw.durations) / 1e3:,.0f} ms.</p>"
    )
    seen = study.model.trained_on
    if seen:
        facts += (
            f"<p>Training saw {seen.summary(study.model.sampling)}. <code>predict</code> and "
            "<code>evaluate</code> flag recordings outside twice this range.</p>"
        )
    samples = _picture("samples.png", lambda path: draw_samples(raw, path))
    return facts + _table(["class", *parts], rows) + samples


def _training(study: Study) -> str:
    init, config = study.run.facts.init, study.model.config
    rows = study.run.metrics if study.run.metrics_file.is_file() else []
    minutes = sum(row.get("seconds", 0) for row in rows) / 60
    took = f" {counted(len(rows), 'epoch')} took {minutes:.1f} minutes." if rows else ""
    begun = f" It started from the weights of {html.escape(init)}." if init else ""
    curves = "<p>The run has no metrics.</p>"
    if rows:
        curves = _picture("curves.svg", lambda path: draw_curves(rows, path, "Training, epoch by epoch"))
    return f"{curves}<p>{_network(config)} reads {study.model.reads} of each recording.{took}{begun}</p>"


def _network(config: NetworkConfig) -> str:
    if not isinstance(config, ModelConfig):
        return f"A network of the kind {config.network}"
    heads = counted(config.heads, "attention head")
    return f"A network with {counted(config.blocks, 'block')} of width {config.dim} and {heads}"


def _accuracy(study: Study) -> str:
    evaluation = study.evaluation
    intervals = evaluation.per_class_interval
    rows = [
        [name, "-" if share is None else f"{100 * share:.1f}", "" if interval is None else interval.percent(1)]
        for (name, share), interval in zip(evaluation.per_class.items(), intervals.values(), strict=True)
    ]
    draws = (
        f"Mean and standard deviation over {evaluation.repeats} draws of the events." if evaluation.repeats > 1 else ""
    )
    best = ""
    if evaluation.top5 is not None and evaluation.top5_interval is not None:
        best = f" Top-5 accuracy: {100 * evaluation.top5:.1f} % ({evaluation.top5_interval.percent(1)})."
    lead = (
        f"<p><b>{evaluation.percent(1)} %</b> of {counted(evaluation.recordings, 'recording')}; on other "
        f"recordings of this kind, expect {evaluation.interval.percent(1)} % (95 % interval, Wilson). {draws}{best}</p>"
    )
    confusion = _picture(
        "confusion.svg",
        lambda path: draw_confusion(evaluation.confusion, evaluation.class_names, path, "Test recordings"),
    )
    return lead + _table(["class", "accuracy (%)", "95 % interval"], rows) + confusion


def _confidence(study: Study) -> str:
    evaluation = study.measured
    if evaluation is None:
        return "<p>Unknown; see Accuracy above.</p>"
    found = evaluation.calibration
    parts = {"as they are given": found.after}
    if found.is_fitted:
        parts = {"without a temperature": found.before, f"with temperature {found.temperature:.2f}": found.after}
    rows = [
        [
            name,
            *(f"{100 * value:.1f}" for value in (each.error, each.confidence)),
            f"{each.nll:.3f}",
            f"{each.brier:.3f}",
        ]
        for name, each in parts.items()
    ]
    fitted = (
        "Logits are divided by a temperature that was fitted on the validation recordings." if found.is_fitted else ""
    )
    diagram = _picture(
        "reliability.svg",
        lambda path: draw_reliability(
            found, evaluation.repeats, path, "How often answers of each confidence are right"
        ),
    )
    return (
        "<p>If answers with a score of 80 % are right 80 times in 100, they lie on the dotted line; below it, the "
        f"network is overconfident. {fitted} The calibration error (ECE) is the mean distance from that line over 15 "
        "bins.</p>"
        + _table(["scores", "calibration error (%)", "mean confidence (%)", "NLL", "Brier score"], rows)
        + diagram
    )


def _robustness(study: Study) -> str:
    model, raw = study.model, study.raw
    with study.compute.autocast():
        events = sweep("events", model, raw, _event_counts(model, raw), SWEEP_DRAWS, progress=study.progress)
        resolution = sweep("resolution", model, raw, _sides(raw), SWEEP_DRAWS, progress=study.progress)
        windows = sweep("windows", model, raw, _seconds(raw), SWEEP_DRAWS, progress=study.progress)
    return (
        "<p>The same network, without retraining, on fewer or more events per recording, and on events at a lower "
        f"resolution.</p><div class=pair><div>{_sweep(events, 'events', 'Number of events')}</div>"
        f"<div>{_sweep(resolution, 'resolution', 'Resolution')}</div></div>"
        "<p>How long after the onset the right answer comes: only the first seconds of each recording.</p>"
        f"<div class=pair><div>{_sweep(windows, 'windows', 'Time since the onset')}</div></div>"
    )


def _event_counts(model: Classifier, raw: EventStore) -> list[int]:
    """From an eighth of what the network was trained on to twice as much; of all events, where it reads all."""
    length, least = min(model.sampling.length, int(np.median(raw.lengths))), 2
    return sorted({max(length * factor // 8, least) for factor in (1, 2, 4, 8, 16)})


def _sides(store: EventStore) -> list[int]:
    """1, 2, 4, ... pixels per side, up to the full sensor."""
    side = max(store.sensor.width, store.sensor.height)
    return [*(2**power for power in range(side.bit_length()) if 2**power < 0.85 * side), side]


def _seconds(store: EventStore) -> list[float]:
    """From a sixteenth of the usual duration to all of it."""
    usual = max(float(np.median(store.durations)), 16.0) / 1e6
    return [float(f"{usual / share:.2g}") for share in (16, 8, 4, 2, 1)]


def _sweep(points: list[Point], kind: Kind, title: str) -> str:
    head = {"events": "events", "resolution": "pixels per side", "windows": "seconds"}[kind]
    cells = [[_value(point), point.found.percent(1), point.found.interval.percent(1)] for point in points]
    curve = _picture(f"{kind}.svg", lambda path: draw_sweep(points, kind, path, title))
    return curve + _table([head, "accuracy (%)", "95 % interval"], cells)


def _value(point: Point) -> str:
    return f"{point.value:,} (median available: {point.available:,})" if point.falls_short else f"{point.value:,}"


def _attention(study: Study) -> str:
    if not has_attention_to_draw(study.model):
        return "<p>This network has no attention weights to draw.</p>"
    drawn = [
        _picture(f"attention_{index + 1}.png", partial(_draw_recording, study, index))
        for index in range(min(ATTENTION, len(study.store)))
    ]
    return (
        "<p>The attention that each token receives per block, over the sensor and over time; 1 is an equal share.</p>"
        + "".join(drawn)
    )


def _draw_recording(study: Study, index: int, path: Path) -> None:
    title = f"Attention to test recording {index + 1}, of class {study.truth(index)}"
    draw_attention(study.model, study.tokens(index), title, path)


def _embedding(study: Study) -> str:
    model = study.model
    if not isinstance(model, Event2VecClassifier):
        return "<p>This network has no vectors of events.</p>"
    maps = _picture(
        "embedding.png",
        lambda path: draw_embedding_maps({printable(study.run.folder.resolve().name): model}, path),
    )
    return (
        "<p>The vector of each pixel. Principal components as colours: where colours are smooth, neighbouring pixels "
        f"have similar vectors.</p>{maps}"
    )


def _speed(study: Study) -> str:
    with study.progress.stage("measuring speed"):
        recordings = [study.raw[index][0] for index in study.chosen]
        learn = training_step(study.model, study.run.recipe, study.compute)
        speed = measure_speed(study.model, recordings, learn, study.compute)
    rows = [[name, f"{value:,.1f}"] for name, value in speed.columns().items()]
    here = environment()
    machine = html.escape(f"torch {here['torch']} with {counted(here['threads'], 'thread')} on {here['machine']}")
    return f"{_table(['', 'here'], rows)}<p class=note>{INCLUDED} Measured with {machine}.</p>"


def _repeat(study: Study) -> str:
    run = study.run
    facts = run.facts
    options = {"--data": hide_secrets(run.raw_source or ""), "--init": facts.init, "--out": f"{run.folder}-again"}
    given = [part for name, value in options.items() if value for part in (name, value)]
    commands = [
        shlex.join(["event2vec", facts.task, str(run.recipe_file), *given]),
        shlex.join(["event2vec", "evaluate", str(run.folder)]),
        shlex.join(["event2vec", "report", str(run.folder)]),
    ]
    began = "\n".join(f"{name}: {facts.environment[name]}" for name in environment() if name in facts.environment)
    parts = ("\n".join(commands), began, run.recipe_file.read_text("utf-8"))
    again, how, recipe = (f"<pre>{html.escape(part)}</pre>" for part in parts)
    return f"{again}<p>Environment of the training:</p>{how}<p>Its recipe, {run.recipe_file.name}:</p>{recipe}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}' for cell in row)}" for row in rows)
    return f"<table><tr>{''.join(f'<th>{html.escape(head)}' for head in heads)}{cells}</table>"


SECTIONS: dict[str, Callable[[Study], str]] = {
    "Watch it read": _player,
    "Data": _data,
    "Training": _training,
    "Accuracy": _accuracy,
    "Confidence": _confidence,
    "Robustness": _robustness,
    "What it attends to": _attention,
    "What its embedding learnt": _embedding,
    "Speed on this machine": _speed,
    "How to reproduce it": _repeat,
}
