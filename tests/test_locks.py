"""Locks: one process at a time in a folder, others hear who it is, and a killed one holds nothing."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from processes import NEEDS_PROC, SECONDS_TO_END

from event2vec import write_events
from event2vec.errors import Busy, DiskFull, FileError
from event2vec.machine.locks import LOCK, hold_shared, is_held, is_shared, own

HOLD = """
import sys
from pathlib import Path
from event2vec.machine.locks import own
with own(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
COUNT = """
import sys, time
from pathlib import Path
from event2vec.errors import Busy, FileError
from event2vec.machine.locks import own
folder, counter = Path(sys.argv[1]), Path(sys.argv[2])
for _ in range(100):
    while True:
        try:
            with own(folder):
                value = int(counter.read_text())
                time.sleep(0)
                counter.write_text(str(value + 1))
                break
        except Busy:
            pass
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the folder."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "folder")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_hears_who_is_at_work_and_since_when(holder, tmp_path):
    with pytest.raises(Busy) as refusal, own(tmp_path / "folder"):
        pass
    expected = (
        rf"folder: in use by process {holder.pid} on {re.escape(socket.gethostname())} since "
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d; wait for it to finish"
    )
    assert re.search(expected, str(refusal.value))


def test_a_lock_ends_with_its_owner_however_that_ends(holder, tmp_path):
    holder.kill()
    holder.wait(SECONDS_TO_END)
    assert (tmp_path / "folder" / LOCK).exists(), "nobody was there to remove it"
    with own(tmp_path / "folder"):
        assert f"process {os.getpid()} on" in (tmp_path / "folder" / LOCK).read_text()
    assert not (tmp_path / "folder").exists()


def test_what_is_in_the_folder_stays_and_the_lock_goes(tmp_path):
    with own(tmp_path / "folder"):
        (tmp_path / "folder" / "work").touch()
        with pytest.raises(Busy, match=f"process {os.getpid()}"), own(tmp_path / "folder"):
            pass
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["work"]


def pipe(folder):
    os.mkfifo(folder / "place")
    return folder / "place"


def link_to_nothing(folder):
    (folder / "place").symlink_to(folder / "missing" / "deeper")
    return folder / "place"


def below_a_link_to_nothing(folder):
    return link_to_nothing(folder) / "below"


def where_nothing_can_be_made(folder):
    if not Path("/proc/self").exists():
        pytest.skip("needs /proc")
    return Path("/proc/run")


PLACES = {
    "a pipe": (pipe, "place: exists and is not a folder"),
    "a file": (lambda folder: Path(__file__), "exists and is not a folder"),
    "a link to nothing": (link_to_nothing, "place: exists and is not a folder"),
    "below a link to nothing": (below_a_link_to_nothing, "below: cannot be created: File exists"),
    "a device": (lambda folder: Path("/dev/null"), "/dev/null: exists and is not a folder"),
    "where nothing can be made": (where_nothing_can_be_made, "/proc/run: cannot be created: No such file"),
}


@pytest.mark.parametrize("kind", PLACES)
def test_what_cannot_be_a_folder_is_refused_at_once(kind, tmp_path):
    make, message = PLACES[kind]
    with pytest.raises(FileError, match=message), own(make(tmp_path)):
        pass


@pytest.mark.parametrize("target", ["missing/deeper", "file"])
def test_a_link_in_the_place_of_the_lock_is_not_followed(target, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / LOCK).symlink_to(tmp_path / target)
    with pytest.raises(FileError, match=r"\.lock: must be a regular file to serve as a lock"), own(tmp_path / "folder"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@NEEDS_PROC
def test_a_recording_that_cannot_be_written_is_an_error_at_once(tmp_path, make_events):
    with pytest.raises(FileError, match="cannot be created: No such file"):
        write_events("/proc/x.npz", make_events(10))


def test_a_lock_for_which_the_disk_has_no_room_leaves_nothing(small_disk):
    (small_disk.folder / "filler").write_bytes(bytes(1 << 20))
    with pytest.raises(DiskFull, match="folder: the disk is full"), own(small_disk.folder / "folder"):
        pass
    assert [path.name for path in small_disk.folder.iterdir()] == ["filler"]
    (small_disk.folder / "filler").unlink()
    with own(small_disk.folder / "folder") as locked:
        assert locked


def test_processes_that_take_turns_never_meet(tmp_path):
    """The folder and its lock come and go all the time here, which is when two could hold different files."""
    (tmp_path / "counter").write_text("0")
    command = [sys.executable, "-c", COUNT, str(tmp_path / "folder"), str(tmp_path / "counter")]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(SECONDS_TO_END) for process in processes] == [0, 0, 0]
    assert (tmp_path / "counter").read_text() == "300"


def test_who_works_in_a_folder_is_seen_without_disturbing(tmp_path):
    folder = tmp_path / "folder"
    assert not is_held(folder)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        before = (folder / LOCK).read_text()
        assert is_held(folder)
        assert (folder / LOCK).read_text() == before
        process.kill()
        process.wait(SECONDS_TO_END)
    assert (folder / LOCK).exists(), "a kill leaves the file"
    assert not is_held(folder), "which means nothing"


def test_readers_of_a_file_are_seen_until_the_last_has_ended(tmp_path):
    path = tmp_path / "file"
    assert not is_shared(path), "where nothing is"
    path.touch()
    assert not is_shared(path)
    readers = [hold_shared(path) for _ in range(2)]
    assert is_shared(path)
    os.close(readers[0])
    assert is_shared(path)
    os.close(readers[1])
    assert not is_shared(path)
