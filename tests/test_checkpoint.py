"""Networks on disk: whole and safe."""

import json
import os
import struct
import time
from dataclasses import replace

import pytest
import torch
from conftest import SMALL, randomise
from safetensors.torch import load_file, save_file

from event2vec import Event2VecError, EventBatch, ModelConfig, Sampling, build_model, load_model, save_model
from event2vec.model.checkpoint import load_any_model
from event2vec.model.masked import MaskedEventModel, build_masked_model

TINY = ModelConfig(sensor=SMALL, classes=3, dim=16, hidden=24, heads=2, blocks=2)


@pytest.fixture
def saved(tmp_path):
    model = build_model(TINY, class_names=["ant", "bee", "cat"], sampling=Sampling(method="clusters", length=77))
    save_model(randomise(model), tmp_path / "net")
    return model, tmp_path / "net"


@pytest.mark.parametrize("spatial", ["parametric", "lookup"])
@pytest.mark.parametrize("temporal", ["convolution", "sine"])
@pytest.mark.parametrize("attention", ["forgetting", "gated_linear"])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("pooling", "intensity"), [(True, "log"), (False, "linear")])
def test_a_network_comes_back_as_it_was(
    tmp_path, make_events, spatial, temporal, attention, shared, pooling, intensity
):
    """Built without memory and then filled: what no file holds, such as the frequencies of sine, must be there too."""
    settings = {"spatial": spatial, "temporal": temporal, "attention": attention, "shared": shared}
    settings |= {"pooling": pooling, "intensity": intensity, "relative": attention == "forgetting"}
    model = randomise(build_model(replace(TINY, **settings)))
    save_model(model, tmp_path / "net")
    again = load_model(tmp_path / "net")
    batch = EventBatch.pad([make_events(30)])
    batch = replace(batch, rho=batch.rho + torch.arange(30.0))
    assert torch.equal(again(batch), model(batch))
    assert again.config == model.config
    assert all(weight.requires_grad and weight.device.type == "cpu" for weight in again.parameters())
    again(batch).sum().backward()
    if not settings["pooling"]:
        masked = randomise(build_masked_model(replace(TINY, **settings)))
        save_model(masked, tmp_path / "masked")
        hidden = batch.valid & (batch.t % 2 == 0)
        assert torch.equal(load_any_model(tmp_path / "masked")(batch, hidden), masked(batch, hidden))


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
    assert load_model(folder).config == other.config
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net"], "nothing temporary is left"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(Event2VecError, match=r"holds other files \(letter.txt\), so it is not replaced"):
        save_model(other, tmp_path / "mine")


def test_a_write_that_fails_leaves_the_old_network(saved, monkeypatch):
    model, folder = saved
    monkeypatch.setattr("event2vec.model.checkpoint._card", lambda *_: 1 / 0)
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
    with pytest.raises(Event2VecError, match=r"holds no network, expected .* in its folder 'best' or 'model'$"):
        load_model(tmp_path)
    with pytest.raises(
        Event2VecError, match=r"config.json: is a file, expected a run or a folder with a saved network"
    ):
        load_model(folder / "config.json")
    config = json.loads((folder / "config.json").read_text())

    def change(**facts):
        (folder / "config.json").write_text(json.dumps(config | facts))

    change(model=config["model"] | {"blocks": 1})
    with pytest.raises(Event2VecError, match=r"unexpected backbone.stages.1.*and \d+ more"):
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


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"hidden": 10**12}, r"widen.weight has shape \(24, 16\), the network needs \(1000000000000, 16\)"),
        ({"dim": 20_000}, r"has shape .* the network needs"),
        ({"sensor": {"width": 65536, "height": 65536}, "spatial": "lookup"}, "missing embed.spatial.rows.weight"),
        ({"hidden": 2**60}, "model.hidden must be at most 2^53"),
        ({"hidden": 2**53}, "does not describe a network|has shape"),
        ({"classes": 10**8}, "class_names has 3 names but model.classes is 100000000"),
        ({"blocks": 10**8}, "model.blocks is 100000000, but there are only .* weights"),
        ({"dim": "16"}, "model.dim must be a whole number, got '16'"),
        ({"dim": 16.5}, "model.dim must be a whole number, got 16.5"),
        ({"pooling": "no"}, "model.pooling must be true or false, got 'no'"),
        ({"sensor": 5}, "model.sensor: a sensor must be WIDTHxHEIGHT"),
        ({"sensor": {"width": 5}}, "height"),
        ({"sensor": {"width": 0, "height": 5}}, "sensor width must be from 1"),
        (
            {"attention": ["forgetting"]},
            r"model.attention must be one of forgetting, gated_linear, got \['forgetting'\]",
        ),
    ],
    ids=str,
)
def test_a_description_that_the_weights_do_not_fit_costs_nothing(saved, facts, message):
    _, folder = saved
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model": config["model"] | facts}))
    began = time.process_time()  # not of a clock: the machine may be busy with something else
    with pytest.raises(Event2VecError, match=message.replace("^", r"\^")) as caught:
        load_model(folder)
    assert time.process_time() - began < 5
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"class_names": ["a", "b", "a"]}, "two classes are called 'a'"),
        ({"class_names": ["a", "b", "\x1b"]}, r"a class is called '\\x1b'"),
        ({"class_names": ["a", "b", "\udcff"]}, r"a class is called '\\udcff'"),
        ({"class_names": "abc"}, "class_names must be a list of strings, got 'abc'"),
        ({"class_names": [1, 2, 3]}, "class_names must be a list of strings"),
        ({"sampling": {"length": "many"}}, "sampling.length must be a whole number, got 'many'"),
        ({"sampling": None}, "sampling must be a mapping of setting names to values, got None"),
        ({"model": []}, r"model must be a mapping of setting names to values, got \[\]"),
        ({"kind": "bird"}, "'kind' must be one of classifier, masked"),
        ({"kind": ["masked"]}, "'kind' must be one of classifier, masked"),
    ],
    ids=str,
)
def test_what_else_a_description_must_be(saved, facts, message):
    _, folder = saved
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | facts))
    with pytest.raises(Event2VecError, match=f"config.json: .*{message}"):
        load_model(folder)


