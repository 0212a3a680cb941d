"""Pictures show the events that they are of."""

import base64
import re
from dataclasses import replace
from typing import cast

import matplotlib.image
import numpy as np
import pytest
import torch
from conftest import randomise

from event2vec import Event2VecError, EventBatch, Events, EventStore, ModelConfig, Sensor, build_model
from event2vec.evaluation.calibration import Calibration
from event2vec.evaluation.evaluate import Evaluation
from event2vec.evaluation.figures.attention_maps import attention_received, directed_weights, draw_attention
from event2vec.evaluation.figures.clips import make_clip, nearest_tokens
from event2vec.evaluation.figures.confusion import draw_confusion
from event2vec.evaluation.figures.curves import draw_curves, draw_sweep
from event2vec.evaluation.figures.embedding_maps import draw_embedding_maps, embedding_grid, polarity_similarity
from event2vec.evaluation.figures.samples import _moments, draw_samples
from event2vec.evaluation.sweeps import Point
from event2vec.model.attention import Bidirectional, ForgettingDirection
from event2vec.model.classifier import Event2VecClassifier
from event2vec.model.masked import MaskedEventModel
from event2vec.model.rows import reverse

SENSOR = Sensor(6, 4)


def texts(picture):
    """All that is written in a picture, which matplotlib notes beside the outlines of the letters."""
    return re.findall(r"<!-- (.*?) -->", picture.with_suffix(".svg").read_text("utf-8"))


def test_a_moment_shows_the_last_change_at_each_pixel():
    events = Events.from_arrays([1, 1, 2, 5], [0, 0, 3, 2], [0, 10, 60, 100], [1, 0, 1, 0], sensor=SENSOR)
    first, second, third, last = _moments(events)
    assert first[0, 1] == -1, "the later of two"
    assert (abs(first).sum(), abs(second).sum()) == (1, 0)
    assert third[3, 2] == 1
    assert last[2, 5] == -1


@pytest.mark.parametrize("count", [1, 30])
def test_a_picture_is_drawn_for_each_class(count, make_events, tmp_path):
    recordings = [(make_events(count, seed=label), label) for label in (0, 1, 2)]
    store = EventStore.create(tmp_path / "store", recordings, sensor=Sensor(34, 30), classes=["a", "b", "c"])
    draw_samples(store, tmp_path / "out" / "samples.png")
    assert [text for text in texts(tmp_path / "out" / "samples.png") if text in "abc"] == ["a", "b", "c"]
    draw_samples(store, tmp_path / "two.png", classes=2)
    assert [text for text in texts(tmp_path / "two.png") if text in "abc"] == ["a", "b"]


def test_curves_have_a_panel_for_each_metric(tmp_path):
    rows = [
        {"epoch": epoch, "train_loss": 2 / epoch, "validation_loss": 3 / epoch, "train_accuracy": 0.1 * epoch}
        for epoch in (1.0, 2.0, 3.0)
    ]
    for count in (1, 3):
        draw_curves(rows[:count], tmp_path / "curves.png", "title")
        height, width, _ = matplotlib.image.imread(tmp_path / "curves.png").shape
        assert width > 2 * height, "two panels side by side"


def test_curves_of_pre_training_show_what_the_mean_would_cost(tmp_path):
    row = {"epoch": 1.0, "train_loss": 0.4, "train_loss_of_mean": 0.5}
    for rows, shown in (([row], True), ([{"epoch": 1.0, "train_loss": 0.4}], False)):
        draw_curves(rows, tmp_path / "curves.png", "title")
        assert ("predicting the mean" in (tmp_path / "curves.svg").read_text("utf-8")) == shown


