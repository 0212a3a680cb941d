"""The command line itself: help, wrong calls, odd values, and one line for whatever goes wrong."""

import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import encoders
import pytest
from shell import run

from event2vec import __version__
from event2vec.cli import GROUPS, VERBS, _show_warning, build_parser, load_verb
from event2vec.cli.evaluate import SWEEPS
from event2vec.clustering.compiled_engine import library
from event2vec.data.datasets.asl_dvs import ORIENTATIONS
from event2vec.data.sampling import Sampling
from event2vec.evaluation.sweeps import Kind
from event2vec.io import WRITERS
from event2vec.io.units import MICROSECONDS
from event2vec.machine.devices import PRECISIONS
from event2vec.settings import choices_of, describe_settings
from event2vec.training.recipe import Recipe, load_recipe

FOLDER = Path(__file__).parent / "golden"
ROOT = FOLDER.parent.parent
RECORDING = FOLDER / "recordings/3/npz.npz"
HEAVY = ("torch", "numpy", "scipy", "matplotlib", "lightning", "rich", "eventcv")


LOADED = f"print([name for name in {HEAVY} if name in sys.modules])"


def loaded_after(*arguments):
    """The heavy packages that a call has loaded, and all that it printed before."""
    script = f"import sys; from event2vec.cli import main\ntry: main({list(arguments)})\nexcept SystemExit: pass\n"
    command = [sys.executable, "-c", script + LOADED]
    *said, loaded = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.splitlines()
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
        ("train", "digits", "--out", str(ROOT)),
        ("pretrain", "digits", "--out", str(ROOT)),
        ("train", "--resume", "."),
        ("train", "--resume", str(FOLDER / "network")),
        ("evaluate", "."),
        ("figures", "."),
        ("report", "."),
        ("report", str(FOLDER / "network")),
        ("predict", ".", str(RECORDING)),
        ("experiment", "tables"),
        ("experiment", "embeddings", "--recipe", "digit"),
        ("experiment", "embeddings", "--recipe", "digits", "--pretrain", "digit"),
        ("experiment", "embeddings", "--recipe", "folder"),
    ],
    ids=" ".join,
)
def test_what_can_be_refused_at_once_is_refused_before_torch_is_loaded(arguments):
    assert loaded_after(*arguments)[0] == "[]"


def test_a_format_that_cannot_be_written_is_refused_before_the_recording_is_read(tmp_path, capsys):
    loaded, _ = loaded_after("convert", str(RECORDING), str(tmp_path / "x.foo"))
    assert "torch" not in loaded
    (tmp_path / "noise.raw").write_bytes(b"no recording")
    assert run("convert", tmp_path / "noise.raw", tmp_path / "x.foo") == 2
    assert "x.foo: cannot be written: '.foo' is not one of .npz" in capsys.readouterr().err


def test_verbs_that_compute_nothing_never_load_torch(tmp_path, monkeypatch):
    """It takes a second or two, more than all that they do."""
    if library() is None:
        pytest.skip("without its compiled part event2vec clusters with torch")
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path / "cache"))
    calls = (
        ("info", RECORDING),
        ("convert", RECORDING, "part.csv", "--stop", "0.01"),
        ("cut", RECORDING, "--window", "0.05", "--out", "pieces"),
        ("prepare", "folder", "--data", FOLDER / "recordings", "--out", "store", "--clusters", "8", "--workers", "1"),
        ("copy", "store", "shards"),
        ("cache",),
    )
    assert [call[0] for call in calls] == [verb for verb in VERBS if not getattr(load_verb(verb), "COMPUTES", True)]
    script = "import sys; from event2vec.cli import main\n"
    script += "".join(f"assert main({list(map(str, call))}) == 0\n" for call in calls)
    script += "assert 'torch' not in sys.modules, 'loaded'"
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=300)


def settings_shown(*arguments):
    text = " ".join(loaded_after(*arguments, "--help")[1].split())
    return {part.partition(" ")[0]: part for part in text.split(" --")}


