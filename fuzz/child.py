"""The process that makes and reads one input after the other, with limits, until it is done or something escapes."""

import ctypes
import faulthandler
import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
import unicodedata
import warnings
from collections.abc import Iterable, MutableSequence
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

import torch

import event2vec
from event2vec.errors import Event2VecError
from fuzz.containers import damage
from fuzz.targets import Target

ESCAPE, FAULT = "escape.json", "fault.txt"  # what a child leaves: an escape, and where it was when a signal ended it
PACKAGE = Path(event2vec.__file__).parent
LONGEST = 500  # characters of a message
LARGEST_FILE = 1 << 28
RESERVED = (
    16  # times the memory that may be used: with less, what asks for too much would be refused by our limit alone
)
NOT_FILES = ("folder", "pipe", "loop")
NAMES = ("é 手", "[red]", "a b'c", "-x")  # a person's file may be called so

Files = dict[str, bytes]  # by path; what they have in common is what is read


class Slot(IntEnum):
    """What a child writes into memory that it shares with its watcher."""

    NUMBER = 0  # of the input at hand
    STARTED = 1  # when it was begun, on the clock
    CPU_STARTED = 2  # and in CPU seconds of the child
    INPUTS = 3
    READ = 4
    REFUSED = 5
    SLOWEST = 6  # milliseconds of CPU time
    SLOWEST_NUMBER = 7
    LARGEST = 8  # megabytes that reading one input took
    WAITED_STARTED = 9  # what the child had waited for a CPU when the input was begun


@dataclass(frozen=True)
class Limits:
    seconds: float = 5.0  # of CPU time for one input, and three times as much on the clock, waiting for a CPU aside
    megabytes: int = 512  # that reading one input may take


@dataclass(frozen=True)
class Outcome:
    """read, refused, or what escaped: the exception's name, message, memory."""

    kind: str
    place: str = ""  # the last line of ours
    detail: str = ""

    @property
    def escaped(self) -> bool:
        return self.kind not in ("read", "refused")


@dataclass
class Work:
    """What a child is to do."""

    target: Target
    seed: int
    first: int
    last: int  # not included
    deadline: float  # of time.monotonic()
    seeds: Path  # folder of this target's seeds
    scratch: Path  # folder for inputs and for what the child leaves
    tally: MutableSequence[float]
    watcher: int  # the process that started this one
    limits: Limits = field(default_factory=Limits)
    talk: bool = False  # print the outcome of every input


def run(work: Work) -> None:
    """All inputs of a child. The first that escapes ends it, so that the next starts clean."""
    _limit(work)
    originals = load_seeds(work.seeds)
    memory = Memory()
    for number in range(work.first, work.last):
        if time.monotonic() > work.deadline:
            return
        work.tally[Slot.NUMBER] = number
        work.tally[Slot.STARTED], work.tally[Slot.CPU_STARTED] = time.monotonic(), time.process_time()
        work.tally[Slot.WAITED_STARTED] = seconds_waited(os.getpid())
        random = generator(work.seed, work.target.name, number)
        path = write_input(make_input(random, originals), random, work.scratch / str(number))
        started = time.process_time()
        outcome = judge(work.target, path, random)
        _note(work, number, 1000 * (time.process_time() - started))
        grown = memory.growth()
        work.tally[Slot.LARGEST] = max(work.tally[Slot.LARGEST], grown)
        if grown > work.limits.megabytes:
            outcome = Outcome("memory", outcome.place, f"{grown:.0f} MB, then {outcome.kind}: {outcome.detail}")
        if work.talk:
            print(f"{outcome.kind} {outcome.place}\n{outcome.detail}", file=sys.stderr)
        if outcome.escaped:
            (work.scratch / ESCAPE).write_text(json.dumps(asdict(outcome)))
            return
        work.tally[Slot.READ if outcome.kind == "read" else Slot.REFUSED] += 1
        shutil.rmtree(work.scratch / str(number), ignore_errors=True)


def seconds_waited(process: int) -> float:
    """In which a process could have run, but others had the CPU; 0 where Linux was built without counting them."""
    path = Path(f"/proc/{process}/schedstat")
    return int(path.read_text().split()[1]) / 1e9 if path.exists() else 0.0


def generator(seed: int, target: str, number: int) -> Random:
    return Random(f"{seed} {target} {number}")


def _note(work: Work, number: int, milliseconds: float) -> None:
    work.tally[Slot.INPUTS] += 1
    if milliseconds > work.tally[Slot.SLOWEST]:
        work.tally[Slot.SLOWEST], work.tally[Slot.SLOWEST_NUMBER] = milliseconds, number


