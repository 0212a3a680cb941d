"""Start a child for each target in turn, end those that hang, count, and keep what escaped."""

import json
import os
import re
import resource
import shutil
import signal
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.sharedctypes import RawArray
from pathlib import Path

from fuzz.child import ESCAPE, FAULT, Limits, Outcome, Slot, Work, is_ours, run, seconds_waited, shorten
from fuzz.targets import Target

SLICE = 30.0  # seconds that a target has before it is another's turn
SLICE_INPUTS = 50_000  # after which a child ends, with all that its libraries may have kept
PATIENCE = 0.02  # seconds between looks at the children


@dataclass(frozen=True)
class Escape:
    """An input that was neither read nor refused in one short line."""

    target: str
    number: int
    outcome: Outcome

    @property
    def key(self) -> tuple[str, str, str]:
        return self.target, self.outcome.kind, self.outcome.place


@dataclass
class Job:
    """All inputs of one target, and what became of them so far."""

    target: Target
    next: int
    last: int  # not included
    totals: dict[Slot, float] = field(default_factory=lambda: dict.fromkeys(Slot, 0.0))
    seconds: float = 0.0
    turn_ends: float = 0.0
    escapes: list[Escape] = field(default_factory=list)

    def add(self, tally: Sequence[float]) -> None:
        """What a child counted before it ended."""
        for slot in (Slot.INPUTS, Slot.READ, Slot.REFUSED):
            self.totals[slot] += tally[slot]
        if tally[Slot.SLOWEST] > self.totals[Slot.SLOWEST]:
            self.totals[Slot.SLOWEST_NUMBER] = tally[Slot.SLOWEST_NUMBER]
        for slot in (Slot.SLOWEST, Slot.LARGEST):
            self.totals[slot] = max(self.totals[slot], tally[slot])
        self.next += int(tally[Slot.INPUTS])


@dataclass
class Running:
    """A child at work."""

    job: Job
    work: Work
    process: int
    started: float
    stopped_for: str = ""  # hang or memory


