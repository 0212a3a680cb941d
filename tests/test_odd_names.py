"""Names of any bytes, which people have given to files, classes and runs, through every verb."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from shell import run_verbs
from test_authors import their_weights

from event2vec import load_recipe, write_events

ODD_CLASSES = ("[red]", "$x^", "a_$b", ":smile:", "<b>")


ODD_FILES = (b"bad\xff.npz", b"\x1b[31mred\x07.npz", b"two\nlines.npz", b"[bold].npz")


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
    recipe = load_recipe(os.path.join(run, "recipe.yaml")).with_settings(
        {"model.relative": False, "model.neighbourhood": 0}  # as theirs
    )
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
