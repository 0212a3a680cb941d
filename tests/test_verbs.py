"""Every verb as a person runs it: a process of its own, nothing replaced, on recordings of every format."""

import json
import shutil
import tarfile
from functools import partial

import pytest
import torch
from golden.make import FOLDER
from shell import run_verb, run_verbs
from test_authors import their_weights

from event2vec import load_recipe, read_events
from event2vec.cli import VERBS

SMALL = ("--training.epochs", "2", "--model.dim", "16", "--model.hidden", "16", "--sampling.length", "64")


@pytest.fixture
def recordings(tmp_path, monkeypatch):
    """Two digits in every format, of three cameras, beside a file that is no recording."""
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path / "cache"))
    shutil.copytree(FOLDER / "recordings", tmp_path / "data")
    (tmp_path / "data/3/README.txt").write_text("by Anna")
    return tmp_path / "data"


TRAINING = {"prepare", "copy", "pretrain", "train", "evaluate", "report", "figures", "probe", "experiment"}
TRAINING |= {"compare", "export", "cache"}
READING = {"info", "convert", "cut", "view", "live", "predict", "import", "benchmark"}
SHARING = {"push"}  # in test_hub


class Walk:
    """Verbs one after the other, each in a process of its own."""

    def __init__(self, folder):
        self.folder, self.ran = folder, set()

    def __call__(self, name, *arguments, code=0):
        self.ran.add(name)
        return run_verb(name, *arguments, code=code, folder=self.folder)


def test_every_verb_is_in_one_of_these_walks():
    assert TRAINING | READING | SHARING | {"demo"} == set(VERBS)


@pytest.mark.slow
def test_the_demo(tmp_path, monkeypatch):
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path / "cache"))
    shown = Walk(tmp_path)("demo", "--epochs", "1", "--workers", "1")
    assert "(drawn from the training recordings) and 360 test recordings, 10 classes" in shown.err
    assert "accuracy" in shown.out
    page = (tmp_path / "runs/demo/report.html").read_text("utf-8")
    assert page.count("<img") == 10, "samples, curves, confusion, reliability, three sweeps, two recordings, embedding"


@pytest.mark.slow
def test_from_recordings_to_a_table(recordings, tmp_path):
    verb = Walk(tmp_path)
    verb("prepare", "folder", "--data", "data", "--out", "store", "--workers", "2")
    verb("pretrain", "folder", "--data", "data", "--out", "pretrained", "--workers", "1", *SMALL)
    said = verb("train", "folder", "--data", "data", "--out", "run", "--init", "pretrained", "--workers", "1", *SMALL)
    assert "README.txt" in said.err, "what was skipped is said"
    assert json.loads(verb("evaluate", "run", "--json").out)["recordings"] == 8, "other sensors too"
    assert verb("evaluate", "run", "run/model", "--data", "store", "--repeats", "1").out.count("run") >= 3, "a table"
    made = json.loads(verb("export", "run", "--json").out)
    assert (made["path"], made["recordings"], made["made_up"]) == ("run.onnx", 8, False)
    verb("report", "run", "--repeats", "1")
    assert "Watch it read" in (tmp_path / "run/report.html").read_text("utf-8")
    assert "cosine similarity" in verb("figures", "run", "--recordings", "1").out
    assert json.loads(verb("copy", "store", "shards", "--json").out)["recordings"] > 30
    verb("probe", "run", "--data", "shards", "--layers", "1", "--events", "32", "--repeats", "2")
    table = ("--recipe", "run/recipe.yaml", "--data", "store", "--out", "tables", "--seeds", "1", "--workers", "1")
    assert "not shared" in verb("experiment", "sharing", *table, "--epochs", "1").out
    networks = ("--networks", "event2vec,voxel_grid", "--epochs", "1", "--workers", "1")
    assert "Beside the paper" in verb("compare", *table[:4], "--out", "compared", *networks).out
    assert len(json.loads(verb("cache", "--json").out)["stores"]) >= 2, "what training prepared"
    verb("cache", "--remove-all")
    assert json.loads(verb("cache", "--json").out)["stores"] == []
    assert verb.ran == TRAINING


@pytest.mark.slow
def test_from_files_to_answers(recordings, tmp_path):
    verb = Walk(tmp_path)
    files = sorted(path for path in recordings.glob("*/*") if path.name != "README.txt")
    assert len(json.loads(verb("info", "--json", *files).out)) == len(files) == 38
    verb("info", recordings / "3/README.txt", files[0], code=2)
    verb("convert", files[0], "part.csv", "--stop", "0.01")
    verb("cut", files[0], "--window", "0.05", "--out", "pieces")
    assert len([path for path in (tmp_path / "pieces").rglob("*") if path.is_file()]) == 6
    verb("view", files[0], "--out", "seen.html")
    verb("live", FOLDER / "network", files[0], "--seconds", "0.5")
    answers = json.loads(verb("predict", FOLDER / "network", *files, "--json").out)
    assert sum(row["name"] == row["file"].split("/")[-2] for row in answers) > 30
    torch.save(their_weights(load_recipe("dvs_gesture").model), tmp_path / "theirs.ckpt")
    verb("import", "theirs.ckpt", "--recipe", "dvs_gesture", "--out", "imported")
    assert "answers over time" in verb("benchmark", "streaming", "--minutes", "0.01").out
    assert verb.ran == READING


@pytest.fixture
def nmnist(shared_data, tmp_path, monkeypatch):
    """Eight recordings of two digits to train on, and four to test on."""
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path / "cache"))
    with tarfile.open(shared_data / "nmnist_small.tar.gz") as archive:
        members = archive.getmembers()
        for split, count in (("Train", 8), ("Test", 4)):
            for digit in "37":
                found = [member for member in members if f"{split}/{digit}/" in member.name and member.isfile()]
                archive.extractall(tmp_path, found[:count], filter="data")
    (top,) = (path.parent for path in tmp_path.rglob("Train"))
    return top


@pytest.mark.slow
def test_real_recordings_go_from_files_to_a_page(nmnist, shared_data, tmp_path):
    file = next(nmnist.glob("Test/3/*"))
    run = partial(run_verbs, folder=tmp_path)
    printed = run(
        ("prepare", "nmnist", "--data", nmnist, "--out", "store", "--workers", "1"),
        ("train", "nmnist", "--data", "store", "--out", "run", "--workers", "1", *SMALL),
        ("evaluate", "run", "--resolution", "1,8", "--workers", "1"),
        ("evaluate", "run", "--events", "8,64", "--workers", "1"),
        ("report", "run", "--repeats", "1", "--workers", "1"),
        ("predict", "run", file, "--json"),
        ("predict", "run", tmp_path / "store", file, 2),
        ("convert", shared_data / "recordings/dvs128.aedat", "part.h5", "--stop", "0.1"),
        ("info", "part.h5", "--json"),
    )
    assert "Watch it read" in (tmp_path / "run/report.html").read_text("utf-8")
    assert json.loads(printed[5].out)[0]["name"] in set("0123456789")
    part = read_events(shared_data / "recordings/dvs128.aedat").between(0, 100_000)
    assert json.loads(printed[8].out)[0]["events"] == len(part)
