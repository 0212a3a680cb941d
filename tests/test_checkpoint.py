"""Networks on disk: whole and safe."""

import json
import os
from dataclasses import replace

import pytest
import torch
from conftest import SMALL, randomise

from event2vec import (
    Event2VecError,
    EventBatch,
    ModelConfig,
    Sampling,
    build_model,
    load_model,
    save_model,
)
from event2vec.checkpoint import load_any_model
from event2vec.model import MaskedEventModel, build_masked_model

TINY = ModelConfig(sensor=SMALL, classes=3, dim=16, hidden=24, heads=2, blocks=2)


@pytest.fixture
def saved(tmp_path):
    model = build_model(TINY, class_names=["ant", "bee", "cat"], sampling=Sampling(method="clusters", length=77))
    save_model(randomise(model), tmp_path / "net")
    return model, tmp_path / "net"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"spatial": "lookup", "temporal": "sine"},
        {"attention": "gated_linear", "shared": False},
        {"intensity": "linear"},
    ],
    ids=str,
)
def test_a_network_comes_back_as_it_was(tmp_path, make_events, settings):
    model = randomise(build_model(replace(TINY, **settings)))
    save_model(model, tmp_path / "net")
    again = load_model(tmp_path / "net")
    batch = EventBatch.pad([make_events(30)])
    batch = replace(batch, rho=batch.rho + torch.arange(30.0))
    assert torch.equal(again(batch), model(batch))
    assert again.config == model.config


def test_names_and_sampling_come_back(saved):
    _, folder = saved
    again = load_model(folder)
    assert again.class_names == ("ant", "bee", "cat")
    assert again.sampling == Sampling(method="clusters", length=77)
    assert not again.training
    card = (folder / "README.md").read_text()
    assert "ant, bee, cat" in card
    assert "34x30" in card


def test_a_network_saved_before_a_setting_was_there_is_as_it_was(saved):
    model, folder = saved
    config = json.loads((folder / "config.json").read_text())
    del config["model"]["intensity"], config["sampling"]["seeding"]
    (folder / "config.json").write_text(json.dumps(config))
    again = load_model(folder)
    assert (again.config, again.sampling) == (model.config, model.sampling)


def test_a_network_is_replaced_whole_and_nothing_else_is(saved, tmp_path):
    _, folder = saved
    other = randomise(build_model(replace(TINY, blocks=1)))
    save_model(other, folder)
    assert load_model(folder).config.blocks == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net"], "nothing temporary is left"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(Event2VecError, match=r"holds other things \(letter.txt\), so it is not replaced"):
        save_model(other, tmp_path / "mine")


def test_a_write_that_fails_leaves_the_old_network(saved, monkeypatch):
    model, folder = saved
    monkeypatch.setattr("event2vec.checkpoint._card", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_model(build_model(replace(TINY, blocks=1)), folder)
    assert load_model(folder).config == model.config


def test_a_run_is_loaded_by_its_own_folder(saved):
    model, folder = saved
    run = folder.parent / "run"
    run.mkdir()
    folder.rename(run / "model")
    assert load_model(run).config == model.config


def test_a_pretrained_network_is_no_classifier(tmp_path):
    save_model(build_masked_model(replace(TINY, pooling=False)), tmp_path / "net")
    assert isinstance(load_any_model(tmp_path / "net"), MaskedEventModel)
    with pytest.raises(Event2VecError, match="without classes"):
        load_model(tmp_path / "net")


def test_what_is_wrong_with_a_folder_is_said(saved, tmp_path):
    _, folder = saved
    with pytest.raises(Event2VecError, match="does not exist"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(Event2VecError, match=r"holds no network, expected model.safetensors"):
        load_model(tmp_path)
    config = json.loads((folder / "config.json").read_text())

    def change(**facts):
        (folder / "config.json").write_text(json.dumps(config | facts))

    change(model=config["model"] | {"blocks": 1})
    with pytest.raises(Event2VecError, match=r"leaves over backbone.stages.1.*and \d+ more"):
        load_model(folder)
    change(model=config["model"] | {"hidden": 25})
    with pytest.raises(Event2VecError, match=r"widen.weight has shape \(24, 16\), the network needs \(25, 16\)"):
        load_model(folder)
    change(model=config["model"] | {"colour": "red"})
    with pytest.raises(Event2VecError, match="colour"):
        load_model(folder)
    change(model=config["model"] | {"spatial": "table"})
    with pytest.raises((Event2VecError, TypeError), match="spatial"):  # the tests' own checks of types may come first
        load_model(folder)
    change(format=99)
    with pytest.raises(Event2VecError, match="has format 99, this version reads 1"):
        load_model(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(Event2VecError, match="is not JSON"):
        load_model(folder)
    change()
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(Event2VecError, match="cannot be read as safetensors"):
        load_model(folder)


def test_names_in_any_script_come_back(tmp_path):
    names = ("手", "é", "plain")
    save_model(build_model(TINY, class_names=names), tmp_path / "net")
    assert load_model(tmp_path / "net").class_names == names


def test_a_network_with_a_table_is_not_saved(tmp_path):
    with pytest.raises(Event2VecError, match="for answers alone"):
        save_model(build_model(TINY).with_table(), tmp_path / "net")


def test_the_old_network_is_put_back_when_the_new_one_cannot_take_its_place(saved, monkeypatch):
    model, folder = saved
    rename, refused = os.rename, []

    def refuse_once(old, new):
        if new == folder and not refused:
            refused.append(old)
            raise OSError("no")
        rename(old, new)

    monkeypatch.setattr("event2vec.atomic._exchange", lambda one, other: False)  # as where the system cannot
    monkeypatch.setattr(os, "rename", refuse_once)
    with pytest.raises(OSError, match="no"):
        save_model(build_model(replace(TINY, blocks=1)), folder)
    assert load_model(folder).config == model.config
