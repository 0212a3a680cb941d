"""The recordings of a folder: all that may be one, in a fixed order, and nothing that plainly is not."""

import os

import encoders
import pytest

from event2vec.io import SUFFIXES as READABLE_SUFFIXES
from event2vec.io import WRITERS
from event2vec.io.folders import SUFFIXES, describe_skipped, find_recordings


def test_recordings_come_by_name_and_the_rest_is_told_apart(tmp_path):
    recordings = ("a/1.npz", "a/2.RAW", "b/notes.txt", "b/without_suffix", "c.csv")
    others = ("README", "a/.DS_Store", "a/Readme.txt", "b/Thumbs.db", "b/clip.raw.tmp_index", "b/film.MP4")
    for name in (*recordings, *others, ".hidden/x.npz", "a/.git/y.npz"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [[str(path.relative_to(tmp_path)) for path in paths] for paths in find_recordings(tmp_path)]
    assert found == [list(recordings), list(others)]


def test_links_to_nowhere_and_pipes_are_for_reading_to_report(tmp_path):
    os.mkfifo(tmp_path / "pipe.raw")
    (tmp_path / "gone.npz").symlink_to("nowhere")
    assert [path.name for path in find_recordings(tmp_path)[0]] == ["gone.npz", "pipe.raw"]


@pytest.mark.parametrize("kind", encoders.FILES)
def test_no_format_that_is_read_is_skipped(kind, tmp_path):
    path = encoders.write(kind, tmp_path)
    assert find_recordings(tmp_path) == ([path], [])


def test_no_suffix_of_a_format_is_skipped():
    assert not SUFFIXES & {*READABLE_SUFFIXES, *WRITERS, ".aedat", ".npy", ".es"}


def test_what_was_skipped_is_one_line(tmp_path):
    paths = [tmp_path / "a" / name for name in ("one.pdf", "two.pdf")]
    assert (
        describe_skipped(paths, tmp_path) == f"{tmp_path}: skipped 2 files that are not recordings, such as a/one.pdf"
    )
    assert describe_skipped(paths[:1], tmp_path) == f"{tmp_path}: skipped 1 file that is not a recording: a/one.pdf"
