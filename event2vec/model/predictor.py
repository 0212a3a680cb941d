"""Predictor: recordings in, answers out, whatever computes the scores. Without torch, as exported networks need it."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
from jaxtyping import Float

from event2vec.arguments import check_kind, several
from event2vec.data.sampling import Sampling, draw_events
from event2vec.data.windows import Windows
from event2vec.errors import Event2VecError, FileError
from event2vec.events import EventBatch, Events
from event2vec.io import read_arrays
from event2vec.io.recording import Reading
from event2vec.model.config import ModelConfig, NetworkConfig
from event2vec.model.trained_on import Extent, TrainedOn, too_few
from event2vec.names import printable
from event2vec.sensor import Sensor

UNKNOWN = "unknown"  # the answer where no class is sure enough
SEED = 0  # for drawing events in predictions
BATCH = 32  # recordings that go through the network at once

Recording = Events | str | Path  # events, or the file that holds them


@dataclass(frozen=True)
class Prediction:
    """The prediction for one recording."""

    label: int | None  # None where the answer is unknown
    name: str  # of the class, or "unknown"; label and `unknown` tell that from a class of this name
    scores: Float[Any, " classes"]  # probabilities; they sum to 1. A tensor, or an array from an exported network
    events: int  # in the whole recording
    scaled_from: Sensor | None  # the recording's own sensor, if it is not the network's
    unknown: str | None = None  # why no class is named; None where one is
    remarks: tuple[str, ...] = ()  # in what the recording lies far from those of the training, as far as that is known

    @property
    def confidence(self) -> float:
        """The score of the best class."""
        return float(self.scores.max())


class Judged(NamedTuple):
    """What scores say: a class, or why none is named."""

    label: int | None
    scores: Float[Any, " classes"]  # as they are shown: all the same where they mean nothing
    unknown: str | None
    remarks: tuple[str, ...]


class Predictor:
    """What classifies recordings: a network, and what is needed to give it what it reads and to judge its scores."""

    config: NetworkConfig
    class_names: tuple[str, ...]
    sampling: Sampling
    temperature: float  # of scores; training fits it, see `fit_temperature`
    trained_on: TrainedOn | None  # training notes it
    windows: Windows | None  # what the recordings that it learnt from were cut into

    @property
    def tokens(self) -> int:
        """Events of a recording, at most, that become tokens: all that are read, unless `model.tokens` says fewer."""
        fewer = self.config.tokens if isinstance(self.config, ModelConfig) else 0
        return min(fewer, self.sampling.length) or self.sampling.length

    @property
    def reads(self) -> str:
        """What it reads of a recording, for people."""
        some = f", of which {self.tokens:,} become tokens" if self.tokens < self.sampling.length else ""
        return f"{self.sampling.summary}{some}"

    @overload
    def predict(  # type: ignore[overload-overlap]  # a str is a sequence of str, but a file here
        self, recordings: Recording, *, vote: int = 1, batch: int = BATCH, min_confidence: float = 0.0
    ) -> Prediction: ...

    @overload
    def predict(
        self, recordings: Iterable[Recording], *, vote: int = 1, batch: int = BATCH, min_confidence: float = 0.0
    ) -> list[Prediction]: ...

    def predict(
        self,
        recordings: Recording | Iterable[Recording],
        *,
        vote: int = 1,
        batch: int = BATCH,
        min_confidence: float = 0.0,
    ) -> Prediction | list[Prediction]:
        """Classify a recording, or each of many: events or files, of any length and sensor.

        Other sensors are scaled to the network's. Scores are means over `vote` random draws of the events; the draws
        are the same every time. `batch` recordings go through the network at once. Where the best score is below
        `min_confidence`, the answer is `unknown`, with the label None. Recordings with hardly any events, and scores
        that are not numbers, also give `unknown`, with equal scores for all classes.

            model.predict("clip.aedat4").name
            [answer.name for answer in model.predict(sorted(folder.glob("*.raw")), vote=5)]
        """
        if isinstance(recordings, Events | str | Path):
            return self.predict([recordings], vote=vote, batch=batch, min_confidence=min_confidence)[0]
        if vote < 1:
            raise Event2VecError(f"`vote` must be at least 1, got {vote}")
        if batch < 1:
            raise Event2VecError(f"batch must be at least 1, got {batch}")
        if not 0 <= min_confidence <= 1:
            raise Event2VecError(f"`min_confidence` must be from 0 to 1, got {min_confidence}")
        recordings = several(recordings)
        for recording in recordings:
            check_kind(recording, Events | str | Path, "events, or files with recordings")
        network = self.for_reading(len(recordings) * vote)
        answers: list[Prediction] = []
        for start in range(0, len(recordings), batch):
            events = [self._read(recording) for recording in recordings[start : start + batch]]
            drawn = network._draws(events, vote)
            for number, (recording, row) in enumerate(zip(events, network.mean_scores(drawn), strict=True)):
                read = drawn[0].row(number) if self.sampling.repeatable else recording
                answers.append(self._prediction(recording, row, Extent.of(read), min_confidence))
        return answers

    def scores(self, recordings: Sequence[Events], vote: int = 1) -> Float[Any, "recordings classes"]:
        """The probability of each class, for each recording, whether or not it is like those of the training."""
        return self.mean_scores(self._draws(recordings, vote))

    def for_reading(self, draws: int) -> "Predictor":
        """The same network, in the form that is fastest for this number of draws."""
        return self

    @abstractmethod
    def mean_scores(self, draws: Sequence[EventBatch]) -> Float[Any, "recordings classes"]:
        """Mean probabilities over draws of the same recordings, which come as arrays."""

    def _draws(self, recordings: Sequence[Events], vote: int) -> list[EventBatch]:
        same = self.sampling.same_every_time(map(len, recordings))
        return [self.draw(recordings, number) for number in range(1 if same else vote)]

    def draw(self, recordings: Sequence[Events], number: int = 0) -> EventBatch:
        """The events that the network reads, scaled to its sensor. Each recording is drawn from independently."""
        placed = (events.arrays().on_sensor(self.config.sensor) for events in recordings)
        return EventBatch.pad([draw_events(events, self.sampling, SEED, number) for events in placed])

    def _prediction(
        self, events: Events, scores: Float[Any, " classes"], extent: Extent, min_confidence: float
    ) -> Prediction:
        label, scores, unknown, remarks = self.judge(scores, extent, min_confidence)
        scaled = events.sensor if events.sensor != self.config.sensor else None
        name = UNKNOWN if label is None else self.class_names[label]
        return Prediction(label, name, scores, len(events), scaled, unknown, remarks)

    def judge(self, scores: Float[Any, " classes"], extent: Extent, min_confidence: float) -> Judged:
        """What scores mean: the one rule, so that files, windows and live streams get the same answer."""
        label, confidence = int(scores.argmax()), float(scores.max())
        remarks = self.trained_on.remarks(extent) if self.trained_on else ()
        unknown = too_few(extent, self.trained_on)
        if unknown is None and math.isnan(confidence):
            unknown = (
                "the network gave scores that are not numbers. Its weights may be damaged: train or export it again"
            )
        if unknown:
            scores = _even(scores)
        elif confidence < min_confidence:
            best = f"{printable(self.class_names[label])} is the best class with {confidence:.1%}"
            unknown = f"{best}, below the {min_confidence:.1%} asked for"
        return Judged(None if unknown else label, scores, unknown, remarks)

    def _read(self, recording: Recording) -> Events:
        events = (
            recording if isinstance(recording, Events) else read_arrays(recording, Reading(usual=self.config.sensor))
        )
        if len(events) == 0:
            problem = "holds no events, so there is nothing to classify"
            raise (
                Event2VecError(f"a recording {problem}") if recording is events else FileError(str(recording), problem)
            )
        return events


def _even(scores: Float[Any, " classes"]) -> Float[Any, " classes"]:
    """Equal scores for all classes, whatever they were."""
    score = 1 / len(scores)
    return np.full_like(scores, score) if isinstance(scores, np.ndarray) else scores.new_full(scores.shape, score)
