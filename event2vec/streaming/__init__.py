"""Live: a stream of events in, an answer every few milliseconds.

One thread reads the stream into a ring of the newest events and never waits. The thread that asks for answers
takes the newest window each time; what it cannot keep up with is skipped and counted, so that nothing queues up.
"""

import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Unpack

import numpy as np

from event2vec.errors import Event2VecError
from event2vec.events import Events
from event2vec.io.recording import Reading, ReadingOptions
from event2vec.model.predictor import UNKNOWN, Judged, Predictor
from event2vec.model.trained_on import Extent
from event2vec.runtime import open_predictor
from event2vec.streaming.answers import NOTHING, Answer, Answerer, Read
from event2vec.streaming.reader import Reader
from event2vec.streaming.recorder import Recorder, check_recording
from event2vec.streaming.ring import View
from event2vec.streaming.source import Source
from event2vec.streaming.sources import open_source
from event2vec.streaming.windows import check_window, fewest_events, trained_window
from event2vec.training.run import Run

EVERY = 0.05  # seconds between two answers
REMEMBERED = 200  # answers over which the percentiles of latency are taken
CONTINUOUS = 0.01  # seconds; an event before a longer pause is not what an answer waited for


class _Overwritten(Exception):
    """A window was replaced by newer events while it was copied."""


