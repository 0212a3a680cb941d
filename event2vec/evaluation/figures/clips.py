"""Recordings for the event player: with the attention that each event receives, or with answers over time."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.clustering import to_unit_cube
from event2vec.data.labels import Span, labels_of
from event2vec.data.windows import Windows
from event2vec.errors import FileError
from event2vec.evaluation.figures.attention_maps import attention_received, has_attention_to_draw
from event2vec.evaluation.timeline import Timeline, timeline
from event2vec.evaluation.timeline_score import match_labels
from event2vec.events import Events
from event2vec.io.chunks import decode_chunks
from event2vec.io.recording import Reading
from event2vec.model.classifier import Classifier
from event2vec.model.predictor import Predictor
from event2vec.names import counted
from event2vec.player import MOST as MOST_ON_A_PAGE
from event2vec.player.clip import Clip, Part, Thinner, thin
from event2vec.player.page import PlayerPage
from event2vec.sensor import SensorLike

MOST = 20_000  # events per recording on the page; longer ones are sampled


def make_clip(model: Classifier, tokens: Events, raw: Events, truth: str) -> Clip:
    """`tokens` are the events that the network reads, `raw` those that the camera recorded."""
    (scores,) = model.scores([tokens])
    shown = thin(raw, MOST)
    drawn = has_attention_to_draw(model)
    received = attention_received(model, tokens) if drawn else np.zeros((0, len(tokens)))
    tokens = model.tokens_of(tokens)
    bright = received / np.maximum(np.percentile(received, 99, axis=1, keepdims=True), 1e-12)
    attention = (255 * bright.clip(0, 1))[:, nearest_tokens(shown, tokens)].round().astype(np.uint8)
    answer = model.class_names[int(scores.argmax())]
    right = answer == truth
    verdict = f"prediction {answer} ({float(scores.max()):.0%}), "
    verdict += "correct" if right else f"true class {truth}"
    title = truth if right else f"{truth}, classified as {answer}"
    return Clip(title, shown, len(raw), verdict, right, attention)


def view_answers(
    model: Predictor,
    recording: str | Path,
    path: str | Path,
    windows: Windows | None = None,
    *,
    labels: str | Path | None = None,
    title: str | None = None,
    sensor: SensorLike | None = None,
    columns: str | None = None,
    time_unit: str | None = None,
    **settings: Any,
) -> Timeline:
    """Answer a long recording window by window, and write a page with the event player and the answers.

        view_answers(model, "hour.raw", "hour.html", Windows(window=0.1)).spans

    `labels` is a table of what was there, or "beside" for NAME_labels.csv; `settings` are those of `timeline`, and
    `sensor`, `columns` and `time_unit` those of `read_events`.
    """
    path, recording = Path(path), Path(recording)
    if path.suffix.lower() != ".html":
        raise FileError(path, "is not a page, expected a name that ends in .html")
    spans, clock = labels_of(recording, labels) if labels is not None else ([], 0)
    spans = match_labels(spans, model.class_names)
    chunks = decode_chunks(recording, Reading.of(sensor, columns, time_unit, model.config.sensor))
    found, thinner = answer_thinned(model, chunks, MOST_ON_A_PAGE, windows, **settings)
    clip = make_answered_clip(found, thinner.events, thinner.recorded, title or recording.name, spans, clock)
    PlayerPage(clip).write(path)
    return found


def answer_thinned(
    model: Predictor, chunks: Iterable[Events], most: int, windows: Windows | None = None, **settings: Any
) -> tuple[Timeline, Thinner]:
    """The answers on a recording that is read once, and some of its events to show."""
    thinner = Thinner(most)
    return timeline(model, thinner.watch(chunks), windows, **settings), thinner


def make_answered_clip(
    found: Timeline, events: Events, recorded: int, title: str, labels: Sequence[Span] = (), clock: int = 0
) -> Clip:
    """A long recording with its answers: some of the events that were recorded, and what the labels say."""
    first = int(events.t[0])  # the player's clock begins with the first event that it shows

    def part(start: int, stop: int, name: str, label: int | None, confidence: float | None = None) -> Part:
        return Part(max(start - first, 0), min(stop - first, events.duration), name, label, confidence)

    spans = found.spans
    answers = [part(span.start, span.stop, span.name, span.label, span.confidence) for span in spans]
    truth = [part(*span.since(clock), span.name, found.class_names.index(span.name)) for span in labels]
    said = f"{counted(len(found), 'answer')} on {found.windows.summary}"
    return Clip(title, events, recorded, said, answers=_lasting(answers), truth=_lasting(truth))


def _lasting(parts: Sequence[Part]) -> list[Part]:
    return [part for part in parts if part.start < part.stop]


def nearest_tokens(events: Events, tokens: Events) -> NDArray[np.int64]:
    """The nearest token to each event in the unit cube, of the same polarity if there is one."""
    from scipy.spatial import cKDTree

    places, points = (to_unit_cube(part, events).numpy() for part in (tokens, events))
    found = np.empty(len(events), np.int64)
    for polarity in (False, True):
        mine, theirs = events.p.numpy() == polarity, np.flatnonzero(tokens.p.numpy() == polarity)
        candidates = theirs if len(theirs) else np.arange(len(tokens))
        found[mine] = candidates[cKDTree(places[candidates]).query(points[mine])[1]]
    return found
