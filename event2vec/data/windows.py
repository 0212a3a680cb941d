"""Windows: a long recording as many short ones, by time or by number of events.

Settings without torch, so that `--help` is fast. All times inside are whole microseconds since the first event.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from event2vec.names import counted
from event2vec.settings import Settings, setting

if TYPE_CHECKING:
    from event2vec.events import Events

WINDOW = "seconds of each window that a long recording is cut into; 0: recordings stay whole"
STRIDE = "seconds from the start of one window to the start of the next; 0: the window length, without overlap"
MIN_EVENTS = "windows with fewer events are left out and counted"
WINDOW_EVENTS = "cut by this number of events instead of by time; 0: by time"
LABELS = (
    "for 'folder': CSV table with file, start, stop (seconds) and class. Only labelled parts are used, and classes "
    "come from the table. 'beside': use NAME_labels.csv next to each recording"
)
LONGEST = 1e6  # seconds of a window
MOST_OVERLAP = 1000  # windows that one event may be in: more is a slip of the keyboard, and never ends


class Window(NamedTuple):
    """A part of a recording."""

    number: int  # counted from 0; where windows by time have no events, numbers are missing
    start: int  # microseconds since the first event of the recording
    stop: int
    events: "Events"  # their times count from the first of them

    def name(self, source: str) -> str:
        """What the window is called: its recording and the time it is from."""
        return f"{source} [{seconds(self.start)} to {seconds(self.stop)} s]"


def recording_of(name: str) -> str:
    """The recording that a window, or a labelled span, is a part of, from its name."""
    return re.sub(r"( \[[0-9.]+ to [0-9.]+ s\])+$", "", name)


def seconds(microseconds: int) -> str:
    """Exact, and as short as it can be: 1.25."""
    return f"{microseconds / 1e6:.6f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, kw_only=True)
class Windows(Settings, section="windows"):
    """How recordings are cut, by time or by number of events.

        Windows(window=0.1, stride=0.05, min_events=200).cut(events)
        Windows(window_events=20_000).cut(events)

    The last window may be short: it counts if at least half of it lies in the recording. A recording that is shorter
    than a window is one window.
    """

    window: float = setting(0.0, WINDOW, least=0, most=LONGEST)
    stride: float = setting(0.0, STRIDE, least=0, most=LONGEST)
    min_events: int = setting(1, MIN_EVENTS, least=1)
    window_events: int = setting(0, WINDOW_EVENTS, least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.window > 0) == (self.window_events > 0):
            both = "got both" if self.window else "got neither"
            raise ValueError(f"either window or window_events must be above 0, {both}")
        if self.window_events and (self.stride or self.min_events != 1):
            raise ValueError("stride and min_events are for windows by time; omit them with window_events")
        if self.window and self.length < 1:
            raise ValueError(f"window must be at least one microsecond, 0.000001, got {self.window:g}")
        if self.stride and self.step * MOST_OVERLAP < self.length:
            raise ValueError(f"stride must be at least window / {MOST_OVERLAP}, got {self.stride:g}")

    @classmethod
    def of(cls, window: float, stride: float, min_events: int, window_events: int) -> "Windows | None":
        """Windows from settings of which all may have their defaults: then recordings stay whole."""
        if not window and not window_events:
            if stride or min_events != 1:
                raise ValueError(f"{'stride' if stride else 'min_events'} requires window, such as 0.1 (seconds)")
            return None
        return cls(window=window, stride=stride, min_events=min_events, window_events=window_events)

    @property
    def length(self) -> int:
        """Microseconds of a window by time."""
        return round(self.window * 1e6)

    @property
    def step(self) -> int:
        """Microseconds from the start of a window to that of the next."""
        return max(round(self.stride * 1e6), 1) if self.stride else self.length

    @property
    def summary(self) -> str:
        """For people: windows of 0.1 s every 0.05 s."""
        if self.window_events:
            return f"windows of {self.window_events:,} events"
        every = f" every {self.stride:g} s" if self.stride and self.step != self.length else ""
        fewest = f" with {self.min_events:,} events or more" if self.min_events > 1 else ""
        return f"windows of {self.window:g} s{every}{fewest}"

    def count(self, number: int) -> str:
        """The same with a number: 1 window of 0.1 s, 1,200 windows of 0.1 s."""
        return counted(number, "window") + self.summary.removeprefix("windows")

    def cut(self, events: "Events") -> Iterator[Window]:
        """The windows of a recording that have any events; those with too few are for the caller to count."""
        return self.over([events])

    def over(self, chunks: Iterable["Events"]) -> Iterator[Window]:
        """The same for a recording that comes in chunks, whose times count from its first event."""
        cutter = _ByCount(self.window_events) if self.window_events else _ByTime(self.length, self.step)
        for chunk in chunks:
            if len(chunk):
                yield from cutter.feed(chunk)
        yield from cutter.finish()


class _Cutter:
    """The part of a recording that has arrived and is still needed."""

    def __init__(self) -> None:
        self.held: Events | None = None
        self.made = 0  # windows so far

    def add(self, chunk: "Events") -> "Events":
        if self.held is None or len(self.held) == 0:
            self.held = chunk
        else:
            self.held = type(chunk).join([self.held, chunk])
        return self.held

    def window(self, number: int, start: int, stop: int, events: "Events") -> Window:
        self.made += 1
        return Window(number, start, stop, replace(events, t=events.t - events.t[0]))


class _ByTime(_Cutter):
    """Windows that begin every `step` microseconds."""

    def __init__(self, length: int, step: int) -> None:
        super().__init__()
        self.length, self.step, self.start = length, step, 0

    def feed(self, chunk: "Events") -> Iterator[Window]:
        """The windows that are complete with this chunk: an event after their end has come."""
        last = int(self.add(chunk).t[-1])
        while self._find() and self.start + self.length <= last:
            yield self._take()

    def finish(self) -> Iterator[Window]:
        while self._find() and self.held is not None:
            inside = min(int(self.held.t[-1]) + 1 - self.start, self.length)
            if 2 * inside >= self.length or self.made == 0:
                yield self._take()
            if inside < self.length:
                return

    def _find(self) -> bool:
        """Drop what no window needs any more, and move to the next window that has an event."""
        while self.held is not None:
            self.held = self.held.select(slice(self.held.before(self.start), None))
            if len(self.held) == 0:
                return False
            ahead = int(self.held.t[0]) - self.start - self.length
            if ahead < 0:
                return True
            self.start += (ahead // self.step + 1) * self.step
        return False

    def _take(self) -> Window:
        assert self.held is not None
        start, stop = self.start, self.start + self.length
        self.start += self.step
        return self.window(start // self.step, start, stop, self.held.select(slice(0, self.held.before(stop))))


class _ByCount(_Cutter):
    """Windows of `count` events each."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def feed(self, chunk: "Events") -> Iterator[Window]:
        held = self.add(chunk)
        while len(held) >= self.count:
            yield self._take(held.select(slice(0, self.count)))
            held = held.select(slice(self.count, None))
        self.held = held

    def finish(self) -> Iterator[Window]:
        if self.held is not None and len(self.held) and (2 * len(self.held) >= self.count or self.made == 0):
            yield self._take(self.held)

    def _take(self, events: "Events") -> Window:
        return self.window(self.made, int(events.t[0]), int(events.t[-1]) + 1, events)
