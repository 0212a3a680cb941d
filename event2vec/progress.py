"""Progress of long work: one protocol, silent unless someone wants to see it."""

from collections.abc import Iterator
from contextlib import contextmanager


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
