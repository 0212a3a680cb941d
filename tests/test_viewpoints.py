"""Viewpoints: tokens where nothing happened, in order of time among those of events; they count nowhere, but see."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import SMALL, make_recording, randomise
from trainings import FLAT, make_store

from event2vec import EventBatch, ModelConfig, build_model, load_model, pretrain, save_model, train
from event2vec.evaluation.figures.attention_maps import attention_received
from event2vec.evaluation.figures.clips import make_clip
from event2vec.exporting.formats import follow
from event2vec.model.compiled_attention import library, set_aside
from event2vec.model.masked import build_masked_model
from event2vec.model.neighbourhood import see_around
from event2vec.model.tokens import become_tokens, place_tokens
from event2vec.model.viewpoints import spread_evenly, with_viewpoints

COUNT = 12
CONFIG = ModelConfig(
    sensor=SMALL,
    classes=3,
    dim=16,
    hidden=16,
    blocks=2,
    pooling=False,
    relative=True,
    neighbourhood=5,
    viewpoints=COUNT,
)
COUNTS = (150, 31, 2, 1, 0)


@pytest.fixture
def batch():
    return EventBatch.pad([make_recording(count, seed=count) for count in COUNTS])


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_points_are_spread_evenly():
    points = torch.tensor(spread_evenly(64))
    assert points[:4, 0].tolist() == [0.5, 0.25, 0.75, 0.125]
    for axis in range(4):
        counts = torch.histc(points[:, axis], bins=4, min=0, max=1)
        assert counts.min() >= 14, "a quarter of them in each quarter"
    assert spread_evenly(64)[:10] == spread_evenly(10)
    assert spread_evenly(0) == ()


def test_both_polarities_are_everywhere(batch):
    added = with_viewpoints(batch, 48)
    x, y, t, p = (getattr(added, name)[0, -48:] for name in "xytp")
    for place in (x, y, t):
        low = place <= place.median()
        assert 0.3 < p[low].float().mean() < 0.7
        assert 0.3 < p[~low].float().mean() < 0.7


def test_they_lie_on_the_sensor_within_the_recording_and_stand_for_no_events(batch):
    late = replace(batch, t=batch.t + 5_000 * batch.valid)
    for at_first, events in ((0, batch), (5_000, late)):
        added = with_viewpoints(events, COUNT)
        x, y, t, rho, valid = (getattr(added, name)[:, -COUNT:] for name in ("x", "y", "t", "rho", "valid"))
        for place, side in ((x, SMALL.width), (y, SMALL.height)):
            assert place.min() >= 0
            assert place.max() <= side - 1
        assert (t[:4] >= at_first).all()
        assert (t[:4] <= events.t.amax(dim=1, keepdim=True)[:4]).all()
        assert not rho.any()
        assert valid.all(dim=1).tolist() == [True, True, True, True, False], "a row without events has none"
        assert torch.equal(added.x[:, :-COUNT], events.x)


def test_tokens_are_in_order_of_time_with_padding_last(batch):
    seen = become_tokens(*place_tokens(batch, CONFIG))
    for row, count in enumerate(COUNTS):
        wanted = count + COUNT if count else 0
        assert seen.valid[row].tolist() == [place < wanted for place in range(seen.valid.shape[1])]
        assert (seen.t[row, :wanted].diff() >= 0).all()
        assert int((seen.rho[row] > 0).sum()) == count


def test_events_of_one_microsecond_stay_in_order_before_the_viewpoint_of_it():
    still = replace(EventBatch.pad([make_recording(20), make_recording(3)]), t=torch.zeros(2, 20, dtype=torch.int64))
    _, chosen = place_tokens(still, CONFIG)
    assert chosen
    assert chosen.places[0].tolist() == list(range(20 + COUNT))
    assert chosen.places[1, : 3 + COUNT].tolist() == [0, 1, 2, *range(20, 20 + COUNT)]
    assert chosen.valid.sum(dim=1).tolist() == [20 + COUNT, 3 + COUNT]


def test_training_shifts_them_and_answers_do_not(batch):
    model = randomise(build_model(CONFIG))
    one, same, other = (with_viewpoints(batch, COUNT, generator(seed)).x[:, -COUNT:] for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert not torch.equal(one[0], one[1]), "each recording by its own shift"
    with torch.no_grad():
        assert torch.equal(model(batch), model(batch))
        assert not torch.allclose(model(batch)[0], randomise(build_model(replace(CONFIG, viewpoints=0)))(batch)[0])


def test_they_do_not_count_and_see_what_is_around_them(batch):
    added, chosen = place_tokens(batch, CONFIG)
    assert chosen
    around = see_around(added, None, 5, chosen.places)
    alone = see_around(batch, None, 5)
    of_events = (chosen.places < batch.x.shape[1]) & chosen.valid
    assert torch.equal(around[0][of_events[0]], alone[0])
    assert around[0][~of_events[0]].any(), "some of them have events around"


@pytest.mark.skipif(library() is None, reason="event2vec was installed without its compiled part")
def test_compiled_code_answers_as_torch_does(batch):
    model = randomise(build_model(replace(CONFIG, tokens=16)))
    with torch.no_grad():
        found = model(batch)
        with set_aside():
            torch.testing.assert_close(found, model(batch), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("tokens", [0, 16])
def test_padding_other_rows_and_the_clock_change_no_answer(batch, tokens):
    model = randomise(build_model(replace(CONFIG, tokens=tokens)))
    with torch.no_grad():
        together = model(batch)
        for row in range(len(COUNTS)):
            torch.testing.assert_close(model(EventBatch.pad([batch.row(row)]))[0], together[row], atol=2e-6, rtol=1e-5)
        assert torch.equal(model(replace(batch, t=batch.t + 10**9 * batch.valid)), together)


def test_a_row_without_events_is_answered_as_without_viewpoints(batch):
    plain = randomise(build_model(replace(CONFIG, viewpoints=0)))
    with torch.no_grad():
        assert torch.equal(randomise(build_model(CONFIG))(batch)[-1], plain(batch)[-1])


@pytest.mark.parametrize("tokens", [0, 16])
def test_an_exported_network_takes_rows_of_any_length(tokens):
    model = randomise(build_model(replace(CONFIG, tokens=tokens)))
    program = follow(model).module()
    for counts in ((5, 3), (16, 9), (150, 17), (700, 20)):
        batch = EventBatch.pad([make_recording(count, seed=count) for count in counts])
        with torch.no_grad():
            found = program(batch.x, batch.y, batch.t, batch.p, batch.rho, batch.valid)
            torch.testing.assert_close(found, model(batch), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("token_mix", [0.0, 1.0])
def test_such_a_network_is_trained_saved_and_starts_from_a_pretrained_one(tmp_path, token_mix):
    model = {"neighbourhood": 5, "viewpoints": COUNT, "drop_tokens": 0.5}
    store, recipe = make_store(tmp_path / "store"), FLAT.with_settings({"sampling.length": 60, "training.epochs": 1})
    before = pretrain(recipe, store, tmp_path / "before", model=model)
    run = train(recipe, store, tmp_path / "run", init=before.folder, model=model, objective={"token_mix": token_mix})
    network, events = run.model(), store[0][0]
    assert run.evaluate().recordings == 6
    assert network.features(events).shape == (16,)
    assert network.embed_events(events).shape == (60, 16), "of events alone"
    save_model(network, tmp_path / "copy")
    batch = EventBatch.pad([events])
    with torch.no_grad():
        assert torch.equal(load_model(tmp_path / "copy")(batch), network(batch))


@pytest.mark.parametrize("tokens", [0, 16])
def test_what_it_attends_to_is_shown_at_events_alone(tmp_path, tokens):
    model, events = randomise(build_model(replace(CONFIG, tokens=tokens))), make_recording(150)
    count = tokens or 150
    assert len(model.tokens_of(events)) == count
    received = attention_received(model, events)
    assert received.shape == (2, count)
    np.testing.assert_allclose(received.sum(axis=1), count, rtol=1e-6)
    assert make_clip(model, events, events, "1").attention.shape == (2, 150)


def test_pretraining_has_none():
    assert build_masked_model(CONFIG).config.viewpoints == 0


def test_without_a_neighbourhood_they_would_see_nothing():
    with pytest.raises(ValueError, match=r"model\.viewpoints needs model\.neighbourhood"):
        replace(CONFIG, neighbourhood=0)
