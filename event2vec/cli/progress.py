"""Progress bars in a terminal, a line every ten seconds in a log."""

import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from event2vec.cli.printing import say, with_options
from event2vec.names import printable
from event2vec.progress import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

SECONDS_BETWEEN_LINES = 10.0


@dataclass
class _Stage:
    title: str
    total: int | None
    bar: "TaskID | None"  # None in a log
    said: float = field(default_factory=lambda: time.monotonic())  # when its last line was written to a log


class ShownProgress(Progress):
    """A bar for each current stage, on standard error; in a log, a line every ten seconds.

        train("digits", progress=ShownProgress())

    This is what the command line shows.
    """

    def __init__(self) -> None:
        self.stages: list[_Stage] = []
        self.bars: Bars | None = None

    def start(self, title: str, total: int | None = None) -> None:
        from event2vec.machine.ranks import is_first_rank

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
            say(f"{stage.title}: {done:,}{of}  {note}".rstrip())

    def finish(self) -> None:
        stage = self.stages.pop()
        if self.bars is not None and stage.bar is not None:
            self.bars.remove_task(stage.bar)
        if self.bars is not None and not self.stages:
            self.bars.stop()
            self.bars = None

    def say(self, line: str) -> None:
        if self.bars is not None:
            self.bars.console.print(with_options(line), highlight=False, markup=False)
        else:
            say(line)


def _open_bars() -> "Bars":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bars = Bars(*columns, console=Console(stderr=True), transient=True)
    bars.start()
    return bars
