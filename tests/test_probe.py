"""Linear probing: features of the frozen network, at each depth."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import SMALL, make_recording, randomise

from event2vec import (
    Event2VecError,
    EventBatch,
    EventStore,
    ModelConfig,
    Sampling,
    Sensor,
    build_model,
    probe,
    save_model,
)
from event2vec.evaluation.probe import HeadTraining, extract, fit_logistic, probe_network, standardise, train_heads
from event2vec.model.heads import mean_over_valid
from event2vec.progress import Progress

QUICK = HeadTraining(epochs=8, steps=20, learning_rate=0.02)
TINY = ModelConfig(sensor=SMALL, classes=3, dim=16, hidden=16, heads=2, blocks=2)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Two classes that differ in where their events are."""

    def corner(label, seed):
        events = make_recording(40, seed=seed)
        return replace(events, x=events.x / 2 + 15 * label), label

    folder = tmp_path_factory.mktemp("data") / "store"
    recordings = [corner(index % 2, index) for index in range(40)]
    splits = ["train"] * 30 + ["test"] * 10
    return EventStore.create(folder, recordings, sensor=SMALL, classes=["left", "right"], splits=splits)


@pytest.mark.parametrize("pooling", [True, False])
def test_the_deepest_features_are_those_of_the_head(store, pooling):
    model = randomise(build_model(replace(TINY, pooling=pooling)))
    raw, tokens, deepest = extract(model, store, Sampling(length=64), [None, 0, 2], 0)
    batch = EventBatch.pad([store[index][0] for index in range(len(store))])
    with torch.no_grad():
        expected = mean_over_valid(*model.backbone(model.embed(batch), batch.valid))
        first = mean_over_valid(model.embed(batch), batch.valid)
    np.testing.assert_allclose(deepest, expected.numpy(), atol=1e-5)
    np.testing.assert_allclose(tokens, first.numpy(), atol=1e-5)
    assert raw.shape == (40, 4)
    assert {part.dtype for part in (raw, tokens, *standardise(deepest, tokens))} == {np.dtype(np.float32)}, "memory"


class Told(Progress):
    def __init__(self):
        self.stages, self.done = [], []

    def start(self, title, total=None):
        self.stages.append((title, total))

    def advance(self, done, note=""):
        self.done.append(done)


def test_what_is_linearly_separable_is_separated(store):
    told = Told()
    rows = probe_network(randomise(build_model(TINY)), store, Sampling(length=20), [0, 1], 2, told, QUICK)
    assert [(row.features, row.blocks) for row in rows] == [("raw events", None), ("event2vec", 0), ("event2vec", 1)]
    assert rows[0].trained.accuracy > 0.9
    assert rows[0].logistic.accuracy > 0.9
    assert all(len(row.trained.accuracies) == len(row.logistic.accuracies) == 2 for row in rows)
    splits = [("extracting features", 30), ("extracting features", 10)]
    assert told.stages == [("probing", 2), *splits * 2]
    assert told.done[-1] == 2


def test_clusters_need_one_repeat_and_depths_must_exist(store):
    model = randomise(build_model(TINY))
    (row,) = probe_network(model, store, Sampling(method="clusters", length=20), [], 5, training=QUICK)
    assert len(row.trained.accuracies) == len(row.logistic.accuracies) == 1
    with pytest.raises(Event2VecError, match=r"layers must be from 0 to 2"):
        probe_network(model, store, Sampling(length=20), [3])
    with pytest.raises(Event2VecError, match="no recordings in the split 'test'"):
        probe_network(model, store.split("train"), Sampling(length=20), [0])


def test_a_head_trained_for_long_agrees_with_logistic_regression():
    """Three overlapping classes: gradient descent must get as far as the solver, from the paper's settings."""
    random = np.random.default_rng((0, 0, 0))
    labels = random.integers(0, 3, 600)
    features = (100 * (np.eye(3)[labels] + 0.6 * random.standard_normal((600, 3)))).astype(np.float32)
    train, test = standardise(features[:400], features[400:])
    np.testing.assert_allclose([train.mean(), train.std()], [0, 1], atol=1e-6)
    given = (np.stack([train, -train]), labels[:400], np.stack([test, -test]), labels[400:])
    threads = torch.get_num_threads()
    trained = train_heads(*given, HeadTraining(epochs=16), torch.Generator().manual_seed(0))
    again = train_heads(*given, HeadTraining(epochs=16), torch.Generator().manual_seed(0))
    assert trained == again, "the same draws, the same heads"
    assert torch.get_num_threads() == threads, "as before"
    assert all(0.7 < accuracy < 1 for accuracy in trained)
    assert trained == pytest.approx(fit_logistic(*given), abs=0.03)


def test_features_that_never_change_are_left_alone():
    train, test = standardise(np.ones((4, 2), np.float32), np.full((2, 2), 3, np.float32))
    assert (train == 0).all()
    assert (test == 2).all()


def test_bfloat16_reaches_the_network_and_not_the_head(store):
    model = randomise(build_model(TINY))
    with torch.autocast("cpu", torch.bfloat16):
        rows = probe_network(model, store, Sampling(length=20), [1], 1, training=QUICK)
    assert rows[0].trained.accuracy > 0.9


