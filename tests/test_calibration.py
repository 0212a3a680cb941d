"""Calibration: known temperatures are found again, errors are those by hand, and answers stay."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SMALL, make_recording, randomise
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from event2vec import (
    Event2VecError,
    EventStore,
    ModelConfig,
    Recipe,
    Run,
    Sampling,
    build_model,
    evaluate,
    load_model,
    save_model,
)
from event2vec.evaluation.calibration import BINS, HOTTEST, Calibration, Reliability, fit_temperature
from event2vec.evaluation.evaluate import classify_store
from event2vec.evaluation.figures.reliability import draw_reliability
from event2vec.model.classifier import temper

TINY = ModelConfig(sensor=SMALL, classes=3, dim=16, hidden=16, heads=2, blocks=1)


def draw(count, classes=10, temperature=1.0, seed=0):
    """Scores, and labels that are right as often as the scores would say at this temperature."""
    random = np.random.default_rng(seed)
    logits = 3 * random.standard_normal((count, classes))
    sums = softmax(logits / temperature, axis=1).cumsum(axis=1)
    labels = (random.random((count, 1)) > sums).sum(axis=1)
    return softmax(logits, axis=1), labels.clip(max=classes - 1)


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5])
def test_a_known_temperature_is_found_again(temperature):
    scores, labels = draw(20_000, temperature=temperature)
    assert fit_temperature(scores, labels) == pytest.approx(temperature, rel=0.03)


def test_the_temperature_has_the_lowest_nll_to_many_digits():
    scores, labels = draw(500, temperature=1.7)
    smooth = np.full_like(scores, 1 / 502 / 9)
    smooth[np.arange(500), labels] = 501 / 502

    def nll(power):
        return -(smooth * log_softmax(np.log(scores) * np.exp(power), axis=1)).sum(axis=1).mean()

    best = minimize_scalar(nll, bounds=(-4, 4), options={"xatol": 1e-10})
    assert fit_temperature(scores, labels) == pytest.approx(np.exp(-best.x), rel=1e-6)
    assert fit_temperature(scores, labels) == fit_temperature(scores, labels), "to the bit"


def test_a_network_that_is_always_right_on_few_recordings_is_not_certain():
    scores = np.tile([0.9, 0.05, 0.05], (20, 1))
    tempered = temper(torch.from_numpy(scores), fit_temperature(scores, np.zeros(20, np.int64)))
    assert float(tempered.max()) == pytest.approx(21 / 22), "Laplace's rule of 20 in 20"


def test_a_network_that_is_worse_than_guessing_says_all_classes_alike():
    scores = np.tile([0.9, 0.05, 0.05], (20, 1))
    temperature = fit_temperature(scores, np.ones(20, np.int64))
    assert temperature == pytest.approx(HOTTEST)
    assert float(temper(torch.from_numpy(scores), temperature).max()) < 0.35
    assert fit_temperature(np.ones((5, 1)), np.zeros(5, np.int64)) == 1, "one class is always certain"


def test_scores_that_hold_have_no_calibration_error_and_others_do():
    scores, labels = draw(30_000)
    assert Reliability.of(scores, labels).error < 0.01
    scores, labels = draw(30_000, temperature=3)
    found = Reliability.of(scores, labels)
    assert found.error == pytest.approx(found.confidence - (scores.argmax(1) == labels).mean(), abs=1e-9), "too sure"
    calibration = Calibration.of(scores, labels, fit_temperature(scores, labels))
    assert calibration.before == found
    assert calibration.after.error < 0.01 < 0.2 < found.error
    assert calibration.after.nll < found.nll
    assert calibration.after.brier < found.brier


def test_all_figures_by_hand():
    scores = np.array([[0.9, 0.1], [0.92, 0.08], [0.4, 0.6], [0.0, 1.0]])
    found = Reliability.of(scores, np.array([0, 1, 1, 1]))
    assert BINS == 15
    assert found.error == pytest.approx((2 * abs(0.5 - 0.91) + abs(1 - 0.6) + 0) / 4)
    assert found.nll == pytest.approx(-np.log([0.9, 0.08, 0.6, 1.0]).mean())
    assert found.brier == pytest.approx((2 * 0.1**2 + 2 * 0.92**2 + 2 * 0.4**2 + 0) / 4)
    assert found.confidence == pytest.approx(0.855)
    assert [each.recordings for each in found.bins] == [0] * 8 + [1] + [0] * 4 + [2, 1], "0.6 ends the ninth bin"
    assert list(found.bins[13]) == pytest.approx([2, 0.91, 0.5])
    assert found.bins[0] == (0, None, None)
    facts = json.loads(json.dumps(found.facts()))
    assert facts["bins"][13] == {"from": 13 / 15, "to": 14 / 15, "recordings": 2, "confidence": 0.91, "accuracy": 0.5}
    wrong = Reliability.of(np.array([[0.0, 1.0]]), np.array([0]))
    assert np.isfinite(wrong.nll), "certain, and wrong"


@pytest.mark.parametrize("temperature", [0.001, 1000.0])
def test_scores_stay_numbers_at_any_temperature_that_is_loaded(temperature):
    scores = torch.tensor([[1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3], [1e-30, 1e-38, 1.0]])
    found = temper(scores, temperature)
    assert bool(found.isfinite().all())
    torch.testing.assert_close(found.sum(1), torch.ones(3))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_a_temperature_never_changes_an_answer(temperature):
    scores = torch.from_numpy(draw(200)[0]).float()
    assert torch.equal(temper(scores, temperature).argsort(1), scores.argsort(1))
    torch.testing.assert_close(temper(scores, temperature), (scores.log() / temperature).softmax(1))
    assert temper(scores, 1.0) is scores


def build(**sampling):
    return randomise(build_model(TINY, class_names=["a", "b", "c"], sampling=Sampling(**sampling)))


@pytest.mark.parametrize("vote", [1, 3])
def test_predictions_have_the_networks_temperature_and_the_same_answers(vote):
    model = build(length=20)
    recordings = [make_recording(90, seed=seed) for seed in range(6)]
    plain = model.predict(recordings, vote=vote)
    model.temperature = 2.5
    cooler = model.predict(recordings, vote=vote)
    assert [answer.label for answer in cooler] == [answer.label for answer in plain]
    for one, other in zip(plain, cooler, strict=True):
        torch.testing.assert_close(other.scores, temper(one.scores, 2.5))
        assert other.confidence < one.confidence


def test_the_temperature_is_saved_with_the_network(tmp_path):
    model = build(length=20)
    model.temperature = 1.75
    save_model(model, tmp_path / "network")
    assert load_model(tmp_path / "network").temperature == 1.75
    config = tmp_path / "network/config.json"
    facts = json.loads(config.read_text())
    for wrong in (0, -1, "hot", True, None, [1], 1e-300, 1e9):
        config.write_text(json.dumps(facts | {"temperature": wrong}))
        with pytest.raises(Event2VecError, match=r"temperature must be a number from 0\.001 to 1,000, got"):
            load_model(tmp_path / "network")
    del facts["temperature"]
    config.write_text(json.dumps(facts))
    assert load_model(tmp_path / "network").temperature == 1, "as it was before there were any"


def test_evaluation_measures_scores_before_and_after(tmp_path):
    recordings = [(make_recording(80, seed=index), index % 3) for index in range(20)]
    store = EventStore.create(tmp_path / "store", recordings, sensor=SMALL, classes=["a", "b", "c"])
    model = build(length=10)
    model.temperature = 3.0
    found = evaluate(model, store, repeats=2)
    scores = np.concatenate([classify_store(model, store, repeat, 32) for repeat in range(2)])
    assert found.calibration == Calibration.of(scores, np.tile(store.labels, 2), 3.0)
    assert found.calibration.before.confidence > found.calibration.after.confidence
    assert found.facts()["calibration"]["temperature"] == 3.0
    draw_reliability(found.calibration, found.repeats, tmp_path / "reliability.png", "a name with a $")
    assert (tmp_path / "reliability.png").read_bytes().startswith(b"\x89PNG")
    assert "temperature 3.00: ECE" in (tmp_path / "reliability.svg").read_text("utf-8")


def test_training_fits_the_temperature_on_the_validation_part(tmp_path):
    recordings = [(make_recording(60 + index, seed=index), index % 2) for index in range(20)]
    splits = ["train"] * 10 + ["validation"] * 6 + ["test"] * 4
    store = EventStore.create(tmp_path / "store", recordings, sensor=SMALL, classes=["a", "b"], splits=splits)
    size = {"model.dim": 16, "model.hidden": 16, "model.blocks": 1, "sampling.length": 16, "training.epochs": 1}
    recipe = Recipe().with_settings(size | {"trainer.accelerator": "cpu"})
    run = Run.start(recipe, store, tmp_path / "run")
    for folder in filter(Path.is_dir, (run.network, run.best_network)):
        model, validation = load_model(folder), store.split("validation")
        expected = fit_temperature(classify_store(model, validation, 0, 32), validation.labels)
        assert model.temperature == pytest.approx(expected, rel=1e-6)
        assert model.temperature != 1
    found = run.evaluate(repeats=2)
    assert found.calibration.temperature == run.model().temperature
    assert (run.folder / "evaluation/reliability_test.png").is_file()
