"""A progress bar for people at a terminal, a line now and then for logs."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from event2vec.cli.printing import say

if TYPE_CHECKING:
    from rich.progress import Progress

SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Gives a function to tell how many of how many are done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    if not sys.stderr.isatty():
        yield _lines(title)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(title: str) -> Callable[[int, int], None]:
    last = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            say(f"{title}: {done:,} of {total:,}")

    return tell


class TrainingProgress:
    """Shows a training: a bar with loss, accuracy and time left at a terminal, a line for each epoch in a log."""

    def __init__(self) -> None:
        self.steps = self.epochs = 1
        self.bar: Progress | None = None
        self.last = ""

    def __enter__(self) -> "TrainingProgress":
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    def took_over(self, names: list[str]) -> None:
        parts = Counter(name.partition(".")[0] for name in names)
        said = " and ".join(f"{count} weights of the {part}" for part, count in parts.items())
        say(f"Takes over {said}; the head starts from new weights")

    def start(self, epochs: int, steps: int, done: int) -> None:
        self.epochs, self.steps, self.done = epochs, steps, done
        self.began = time.monotonic()
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
            )
            self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self.task = self.bar.add_task("training", total=epochs * steps, completed=done)
            self.bar.start()

    def step(self, step: int, loss: float) -> None:
        if self.bar:
            text = f"epoch {(step - 1) // self.steps + 1}/{self.epochs}  loss {loss:.3f}  {self.last}"
            self.bar.update(self.task, completed=step, description=text)

    def epoch(self, row: dict[str, float]) -> None:
        """One line: what was reached, and how long the rest will take."""
        said = "  ".join(_metric(name, row[name]) for name in row if name.startswith(("train_", "test_")))
        self.last = next((_metric(name, row[name]) for name in row if name.startswith("test_acc")), "")
        step = int(row["step"])
        left = (time.monotonic() - self.began) / max(step - self.done, 1) * (self.epochs * self.steps - step)
        line = f"epoch {int(row['epoch'])}/{self.epochs}  {said}  {_duration(left)} left"
        if self.bar:
            self.bar.console.print(line, highlight=False, markup=False)
        else:
            say(line)


def _metric(name: str, value: float) -> str:
    words = name.replace("_", " ")
    return f"{words} {value:.1%}" if "accuracy" in name else f"{words} {value:.4g}"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