def test_a_run_is_probed_after_each_of_its_blocks(store, tmp_path):
    save_model(randomise(build_model(TINY)), tmp_path / "network")
    sampling = Sampling(method="clusters", length=20)
    found = probe(tmp_path / "network", store.folder, sampling=sampling, training=QUICK, device="cpu")
    assert [row.blocks for row in found] == [None, 0, 1, 2]
    assert found[0].logistic.recordings == 10
    (raw,) = probe(tmp_path / "network", store.folder, layers=[], repeats=1, training=QUICK, device="cpu")
    assert raw.facts()["logistic_regression"]["accuracy"] == raw.logistic.accuracy


def test_the_rate_of_a_head_is_the_papers_schedule():
    config = HeadTraining()
    assert (config.epochs, config.batch, config.learning_rate, config.warmup_epochs) == (64, 256, 0.001, 4)
    for epoch, share in ((0, 0.01), (1, 0.2575), (2, 0.505), (4, 1), (34, 0.5), (64, 0)):
        assert config.rate(float(epoch)) == pytest.approx(0.001 * share), epoch
    assert config.rate(19.0) == pytest.approx(0.001 * (1 + np.cos(np.pi / 4)) / 2)


def test_a_head_takes_as_many_steps_as_its_settings_say(monkeypatch):
    """At least `steps` in an epoch, and one for each batch where recordings are many."""
    random = np.random.default_rng((0, 0, 1))
    features, labels = random.standard_normal((1, 10, 2)).astype(np.float32), np.arange(10) % 2
    taken: list[float] = []
    step = torch.optim.AdamW.step

    def counted(optimizer, *arguments):
        taken.append(optimizer.param_groups[0]["lr"])
        return step(optimizer, *arguments)

    monkeypatch.setattr(torch.optim.AdamW, "step", counted)
    for settings, expected in (({"steps": 3}, 6), ({"steps": 3, "batch": 2}, 10)):
        taken.clear()
        config = HeadTraining(epochs=2, warmup_epochs=1, **settings)
        train_heads(features, labels, features, labels, config, torch.Generator().manual_seed(0))
        assert len(taken) == expected
        assert taken == pytest.approx([config.rate(number * 2 / expected) for number in range(expected)])


def test_raw_features_are_the_means_of_x_y_p_and_the_time_that_has_passed(store):
    model = randomise(build_model(TINY))
    (raw,) = extract(model, store, Sampling(length=64), [None], 0)
    for vector, (events, _) in zip(raw, (store[index] for index in range(len(store))), strict=True):
        elapsed = events.t / events.t[-1]
        columns = (2 * events.x / 33 - 1, 2 * events.y / 29 - 1, 2 * events.p.float() - 1, elapsed)
        assert vector.tolist() == pytest.approx([float(column.mean()) for column in columns], abs=1e-5)


def test_every_repeat_and_part_has_draws_of_its_own(store, monkeypatch):
    drawn: list[tuple[int, int]] = []

    def noted(model, part, sampling, depths, draw, progress):
        drawn.append((len(part), draw))
        return extract(model, part, sampling, depths, draw, progress)

    monkeypatch.setattr("event2vec.evaluation.probe.extract", noted)
    probe_network(randomise(build_model(TINY)), store, Sampling(length=20), [], 3, training=QUICK)
    assert [count for count, _ in drawn] == [30, 10] * 3
    assert len({draw for _, draw in drawn}) == 6


def test_recordings_of_one_class_cannot_be_told_apart(store):
    alone = store.subset([index for index in range(len(store)) if store.labels[index] == 0])
    with pytest.raises(
        Event2VecError, match="has training recordings of one class alone, expected two classes at least"
    ):
        probe_network(randomise(build_model(TINY)), alone, Sampling(length=20), [0])


def test_recordings_of_another_sensor_are_scaled_to_the_networks(store, tmp_path):
    wide = [
        (replace(events, x=2 * events.x, sensor=Sensor(67, 30)), label)
        for events, label in (store[index] for index in range(4))
    ]
    other = EventStore.create(tmp_path / "wide", wide, sensor="67x30", classes=["left", "right"])
    model = randomise(build_model(TINY))
    found = extract(model, other, Sampling(length=64), [None, 1], 0)
    expected = extract(model, store.subset([0, 1, 2, 3]), Sampling(length=64), [None, 1], 0)
    for one, same in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, same, atol=1e-5)


def test_a_row_has_its_facts_for_json(store):
    (row,) = probe_network(randomise(build_model(TINY)), store, Sampling(length=20), [], 2, training=QUICK)
    facts = json.loads(json.dumps(row.facts()))
    assert (facts["features"], facts["blocks"]) == ("raw events", None)
    assert facts["trained_head"]["accuracy"] == row.trained.accuracy
    assert facts["logistic_regression"]["accuracy_std"] == row.logistic.accuracy_std
    assert facts["trained_head"]["interval"] == list(row.trained.interval)
    assert row.trained.recordings == 10
