"""Frames count events where they are; the network on them is trained, saved and asked like ours."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import SMALL, randomise

from event2vec import (
    Event2VecError,
    EventBatch,
    Events,
    EventStore,
    ModelConfig,
    Recipe,
    Run,
    Sampling,
    build_model,
    load_model,
    save_model,
    train,
)
from event2vec.baselines.config import FrameCnnConfig
from event2vec.model.checkpoint import load_event2vec
from event2vec.model.classifier import TensorClassifier
from event2vec.model.frames import coarsen, make_frames
from event2vec.training.config import ObjectiveConfig
from event2vec.training.objectives import Classification
from event2vec.training.recipe import load_recipe

TINY = FrameCnnConfig(sensor=SMALL, classes=3, bins=2, channels=4, stages=2)


@pytest.fixture(params=[False, True], ids=["frames at once", "recurrent"])
def network(request):
    return randomise(build_model(replace(TINY, recurrent=request.param), sampling=Sampling(length=64)))


@pytest.mark.parametrize("placing", ["nearest", "bilinear"])
def test_events_on_pixels_are_counted_by_pixel_polarity_and_time(placing, make_events):
    recording = make_events(200)
    frames = make_frames(EventBatch.pad([recording, make_events(20, seed=1)]), 4, placing)
    expected = torch.zeros(4, 2, 30, 34)
    elapsed = recording.t - recording.t[0]
    for x, y, t, p in zip(recording.x.long(), recording.y.long(), elapsed, recording.p.long(), strict=True):
        expected[min(int(4 * t / elapsed[-1]), 3), p, y, x] += 1
    torch.testing.assert_close(frames[0], expected)
    assert frames[1].sum() == 20, "padding counts for nothing"


def test_events_between_pixels_are_shared_out_or_moved():
    events = Events.from_arrays([2.25, 33.0], [5.5, 29.0], [0, 9], [1, 0], sensor=SMALL, rho=[4.0, 3.0])
    batch = EventBatch.pad([events])
    shared = make_frames(batch, 1, "bilinear")[0, 0]
    torch.testing.assert_close(shared[1, 5:7, 2:4], torch.tensor([[1.5, 0.5], [1.5, 0.5]]))
    assert shared[0, 29, 33] == 3
    assert shared.sum() == 7
    moved = make_frames(batch, 1, "nearest")[0, 0]
    assert moved[1, 6, 2] == 4


@pytest.mark.parametrize("side", [1, 2])
def test_a_coarse_frame_holds_what_its_pixels_cover(side):
    frames = torch.zeros(1, 2, 2, 8, 8)
    frames[..., 2:6, 2:6] = 1.0
    assert coarsen(frames, side).shape == frames.shape
    assert coarsen(frames, side).mean() == pytest.approx(0.25, rel=0.6)
    torch.testing.assert_close(coarsen(torch.full_like(frames, 3.0), side), torch.full_like(frames, 3.0))
    torch.testing.assert_close(coarsen(frames, side).flip(-1), coarsen(frames, side))


def test_padding_and_batch_size_change_no_answer(network, make_events):
    recordings = [make_events(count, seed=count) for count in (300, 31, 1)]
    with torch.no_grad():
        alone = torch.cat([network(EventBatch.pad([recording])) for recording in recordings])
        torch.testing.assert_close(network(EventBatch.pad(recordings)), alone, atol=1e-6, rtol=1e-5)
        assert network(EventBatch.pad([make_events(0), make_events(5)])).isfinite().all()


def test_only_a_generator_makes_it_random(network, make_events):
    batch = EventBatch.pad([make_events(100)])
    assert torch.equal(network(batch), network(batch))
    one, same, other = (network(batch, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_it_comes_back_as_it_was_saved(network, make_events, tmp_path):
    network.train()(EventBatch.pad([make_events(50), make_events(60, seed=1)]))  # which changes the norms' means
    save_model(network.eval(), tmp_path / "net")
    again = load_model(tmp_path / "net")
    assert again.config == network.config
    assert torch.equal(again(EventBatch.pad([make_events(80)])), network(EventBatch.pad([make_events(80)])))
    assert again.predict(make_events(500)).name in "012"
    with pytest.raises(Event2VecError, match="holds a frame_cnn network, which has no tokens; expected event2vec"):
        load_event2vec(tmp_path / "net")


def test_it_can_be_exported(make_events):
    network = randomise(build_model(TINY))
    batch = EventBatch.pad([make_events(40), make_events(30, seed=1)])
    columns = (batch.x, batch.y, batch.t, batch.p, batch.rho, batch.valid)
    torch.testing.assert_close(TensorClassifier(network)(*columns), network(batch))


def test_a_recipe_is_for_one_network_and_takes_its_settings_alone():
    recipe = load_recipe("nmnist").with_settings({"model.network": "frame_cnn", "model.bins": 3})
    assert recipe.model == FrameCnnConfig(sensor=load_recipe("nmnist").model.sensor, classes=10, bins=3)
    assert recipe.with_settings({"model.bins": 4}).model == replace(recipe.model, bins=4)
    assert recipe.with_settings({"model.network": "event2vec"}).model == ModelConfig(
        sensor=recipe.model.sensor, classes=10
    )
    with pytest.raises(
        Event2VecError, match=r"unknown setting model.dim.*model accepts network, sensor, classes, bins"
    ):
        recipe.with_settings({"model.dim": 32})
    with pytest.raises(Event2VecError, match=r"unknown setting model.bins"):
        Recipe().with_settings({"model.bins": 3})
    with pytest.raises(Event2VecError, match=r"model.network must be one of event2vec, frame_cnn, .*, got 'cnn'"):
        Recipe().with_settings({"model.network": "cnn"})
    with pytest.raises(ValueError, match=r"model.network is event2vec in ModelConfig, got frame_cnn"):
        ModelConfig(network="frame_cnn")


def test_a_recipe_file_may_build_on_one_of_another_network(tmp_path):
    (tmp_path / "mine.yaml").write_text("base: nmnist\nmodel: {network: frame_cnn, channels: 8}\n")
    recipe = load_recipe(tmp_path / "mine.yaml")
    assert recipe.model == FrameCnnConfig(sensor=load_recipe("nmnist").model.sensor, classes=10, channels=8)
    (tmp_path / "again.yaml").write_text(recipe.to_yaml())
    assert load_recipe(tmp_path / "again.yaml") == recipe


def test_it_has_no_tokens_to_mix():
    with pytest.raises(Event2VecError, match=r"objective.token_mix mixes tokens, which frame_cnn does not have"):
        Classification(build_model(TINY), ObjectiveConfig(token_mix=0.5))


@pytest.mark.parametrize("recurrent", [False, True])
def test_it_is_trained_resumed_and_evaluated_by_the_same_calls(recurrent, tmp_path, make_events):
    recordings = [(make_events(60, seed=index), index % 3) for index in range(24)]
    store = EventStore.create(
        tmp_path / "store", recordings, sensor=SMALL, classes=["a", "b", "c"], splits=["train"] * 18 + ["test"] * 6
    )
    settings: dict[str, Any] = {
        "model": {"bins": 2, "channels": 4, "stages": 2, "recurrent": recurrent},
        "training": {"epochs": 1, "batch": 4},
        "trainer": {"accelerator": "cpu", "devices": 1},
    }
    run = train("frame_cnn", store, tmp_path / "run", **settings)
    assert run.model().config == replace(TINY, recurrent=recurrent)
    before = run.model().state_dict()
    run = Run.open(run.folder).resume(training={"epochs": 2})
    assert [row["epoch"] for row in run.metrics] == [1, 2]
    last = load_model(run.network).state_dict()
    assert not torch.equal(last["head.weight"], before["head.weight"])
    assert not torch.equal(last["stages.0.norms.0.running_mean"], before["stages.0.norms.0.running_mean"])
    assert run.evaluate(repeats=1).recordings == 6
    assert run.model().predict(make_events(60)).name in "abc"
    save_model(build_model(ModelConfig(sensor=SMALL, classes=3, dim=16, blocks=1)), tmp_path / "ours")
    with pytest.raises(Event2VecError, match="holds a network of the kind event2vec, this recipe has frame_cnn"):
        train("frame_cnn", store, tmp_path / "other", tmp_path / "ours", **settings)
    with pytest.raises(Event2VecError, match="frame_cnn cannot be initialised from another network"):
        train("frame_cnn", store, tmp_path / "other", run.folder, **settings)
