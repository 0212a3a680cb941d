"""The fuzzing harness finds what is planted, makes an input again by its number, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import pytest
from processes import NEEDS_PROC, SECONDS_TO_END, is_alive

from fuzz.child import generator, judge, load_seeds, make_input, problem_of, write_input
from fuzz.containers import INSIDE
from fuzz.targets import TARGETS, Target

ROOT = Path(__file__).resolve().parents[1]
REFUSED_SEEDS = {"loop", "texts.h5", "empty.h5", "nothing.h5"}

PLANTED = """
import json, os, signal, sys, time
from pathlib import Path
from event2vec import Event2VecError
from fuzz.child import Limits, Slot
from fuzz.containers import INSIDE
from fuzz.targets import Target
from fuzz.watch import Job, Watcher

def make(folder):
    (folder / "seed.txt").write_text("one two three")

def read(path, random):
    number = int(path.parent.name)
    if number == 3:
        raise KeyError("planted")
    if number == 5:
        os.kill(os.getpid(), signal.SIGSEGV)
    if number == 7:
        time.sleep(60)
    if number == 8:
        while True:
            pass
    if number == 9:
        bytes(150 << 20)
        bytearray(b"x") * (150 << 20)
    if number == 10:
        bytearray(3 << 30)
    if number == 11:
        raise Event2VecError("x" * 501)
    if number == 12:
        held = bytearray(b"x") * (300 << 20)
        time.sleep(60)
    if number in (13, 15):
        raise Event2VecError("y" * 600)
    if number == 14:
        raise SystemExit(2)
    if number % 2:
        raise Event2VecError("no")
    return ()

job = Job(Target("planted", make, read), 0, 40)
Watcher(0, Limits(seconds=2, megabytes=100), Path(sys.argv[1]), lambda job: None).run([job], 2)
facts = {escape.number: escape.outcome.kind for escape in job.escapes}
print(json.dumps([facts, {slot.name: job.totals[slot] for slot in Slot}]))
"""


def scratch_folders(process: int) -> list[Path]:
    """Where a harness keeps its inputs while it runs."""
    places = (Path("/dev/shm"), Path(tempfile.gettempdir()))
    return [folder for place in places for folder in place.glob(f"event2vec-fuzz-{process}-*")]


@NEEDS_PROC
def test_every_kind_of_escape_is_caught_and_the_others_are_counted(tmp_path):
    (tmp_path / "planted.py").write_text(PLANTED)
    command = [sys.executable, str(tmp_path / "planted.py"), str(tmp_path / "escapes")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS_TO_END)
    assert done.returncode == 0, done.stderr
    facts, totals = json.loads(done.stdout)
    kinds = {"3": "KeyError", "5": "SIGSEGV", "7": "hang", "8": "hang", "9": "memory", "10": "MemoryError"}
    assert facts == kinds | {"11": "message", "12": "memory", "13": "message", "14": "SystemExit", "15": "message"}
    assert (totals["INPUTS"], totals["READ"], totals["REFUSED"]) == (40, 16, 13)
    kept = sorted(path.name for path in (tmp_path / "escapes").iterdir())
    assert "planted-13-message" in kept
    assert "planted-15-message" not in kept, "the same place in the code is kept once"
    note = (tmp_path / "escapes" / "planted-3-KeyError" / "escape.txt").read_text()
    assert "python -m fuzz --seed 0 --target planted --only 3" in note
    assert len(list((tmp_path / "escapes" / "planted-3-KeyError" / "input").iterdir())) == 1


@pytest.mark.filterwarnings("ignore:Duplicate name")  # two members of a zip, on purpose
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_seeds_are_read_and_inputs_are_the_same_each_time(target: Target, tmp_path):
    made = []
    for name in ("once", "again"):
        (tmp_path / name).mkdir()
        target.make(tmp_path / name)
        made.append(load_seeds(tmp_path / name))
    assert made[0] == made[1]
    for number, files in enumerate(made[0]):
        path = write_input(files, Random(1), tmp_path / str(number))
        outcome = judge(target, path, Random(1))
        assert outcome.kind == ("refused" if path.name in REFUSED_SEEDS else "read"), outcome
    for number in range(20):
        inputs = [make_input(generator(0, target.name, number), seeds) for seeds in made]
        assert inputs[0] == inputs[1]
    for name, content in ((name, content) for files in made[0] for name, content in files.items()):
        change = INSIDE.get(Path(name).suffix)
        if change is not None and name != "davis346.aedat4":  # cut inside of a packet
            assert len({change(Random(number), content, content) for number in range(20)}) > 10, (
                "opened and packed again"
            )


@NEEDS_PROC
def test_an_input_is_made_again_by_its_number(tmp_path):
    command = [sys.executable, "-m", "fuzz", "--target", "atis", "--keep", str(tmp_path), "--only", "12345"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_TO_END)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].split()[:5] == ["atis", "1", "1", "0", "0"]
    assert done.stderr.startswith("read atis")


@NEEDS_PROC
def test_a_stop_leaves_no_process_and_no_folder(tmp_path):
    command = [sys.executable, "-m", "fuzz", "--target", "atis", "npy", "--keep", str(tmp_path), "--jobs", "2"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    limit = time.monotonic() + 300
    while not _at_work(process.pid) and time.monotonic() < limit:
        time.sleep(0.05)
    children = _children(process.pid)
    assert children
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert "atis" in out
    assert not [child for child in children if is_alive(child)]
    assert not scratch_folders(process.pid)


def _at_work(process: int) -> bool:
    return any(any(folder.glob("atis-*/*")) for folder in scratch_folders(process))


def _children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("plain é 手", ""),
        ("x" * 501, "501 characters"),
        ("a\nb", "control"),
        ("\x1b[31m", "control"),
        ("\ud800", "control"),
    ],
)
def test_a_message_is_one_short_line_that_any_terminal_can_show(message, problem):
    assert problem_of(message).startswith(problem)
    assert bool(problem_of(message)) == bool(problem)