def test_weights_that_are_no_numbers_are_named(saved, make_events):
    model, folder = saved
    weights = load_file(folder / "model.safetensors")
    for value in (torch.nan, torch.inf, -torch.inf):
        damaged = weights | {"head.linear.bias": torch.tensor([0.0, value, 0.0])}
        save_file(damaged, folder / "model.safetensors")
        with pytest.raises(Event2VecError, match=r"head.linear.bias has values that are not finite numbers"):
            load_model(folder)
    save_file(weights | {"head.linear.bias": torch.zeros(3, dtype=torch.int64)}, folder / "model.safetensors")
    with pytest.raises(Event2VecError, match=r"is of type torch.int64, expected floating-point numbers"):
        load_model(folder)
    save_file({name: weight.half() for name, weight in weights.items()}, folder / "model.safetensors")
    batch = EventBatch.pad([make_events(30)])
    assert load_model(folder)(batch).dtype == torch.float32, "half precision is widened"
    assert (load_model(folder)(batch) - model(batch)).abs().max() < 0.05


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,  # a header as long as any number
        struct.pack("<Q", 90_000_000) + b"{" * 100,
        struct.pack("<Q", 2) + b"{}" + b"more",
        struct.pack("<Q", 9) + b"[" * 9,
        struct.pack("<Q", 62) + b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}' + b" " * 8 + b"\0" * 4,
        struct.pack("<Q", 70)
        + b'{"a":{"dtype":"F32","shape":[99999999999],"data_offsets":[0,4]}}'.ljust(70)
        + b"\0" * 4,
    ],
)
def test_no_weights_is_one_error(saved, content):
    _, folder = saved
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(Event2VecError, match=r"model.safetensors: (cannot be read as safetensors|does not fit)"):
        load_model(folder)


def test_a_folder_whose_name_is_no_text_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(Event2VecError, match="is not UTF-8 text"):
        save_model(build_model(TINY), tmp_path / "\udcff")
    assert list(tmp_path.iterdir()) == []


def test_names_in_any_script_come_back(tmp_path):
    names = ("手", "é", "plain")
    save_model(build_model(TINY, class_names=names), tmp_path / "net")
    assert load_model(tmp_path / "net").class_names == names


def test_a_network_with_a_table_is_not_saved(tmp_path):
    with pytest.raises(Event2VecError, match="for inference only"):
        save_model(build_model(TINY).with_table(), tmp_path / "net")


def test_the_old_network_is_put_back_when_the_new_one_cannot_take_its_place(saved, monkeypatch):
    model, folder = saved
    rename, refused = os.rename, list[str]()

    def refuse_once(old, new):
        if new == folder and not refused:
            refused.append(old)
            raise OSError("no")
        rename(old, new)

    monkeypatch.setattr("event2vec.machine.atomic._exchange", lambda one, other: False)  # as where the system cannot
    monkeypatch.setattr(os, "rename", refuse_once)
    with pytest.raises(OSError, match="no"):
        save_model(build_model(replace(TINY, blocks=1)), folder)
    assert load_model(folder).config == model.config
