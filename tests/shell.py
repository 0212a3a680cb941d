"""The command line as a person meets it: verbs in this process or in one of their own, and what they print."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes import SECONDS_TO_END

from event2vec.cli import main

NEXT = "--next-verb"
# The files that follow are standard output and standard error of one verb each.
CHILD = f"""
import os, sys
from event2vec.cli import main
folder, *rest = sys.argv[1:]
calls = [[]]
for argument in rest:
    if argument == {NEXT!r}:
        calls.append([])
    else:
        calls[-1].append(argument)
for number, arguments in enumerate(calls):
    for place, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(os.path.join(folder, f"{{number}}.{{name}}"), os.O_WRONLY | os.O_CREAT), place)
    sys.argv[1:] = arguments
    code = main()
    sys.stdout.flush(), sys.stderr.flush()
    with open(os.path.join(folder, f"{{number}}.code"), "w") as file:
        file.write(str(code))
"""


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
    command = [sys.executable, "-m", "event2vec", *map(_argument, arguments)]
    done = subprocess.run(command, capture_output=True, check=False, cwd=folder, timeout=SECONDS_TO_END)
    return _check(arguments, done.returncode, code, done.stdout, done.stderr)


def run_verbs(*calls: Sequence[Any], folder: Path | None = None) -> list[Printed]:
    """Several verbs one after the other in one process, which loads torch once. A call may end in its exit code."""
    given = [(list(call[:-1]), call[-1]) if isinstance(call[-1], int) else (list(call), 0) for call in calls]
    line = [part for arguments, _ in given for part in (*map(_argument, arguments), NEXT)][:-1]
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-c", CHILD, name, *line]
        done = subprocess.run(command, capture_output=True, check=False, cwd=folder, timeout=SECONDS_TO_END)
        assert done.returncode == 0, done.stderr
        found = []
        for number, (arguments, code) in enumerate(given):
            parts = [(Path(name) / f"{number}.{kind}").read_bytes() for kind in ("out", "err", "code")]
            found.append(_check(arguments, int(parts[2]), code, parts[0], parts[1]))
    return found


def _argument(value: Any) -> str | bytes:
    """Names may have any bytes; all else is text."""
    return value if isinstance(value, bytes) else os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _check(arguments: Sequence[Any], code: int, expected: int, out: bytes, err: bytes) -> Printed:
    assert code == expected, f"{arguments}: {err.decode('utf-8', 'replace')}"
    assert b"\x1b" not in out + err, "no name moves the cursor"
    assert b"Traceback" not in err
    return Printed(out.decode("utf-8"), err.decode("utf-8"))
