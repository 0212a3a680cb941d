"""The command line as a person meets it: verbs in this process or in one of their own, and what they print."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from processes import run_python

from event2vec.cli import main


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


def refusal(out: str, err: str) -> str:
    """What a call that cannot work says: one line, for people."""
    assert out == ""
    assert err.startswith("event2vec: ")
    assert err.count("\n") == 1
    return err.removeprefix("event2vec: ").rstrip("\n")


def run_verb(*arguments: Any, code: int = 0, folder: Path | None = None) -> Printed:
    """A verb in a process of its own, which must end with `code`."""
    return _check(arguments, run_python("-m", "event2vec", *arguments, folder=folder), code)


def run_verbs(*calls: Sequence[Any], folder: Path | None = None) -> list[Printed]:
    """Verbs one after the other. A call may end in its exit code."""
    given = [(call[:-1], call[-1]) if isinstance(call[-1], int) else (call, 0) for call in calls]
    return [run_verb(*arguments, code=code, folder=folder) for arguments, code in given]


def _check(arguments: Sequence[Any], done: CompletedProcess[str], expected: int) -> Printed:
    assert done.returncode == expected, f"{arguments}: {done.stderr}"
    assert "\x1b" not in done.stdout + done.stderr, "no name moves the cursor"
    assert "Traceback" not in done.stderr
    return Printed(done.stdout, done.stderr)
