"""Networks on disk: whole, safe, and the authors' own."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import SMALL, randomise

from event2vec import (
    Event2VecError,
    EventBatch,
    ModelConfig,
    Sampling,
    Sensor,
    build_model,
    import_checkpoint,
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


def golden_batch(shared_data):
    known = {name: torch.from_numpy(column) for name, column in np.load(shared_data / "golden/dvs_gesture.npz").items()}
    ones = torch.ones_like(known["x"])
    batch = EventBatch(
        known["x"], known["y"], known["t"].long(), known["p"] > 0, ones, ones.bool(), sensor=Sensor(128, 128)
    )
    return batch, known["logits"]


def test_the_authors_checkpoint_gives_the_authors_logits(shared_data):
    model = import_checkpoint(shared_data / "golden/dvs_gesture.ckpt", ModelConfig())
    batch, logits = golden_batch(shared_data)
    with torch.no_grad():
        assert (model(batch) - logits).abs().max() < 1e-5


def test_a_checkpoint_that_does_not_fit_names_the_keys(shared_data):
    path = shared_data / "golden/dvs_gesture.ckpt"
    with pytest.raises(Event2VecError, match=r"lacks classifier.backbone_net.4.*and \d+ more"):
        import_checkpoint(path, ModelConfig(blocks=5))
    with pytest.raises(Event2VecError, match=r"leaves over classifier.backbone_net.3"):
        import_checkpoint(path, ModelConfig(blocks=3))
    with pytest.raises(
        Event2VecError, match=r"has classifier.heads.weight of shape \(11, 64\), the network needs \(24, 64\)"
    ):
        import_checkpoint(path, ModelConfig(classes=24))
    with pytest.raises(Event2VecError, match=r"need model.shared = True"):
        import_checkpoint(path, ModelConfig(shared=False))


def test_an_imported_network_can_be_told_what_it_reads(shared_data):
    names = [f"gesture {number}" for number in range(11)]
    path = shared_data / "golden/dvs_gesture.ckpt"
    model = import_checkpoint(path, ModelConfig(), class_names=names, sampling=Sampling(length=4096))
    assert (model.class_names[3], model.sampling.length) == ("gesture 3", 4096)


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

    monkeypatch.setattr(os, "rename", refuse_once)
    with pytest.raises(OSError, match="no"):
        save_model(build_model(replace(TINY, blocks=1)), folder)
    assert load_model(folder).config == model.config


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


def test_code_in_a_checkpoint_never_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": {"classifier.heads.weight": Bomb()}}, "bomb.ckpt")
    with pytest.raises(Event2VecError, match=r"bomb.ckpt: holds more than weights, which could run code"):
        import_checkpoint("bomb.ckpt", ModelConfig())
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("content", [b"", b"no checkpoint at all", b"PK\x03\x04 cut short"])
def test_no_checkpoint_is_one_error(tmp_path, content):
    (tmp_path / "bad.ckpt").write_bytes(content)
    with pytest.raises(Event2VecError, match=r"bad.ckpt"):
        import_checkpoint(tmp_path / "bad.ckpt", ModelConfig())
    torch.save([1, 2], tmp_path / "list.ckpt")
    with pytest.raises(Event2VecError, match="holds no weights by name"):
        import_checkpoint(tmp_path / "list.ckpt", ModelConfig())
