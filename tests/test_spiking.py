"""Spiking neurons: what they do, step by step, written out with plain numbers; and the slopes with which they learn."""

import pytest
import torch
from conftest import make_recording

from event2vec import EventBatch, Sensor, build_model
from event2vec.baselines.config import SparseGruConfig
from event2vec.baselines.sparse_gru import SparseGru, SparseUnits
from event2vec.baselines.spikgru import SpikingGru
from event2vec.baselines.spiking import (
    AdaptiveNeurons,
    BumpSpike,
    ClippedNeurons,
    LeakyNeurons,
    RectangleSpike,
    SigmoidSpike,
    TriangleSpike,
    fire,
    keep_in_unit_range,
)
from event2vec.training.config import ObjectiveConfig
from event2vec.training.objectives import Classification

INPUTS = torch.randn(12, 4, 3, generator=torch.Generator().manual_seed(0)) * 1.5


def each(neurons):
    """The spikes of a layer, and its inputs, neuron by neuron over time."""
    spikes = neurons(INPUTS)
    return [
        (spikes[:, row, unit].tolist(), INPUTS[:, row, unit].tolist(), unit) for row in range(4) for unit in range(3)
    ]


@pytest.mark.parametrize("threshold", [1.0, 0.5])
def test_leaky_neurons_halve_and_reset_to_zero(threshold):
    for spikes, inputs, _ in each(LeakyNeurons(threshold)):
        v, expected = 0.0, []
        for x in inputs:
            v += (x - v) / 2
            expected.append(float(v >= threshold))
            v = 0.0 if v >= threshold else v
        assert spikes == expected


def test_clipped_neurons_keep_a_part_of_their_threshold():
    for spikes, inputs, _ in each(ClippedNeurons()):
        left, expected = 0.0, []
        for x in inputs:
            u = left + x
            expected.append(float(u >= 0.3))
            left = 0.3 * (0.3 if u >= 0.3 else u)
        assert spikes == expected


@pytest.mark.parametrize("learnt", [True, False])
def test_adaptive_neurons_leak_as_they_learnt_and_subtract_their_spikes(learnt):
    neurons = AdaptiveNeurons(3 if learnt else None)
    leaks = [1.0, 1.0, 1.0]
    if neurons.alpha is not None:
        leaks = [0.2, 0.9, 1.0]
        torch.nn.init.constant_(neurons.alpha, 0)
        neurons.alpha.data = torch.tensor([0.2, 0.9, 7.0])  # clamped to 1
    for spikes, inputs, unit in each(neurons):
        v, spike, expected = 0.0, 0.0, []
        for x in inputs:
            v = leaks[unit] * v + x - spike
            spike = float(v >= 1)
            expected.append(spike)
        assert spikes == expected


def test_a_leak_outside_its_range_can_come_back():
    leak = torch.tensor([-0.2, 0.4, 1.3], requires_grad=True)
    kept = keep_in_unit_range(leak)
    torch.testing.assert_close(kept.detach(), torch.tensor([0.0, 0.4, 1.0]))
    kept.sum().backward()
    assert leak.grad is not None
    assert torch.equal(leak.grad, torch.ones(3))


def test_sparse_units_are_heard_only_where_they_pass_their_threshold():
    torch.manual_seed(0)
    cell = SparseUnits(3, 5)
    units = cell(INPUTS)
    sent = units.sent
    assert torch.equal(units.events, (sent != 0).float())
    assert 0 < (sent != 0).float().mean() < 1
    c = y = torch.zeros(4, 5)
    for step, x in enumerate(INPUTS):
        given, heard = cell.inputs(x), cell.recurrent(y)
        z, r = torch.sigmoid(given[:, :5] + heard[:, :5]), torch.sigmoid(given[:, 5:10] + heard[:, 5:10])
        c = z * c + (1 - z) * torch.tanh(given[:, 10:] + r * heard[:, 10:])
        torch.testing.assert_close(units.above[step], c - cell.threshold)
        y = torch.where(c >= cell.threshold, c, 0.0)
        c = torch.where(c >= cell.threshold, c - cell.threshold, c)
        torch.testing.assert_close(sent[step], y)


def test_sparse_units_learn_to_send_rarely():
    """The penalty counts in training alone, and lowers the share of steps in which units send."""
    config = SparseGruConfig(sensor=Sensor(8, 8), classes=2, bins=4, side=8, features=8, units=16, dropout=0.0)
    torch.manual_seed(0)
    model = build_model(config)
    assert isinstance(model, SparseGru)
    batch = EventBatch.pad([make_recording(200, seed, Sensor(8, 8)) for seed in range(4)])
    labels = torch.tensor([0, 1, 0, 1])
    task = Classification(model, ObjectiveConfig())
    generator = torch.Generator().manual_seed(0)
    before = model._listen(batch, None).events.mean()
    penalty = model.learn(batch, generator)[1]
    assert penalty != 0
    torch.testing.assert_close(task(batch, labels, generator).loss - task(batch, labels, None).loss, penalty)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(20):
        optimizer.zero_grad()
        model.learn(batch, None)[1].backward()
        optimizer.step()
    assert model._listen(batch, None).events.mean() < before


def test_spiking_gru_sends_positive_and_negative_spikes():
    torch.manual_seed(1)
    cell = SpikingGru(3, 6)
    spikes = cell(3 * INPUTS)
    assert set(spikes.unique().tolist()) == {-1.0, 0.0, 1.0}
    i = v = y = torch.zeros(4, 6)
    for step, x in enumerate(3 * INPUTS):
        given, heard = cell.inputs(x), cell.recurrent(y)
        z, r = torch.sigmoid(given[:, :6] + heard[:, :6]), torch.sigmoid(given[:, 6:12] + heard[:, 6:12])
        i = 0.9 * i + given[:, 12:] + r * heard[:, 12:]
        v = z * v + (1 - z) * i - y
        y = (v >= 1).float() - (v <= -1).float()
        assert torch.equal(spikes[step], y)


@pytest.mark.parametrize(
    ("surrogate", "slopes"),
    [
        (SigmoidSpike, [1.0, 4 * 0.880797 * 0.119203]),  # at the threshold, and half above it
        (RectangleSpike, [2.0, 0.0]),
        (TriangleSpike, [0.7, 0.7 * 0.15]),
        (BumpSpike, [1.0, 1 / 3.5]),
    ],
)
def test_slopes_are_those_of_the_published_systems(surrogate, slopes):
    over = torch.tensor([0.0, 0.5, -0.5], requires_grad=True)
    spikes = fire(over, surrogate)
    assert spikes.tolist() == [1.0, 1.0, 0.0]
    spikes.sum().backward()
    torch.testing.assert_close(over.grad, torch.tensor([*slopes, slopes[1]]))