@pytest.mark.parametrize("classes", [2, 40])
def test_confusion_is_drawn_in_percent_of_each_class(tmp_path, classes):
    confusion = np.eye(classes, dtype=np.int64) * 3
    confusion[1] = 0  # a class without recordings
    names = tuple(f"class {number}" for number in range(classes))
    draw_confusion(confusion, names, tmp_path / "confusion.png", "title")
    picture = matplotlib.image.imread(tmp_path / "confusion.png")
    yellow = np.abs(picture[..., :3] - np.array([0.993, 0.906, 0.144])).max(axis=-1) < 0.02
    assert yellow.mean() > 0.2 / classes, "the diagonal is full"


TINY = ModelConfig(sensor=SENSOR, classes=3, dim=16, hidden=16, heads=2, blocks=2)


def test_smooth_embeddings_are_told_from_noise(tmp_path):
    sensor = Sensor(34, 30)
    models: dict[str, Event2VecClassifier | MaskedEventModel] = {
        kind: randomise(build_model(replace(TINY, sensor=sensor, spatial=kind))) for kind in ("parametric", "lookup")
    }
    similar = draw_embedding_maps(models, tmp_path / "maps.png")
    assert similar["parametric"] > 0.95
    assert abs(similar["lookup"]) < 0.1
    assert all(any(kind in text for text in texts(tmp_path / "maps.png")) for kind in models)


def test_a_grid_holds_the_vector_of_each_pixel():
    model = randomise(build_model(TINY))
    grid = embedding_grid(model)
    events = Events.from_arrays([5], [2], [0], [1], sensor=SENSOR)
    vector = model.embed.spatial(EventBatch.pad([events]))[0, 0]
    np.testing.assert_allclose(grid[1, 2, 5], vector.detach().numpy(), atol=1e-6)
    falling, rising = grid[0, 2, 5], grid[1, 2, 5]
    cosine = falling @ rising / np.linalg.norm(falling) / np.linalg.norm(rising)
    assert polarity_similarity(grid)[2, 5] == pytest.approx(cosine)


@pytest.mark.parametrize(
    "settings",
    [{"pooling": False}, {"pooling": True}, {"pooling": False, "shared": False}, {"pooling": True, "relative": True}],
    ids=str,
)
def test_attention_is_what_the_forward_pass_used(settings, make_events):
    """The weights that are drawn, times the values, are what attention answered in the forward pass."""
    model = randomise(build_model(replace(TINY, **settings)))
    events, answers = make_events(21, sensor=SENSOR), []
    module = next(part for part in model.modules() if isinstance(part, Bidirectional))
    hook = module.register_forward_hook(lambda module, inputs, output: answers.append((inputs, output)))
    received = attention_received(model, events)
    hook.remove()
    (tokens, rows), answer = answers[0]
    turn = rows.turn
    before, after = directed_weights(module, tokens, rows)
    assert received.shape == (2, 21)
    np.testing.assert_allclose(received.sum(axis=1), 21, rtol=1e-5)

    def times_values(weights, values):
        return (weights @ values.transpose(1, 2).repeat_interleave(2, dim=1)).transpose(1, 2)

    ahead, back = (cast(ForgettingDirection, module.directions[place]) for place in (0, -1))
    first = times_values(before, ahead.project(tokens, rows)[2])
    second = reverse(times_values(after, reverse(back.project(tokens, rows)[2], turn)), turn)
    both = torch.cat([rows.rotate_back(side).flatten(2) for side in (first, second)], dim=-1)
    torch.testing.assert_close(module.output(both), answer, atol=1e-5, rtol=1e-4)
    mean = (before.mean(dim=(1, 2)) + after.mean(dim=(1, 2)).flip(-1))[0] / 2
    np.testing.assert_allclose(received[0], (mean / mean.sum() * 21).detach().numpy(), atol=1e-5)


def test_attention_is_drawn_and_gated_attention_has_none(tmp_path, make_events):
    events = make_events(30, sensor=SENSOR)
    draw_attention(randomise(build_model(TINY)), events, "title", tmp_path / "attention.png")
    assert "title" in texts(tmp_path / "attention.png")
    gated = build_model(replace(TINY, attention="gated_linear"))
    with pytest.raises(Event2VecError, match="no weights to draw"):
        attention_received(gated, events)


