"""Every compared network: trained, resumed, saved and asked by the same calls, for any recording and sensor."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import SMALL, make_recording, randomise

from event2vec import EventBatch, Events, EventStore, Run, Sampling, Sensor, build_model, load_model, save_model, train
from event2vec.baselines import NETWORKS
from event2vec.model.classifier import Classifier, count_parameters
from event2vec.training.recipe import load_recipe

TINY: dict[str, dict[str, Any]] = {
    "frame_cnn": {"bins": 2, "channels": 4, "stages": 2},
    "voxel_grid": {"bins": 3, "side": 16, "channels": 4},
    "eventnet": {"features": 16, "hidden": 8},
    "sparse_gru": {"bins": 4, "side": 16, "features": 8, "units": 8},
    "ma_snn": {"bins": 30, "side": 16, "channels": 32, "hidden": 8},
    "farse_cnn": {"side": 8, "moments": 8, "stages": 2, "channels": 4, "features": 8},
    "event_mae": {"patches": 6, "patch": 4, "dim": 16, "blocks": 1, "heads": 2},
    "max_former": {"bins": 4, "side": 32, "dim": 32, "heads": 2},
    "rg_cnn": {"channels": 4, "neighbours": 4, "hidden": 8},
    "efv": {"bins": 2, "side": 16, "dim": 16, "heads": 2, "voxels": 32, "cells": 4, "moments": 4, "channels": 4},
    "mstp": {"bins": 2, "rate": 2, "side": 16, "channels": 4, "units": 8},
    "spikgru": {"bins": 6, "side": 32, "channels": 4, "units": 8},
}
PUBLISHED = {  # classes, and the parameters of the published files, as exactly as they are known
    "sparse_gru": (11, 5.72e6, 0.005e6),
    "ma_snn": (11, 2.34e6, 0.005e6),
    "farse_cnn": (11, 2_828_651, 0),
    "max_former": (11, 1_455_883, 0),
    "event_mae": (11, 22e6, 0.5e6),
    "rg_cnn": (11, 47e6, 0.5e6),
    "efv": (24, 57.2e6, 0.3e6),  # their shortcuts are not known to the weight
    "mstp": (100, 62.6e6, 0.3e6),  # their attention has more weights than our gate
    "spikgru": (100, 58.62e6, 0.005e6),
}


def build(name: str, sensor: Sensor = SMALL, **settings: Any) -> Classifier:
    config = NETWORKS[name].section(sensor=sensor, classes=3, **TINY[name] | settings)
    return build_model(config, sampling=Sampling(length=64))


@pytest.fixture(params=sorted(NETWORKS))
def name(request):
    return request.param


@pytest.fixture
def recordings():
    return [make_recording(count, seed=count) for count in (150, 31, 1)]


def test_padding_and_batch_change_no_answer(name, recordings):
    network = randomise(build(name))
    with torch.no_grad():
        alone = torch.cat([network(EventBatch.pad([recording])) for recording in recordings])
        torch.testing.assert_close(network(EventBatch.pad(recordings)), alone, atol=2e-6, rtol=1e-5)


def test_recordings_of_any_kind_are_answered(name):
    for sensor in (Sensor(1, 1), Sensor(70, 3)):
        network = build(name, sensor)
        none = Events.from_arrays([], [], [], [], sensor=sensor)
        one = Events.from_arrays([0], [0], [0], [1], sensor=sensor)
        at_once = Events.from_arrays([0] * 9, [0] * 9, [0] * 9, [1] * 9, sensor=sensor)
        batch = EventBatch.pad([none, one, at_once, make_recording(40, sensor=sensor)])
        assert network.eval()(batch).isfinite().all()
        loss = F.cross_entropy(network.train()(batch, torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0]))
        loss.backward()
        assert network.train()(EventBatch.pad([one])).isfinite().all()


def test_gradients_reach_all_weights(name):
    network = build(name).train()
    for part in network.modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and part.affine:
            torch.nn.init.constant_(part.bias, 1.0)  # spiking neurons that never fire pass no gradient on
    batch = EventBatch.pad([make_recording(300, seed=seed) for seed in range(6)])
    F.cross_entropy(network(batch), torch.arange(6) % 3).backward()
    still = [part for part, weight in network.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert not still


def test_its_loss_falls_on_recordings_that_differ(name):
    """Classes are in the left, the middle and the right third of the sensor."""
    whole = [make_recording(120, seed=seed) for seed in range(9)]
    third = SMALL.width // 3
    moved = [replace(events, x=events.x % third + index % 3 * third) for index, events in enumerate(whole)]
    network, batch, labels = build(name).train(), EventBatch.pad(moved), torch.arange(9) % 3
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    losses = []
    for step in range(20):
        logits, penalty = network.learn(batch, torch.Generator().manual_seed(step))
        loss = F.cross_entropy(logits, labels) + penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.92 * losses[0]


def test_only_a_generator_makes_it_random(name, recordings):
    network, batch = build(name).eval(), EventBatch.pad(recordings)
    with torch.no_grad():
        assert torch.equal(network(batch), network(batch))
        one, same = (network(batch, torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(one, same)


def test_it_comes_back_as_it_was_saved(name, recordings, tmp_path):
    network = build(name).train()
    network(EventBatch.pad(recordings))  # which changes the means of norms
    save_model(network.eval(), tmp_path)
    again = load_model(tmp_path)
    assert again.config == network.config
    assert torch.equal(again(EventBatch.pad(recordings)), network(EventBatch.pad(recordings)))
    assert again.predict(make_recording(90)).name in "012"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    recordings = [(make_recording(60, seed=index), index % 3) for index in range(12)]
    splits = ["train"] * 9 + ["test"] * 3
    folder = tmp_path_factory.mktemp("store") / "store"
    return EventStore.create(folder, recordings, sensor=SMALL, classes=["a", "b", "c"], splits=splits)


@pytest.mark.slow
def test_its_recipe_trains_resumes_and_evaluates(name, store, tmp_path):
    settings: dict[str, Any] = {
        "model": TINY[name],
        "training": {"epochs": 1, "batch": 4},
        "trainer": {"accelerator": "cpu", "devices": 1},
        "data.validation": 0,
    }
    run = train(name, store, tmp_path / "run", **settings)
    before = run.model().state_dict()
    run = Run.open(run.folder).resume(training={"epochs": 2})
    assert [row["epoch"] for row in run.metrics] == [1, 2]
    after = load_model(run.network).state_dict()
    assert any(not torch.equal(after[part], before[part]) for part in after)
    assert run.evaluate(repeats=1, keep=False).recordings == 3


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_the_published_size_has_the_published_number_of_weights(name):
    classes, expected, within = PUBLISHED[name]
    recipe = load_recipe(f"{name}_published").with_settings({"model.classes": classes})
    with torch.device("meta"):
        assert abs(count_parameters(build_model(recipe.model)) - expected) <= within


def test_every_network_has_recipes_of_both_sizes():
    for name in sorted(NETWORKS):
        assert load_recipe(name).model.network == name
        assert name == "frame_cnn" or load_recipe(f"{name}_published").model.network == name
