"""Verbs that train and use what was learnt: what they print, where, and their exit codes."""

import json
import shutil
import warnings
from pathlib import Path

import encoders
import numpy as np
import pytest
import torch
import yaml
from conftest import make_recording, randomise
from golden.make import FOLDER as GOLDEN
from shell import run

from event2vec import (
    Event2VecWarning,
    ModelConfig,
    Sampling,
    Sensor,
    build_model,
    load_recipe,
    predict,
    save_model,
    write_events,
)


@pytest.fixture
def few_digits(monkeypatch):
    """100 of the digits, with fewer frames: the same steps in a fraction of the time."""
    import event2vec.data.datasets.digits as digits

    pictures, labels = digits._load_digits()
    monkeypatch.setattr(digits, "_load_digits", lambda: (pictures[:100], labels[:100]))
    monkeypatch.setattr(digits, "TEST_COUNT", 20)
    monkeypatch.setattr(digits, "FRAMES", 30)


@pytest.fixture
def folder(tmp_path, make_events):
    for name in ("left", "right"):
        for number in range(5):
            write_events(tmp_path / "data" / name / f"{number}.npz", make_events(20, seed=number))
    return tmp_path / "data"


@pytest.mark.slow
def test_the_walk_through_of_the_readme(few_digits, tmp_path, capsys, monkeypatch):
    """Train, be stopped, go on, evaluate, predict; the commands as they are written there."""
    from event2vec.progress import ShownProgress

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


def test_python_answers_a_folder_and_says_what_could_not_be_read(network, tmp_path):
    good, bad = tmp_path / "data/good.npz", tmp_path / "data/bad.raw"
    write_events(good, make_recording(50))
    bad.write_bytes(b"nothing")
    (tmp_path / "data/README.txt").write_text("by Anna")
    (tmp_path / "empty").mkdir()
    with pytest.warns(Event2VecWarning, match="skipped 1 file that is not a recording: README.txt"):
        found = predict(tmp_path / "network", [tmp_path / "data", tmp_path / "empty"], vote=2)
    assert [each.file for each in found] == [str(bad), str(good), str(tmp_path / "empty")]
    assert [each.prediction is None for each in found] == [True, False, True]
    assert "bad.raw: begins with" in str(found[0].error)
    assert found[2].error == f"{tmp_path}/empty: has no recordings in it, expected files such as .aedat4, .raw, .npz"
    answer = found[1].prediction
    assert answer is not None
    assert torch.equal(answer.scores, network.predict(good, vote=2).scores)
    assert found[1].facts(network.class_names)["name"] == answer.name


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
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert run("predict", tmp_path / "network", tmp_path / "data") == 0
    skipped = f"{tmp_path}/data: skipped 2 files that are not recordings, such as README.txt"
    assert capsys.readouterr().err == f"event2vec: warning: {skipped}\n"
    (tmp_path / "data/broken.raw").write_text("nothing")
    (tmp_path / "empty").mkdir()
    files = (tmp_path / "data", tmp_path / "empty", tmp_path / "no")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert run("predict", tmp_path / "network", *files, "--json") == 2
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
    assert run("train", "mine.yaml", "--data", "data", "--workers", "1", "--training.batch", "4", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    tested = json.loads(Path("runs/data/evaluation/test.json").read_text())
    assert {name: facts[name] for name in ("accuracy", "interval", "recordings")} == {
        name: tested[name] for name in ("accuracy", "interval", "recordings")
    }
    assert (facts["run"], facts["task"], facts["epochs"]) == ("runs/data", "train", 1)
    assert all(Path(facts[name]).exists() for name in ("data", "network", "metrics", "curves"))
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
    assert run("pretrain", "digits", "--out", "pretrained", "--json", *settings) == 0
    said = capsys.readouterr()
    assert "polarity accuracy" in said.err
    facts = json.loads(said.out)
    assert (facts["run"], facts["task"]) == ("pretrained", "pretrain")
    assert facts["loss"] == json.loads(Path("pretrained/evaluation/test.json").read_text())["loss"]
    assert run("train", "digits", "--init", "pretrained", *settings) == 0
    assert "Copied 21 weights of the embedding and" in capsys.readouterr().err
    assert run("predict", "pretrained", "pretrained") == 2
    assert "without classes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("train",),
            "RECIPE is required, such as folder for your own recordings, or digits. See 'event2vec train --help'",
        ),
        (("pretrain", "--print-config"), "or digits. See 'event2vec pretrain --help'"),
        (("train", "digit"), "unknown recipe 'digit' (did you mean digits?)"),
        (("train", "folder"), "--data is required: a prepared store"),
        (("train", "folder", "--data", "nowhere"), "--data: nowhere does not exist, expected a prepared store"),
        (("train", "folder", "--data", "nowhere"), "or the folder with your recordings, or with the data set as"),
        (
            ("train", "folder", "--data", "run/config.json"),
            "run/config.json: is not a folder, expected the folder with your recordings, one sub-folder for each class",
        ),
        (("train", "mine.yaml"), "mine.yaml: does not exist. Check the name and the folder"),
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
        (("compare",), "--data is required: a prepared store"),
        (
            ("compare", "--recipe", "digits", "--minutes", "1", "--epochs", "1"),
            "--minutes and --epochs cannot be combined; omit one",
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
