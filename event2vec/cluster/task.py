"""One piece of work on some machine, as a Ray task, and the board where all tasks note how far they are."""

import os
import socket
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from event2vec.errors import Busy, Event2VecError, Event2VecWarning, Unreachable
from event2vec.machine.ranks import forget_launcher
from event2vec.progress import Progress

SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_TO_TELL = 5.0  # the board something, or to hear from it
SECONDS_FOR_LOCKS = 180.0  # that a process on a lost machine may still hold
SECONDS_TO_RETRY = 5.0  # until a server that did not answer is asked again


@dataclass(frozen=True)
class Failed:
    """What a task returns instead of a result."""

    error: Exception


class Board:
    """Where tasks on all machines note how far they are: a Ray actor."""

    def __init__(self) -> None:
        self.notes = dict[int, str]()
        self.lines = list[tuple[int, str]]()

    def note(self, number: int, text: str) -> None:
        self.notes[number] = text

    def say(self, number: int, line: str) -> None:
        self.lines.append((number, line))

    def end(self, number: int) -> None:
        """Called last, and waited for: all that the task said before is here."""
        self.notes.pop(number, None)

    def take(self) -> tuple[dict[int, str], list[tuple[int, str]]]:
        lines, self.lines = self.lines, []
        return self.notes, lines


class Told(Progress):
    """Progress of a task, reported from time to time to the process that asked for it."""

    def __init__(self, board: Any, number: int) -> None:
        self.board, self.number = board, number
        self.stages = list[tuple[str, int | None]]()
        self.last = 0.0

    def start(self, title: str, total: int | None = None) -> None:
        self.stages.append((title, total))

    def advance(self, done: int, note: str = "") -> None:
        if not self.stages or time.monotonic() - self.last < SECONDS_BETWEEN_LOOKS:
            return
        self.last = time.monotonic()
        title, total = self.stages[-1]
        self.board.note.remote(self.number, f"{title} {100 * done // total} %" if total else title)

    def finish(self) -> None:
        self.stages.pop()

    def say(self, line: str) -> None:
        self.board.say.remote(self.number, line)


@dataclass(frozen=True)
class Place:
    """The folder and the variables of the process that asked for the work: paths mean the same to its tasks."""

    folder: str
    variables: dict[str, str]

    @classmethod
    def here(cls) -> "Place":
        ours = {name: value for name, value in os.environ.items() if name.startswith("EVENT2VEC_")}
        if "XDG_CACHE_HOME" in os.environ:
            ours["XDG_CACHE_HOME"] = os.environ["XDG_CACHE_HOME"]
        return cls(os.getcwd(), ours)

    def enter(self) -> None:
        forget_launcher()  # Ray may have been started by srun: a task is no rank of that
        os.environ.update(self.variables)
        try:
            os.chdir(self.folder)
        except OSError:
            raise Event2VecError(
                f"{self.folder} does not exist on the node {socket.gethostname()}: all nodes must share a file system"
            ) from None


@dataclass(frozen=True)
class Order:
    """What all tasks of a job get."""

    pieces: list[Any]  # one reference to the work and its pieces, in a list: Ray would replace a bare one by its value
    board: Any
    place: Place
    threads: int
    gpus: int


_KNOWN: dict[Any, Any] = {}  # in a worker: the work and the pieces of the last job


def do_piece(order: Order, number: int) -> Any:
    """A task: one piece of work on some machine."""
    import ray

    progress = Told(order.board, number)
    try:
        order.place.enter()
        _prepare_process(order.threads, order.gpus)
        (reference,) = order.pieces
        if reference not in _KNOWN:
            _KNOWN.clear()
            _KNOWN[reference] = ray.get(reference)
        work, pieces = _KNOWN[reference]
        with warnings.catch_warnings():
            warnings.simplefilter("always", Event2VecWarning)
            warnings.showwarning = lambda message, category, *_, **__: _pass_on(message, category, progress)
            result = _wait_for_locks(work, pieces[number], progress)
    except Exception as error:
        if isinstance(error, Unreachable):
            time.sleep(SECONDS_TO_RETRY)
        result = Failed(error)
    with suppress(Exception):  # without the board, there is nobody to tell
        ray.get(order.board.end.remote(number), timeout=SECONDS_TO_TELL)
    return result


def _prepare_process(threads: int, gpus: int) -> None:
    """Use what the task was given, and no more."""
    if not gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import torch

    from event2vec.machine.cpu import tune_cpu

    if torch.get_num_threads() != threads or not _KNOWN:
        torch.set_num_threads(threads)
        tune_cpu()


def _pass_on(message: Warning | str, category: type[Warning], progress: Progress) -> None:
    if issubclass(category, Event2VecWarning):
        progress.say(f"warning: {message}")


def _wait_for_locks(work: Callable[[Any, Progress], Any], piece: Any, progress: Progress) -> Any:
    """A process on a lost machine may live a little longer than the machine's connection to us."""
    deadline = time.monotonic() + SECONDS_FOR_LOCKS
    while True:
        try:
            return work(piece, progress)
        except Busy:
            if time.monotonic() > deadline:
                raise
            time.sleep(SECONDS_BETWEEN_LOOKS)
