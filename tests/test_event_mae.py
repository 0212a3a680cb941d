"""Event MAE without labels: hidden patches stay hidden, the loss is the Chamfer distance, and training starts there."""

from typing import Any

import pytest
import torch
from conftest import SMALL, make_recording, randomise

from event2vec import EventBatch, EventStore, Sensor, pretrain, train
from event2vec.baselines.config import EventMaeConfig, FrameCnnConfig
from event2vec.baselines.event_mae import MaskedEventMae, Patches, chamfer_distance, cut_patches
from event2vec.model.checkpoint import load_any_model
from event2vec.model.masked import build_masked_model
from event2vec.training.config import ObjectiveConfig, SpanMask
from event2vec.training.masking import draw_patches
from event2vec.training.objectives import MaskedPatches

TINY = EventMaeConfig(sensor=SMALL, classes=3, patches=6, patch=4, dim=16, blocks=2, heads=2)


@pytest.fixture
def batch():
    return EventBatch.pad([make_recording(count, seed=count) for count in (150, 31)])


def masked() -> MaskedEventMae:
    model = build_masked_model(TINY)
    assert isinstance(model, MaskedEventMae)
    return model


def test_the_chamfer_distance_is_that_of_its_definition():
    generator = torch.Generator().manual_seed(0)
    ones, others = torch.rand(3, 5, 3, generator=generator), torch.rand(3, 7, 3, generator=generator)
    distance = torch.cdist(ones, others).square()
    expected = distance.min(dim=2).values.mean() + distance.min(dim=1).values.mean()
    torch.testing.assert_close(chamfer_distance(ones, others), expected)
    assert chamfer_distance(ones, ones[:, torch.tensor([4, 2, 0, 1, 3])]) == 0  # in any order
    assert chamfer_distance(ones[:0], others[:0]) == 0


def test_as_many_patches_of_each_row_are_hidden():
    hidden = draw_patches(0.6, torch.Size((40, 10)), torch.Generator().manual_seed(0))
    assert hidden.sum(dim=1).tolist() == [6] * 40
    assert 12 < hidden[:, 0].sum() < 36
    assert draw_patches(0.001, torch.Size((1, 5)), torch.Generator()).sum() == 1
    assert draw_patches(0.99, torch.Size((1, 5)), torch.Generator()).sum() == 4


@torch.no_grad()
def test_events_of_hidden_patches_change_no_answer(batch):
    model, patches = randomise(masked()).eval(), cut_patches(batch, TINY)
    hidden = draw_patches(0.5, patches.centre.shape[:2], torch.Generator().manual_seed(1))
    answers = model(patches, hidden)
    assert answers.shape == (6, 4, 3)
    others = torch.where(hidden[..., None, None], 7.0, patches.events)
    assert torch.equal(model(Patches(patches.centre, others), hidden), answers)
    seen = torch.where(hidden[..., None, None], patches.events, 7.0)
    assert not torch.allclose(model(Patches(patches.centre, seen), hidden), answers)


def test_the_loss_is_of_the_hidden_patches_alone(batch):
    model, mask = randomise(masked()), SpanMask(share=0.5)
    outcome = MaskedPatches(model, ObjectiveConfig(mask=mask))(
        batch, torch.zeros(2).long(), torch.Generator().manual_seed(3)
    )
    patches = cut_patches(batch, TINY)
    hidden = draw_patches(0.5, patches.centre.shape[:2], torch.Generator().manual_seed(3))
    truth = patches.events[hidden][..., :3]
    torch.testing.assert_close(outcome.loss, chamfer_distance(model(patches, hidden), truth))
    squares = truth.square().sum(dim=-1)  # distances to the centre
    torch.testing.assert_close(outcome.metrics["loss_of_centre"], squares.mean() + squares.min(dim=1).values.mean())
    assert outcome.count == 6
    outcome.loss.backward()
    assert not [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]


@pytest.mark.slow
def test_training_starts_from_what_pretraining_learnt(tmp_path):
    recordings = [(make_recording(60, seed=index), index % 3) for index in range(12)]
    splits = ["train"] * 9 + ["test"] * 3
    store = EventStore.create(tmp_path / "store", recordings, sensor=SMALL, classes=["a", "b", "c"], splits=splits)
    settings: dict[str, Any] = {
        "model": {"patches": 6, "patch": 4, "dim": 16, "blocks": 1, "heads": 2},
        "training": {"epochs": 1, "batch": 4},
        "trainer": {"accelerator": "cpu", "devices": 1},
        "data.validation": 0,
    }
    first = pretrain("event_mae_pretrain", store, tmp_path / "mae", **settings)
    learnt = load_any_model(first.folder)
    assert isinstance(learnt, MaskedEventMae)
    assert {"train_loss", "train_loss_of_centre"} <= first.metrics[0].keys()
    run = train("event_mae", store, tmp_path / "run", first.folder, **settings | {"training.learning_rate": 0.0})
    mine = run.model().state_dict()
    shared = [
        name for name in mine if name.startswith("encoder.") and not name.endswith(("running_mean", "running_var"))
    ]
    assert len(shared) > 20
    assert all(torch.equal(mine[name], learnt.state_dict()[name]) for name in shared)


def test_a_network_without_tokens_to_hide_is_refused():
    with pytest.raises(ValueError, match=r"must be one of event2vec, event_mae for pre-training, got frame_cnn"):
        build_masked_model(FrameCnnConfig(sensor=Sensor(8, 8), classes=2))
