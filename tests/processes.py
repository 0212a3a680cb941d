"""Processes that tests start: forked ones, what they are doing, and how much memory this one has held."""

import atexit
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

SECONDS_TO_END = 900.0  # for a process that was started; only one that hangs takes that long
NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")


def state_of(process: int) -> str:
    """One letter: R runs, S sleeps, T was stopped, Z has ended and waits for somebody to ask how; "" is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_alive(process: int) -> bool:
    """In a container, one that has ended may stay in the table of processes: nobody asks how it ended."""
    return state_of(process) not in ("Z", "X", "")


def forget_highest_memory() -> None:
    """Linux starts to count again; elsewhere the highest of all tests before stays, and hides a smaller one."""
    if os.access("/proc/self/clear_refs", os.W_OK):
        Path("/proc/self/clear_refs").write_text("5")


# Other people's packages take longer to load than most of what tests run in processes. This process loads them once,
# and forks one for each call: what is ours is loaded there, as in a process that a user starts.
STARTER = """
import atexit, importlib, json, os, runpy, signal, sys, threading, traceback, types

for name in ("lightning.pytorch", "torch.utils.tensorboard", "sklearn.linear_model", "h5py", "eventcv"):
    importlib.import_module(name)

def carry_out(first, *arguments):
    if first in ("-c", "-m"):
        what, *arguments = arguments
    sys.argv = [what if first == "-m" else first, *arguments]
    if first == "-c":
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(what, main.__dict__)
    elif first == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(first))
        runpy.run_path(first, run_name="__main__")

def exit_code(arguments):
    try:
        carry_out(*arguments)
    except SystemExit as ending:
        if isinstance(ending.code, str):
            print(ending.code, file=sys.stderr)
            return 1
        return ending.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0

def work(call):
    os.environ.clear()
    os.environ.update(call["environment"])
    for place, path in enumerate((os.devnull, *call["printed"])):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), place)
    signal.alarm(int(call["seconds"]))
    code = exit_code(call["arguments"])
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(code)  # to free all that was loaded would take a second

while line := sys.stdin.readline():
    call = json.loads(line)
    if "ended" in call:
        answer = os.waitstatus_to_exitcode(os.waitpid(call["ended"], 0)[1])
    else:
        os.chdir(call["folder"])  # before there is a process: whoever looks for it finds it there
        answer = os.fork()
        if answer == 0:
            work(call)
        os.chdir("/")
    print(answer, flush=True)
"""


@cache
def _starter() -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.communicate)  # it ends when nothing more is asked of it
    return process


def _ask(call: dict[str, Any]) -> int:
    process = _starter()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(call) + "\n")
    process.stdin.flush()
    return int(process.stdout.readline())


class Forked:
    """A process of its own, as `python *arguments` would start it, with -c, -m or a script; like `subprocess.Popen`.

    It has its own folder, environment, output, signals and exit code, and nothing that a test has replaced. Three
    things are not as in a fresh process. Lightning with all that it loads (torch, NumPy, SciPy, matplotlib),
    TensorBoard, scikit-learn, h5py and eventcv are loaded already: variables that these read as they load change
    nothing. It ends without freeing them. Options of Python itself are not understood. Where that matters, use
    `subprocess`.
    """

    def __init__(
        self,
        *arguments: Any,
        folder: Path | None = None,
        environment: dict[str, str] | None = None,
        printed: tuple[Path | str, Path | str] = (os.devnull, os.devnull),
    ) -> None:
        self.returncode: int | None = None
        self.pid = _ask(
            {
                "arguments": [os.fsdecode(_argument(value)) for value in arguments],
                "folder": str(folder or Path.cwd()),
                "environment": dict(os.environ) if environment is None else environment,
                "printed": [str(path) for path in printed],
                "seconds": SECONDS_TO_END,
            }
        )

    def wait(self, timeout: float = SECONDS_TO_END) -> int:
        """It ends itself after that time at the latest."""
        if self.returncode is None:
            self.returncode = _ask({"ended": self.pid})
        return self.returncode

    def poll(self) -> int | None:
        return self.returncode if is_alive(self.pid) else self.wait()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def run_python(*arguments: Any, folder: Path | None = None, check: bool = False) -> subprocess.CompletedProcess[str]:
    """A forked process (`Forked`) that has ended, and what it printed."""
    with tempfile.TemporaryDirectory() as name:
        printed = Path(name) / "out", Path(name) / "err"
        code = Forked(*arguments, folder=folder, printed=printed).wait()
        out, err = (path.read_bytes().decode("utf-8") for path in printed)
    if check:
        assert code == 0, err
    return subprocess.CompletedProcess(arguments, code, out, err)


# What torchrun does, but its two processes are forked.
LAUNCH = """
import runpy, sys
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

def work(*arguments):
    if arguments[0] == "-m":
        sys.argv = list(arguments[1:])
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(arguments)
        runpy.run_path(arguments[0], run_name="__main__")

meeting = {"run_id": "two", "rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0"}
elastic_launch(LaunchConfig(1, 1, 2, **meeting, start_method="fork", max_restarts=0), work)(*sys.argv[1:])
"""


def run_two(*arguments: Any) -> subprocess.CompletedProcess[str]:
    """Two processes that torch has started together, as `torchrun --nproc-per-node 2`; what both have printed."""
    return run_python("-c", LAUNCH, *arguments)


def _argument(value: Any) -> str | bytes:
    """Names may have any bytes; all else is text."""
    return value if isinstance(value, bytes) else os.fspath(value) if isinstance(value, os.PathLike) else str(value)
