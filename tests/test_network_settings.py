"""Settings of compared networks: what is allowed works, what is not is refused; published recipes are as published."""

from dataclasses import fields
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
from conftest import make_recording

from event2vec import EventBatch, Sensor, build_model
from event2vec.baselines import NETWORKS
from event2vec.baselines.config import (
    EfvConfig,
    EventMaeConfig,
    EventNetConfig,
    FarseCnnConfig,
    FrameCnnConfig,
    MaSnnConfig,
    MaxFormerConfig,
    MstpConfig,
    RgCnnConfig,
    SparseGruConfig,
    SpikGruConfig,
)
from event2vec.model.classifier import count_parameters
from event2vec.model.config import NAMES
from event2vec.training.recipe import load_recipe

SENSOR = Sensor(12, 10)


def smallest(name: str, **settings: Any) -> Any:
    """A network with each setting at its least."""
    section: Any = NETWORKS[name].section
    least = {each.name: each.metadata["limits"]["least"] for each in fields(section) if each.type is int}
    return section(**least | {"sensor": SENSOR, "classes": 2} | settings)


def layouts() -> list[tuple[str, str]]:
    """Every network in every layout that it has."""
    found = []
    for name, network in NETWORKS.items():
        choices = [each.type for each in fields(network.section) if each.name == "layout"]
        found += [(name, layout) for layout in (get_args(choices[0]) if choices else [""])]
    return found


def test_networks_have_one_order_wherever_they_are_listed():
    assert [name for name in NAMES if name in ("event2vec", *NETWORKS)] == ["event2vec", *NETWORKS]


@pytest.mark.parametrize(("name", "layout"), layouts())
def test_the_least_of_every_setting_gives_answers_and_learns(name, layout):
    more: dict[str, Any] = {"layout": layout} if layout else {}
    if (name, layout) == ("sparse_gru", "published"):
        more["side"] = 67
    network = build_model(smallest(name, **more))
    batch = EventBatch.pad([make_recording(count, seed=count, sensor=SENSOR) for count in (40, 7)])
    logits = network.train()(batch, torch.Generator().manual_seed(0))
    assert logits.shape == (2, 2)
    logits.sum().backward()
    assert network.eval()(batch).isfinite().all()


def test_layouts_are_a_choice_of_two_wherever_there_are_some():
    sections = {name for name, layout in layouts() if layout}
    assert sections == {"voxel_grid", "sparse_gru", "ma_snn", "rg_cnn", "efv"}
    for name in sections:
        (kind,) = (each.type for each in fields(NETWORKS[name].section) if each.name == "layout")
        assert get_origin(kind) is Literal
        assert get_args(kind)[0] == "small"


@pytest.mark.parametrize(
    ("section", "settings", "said"),
    [
        (
            SparseGruConfig,
            {"layout": "published", "side": 66},
            "model.side must be at least 67 for model.layout published, got 66",
        ),
        (MaxFormerConfig, {"dim": 24, "heads": 2}, "model.dim must be a multiple of 16 and of model.heads (2), got 24"),
        (MaxFormerConfig, {"dim": 32, "heads": 3}, "model.dim must be a multiple of 16 and of model.heads (3), got 32"),
        (EventMaeConfig, {"dim": 10, "heads": 4}, "model.dim must be a multiple of model.heads, got 10 and 4"),
        (EfvConfig, {"dim": 10, "heads": 4}, "model.dim must be a multiple of model.heads, got 10 and 4"),
        (MaSnnConfig, {"side": 7}, "model.side must be at least 8 and at most 512, got 7"),
        (MaSnnConfig, {"channels": 7}, "model.channels must be at least 8 and at most 1024, got 7"),
        (MstpConfig, {"channels": 3}, "model.channels must be at least 4, got 3"),
        (MstpConfig, {"rate": 17}, "model.rate must be at least 1 and at most 16, got 17"),
        (RgCnnConfig, {"side": 7}, "model.side must be at least 8, got 7"),
        (EfvConfig, {"side": 7}, "model.side must be at least 8 and at most 512, got 7"),
        (FarseCnnConfig, {"side": 1}, "model.side must be at least 2 and at most 512, got 1"),
        (FrameCnnConfig, {"bins": 257}, "model.bins must be at least 1 and at most 256, got 257"),
        (FrameCnnConfig, {"dropout": 1.0}, "model.dropout must be at least 0 and below 1, got 1.0"),
        (EventNetConfig, {"tau": -0.1}, "model.tau must be at least 0, got -0.1"),
        (SpikGruConfig, {"layers": 9}, "model.layers must be at least 1 and at most 8, got 9"),
        (SpikGruConfig, {"network": "mstp"}, "model.network is spikgru in SpikGruConfig, got mstp"),
    ],
)
def test_what_a_network_cannot_have_is_refused(section, settings, said):
    with pytest.raises(ValueError, match="model") as refusal:
        section(**settings)
    assert str(refusal.value) == said