def test_help_shows_type_choices_limits_and_the_values_of_the_recipe_that_was_named():
    usual, nmnist = settings_shown("train"), settings_shown("train", "nmnist")
    assert usual["training.epochs"].endswith("(a whole number, at least 1; default: 64)")
    assert nmnist["training.epochs"].endswith("(a whole number, at least 1; default: 150)")
    assert nmnist["sampling.method"].endswith("(random | clusters | temporal | spatial | density; default: clusters)")
    assert nmnist["augment.resize"].endswith("(a number, at least 0 and below 1; default: 0.2)")
    assert nmnist["model.sensor"].endswith("(WIDTHxHEIGHT; default: 34x34)")
    assert nmnist["model.pooling"].endswith("(true or false; default: false)")
    assert any("default: none)" in each for each in nmnist.values()), "which is an empty text"
    assert not any("default: )" in each for each in nmnist.values())
    digits = settings_shown("pretrain", "digits", "--model.dim", "16")
    for shown, recipe in ((usual, Recipe()), (nmnist, load_recipe("nmnist")), (digits, load_recipe("digits"))):
        assert {each.name for each in describe_settings(recipe)} <= shown.keys()


def test_every_verb_but_the_demo_has_its_facts_as_json():
    assert [verb for verb in VERBS if "--json" not in build_parser(verb)._option_string_actions] == ["demo"]


def choices(verb, name):
    (option,) = (each for each in build_parser(verb)._actions if each.dest == name)
    return list(option.choices or ())


def test_what_is_offered_is_what_the_library_can_do():
    assert choices("evaluate", "precision") == list(PRECISIONS)
    assert choices("convert", "time_unit") == list(MICROSECONDS)
    assert choices("cut", "format") == [suffix.removeprefix(".") for suffix in WRITERS]
    assert choices("prepare", "orientation") == list(ORIENTATIONS)
    assert choices("prepare", "seeding") == list(choices_of(Sampling, "seeding"))
    assert get_args(Kind) == SWEEPS, "which is written twice, since sweeps need torch"


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
        (["prepare", "folder"], "--out is required: the folder to write. See 'event2vec prepare --help'"),
        (["info"], "event2vec: FILE is required: recordings, in any format. See 'event2vec info --help'"),
        (
            ["predict"],
            "or a file that 'event2vec export' wrote; FILE is required: recordings in any format, or folders",
        ),
        (["trian", "digits"], "unknown verb 'trian' (did you mean train?). See 'event2vec --help'"),
        (["prepare", "nmist", "--out", "x"], "NAME: must be one of dvs_gesture, asl_dvs"),
        (["prepare", "nmist", "--out", "x"], "got 'nmist' (did you mean nmnist?)"),
        (["info", "a", "--json", "b"], "unexpected argument 'b'; put options after the other arguments"),
        (
            ["evaluate", "nowhere"],
            "RUN: nowhere does not exist, expected a run, a folder with a saved network, or hf://OWNER/NAME",
        ),
        (["report", FOLDER / "network", "--out", "."], "--out: . is a folder, expected the name of a file to write"),
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


def test_of_processes_that_train_together_one_speaks(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert run("info", tmp_path / "missing") == 2
    _show_warning("odd")
    assert capsys.readouterr().err == ""


def test_an_unexpected_error_is_one_line_and_its_place_on_demand(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("a").touch()
    monkeypatch.setattr("event2vec.io.decode_recording", lambda *_, **__: 1 / 0)
    assert run("info", "a") == 1
    error = capsys.readouterr().err
    assert error.startswith("event2vec: this should not happen: ZeroDivisionError: division by zero. Please report it")
    assert error.endswith(", together with the output of the same command with EVENT2VEC_DEBUG=1 set\n")
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
        (("evaluate", str(FOLDER / "network"), "--events", "9" * 5000), "--events takes whole numbers"),
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


STOPPED_IN_NUMPY = """
import sys

class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy.linalg":
            sys.meta_path.remove(self)
            raise KeyboardInterrupt

sys.meta_path.insert(0, Stop())
from event2vec.cli import main
sys.exit(main(["prepare", "digits", "--out", "store"]))
"""


def test_ctrl_c_while_numpy_loads_is_not_swallowed_by_torch(tmp_path):
    command = [sys.executable, "-c", STOPPED_IN_NUMPY]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert ended.stderr == "event2vec: stopped\n"
    assert ended.returncode in (130, -2)  # by the signal itself, where it came in the middle of a string of code
