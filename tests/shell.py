"""The command line as a person meets it: verbs in this process or in one of their own, and what they print."""

import atexit
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from processes import SECONDS_TO_END

from event2vec.cli import main

# Other people's packages take longer to load than most verbs to run. This process loads them once, and forks one for
# each verb: what is ours is loaded there, as in a process that a user starts.
STARTER = """
import atexit, importlib, json, os, runpy, signal, sys, threading
for name in ("lightning.pytorch", "torch.utils.tensorboard", "sklearn.linear_model", "h5py", "eventcv"):
    importlib.import_module(name)
while line := sys.stdin.readline():
    process = os.fork()
    if process == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
else:
    sys.exit()
call = json.loads(line)
os.chdir(call["folder"])
os.environ.clear()
os.environ.update(call["environment"])
for place, path in enumerate((os.devnull, *call["printed"])):
    os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), place)
signal.alarm(int(call["seconds"]))
sys.argv = ["event2vec", *call["arguments"]]
try:
    runpy.run_module("event2vec", run_name="__main__", alter_sys=True)
except SystemExit as ending:
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(ending.code)  # to free all that was loaded would take a second
"""


@cache
def starter() -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.communicate)  # it ends when nothing more is asked of it
    return process


@dataclass(frozen=True)
class Printed:
    """What a verb printed for programs and for people."""

    out: str
    err: str


def run(*arguments: Any) -> int:
    """The exit code of a verb in this process, where tests can watch or replace parts; help leaves by SystemExit."""
    try:
        return main([str(argument) for argument in arguments])
    except SystemExit as leaving:
        return int(leaving.code or 0)


def run_verb(*arguments: Any, code: int = 0, folder: Path | None = None) -> Printed:
    """A verb in a process of its own, which must end with `code`."""
    with tempfile.TemporaryDirectory() as name:
        printed = [Path(name) / kind for kind in ("out", "err")]
        call = {
            "arguments": [os.fsdecode(_argument(value)) for value in arguments],
            "folder": str(folder or Path.cwd()),
            "environment": dict(os.environ),
            "printed": [str(path) for path in printed],
            "seconds": SECONDS_TO_END,
        }
        process = starter()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(call) + "\n")
        process.stdin.flush()
        ended = int(process.stdout.readline())
        return _check(arguments, ended, code, *(path.read_bytes() for path in printed))


def run_verbs(*calls: Sequence[Any], folder: Path | None = None) -> list[Printed]:
    """Verbs one after the other. A call may end in its exit code."""
    given = [(call[:-1], call[-1]) if isinstance(call[-1], int) else (call, 0) for call in calls]
    return [run_verb(*arguments, code=code, folder=folder) for arguments, code in given]


def _argument(value: Any) -> str | bytes:
    """Names may have any bytes; all else is text."""
    return value if isinstance(value, bytes) else os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _check(arguments: Sequence[Any], code: int, expected: int, out: bytes, err: bytes) -> Printed:
    assert code == expected, f"{arguments}: {err.decode('utf-8', 'replace')}"
    assert b"\x1b" not in out + err, "no name moves the cursor"
    assert b"Traceback" not in err
    return Printed(out.decode("utf-8"), err.decode("utf-8"))
