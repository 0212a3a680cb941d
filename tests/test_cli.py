"""Each verb as a person calls it: what it prints, where, and its exit code."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import encoders
import pytest
import torch
import yaml
from conftest import assert_same, make_recording
from test_authors import their_weights

from event2vec import EventStore, Sensor, __version__, load_recipe, read_events, write_events
from event2vec.cli import VERBS, _show_warning, main


def run(*arguments):
    """The exit code; jsonargparse leaves by SystemExit for wrong calls and for help."""
    try:
        return main([str(argument) for argument in arguments])
    except SystemExit as leaving:
        return leaving.code


def test_help_lists_every_verb_and_imports_nothing_heavy():
    script = "import sys; from event2vec.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    script += "print([name for name in ('torch', 'numpy', 'matplotlib', 'eventcv') if name in sys.modules])"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert all(verb in output for verb in VERBS)
    assert output.splitlines()[-1] == "[]"


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_explains_itself(verb, capsys):
    assert run(verb, "--help") == 0
    assert len(capsys.readouterr().out.splitlines()) > 8


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
        (["prepare", "folder"], "required: out. See 'event2vec prepare --help'"),
        (["prepare", "folder", "--out", "x", "--workers", "two"], "--workers: must be a whole number, got 'two'. See"),
        (["info", "a", "--sensr", "demo.raw"], "unknown option --sensr, did you mean --sensor? See"),
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


def test_the_data_sets_of_prepare_are_those_there_are():
    from event2vec.cli.prepare import NAMES
    from event2vec.data.datasets import DATASETS

    assert list(DATASETS) == NAMES


def test_info_shows_a_table(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    odd = encoders.write("evt2", tmp_path).rename(tmp_path / "clip[left].raw")
    assert run("info", odd, encoders.write("npz", tmp_path)) == 0
    output = capsys.readouterr().out
    assert "clip[left].raw" in output
    assert "34x30*" in output, "a sensor that the file does not name is marked"
    assert "--sensor sets it" in output


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
        "warnings": ["the last line is cut short: 2 bytes at the end were ignored"],
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
    assert f"clock stood at {encoders.START} us" in capsys.readouterr().err
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
        ((source, tmp_path / "a.csv", "--start", "9"), "no events in that part; it lasts 0.29"),
        ((source, tmp_path / "a.csv", "--start", "2", "--stop", "1"), "--stop 1 must come after --start 2"),
        ((source, tmp_path / "a.csv", "--sensor", "big"), "--sensor: a sensor is written WIDTHxHEIGHT"),
        ((source, tmp_path / "a.csv", "--sensor", "9" * 5000 + "x5"), "--sensor: a sensor is written WIDTHxHEIGHT"),
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
    command = ("prepare", "folder", "--root", folder, "--out", tmp_path / "store", "--workers", "1", "--clusters", "8")
    assert run(*command, "--clusterings", "2") == 0
    assert "2 sets of clusters of each to train on" in capsys.readouterr().err
    assert run(*command, "--clusterings", "2", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["recordings"], facts["clusterings"]) == ({"train": 8, "test": 2}, 2)
    assert run(*command[:-2], "--clusterings", "2") == 2
    assert "more than 1 need clusters" in capsys.readouterr().err


def test_prepare_makes_a_store_and_says_what_is_in_it(folder, tmp_path, capsys):
    (folder / "left" / "notes.doc").write_text("call Anna")
    command = ("prepare", "folder", "--root", folder, "--out", tmp_path / "store", "--workers", "1")
    assert run(*command) == 0
    error = capsys.readouterr().err
    assert "8 train recordings of 2 classes, 200 events, sensor 34x30" in error.replace(", 2 test", "")
    assert "rejected: left/notes.doc" in error
    assert len(EventStore.open(tmp_path / "store")) == 10
    assert run(*command, "--strict", "--json") == 2, "and a second time nothing is done again"
    facts = json.loads(capsys.readouterr().out)
    assert facts["recordings"] == {"test": 2, "train": 8}
    assert [note["source"] for note in facts["rejected"]] == ["left/notes.doc"]


def test_prepare_says_which_options_do_not_go_together(folder, tmp_path, capsys):
    assert run("prepare", "digits", "--out", tmp_path / "s", "--sensor", "5x5") == 2
    assert "--sensor is for 'folder'" in capsys.readouterr().err
    assert run("prepare", "folder", "--root", folder, "--out", tmp_path / "s", "--workers", "0") == 2
    assert "--workers must be at least 1" in capsys.readouterr().err


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
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert error.splitlines()[-1] == "event2vec: stopped. The same command goes on from here"
    assert any((tmp_path / "store.partial").glob("train-*"))


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    path = encoders.write("evt2", tmp_path)
    command = f"{sys.executable} -m event2vec info --json {' '.join([str(path)] * 400)} | head -c 10"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


ODD_CLASSES = ("[red]", "$x^", "a_$b", ":smile:", "<b>")
ODD_FILES = (b"bad\xff.npz", b"\x1b[31mred\x07.npz", b"two\nlines.npz", b"[bold].npz")


def in_a_process(*arguments, code=0):
    """A verb as users run it: what it printed, as bytes that a terminal can be given."""
    command = [sys.executable, "-m", "event2vec", *arguments]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == code, done.stderr
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"Traceback" not in done.stderr
    return done.stdout.decode("utf-8"), done.stderr.decode("utf-8")


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

    table, said = in_a_process("info", *odd, rubbish, code=2)
    for shown in (r"bad\udcff.npz", r"\x1b[31mred\x07.npz", r"two\nlines.npz", "[bold].npz"):
        assert shown in table
    assert said.count("\n") == 1
    assert r"rub\udcffbish\x1b[2J\n.npz: begins with" in said

    _, said = in_a_process("prepare", "folder", "--root", "data", "--out", "store", "--workers", "2")
    assert r"rejected: [red]/rub\udcffbish\x1b[2J\n.npz" in said
    assert b"rub\xffbish" in (tmp_path / "store/rejected.csv").read_bytes()

    run = "run\x1b[31m[red]$x\n"
    small = ("--training.epochs", "1", "--model.dim", "16", "--model.hidden", "16", "--model.blocks", "1")
    train = ("train", "folder", "--data", "data", "--workers", "1", "--trainer.accelerator", "cpu", *small)
    _, said = in_a_process(*train, "--out", b"run\xff", code=2)
    assert r"run\udcff: is not text in UTF-8" in said
    assert r"not used: [red]/rub\udcffbish" in said
    in_a_process(*train, "--out", run)

    table, said = in_a_process("predict", run, *odd)
    assert r"two\nlines.npz" in table
    assert any(name in table for name in ODD_CLASSES)
    answers, _ = in_a_process("predict", run, *odd, rubbish, "--json", code=2)
    assert [os.fsencode(row["file"]) for row in json.loads(answers)] == [*odd, rubbish], "a program gets the names"
    table, _ = in_a_process("evaluate", run, "--workers", "1", "--repeats", "1")
    assert all(name in table for name in ODD_CLASSES)
    _, said = in_a_process("convert", odd[0], b"out\xff\x1b.csv")
    assert r"out\udcff\x1b.csv: 40 events" in said
    in_a_process("figures", run, "--workers", "1", "--recordings", "1")
    _, said = in_a_process("report", run, "--workers", "1", "--repeats", "1", "--device", "cpu")
    assert r"run\x1b[31m[red]$x\n/report.html" in said
    odd_store = shutil.copytree("store", "st\x1b[31more")
    probing = ("--data", odd_store, "--layers", "0", "--events", "16", "--repeats", "1", "--workers", "1")
    _, said = in_a_process("probe", run, *probing)
    assert r"test recordings of st\x1b[31more" in said

    recipe = load_recipe(os.path.join(run, "recipe.yaml"))
    Path("r\x1b[31m.yaml").write_text(recipe.to_yaml())
    torch.save(their_weights(recipe.model), "theirs.ckpt")
    os.rename("theirs.ckpt", b"theirs\xff\x1b.ckpt")
    importing = ("--recipe", "r\x1b[31m.yaml", "--out", "net\x1b[31m x", "--classes", odd_store)
    _, said = in_a_process("import", b"theirs\xff\x1b.ckpt", *importing)
    assert r"predict 'net\x1b[31m x' RECORDING" in said
    Path("e\x1b.yaml").write_text("title: '[red]$x'\nrows: [{name: '[red]', settings: {}, paper: {x: 1}}]")
    table = ("--recipe", "r\x1b[31m.yaml", "--data", odd_store, "--seeds", "1", "--workers", "1", "--device", "cpu")
    table, said = in_a_process("experiment", "e\x1b.yaml", *table, "--out", "out\x1b[31m")
    assert "[red]$x" in table
    assert r"out\x1b[31m/table.csv" in said


def test_a_class_folder_that_is_not_utf_8_is_refused_at_once(tmp_path, make_events):
    for name in (b"good", b"bad\xff"):
        write_events(tmp_path / "data" / os.fsdecode(name) / "0.npz", make_events(40))
    for command in (("prepare", "folder", "--root"), ("train", "folder", "--data")):
        _, said = in_a_process(*command, tmp_path / "data", "--out", tmp_path / "out", "--workers", "1", code=2)
        assert r"data/bad\udcff: cannot be used as a class name" in said
        assert said.endswith("Rename the folder\n")
    assert not (tmp_path / "out").exists()


def test_an_unexpected_error_is_one_line_and_its_place_on_demand(capsys, monkeypatch):
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
        (("info", "a", "--sensor", "[" * 9999), "--sensor: a sensor is written WIDTHxHEIGHT"),
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
        (("\x1b[2J",), r"invalid choice: '\x1b[2J'"),
        (("figures", "loop"), "loop: does not exist"),
        (("experiment", "sharing", "--data", "loop"), "loop: is not a store"),
        (("benchmark", "data", "--compare", "pipe"), "pipe: is not a file"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)
def test_odd_values_get_one_short_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    os.symlink("loop", "loop")
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


def test_demo_ends_with_a_page(few_digits, tmp_path, capsys):
    assert run("demo", "--out", tmp_path / "demo", "--workers", "1", "--epochs", "1") == 0
    said = capsys.readouterr()
    assert "80 recordings to train on and 20 to test on" in said.err
    assert "accuracy" in said.out
    page = (tmp_path / "demo/report.html").read_text("utf-8")
    assert page.count("<img") == 8, "samples, curves, confusion, two sweeps, two recordings, embedding"


def test_the_walk_through_of_the_readme(few_digits, tmp_path, capsys, monkeypatch):
    """Train, be stopped, go on, evaluate, predict; the commands as they are written there."""
    from event2vec.cli.progress import TrainingProgress

    monkeypatch.chdir(tmp_path)
    ordinary = TrainingProgress.step

    def interrupt(self, step, loss):
        if step == 3:
            raise KeyboardInterrupt
        ordinary(self, step, loss)

    monkeypatch.setattr(TrainingProgress, "step", interrupt)
    command = ("train", "digits", "--workers", "1", "--training.epochs", "2", "--trainer.accelerator", "cpu")
    assert run(*command) == 130
    assert "go on with: event2vec train --resume runs/digits" in capsys.readouterr().err
    monkeypatch.setattr(TrainingProgress, "step", ordinary)
    assert run("train", "--resume", "runs/digits") == 0
    error = capsys.readouterr().err
    assert "epoch 2/2" in error
    assert "Reading data took" in error
    assert (tmp_path / "runs/digits/curves.png").read_bytes().startswith(b"\x89PNG")

    assert run("evaluate", "runs/digits", "--repeats", "2", "--json", "--workers", "1") == 0
    facts = json.loads(capsys.readouterr().out)
    assert 0 <= facts["accuracy"] <= 1
    assert facts["accuracy_std"] >= 0
    assert set(facts["per_class"]) == set("0123456789")
    assert run("evaluate", "runs/digits", "--workers", "1") == 0
    assert "accuracy" in capsys.readouterr().out
    assert run("evaluate", "runs/digits", "--resolution", "1,34", "--json") == 0
    assert [row["resolution"] for row in json.loads(capsys.readouterr().out)] == [1, 34]
    capsys.readouterr()
    coarse = ("--device", "cpu", "--precision", "bf16-mixed")
    assert run("evaluate", "runs/digits", "--repeats", "1", "--json", "--workers", "1", *coarse) == 0
    assert json.loads(capsys.readouterr().out)["recordings"] == facts["recordings"]
    assert run("evaluate", "runs/digits", "--events", "few") == 2
    assert "takes whole numbers with commas" in capsys.readouterr().err

    assert run("figures", "runs/digits", "--recordings", "1") == 0
    assert "cosine similarity" in capsys.readouterr().out
    drawn = {path.name for path in (tmp_path / "runs/digits/figures").iterdir()}
    names = ("embedding", "attention_1", "samples", "curves", "confusion")
    assert {f"{name}.{kind}" for name in names for kind in ("png", "svg")} == drawn

    facts = json.loads((tmp_path / "runs/digits/run.json").read_text())
    (tmp_path / "runs/digits/run.json").write_text(json.dumps(facts | {"data": "moved", "source": "moved"}))
    assert run("figures", "runs/digits", "--workers", "1") == 2
    assert "some pictures could not be drawn: moved" in capsys.readouterr().err
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


def test_training_says_how_many_sets_of_clusters_it_reads(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path / "cache"))
    small = ("--training.epochs", "1", "--model.dim", "16", "--model.hidden", "16", "--model.blocks", "1")
    clusters = ("--sampling.method", "clusters", "--sampling.length", "8", "--workers", "1", *small)
    assert run("train", "folder", "--data", "data", "--data.clusterings", "2", *clusters) == 0
    said = capsys.readouterr().err
    assert "8 recordings to train on (2 sets of clusters of each) and 2 to test on" in said
    assert "warning" not in said
    (store,) = (tmp_path / "cache").iterdir()
    assert run("train", "folder", "--data", store, *clusters) == 0
    assert "data.clusterings is 1, and" in capsys.readouterr().err
    assert run("evaluate", "runs/data", "--data", "data", "--json") == 0
    assert list((tmp_path / "cache").iterdir()) == [store], "what training prepared is found again"


def test_pretraining_and_fine_tuning(few_digits, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = ("--workers", "1", "--training.epochs", "1", "--model.dim", "16", "--model.hidden", "16")
    assert run("pretrain", "digits", "--out", "pretrained", *settings) == 0
    assert "polarity accuracy" in capsys.readouterr().err
    assert run("train", "digits", "--init", "pretrained", *settings) == 0
    assert "Takes over 18 weights of the embed and" in capsys.readouterr().err
    assert run("predict", "pretrained", "nothing.raw") == 2
    assert "without classes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train",), "RECIPE is missing; there are asl_dvs"),
        (("train", "digit"), "unknown recipe 'digit' (did you mean digits?)"),
        (("train", "folder"), "--data is missing"),
        (("train", "folder", "--data", "nowhere"), "nowhere: does not exist"),
        (("train", "digits", "--data.worker", "3"), "unknown option --data.worker, did you mean --data.workers?"),
        (("train", "digits", "--data.worker=3"), "unknown option --data.worker, did you mean --data.workers?"),
        (("train", "digits", "--model.blocs", "3"), "unknown option --model.blocs, did you mean --model.blocks?"),
        (("train", "digits", "--training.epochs", "many"), "training.epochs must be a whole number, got 'many'"),
        (("train", "digits", "--resume", "run"), "leave RECIPE out"),
        (("train", "--resume", "nowhere"), "nowhere: is not a run"),
        (("train", "--resume", "run", "--training.epochs", "3"), "leave --training.epochs out"),
        (("pretrain", "dvs_gesture", "--data", "nowhere"), "nowhere: does not exist"),
        (("train", "digits", "--data", "nowhere"), "nowhere: is not a store; the digits are built in"),
        (("train", "digits", "--model.dim", "["), "--model.dim is not YAML"),
        (("train", "digits", "--training.learning_rate", ".nan"), "must be a finite number"),
        (("evaluate", "nowhere"), "nowhere: does not exist, expected a run"),
        (("evaluate", "nowhere", "--device", "gpu"), "--device must be cpu, cuda, cuda:1"),
        (("probe", "nowhere", "--device", "cuda:99"), "--device cuda:99 does not work here"),
        (("experiment", "sharing", "--init", "one", "--pretrain", "digits"), "leave one out"),
        (("train", "digits", "--trainer.accumulate", "0"), "trainer.accumulate must be at least 1, got 0"),
        (("train", "digits", "--augment.draw_for", "step"), "augment.draw_for must be one of recording, batch"),
        (("predict", "nowhere", "x"), "nowhere: does not exist, expected a run"),
        (("predict", "nowhere", "x", "--vote", "0"), "--vote must be at least 1"),
        (("probe", "nowhere", "--repeats", "0"), "--repeats must be at least 1"),
        (("probe", "nowhere", "--layers", "a,b"), "--layers takes whole numbers with commas"),
        (("report", "nowhere"), "nowhere: is not a run: it has no run.json"),
        (("figures", "nowhere"), "nowhere: does not exist, expected a run"),
        (("experiment", "tables"), "unknown experiment 'tables'; there are attention, clustering"),
        (("benchmark", "model", "--recipe", "digits"), "unknown recipe 'digits', expected one of dvs_gesture"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_call_of_training_gets_one_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
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
    assert run("benchmark", "reading", "--recordings", tmp_path / "missing") == 2
    assert "is not a folder" in capsys.readouterr().err


def test_benchmark_runs_all_its_parts_and_compares_with_an_earlier_run(tmp_path, capsys, monkeypatch):
    import event2vec.cli.benchmark as benchmark

    speeds = {"reading": 1.5, "data": 20.0, "clustering": 8.0, "attention": 1.3, "model": 2.5}
    monkeypatch.setattr(benchmark, "_measure", lambda part, options: [{"of": part, "ours / limit": speeds[part]}])
    assert run("benchmark", "--json") == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == {part: [{"of": part, "ours / limit": speed}] for part, speed in speeds.items()}
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
        ("other.json", "is not what 'event2vec benchmark --json' writes"),
        ("no.json", "does not exist"),
    ):
        assert run("benchmark", "--compare", tmp_path / name) == 2
        assert message in capsys.readouterr().err
