"""Workers: they end with the process that they work for, also when that is killed."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from processes import NEEDS_PROC, SECONDS_TO_END, is_alive

from event2vec.machine.workers import begin_work, first_call

PARENT = """
import multiprocessing, os, sys, time
from event2vec.machine.workers import end_with_parent
def work():
    end_with_parent()
    os.write(1, b"%d\\n" % os.getpid())  # in one piece, which print does not promise
    time.sleep(600)
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    workers = [context.Process(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    time.sleep(600)
"""


@NEEDS_PROC
@pytest.mark.parametrize(
    ("method", "platform"), [("spawn", "linux"), ("fork", "linux"), ("forkserver", "linux"), ("spawn", "another")]
)
def test_workers_end_with_a_killed_parent(tmp_path, method, platform):
    script = tmp_path / "parent.py"
    script.write_text(PARENT if platform == "linux" else f"import sys; sys.platform = {platform!r}\n{PARENT}")
    with subprocess.Popen([sys.executable, script, method], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        try:
            workers = [int(parent.stdout.readline()) for _ in range(2)]
            time.sleep(0.1)
            assert all(map(is_alive, workers)), "while their parent lives"
        finally:
            parent.kill()
            parent.wait(SECONDS_TO_END)
        deadline = time.monotonic() + 60
        while any(map(is_alive, workers)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not any(map(is_alive, workers))


def test_a_worker_can_be_ended_before_it_loads_what_its_work_needs():
    """Killed in the seconds that torch takes to load, a parent must not leave its workers behind."""
    call = first_call(_set_environment, "EVENT2VEC_TEST_BEGUN", "yes")
    assert isinstance(call, bytes), "nothing that would be imported on arrival"
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=begin_work, initargs=(call,)) as pool:
        assert pool.submit(os.getenv, "EVENT2VEC_TEST_BEGUN").result() == "yes"
        assert pool.submit(signal.getsignal, signal.SIGINT).result() == signal.SIG_IGN


def _set_environment(name, value):
    os.environ[name] = value
