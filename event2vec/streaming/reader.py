"""The thread that reads a stream: it fills the ring, hands every chunk to the recorder, and never waits."""

import time
from collections import deque
from collections.abc import Callable
from threading import Event, Thread

from event2vec.names import excerpt
from event2vec.streaming.chunk import Chunk
from event2vec.streaming.ring import LARGEST, Ring
from event2vec.streaming.source import Source, StreamEnded, StreamUnreadable

SILENT = 5.0  # seconds without an event after which people should know
RATE_OVER = 1.0  # seconds over which the event rate is taken


class Reader(Thread):
    """Reads until the stream ends or `stop` is called."""

    def __init__(self, source: Source, window: float, record: Callable[[Chunk], None] | None = None) -> None:
        super().__init__(daemon=True, name="event2vec reader")
        self.source, self.record = source, record
        self.window = window  # seconds of the stream that readers of the ring look back
        self.ring = Ring()
        self.ended: str | None = None  # why there will be no more events
        self.failed = False  # whether they ended because the stream could not be read
        self.waiting = True  # the source has nothing that is not in the ring yet
        self.notices: deque[str] = deque(maxlen=100)
        self.newest: tuple[int, float] | None = None  # the latest event: microseconds, and when it happened
        self._arrivals: deque[tuple[float, int]] = deque()
        self._halt = Event()
        self._quiet = False
        self._short = False

    def run(self) -> None:
        heard = time.monotonic()
        try:
            while not self._halt.is_set():
                chunk = self.source.read()
                self.waiting = chunk is None or len(chunk) == 0
                if chunk is not None and len(chunk):
                    self._take(chunk)
                    heard = time.monotonic()
                self._tell(time.monotonic() - heard)
        except StreamEnded as ended:
            self.failed = isinstance(ended, StreamUnreadable)
            self.ended = str(ended)
        except Exception as error:
            self.failed = True
            self.ended = f"the stream cannot be read: {excerpt(error, 160) or type(error).__name__}"
        finally:
            self._tell(0.0)
            self.source.close()

    def _take(self, chunk: Chunk) -> None:
        self.ring.write(chunk, int(self.window * 1e6))
        self.newest = int(chunk.t[-1]), chunk.happened
        now = time.monotonic()
        self._arrivals.append((now, len(chunk)))
        while self._arrivals[0][0] < now - RATE_OVER:
            self._arrivals.popleft()
        if self.record is not None:
            self.record(chunk)

    def _tell(self, silent: float) -> None:
        """Pass on notices for people, in order."""
        quiet = silent > SILENT
        if quiet != self._quiet and self.newest is not None:
            self.source.notices.append(f"no events for {SILENT:g} s" if quiet else "events are coming again")
            self._quiet = quiet
        if self.ring.short and not self._short:
            self.source.notices.append(f"windows are cut short: only the newest {LARGEST // 2:,} events are kept")
            self._short = True
        while self.source.notices:
            self.notices.append(self.source.notices.pop(0))

    @property
    def rate(self) -> float:
        """Events in the last second."""
        since = time.monotonic() - RATE_OVER
        return sum(count for when, count in list(self._arrivals) if when >= since) / RATE_OVER

    def now(self, moment: float) -> int:
        """The stream's clock at a moment of ours, in microseconds.

        It runs on when nothing moves, but not while events wait to be read: they are not in the ring yet.
        """
        if self.newest is None:
            return 0
        t, happened = self.newest
        silent = max(0.0, moment - happened) if self.waiting else 0.0
        return t + int(silent * self.source.speed * 1e6)

    def stop(self) -> None:
        self._halt.set()
        self.join()
