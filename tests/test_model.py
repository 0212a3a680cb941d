"""The network as a whole: sizes to the unit, answers that nothing but the events changes, and backends."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import SMALL, randomise
from processes import run_python

from event2vec import (
    Event2VecError,
    EventBatch,
    ModelConfig,
    Sampling,
    Sensor,
    build_model,
    sample_uniform,
    write_events,
)
from event2vec.data.seeding import seeded
from event2vec.model.attention import ForgettingDirection
from event2vec.model.classifier import TensorClassifier, count_parameters
from event2vec.model.masked import MaskedEventModel, build_masked_model

PAPER = {
    "dvs_gesture": ModelConfig(),
    "asl_dvs": ModelConfig(sensor=Sensor(240, 180), classes=24, blocks=2, pooling=False),
    "dvs_lip": ModelConfig(classes=100, dim=192, hidden=384, heads=6, blocks=16, pooling=False),
}
TINY = ModelConfig(sensor=SMALL, classes=3, dim=16, hidden=24, heads=2, blocks=2)


@pytest.fixture(
    params=[
        {},
        {"pooling": False},
        {"shared": False},
        {"attention": "gated_linear"},
        {"attention": "gated_linear", "shared": False, "pooling": False},
        {"spatial": "lookup", "temporal": "sine"},
        {"heads": 1},
        {"heads": 4},
        {"relative": True},
        {"relative": True, "shared": False, "pooling": False},
    ],
    ids=str,
)
def tiny(request):
    return randomise(build_model(replace(TINY, **request.param)))


@pytest.mark.parametrize(
    ("recipe", "shared", "separate"),
    [("dvs_gesture", 137_619, 171_291), ("asl_dvs", 71_580, 88_416), ("dvs_lip", 4_799_236, 6_002_020)],
)
def test_sizes_are_those_of_the_paper(recipe, shared, separate):
    assert count_parameters(build_model(PAPER[recipe])) == shared
    assert count_parameters(build_model(replace(PAPER[recipe], relative=True))) == shared, "ours adds no weight"
    assert count_parameters(build_model(replace(PAPER[recipe], shared=False))) == separate


def assert_same_answers(found, expected):
    """What is promised of batches and padding: the sums have another order, so the last bits may differ."""
    assert torch.equal(found.argmax(dim=-1), expected.argmax(dim=-1))
    largest = expected.abs().amax(dim=-1).clamp(min=1)
    assert ((found - expected).abs().amax(dim=-1) / largest).max() <= 1e-6


@pytest.mark.parametrize(
    ("recipe", "lengths"), [("dvs_gesture", (96, 17)), ("asl_dvs", (96, 17)), ("dvs_lip", (64, 9))]
)
def test_padding_does_not_change_an_answer_of_the_papers_networks(recipe, lengths, make_events):
    model = randomise(build_model(PAPER[recipe]))
    recordings = [make_events(length, seed=length, sensor=PAPER[recipe].sensor) for length in lengths]
    with torch.no_grad():
        alone = torch.cat([model(EventBatch.pad([recording])) for recording in recordings])
        assert_same_answers(model(EventBatch.pad(recordings)), alone)
        model.head.linear.weight.mul_(100)
        alone = torch.cat([model(EventBatch.pad([recording])) for recording in recordings])
        assert alone.abs().max() > 10, "where 1e-6 is less than the last bit of a logit"
        assert_same_answers(model(EventBatch.pad(recordings)), alone)


def test_padding_batch_size_and_order_do_not_change_an_answer(tiny, make_events):
    recordings = [make_events(count, seed=count) for count in (300, 31, 1, 257, 64, 2)]
    with torch.no_grad():
        alone = torch.cat([tiny(EventBatch.pad([recording])) for recording in recordings])
        assert_same_answers(tiny(EventBatch.pad(recordings)), alone)
        assert_same_answers(tiny(EventBatch.pad(recordings[::-1])).flip(0), alone)
        pairs = [tiny(EventBatch.pad(recordings[first : first + 2])) for first in range(0, 6, 2)]
        assert_same_answers(torch.cat(pairs), alone)
        longer = tiny(EventBatch.pad([*recordings, make_events(1000)]))[:-1]
        assert_same_answers(longer, alone)


def test_the_clock_changes_no_bit_of_an_answer(tiny, make_events):
    batch = EventBatch.pad([make_events(50), make_events(31, seed=1), make_events(1, seed=2)])
    assert torch.equal(tiny(replace(batch, t=(batch.t + 123_456_789) * batch.valid)), tiny(batch))


def test_the_number_of_threads_changes_no_bit_of_an_answer(tmp_path):
    """In processes of their own: torch takes the number of threads from the first work that it shares out."""
    script = """
