"""Linear probing: features of the frozen network, at each depth."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import SMALL, make_recording, randomise

from event2vec import Event2VecError, EventBatch, EventStore, ModelConfig, Sampling, build_model, probe, save_model
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
