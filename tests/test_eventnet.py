"""EventNet: event by event gives what the batch gives, and so does the table."""

from dataclasses import replace

import pytest
import torch
from conftest import SMALL, make_recording, randomise

from event2vec import Event2VecError, EventBatch, Events, Sensor, build_model
from event2vec.baselines.config import EventNetConfig
from event2vec.baselines.eventnet import EventNet, Memory, PointTable

CONFIG = EventNetConfig(sensor=SMALL, classes=3, features=16, hidden=8, tau=0.2)


@pytest.fixture
def network() -> EventNet:
    network = randomise(build_model(CONFIG))
    assert isinstance(network, EventNet)
    return network


@pytest.mark.parametrize("chunk", [1, 7])
def test_the_recursion_gives_what_the_batch_gives(chunk, network):
    events = make_recording(60)  # of 0.3 s: the first are forgotten
    memory: Memory | None = None
    for start in range(0, len(events), chunk):
        memory = network.update(memory, events[start : start + chunk])
    assert memory is not None
    with torch.no_grad():
        torch.testing.assert_close(network.answer(memory), network(EventBatch.pad([events])), atol=1e-5, rtol=1e-4)


def test_the_table_gives_what_the_network_gives(network):
    batch = EventBatch.pad([make_recording(60), make_recording(20, seed=1)])
    with torch.no_grad():
        torch.testing.assert_close(network.with_table()(batch), network(batch))
        between = replace(batch, x=batch.x + 0.25 * batch.valid)  # events of another sensor, scaled
        torch.testing.assert_close(network.with_table()(between), network(between))


def test_a_recording_without_events_is_answered_alone_too(network):
    none = Events.from_arrays([], [], [], [], sensor=SMALL)
    with torch.no_grad():
        alone, beside = network(EventBatch.pad([none])), network(EventBatch.pad([none, make_recording(20)]))
    torch.testing.assert_close(alone, beside[:1])


def test_the_table_is_used_where_many_events_are_read_and_never_saved(network):
    many = 2 * SMALL.width * SMALL.height // network.sampling.length + 1
    quick = network.eval().for_reading(many)
    assert isinstance(quick, EventNet)
    assert isinstance(quick.points, PointTable)
    assert any(buffer is quick.points.table for buffer in quick.buffers())
    assert "table" not in quick.points.state_dict()
    assert network.for_reading(0) is network
    large = build_model(replace(CONFIG, sensor=Sensor(2000, 2000)))
    assert large.eval().for_reading(10**9) is large, "half a gigabyte"
    assert network.train().for_reading(many) is network


def test_the_code_is_the_maximum_written_out(network):
    events = make_recording(40)
    batch = EventBatch.pad([events])
    memory = network.update(None, events)
    with torch.no_grad():
        z = network.points(batch)
    age = (events.t[-1] - events.t) / 200_000
    for feature in range(16):
        code = [
            max(abs(value) - old, 0) * (1 if value > 0 else -1) * torch.exp(torch.tensor(-2j * torch.pi * old))
            for value, old in zip(z[:, feature].tolist(), age.tolist(), strict=True)
        ]
        largest = max(code, key=abs)
        found = memory.features[0, [feature, 16 + feature]]
        torch.testing.assert_close(found, torch.view_as_real(largest).float(), atol=1e-5, rtol=1e-4)


def test_a_time_constant_that_ends_with_the_recording_cannot_be_updated():
    network = build_model(EventNetConfig(sensor=SMALL, classes=3))
    assert isinstance(network, EventNet)
    with pytest.raises(Event2VecError, match=r"model.tau must be set to update EventNet event by event"):
        network.update(None, make_recording(5))