import sys, torch
torch.set_num_threads(int(sys.argv[1]))
from conftest import make_recording, randomise
from event2vec import EventBatch, ModelConfig, Sensor, build_model
sensor = Sensor(128, 128)
batch = EventBatch.pad([make_recording(count, sensor=sensor) for count in (1024, 1000, 777, 64)])
found = []
kinds = {"pooling": False}, {"attention": "gated_linear"}, {"spatial": "lookup", "temporal": "sine"}, {"relative": True}
for settings in ({}, *kinds):
    model = randomise(build_model(ModelConfig(sensor=sensor, blocks=2, **settings)))
    with torch.no_grad():
        found += [model(batch), model(EventBatch.pad([batch.row(0)]))]
torch.save(found, sys.argv[2])
"""
    answers = []
    for threads in (1, 3):
        run_python("-c", script, threads, tmp_path / f"{threads}.pt", folder=Path(__file__).parent, check=True)
        answers.append(torch.load(tmp_path / f"{threads}.pt"))
    for others in answers[1:]:
        assert all(torch.equal(one, other) for one, other in zip(answers[0], others, strict=True))


def test_the_edges_give_finite_answers(tiny, make_events):
    instant = replace(make_events(5), t=torch.zeros(5, dtype=torch.int64))
    assert tiny(EventBatch.pad([make_events(0), make_events(1), instant, make_events(9)])).isfinite().all()
    assert tiny(EventBatch.pad([make_events(0)])).isfinite().all()


def test_bfloat16_autocast_gives_nearly_the_same_answer(tiny, make_events):
    batch = EventBatch.pad([make_events(200), make_events(100, seed=1)])
    with torch.autocast("cpu", torch.bfloat16):
        rounded = tiny(batch)
        rounded.float().sum().backward()
    exact = tiny(batch)
    assert (rounded - exact).abs().max() < 0.1 * exact.abs().max()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in tiny.parameters())


def test_every_weight_learns(tiny, make_events):
    tiny(EventBatch.pad([make_events(50), make_events(20, seed=1)])).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in tiny.parameters())


def test_starting_weights_follow_the_seed_alone():
    torch.manual_seed(5)
    one = build_model(TINY, seed=1)
    untouched = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(1), untouched), "torch's own generator is left alone"
    same, other = build_model(TINY, seed=1), build_model(TINY, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.head.linear.weight, other.head.linear.weight)


def test_forget_gates_start_where_the_settings_say():
    model = build_model(replace(TINY, forget_bias=7.0))
    directions = [part for part in model.modules() if isinstance(part, ForgettingDirection)]
    assert len(directions) == TINY.blocks
    assert all((direction.forget_bias == 7).all() for direction in directions)


def test_predict_answers_for_any_recording(make_events):
    model = randomise(build_model(TINY, class_names=["a", "b", "c"], sampling=Sampling(length=64)))
    answer = model.predict(make_events(500))
    assert answer.label is not None
    assert answer.name == "abc"[answer.label]
    assert answer.scores.sum().item() == pytest.approx(1)
    assert torch.equal(model.predict(make_events(500)).scores, answer.scores), "the same draw each time"
    assert (answer.events, answer.scaled_from) == (500, None)
    large = model.predict(make_events(500, sensor=Sensor(640, 480)))
    assert large.scores.isfinite().all()
    assert large.scaled_from == Sensor(640, 480)
    with pytest.raises(Event2VecError, match="holds no events"):
        model.predict(make_events(0))


def test_an_answer_below_the_confidence_asked_for_is_unknown(make_events):
    model = randomise(build_model(TINY, class_names=["a", "b", "unknown"], sampling=Sampling(length=64)))
    recordings = [make_events(300, seed=seed) for seed in range(8)]
    answers = model.predict(recordings)
    limit = sorted(answer.confidence for answer in answers)[4]
    judged = model.predict(recordings, min_confidence=limit)
    assert [answer.label is None for answer in judged].count(True) == 4
    for answer, plain in zip(judged, answers, strict=True):
        assert torch.equal(answer.scores, plain.scores), "the scores stay"
        assert plain.unknown is None
        if plain.confidence >= limit:
            assert answer.name == plain.name
            assert (answer.label, answer.unknown) == (plain.label, None)
        else:
            assert (answer.label, answer.name) == (None, "unknown")
            assert answer.unknown == (
                f"{plain.name} is the best class with {plain.confidence:.1%}, below the {limit:.1%} asked for"
            )
    for wrong in (-0.1, 1.5, float("nan")):
        with pytest.raises(Event2VecError, match="`min_confidence` must be from 0 to 1, got"):
            model.predict(recordings, min_confidence=wrong)


def test_many_recordings_and_files_are_answered_as_each_alone(make_events, tmp_path):
    model = randomise(build_model(TINY, sampling=Sampling(length=64)))
    recordings = [make_events(100 + 90 * number, seed=number) for number in range(5)]
    alone = [model.predict(events) for events in recordings]
    for batch in (1, 2, 32):
        for one, other in zip(model.predict(recordings, batch=batch), alone, strict=True):
            assert one.label == other.label
            torch.testing.assert_close(one.scores, other.scores, atol=1e-6, rtol=0)
    write_events(tmp_path / "a.npz", recordings[3])
    assert torch.equal(model.predict(str(tmp_path / "a.npz")).scores, alone[3].scores)
    (listed,) = model.predict([tmp_path / "a.npz"])
    assert torch.equal(listed.scores, alone[3].scores)
    assert model.predict([]) == []
    with pytest.raises(Event2VecError, match="`vote` must be at least 1, got 0"):
        model.predict(recordings, vote=0)


def test_votes_are_means_over_draws(make_events):
    model = randomise(build_model(TINY, sampling=Sampling(length=64)))
    events = make_events(500)
    batches = [EventBatch.pad([sample_uniform(events, 64, seeded(0, draw, 0))]) for draw in range(3)]
    expected = torch.stack([model(batch).softmax(dim=-1)[0] for batch in batches]).mean(dim=0)
    torch.testing.assert_close(model.predict(events, vote=3).scores, expected, atol=1e-6, rtol=0)
    clusters = randomise(build_model(TINY, sampling=Sampling(method="clusters", length=32)))
    assert torch.equal(clusters.predict(events, vote=3).scores, clusters.predict(events).scores), "one draw is all"


def test_every_event_has_a_vector_and_a_recording_has_one(make_events):
    model = randomise(build_model(TINY, class_names=["a", "b", "c"], sampling=Sampling(length=64)))
    events = make_events(500, sensor=Sensor(640, 480))
    vectors = model.embed_events(events)
    assert vectors.shape == (500, TINY.dim)
    torch.testing.assert_close(vectors, model.embed(EventBatch.pad([events.on_sensor(TINY.sensor)]))[0])
    scores = model.head.linear(model.features(events)).softmax(dim=-1)
    torch.testing.assert_close(scores, model.predict(events).scores, atol=1e-6, rtol=0)


def test_clusters_are_made_where_the_network_reads_clusters(make_events):
    model = randomise(build_model(TINY, sampling=Sampling(method="clusters", length=32)))
    events, large = make_events(500), make_events(500, sensor=Sensor(640, 480))
    batch = model.draw([events, large]).to("cpu")
    assert batch.valid.sum(dim=1).tolist() == [32, 32]
    assert batch.rho.sum(dim=1).tolist() == [500, 500], "every event is in a cluster"
    assert batch.sensor == TINY.sensor
    expected = model(batch).softmax(dim=-1)
    for answer, scores in zip(model.predict([events, large]), expected, strict=True):
        torch.testing.assert_close(answer.scores, scores.detach(), atol=1e-6, rtol=0)


def test_a_table_gives_the_same_answers(make_events):
    model = randomise(build_model(TINY, sampling=Sampling(length=64)))
    quick = model.with_table()
    torch.testing.assert_close(
        quick.predict(make_events(500)).scores, model.predict(make_events(500)).scores, atol=1e-6, rtol=0
    )
    assert type(model.embed.spatial).__name__ == "ParametricSpatial", "the model itself stays as it was"


def test_another_sensor_is_refused(make_events):
    with pytest.raises(ValueError, match=r"reads events from a 34x30 sensor, got 8x8"):
        build_model(TINY)(EventBatch.pad([make_events(5, sensor=Sensor(8, 8))]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dim": 18}, "dim must be a multiple of 4"),
        ({"dim": 8}, "at least 16"),
        ({"blocks": 1, "drop_path": 0.1}, "drop_path needs at least two blocks"),
        ({"dim": 20, "heads": 3}, "multiple of model.heads, got 20 and 3"),
        ({"dim": 20, "heads": 5}, "model.heads must be"),
        ({"blocks": 0}, "model.blocks must be at least 1, got 0"),
        ({"drop_path": 1.0}, "model.drop_path"),
        ({"attention": "gated_linear", "forget_bias": 4.0}, "gated_linear has no such gates"),
        ({"attention": "gated_linear", "relative": True}, "model.relative needs model.attention forgetting"),
        ({"heads": 4, "relative": True}, r"even width of at least 8, got model.dim / model.heads = 4"),
    ],
)
def test_settings_that_do_not_go_together_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        replace(TINY, **settings)


def test_names_must_match_the_classes():
    with pytest.raises(ValueError, match="has 3 classes, got 2 names"):
        build_model(TINY, class_names=["a", "b"])


@pytest.mark.parametrize("relative", [False, True])
def test_hidden_events_are_answered_row_by_row(make_events, relative):
    model = randomise(build_masked_model(replace(TINY, pooling=False, relative=relative)))
    batch = EventBatch.pad([make_events(30), make_events(20, seed=1)])
    hidden = torch.zeros(2, 30, dtype=torch.bool)
    hidden[0, 3], hidden[1, 5:7] = True, True
    answers = model(batch, hidden)
    assert answers.shape == (3, 3)
    x, y = torch.where(hidden, 33 - batch.x, batch.x), torch.where(hidden, 29 - batch.y, batch.y)
    moved = replace(batch, x=x, y=y, p=batch.p ^ hidden)
    assert torch.equal(model(moved, hidden), answers), "what is hidden cannot be seen"
    seen = replace(batch, x=torch.where(batch.valid & ~hidden, 33 - batch.x, batch.x))
    assert not torch.allclose(model(seen, hidden), answers)


def test_the_masked_model_cannot_pool():
    with pytest.raises(ValueError, match=r"model.pooling must be false"):
        MaskedEventModel(TINY)


BACKENDS = """
import torch
from event2vec import EventBatch, Events, ModelConfig, Sensor, build_model
from event2vec.model.classifier import TensorClassifier
sensor = Sensor(34, 30)
def batch(count, length, sensor=sensor):
    rows = [Events.from_arrays([i % 34 for i in range(n)], [i % 30 for i in range(n)], list(range(0, 7 * n, 7)),
            [i % 2 for i in range(n)], sensor=sensor) for n in range(length, length - count, -1)]
    return EventBatch.pad(rows)
