"""What a training takes from another network: all but the head, from a network that means the same, or nothing."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import SMALL, randomise

from event2vec import Event2VecError, ModelConfig, build_model, save_model
from event2vec.baselines.config import EventMaeConfig, FrameCnnConfig
from event2vec.model.config import NetworkConfig
from event2vec.model.masked import build_masked_model
from event2vec.training.fit import copy_weights
from event2vec.training.recipe import load_recipe

OURS = ModelConfig(sensor=SMALL, classes=3, dim=16, hidden=16, heads=2, blocks=2, pooling=False)
MAE = EventMaeConfig(sensor=SMALL, classes=3, patches=4, patch=4, dim=16, blocks=1, heads=2)


def saved(folder, config: NetworkConfig, masked: bool = False, seed: int = 5):
    model: Any = build_masked_model(config) if masked else build_model(config)
    save_model(randomise(model, seed), folder / "init")
    return folder / "init", model


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("config", [OURS, replace(OURS, shared=False, neighbourhood=3, relative=True), MAE])
def test_all_weights_but_the_heads_are_those_of_the_other_network(tmp_path, config, masked):
    init, other = saved(tmp_path, config, masked)
    model = build_model(replace(config, classes=5))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    taken = copy_weights(model, init)
    theirs = other.state_dict()
    for name, weight in model.state_dict().items():
        if name.startswith(model.reusable):
            assert torch.equal(weight, theirs[name]), name
            assert name in taken
        else:
            assert torch.equal(weight, before[name]), name
            assert name not in taken
    assert {name for name in theirs if name.startswith(model.reusable)} == set(taken), "nothing is left behind"


def test_pre_training_may_go_on_from_a_classifier(tmp_path):
    init, other = saved(tmp_path, OURS)
    model: Any = build_masked_model(OURS)
    decoder = [weight.clone() for weight in model.decoder.parameters()]
    copy_weights(model, init)
    assert torch.equal(model.backbone.stages[0].norm.weight, other.backbone.stages[0].norm.weight)
    assert all(torch.equal(one, same) for one, same in zip(decoder, model.decoder.parameters(), strict=True))


SAME = r". Use the same model settings in both"
MORE = r"it has \d+ weights that this recipe's network lacks, such as "


@pytest.mark.parametrize(
    ("theirs", "ours", "said"),
    [
        ({"blocks": 1}, {}, r"backbone.stages.0.blocks.1\S+ is missing, this recipe needs \(\d+.*\)" + SAME),
        ({"blocks": 3}, {}, MORE + r"backbone.stages.0.blocks.2\S+" + SAME),
        ({"shared": False}, {}, MORE + r"backbone\S+directions.1\S+" + SAME),
        ({}, {"shared": False}, r"backbone\S+directions.1\S+ is missing"),
        ({"neighbourhood": 3}, {}, r"it has 3 weights that .*embed.neighbourhood\S+" + SAME),
        ({}, {"neighbourhood": 3}, r"embed.neighbourhood\S+ is missing"),
        ({"dim": 32}, {}, r"embed.spatial\S+ has \(8, 3\), this recipe needs \(4, 3\)" + SAME),
        ({"temporal": "sine"}, {}, r"embed.temporal\S+ is missing"),
        ({"pooling": True}, {}, r"backbone.stages.0.blocks.1\S+ is missing"),
    ],
    ids=str,
)
def test_a_network_that_means_something_else_is_refused_and_nothing_is_taken(tmp_path, theirs, ours, said):
    model = build_model(replace(OURS, **ours))
    before = [weight.clone() for weight in model.parameters()]
    init, _ = saved(tmp_path, replace(OURS, **theirs))
    with pytest.raises(Event2VecError, match=r"does not fit: " + said):
        copy_weights(model, init)
    assert all(torch.equal(one, same) for one, same in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("setting", "before", "now"), [("intensity", "linear", "log"), ("relative", True, False), ("tokens", 8, 0)]
)
def test_what_no_weight_tells_is_compared_too(tmp_path, setting, before, now):
    ours = replace(OURS, neighbourhood=3)
    init, _ = saved(tmp_path, replace(ours, **{setting: before}))
    said = f"was trained with model.{setting} {before}, this recipe has {now}. Set model.{setting} to {before}".lower()
    with pytest.raises(Event2VecError) as refusal:
        copy_weights(build_model(replace(ours, **{setting: now})), init)
    assert said in str(refusal.value).lower()


@pytest.mark.parametrize(("first", "then"), [("dvs_lip_pretrain", "dvs_lip"), ("event_mae_pretrain", "event_mae")])
def test_recipes_for_pre_training_fit_those_that_are_trained_from_them(first, then):
    with torch.device("meta"):
        theirs = build_masked_model(load_recipe(first).model).state_dict()
        model = build_model(load_recipe(then).model)
    ours = model.state_dict()
    shared = [{n: w.shape for n, w in each.items() if n.startswith(model.reusable)} for each in (theirs, ours)]
    assert shared[0] == shared[1]


def test_other_kinds_and_kinds_without_parts_to_take_are_refused(tmp_path):
    init, _ = saved(tmp_path, FrameCnnConfig(sensor=SMALL, classes=3))
    with pytest.raises(Event2VecError, match="holds a network of the kind frame_cnn, this recipe has event2vec"):
        copy_weights(build_model(OURS), init)
    with pytest.raises(Event2VecError, match=r"frame_cnn cannot be initialised from another network. Omit init"):
        copy_weights(build_model(FrameCnnConfig(sensor=SMALL, classes=3)), init)
