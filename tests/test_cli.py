"""Each verb as a person calls it: what it prints, where, and its exit code."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import encoders
import numpy as np
import pytest
import torch
import yaml
from conftest import assert_same, make_recording, randomise
from golden.make import FOLDER as GOLDEN
from shell import run_verbs
from test_authors import their_weights

from event2vec import (
    Event2VecWarning,
    EventStore,
    ModelConfig,
    Sampling,
    Sensor,
    __version__,
    build_model,
    load_recipe,
    read_events,
    save_model,
    write_events,
)
from event2vec.benchmark import PARTS
from event2vec.benchmark.measurement import Measurement
from event2vec.cli import GROUPS, VERBS, _show_warning, build_parser, main
from event2vec.devices import PRECISIONS
from event2vec.training.recipe import setting_names


def run(*arguments):
    """The exit code; argparse leaves by SystemExit for help."""
    try:
        return main([str(argument) for argument in arguments])
    except SystemExit as leaving:
        return leaving.code


HEAVY = ("torch", "numpy", "scipy", "matplotlib", "lightning", "rich", "eventcv")
LOADED = f"print([name for name in {HEAVY} if name in sys.modules])"


def loaded_after(*arguments):
    """The heavy packages that a call has loaded, and all that it printed before."""
    script = f"import sys; from event2vec.cli import main\ntry: main({list(arguments)})\nexcept SystemExit: pass\n"
    command = [sys.executable, "-c", script + LOADED]
    *said, loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return loaded, "\n".join(said)


def test_the_first_screen_has_every_verb_in_its_group():
    loaded, screen = loaded_after("--help")
    assert loaded == "[]"
    groups = {group.splitlines()[0]: group for group in screen.split("\n\n")}
    assert list(groups)[2:-1] == list(GROUPS) == ["try it", "your data", "learn", "look", "measure"]
    for title, verbs in GROUPS.items():
        assert [line.split()[0] for line in groups[title].splitlines()[1:]] == list(verbs)
    assert max(map(len, screen.splitlines())) <= 100


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_explains_itself_and_loads_nothing_heavy(verb):
    loaded, explained = loaded_after(verb, "--help")
    assert loaded == "[]"
    assert len(explained.splitlines()) > 8
    assert "==SUPPRESS==" not in explained
    assert "None" not in explained


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", "nowhere"),
        ("train", "folder", "--data", "nowhere"),
        ("train", "folder"),
        ("train", "digits", "--training.epochs", "0"),
        ("train", "--resume", "nowhere"),
        ("predict", ".", "nowhere.raw"),
        ("info", "nowhere.raw"),
        ("convert", "nowhere.raw", "x.csv"),
        ("prepare", "folder", "--data", "nowhere", "--out", "x"),
        ("prepare", "folder", "--out", "x"),
        ("import", ".", "--recipe", "digit", "--out", "nowhere"),
        ("import", ".", "--recipe", "digits", "--out", "."),
    ],
    ids=" ".join,
)
def test_what_can_be_refused_at_once_is_refused_before_torch_is_loaded(arguments):
    assert loaded_after(*arguments)[0] == "[]"


def settings_shown(*arguments):
    text = " ".join(loaded_after(*arguments, "--help")[1].split())
    return {part.partition(" ")[0]: part for part in text.split(" --")}


def test_help_shows_type_choices_limits_and_the_values_of_the_recipe_that_was_named():
    usual, nmnist = settings_shown("train"), settings_shown("train", "nmnist")
    assert usual["training.epochs"].endswith("(a whole number, at least 1; default: 64)")
    assert nmnist["training.epochs"].endswith("(a whole number, at least 1; default: 60)")
    assert nmnist["sampling.method"].endswith("(random | clusters; default: clusters)")
    assert nmnist["augment.resize"].endswith("(a number, at least 0 and below 1; default: 0.1)")
    assert nmnist["model.sensor"].endswith("(WIDTHxHEIGHT; default: 34x34)")
    assert nmnist["model.pooling"].endswith("(true or false; default: false)")
    for shown in (usual, nmnist, settings_shown("pretrain", "digits", "--model.dim", "16")):
        assert set(setting_names()) <= shown.keys()


def test_the_precisions_offered_are_those_that_can_be_computed_in():
    (option,) = (each for each in build_parser("evaluate")._actions if each.dest == "precision")
    assert tuple(option.choices or ()) == PRECISIONS


def test_the_version_is_printed(capsys):
    assert run("--version") == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [[], ["fly"], ["info"], ["info", "--nonsense", "a"], ["prepare", "cifar", "--out", "x"]]
)
def test_a_wrong_call_exits_with_2(arguments, capsys):
    assert run(*arguments) == 2
    assert capsys.readouterr().out == ""


def test_a_wrong_call_gets_one_line_in_the_users_own_words(capsys):
    for arguments, message in (
        (["prepare", "folder"], "required: --out. See 'event2vec prepare --help'"),
        (["predict"], "required: RUN, FILE. See 'event2vec predict --help'"),
        (["trian", "digits"], "unknown verb 'trian' (did you mean train?). See 'event2vec --help'"),
        (["prepare", "nmist", "--out", "x"], "NAME: must be one of dvs_gesture, asl_dvs"),
        (["prepare", "nmist", "--out", "x"], "got 'nmist' (did you mean nmnist?)"),
        (["info", "a", "--json", "b"], "unexpected argument 'b'; options come after all else"),
        (["evaluate", "nowhere"], "RUN: nowhere does not exist, expected a run, or a folder with a saved network"),
        (["report", ".", "--out", "."], "--out: . is a folder, expected the name of a file to write"),
        (["--hlep"], "unknown option '--hlep'"),
        (["prepare", "folder", "--out", "x", "--workers", "two"], "--workers: must be a whole number, got 'two'. See"),
        (["info", "a", "--sensr", "demo.raw"], "unknown option --sensr (did you mean --sensor?). See"),
    ):
        assert run(*arguments) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


def test_a_place_that_cannot_be_written_is_one_line(tmp_path, capsys):
    file = encoders.write("npz", tmp_path)
    assert run("prepare", "digits", "--out", file / "store") == 2
    error = capsys.readouterr().err
    assert "npz.npz" in error
    assert error.count("\n") == 1


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


def test_ctrl_c_ends_quietly_and_the_same_command_goes_on(tmp_path):
    command = [
        sys.executable,
        "-m",
        "event2vec",
        "prepare",
        "digits",
        "--out",
        str(tmp_path / "store"),
        "--workers",
        "2",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 60
    while not any((tmp_path / "store.partial").glob("train-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers get it too
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130
    assert error.splitlines()[-1] == "event2vec: stopped. Run the same command again to continue"
    assert any((tmp_path / "store.partial").glob("train-*"))


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    path = encoders.write("evt2", tmp_path)
    command = f"{sys.executable} -m event2vec info --json {' '.join([str(path)] * 400)} | head -c 10"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


ODD_CLASSES = ("[red]", "$x^", "a_$b", ":smile:", "<b>")
ODD_FILES = (b"bad\xff.npz", b"\x1b[31mred\x07.npz", b"two\nlines.npz", b"[bold].npz")


def test_of_processes_that_train_together_one_speaks(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert run("info", tmp_path / "missing") == 2
    _show_warning("odd")
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_names_of_any_bytes_go_through_every_verb(tmp_path, make_events, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path / "cache"))
    for name in ODD_CLASSES:
        for number in range(4):
            write_events(tmp_path / "data" / name / f"{number}.npz", make_events(40, seed=number))
    odd = [os.path.join(os.fsencode(tmp_path), b"data/[red]", name) for name in ODD_FILES]
    for path in odd:
        os.link(tmp_path / "data/[red]/0.npz", path)
    rubbish = os.path.join(os.fsencode(tmp_path), b"data/[red]/rub\xffbish\x1b[2J\n.npz")
    Path(os.fsdecode(rubbish)).write_bytes(b"nothing")

    run = "run\x1b[31m[red]$x\n"
    small = ("--training.epochs", "1", "--model.dim", "16", "--model.hidden", "16", "--model.blocks", "1")
    train = ("train", "folder", "--data", "data", "--workers", "1", "--trainer.accelerator", "cpu", *small)
    info, prepared, refused, _ = run_verbs(
        ("info", *odd, rubbish, 2),
        ("prepare", "folder", "--data", "data", "--out", "store", "--workers", "2"),
        (*train, "--out", b"run\xff", 2),
        (*train, "--out", run),
    )
    for shown in (r"bad\udcff.npz", r"\x1b[31mred\x07.npz", r"two\nlines.npz", "[bold].npz"):
        assert shown in info.out
    assert info.err.count("\n") == 1
    assert r"rub\udcffbish\x1b[2J\n.npz: begins with" in info.err
    assert r"rejected: [red]/rub\udcffbish\x1b[2J\n.npz" in prepared.err
    assert b"rub\xffbish" in (tmp_path / "store/rejected.csv").read_bytes()
    assert r"run\udcff: is not UTF-8 text" in refused.err
    assert r"not used: [red]/rub\udcffbish" in refused.err

    odd_store = shutil.copytree("store", "st\x1b[31more")
    recipe = load_recipe(os.path.join(run, "recipe.yaml")).with_settings({"model.relative": False})  # as theirs
    Path("r\x1b[31m.yaml").write_text(recipe.to_yaml())
    torch.save(their_weights(recipe.model), "theirs.ckpt")
    os.rename("theirs.ckpt", b"theirs\xff\x1b.ckpt")
    Path("e\x1b.yaml").write_text("title: '[red]$x'\nrows: [{name: '[red]', settings: {}, paper: {x: 1}}]")
    probing = ("--data", odd_store, "--layers", "0", "--events", "16", "--repeats", "1", "--workers", "1")
    importing = ("--recipe", "r\x1b[31m.yaml", "--out", "net\x1b[31m x", "--classes", odd_store)
    table = ("--recipe", "r\x1b[31m.yaml", "--data", odd_store, "--seeds", "1", "--workers", "1", "--device", "cpu")
    predicted, answers, evaluated, converted, _, report, probed, imported, experiment = run_verbs(
        ("predict", run, *odd),
        ("predict", run, *odd, rubbish, "--json", 2),
        ("evaluate", run, "--workers", "1", "--repeats", "1"),
        ("convert", odd[0], b"out\xff\x1b.csv"),
        ("figures", run, "--workers", "1", "--recordings", "1"),
        ("report", run, "--workers", "1", "--repeats", "1", "--device", "cpu"),
        ("probe", run, *probing),
        ("import", b"theirs\xff\x1b.ckpt", *importing),
        ("experiment", "e\x1b.yaml", *table, "--out", "out\x1b[31m"),
    )
    assert r"two\nlines.npz" in predicted.out
    assert any(name in predicted.out for name in ODD_CLASSES)
    names = [os.fsencode(row["file"]) for row in json.loads(answers.out)]
    assert names == [*odd, rubbish], "a program gets the names"
    assert all(name in evaluated.out for name in ODD_CLASSES)
    assert r"out\udcff\x1b.csv: 40 events" in converted.err
    assert r"run\x1b[31m[red]$x\n/report.html" in report.err
    assert r"test recordings of st\x1b[31more" in probed.err
    assert r"predict 'net\x1b[31m x' RECORDING" in imported.err
    assert "[red]$x" in experiment.out
    assert r"out\x1b[31m/table.csv" in experiment.err


def test_a_class_folder_that_is_not_utf_8_is_refused_at_once(tmp_path, make_events):
    for name in (b"good", b"bad\xff"):
        write_events(tmp_path / "data" / os.fsdecode(name) / "0.npz", make_events(40))
    commands = (("prepare", "folder", "--data"), ("train", "folder", "--data"))
    common = (tmp_path / "data", "--out", tmp_path / "out", "--workers", "1", 2)
    for printed in run_verbs(*((*command, *common) for command in commands)):
        assert r"data/bad\udcff: cannot be used as a class name" in printed.err
        assert printed.err.endswith("Rename the folder\n")
    assert not (tmp_path / "out").exists()


def test_an_unexpected_error_is_one_line_and_its_place_on_demand(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("a").touch()
    monkeypatch.setattr("event2vec.io.read_recording", lambda *_, **__: 1 / 0)
    assert run("info", "a") == 1
    error = capsys.readouterr().err
    assert error.startswith("event2vec: this should not happen: ZeroDivisionError: division by zero. Please report it")
    assert error.count("\n") == 1
    monkeypatch.setenv("EVENT2VEC_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run("info", "a")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("info", "a", "--sensor", "[" * 9999), "--sensor: a sensor must be WIDTHxHEIGHT"),
        (("predict", "a", "b", "--vote", "[" * 99_999), "--vote: must be a whole number, got '[[["),
        (("predict", "a", "b", "--vote", "&a [*a, *a]"), "--vote: must be a whole number, got '&a [*a, *a]'"),
        (("predict", "a", "b", "--vote", "\x1b[2J"), r"--vote: must be a whole number, got '\x1b[2J'"),
        (("predict", "a", "b", "--vote", "9" * 40), "--vote: must be a whole number, got '999"),
        (("convert", "a", "b", "--start", "nan"), "--start: must be a number, got 'nan'"),
        (("convert", "a", "b", "--stop", "1e999"), "--stop: must be a number, got '1e999'"),
        (("evaluate", "a", "--events", "9" * 5000), "--events takes whole numbers"),
        (("train", "digits", "--training.epochs", "!!python/object:x"), "--training.epochs cannot be used: tags"),
        (("train", "digits", "--training.epochs", "&a [*a]"), "--training.epochs cannot be used: aliases"),
        (("train", "digits", "--training.epochs", "2024-01-01"), "must be a whole number, got '2024-01-01'"),
        (("train", "digits", "--training.epochs", "9" * 30), "training.epochs must be at most 2^53"),
        (("train", "digits", "--training.epochs", "9" * 5000), "a number has 5,000 digits"),
        (("train", "digits", "--training.epochs", "010"), "010 is not a decimal number"),
        (("train", "\x1b[2J"), r"unknown recipe '\x1b[2J'"),
        (("\x1b[2J",), r"unknown verb '\x1b[2J'"),
        (("figures", "loop"), "RUN: loop does not exist"),
        (("experiment", "sharing", "--data", "loop"), "--data: loop does not exist"),
        (("benchmark", "data", "--compare", "pipe"), "pipe: is not a file"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)
def test_odd_values_get_one_short_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    os.symlink("loop", "loop")
    Path("a").touch()
    assert run(*arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert len(error) < 500


@pytest.fixture
def few_digits(monkeypatch):
    """100 of the digits, with fewer frames: the same steps in a fraction of the time."""
    import event2vec.data.datasets.digits as digits

    pictures, labels = digits._load_digits()
    monkeypatch.setattr(digits, "_load_digits", lambda: (pictures[:100], labels[:100]))
    monkeypatch.setattr(digits, "TEST_COUNT", 20)
    monkeypatch.setattr(digits, "FRAMES", 30)


def test_the_walk_through_of_the_readme(few_digits, tmp_path, capsys, monkeypatch):
    """Train, be stopped, go on, evaluate, predict; the commands as they are written there."""
    from event2vec.cli.progress import ShownProgress

    monkeypatch.chdir(tmp_path)
    ordinary = ShownProgress.advance

    def interrupt(self, step, note=""):
        if "loss" in note and step == 3:
            raise KeyboardInterrupt
        ordinary(self, step, note)

    monkeypatch.setattr(ShownProgress, "advance", interrupt)
    command = ("train", "digits", "--workers", "1", "--training.epochs", "2", "--trainer.accelerator", "cpu")
    assert run(*command) == 130
    assert "Resume it with: event2vec train --resume runs/digits" in capsys.readouterr().err
    monkeypatch.setattr(ShownProgress, "advance", ordinary)
    assert run("train", "--resume", "runs/digits") == 0
    error = capsys.readouterr().err
    assert "epoch 2/2" in error
    assert "Reading data took" in error
    assert (tmp_path / "runs/digits/curves.png").read_bytes().startswith(b"\x89PNG")

    assert run("evaluate", "runs/digits", "--repeats", "2", "--json", "--workers", "1") == 0
    facts = json.loads(capsys.readouterr().out)
    confusion = np.array(facts["confusion"])
    assert facts["accuracy"] == pytest.approx(confusion.trace() / confusion.sum())
    assert (len(facts["accuracies"]), confusion.sum()) == (1, 20), "clusters are the same in every repeat"
    assert set(facts["per_class"]) == set("0123456789")
    assert run("evaluate", "runs/digits", "--workers", "1") == 0
    low, high = (f"{100 * end:.2f}" for end in facts["interval"])
    assert f"% on 20 recordings, one draw; 95 % interval {low} to {high} %" in capsys.readouterr().out
    assert run("evaluate", "runs/digits", "--resolution", "1,34", "--json") == 0
    assert [row["resolution"] for row in json.loads(capsys.readouterr().out)] == [1, 34]
    capsys.readouterr()
    coarse = ("--device", "cpu", "--precision", "bf16-mixed")
    assert run("evaluate", "runs/digits", "--repeats", "1", "--json", "--workers", "1", *coarse) == 0
    assert json.loads(capsys.readouterr().out)["recordings"] == facts["recordings"]
    assert run("evaluate", "runs/digits", "--events", "few") == 2
    assert "takes whole numbers of at least" in capsys.readouterr().err

    assert run("figures", "runs/digits", "--recordings", "1") == 0
    assert "cosine similarity" in capsys.readouterr().out
    drawn = {path.name for path in (tmp_path / "runs/digits/figures").iterdir()}
    names = ("embedding", "attention_1", "samples", "curves", "confusion")
    assert {f"{name}.{kind}" for name in names for kind in ("png", "svg")} == drawn

    facts = json.loads((tmp_path / "runs/digits/run.json").read_text())
    (tmp_path / "runs/digits/run.json").write_text(json.dumps(facts | {"data": "moved", "source": "moved"}))
    assert run("figures", "runs/digits", "--workers", "1") == 2
    assert "some figures could not be drawn: moved" in capsys.readouterr().err
    (tmp_path / "runs/digits/run.json").write_text(json.dumps(facts))

    write_events("clip.aedat4", make_recording(3000, sensor=Sensor(34, 34)))
    write_events("large.npz", make_recording(3000, sensor=Sensor(346, 260)))
    assert run("predict", "runs/digits", "clip.aedat4") == 0
    assert "clip.aedat4" in capsys.readouterr().out
    (tmp_path / "bad.raw").write_bytes(b"nothing")
    assert run("predict", "runs/digits", "bad.raw", "large.npz", "--json", "--vote", "2") == 2
    said = capsys.readouterr()
    bad, large = json.loads(said.out)
    assert "error" in bad
    assert large["scaled_from"] == "346x260"
    assert sum(large["scores"].values()) == pytest.approx(1, abs=1e-5)
    assert "scaled from 346x260 to the 34x34" in said.err

    assert run(*command[:-2]) == 0, "a second run gets a number"
    assert (tmp_path / "runs/digits-2/model").is_dir()


@pytest.fixture
def network(tmp_path):
    config = ModelConfig(sensor=Sensor(34, 30), classes=3, dim=16, hidden=16, blocks=1)
    model = randomise(build_model(config, class_names=["ant", "bee", "cat"], sampling=Sampling(length=64)))
    save_model(model, tmp_path / "network")
    return model


@pytest.mark.parametrize("vote", [1, 3])
def test_predict_gives_a_folder_the_scores_that_python_gives(network, tmp_path, capsys, vote):
    for number in range(40):  # more than one batch, of several lengths
        write_events(tmp_path / f"data/{number % 3}/{number:02}.npz", make_recording(30 + 5 * number, seed=number))
    alone = encoders.write("evt2", tmp_path)
    assert run("predict", tmp_path / "network", tmp_path / "data", alone, "--vote", vote, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    files = [*sorted((tmp_path / "data").rglob("*.npz")), alone]
    assert [row["file"] for row in rows] == list(map(str, files))
    for row, answer in zip(rows, network.predict(files, vote=vote), strict=True):
        assert (row["name"], row["events"]) == (answer.name, answer.events)
        assert [row["scores"][name] for name in network.class_names] == answer.scores.tolist()


def test_predict_says_unknown_below_the_confidence_asked_for(network, tmp_path, capsys):
    file = tmp_path / "clip.npz"
    write_events(file, make_recording(50))
    answer = network.predict(file)
    assert run("predict", tmp_path / "network", file, "--json", "--min-confidence", answer.confidence - 0.01) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["label"], row["name"], row["unknown"]) == (answer.label, answer.name, None)
    assert row["confidence"] == pytest.approx(answer.confidence) == max(row["scores"].values())
    assert run("predict", tmp_path / "network", file, "--json", "--min-confidence", "0.99") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["label"], row["name"]) == (None, "unknown")
    assert row["unknown"].endswith("below the 99.0% asked for")
    assert row["scores"][answer.name] == row["confidence"]
    assert run("predict", tmp_path / "network", file, "--min-confidence", "0.99") == 0
    assert "unknown" in capsys.readouterr().out


def test_predict_skips_what_is_no_recording_and_reports_what_cannot_be_read(network, tmp_path, capsys):
    for name in ("data/1.npz", "data/deep/2.npz"):
        write_events(tmp_path / name, make_recording(50))
    (tmp_path / "data/README.txt").write_text("by Anna")
    (tmp_path / "data/Thumbs.db").touch()
    assert run("predict", tmp_path / "network", tmp_path / "data") == 0
    said = capsys.readouterr()
    assert said.err == f"event2vec: {tmp_path}/data: skipped 2 files that are not recordings, such as README.txt\n"
    (tmp_path / "data/broken.raw").write_text("nothing")
    (tmp_path / "empty").mkdir()
    assert run("predict", tmp_path / "network", tmp_path / "data", tmp_path / "empty", tmp_path / "no", "--json") == 2
    said = capsys.readouterr()
    rows = {Path(row["file"]).name: row for row in json.loads(said.out)}
    assert list(rows) == ["1.npz", "broken.raw", "2.npz", "empty", "no"]
    assert [name for name, row in rows.items() if "error" in row] == ["broken.raw", "empty", "no"]
    assert "empty: has no recordings in it" in said.err
    assert "no: does not exist" in said.err


def test_a_run_that_is_there_already_is_refused_before_its_data_is_prepared(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path / "cache"))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "precious.txt").touch()
    assert run("train", "folder", "--data", folder, "--out", tmp_path / "run") == 2
    error = capsys.readouterr().err
    assert "run: exists already. Choose another --out" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "cache").exists()


def test_a_recipe_of_ones_own_is_trained(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mine.yaml").write_text(
        "base: folder\nsampling: {length: 8}\nmodel: {dim: 16, hidden: 16, blocks: 1}\ntraining: {epochs: 1}"
    )
    assert run("train", "mine.yaml", "--data", "data", "--workers", "1", "--training.batch", "4") == 0
    kept = load_recipe("runs/data/recipe.yaml")
    assert (kept.name, kept.sampling.length, kept.training.epochs, kept.training.batch) == ("mine", 8, 1, 4)
    assert kept.augment == load_recipe("folder").augment


def test_training_says_how_many_sets_of_clusters_it_reads(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path / "cache"))
    small = ("--training.epochs", "1", "--model.dim", "16", "--model.hidden", "16", "--model.blocks", "1")
    clusters = ("--sampling.method", "clusters", "--sampling.length", "8", "--workers", "1", *small)
    assert run("train", "folder", "--data", "data", "--sampling.clusterings", "2", *clusters) == 0
    said = capsys.readouterr().err
    assert "8 training recordings (2 clusterings of each)," in said
    assert "and 2 test recordings," in said
    assert "warning" not in said
    (store,) = (tmp_path / "cache").iterdir()
    with warnings.catch_warnings():
        warnings.simplefilter("always", Event2VecWarning)  # the command line shows it; here it would be an error
        assert run("train", "folder", "--data", store, *clusters) == 0
    assert "warning: sampling.clusterings is 1, but" in capsys.readouterr().err
    assert run("evaluate", "runs/data", "--data", "data", "--json") == 0
    assert list((tmp_path / "cache").iterdir()) == [store], "what training prepared is found again"


def test_pretraining_and_fine_tuning(few_digits, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = ("--workers", "1", "--training.epochs", "1", "--model.dim", "16", "--model.hidden", "16")
    assert run("pretrain", "digits", "--out", "pretrained", *settings) == 0
    assert "polarity accuracy" in capsys.readouterr().err
    assert run("train", "digits", "--init", "pretrained", *settings) == 0
    assert "Copied 18 weights of the embedding and" in capsys.readouterr().err
    assert run("predict", "pretrained", "pretrained") == 2
    assert "without classes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train",), "RECIPE is required: asl_dvs"),
        (("train", "digit"), "unknown recipe 'digit' (did you mean digits?)"),
        (("train", "folder"), "--data is required: a prepared store, or the folder with"),
        (("train", "folder", "--data", "nowhere"), "--data: nowhere does not exist, expected a prepared store"),
        (("train", "digits", "--data.worker", "3"), "unknown option --data.worker (did you mean --data.workers?)"),
        (("train", "digits", "--data.worker=3"), "unknown option --data.worker (did you mean --data.workers?)"),
        (("train", "digits", "--model.blocs", "3"), "unknown option --model.blocs (did you mean --model.blocks?)"),
        (("train", "digits", "--training.epochs", "many"), "training.epochs must be a whole number, got 'many'"),
        (("train", "digits", "--resume", "run"), "omit RECIPE"),
        (("train", "--resume", "nowhere"), "--resume: nowhere does not exist, expected a run"),
        (("train", "--resume", "run", "--training.epochs", "3"), "run: is not a run: it has no run.json"),
        (("pretrain", "dvs_gesture", "--data", "nowhere"), "--data: nowhere does not exist"),
        (("train", "digits", "--data", "run"), "run: is not a store. The digits are built in"),
        (("train", "digits", "--model.dim", "["), "--model.dim is not YAML"),
        (("train", "digits", "--training.learning_rate", ".nan"), "must be a finite number"),
        (("evaluate", "nowhere"), "RUN: nowhere does not exist, expected a run"),
        (("evaluate", "run", "--device", "gpu"), "--device must be cpu, cuda, cuda:1"),
        (("probe", "run", "--device", "cuda:99"), "--device cuda:99 does not work here"),
        (("experiment", "sharing", "--init", "run", "--pretrain", "digits"), "omit one of them"),
        (("train", "digits", "--trainer.accumulate", "0"), "trainer.accumulate must be at least 1, got 0"),
        (("train", "digits", "--augment.draw_for", "step"), "augment.draw_for must be one of recording, batch"),
        (("predict", "nowhere", "x"), "RUN: nowhere does not exist, expected a run"),
        (("predict", "run", "x"), "x: does not exist. Check the name"),
        (("predict", "run", "x", "--vote", "0"), "--vote: must be at least 1, got 0"),
        (("predict", "run", "x", "--min-confidence", "60"), "--min-confidence: must be from 0 to 1, got 60"),
        (("predict", "run", "x", "--min-confidence", "nan"), "--min-confidence: must be a number, got 'nan'"),
        (("probe", "run", "--repeats", "0"), "--repeats: must be at least 1, got 0"),
        (("probe", "run", "--layers", "a,b"), "--layers takes whole numbers of at least 0, separated by commas"),
        (("report", "run"), "run: is not a run: it has no run.json"),
        (("figures", "nowhere"), "RUN: nowhere does not exist, expected a run"),
        (("experiment", "tables"), "unknown experiment 'tables'; expected attention, clustering"),
        (("compare",), "--data is required: a prepared store, or the folder with the data set as downloaded"),
        (
            ("compare", "--recipe", "digits", "--minutes", "1", "--epochs", "1"),
            "--minutes and --epochs exclude each other",
        ),
        (("compare", "--recipe", "digits", "--values", "1,2"), "--values is for --figure; omit it"),
        (("compare", "--recipe", "digits", "--figure", "events", "--seeds", "2"), "--figure has networks of its own"),
        (
            ("compare", "--recipe", "digits", "--networks", "frame_cn"),
            "unknown network 'frame_cn' (did you mean frame_cnn?)",
        ),
        (("benchmark", "model", "--recipe", "digits"), "unknown recipe 'digits', expected one of dvs_gesture"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_call_of_training_gets_one_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(GOLDEN / "network", "run")
    assert run(*arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_all_settings_are_printed(capsys):
    assert run("train", "digits", "--print-config", "--model.blocks", "5") == 0
    settings = yaml.safe_load(capsys.readouterr().out)
    assert settings["model"]["blocks"] == 5
    assert settings["data"]["dataset"] == "digits"


def test_benchmark_names_a_folder_that_is_missing(tmp_path, capsys):
    assert run("benchmark", "reading", "--data", tmp_path / "missing") == 2
    assert "missing does not exist, expected a folder with recordings" in capsys.readouterr().err


def test_benchmark_runs_all_its_parts_and_compares_with_an_earlier_run(tmp_path, capsys, monkeypatch):
    import event2vec.cli.benchmark as benchmark

    speeds = dict.fromkeys(PARTS, 1.5) | {"model": 2.5}

    def measured(part, options):
        return [Measurement({"of": part}, {"left out": None}, {"ours / limit": speeds[part]})]

    monkeypatch.setattr(benchmark, "_measure", measured)
    assert run("benchmark", "--json") == 0
    said = capsys.readouterr()
    rows = json.loads(said.out)
    assert rows == {part: [{"of": part, "left out": None, "ours / limit": speed}] for part, speed in speeds.items()}
    (tmp_path / "before.json").write_text(said.out)
    speeds["model"] = 5.0
    assert run("benchmark", "model", "--compare", tmp_path / "before.json", "--json") == 0
    (change,) = json.loads(capsys.readouterr().out)["changes"]
    assert (change["before"], change["now"], change["now / before"]) == (2.5, 5.0, 2.0)
    assert run("benchmark", "--compare", tmp_path / "before.json") == 0
    assert "highest" in capsys.readouterr().out, "a summary ends the output"

    (tmp_path / "bad.json").write_text("[1]")
    (tmp_path / "other.json").write_text('{"model": {"of": 1}}')
    for name, message in (
        ("bad.json", "is not a JSON object"),
        ("other.json", "was not written by 'event2vec benchmark --json'"),
        ("no.json", "does not exist"),
    ):
        assert run("benchmark", "--compare", tmp_path / name) == 2
        assert message in capsys.readouterr().err
