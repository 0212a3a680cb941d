"""Progress of long work: one protocol, silent unless someone wants to see it; bars in a terminal, lines in a log."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from event2vec.machine.ranks import is_first_rank
from event2vec.names import printable

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

SECONDS_BETWEEN_LINES = 10.0  # of a log


class Progress:
    """Work is divided into stages, which may nest. This class is silent; `ShownProgress` prints.

        train("digits", progress=ShownProgress())

    Override `start`, `advance`, `finish` and `say` to show it elsewhere.
    """

    def start(self, title: str, total: int | None = None) -> None:
        """A stage begins; `total` is the amount of work, if known."""

    def advance(self, done: int, note: str = "") -> None:
        """`done` of the current stage's total is finished."""

    def finish(self) -> None:
        """The current stage ends, even if it failed."""

    def say(self, line: str) -> None:
        """A line that stays visible after its stage, such as the metrics of an epoch."""

    @contextmanager
    def stage(self, title: str, total: int | None = None) -> Iterator[None]:
        """A stage that lasts as long as the `with` block."""
        self.start(title, total)
        try:
            yield
        finally:
            self.finish()


SILENT = Progress()


@dataclass
class _Stage:
    title: str
    total: int | None
    bar: "TaskID | None"  # None in a log
    said: float = field(default_factory=lambda: time.monotonic())  # when its last line was written to a log


class ShownProgress(Progress):
    """A bar for each current stage, on standard error; in a log, a line every ten seconds.

        train("digits", progress=ShownProgress())

    Where several processes train together, only the first shows it. `wording` is what a line becomes before it is
    shown, such as one that names options instead of arguments.
    """

    def __init__(self, wording: Callable[[str], str] = printable) -> None:
        self.wording = wording
        self.stages: list[_Stage] = []
        self.bars: Bars | None = None

    def start(self, title: str, total: int | None = None) -> None:
        bar = None
        if sys.stderr.isatty() and is_first_rank():
            self.bars = self.bars or _open_bars()
            bar = self.bars.add_task(printable(title), total=total)
        self.stages.append(_Stage(title, total, bar))

    def advance(self, done: int, note: str = "") -> None:
        stage = self.stages[-1]
        described = f"{stage.title}  {note}".rstrip()
        if self.bars is not None and stage.bar is not None:
            self.bars.update(stage.bar, completed=done, description=printable(described))
        elif time.monotonic() - stage.said >= SECONDS_BETWEEN_LINES:
            stage.said = time.monotonic()
            of = f" of {stage.total:,}" if stage.total is not None else ""
            self._write(f"{stage.title}: {done:,}{of}  {note}".rstrip())

    def finish(self) -> None:
        stage = self.stages.pop()
        if self.bars is not None and stage.bar is not None:
            self.bars.remove_task(stage.bar)
        if self.bars is not None and not self.stages:
            self.bars.stop()
            self.bars = None

    def say(self, line: str) -> None:
        if self.bars is not None:
            self.bars.console.print(self.wording(line), highlight=False, markup=False)
        else:
            self._write(line)

    def _write(self, line: str) -> None:
        if is_first_rank():
            sys.stderr.write(f"{self.wording(line)}\n")
            sys.stderr.flush()


def _open_bars() -> "Bars":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bars = Bars(*columns, console=Console(stderr=True), transient=True)
    bars.start()
    return bars
