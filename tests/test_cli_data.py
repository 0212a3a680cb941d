"""Verbs that read, convert and prepare recordings: what they print, where, and their exit codes."""

import json
import os
import subprocess
import sys

import encoders
import pytest
from conftest import assert_same
from shell import run, run_verbs

from event2vec import EventStore, read_events, write_events


def test_info_shows_a_table(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    odd = encoders.write("evt2", tmp_path).rename(tmp_path / "clip[left].raw")
    assert run("info", odd, encoders.write("npz", tmp_path)) == 0
    output = capsys.readouterr().out
    assert "clip[left].raw" in output
    assert "34x30*" in output, "a sensor that the file does not name is marked"
    assert "Set it with --sensor" in output


def test_info_gives_the_same_facts_as_json(tmp_path, capsys):
    path = tmp_path / "a.csv"
    path.write_text("30,1,1,1\n10,2,2,0\n1000010,3,3,1\n10,4,4,1\n50")
    assert run("info", path, "--json", "--sensor", "20x10") == 0
    captured = capsys.readouterr()
    (facts,) = json.loads(captured.out)
    assert facts == {
        "file": str(path),
        "format": "text",
        "width": 20,
        "height": 10,
        "sensor_declared": True,
        "events": 4,
        "start_us": 10,
        "duration_us": 1_000_000,
        "rate_per_second": 4.0,
        "rising_share": 0.75,
        "out_of_order": 2,
        "warnings": ["the last line is truncated: 2 bytes at the end were ignored"],
    }
    assert "warning" in captured.err


def test_one_bad_file_is_reported_and_the_rest_are_shown(tmp_path, capsys):
    good = encoders.write("evt3", tmp_path)
    assert run("info", tmp_path / "missing.raw", good, "--json") == 2
    captured = capsys.readouterr()
    bad, fine = json.loads(captured.out)
    assert "does not exist" in bad["error"]
    assert fine["events"] == encoders.COUNT
    assert captured.err.count("\n") == 1
    assert "missing.raw: does not exist" in captured.err


def test_convert_writes_a_part_in_another_format(tmp_path, capsys):
    source = encoders.write("aedat4", tmp_path)
    whole = read_events(source)
    assert run("convert", source, tmp_path / "all.h5") == 0
    assert_same(read_events(tmp_path / "all.h5"), whole)
    assert f"starts at {encoders.START} us on the camera's clock" in capsys.readouterr().err
    assert run("convert", source, tmp_path / "part.csv", "--start", "0.1", "--stop", "0.2") == 0
    assert_same(read_events(tmp_path / "part.csv"), whole.between(100_000, 200_000))
    assert run("convert", source, tmp_path / "tail.npz", "--start", "0.1") == 0
    assert_same(read_events(tmp_path / "tail.npz"), whole.between(100_000, 10**9))


def test_convert_refuses_what_would_lose_something(tmp_path, capsys, make_events):
    source = encoders.write("npz", tmp_path)
    (tmp_path / "there.csv").write_text("precious")
    for arguments, message in (
        ((source, tmp_path / "there.csv"), "exists already"),
        ((source, tmp_path / "a.mp4"), "'.mp4' is not one of"),
        ((source, tmp_path / "a.csv", "--start", "9"), "no events in that interval; it lasts 0.29"),
        ((source, tmp_path / "a.csv", "--start", "2", "--stop", "1"), "--stop 1 must come after --start 2"),
        ((source, tmp_path / "a.csv", "--sensor", "big"), "--sensor: a sensor must be WIDTHxHEIGHT"),
        ((source, tmp_path / "a.csv", "--sensor", "9" * 5000 + "x5"), "--sensor: a sensor must be WIDTHxHEIGHT"),
    ):
        assert run("convert", *arguments) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1, "one clear line"
        assert len(error) < 500
    assert (tmp_path / "there.csv").read_text() == "precious"
    assert run("convert", source, tmp_path / "there.csv", "--overwrite") == 0


@pytest.fixture
def folder(tmp_path, make_events):
    for name in ("left", "right"):
        for number in range(5):
            write_events(tmp_path / "data" / name / f"{number}.npz", make_events(20, seed=number))
    return tmp_path / "data"


def test_prepare_says_how_many_sets_of_clusters_there_are(folder, tmp_path, capsys):
    command = ("prepare", "folder", "--data", folder, "--out", tmp_path / "store", "--workers", "1", "--clusters", "8")
    assert run(*command, "--clusterings", "2") == 0
    assert "2 clusterings of each training recording" in capsys.readouterr().err
    assert run(*command, "--clusterings", "2", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["recordings"], facts["clusterings"]) == ({"train": 8, "test": 2}, 2)
    assert run(*command[:-2], "--clusterings", "2") == 2
    assert "more than 1 requires clusters" in capsys.readouterr().err


def test_prepare_makes_a_store_and_says_what_is_in_it(folder, tmp_path, capsys):
    (folder / "left" / "broken.raw").write_text("call Anna")
    command = ("prepare", "folder", "--data", folder, "--out", tmp_path / "store", "--workers", "1")
    assert run(*command) == 0
    error = capsys.readouterr().err
    assert "8 train recordings of 2 classes, 200 events, sensor 34x30" in error.replace(", 2 test", "")
    assert "rejected: left/broken.raw" in error
    assert len(EventStore.open(tmp_path / "store")) == 10
    assert run(*command, "--strict", "--json") == 2, "and a second time nothing is done again"
    facts = json.loads(capsys.readouterr().out)
    assert facts["recordings"] == {"test": 2, "train": 8}
    assert [note["source"] for note in facts["rejected"]] == ["left/broken.raw"]


def test_prepare_keeps_groups_together_and_says_where_they_went(tmp_path, make_events, capsys):
    for index in range(20):
        write_events(tmp_path / "data" / "ab"[index % 2] / f"p{index // 4}_{index}.npz", make_events(20, seed=index))
    command = ("prepare", "folder", "--data", tmp_path / "data", "--out", tmp_path / "store", "--workers", "1")
    assert run(*command, "--group-by", "[a-z0-9]+(?=_)") == 0
    assert "5 groups of recordings that stay together: 4 train (p" in capsys.readouterr().err
    assert run(*command, "--group-by", "[a-z0-9]+(?=_)", "--json") == 0
    assert json.loads(capsys.readouterr().out)["groups"] == {"train": 4, "test": 1}
    assert run(*command, "--group-by", "^q") == 2
    assert "does not match --group-by '^q'; every recording must belong to a group" in capsys.readouterr().err
    assert run("train", "folder", "--group-by", "[a-z", "--data", tmp_path / "data", "--out", tmp_path / "run") == 2
    error = capsys.readouterr().err
    assert "--group-by must be folders, none or a regular expression, got '[a-z'" in error
    assert error.count("\n") == 1


def test_prepare_says_which_options_do_not_go_together(folder, tmp_path, capsys):
    assert run("prepare", "digits", "--out", tmp_path / "s", "--sensor", "5x5") == 2
    assert "--sensor applies only to folder" in capsys.readouterr().err
    assert run("prepare", "digits", "--out", tmp_path / "s", "--group-by", "none") == 2
    assert "--group-by applies only to folder" in capsys.readouterr().err
    assert run("prepare", "folder", "--data", folder, "--out", tmp_path / "s", "--workers", "0") == 2
    assert "--workers: must be at least 1, got 0" in capsys.readouterr().err


# After its first part, as a terminal does: the workers get it too.
CTRL_C = """
import os, signal, sys, time
import event2vec.data.part_workers as module
from event2vec.cli import main
as_completed = module.as_completed
def interrupt_after_the_first(parts):
    yield next(as_completed(parts))
    os.killpg(0, signal.SIGINT)
    time.sleep(600)
module.as_completed = interrupt_after_the_first
sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c_ends_quietly_and_the_same_command_goes_on(tmp_path):
    arguments = ["prepare", "digits", "--out", str(tmp_path / "store"), "--workers", "2"]
    command = [sys.executable, "-c", CTRL_C, *arguments]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, start_new_session=True, timeout=300)
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == "event2vec: stopped. Run the same command again to continue"
    assert any((tmp_path / "store.partial").glob("train-*"))


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    path = encoders.write("evt2", tmp_path)
    command = f"{sys.executable} -m event2vec info --json {' '.join([str(path)] * 400)} | head -c 10"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_class_folder_that_is_not_utf_8_is_refused_at_once(tmp_path, make_events):
    for name in (b"good", b"bad\xff"):
        write_events(tmp_path / "data" / os.fsdecode(name) / "0.npz", make_events(40))
    commands = (("prepare", "folder", "--data"), ("train", "folder", "--data"))
    common = (tmp_path / "data", "--out", tmp_path / "out", "--workers", "1", 2)
    for printed in run_verbs(*((*command, *common) for command in commands)):
        assert r"data/bad\udcff: cannot be used as a class name" in printed.err
        assert printed.err.endswith("Rename the folder\n")
    assert not (tmp_path / "out").exists()