def test_a_picture_is_the_same_file_every_time_and_is_there_for_print_too(tmp_path):
    rows = [{"epoch": 1.0, "train_loss": 2.0}, {"epoch": 2.0, "train_loss": 1.0}]
    for name in ("one", "other"):
        draw_curves(rows, tmp_path / f"{name}.png", "title")
    for kind in ("png", "svg"):
        assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"other.{kind}").read_bytes()
    assert (tmp_path / "one.svg").read_text("utf-8").count("<svg") == 1


def test_an_event_shows_the_attention_of_the_nearest_token_of_its_polarity():
    events = Events.from_arrays([0, 5, 5, 1], [0, 0, 3, 1], [0, 10, 90, 100], [1, 1, 0, 0], sensor=SENSOR)
    tokens = Events.from_arrays([4, 1, 0, 5], [0, 0, 0, 3], [0, 20, 80, 100], [1, 1, 0, 0], sensor=SENSOR)
    assert nearest_tokens(events, tokens).tolist() == [1, 0, 3, 2]
    assert nearest_tokens(events, tokens.select(slice(0, 1))).tolist() == [0, 0, 0, 0]


def test_a_clip_holds_the_events_and_what_each_receives(make_events):
    model = randomise(build_model(TINY, class_names=("a", "b", "c")))
    raw = make_events(40, sensor=SENSOR)
    clip = make_clip(model, raw, raw, "b")
    received = attention_received(model, raw)
    assert clip.attention.shape == (2, 40)
    for row, mine in zip(received, clip.attention, strict=True):
        shown = mine.astype(float) * np.percentile(row, 99) / 255
        assert np.abs(shown - row.clip(max=np.percentile(row, 99))).max() < 0.01 * row.max(), "each event is a token"
    facts = clip.facts()
    assert np.frombuffer(base64.b64decode(facts["columns"]["t"]), "<f8").tolist() == raw.t.tolist()
    assert facts["right"] == (model.predict(raw).name == "b")
    gated = build_model(replace(TINY, attention="gated_linear"))
    assert make_clip(gated, raw, raw, "b").facts()["columns"]["attention"] == []


def test_names_are_text_and_no_formulas(tmp_path):
    draw_confusion(np.eye(2, dtype=np.int64), ("$x^$", "$"), tmp_path / "confusion.png", "$_$")
    assert "$x^$" in re.sub(r"<!--|-->", "", (tmp_path / "confusion.svg").read_text("utf-8"))


@pytest.mark.parametrize("count", [17, 21, 33, 100])
def test_events_that_share_a_pooled_token_share_what_it_receives(count, make_events):
    """After three stages of pooling eight neighbours are one token; what is over at the end is fewer."""
    model = randomise(build_model(replace(TINY, blocks=4, pooling=True)))
    received = attention_received(model, make_events(count, sensor=SENSOR))
    for block, events in enumerate(received):
        size = 2**block
        starts = [place for place in range(1, count) if events[place] != events[place - 1]]
        assert starts == list(range(size, count, size))


def found(*accuracies):
    sure = Calibration.of(np.ones((10, 1)), np.zeros(10, np.int64), 1.0)
    return Evaluation(("a",), 10, len(accuracies), 1, accuracies, None, np.zeros((1, 1), np.int64), sure)


@pytest.mark.parametrize("name", ["events", "resolution", "windows"])
def test_a_sweep_is_a_curve(tmp_path, name):
    points = [Point(value, found(0.1 * value, 0.1 * value + 0.01)) for value in (1, 2, 4)]
    draw_sweep(points, name, tmp_path / "sweep.png", "title")
    written = texts(tmp_path / "sweep.png")
    assert written[:3] == ["1", "2", "4"], "a mark for each value"
    assert any(text.startswith(name) for text in written)
