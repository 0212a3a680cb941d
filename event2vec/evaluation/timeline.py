"""Answers over time: what a network sees in a long recording, from when to when."""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from event2vec.choices import Smoothing
from event2vec.data.windows import Window, Windows
from event2vec.errors import Event2VecError
from event2vec.evaluation.smoothing import smooth
from event2vec.events import Events
from event2vec.io.chunks import decode_chunks
from event2vec.io.recording import Reading, ReadingOptions
from event2vec.machine.atomic import whole_file
from event2vec.model.predictor import BATCH, UNKNOWN, Predictor
from event2vec.progress import SILENT, Progress
from event2vec.sensor import Sensor

NOTHING = "nothing"  # where too few events came for an answer
MANY = 1000  # windows: enough that a table of pixels pays off
STRIDES = 5  # that smoothing looks at, unless a time is given


class AnsweredSpan(NamedTuple):
    """A time in which the answer is the same."""

    start: int  # microseconds since the first event of the recording
    stop: int
    label: int | None  # None where the answer is unknown, or nothing
    name: str
    confidence: float | None  # mean score of the class over its windows; None for nothing
    windows: int
    events: int

    def facts(self) -> dict[str, Any]:
        """For JSON; times in seconds."""
        return self._asdict() | {"start": self.start / 1e6, "stop": self.stop / 1e6}


@dataclass(frozen=True)
class Timeline:
    """The answer for each window of a recording, in order."""

    class_names: tuple[str, ...]
    windows: Windows
    numbers: NDArray[np.int64]  # of the windows that were answered; others had too few events
    starts: NDArray[np.int64]  # microseconds since the first event
    stops: NDArray[np.int64]
    events: NDArray[np.int64]  # of each window
    scores: NDArray[np.float64]  # by window and class, before smoothing
    labels: NDArray[np.int64]  # of each window, after smoothing; -1: unknown
    unsmoothed: NDArray[np.int64]  # the same from each window alone, as it was known when the window ended
    duration: int  # microseconds up to the last event
    left_out: int  # windows with too few events
    scaled_from: Sensor | None  # the recording's own sensor, if it is not the network's
    far: int = 0  # windows that lie far from what the network was trained on
    remark: str | None = None  # in what the first of them does

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def cells(self) -> NDArray[np.int64]:
        """The time that each answer is for: neighbours meet in the middle of what they share, or of the gap.

        A rest at the end that is too short for a window belongs to the last one.
        """
        starts, stops = self.starts.copy(), np.minimum(self.stops, self.duration + 1)
        # A window between two with answers may have had too few events; its neighbours may share time all the same.
        together = np.flatnonzero((np.diff(self.numbers) == 1) | (starts[1:] < stops[:-1]))
        middle = stops[together] - (stops[together] - starts[together + 1]) // 2
        stops[together] = starts[together + 1] = middle
        rest = self.duration + 1 - int(stops[-1])
        if self.windows.window_events or 2 * rest < self.windows.length:
            stops[-1] += rest
        return np.stack([starts, np.maximum(stops, starts)], axis=1)

    @property
    def spans(self) -> list[AnsweredSpan]:
        """From the first event to the last: neighbours with the same answer are one span, gaps are `nothing`."""
        return list(self._spans())

    def _spans(self) -> Iterator[AnsweredSpan]:
        cells, until, first = self.cells, 0, 0
        for index in range(len(self)):
            if cells[index, 0] > until:
                yield AnsweredSpan(until, int(cells[index, 0]), None, NOTHING, None, 0, 0)
            until = int(cells[index, 1])
            last = index + 1 == len(self)
            if last or self.labels[index + 1] != self.labels[first] or cells[index + 1, 0] > until:
                yield self._span(first, index + 1, int(cells[first, 0]), until)
                first = index + 1
        if until <= self.duration:
            yield AnsweredSpan(until, self.duration + 1, None, NOTHING, None, 0, 0)

    def _span(self, first: int, stop: int, start: int, end: int) -> AnsweredSpan:
        label, scores = int(self.labels[first]), self.scores[first:stop]
        events = int(self.events[first:stop].sum())
        if label < 0:
            return AnsweredSpan(start, end, None, UNKNOWN, float(scores.max(axis=1).mean()), stop - first, events)
        return AnsweredSpan(
            start, end, label, self.class_names[label], float(scores[:, label].mean()), stop - first, events
        )

    def rows(self) -> Iterator[dict[str, Any]]:
        """One for each window, with the scores of all classes; times in seconds."""
        columns = [f"score {name}" for name in self.class_names]
        for index in range(len(self)):
            label = int(self.labels[index])
            yield {
                "start": float(self.starts[index]) / 1e6,
                "stop": float(self.stops[index]) / 1e6,
                "events": int(self.events[index]),
                "answer": self.class_names[label] if label >= 0 else UNKNOWN,
                **dict(zip(columns, self.scores[index].tolist(), strict=True)),
            }

    def write_csv(self, path: str | Path) -> None:
        """Write every window with the scores of all classes."""
        _write_rows(path, self.rows())


def write_timelines(timelines: Iterable[tuple[str, Timeline]], path: str | Path) -> None:
    """Write every window of several recordings, each with the name of its file."""
    _write_rows(path, ({"file": name, **row} for name, found in timelines for row in found.rows()))


def _write_rows(path: str | Path, rows: Iterator[dict[str, Any]]) -> None:
    with whole_file(Path(path)) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        first = next(rows)  # a timeline has at least one window
        writer = csv.DictWriter(file, list(first))
        writer.writeheader()
        writer.writerow(first)
        writer.writerows(rows)