def columns(batch):
    return batch.x, batch.y, batch.t, batch.p, batch.rho, batch.valid
gated = {"attention": "gated_linear", "pooling": False, "blocks": 1}
for settings in ({"blocks": 2}, {"pooling": False, "blocks": 1}, gated, {"relative": True, "blocks": 1}):
    model = build_model(ModelConfig(sensor=sensor, classes=3, dim=16, hidden=24, **settings)).eval()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(batch(2, 40)), model(batch(2, 40)), atol=1e-5, rtol=1e-4)
    compiled(batch(2, 40)).sum().backward()
    with torch.no_grad():
        torch.testing.assert_close(compiled(batch(2, 40)), model(batch(2, 40)), atol=1e-5, rtol=1e-4)
    rows = {0: torch.export.Dim("rows", min=2, max=64)}
    exported = torch.export.export(TensorClassifier(model), columns(batch(4, 40)), dynamic_shapes=(rows,) * 6)
    answer = exported.module()(*columns(batch(3, 40)))
    torch.testing.assert_close(answer, model(batch(3, 40)), atol=1e-5, rtol=1e-4)
torch.compiler.reset()  # it keeps a few forms of all networks together
for other in (sensor, Sensor(60, 40)):
    model = build_model(ModelConfig(sensor=other, classes=3, dim=16, hidden=24, blocks=1)).eval()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    given = batch(2, 40, other)
    torch.testing.assert_close(compiled(given), model(given), atol=1e-5, rtol=1e-4)
"""


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_type_of_the_weights_is_followed(tiny, make_events, dtype):
    batch = EventBatch.pad([make_events(60), make_events(30, seed=1)])
    exact = tiny(batch)
    answer = tiny.to(dtype)(batch)
    assert answer.dtype == dtype
    assert (answer - exact).abs().max() < (1e-5 if dtype == torch.float64 else 0.15) * exact.abs().max()


@pytest.mark.slow
def test_compile_and_export():
    """In a process of its own: the checks of shapes that tests run with cannot be compiled."""
    run_python("-c", BACKENDS, check=True)


def test_plain_tensors_give_the_same_answer(tiny, make_events):
    batch = EventBatch.pad([make_events(20), make_events(10, seed=1)])
    answer = TensorClassifier(tiny)(batch.x, batch.y, batch.t, batch.p, batch.rho, batch.valid)
    assert torch.equal(answer, tiny(batch))