class Live:
    """Answers on a stream: iterate over it. `live` opens one by name."""

    def __init__(
        self,
        model: Predictor,
        source: Source,
        window: float,
        every: float = EVERY,
        min_events: int | None = None,
        min_confidence: float = 0.0,
        recorder: Recorder | None = None,
    ) -> None:
        check_window(window)
        if not 0.001 <= every <= 60:
            raise Event2VecError(f"every must be from 0.001 to 60 seconds, got {every:g}")
        if not 0 <= min_confidence <= 1:
            raise Event2VecError(f"`min_confidence` must be from 0 to 1, got {min_confidence:g}")
        self.model, self.class_names = model, model.class_names
        self.every, self.min_confidence = every, min_confidence
        self.min_events = fewest_events(model) if min_events is None else max(1, min_events)
        self.source, self.recorder = source, recorder
        self.answerer = Answerer(model, source.sensor)
        self.reader = Reader(source, window, recorder)
        self.skipped = 0
        self.drawing = 0.0  # seconds that the last answer took to be shown; set by whoever shows it
        self.newest: Read | None = None  # what the network read last
        self._latencies: deque[float] = deque(maxlen=REMEMBERED)
        self._said_problem = False

    @property
    def window(self) -> float:
        """Seconds of the stream that each answer is about; may be changed at any time."""
        return self.reader.window

    @window.setter
    def window(self, seconds: float) -> None:
        check_window(seconds)
        self.reader.window = seconds

    def __iter__(self) -> Iterator[Answer]:
        try:
            if not self.reader.is_alive():
                self.reader.start()
            due = time.monotonic()
            while True:
                due += self._wait(due)
                ended = self.reader.ended
                try:
                    answer = self._answer(self._moment(ended), last=ended)
                except _Overwritten:
                    self.skipped += 1
                    continue
                yield answer
                if ended is not None:
                    return
        finally:
            self.close()

    def _wait(self, due: float) -> float:
        """Sleep until the next answer is due; returns the time to the one after it. Moments that passed are skipped."""
        time.sleep(max(0.0, due - time.monotonic()))
        missed = int((time.monotonic() - due) / self.every)
        self.skipped += missed
        return (missed + 1) * self.every

    def _moment(self, ended: str | None) -> float:
        """Now; or the last event of a stream that has ended, whose last window is answered however late it is."""
        newest = self.reader.newest
        return time.monotonic() if ended is None or newest is None else newest[1]

    def view(self, moment: float) -> View:
        """The newest window at this moment."""
        now = self.reader.now(moment)
        return self.reader.ring.view().since(now - int(self.window * 1e6))

    def _answer(self, moment: float, last: str | None) -> Answer:
        now, newest = self.reader.now(moment), self.reader.newest
        view, read = self._read(moment)
        self.newest = read
        answered = time.monotonic()
        end = moment if newest is None or self._paused(moment, newest[1]) else newest[1]
        if read is not None:
            self._latencies.append(answered - end)
        label, scores, unknown, remarks = self._judge(read, len(view))
        p50, p95 = np.percentile(self._latencies, (50, 95)) if self._latencies else (0.0, 0.0)
        return Answer(
            label=label,
            name=self.class_names[label] if label is not None else UNKNOWN if unknown else NOTHING,
            confidence=float(scores.max()),
            scores=dict(zip(self.class_names, map(float, scores), strict=True)),
            time=now / 1e6,
            events=len(view),
            rate=self.reader.rate,
            latency=answered - end,
            latency_p50=float(p50),
            latency_p95=float(p95),
            stages={"sampling": 0.0, "network": 0.0, **({} if read is None else read.stages), "drawing": self.drawing},
            skipped=self.skipped,
            rejected=self.source.rejected,
            lost=self.source.lost,
            notices=self._notices(last),
            remarks=remarks,
        )

    def _read(self, moment: float) -> tuple[View, Read | None]:
        """The newest window, and what the network says if it has enough events; a second try if it is overwritten."""
        for _ in range(2):
            view = self.view(moment)
            if len(view) < self.min_events:
                return view, None
            if (read := self.answerer.read(view)) is not None:
                return view, read
        raise _Overwritten

    def _judge(self, read: Read | None, events: int) -> Judged:
        """As `predict` judges a recording of these events; without a reading there is no answer."""
        if read is None:
            return Judged(None, np.zeros(len(self.class_names)), None, ())
        return self.model.judge(read.scores, Extent(float(events), read.tokens.duration / 1e6), self.min_confidence)

    def _paused(self, moment: float, happened: float) -> bool:
        """Whether the stream was silent before this moment: then latency counts from the moment itself."""
        return self.reader.waiting and moment - happened > CONTINUOUS

    def _notices(self, last: str | None) -> tuple[str, ...]:
        found = []
        while self.reader.notices:
            found.append(self.reader.notices.popleft())
        if self.recorder is not None and self.recorder.problem is not None and not self._said_problem:
            found.append(self.recorder.problem)
            self._said_problem = True
        return (*found, last) if last else tuple(found)

    def close(self) -> None:
        """Stop reading, and complete what is recorded."""
        if self.reader.is_alive():
            self.reader.stop()
        else:
            self.source.close()
        if self.recorder is not None:
            self.recorder.close()

    def __enter__(self) -> "Live":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def live(
    run: str | Path | Run | Predictor,
    source: str | Path | Events | Source,
    *,
    window: float | None = None,
    every: float = EVERY,
    min_events: int | None = None,
    min_confidence: float = 0.0,
    speed: float = 1.0,
    loop: bool = False,
    record: str | Path | None = None,
    overwrite: bool = False,
    **reading: Unpack[ReadingOptions],
) -> Live:
    """Answers on a live stream, for as long as it lasts: on the newest `window` seconds, every `every` seconds.

        for answer in live("runs/gestures", "camera"):
            print(answer.name, answer.confidence)

    `run` may be an exported file too. `source` is `camera` (or `camera:SERIAL`), `udp://HOST:PORT`, `-` for standard
    input, or a recording, played at its own speed times `speed`, again and again with `loop`. Fewer than `min_events`
    events in a window give `nothing`, and a best score below `min_confidence` gives `unknown`. `record` keeps the
    stream in a file. Windows are those of the training, unless given: `trained_window` and `fewest_events` decide.
    `reading` holds the options of `read_events`.
    """
    if record is not None:
        check_recording(Path(record), overwrite)
    model = run if isinstance(run, Predictor) else open_predictor(run.folder if isinstance(run, Run) else run)
    length = window if window is not None else trained_window(model).seconds
    check_window(length)
    opened = open_source(source, model.config.sensor, speed=speed, loop=loop, how=Reading.of(**reading))
    recorder = None if record is None else Recorder(record, opened.sensor, overwrite)
    return Live(model, opened, length, every, min_events, min_confidence, recorder)
