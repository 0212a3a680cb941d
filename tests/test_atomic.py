"""Files and folders that appear whole or not at all: after a kill, on a full disk, and while others look."""

import os
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SMALL, make_recording
from processes import NEEDS_PROC, SECONDS_TO_END

from event2vec import EventStore, ModelConfig, build_model, save_model, write_events
from event2vec.errors import DiskFull, FileError, naming_a_full_disk
from event2vec.machine.atomic import SUFFIX, clear_leftovers, whole_file, whole_folder

WRITE_AND_STOP = """
import sys
from pathlib import Path
from event2vec.machine.atomic import whole_file
with whole_file(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    print(temporary, flush=True)
    sys.stdin.read()
"""
REPLACE_OFTEN = """
import sys
from pathlib import Path
from event2vec.machine.atomic import whole_folder
for number in range(int(sys.argv[2])):
    with whole_folder(Path(sys.argv[1]), replace=True) as work:
        (work / "number").write_text(str(number))
"""


@pytest.fixture
def writer(tmp_path):
    """Another process, in the middle of writing `file`."""
    command = [sys.executable, "-c", WRITE_AND_STOP, str(tmp_path / "file")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process
        process.kill()


def leftovers(folder):
    return [path for path in folder.rglob(".*") if path.name.startswith(".")]


def test_what_a_killed_writer_left_goes_with_the_next_write_beside_it(writer, tmp_path):
    writer.kill()
    writer.wait(SECONDS_TO_END)
    assert leftovers(tmp_path)
    with whole_file(tmp_path / "another") as temporary:
        temporary.write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == ["another"]


def test_what_a_living_writer_writes_stays(writer, tmp_path):
    for name in ("another", "file"):
        with whole_file(tmp_path / name) as temporary:
            temporary.write_text("whole")
    clear_leftovers(tmp_path)
    writer.communicate("")
    assert writer.returncode == 0
    assert (tmp_path / "file").read_text() == "half", "the last to end wins"
    assert not leftovers(tmp_path)


def test_other_hidden_folders_stay(tmp_path):
    (tmp_path / ".git" / "objects").mkdir(parents=True)
    clear_leftovers(tmp_path)
    assert (tmp_path / ".git" / "objects").is_dir()


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        (".my.writing", "notes"),  # not named as ours
        (".my.writing", "my"),
        (".draft.01234567.writing", "chapter"),  # named as ours, and holding something else
        (".draft.01234567.writing", "old.txt"),
        (".draft.0123456Z.writing", "draft"),
        (".01234567.writing", "old"),
    ],
)
def test_folders_of_others_that_end_like_ours_stay(tmp_path, name, inside):
    (tmp_path / name).mkdir()
    (tmp_path / name / inside).write_text("mine")
    (tmp_path / ".empty.writing").mkdir()
    (tmp_path / ".file.01234567.writing").write_text("mine")
    (tmp_path / ".link.01234567.writing").symlink_to(tmp_path / name)
    before = sorted(tmp_path.rglob("*"))
    clear_leftovers(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / name / inside).read_text() == "mine"


def test_a_folder_is_there_at_every_moment_of_its_replacement(tmp_path):
    folder = tmp_path / "model"
    rounds = 60
    with subprocess.Popen([sys.executable, "-c", REPLACE_OFTEN, str(folder), str(rounds)]) as process:
        while not folder.exists():
            pass
        seen = 0
        while process.poll() is None:
            seen += 1
            assert (folder / "number").exists()
    assert process.returncode == 0
    assert seen > rounds
    assert (folder / "number").read_text() == str(rounds - 1)


def test_a_folder_is_put_back_where_a_kill_came_between_the_two_steps(tmp_path):
    """Systems that cannot replace a folder in one step move the old one away first."""
    old = tmp_path / f".model.0123abcd{SUFFIX}" / "old"
    old.mkdir(parents=True)
    (old / "config.json").write_text("{}")
    clear_leftovers(tmp_path)
    assert (tmp_path / "model" / "config.json").read_text() == "{}"
    assert not leftovers(tmp_path)