def _limit(work: Work) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # ends with its watcher, however that ended
    if os.getppid() != work.watcher:
        raise SystemExit("the watcher is gone")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the watcher
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.enable((work.scratch / FAULT).open("w"), all_threads=False)
    if not work.talk:  # libraries complain on their own
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.chdir(work.scratch)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for kind, most in (
        (resource.RLIMIT_AS, mapped + (RESERVED * work.limits.megabytes << 20)),
        (resource.RLIMIT_FSIZE, LARGEST_FILE),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))


class Memory:
    """How far the peak of this process rose above what it held before."""

    def __init__(self) -> None:
        self.before = self.peak()

    def peak(self) -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def growth(self) -> float:
        grown = self.peak() - self.before
        if grown > 16:
            Path("/proc/self/clear_refs").write_text("5")  # the peak becomes what is held now
            self.before = self.peak()
        return grown


def load_seeds(folder: Path) -> list[Files]:
    """Each file or folder there is one seed, in the order of their names."""
    return [
        {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted([seed, *seed.rglob("*")])
            if path.is_file()
        }
        for seed in sorted(folder.iterdir())
    ]


def make_input(random: Random, originals: list[Files]) -> Files:
    """One seed with one to a few changes, each to one of its files."""
    files = dict(random.choice(originals))
    for _ in range(1 + min(7, int(random.expovariate(0.8)))):
        name = random.choice(list(files))
        other = random.choice(originals)
        similar = [content for path, content in other.items() if Path(path).suffix == Path(name).suffix]
        files[name] = damage(random, name, files[name], random.choice(similar or list(other.values())))
    return files


def write_input(files: Files, random: Random, folder: Path) -> Path:
    """Under a name of its own, since readers may keep what they read by its path. Gives the path to read."""
    top = Path(next(iter(files))).parts[0]
    odd = random.choice(NAMES) + Path(top).suffix if random.random() < 0.05 else top
    instead = random.choice(list(files)) if random.random() < 0.001 else None  # no file at all
    for name, content in files.items():
        path = folder / odd / Path(*Path(name).parts[1:])
        path.parent.mkdir(parents=True, exist_ok=True)
        if name == instead:
            _write_no_file(path, random.choice(NOT_FILES))
        else:
            path.write_bytes(content)
    return folder / odd


def _write_no_file(path: Path, kind: str) -> None:
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path)


def judge(target: Target, path: Path, random: Random) -> Outcome:
    """Read an input. Anything but a result or one short line that says what is wrong is an escape."""
    try:
        messages = list(target.read(path, random))
    except Event2VecError as error:
        return _check_messages("refused", [str(error)], place_of(error.__traceback__))
    except BaseException as error:  # panics of Rust are no Exceptions
        return Outcome(
            type(error).__name__, place_of(error.__traceback__), "".join(traceback.format_exception(error))[-9000:]
        )
    return _check_messages("read", messages, target.name)


def _check_messages(kind: str, messages: Iterable[str], place: str) -> Outcome:
    messages = list(messages)
    for message in messages:
        if problem := problem_of(message):
            return Outcome("message", place, f"{problem}: {message[:2000]!r}")
    return Outcome(kind, place, "\n".join(messages)[:2000])


def problem_of(message: str) -> str:
    """What makes a message unfit for a terminal, "" where nothing does."""
    if len(message) > LONGEST:
        return f"{len(message)} characters"
    odd = {character for character in message if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")}
    return f"control characters {sorted(odd)!r}" if odd else ""


def place_of(trace: TracebackType | None) -> str:
    """The last line of ours in a traceback, else the last of all."""
    frames = traceback.extract_tb(trace)
    ours = [frame for frame in frames if is_ours(frame.filename)]
    return shorten(*_facts((ours or list(frames))[-1])) if frames else ""


def _facts(frame: traceback.FrameSummary) -> tuple[str, Any, str]:
    return frame.filename, frame.lineno, frame.name


def is_ours(filename: str) -> bool:
    return Path(filename).is_relative_to(PACKAGE)


def shorten(filename: str, line: Any, function: str) -> str:
    """A line of ours by its path in the project, any other by its package."""
    path = Path(filename)
    parts = path.relative_to(PACKAGE.parent).parts if path.is_relative_to(PACKAGE) else path.parts[-3:]
    return f"{'/'.join(parts)}:{line} {function}"