PUBLISHED_TRAINING = {  # learning rate at the published batch, batch, epochs, weight decay
    "sparse_gru": (9.975e-4, 40, 500, 0.0),
    "ma_snn": (1e-4, 128, 300, 0.0),
    "farse_cnn": (1e-3, 32, 30, 0.0),
    "event_mae": (5e-4, 32, 300, 0.05),
    "max_former": (5e-3, 16, 150, 0.06),
    "rg_cnn": (1e-3, 32, 150, 0.0),
    "efv": (1e-3, 8, 150, 0.0),
    "mstp": (3e-4, 32, 80, 1e-4),
    "spikgru": (3e-4, 32, 200, 1e-4),
    "eventnet": (2e-4, 32, 500, 0.0),
    "voxel_grid": (1e-4, 16, 250, 0.0),
}


@pytest.mark.parametrize("name", sorted(PUBLISHED_TRAINING))
def test_the_published_size_learns_at_the_published_rate(name):
    rate, batch, epochs, decay = PUBLISHED_TRAINING[name]
    training = load_recipe(f"{name}_published").training
    assert training.batch == batch
    assert training.learning_rate * batch / 256 == pytest.approx(rate, rel=0.001)
    assert training.epochs == epochs
    assert training.weight_decay == decay


PUBLISHED_INPUT: dict[str, dict[str, Any]] = {
    "sparse_gru": {"bins": 68, "side": 128, "features": 512, "units": 795, "dropout": 0.63},
    "ma_snn": {"bins": 60, "side": 32, "channels": 64, "hidden": 256},
    "farse_cnn": {"channels": 16, "stages": 5, "features": 128},
    "event_mae": {"patches": 64, "patch": 32, "dim": 384, "blocks": 12, "heads": 6, "widening": 4},
    "max_former": {"bins": 16, "side": 128, "dim": 256, "heads": 16},
    "rg_cnn": {"channels": 64, "neighbours": 32, "hidden": 1024, "dropout": 0.5},
    "efv": {"bins": 8, "dim": 768, "blocks": 3, "bottleneck": 32, "voxels": 512, "moments": 20, "channels": 64},
    "mstp": {"bins": 30, "rate": 4, "side": 88, "channels": 64, "blocks": 2, "units": 1024, "layers": 3},
    "spikgru": {"bins": 90, "side": 88, "channels": 64, "blocks": 2, "units": 1024, "layers": 3},
    "eventnet": {"features": 1024, "hidden": 512, "hidden_layers": 2},
    "voxel_grid": {"bins": 9, "side": 224, "layout": "resnet34", "channels": 64},
}


@pytest.mark.parametrize("name", sorted(PUBLISHED_INPUT))
def test_the_published_size_reads_what_was_published(name):
    model = load_recipe(f"{name}_published").model
    assert {setting: getattr(model, setting) for setting in PUBLISHED_INPUT[name]} == PUBLISHED_INPUT[name]


def test_resnet_34_has_the_weights_of_resnet_34():
    """As many as torchvision counts with 1,000 classes, but for the channels that the first convolution reads."""
    with torch.device("meta"):
        network = build_model(load_recipe("voxel_grid_published").with_settings({"model.classes": 1000}).model)
    imagenet = 21_797_672  # torchvision's, with 3 channels
    assert count_parameters(network) == imagenet + (18 - 3) * 64 * 7 * 7


def test_eventnet_has_the_published_widths():
    """h: 64, 64, 64, 128, 1,024; g: 512, 256 and the classes, on real and imaginary parts."""
    with torch.device("meta"):
        network: Any = build_model(load_recipe("eventnet_published").model)
    widths = [(layer.in_features, layer.out_features) for layer in network.points.layers]
    assert widths == [(3, 64), (64, 64), (64, 64), (64, 128), (128, 1024)]
    assert [(layer.in_features, layer.out_features) for layer in network.hidden] == [(2048, 512), (512, 256)]
    assert network.head.in_features == 256