def timeline(
    model: Predictor,
    recording: Events | str | Path | Iterable[Events],
    windows: Windows | None = None,
    *,
    smoothing: Smoothing = "mean",
    smooth_over: float | None = None,
    min_confidence: float = 0.0,
    vote: int = 1,
    batch: int = BATCH,
    progress: Progress = SILENT,
    **reading: Unpack[ReadingOptions],
) -> Timeline:
    """Answer a long recording window by window; a file is read in chunks, so that memory stays bounded.

        for span in timeline(model, "hour.raw", Windows(window=0.1)).spans:
            print(span.start / 1e6, span.name, span.confidence)

    Without `windows` they are those of the training. `smoothing` takes the running mean of the scores over
    `smooth_over` seconds (five windows), or lets a hidden Markov model give each class at least that time. Where no
    class has `min_confidence`, the answer is unknown. `reading` holds the options of `read_events`. Chunks, as
    `read_chunks` gives them, are a recording too.
    """
    windows = windows or model.windows
    if windows is None:
        raise Event2VecError("the network was trained on whole recordings, without windows. Set `windows`")
    if not 0 <= min_confidence <= 1:
        raise Event2VecError(f"`min_confidence` must be from 0 to 1, got {min_confidence}")
    if smooth_over is not None and smooth_over <= 0:
        raise Event2VecError(f"`smooth_over` must be above 0, got {smooth_over}")
    if isinstance(recording, str | Path):
        recording = decode_chunks(recording, Reading.of(usual=model.config.sensor, **reading))
    chunks = _Counted([recording] if isinstance(recording, Events) else recording)
    answers = _Answers(model.for_reading(MANY * vote), windows, vote)
    with progress.stage("answering", None):
        for part in _batches(windows.over(chunks), batch):
            answers.add(part)
            progress.advance(len(answers.found))
    return answers.timeline(chunks, smoothing, smooth_over, min_confidence)


class _Counted:
    """Chunks of a recording, of which the last time and the sensor are kept."""

    def __init__(self, chunks: Iterable[Events]) -> None:
        self.chunks, self.last = chunks, -1
        self.sensor: Sensor | None = None

    def __iter__(self) -> Iterator[Events]:
        for chunk in self.chunks:
            if len(chunk):
                self.last, self.sensor = int(chunk.t[-1]), chunk.sensor
                yield chunk


def _batches(windows: Iterator[Window], size: int) -> Iterator[list[Window]]:
    while part := list(islice(windows, size)):
        yield part


class _Answered(NamedTuple):
    place: tuple[int, int, int]  # number, start and stop of its window, whose events are not kept
    events: int
    scores: list[float]  # not an array: small ones among large that come and go would keep freed memory from the system
    judged: bool  # False: too few events for any answer


class _Answers:
    """What a network says about windows, as they come."""

    def __init__(self, model: Predictor, windows: Windows, vote: int) -> None:
        self.model, self.windows, self.vote = model, windows, vote
        self.found: list[_Answered] = []
        self.remarks: list[str] = []
        self.seen = 0  # windows, with those without events

    def add(self, part: list[Window]) -> None:
        self.seen = part[-1].number + 1
        full = [window for window in part if len(window.events) >= self.windows.min_events]
        if not full:
            return
        predictions = self.model.predict([window.events for window in full], vote=self.vote, batch=len(full))
        for window, answer in zip(full, predictions, strict=True):
            self.remarks += ["; ".join(answer.remarks)] if answer.remarks else []
            scores = [float(score) for score in answer.scores]
            place = (window.number, window.start, window.stop)
            self.found.append(_Answered(place, len(window.events), scores, answer.unknown is None))

    def timeline(
        self, chunks: _Counted, smoothing: Smoothing, smooth_over: float | None, min_confidence: float
    ) -> Timeline:
        if not self.found:
            raise Event2VecError(
                f"none of {self.seen:,} windows has {self.windows.min_events:,} events, so there is nothing to answer"
            )
        numbers, starts, stops = (np.array([each.place[place] for each in self.found], np.int64) for place in range(3))
        scores = np.array([each.scores for each in self.found], np.float64)
        step = self.windows.step or (float(np.median(np.diff(starts))) if len(starts) > 1 else 0)
        width = STRIDES if smooth_over is None else max(round(smooth_over * 1e6 / max(step, 1)), 1)
        labels = _labels(scores, numbers, smoothing, width, min_confidence)
        unsmoothed = _labels(scores, numbers, "none", 1, min_confidence)
        labels[[not each.judged for each in self.found]] = -1
        unsmoothed[[not each.judged for each in self.found]] = -1
        return Timeline(
            self.model.class_names,
            self.windows,
            numbers,
            starts,
            stops,
            np.array([each.events for each in self.found], np.int64),
            scores,
            labels,
            unsmoothed,
            chunks.last,
            self.seen - len(self.found),
            chunks.sensor if chunks.sensor != self.model.config.sensor else None,
            len(self.remarks),
            next(iter(self.remarks), None),
        )


def _labels(
    scores: NDArray[np.float64], numbers: NDArray[np.int64], how: Smoothing, width: int, min_confidence: float
) -> NDArray[np.int64]:
    """The class of each window, -1 for unknown: a class of its own whose score is always the least confidence."""
    classes = scores.shape[1]
    if min_confidence:
        scores = np.concatenate([scores, np.full((len(scores), 1), min_confidence)], axis=1)
    runs = np.split(np.arange(len(scores)), np.flatnonzero(np.diff(numbers) != 1) + 1)
    labels = np.concatenate([smooth(scores[run], how, width) for run in runs])
    return np.where(labels == classes, -1, labels)