def test_permissions_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        with whole_file(tmp_path / "file") as temporary:
            temporary.touch(0o600)
        save_model(build_model(ModelConfig(sensor=SMALL, classes=2, dim=16, hidden=16, heads=2)), tmp_path / "model")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes.pop("model") == 0o750
    assert modes == dict.fromkeys(("file", "model.safetensors", "config.json", "README.md"), 0o640)


@NEEDS_PROC
def test_all_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    done = []
    for name in ("fsync", "replace"):
        call = getattr(os, name)

        def note(target, *more, name=name, call=call):
            done.append((name, os.readlink(f"/proc/self/fd/{target}") if name == "fsync" else str(target)))
            return call(target, *more)

        monkeypatch.setattr(os, name, note)
    with whole_folder(tmp_path / "folder") as work:
        (work / "inner").mkdir()
        for path in (work / "one", work / "inner" / "two"):
            path.write_text("text")
    *before, (renamed, _), after = done
    assert renamed == "replace"
    assert {path for _, path in before} == {str(work / name) for name in ("one", "inner", "inner/two")} | {str(work)}
    assert after == ("fsync", str(tmp_path))


def _checkpoint(path):
    from event2vec.training.callbacks import WholeCheckpoints

    WholeCheckpoints().save_checkpoint({"weights": torch.zeros(1 << 20)}, path)


def _store(path):
    recordings = ((make_recording(1 << 15, seed=index), 0) for index in range(16))
    EventStore.create(path, recordings, sensor=SMALL, classes=["a"])


def _network(path):
    save_model(build_model(ModelConfig(sensor=SMALL, classes=2, dim=256, hidden=512, heads=2, blocks=4)), path)


def _recording(path):
    write_events(path, make_recording(1 << 19, seed=3, duration=1 << 30))


def _figure(path):
    from event2vec.evaluation.figures import pyplot, save_figure

    figure, axes = pyplot().subplots(figsize=(12, 12))
    axes.imshow(np.random.default_rng(0).random((2000, 2000, 3)))
    save_figure(figure, path)


def _table(path):
    from event2vec.training.metrics import write_rows

    write_rows(path, [{"text": "x" * 1000}] * 4000)


WRITERS = {
    "store": _store,
    "last.ckpt": _checkpoint,
    "model": _network,
    "recording.npz": _recording,
    "recording.csv": _recording,
    "recording.txt": _recording,
    "recording.h5": _recording,
    "recording.aedat4": _recording,
    "recording.raw": _recording,
    "recording.dat": _recording,
    "figure.png": _figure,
    "table.csv": _table,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_said_and_nothing_is_left_on_it(small_disk, name):
    """A writer that has nothing to do with it still works there afterwards."""
    with pytest.raises(DiskFull) as full:
        WRITERS[name](small_disk.folder / name)
    assert str(full.value).startswith(f"{small_disk.folder / name}: the disk is full. Free some space and")
    assert list(small_disk.folder.iterdir()) == []
    small_disk.grow()
    WRITERS[name](small_disk.folder / name)
    assert (small_disk.folder / name).exists()


def test_other_failures_keep_their_own_words(small_disk):
    with pytest.raises(ValueError, match="mine"), whole_file(small_disk.folder / "file"):
        raise ValueError("mine")
    with suppress(FileNotFoundError), whole_file(small_disk.folder / "file"):
        pass
    assert list(small_disk.folder.iterdir()) == []


@pytest.mark.parametrize(
    "error", [PermissionError(13, "no"), OSError(30, "read-only"), NotADirectoryError(20, "no"), FileError("a", "b")]
)
def test_an_error_that_names_its_cause_is_not_taken_for_a_full_disk(error):
    """Some file systems, such as those of the kernel and of CDs, always say that nothing is free."""
    with pytest.raises(type(error)) as kept, naming_a_full_disk(Path("/proc/file")):
        raise error
    assert kept.value is error


@NEEDS_PROC
def test_an_error_without_a_cause_is_judged_by_the_room_that_is_left():
    with pytest.raises(DiskFull), naming_a_full_disk(Path("/proc/file")):
        raise RuntimeError("failed")
