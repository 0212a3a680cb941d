"""Every verb as a person runs it: a process of its own, nothing replaced, on real recordings."""

import json
import subprocess
import sys
import tarfile

import pytest

from event2vec import Sensor, read_events, write_events
from event2vec.cli import VERBS

SMALL = ("--training.epochs", "2", "--model.dim", "16", "--model.hidden", "16", "--sampling.length", "64")


class Shell:
    """Runs verbs in a folder, and keeps which."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.ran = folder, set()
        monkeypatch.setenv("EVENT2VEC_CACHE", str(folder / "cache"))

    def __call__(self, verb, *arguments, code=0):
        """What it printed on standard output."""
        self.ran.add(verb)
        command = [sys.executable, "-m", "event2vec", verb, *map(str, arguments)]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{verb} {arguments}: {done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout


@pytest.fixture
def shell(tmp_path, monkeypatch):
    return Shell(tmp_path, monkeypatch)


def learn_and_look(shell, recipe, data, checkpoint):
    """Train on a data set, everything that is done with a run, and a network of the authors."""
    shell("prepare", recipe, "--root", data, "--out", "store", "--workers", "2")
    shell("pretrain", recipe, "--data", data, "--out", "pretrained", "--workers", "1", *SMALL)
    shell("train", recipe, "--data", data, "--out", "run", "--init", "pretrained", "--workers", "2", *SMALL)
    assert json.loads(shell("evaluate", "run", "--json"))["recordings"] > 0
    shell("evaluate", "run", "--resolution", "1,8")
    shell("evaluate", "run", "--events", "8,64")
    shell("report", "run")
    assert "Watch it read" in (shell.folder / "run/report.html").read_text("utf-8")
    shell("figures", "run", "--recordings", "1")
    shell("probe", "run", "--data", "store", "--layers", "0,1", "--events", "32", "--repeats", "2")
    table = ("--recipe", "run/recipe.yaml", "--data", "store", "--out", "tables", "--seeds", "1", "--workers", "1")
    shell("experiment", "sharing", *table, "--epochs", "1")
    shell("import", checkpoint, "--recipe", "dvs_gesture", "--out", "imported")


@pytest.fixture
def nmnist(shared_data, tmp_path):
    """Eight recordings of two digits to train on, and four to test on."""
    with tarfile.open(shared_data / "nmnist_small.tar.gz") as archive:
        members = archive.getmembers()
        for split, count in (("Train", 8), ("Test", 4)):
            for digit in "37":
                found = [member for member in members if f"{split}/{digit}/" in member.name and member.isfile()]
                archive.extractall(tmp_path, found[:count], filter="data")
    (top,) = (path.parent for path in tmp_path.rglob("Train"))
    return top


def test_every_verb_runs_on_nmnist(shell, nmnist, shared_data):
    learn_and_look(shell, "nmnist", nmnist, shared_data / "golden/dvs_gesture.ckpt")
    file = next(nmnist.glob("Test/3/*"))
    assert json.loads(shell("predict", "run", file, "--json"))[0]["name"] in "0123456789"
    shell("info", file)
    shell("convert", file, "digit.h5")
    shell("benchmark", "data")
    shell("demo", "--epochs", "1")
    assert shell.ran == set(VERBS)


@pytest.fixture
def mixed(shell, shared_data):
    """Two classes of a DAVIS240, in several formats, among files of another camera and some that are no recordings."""
    sources = {"corridor": "davis240c.aedat", "shapes": "uzh_davis240.txt"}
    for name, file in sources.items():
        whole = read_events(shared_data / "recordings" / file, sensor=Sensor(240, 180))
        for number, suffix in enumerate(("npz", "aedat4", "csv", "raw", "h5", "dat")):
            part = whole.between(30_000 * number, 30_000 * (number + 1))
            write_events(shell.folder / "data" / name / f"{number}.{suffix}", part)
    (shell.folder / "data/shapes/README.txt").write_text("by Anna")
    (shell.folder / "data/corridor/other.aedat").symlink_to(shared_data / "recordings/dvs128.aedat")
    return shell.folder / "data"


def test_every_verb_runs_on_a_mixed_folder(shell, mixed, shared_data):
    learn_and_look(shell, "folder", mixed, shared_data / "golden/dvs_gesture.ckpt")
    files = sorted(mixed.glob("*/[0-9].*"))
    assert len(json.loads(shell("info", "--json", *files))) == len(files) == 12
    shell("info", mixed / "shapes/README.txt", files[0], code=2)
    shell("convert", files[0], "part.csv", "--stop", "0.01")
    shell("predict", "run", *sorted(mixed.glob("*/*.raw")))
    shell("predict", "run", mixed / "shapes/README.txt", mixed / "shapes/0.npz", code=2)
    assert shell.ran == set(VERBS) - {"demo", "benchmark"}, "which take no recordings"
