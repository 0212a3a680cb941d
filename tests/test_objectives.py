"""Losses and metrics by hand."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from conftest import SMALL, randomise

from event2vec import EventBatch, ModelConfig, build_model
from event2vec.model.coordinates import normalised_coordinates
from event2vec.model.masked import build_masked_model
from event2vec.model.relative import positions_of
from event2vec.training.augment import TokenMix
from event2vec.training.config import ObjectiveConfig, SpanMask
from event2vec.training.masking import draw_spans
from event2vec.training.objectives import Classification, MaskedReconstruction, balanced_weights

TINY = ModelConfig(sensor=SMALL, classes=3, dim=16, hidden=16, heads=2, blocks=2, pooling=False)


@pytest.fixture
def batch(make_events):
    return EventBatch.pad([make_events(60), make_events(40, seed=1), make_events(50, seed=2)])


LABELS = torch.tensor([0, 2, 1])


def test_classification_is_cross_entropy(batch):
    model = randomise(build_model(TINY))
    outcome = Classification(model, ObjectiveConfig(label_smoothing=0.1))(batch, LABELS, None)
    logits = model(batch)
    torch.testing.assert_close(outcome.loss, F.cross_entropy(logits, LABELS))  # smoothing is for training alone
    assert outcome.metrics["accuracy"] == (logits.argmax(1) == LABELS).float().mean()
    assert outcome.count == 3


def test_training_smooths_labels(batch):
    model = randomise(build_model(TINY))
    objective = Classification(model, ObjectiveConfig(label_smoothing=0.1))
    outcome = objective(batch, LABELS, torch.Generator().manual_seed(0))
    torch.testing.assert_close(outcome.loss, F.cross_entropy(model(batch), LABELS, label_smoothing=0.1))


def test_balanced_weights_make_classes_count_the_same():
    weights = balanced_weights(torch.tensor([0] * 6 + [1] * 3 + [3]), 5)
    assert weights[[0, 1, 3]].tolist() == pytest.approx([10 / 18, 10 / 9, 10 / 3])
    assert sum(float(weights[label]) for label in [0] * 6 + [1] * 3 + [3]) == pytest.approx(10)
    assert weights.isfinite().all(), "also of classes without recordings"


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_recording_has_the_weight_of_its_class_and_validation_has_none(batch, smoothing):
    model, weights = randomise(build_model(TINY)), torch.tensor([0.5, 3.0, 1.0])
    objective = Classification(model, ObjectiveConfig(label_smoothing=smoothing), weights)
    found = objective(batch, LABELS, torch.Generator().manual_seed(0)).loss
    losses = F.cross_entropy(model(batch), LABELS, label_smoothing=smoothing, reduction="none")
    torch.testing.assert_close(found, (losses * weights[LABELS]).mean())
    torch.testing.assert_close(objective(batch, LABELS, None).loss, F.cross_entropy(model(batch), LABELS))
    assert "class_weights" not in objective.state_dict(), "they come from the data"


def test_mixed_recordings_have_mixed_weights(batch):
    model, weights = randomise(build_model(TINY)), torch.tensor([0.5, 3.0, 1.0])
    mixed, equal = (
        Classification(model, ObjectiveConfig(token_mix=1.0), each)(
            batch, LABELS, torch.Generator().manual_seed(0)
        ).loss
        for each in (weights, torch.full((3,), 2.0))
    )
    plain = Classification(model, ObjectiveConfig(token_mix=1.0))(batch, LABELS, torch.Generator().manual_seed(0)).loss
    torch.testing.assert_close(equal, 2 * plain)
    assert not torch.isclose(mixed, plain)


@pytest.mark.parametrize("relative", [False, True])
def test_mixed_tokens_have_mixed_labels_and_keep_their_positions(batch, relative):
    model = randomise(build_model(replace(TINY, relative=relative)))
    objective = Classification(model, ObjectiveConfig(token_mix=1.0))
    mixed = objective(batch, LABELS, torch.Generator().manual_seed(0))
    plain = objective(batch, LABELS, None)
    generator = torch.Generator().manual_seed(0)
    torch.rand((), generator=generator)  # whether to mix
    partner, places = TokenMix().draw(batch.valid, generator)
    tokens, share = TokenMix().apply(model.embed(batch), partner, places), TokenMix().share(batch.valid, places)
    positions = TokenMix().apply(positions_of(batch), partner, places)
    scores = F.log_softmax(model.classify(tokens, batch.valid, positions=positions), dim=-1)
    own, lent = (-scores[torch.arange(3), labels] for labels in (LABELS, LABELS[partner]))
    torch.testing.assert_close(mixed.loss, ((1 - share) * own + share * lent).mean())
    never = Classification(model, ObjectiveConfig())(batch, LABELS, torch.Generator().manual_seed(0))
    assert torch.equal(never.loss, plain.loss)


def test_reconstruction_is_the_error_of_hidden_events(batch):
    model = randomise(build_masked_model(TINY))
    objective = MaskedReconstruction(model, ObjectiveConfig(mask=SpanMask(share=0.5)))
    outcome = objective(batch, LABELS, torch.Generator().manual_seed(3))
    hidden = draw_spans(SpanMask(share=0.5), batch.valid, torch.Generator().manual_seed(3))
    truth, answers = normalised_coordinates(batch)[hidden], model(batch, hidden)
    torch.testing.assert_close(outcome.loss, F.mse_loss(answers, truth))
    off = (answers - truth).abs()
    torch.testing.assert_close(outcome.metrics["x_error_pixels"], off[:, 0].mean() * 33 / 2)
    torch.testing.assert_close(outcome.metrics["y_error_pixels"], off[:, 1].mean() * 29 / 2)
    right = (answers[:, 2] > 0) == (truth[:, 2] > 0)
    torch.testing.assert_close(outcome.metrics["polarity_accuracy"], right.float().mean())
    mean = truth.mean(dim=0).expand_as(truth)
    torch.testing.assert_close(outcome.metrics["loss_of_mean"], F.mse_loss(mean, truth))
    assert outcome.count == len(truth)


def test_a_batch_in_which_nothing_is_hidden_costs_nothing(make_events):
    objective = MaskedReconstruction(build_masked_model(TINY), ObjectiveConfig(mask=SpanMask(share=0.001)))
    outcome = objective(EventBatch.pad([make_events(2)]), LABELS[:1], torch.Generator().manual_seed(0))
    assert outcome.loss == 0
    assert outcome.count == 0


def test_without_a_generator_the_same_events_are_hidden(batch):
    objective = MaskedReconstruction(randomise(build_masked_model(replace(TINY, drop_path=0.5))), ObjectiveConfig())
    assert torch.equal(objective(batch, LABELS, None).loss, objective(batch, LABELS, None).loss)


@pytest.mark.parametrize("settings", [{"label_smoothing": 1.1}, {"token_mix": -0.1}])
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(ValueError, match=r"objective\."):
        ObjectiveConfig(**settings)
