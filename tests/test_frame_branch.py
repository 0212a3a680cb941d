"""The frame branch: a network on frames beside the tokens, which learns and answers by itself, and then with them."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import SMALL, make_recording, randomise
from trainings import FLAT, make_store
from written_out import assert_close

from event2vec import (
    Event2VecError,
    EventBatch,
    ModelConfig,
    Sensor,
    build_model,
    load_model,
    pretrain,
    save_model,
    train,
)
from event2vec.baselines.config import FrameCnnConfig
from event2vec.exporting.formats import follow
from event2vec.model.checkpoint import load_any_model
from event2vec.model.frame_branch import SIDE, mean_answer
from event2vec.training.config import ObjectiveConfig
from event2vec.training.objectives import Classification

CONFIG = ModelConfig(
    sensor=SMALL, classes=3, dim=16, hidden=16, blocks=2, pooling=False, relative=True, neighbourhood=5, frames=4
)
COUNTS = (90, 31, 1, 0)
LABELS = torch.tensor([2, 0, 1, 1])


def build(config: ModelConfig = CONFIG) -> Any:
    return randomise(build_model(config)).eval()


def make_batch(sensor=SMALL):
    return EventBatch.pad([make_recording(count, seed=count, sensor=sensor) for count in COUNTS])


@pytest.fixture
def batch():
    return make_batch()


def seeded(seed=3):
    return torch.Generator().manual_seed(seed)


def without_frames(model):
    alone = build_model(replace(CONFIG, frames=0)).eval()
    alone.load_state_dict({name: model.state_dict()[name] for name in alone.state_dict()})
    return alone


@torch.no_grad()
def test_its_parts_are_the_network_without_it_and_the_frame_cnn(batch):
    model = build()
    cnn = build_model(FrameCnnConfig(sensor=SMALL, classes=3, bins=4)).eval()
    cnn.load_state_dict(model.frames.state_dict())
    (tokens, frames), penalty = model.learn(batch, None)
    torch.testing.assert_close(tokens, without_frames(model)(batch), atol=0, rtol=0)
    torch.testing.assert_close(frames, cnn(batch), atol=0, rtol=0)
    assert penalty == 0
    assert_close(frames, cnn(batch))
    scores = (tokens.softmax(dim=1) + frames.softmax(dim=1)) / 2
    torch.testing.assert_close(model(batch).softmax(dim=1), scores)
    assert (tokens.argmax(1) != frames.argmax(1)).any() or (tokens - frames).abs().max() > 0.1


def test_the_answer_of_one_part_is_its_own():
    logits = torch.tensor([[[3.0, -1.0, 700.0]]])
    assert mean_answer(logits) is not logits
    torch.testing.assert_close(mean_answer(logits), logits[0], atol=0, rtol=0)
    sure = torch.tensor([[[0.0, -700.0, 700.0]], [[0.0, 700.0, -700.0]]])
    torch.testing.assert_close(mean_answer(sure).softmax(dim=1), torch.tensor([[0.0, 0.5, 0.5]]))


def test_each_part_learns_by_itself(batch):
    """The loss is the mean over parts, and what one of them answers changes no gradient of the other."""
    model = build()
    objective = Classification(model, ObjectiveConfig(label_smoothing=0.1))
    outcome = objective(batch, LABELS, seeded())
    answers, _ = model.learn(batch, seeded())
    losses = [F.cross_entropy(answer, LABELS, label_smoothing=0.1) for answer in answers]
    torch.testing.assert_close(outcome.loss, (losses[0] + losses[1]) / 2)
    assert outcome.metrics["accuracy"] == (mean_answer(answers).argmax(dim=1) == LABELS).float().mean()
    outcome.loss.backward()
    found = model.embed.neighbourhood.weight.weight.grad.clone()
    model.zero_grad()
    with torch.no_grad():
        model.frames.head.bias += torch.tensor([5.0, -5.0, 0.0])
    objective(batch, LABELS, seeded()).loss.backward()
    torch.testing.assert_close(model.embed.neighbourhood.weight.weight.grad, found, atol=0, rtol=0)
    assert found.abs().max() > 0


def test_classes_are_weighted_in_every_part(batch):
    weights = torch.tensor([0.5, 2.0, 1.0])
    model = build()
    outcome = Classification(model, ObjectiveConfig(), weights)(batch, LABELS, seeded())
    answers, _ = model.learn(batch, seeded())
    expected = [(F.cross_entropy(each, LABELS, reduction="none") * weights[LABELS]).mean() for each in answers]
    torch.testing.assert_close(outcome.loss, (expected[0] + expected[1]) / 2)


@torch.no_grad()
def test_neither_padding_nor_other_recordings_change_an_answer(batch):
    model = build()
    together = model(batch)
    for row, count in enumerate(COUNTS):
        alone = EventBatch.pad([make_recording(count, seed=count)])
        torch.testing.assert_close(model(alone)[0], together[row], atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("sensor", [Sensor(200, 20), Sensor(346, 260), Sensor(1, 1)])
@torch.no_grad()
def test_frames_of_large_sensors_are_scaled_down(sensor):
    model = build(replace(CONFIG, sensor=sensor))
    seen = []
    model.frames.stages.register_forward_pre_hook(lambda stages, given: seen.append(given[0].shape))
    assert model(make_batch(sensor)).isfinite().all()
    assert seen == [(len(COUNTS), 2 * 4, min(sensor.height, SIDE), min(sensor.width, SIDE))]


def test_a_network_with_frames_is_saved_and_exported(batch, tmp_path):
    model = build()
    save_model(model, tmp_path / "network")
    program = follow(model).module()
    with torch.no_grad():
        expected = model(batch)
        torch.testing.assert_close(load_model(tmp_path / "network")(batch), expected, atol=0, rtol=0)
        for count in (5, 300):
            other = EventBatch.pad([make_recording(count, seed=count), make_recording(3)])
            found = program(other.x, other.y, other.t, other.p, other.rho, other.valid)
            torch.testing.assert_close(found, model(other), atol=1e-5, rtol=1e-4)


def test_tokens_cannot_be_mixed_where_frames_show_none():
    with pytest.raises(Event2VecError, match="token_mix mixes tokens, which frames do not have"):
        Classification(build_model(CONFIG), ObjectiveConfig(token_mix=0.5))


def test_training_starts_from_pre_training_which_has_tokens_alone(tmp_path):
    store = make_store(tmp_path / "store")
    recipe = FLAT.with_settings({"model.frames": 2, "objective.token_mix": 0, "training.epochs": 1})
    first = pretrain(recipe, store.folder, tmp_path / "first")
    assert not [name for name in load_any_model(first.folder).state_dict() if name.startswith("frames.")]
    run = train(recipe, store.folder, tmp_path / "run", init=first.folder)
    assert [name for name in run.model().state_dict() if name.startswith("frames.")]
