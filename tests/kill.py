"""Kill real commands with SIGKILL at random moments, and see that the same command then ends with the same bytes.

    python tests/kill.py [--moments 50] [--first 0] [--verbs prepare train report convert] [--seed 0]

Moment 17 of a verb is the same whatever else is run, so that the work can be cut into parts.
"""

import argparse
import csv
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from conftest import make_recording
from processes import SECONDS_TO_END, Forked

SECONDS_TO_FOLLOW = 30.0  # for processes whose parent was killed; at most a moment, where the machine is not busy
RECIPE = """
data: {dataset: folder, workers: 2}
sampling: {method: clusters, length: 24}
model: {dim: 16, hidden: 16, heads: 2, blocks: 1}
training: {epochs: 4, batch: 4, checkpoint_steps: 2}
trainer: {accelerator: cpu, devices: 1}
"""


@dataclass(frozen=True)
class Verb:
    """A command that is run in a folder of its own, beside the folder `common`, and what it must leave there."""

    command: str
    out: str  # what it makes
    results: Callable[[Path], dict[str, str]]  # what must be the same each time, by name


class Failed(Exception):
    """A promise that was not kept."""


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): _digest(path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def _store(trial: Path) -> dict[str, str]:
    return _files(trial / "store")


def _run(trial: Path) -> dict[str, str]:
    run = trial / "run"
    networks = {f"{name}/{file}": digest for name in ("model", "best") for file, digest in _files(run / name).items()}
    with (run / "metrics.csv").open(newline="") as file:
        rows = [{k: v for k, v in row.items() if k not in ("seconds", "data_share")} for row in csv.DictReader(file)]
    others = {name: _digest((run / name).read_bytes()) for name in ("recipe.yaml", "evaluation/test.json")}
    return {**networks, "metrics.csv": str(rows), **others}


def _page(trial: Path) -> dict[str, str]:
    """All of the page but how fast the network was just then."""
    page = (trial / "report.html").read_text("utf-8")
    return {"report.html": _digest(re.sub(r"<h2[^>]*>Speed.*?(?=<h2)", "", page, flags=re.DOTALL).encode())}


def _converted(trial: Path) -> dict[str, str]:
    return {"out.aedat4": _digest((trial / "out.aedat4").read_bytes())}


VERBS = {
    "prepare": Verb("prepare folder --data ../common/data --out store --workers 2", "store", _store),
    "train": Verb("train ../common/recipe.yaml --data ../common/data --out run --workers 1", "run", _run),
    "report": Verb("report ../common/run --repeats 1 --out report.html", "report.html", _page),
    "convert": Verb("convert ../common/long.npz out.aedat4", "out.aedat4", _converted),
}


def make_common(root: Path, with_run: bool) -> None:
    """Recordings, a recipe, and a run to report on."""
    from event2vec import write_events

    common = root / "common"
    for index in range(32):
        write_events(common / "data" / f"class{index % 2}" / f"{index:02d}.npz", make_recording(400, seed=index))
    write_events(common / "long.npz", make_recording(1_000_000, duration=10_000_000))
    (common / "recipe.yaml").write_text(RECIPE)
    if with_run:
        _finish(common, "train recipe.yaml --data data --out run --workers 2")


Process = subprocess.Popen[bytes] | Forked


def start(arguments: list[str], trial: Path, environment: dict[str, str], said: str) -> Process:
    """A command as users start it. The tests replace this by one that is forked, which takes a fifth of the time."""
    with open(said, "w") as file:
        return subprocess.Popen(
            [sys.executable, *arguments], cwd=trial, env=environment, stdout=subprocess.DEVNULL, stderr=file
        )


def start_forked(arguments: list[str], trial: Path, environment: dict[str, str], said: str) -> Process:
    return Forked(*arguments, folder=trial, environment=environment, printed=(os.devnull, said))


@contextmanager
def begun(trial: Path, command: str) -> Iterator[tuple[Process, IO[str]]]:
    """A command in the folder of a trial, with a cache of its own there, until it has ended; and what it says."""
    # One thread: on a busy machine several would mostly wait for each other.
    environment = os.environ | {"EVENT2VEC_CACHE": str(trial / "cache"), "OMP_NUM_THREADS": "1"}
    # No pipe: processes that outlive the command would keep it open.
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as said:
        process = start(["-m", "event2vec", *shlex.split(command)], trial, environment, said.name)
        try:
            yield process, said
        finally:
            process.wait(SECONDS_TO_END)


def _finish(trial: Path, command: str) -> tuple[int, str]:
    with begun(trial, command) as (process, said):
        return process.wait(SECONDS_TO_END), said.read()


@dataclass(frozen=True)
class Times:
    """When an undisturbed command has made its first file, the name of its result, and its end; in seconds."""

    first_file: float
    result: float
    end: float


def measure(verb: Verb, trial: Path) -> tuple[dict[str, str], Times]:
    """What the command leaves when nothing disturbs it, and how long it takes."""
    trial.mkdir()
    start = time.monotonic()
    with begun(trial, verb.command) as (process, said):
        times = []
        for pattern in ("*", verb.out):
            wait_for_file(process, pattern)
            times.append(time.monotonic() - start)
        process.wait(SECONDS_TO_END)
        times.append(time.monotonic() - start)
        if process.returncode != 0:
            raise Failed(f"the command does not work undisturbed: exit code {process.returncode}: {said.read()}")
    return verb.results(trial), Times(*times)


def wait_for_file(process: Process, pattern: str) -> None:
    """Until the command has made a file of this name, or has ended."""
    trial = Path(f"/proc/{process.pid}/cwd").resolve()
    while process.poll() is None and not any(trial.glob(pattern)):
        time.sleep(0.001)


@dataclass(frozen=True)
class Left:
    """What was there after a kill, and whether the command was still at work then."""

    names: str
    in_time: bool


def kill_once(verb: Verb, trial: Path, wait: Callable[[Process], None]) -> Left:
    """Kill the command after `wait`, see that its workers end too, do what a user would do."""
    trial.mkdir()
    with begun(trial, verb.command) as (process, _):
        wait(process)
        process.send_signal(signal.SIGKILL)
    _see_that_all_ended(trial)
    names = ", ".join(sorted(str(path.relative_to(trial)) for path in trial.glob("*"))) or "nothing"
    code, said = _finish(trial, verb.command)
    if code == 2 and (advice := re.search(r"event2vec (\w+ --resume \S+?),", said)):
        code, said = _finish(trial, advice[1])
    done_before = "exists already" in said and verb.out in names.split(", ") and verb.out.endswith(".aedat4")
    if code != 0 and not done_before:
        raise Failed(f"exit code {code} after a kill that left {names}: {said}")
    return Left(names, process.returncode == -signal.SIGKILL)


def _see_that_all_ended(trial: Path) -> None:
    deadline = time.monotonic() + SECONDS_TO_FOLLOW
    while alive := processes_in(trial):
        if time.monotonic() > deadline:
            for pid in alive:
                os.kill(pid, signal.SIGKILL)
            raise Failed(f"{len(alive)} processes outlived the one that was killed")
        time.sleep(0.02)


def processes_in(trial: Path) -> list[int]:
    """All that a command started: they are in the folder of its trial, where nobody else is."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cwd").samefile(trial):
                found.append(int(folder.name))
        except OSError:  # it has ended
            continue
    return found


def compare(verb: Verb, trial: Path, expected: dict[str, str]) -> None:
    found = verb.results(trial)
    if different := [name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)]:
        raise Failed(f"not the same as undisturbed: {', '.join(sorted(different))}")
    leftovers = [path for path in trial.rglob("*") if path.name.startswith(".") or path.name.endswith(".partial")]
    if leftovers:
        raise Failed(f"left behind: {', '.join(str(path.relative_to(trial)) for path in leftovers)}")


def moment(name: str, seed: int, number: int, times: Times) -> Callable[[Process], None]:
    """In turn: anywhere in the command's time; soon after its first file; after its result has its name."""
    share = float(np.random.default_rng((seed, number, *name.encode())).random())

    def wait(process: Process) -> None:
        if number % 3 == 0:
            time.sleep(share * times.end)
        elif number % 3 == 1:
            wait_for_file(process, "*")
            time.sleep(0.001 ** (1 - share) * (times.end - times.first_file) ** share)
        else:
            wait_for_file(process, VERBS[name].out)
            time.sleep(share * (times.end - times.result))

    return wait


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbs", nargs="+", default=list(VERBS), choices=list(VERBS))
    parser.add_argument("--moments", type=int, default=50, help="of each verb")
    parser.add_argument("--first", type=int, default=0, help="number of the first moment")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory(prefix="event2vec-kill-") as folder:
        root = Path(folder)
        make_common(root, with_run="report" in options.verbs)
        for name in options.verbs:
            failures += _kill_often(name, root, options.seed, range(options.first, options.first + options.moments))
    return 1 if failures else 0


def _kill_often(name: str, root: Path, seed: int, numbers: range) -> int:
    verb, failures = VERBS[name], 0
    expected, times = measure(verb, root / f"{name}-undisturbed")
    for number in numbers:
        trial = root / f"{name}-{number}"
        try:
            left = kill_once(verb, trial, moment(name, seed, number, times))
            compare(verb, trial, expected)
            _tell(f"{name} {number}: the kill left {left.names}; the same at the end")
        except Failed as failure:
            failures += 1
            _tell(f"{name} {number}: FAILED: {failure}")
        shutil.rmtree(trial)
    _tell(f"{name}: {len(numbers)} kills, {failures} failures")
    return failures


def _tell(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