@dataclass
class Watcher:
    """Runs jobs side by side, each in turn for a while."""

    seed: int
    limits: Limits
    keep: Path  # folder for what escapes
    tell: Callable[[Job], None]
    talk: bool = False
    deadline: float = float("inf")
    stopped: bool = False

    def stop(self) -> None:
        """For signals: an exception in the middle of a fork would leave a child that nobody knows of."""
        self.stopped = True

    def run(self, jobs: Sequence[Job], side_by_side: int) -> None:
        waiting, running = deque(jobs), list[Running]()
        share = (self.deadline - time.monotonic()) * side_by_side / len(jobs)
        turn = min(SLICE, max(0.5, share / 3))  # in three rounds, so that one that is late takes little from the others
        with _scratch_folder() as scratch:
            _in_child(lambda: _make_seeds(jobs, scratch), scratch / FAULT)
            try:
                while (waiting or running) and not self.stopped:
                    while waiting and len(running) < side_by_side:
                        running.append(self._start(waiting.popleft(), scratch, turn))
                    for child in [child for child in running if self._ended(child)]:
                        running.remove(child)
                        self._finish(child)
                        self._queue(child, waiting)
                    time.sleep(PATIENCE)
            finally:
                for child in running:
                    os.kill(child.process, signal.SIGKILL)
                    os.waitpid(child.process, 0)

    def _queue(self, child: Running, waiting: deque[Job]) -> None:
        """After an escape its turn goes on; else it waits for the next, if there is more to do."""
        job, now = child.job, time.monotonic()
        more = job.next < job.last and now < self.deadline
        if more and now < job.turn_ends:
            waiting.appendleft(job)
            return
        self.tell(job)
        if more:
            waiting.append(job)

    def _start(self, job: Job, scratch: Path, turn: float) -> Running:
        now = time.monotonic()
        if now > job.turn_ends:
            job.turn_ends = min(self.deadline, now + turn)
        folder = Path(tempfile.mkdtemp(prefix=f"{job.target.name}-", dir=scratch))
        tally = RawArray("d", len(Slot))
        tally[Slot.NUMBER], tally[Slot.STARTED] = job.next, now
        work = Work(
            target=job.target,
            seed=self.seed,
            first=job.next,
            last=min(job.last, job.next + SLICE_INPUTS),
            deadline=job.turn_ends,
            seeds=scratch / "seeds" / job.target.name,
            scratch=folder,
            tally=tally,
            watcher=os.getpid(),
            limits=self.limits,
            talk=self.talk,
        )
        return Running(job, work, _fork(lambda: run(work), folder / FAULT), now)

    def _ended(self, child: Running) -> bool:
        if os.waitid(os.P_PID, child.process, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return True
        tally = child.work.tally
        busy = _cpu_seconds(child.process) - tally[Slot.CPU_STARTED]
        waited = seconds_waited(child.process) - tally[Slot.WAITED_STARTED]
        passed = time.monotonic() - tally[Slot.STARTED] - waited
        if not child.stopped_for:
            if _megabytes(child.process) - _megabytes(os.getpid()) > 2 * self.limits.megabytes:
                child.stopped_for = "memory"  # up to here the child says so itself, once it is through
            elif busy > self.limits.seconds or passed > 3 * self.limits.seconds:
                child.stopped_for = "hang"
            if child.stopped_for:
                os.kill(child.process, signal.SIGABRT)  # leaves a note of where it was
        if passed > 6 * self.limits.seconds:
            os.kill(child.process, signal.SIGKILL)
        return False

    def _finish(self, child: Running) -> None:
        _, status = os.waitpid(child.process, 0)
        tally, folder = child.work.tally, child.work.scratch
        outcome = _outcome(folder, status, child.stopped_for)
        if outcome is not None:
            if tally[Slot.INPUTS] < tally[Slot.NUMBER] - child.work.first + 1:
                tally[Slot.INPUTS] += 1  # it ended within this one
            self._keep(child.job, Escape(child.job.target.name, int(tally[Slot.NUMBER]), outcome), folder)
        child.job.seconds += time.monotonic() - child.started
        child.job.add(list(tally))
        shutil.rmtree(folder, ignore_errors=True)

    def _keep(self, job: Job, escape: Escape, folder: Path) -> None:
        """The first of a kind with its input; of the others, only that there was one more."""
        known = {other.key for other in job.escapes}
        job.escapes.append(escape)
        if escape.key in known:
            return
        place = self.keep / f"{escape.target}-{escape.number}-{escape.outcome.kind}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        source = folder / str(escape.number)
        if source.is_dir():
            shutil.copytree(source, place / "input", symlinks=True, ignore=_pipes)
        again = f"python -m fuzz --seed {self.seed} --target {escape.target} --only {escape.number}"
        facts = (
            f"{escape.outcome.kind} at {escape.outcome.place}\n\nTo see it again: {again}\n\n{escape.outcome.detail}\n"
        )
        (place / "escape.txt").write_text(facts, "utf-8", "backslashreplace")


def _cpu_seconds(process: int) -> float:
    """What a process has used so far."""
    ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def _megabytes(process: int) -> float:
    """What a process holds now."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def _pipes(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_fifo()]  # copying one would wait for a writer


def _outcome(folder: Path, status: int, stopped_for: str) -> Outcome | None:
    """What a child that ended leaves to be told, None where all was well."""
    if (folder / ESCAPE).is_file():
        return Outcome(**json.loads((folder / ESCAPE).read_text()))
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return None
    fault = (folder / FAULT).read_text().partition("\nExtension modules")[0] if (folder / FAULT).is_file() else ""
    frames = re.findall(r'File "(.*)", line (\d+) in (.*)', fault)  # the last call first
    ours = [frame for frame in frames if is_ours(frame[0])]
    place = shorten(*(ours or frames)[0]) if frames else ""
    ended_by = signal.Signals(-code).name if code < 0 else f"exit {code}"
    return Outcome(stopped_for or ended_by, place, fault)


def _fork(action: Callable[[], None], fault: Path) -> int:
    """A process that has all modules loaded already. It never returns from here, and writes what failed to `fault`."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        action()
        code = 0
    except BaseException:
        fault.write_text(traceback.format_exc())
    finally:
        os._exit(code)


def _in_child(action: Callable[[], None], fault: Path) -> None:
    """Some encoders start threads, which a fork would not take along: they run where nothing is forked from."""
    _, status = os.waitpid(_fork(action, fault), 0)
    if status:
        raise RuntimeError(f"the seeds could not be made: {fault.read_text()}")


def _make_seeds(jobs: Sequence[Job], scratch: Path) -> None:
    for job in jobs:
        folder = scratch / "seeds" / job.target.name
        folder.mkdir(parents=True)
        job.target.make(folder)


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    """In memory where there is such a place: a disk would be worn and slow."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix=f"event2vec-fuzz-{os.getpid()}-", dir=memory))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def share_inputs(targets: Sequence[Target], inputs: int) -> list[Job]:
    """By weight: what is slow to read gets fewer."""
    total = sum(target.weight for target in targets)
    return [Job(target, 0, max(1, round(inputs * target.weight / total))) for target in targets]


def one_input(job: Job, number: int) -> Job:
    return replace(job, next=number, last=number + 1)
