"""How good answers over time are, where labels say what was there."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from event2vec.data.datasets.dvs_gesture import CLASSES as GESTURES
from event2vec.data.labels import Span
from event2vec.errors import Event2VecError
from event2vec.evaluation.timeline import Timeline
from event2vec.names import nearest, shown

OVERLAP = 0.5  # intersection over union from which an answer has found a labelled span


class _Piece(NamedTuple):
    """A class, with its start and stop in microseconds."""

    start: int
    stop: int
    label: int

    def overlap(self, other: "_Piece") -> float:
        """Intersection over union; 0 for another class."""
        both = min(self.stop, other.stop) - max(self.start, other.start)
        either = max(self.stop, other.stop) - min(self.start, other.start)
        return both / either if both > 0 and self.label == other.label else 0.0


@dataclass(frozen=True)
class TimelineScore:
    """Answers against labels. Only labelled time counts."""

    seconds: float  # that have a label
    accuracy: float  # share of them with the right answer
    spans: int  # that are labelled
    found: int  # of which an answer of the same class covers enough
    answers: int  # spans of answers in labelled time
    latencies: tuple[float, ...]  # seconds from the onset of a labelled span to the end of the first right window,
    # before smoothing, as in live use

    @property
    def f1(self) -> float:
        """Of finding spans: 1 if every label has its one answer, and no answer is without a label."""
        return 2 * self.found / (self.spans + self.answers) if self.spans + self.answers else 0.0

    @property
    def latency(self) -> float | None:
        """The median onset latency in seconds; None if no span was ever answered correctly."""
        return float(np.median(self.latencies)) if self.latencies else None

    def facts(self) -> dict[str, Any]:
        return {**asdict(self), "f1": self.f1, "latency": self.latency, "latencies": list(self.latencies)}

    @property
    def summary(self) -> str:
        latency = "no span was recognised" if self.latency is None else f"median onset latency {self.latency:.3g} s"
        return (
            f"{self.accuracy:.1%} of {self.seconds:.4g} labelled seconds are right; {self.found} of {self.spans} spans "
            f"found (F1 {self.f1:.3f} at overlap {OVERLAP}); {latency}"
        )


def score_timeline(timeline: Timeline, labels: Sequence[Span], clock: int = 0) -> TimelineScore:
    """Compare answers with labels: by time, by spans, and how soon after its onset a span is recognised.

    `clock` is what the camera's clock showed at the first event, for labels that are on it. Time without a label does
    not count: answers are cut to the labelled time, in which labels that touch are one stretch.
    """
    wanted = _wanted(timeline, labels, clock)
    cells = timeline.cells
    answered = [_Piece(int(a), int(b), int(label)) for (a, b), label in zip(cells, timeline.labels, strict=True)]
    right = sum(
        min(cell.stop, piece.stop) - max(cell.start, piece.start)
        for piece in wanted
        for cell in _touching(answered, cells, piece)
        if cell.label == piece.label
    )
    total = sum(piece.stop - piece.start for piece in wanted)
    given = [piece for stretch in _stretches(wanted) for piece in _answers_in(timeline, stretch)]
    return TimelineScore(
        total / 1e6,
        right / total,
        len(wanted),
        _count_found(wanted, given),
        len(given),
        tuple(_latencies(timeline, wanted)),
    )


def match_labels(labels: Sequence[Span], class_names: Sequence[str]) -> list[Span]:
    """The labels with the network's names; an error if it does not know one.

    DVS Gesture's own tables number its classes from 1, which is what they mean to a network that has its names.
    """
    numbers = (
        {str(number): name for number, name in enumerate(GESTURES, 1)} if set(class_names) == set(GESTURES) else {}
    )
    matched = [replace(span, name=numbers.get(span.name, span.name)) for span in labels]
    for span in matched:
        if span.name not in class_names:
            near = nearest(span.name, class_names)
            raise Event2VecError(f"the labels name {shown(span.name)}, which the network does not know{near}")
    return matched


def _wanted(timeline: Timeline, labels: Sequence[Span], clock: int) -> list[_Piece]:
    """The labels inside the recording."""
    pieces = []
    for span in match_labels(labels, timeline.class_names):
        start, stop = span.since(clock)
        start, stop = max(start, 0), min(stop, timeline.duration + 1)
        if start < stop:
            pieces.append(_Piece(start, stop, timeline.class_names.index(span.name)))
    if not pieces:
        raise Event2VecError(f"no label lies in the recording, which lasts {timeline.duration / 1e6:.4g} s")
    return _merged(sorted(pieces))


def _merged(pieces: list[_Piece]) -> list[_Piece]:
    """Neighbours of one class are one span, as they are among the answers."""
    merged = pieces[:1]
    for piece in pieces[1:]:
        if piece.label == merged[-1].label and piece.start <= merged[-1].stop:
            merged[-1] = merged[-1]._replace(stop=max(piece.stop, merged[-1].stop))
        else:
            merged.append(piece)
    return merged


def _touching(answered: list[_Piece], cells: Any, piece: _Piece) -> list[_Piece]:
    first = int(np.searchsorted(cells[:, 1], piece.start, side="right"))
    stop = int(np.searchsorted(cells[:, 0], piece.stop))
    return answered[first:stop]


def _stretches(wanted: list[_Piece]) -> list[tuple[int, int]]:
    """Labelled time without gaps."""
    stretches: list[tuple[int, int]] = []
    for piece in wanted:
        if stretches and piece.start <= stretches[-1][1]:
            stretches[-1] = (stretches[-1][0], max(piece.stop, stretches[-1][1]))
        else:
            stretches.append((piece.start, piece.stop))
    return stretches


def _answers_in(timeline: Timeline, stretch: tuple[int, int]) -> list[_Piece]:
    return [
        _Piece(max(span.start, stretch[0]), min(span.stop, stretch[1]), span.label)
        for span in timeline.spans
        if span.label is not None and span.stop > stretch[0] and span.start < stretch[1]
    ]


def _count_found(wanted: list[_Piece], given: list[_Piece]) -> int:
    """Each answer finds one label at most; the best pairs come first."""
    pairs = [(one.overlap(other), i, j) for i, one in enumerate(wanted) for j, other in enumerate(given)]
    found: set[int] = set()
    used: set[int] = set()
    for overlap, i, j in sorted(pairs, reverse=True):
        if overlap < OVERLAP:
            break
        if i not in found and j not in used:
            found.add(i)
            used.add(j)
    return len(found)


def _latencies(timeline: Timeline, wanted: list[_Piece]) -> list[float]:
    """For each labelled span that is recognised: until the window ends whose answer is the first right one.

    Answers are those before smoothing, which looks ahead. Only windows count that lie at least half in the span: one
    that hardly touches it is right by chance. So a span that is shorter than half a window has no latency.
    """
    ends = np.minimum(timeline.stops, timeline.duration + 1)
    found = []
    for piece in wanted:
        inside = np.minimum(ends, piece.stop) - np.maximum(timeline.starts, piece.start)
        right = (2 * inside >= ends - timeline.starts) & (timeline.unsmoothed == piece.label)
        if right.any():
            found.append(float(ends[right].min() - piece.start) / 1e6)
    return found
