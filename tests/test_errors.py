"""Errors: one line that names file, problem and remedy, whatever caused them; they travel between processes."""

import errno
import os
import pickle
from pathlib import Path

import pytest

from event2vec.errors import (
    ROOM,
    Busy,
    DiskFull,
    Event2VecError,
    FileError,
    MissingExtra,
    Unreachable,
    describe,
    has_no_room,
    naming_a_full_disk,
)

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (Event2VecError("wrong"), "wrong"),
        (FileError("a.raw", "is empty"), "a.raw: is empty"),
        (FileError(Path("a.raw"), "is empty"), "a.raw: is empty"),
        (Busy("run", "in use by process 3"), "run: in use by process 3"),
        (DiskFull("a.raw"), "a.raw: the disk is full. Free some space and run the same command again"),
        (MissingExtra("the page", "live"), "the page needs an optional package. Run: pip install 'event2vec[live]'"),
    ],
)
def test_an_error_says_the_same_in_another_process(error, line):
    again = pickle.loads(pickle.dumps(error))
    assert str(error) == str(again) == line
    assert type(again) is type(error)


@pytest.mark.parametrize(
    ("error", "package"),
    [
        (MissingExtra("a file", "hdf5"), "event2vec-runtime[hdf5]"),
        (MissingExtra("a network", "export", on_device="openvino"), "event2vec-runtime[openvino]"),
        (MissingExtra("a network", "export", on_device=""), "event2vec-runtime"),
    ],
)
def test_on_a_device_the_remedy_is_a_package_for_devices(error, package, monkeypatch):
    monkeypatch.setattr("event2vec.errors.find_spec", lambda name: None)
    assert str(pickle.loads(pickle.dumps(error))).endswith(f"Run: pip install '{package}'")


def test_what_is_shown_of_an_error_moves_no_cursor():
    assert str(FileError("\x1b[2J.raw", "has\nlines")) == r"\x1b[2J.raw: has\nlines"
    assert "\x1b" not in str(Event2VecError("\x1b[31mred"))


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (FULL, True),
        (OSError(errno.EDQUOT, "quota"), True),
        (RuntimeError("libx: write failed: No space left on device"), True),
        (OSError(errno.EACCES, "no"), False),
        (ValueError("no space"), False),
    ],
)
def test_a_full_disk_is_known_by_number_or_by_the_systems_words(error, full):
    assert has_no_room(error) is full


def test_a_system_error_is_described_without_its_number():
    assert describe(FileNotFoundError(2, "No such file or directory", "a.raw")) == "a.raw: No such file or directory"
    assert describe(OSError("something odd")) == "something odd"
    assert describe(OSError(errno.ENOSPC, "x", "a.raw")) == str(DiskFull("a.raw"))
    assert describe(FULL).startswith("writing failed: the disk is full")


def test_our_own_errors_pass_a_full_disk_unchanged():
    mine = FileError("a", "b")
    with pytest.raises(FileError) as kept, naming_a_full_disk(Path("/proc/x")):
        raise mine
    assert kept.value is mine


def test_an_error_on_a_disk_with_room_stays_what_it_was(tmp_path):
    with pytest.raises(RuntimeError, match="failed"), naming_a_full_disk(tmp_path / "file"):
        raise RuntimeError("failed")
    with pytest.raises(RuntimeError, match="failed"), naming_a_full_disk(tmp_path / "nowhere" / "file"):
        raise RuntimeError("failed")


class TestNamingAFullDisk:
    """Libraries report it in many ways, or say only that they failed."""

    def raised(self, error, path, free, monkeypatch):
        monkeypatch.setattr("event2vec.errors._free_bytes", lambda folder: free)
        with pytest.raises((OSError, RuntimeError, DiskFull)) as caught, naming_a_full_disk(path):
            raise error
        return caught.value

    @pytest.mark.parametrize(
        ("error", "free", "full"),
        [
            (FULL, 10 * ROOM, True),
            (OSError(errno.EDQUOT, "quota"), 10 * ROOM, True),
            (RuntimeError(f"lib: {os.strerror(errno.ENOSPC)}"), 10 * ROOM, True),
            (RuntimeError("failed"), ROOM - 1, True),
            (RuntimeError("failed"), ROOM, False),
            (OSError(errno.EIO, "I/O"), ROOM - 1, True),
            (OSError(errno.EIO, "I/O"), ROOM, False),
            (OSError("failed"), 0, True),
            (OSError(errno.EACCES, "denied"), 0, False),
        ],
    )
    def test_an_error_on_a_disk_without_room_is_one_of_the_disk_unless_the_system_says_otherwise(
        self, error, free, full, tmp_path, monkeypatch
    ):
        found = self.raised(error, tmp_path / "a.raw", free, monkeypatch)
        assert isinstance(found, DiskFull) is full
        if full:
            assert (found.path, found.__cause__) == (tmp_path / "a.raw", error)
        else:
            assert found is error

    def test_what_is_not_an_error_passes(self, tmp_path, monkeypatch):
        monkeypatch.setattr("event2vec.errors._free_bytes", lambda folder: 0)
        with pytest.raises(KeyboardInterrupt), naming_a_full_disk(tmp_path / "a"):
            raise KeyboardInterrupt
        with naming_a_full_disk(tmp_path / "a"):
            pass

    def test_the_free_space_is_that_of_the_folder_of_the_file(self, small_disk):
        (small_disk.folder / "much").write_bytes(b"x" * ((1 << 20) - ROOM // 2))
        with (
            pytest.raises(DiskFull, match=r"a\.npz: the disk is full"),
            naming_a_full_disk(small_disk.folder / "a.npz"),
        ):
            raise RuntimeError("failed")
        with pytest.raises(RuntimeError, match="failed"), naming_a_full_disk(small_disk.folder.parent / "a.npz"):
            raise RuntimeError("failed")


@pytest.mark.parametrize("kind", [FileError, Busy, Unreachable])
def test_what_is_wrong_with_a_file_has_place_and_problem_apart(kind):
    error = kind("https://me:secret@host/x?key=1", "is not https://host/x?key=1")
    assert (error.path, error.problem) == ("https://host/x?...", "is not https://host/x?...")
    assert isinstance(error, Event2VecError)
    assert kind(Path("a"), "b").path == Path("a")


def test_a_full_disk_may_be_described_in_other_words():
    assert str(DiskFull("a.raw", "only 3 bytes are left")) == "a.raw: only 3 bytes are left"


def test_an_error_without_a_text_of_the_system_is_not_given_one():
    assert describe(OSError(errno.EACCES, None, "a.raw")) == str(OSError(errno.EACCES, None, "a.raw"))
    assert describe(OSError(errno.ENOSPC, "x")).startswith("writing failed: the disk is full")
