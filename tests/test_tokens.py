"""Tokens: one event of each run of a row; all that a network reads is counted around them, and nothing else changes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import SMALL, make_recording, randomise
from trainings import FLAT, make_store

from event2vec import EventBatch, ModelConfig, build_model, pretrain, train
from event2vec.evaluation.figures.attention_maps import attention_received
from event2vec.evaluation.figures.clips import make_clip
from event2vec.exporting.formats import follow
from event2vec.model.compiled_attention import library, set_aside
from event2vec.model.masked import build_masked_model
from event2vec.model.neighbourhood import see_around
from event2vec.model.tokens import choose_tokens, draw_tokens, hide_runs
from event2vec.streaming.windows import fewest_events
from event2vec.training.config import ObjectiveConfig
from event2vec.training.objectives import MaskedReconstruction

TOKENS = 16
CONFIG = ModelConfig(
    sensor=SMALL, classes=3, dim=16, hidden=16, blocks=2, pooling=False, relative=True, neighbourhood=5, tokens=TOKENS
)
COUNTS = (150, 31, 17, 16, 15, 1, 0)


@pytest.fixture
def batch():
    return EventBatch.pad([make_recording(count, seed=count) for count in COUNTS])


def choose(batch, seed=None):
    found = choose_tokens(batch.valid, TOKENS, None if seed is None else torch.Generator().manual_seed(seed))
    assert found
    return found


def runs(count):
    """The events of each run, written out."""
    if count <= TOKENS:
        return [[place] for place in range(count)]
    return [list(range(run * count // TOKENS, (run + 1) * count // TOKENS)) for run in range(TOKENS)]


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_each_run_of_a_row_has_one_token(batch, seed):
    places, valid = choose(batch, seed)
    for row, count in enumerate(COUNTS):
        expected = runs(count)
        assert valid[row].tolist() == [number < len(expected) for number in range(TOKENS)]
        for place, run in zip(places[row].tolist(), expected, strict=False):
            assert place in run
            assert seed is not None or place == run[len(run) // 2]


def test_training_draws_every_event_of_a_run_in_time():
    batch = EventBatch.pad([make_recording(50)])
    drawn = {place for seed in range(200) for place in choose(batch, seed).places[0].tolist()}
    assert drawn == set(range(50))


def test_short_rows_are_read_as_without_tokens(batch):
    short = EventBatch.pad([batch.row(row) for row in range(3, len(COUNTS))])
    assert choose_tokens(short.valid, TOKENS) is None
    model, plain = randomise(build_model(CONFIG)), randomise(build_model(replace(CONFIG, tokens=0)))
    with torch.no_grad():
        torch.testing.assert_close(model(batch)[3:], plain(short), atol=1e-6, rtol=0)


def test_a_token_sees_all_events_around_it(batch):
    """What is counted around it without tokens, when it is one of many."""
    places, valid = choose(batch)
    everything = see_around(batch, None, 5)
    around = everything.gather(1, places[..., None].expand(-1, -1, everything.shape[2]))
    found = see_around(batch, None, 5, places)
    assert torch.equal(found * valid[..., None], around * valid[..., None])
    alone = see_around(batch.at(places, valid), None, 5)
    assert not torch.allclose(found[0], alone[0])


@pytest.mark.skipif(library() is None, reason="event2vec was installed without its compiled part")
def test_compiled_code_answers_as_torch_does(batch):
    model = randomise(build_model(CONFIG))
    with torch.no_grad():
        found = model(batch)
        with set_aside():
            torch.testing.assert_close(found, model(batch), atol=2e-6, rtol=1e-5)


def test_padding_and_other_rows_change_no_answer(batch):
    model = randomise(build_model(CONFIG))
    with torch.no_grad():
        together = model(batch)
        for row in range(len(COUNTS)):
            torch.testing.assert_close(model(EventBatch.pad([batch.row(row)]))[0], together[row], atol=2e-6, rtol=1e-5)


def test_an_exported_network_takes_rows_of_any_length():
    """Shorter than its tokens, as long, and longer than what the exporter followed."""
    model = randomise(build_model(CONFIG))
    program = follow(model).module()
    for counts in ((5, 3), (16, 9), (150, 17), (700, 20)):
        batch = EventBatch.pad([make_recording(count, seed=count) for count in counts])
        with torch.no_grad():
            found = program(batch.x, batch.y, batch.t, batch.p, batch.rho, batch.valid)
            torch.testing.assert_close(found, model(batch), atol=1e-5, rtol=1e-4)


def test_the_events_of_hidden_tokens_are_all_hidden(batch):
    hidden = torch.rand(len(COUNTS), TOKENS, generator=torch.Generator().manual_seed(0)) < 0.4
    found = hide_runs(hidden, batch.valid)
    for row, count in enumerate(COUNTS):
        wanted = {place for number, run in enumerate(runs(count)) if hidden[row, number] for place in run}
        assert set(np.flatnonzero(found[row].numpy())) == wanted


def test_where_hidden_events_are_changes_nothing(batch):
    model = randomise(build_masked_model(CONFIG))
    chosen = choose(batch)
    hidden = (torch.rand(len(COUNTS), TOKENS, generator=torch.Generator().manual_seed(0)) < 0.4) & chosen.valid
    away = hide_runs(hidden, batch.valid)
    elsewhere = replace(batch, x=torch.where(away, 33 - batch.x, batch.x), p=batch.p ^ away)
    shown = replace(batch, x=torch.where(away, batch.x, 33 - batch.x) * batch.valid)
    with torch.no_grad():
        right = model(batch, hidden, chosen=chosen)
        assert right.shape == (int(hidden.sum()), 3)
        assert torch.equal(model(elsewhere, hidden, chosen=chosen), right)
        assert not torch.allclose(model(shown, hidden, chosen=chosen), right)


@pytest.mark.parametrize("token_mix", [0.0, 1.0])
def test_such_a_network_is_trained_pretrained_and_tested(tmp_path, token_mix):
    model = {"neighbourhood": 5, "tokens": TOKENS, "drop_tokens": 0.5}
    store, recipe = make_store(tmp_path / "store"), FLAT.with_settings({"sampling.length": 60, "training.epochs": 1})
    before = pretrain(recipe, store, tmp_path / "before", model=model)
    mixed = {"token_mix": token_mix}
    run = train(recipe, store, tmp_path / "run", init=before.folder, model=model, objective=mixed)
    network, events = run.model(), store[0][0]
    assert network.tokens == TOKENS
    assert run.evaluate().recordings == 6
    assert network.features(events).shape == (16,)
    assert network.embed_events(events).shape == (60, 16), "of all events, tokens or not"


def test_what_it_attends_to_is_shown_at_its_tokens():
    model, events = randomise(build_model(CONFIG)), make_recording(150)
    tokens = model.tokens_of(events)
    assert len(tokens) == TOKENS
    assert tokens.t.tolist() == events.t[[run[len(run) // 2] for run in runs(150)]].tolist()
    received = attention_received(model, events)
    assert received.shape == (2, TOKENS)
    np.testing.assert_allclose(received.sum(axis=1), TOKENS)
    assert make_clip(model, events, events, "1").attention.shape == (2, 150)
    assert model.tokens_of(tokens) is tokens


def test_tables_and_threads_are_worth_it_by_tokens_not_by_events():
    model = build_model(CONFIG).eval()
    assert (model.sampling.length, model.tokens) == (1024, TOKENS)
    assert build_model(replace(CONFIG, tokens=0)).tokens == 1024
    assert model.reads == "up to 1,024 random events, of which 16 become tokens"
    assert fewest_events(model) == TOKENS // 8, "of a window that is answered live"
    assert model.for_reading(10) is model
    assert model.for_reading(1000) is not model


def test_training_leaves_tokens_out_and_answers_do_not(batch):
    model = randomise(build_model(replace(CONFIG, drop_tokens=0.75)))
    whole = randomise(build_model(CONFIG))
    with torch.no_grad():
        assert torch.equal(model(batch), whole(batch))
    tokens, valid, positions = model.read(batch, torch.Generator().manual_seed(0))
    assert positions is not None
    assert tokens.shape[:2] == valid.shape == positions.shape[:2] == (len(COUNTS), TOKENS // 4)
    assert valid.sum(dim=1).tolist() == [min(count, TOKENS // 4) for count in COUNTS]
    one, same, other = (model.read(batch, torch.Generator().manual_seed(seed)).tokens for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_pretraining_leaves_no_tokens_out(batch):
    models = (randomise(build_masked_model(replace(CONFIG, drop_tokens=share))) for share in (0.0, 0.75))
    labels = torch.zeros(len(COUNTS), dtype=torch.int64)
    whole, same = (
        MaskedReconstruction(model, ObjectiveConfig())(batch, labels, torch.Generator().manual_seed(0)).loss
        for model in models
    )
    assert torch.equal(whole, same)


def test_left_out_tokens_still_count_around_others(batch):
    model = build_model(replace(CONFIG, tokens=0, drop_tokens=0.5))
    chosen = draw_tokens(batch.valid, model.config, torch.Generator().manual_seed(0))
    assert chosen
    tokens = model.read(batch, torch.Generator().manual_seed(0)).tokens
    torch.testing.assert_close(tokens, model.embed(batch, chosen))
    assert not torch.allclose(tokens[0], model.embed(batch.at(*chosen))[0])
    assert chosen.places.shape[1] == 75, "half of the longest row, where all events are tokens"


def test_without_a_neighbourhood_the_other_events_would_be_lost():
    with pytest.raises(ValueError, match=r"model\.tokens needs model\.neighbourhood"):
        replace(CONFIG, neighbourhood=0)
