"""Neighbourhoods: counts around each event, the same wherever it is; padding and hidden events are never counted."""

from dataclasses import replace

import pytest
import torch
from conftest import SMALL, make_recording, randomise

from event2vec import EventBatch, Events, ModelConfig, Sensor, build_model, load_model, save_model
from event2vec.model.compiled_attention import library, set_aside
from event2vec.model.frames import stretches_of_time
from event2vec.model.masked import build_masked_model
from event2vec.model.neighbourhood import BINS, REACH, count_cells, look_around, see_around

TINY = ModelConfig(sensor=SMALL, classes=3, dim=16, hidden=16, blocks=1, pooling=False, relative=True, neighbourhood=5)


@pytest.fixture
def batch():
    return EventBatch.pad([make_recording(count, seed=count) for count in (150, 31, 1)])


def counts_around(batch: EventBatch, width: int, hidden: torch.Tensor | None = None) -> torch.Tensor:
    return look_around(count_cells(batch, hidden), batch, width)


def written_out(events: Events, width: int) -> torch.Tensor:
    """Every pair of events of a sensor of at most 32 x 32 whole pixels, one after the other."""
    stretch = [min(int(t) * BINS // max(events.duration, 1), BINS - 1) for t in events.t]
    found = torch.zeros(len(events), 2 * REACH + 1, 2, width, width)
    for i in range(len(events)):
        for j in range(len(events)):
            late = stretch[j] - stretch[i] + REACH
            down, across = (int(c[j] - c[i]) + width // 2 for c in (events.y, events.x))
            if 0 <= late <= 2 * REACH and 0 <= down < width and 0 <= across < width:
                found[i, late, int(events.p[j]), down, across] += events.rho[j]
    return found.flatten(1)


def test_counts_are_those_of_all_pairs():
    events = make_recording(60, sensor=Sensor(12, 9))
    batch = EventBatch.pad([events, make_recording(20, seed=1, sensor=Sensor(12, 9))])
    torch.testing.assert_close(counts_around(batch, 5)[0], written_out(events, 5))


@pytest.mark.skipif(library() is None, reason="event2vec was installed without its compiled part")
@pytest.mark.parametrize("sensor", [SMALL, Sensor(1280, 720), Sensor(300, 2), Sensor(1, 1)], ids=str)
@pytest.mark.parametrize("width", [1, 7])
def test_compiled_code_counts_as_torch_does(sensor, width):
    generator = torch.Generator().manual_seed(0)
    batch = EventBatch.pad([make_recording(count, seed=count, sensor=sensor) for count in (900, 31, 1, 0, 256)])
    within = torch.rand(2, *batch.x.shape, generator=generator) * batch.valid  # clusters lie between pixels
    x, y = (batch.x + within[0]).clamp(max=sensor.width - 1), (batch.y + within[1]).clamp(max=sensor.height - 1)
    rho = batch.rho * torch.randint(1, 40, batch.x.shape, generator=generator)
    batch, hidden = replace(batch, x=x, y=y, rho=rho), torch.rand(batch.x.shape, generator=generator) < 0.3
    for kept in (None, hidden):
        found = see_around(batch, kept, width)
        with set_aside():
            expected = see_around(batch, kept, width)
        torch.testing.assert_close(found, expected * batch.valid[..., None], atol=5e-7, rtol=5e-7)


@pytest.mark.skipif(library() is None, reason="event2vec was installed without its compiled part")
def test_threads_and_other_rows_change_no_bit(monkeypatch, batch):
    several = EventBatch.pad([batch.row(row % 3) for row in range(8)])
    alone = see_around(EventBatch.pad([batch.row(1)]), None, 7)
    for threads in (1, 2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda count=threads: count)
        found = see_around(several, None, 7)
        assert torch.equal(found[1, :31], alone[0])
        assert torch.equal(found[:2], found[3:5])
        assert not found[1, 31:].any(), "padding sees nothing"


def test_stretches_of_long_rows_are_exact():
    """A sum of 65,535 intervals drifts by more than the time between two events, and differently in each program."""
    events = make_recording(65_536, sensor=Sensor(8, 8), duration=7_000_000)
    batch = EventBatch.pad([events])
    exact = (events.t * BINS // events.t[-1]).clamp(max=BINS - 1)
    assert torch.equal(stretches_of_time(batch, BINS)[0], exact)
    with set_aside():
        expected = see_around(batch, None, 1)
    torch.testing.assert_close(see_around(batch, None, 1), expected, atol=2e-6, rtol=1e-6)


def test_rows_without_any_place_have_nothing_around_them():
    batch = EventBatch.pad([make_recording(5)[:0]])
    for width in (1, 5):
        assert see_around(batch, None, width).shape == counts_around(batch, width).shape == (1, 0, 6 * width**2)
    assert stretches_of_time(batch, BINS).shape == (1, 0)


def test_events_moved_alike_have_the_same_neighbourhoods():
    events = make_recording(40, sensor=Sensor(10, 10))
    there = [
        Events.from_arrays(events.x + d, events.y + 2 * d, events.t + 7 * d, events.p, sensor=(32, 32)) for d in (0, 9)
    ]
    here, moved = (counts_around(EventBatch.pad([each]), 7) for each in there)
    assert torch.equal(here, moved)


def test_padding_changes_no_count(batch):
    alone = counts_around(EventBatch.pad([batch.row(1)]), 5)
    assert torch.equal(counts_around(batch, 5)[1, :31], alone[0])


def test_hidden_events_are_not_counted_and_their_place_changes_nothing(batch):
    hidden = torch.rand(batch.valid.shape, generator=torch.Generator().manual_seed(0)) < 0.3
    elsewhere = replace(batch, x=torch.where(hidden, 33 - batch.x, batch.x), p=batch.p ^ hidden)
    seen = batch.valid & ~hidden
    assert torch.equal(counts_around(batch, 5, hidden)[seen], counts_around(elsewhere, 5, hidden)[seen])
    assert not torch.equal(counts_around(batch, 5)[seen], counts_around(elsewhere, 5)[seen])
    model = randomise(build_masked_model(TINY)).eval()
    with torch.no_grad():
        assert torch.equal(model(batch, hidden), model(elsewhere, hidden))


def test_a_large_or_narrow_sensor_is_divided_into_few_cells():
    for sensor in (Sensor(1280, 720), Sensor(1, 1), Sensor(300, 2)):
        counts = counts_around(EventBatch.pad([make_recording(50, sensor=sensor)]), 3)
        assert counts.shape == (1, 50, 3 * 2 * 9)
        assert bool((counts.sum(dim=-1) > 0).all())


@torch.no_grad()
def test_a_network_with_it_is_saved_and_answers_as_before(batch, tmp_path):
    model = randomise(build_model(TINY)).eval()
    plain = build_model(replace(TINY, neighbourhood=0))
    assert set(model.state_dict()) - set(plain.state_dict()) == {
        "embed.neighbourhood.weight.weight",
        "embed.neighbourhood.norm.weight",
        "embed.neighbourhood.norm.bias",
    }
    save_model(model, tmp_path)
    assert torch.equal(load_model(tmp_path)(batch), model(batch))
    alone = torch.cat([model(EventBatch.pad([batch.row(row)])) for row in range(3)])
    torch.testing.assert_close(model(batch), alone, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(model.with_table()(batch), model(batch), atol=1e-6, rtol=1e-6)


def test_an_even_width_is_refused():
    with pytest.raises(ValueError, match=r"model\.neighbourhood must be odd, so that an event is in the middle, got 4"):
        replace(TINY, neighbourhood=4)
