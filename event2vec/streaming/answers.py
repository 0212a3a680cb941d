"""One answer about the newest window of a stream, as fast as possible.

The bidirectional network reads its whole window for every answer: nothing is kept from one answer to the next but
memory and tables. It gives what `Classifier.predict` gives for the same events, unless so many are clustered that they
are thinned first.
"""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from event2vec.data.sampling import draw_events
from event2vec.data.seeding import seeded_arrays
from event2vec.data.uniform import draw_positions
from event2vec.evaluation.speed import seconds_of
from event2vec.events import EventBatch, Events
from event2vec.machine.cpu import flush_denormals, using_threads
from event2vec.model.classifier import Classifier, temper
from event2vec.model.predictor import SEED, Predictor
from event2vec.sensor import Sensor
from event2vec.streaming.ring import View

NOTHING = "nothing"  # the answer where too few events have come
PER_CLUSTER = 16  # events of a window that are clustered, for each cluster; more are thinned first
FEWEST_THINNED = 2048  # events that are quick to cluster in any case
TRIALS = 5  # answers with each number of threads before the first one counts


@dataclass(frozen=True)
class Answer:
    """What a network says about the newest window of a stream."""

    label: int | None  # None where too few events have come, or no class is sure enough
    name: str  # of the class, `nothing` or `unknown`
    confidence: float  # the best score; 0 with `nothing`
    scores: Mapping[str, float]  # of all classes; they sum to 1, or are all 0 with `nothing`
    time: float  # seconds on the stream's clock at the end of the window
    events: int  # in the window
    rate: float  # events in the last second
    latency: float  # seconds from the window's last event to this answer
    latency_p50: float  # over the last answers
    latency_p95: float
    stages: Mapping[str, float]  # seconds: sampling (or clustering), network, drawing
    skipped: int  # windows without an answer so far, because the machine could not keep up
    rejected: int  # packets, lines and events so far that were not events of this sensor
    lost: int  # events so far that came faster than they could be read, as far as is known
    notices: tuple[str, ...] = ()  # what people should know since the last answer
    remarks: tuple[str, ...] = ()  # in what the window is unlike the training recordings

    def facts(self) -> dict[str, Any]:
        """For JSON; times in the units that their names give."""
        return {
            "time_s": round(self.time, 6),
            "label": self.label,
            "name": self.name,
            "confidence": round(self.confidence, 6),
            "scores": {name: round(score, 6) for name, score in self.scores.items()},
            "events": self.events,
            "events_per_second": round(self.rate),
            "latency_ms": round(1e3 * self.latency, 3),
            "latency_p50_ms": round(1e3 * self.latency_p50, 3),
            "latency_p95_ms": round(1e3 * self.latency_p95, 3),
            "stages_ms": {name: round(1e3 * seconds, 3) for name, seconds in self.stages.items()},
            "skipped": self.skipped,
            "rejected": self.rejected,
            "lost": self.lost,
            "notices": list(self.notices),
            "remarks": list(self.remarks),
        }


@dataclass(frozen=True)
class Read:
    """What the network answered for a window."""

    tokens: Events  # what it read
    scores: NDArray[np.float32]
    stages: dict[str, float]  # seconds


class Answerer:
    """A network ready to answer: its table of pixels is computed and its code loaded."""

    def __init__(self, model: Predictor, sensor: Sensor) -> None:
        self.sensor = sensor  # of the stream
        config, self.sampling = model.config, model.sampling
        on_pixels = self.sampling.method == "random" and sensor == config.sensor
        self.model = model.eval() if isinstance(model, Classifier) else model
        if on_pixels:
            self.model = self.model.for_reading(sys.maxsize)
        self.threads = torch.get_num_threads()
        self._warm_up()

    def read(self, view: View) -> Read | None:
        """The scores of a window; None if it was written over while it was copied."""
        began = time.perf_counter()
        tokens = self._tokens(view)
        if tokens is None:
            return None
        sampled = time.perf_counter()
        scores = self._classify(tokens)
        return Read(tokens, scores, {"sampling": sampled - began, "network": time.perf_counter() - sampled})

    def _tokens(self, view: View) -> Events | None:
        """As `Classifier.predict` draws them. Of random events, only those that are drawn are copied."""
        if self.sampling.method == "random":
            columns = self._draw(view)
            return self._events(columns) if view.intact else None
        columns = self._thin(view)
        if not view.intact:
            return None
        events = self._events(columns)
        tokens = draw_events(events, self.sampling, SEED, 0)
        return replace(tokens, rho=tokens.rho * (len(view) / len(events)))  # as if all had been clustered

    def _draw(self, view: View) -> tuple[NDArray[Any], ...]:
        if len(view) <= self.sampling.length:
            return view.all()
        return view.take(draw_positions(len(view), self.sampling.length, seeded_arrays(SEED, 0, 0)))

    def _thin(self, view: View) -> tuple[NDArray[Any], ...]:
        """Evenly spaced events of a large window: clustering all would take longer, and centres would hardly move."""
        most = max(FEWEST_THINNED, PER_CLUSTER * self.sampling.length)
        if len(view) <= most:
            return view.all()
        return view.take(np.linspace(0, len(view) - 1, most).astype(np.int64))

    def _events(self, columns: tuple[NDArray[Any], ...]) -> Events:
        x, y, t, p = columns
        ones = np.broadcast_to(np.float32(1), len(t))
        events = Events(x.astype(np.float32), y.astype(np.float32), t - t[:1], p, ones, self.sensor)
        return events.on_sensor(self.model.config.sensor)

    def _classify(self, tokens: Events) -> NDArray[np.float32]:
        if isinstance(self.model, Classifier):
            return self._classify_with(self.model, tokens)
        return self.model.scores([tokens])[0]

    @torch.inference_mode()
    def _classify_with(self, model: Classifier, tokens: Events) -> NDArray[np.float32]:
        with using_threads(self.threads), flush_denormals():
            scores = model(EventBatch.pad([tokens]).to(model.device))[0].float().softmax(dim=-1).cpu()
        return temper(scores, model.temperature).numpy()

    def _warm_up(self) -> None:
        """The first call of each kernel loads its code. Then one thread is tried against all that torch has.

        A small network loses more by handing parts of its work to another thread than it gains; results are the same.
        """
        random, length = np.random.default_rng(0), self.sampling.length
        x, y = random.integers(0, self.sensor.width, length), random.integers(0, self.sensor.height, length)
        columns = (x, y, np.arange(length, dtype=np.int64), random.random(length) < 0.5)
        tokens = draw_events(self._events(columns), self.sampling, SEED, 0)
        self._classify(tokens)
        if not isinstance(self.model, Classifier):
            return
        taken = dict[int, float]()
        for threads in (1, torch.get_num_threads()):
            self.threads = threads
            taken[threads] = min(seconds_of(lambda: self._classify(tokens)) for _ in range(TRIALS))
        self.threads = min(taken, key=lambda threads: taken[threads])
