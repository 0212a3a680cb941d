"""Pieces of work on a cluster, as the process that asked for them sees them: handed out, watched, tried again."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from event2vec.cluster.connection import Cluster, connect
from event2vec.cluster.task import SECONDS_BETWEEN_LOOKS, SECONDS_TO_TELL, Board, Failed, Order, Place, do_piece
from event2vec.errors import Busy, Event2VecError, Unreachable
from event2vec.names import counted, excerpt, shorten
from event2vec.progress import Progress

TRIES = 5  # of one piece
WINDOW = 256  # pieces that Ray knows at a time, at least
SHOWN = 4  # pieces whose progress is shown

Piece = TypeVar("Piece")
Result = TypeVar("Result")


@dataclass
class Job:
    """Pieces that are being carried out on a cluster, as the process that asked for them sees them."""

    cluster: Cluster
    names: Sequence[str]
    progress: Progress
    found: Callable[[int, Any], None]
    sizes: Sequence[int]
    done: int
    tries: Counter[int] = field(default_factory=Counter)
    running: dict[Any, int] = field(default_factory=dict)  # by what Ray knows each task
    results: dict[int, Any] = field(default_factory=dict)
    gpus: int = 0  # of each task
    is_stuck: bool = False  # since no node is left that is large enough

    def carry_out(self, work: Callable[[Piece, Progress], Result], pieces: Sequence[Piece], gpus: int) -> list[Result]:
        self.ray, self.gpus = connect(self.cluster.address), gpus
        self._check_resources(gpus)
        here = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            self.ray.get_runtime_context().get_node_id(), soft=True
        )
        self.board = self.ray.remote(num_cpus=0, max_restarts=-1, scheduling_strategy=here)(Board).remote()
        # Sent once, not with every task: a data set's list of files may be long.
        order = Order([self.ray.put((work, list(pieces)))], self.board, Place.here(), self.cluster.threads, gpus)
        task = self.ray.remote(num_cpus=self.cluster.threads, num_gpus=gpus, max_retries=0)(do_piece)
        waiting = deque(range(len(pieces)))
        try:
            while waiting or self.running:
                while waiting and len(self.running) < self._window:
                    number = waiting.popleft()
                    self.running[task.remote(order, number)] = number
                ready, _ = self.ray.wait(list(self.running), num_returns=1, timeout=SECONDS_BETWEEN_LOOKS)
                self._show()
                waiting.extend(number for number in map(self._take, ready) if number is not None)
        finally:
            for reference in self.running:
                self.ray.cancel(reference, force=True)  # what it was writing does not appear
            self.ray.kill(self.board)
        return [self.results[number] for number in range(len(pieces))]

    def _check_resources(self, gpus: int) -> None:
        """Refuse what no machine has: Ray would wait forever."""
        nodes = [node["Resources"] for node in self._nodes()]
        for kind, name, needed in (("CPU", "CPU core", self.cluster.threads), ("GPU", "GPU", gpus)):
            most = max((int(node.get(kind, 0)) for node in nodes), default=0)
            if needed > most:
                raise Event2VecError(
                    f"each task needs {counted(needed, name)}, and the largest node of the cluster has {most}. "
                    "Ask for fewer, or add a larger node"
                )
        if not self._is_fit(gpus):
            raise Event2VecError(
                f"each task needs {counted(self.cluster.threads, 'CPU core')} and {counted(gpus, 'GPU')}, and no node "
                "of the cluster has both. Ask for fewer, or add a larger node"
            )
        self._window = max(WINDOW, 2 * int(self.ray.cluster_resources().get("CPU", 1)) // self.cluster.threads)

    def _is_fit(self, gpus: int) -> bool:
        """Whether a node of the cluster can carry out a task."""
        nodes = [node["Resources"] for node in self._nodes()]
        return any(node.get("CPU", 0) >= self.cluster.threads and node.get("GPU", 0) >= gpus for node in nodes)

    def _say_if_stuck(self) -> None:
        """Nodes come and go: Ray waits silently for one that is large enough."""
        was_stuck, self.is_stuck = self.is_stuck, not self._is_fit(self.gpus)
        if self.is_stuck and not was_stuck:
            needed = f"{counted(self.cluster.threads, 'CPU core')} and {counted(self.gpus, 'GPU')}"
            self.progress.say(f"waiting: no node of the cluster is left with {needed} for a task. Add one, or stop")

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self.ray.nodes() if node["Alive"]]

    def _take(self, reference: Any) -> int | None:
        """Keep the result of a task; its number if it has to be done again."""
        number = self.running.pop(reference)
        try:
            outcome = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            outcome = Failed(Event2VecError(self._explain(error)))
        else:
            if isinstance(outcome, Failed) and _is_final(outcome.error):
                raise outcome.error
        if not isinstance(outcome, Failed):
            self.results[number] = outcome
            self.done += self.sizes[number]
            self.found(number, outcome)
            self.progress.advance(self.done)
            return None
        self.tries[number] += 1
        if self.tries[number] == TRIES:
            raise self._given_up(number, outcome.error) from outcome.error
        why = excerpt(outcome.error, 200)
        self.progress.say(f"{self.names[number]}: {why}. Trying again ({self.tries[number] + 1} of {TRIES})")
        return number

    def _explain(self, error: Exception) -> str:
        kinds = self.ray.exceptions
        if isinstance(error, kinds.NodeDiedError):
            return "its node was lost"
        if isinstance(error, kinds.OutOfMemoryError):
            return "memory ran out on its node"
        if isinstance(error, kinds.WorkerCrashedError):
            return "its process was killed"
        return shorten(f"{type(error).__name__}: {error}".partition("\n")[0], 200)

    def _given_up(self, number: int, error: Exception) -> Exception:
        if not isinstance(error, Event2VecError):
            return error  # one of ours, which a report should show as it is
        return Event2VecError(
            f"{self.names[number]} failed {TRIES} times: {error}. What is finished is kept: run the same command again"
        )

    def _show(self) -> None:
        """Show what tasks have reported since the last call."""
        self._say_if_stuck()
        try:
            notes, lines = self.ray.get(self.board.take.remote(), timeout=SECONDS_TO_TELL)
        except (self.ray.exceptions.RayError, self.ray.exceptions.GetTimeoutError):
            return  # it starts again on another machine
        for number, line in lines:
            self.progress.say(f"{self.names[number]}: {line}")
        busy = [f"{self.names[number]} {notes[number]}" for number in self.running.values() if notes.get(number)]
        more = f" and {len(busy) - SHOWN} more" if len(busy) > SHOWN else ""
        self.progress.advance(self.done, f"on {counted(len(self._nodes()), 'node')}  " + ", ".join(busy[:SHOWN]) + more)


def _is_final(error: Exception) -> bool:
    """Whether another try would find the same: not what another process holds, or a server that does not answer."""
    return isinstance(error, Event2VecError) and not isinstance(error, Busy | Unreachable)
