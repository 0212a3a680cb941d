"""What figures show: lines, bars, colours and numbers, read from the figure instead of its picture."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_recording, randomise
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from event2vec import Events, EventStore, ModelConfig, Sensor, Windows, build_model
from event2vec.data.labels import Span
from event2vec.evaluation.accuracy import Interval, wilson_interval
from event2vec.evaluation.calibration import BINS, Calibration
from event2vec.evaluation.evaluate import Evaluation
from event2vec.evaluation.figures import attention_maps, embedding_maps
from event2vec.evaluation.figures.clips import make_answered_clip, make_clip
from event2vec.evaluation.figures.comparison import GREYS, MARKERS, OURS, Dot, Line, draw_comparison, draw_sweeps
from event2vec.evaluation.figures.confusion import draw_confusion
from event2vec.evaluation.figures.curves import draw_curves, draw_sweep
from event2vec.evaluation.figures.reliability import AFTER, BEFORE, draw_reliability
from event2vec.evaluation.figures.samples import draw_samples, on_lines
from event2vec.evaluation.figures.timelines import COLUMNS, NO_ANSWER, _columns, draw_timeline
from event2vec.evaluation.sweeps import Point
from event2vec.evaluation.timeline import Timeline

SENSOR = Sensor(6, 4)
PATH = Path("unused.png")


@pytest.fixture
def figure_of(monkeypatch) -> Callable[..., Figure]:
    """The figure that a function draws, which is not rendered: that takes longer than all the rest."""

    def draw(function: Callable[..., Any], *arguments: Any) -> Figure:
        kept: list[Figure] = []
        module = import_module(function.__module__)
        monkeypatch.setattr(module, "save_figure", lambda figure, path: kept.append(figure))
        function(*arguments)
        (figure,) = kept
        import_module("matplotlib.pyplot").close(figure)
        return figure

    return draw


def found(*accuracies: float, recordings: int = 10) -> Evaluation:
    sure = Calibration.of(np.ones((10, 1)), np.zeros(10, np.int64), 1.0)
    return Evaluation(("a",), recordings, len(accuracies), 1, accuracies, None, np.zeros((1, 1), np.int64), sure)


def bars_of(container: Any) -> list[list[float]]:
    """The ends of the error bars of a container, from low to high."""
    (lines,) = container.lines[2]
    return [segment[:, 1].tolist() for segment in lines.get_segments()]


def test_confusion_is_true_classes_down_and_predicted_ones_across(figure_of):
    confusion = np.array([[3, 1, 0], [0, 2, 0], [0, 0, 0]])
    axis = figure_of(draw_confusion, confusion, ("a", "b", "c"), PATH, "title").axes[0]
    (picture,) = axis.get_images()
    assert picture.get_array().tolist() == [[75, 25, 0], [0, 100, 0], [0, 0, 0]], "a class without recordings is 0"
    assert picture.get_clim() == (0, 100)
    written = {text.get_position(): (text.get_text(), text.get_color()) for text in axis.texts}
    assert written == {(0, 0): ("75", "black"), (1, 0): ("25", "white"), (1, 1): ("100", "black")}
    assert (axis.get_xlabel(), axis.get_ylabel(), axis.get_title()) == ("predicted class", "true class", "title")
    many = figure_of(draw_confusion, np.eye(27, dtype=np.int64), tuple(map(str, range(27))), PATH, "").axes[0]
    assert not many.texts, "too many for numbers"


def test_curves_are_of_both_parts_and_accuracies_in_percent(figure_of):
    rows = [
        {"epoch": 1.0, "train_loss": 2.0, "validation_loss": 3.0, "train_accuracy": 0.5},
        {"epoch": 2.0, "train_loss": 1.0, "train_accuracy": 0.75, "validation_accuracy": 0.6},
    ]
    loss, accuracy = figure_of(draw_curves, rows, PATH, "title").axes
    lines = {line.get_label(): line for line in loss.lines}
    assert lines["train recordings"].get_xydata().tolist() == [[1, 2], [2, 1]]
    assert lines["validation recordings"].get_ydata()[0] == 3
    assert np.isnan(lines["validation recordings"].get_ydata()[1]), "an epoch without it is a gap"
    assert lines["train recordings"].get_linestyle() == "--"
    assert [line.get_ydata().tolist()[-1] for line in accuracy.lines] == [75, 60]
    assert (loss.get_ylabel(), accuracy.get_ylabel()) == ("loss", "accuracy (%)")
    (only,) = figure_of(draw_curves, rows[:1], PATH, "title").axes[1].lines
    assert only.get_marker() == "o", "a line of one point is invisible"
    assert lines["train recordings"].get_marker() == "None"


def test_pre_training_is_compared_with_the_mean_on_validation_where_there_is_some(figure_of):
    row = {"epoch": 1.0, "train_loss": 0.4, "train_loss_of_mean": 0.5, "train_x_error_pixels": 3.0}
    for more, expected in (({}, 0.5), ({"validation_loss_of_mean": 0.7}, 0.7)):
        loss, error = figure_of(draw_curves, [row | more], PATH, "title").axes
        (mean,) = [line for line in loss.lines if line.get_label() == "predicting the mean"]
        assert mean.get_ydata() == [expected]
        assert error.lines[0].get_ydata() == [3.0], "pixels are no percent"
        assert len(error.lines) == 1


def test_a_sweep_has_the_interval_of_each_point(figure_of):
    points = [Point(value, found(0.1 * value)) for value in (1, 4)]
    (axis,) = figure_of(draw_sweep, points, "resolution", PATH, "title").axes
    (container,) = axis.containers
    assert container.lines[0].get_xydata().tolist() == [[1, 10], [4, 40]]
    expected = [[100 * end for end in point.found.interval] for point in points]
    np.testing.assert_allclose(bars_of(container), expected)
    assert axis.get_xlabel() == "resolution (pixels per side)"
    assert axis.get_xscale() == "log"


def test_networks_are_told_apart_by_shape_and_ours_by_colour(figure_of):
    dots = [
        Dot("one", 10, 0.5, Interval(0.4, 0.7)),
        Dot("event2vec", 1000, 0.9, Interval(0.85, 0.92), ours=True),
        Dot("a\nb", 20, 0.6, Interval(0.5, 0.65)),
    ]
    figure = figure_of(draw_comparison, dots, "parameters", PATH)
    (axis,) = figure.axes
    points = [container.lines[0] for container in axis.containers]
    assert [tuple(point.get_xydata()[0]) for point in points] == [(10, 50), (1000, 90), (20, 60)]
    ends = [bars_of(each)[0] for each in axis.containers]
    np.testing.assert_allclose(ends, [[40, 70], [85, 92], [50, 65]])
    assert [point.get_marker() for point in points] == list(MARKERS[:3])
    assert [point.get_color() for point in points] == [GREYS[0], OURS, GREYS[2]]
    assert points[1].get_markersize() > points[0].get_markersize()
    assert axis.get_xscale() == "log"
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("parameters", "accuracy (%)")
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names[:2] == ["one", "event2vec"]
    assert "\n" not in names[2]


def test_sweeps_of_several_networks_share_an_axis_with_a_mark_for_each_value(figure_of):
    sweeps = [
        Line("event2vec-0", [Point(64, found(0.5)), Point(128, found(0.75))], ours=True),
        Line("frame_cnn", [Point(32, found(0.25)), Point(128, found(0.5))]),
    ]
    (axis,) = figure_of(draw_sweeps, sweeps, "events", PATH, "title").axes
    ours, other = axis.lines
    assert ours.get_xydata().tolist() == [[64, 50], [128, 75]]
    assert other.get_xydata().tolist() == [[32, 25], [128, 50]]
    assert (ours.get_color(), other.get_color()) == (OURS, GREYS[1])
    assert axis.get_xticks().tolist() == [32, 64, 128]
    assert axis.get_xlabel() == "events per recording"


def test_a_reliability_diagram_counts_recordings_once_however_often_they_were_drawn(figure_of):
    scores = np.array([[0.95, 0.05], [0.95, 0.05], [0.55, 0.45], [0.95, 0.05]])
    labels = np.array([0, 1, 0, 0])
    plain = Calibration.of(scores, labels, 1.0)
    upper, lower = figure_of(draw_reliability, plain, 2, PATH, "title").axes
    diagonal, *_ = upper.lines
    assert diagonal.get_xydata().tolist() == [[0, 0], [100, 100]]
    (container,) = upper.containers
    np.testing.assert_allclose(container.lines[0].get_xydata(), [[55.0, 100.0], [95.0, 200 / 3]])
    expected = [[100 * end for end in wilson_interval(*each)] for each in ((1.0, 1), (2 / 3, 2))]
    np.testing.assert_allclose(bars_of(container), expected)
    (bars,) = lower.containers
    heights = [bar.get_height() for bar in bars]
    assert len(heights) == BINS
    assert (heights[8], heights[14], sum(heights)) == (25, 75, 100)
    assert container.get_label() == f"scores: ECE {100 * plain.after.error:.1f} %"
    upper, lower = figure_of(draw_reliability, Calibration.of(scores, labels, 2.0), 2, PATH, "title").axes
    assert [each.lines[0].get_color() for each in upper.containers] == [BEFORE, AFTER]
    labels_shown = [each.get_label().partition(":")[0] for each in upper.containers]
    assert labels_shown == ["without a temperature", "temperature 2.00"]
    one, other = ([bar.get_x() for bar in bars] for bars in lower.containers)
    assert all(0 < b - a < 100 / BINS / 2 + 1 for a, b in zip(one, other, strict=True)), "side by side in their bin"


def test_samples_have_a_column_for_each_class_and_a_row_for_each_quarter(figure_of, tmp_path):
    events = Events.from_arrays([1, 2, 5, 4], [0, 3, 2, 1], [0, 30, 60, 100], [1, 0, 1, 0], sensor=SENSOR)
    other = Events.from_arrays([0], [0], [0], [1], sensor=SENSOR)
    recordings = [(other, 2), (events, 0), (events, 2)]
    store = EventStore.create(tmp_path / "store", recordings, sensor=SENSOR, classes=["a", "b", "c"])
    axes = figure_of(draw_samples, store, PATH).axes
    assert len(axes) == 4 * 2, "b has no recordings"
    assert [axis.get_title() for axis in axes[:2]] == ["a", "c"]
    quarters = [np.argwhere(axis.get_images()[0].get_array()).tolist() for axis in axes[::2]]
    assert quarters == [[[0, 1]], [[3, 2]], [[2, 5]], [[1, 4]]]
    assert axes[0].get_images()[0].get_array()[0, 1] == 1
    assert axes[2].get_images()[0].get_array()[3, 2] == -1
    assert axes[1].get_images()[0].get_array().sum() == 1, "the first recording of its class"
    assert [axis.get_ylabel().split()[0] for axis in axes[::2]] == ["first", "second", "third", "last"]


def test_names_of_classes_do_not_cover_each_other(figure_of, tmp_path):
    events, names = (
        Events.from_arrays([0], [0], [0], [1], sensor=SENSOR),
        ["left_arm_counter_clockwise", "hand clapping"],
    )
    recordings = [(events, 0), (events, 1)]
    store = EventStore.create(tmp_path / "store", recordings, sensor=SENSOR, classes=names)
    figure = figure_of(draw_samples, store, PATH)
    first, second = (axis.title for axis in figure.axes[:2])
    assert (first.get_text(), second.get_text()) == ("left_arm_\ncounter_\nclockwise", "hand\nclapping")
    figure.draw_without_rendering()
    assert first.get_window_extent().x1 < second.get_window_extent().x0


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("", ""),
        ("a", "a"),
        ("hand_clapping", "hand_\nclapping"),
        ("unbreakablename", "unbreakablename"),
        ("a b c", "a b c"),
    ],
)
def test_only_long_names_are_broken_and_none_is_cut(name, lines):
    assert on_lines(name) == lines


# ---- what networks learnt


def test_similarities_are_means_over_neighbours_and_over_polarities():
    grid = np.zeros((2, 2, 2, 3), np.float32)
    grid[0] = [[[1, 0, 0], [2, 0, 0]], [[0, 3, 0], [0, 0, 1]]]
    grid[1] = 5 * grid[0]
    assert embedding_maps.neighbour_similarity(grid[:1]) == pytest.approx(1 / 4), "one pair of four is alike"
    assert embedding_maps.neighbour_similarity(grid) == pytest.approx(1 / 4)
    assert embedding_maps.neighbour_similarity(grid[:, :1, :1]) == 1, "no neighbours at all"
    np.testing.assert_allclose(embedding_maps.polarity_similarity(grid), 1)
    grid[1] = -grid[0]
    grid[1, 0, 0] = 0
    np.testing.assert_allclose(embedding_maps.polarity_similarity(grid), [[0, -1], [-1, -1]])


def test_principal_components_are_those_of_a_singular_value_decomposition():
    random = np.random.default_rng((0, 0, 0))
    grid = (random.standard_normal((2, 5, 7, 6)) * [5, 3, 2, 1, 1, 1] + 4).astype(np.float32)
    found = embedding_maps.principal_components(grid, 3).reshape(-1, 3)
    flat = grid.reshape(-1, 6).astype(np.float64)
    _, _, axes = np.linalg.svd(flat - flat.mean(axis=0))
    expected = (flat - flat.mean(axis=0)) @ axes[:3].T
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-4)
    painted = embedding_maps.colours(grid)
    assert (painted.min(), painted.max()) == (0, 1)
    low, high = np.percentile(found, (1, 99), axis=0)
    np.testing.assert_allclose(painted.reshape(-1, 3), ((found - low) / (high - low)).clip(0, 1), atol=1e-5)


def test_embedding_maps_show_colours_similarity_and_a_field_of_each_network(figure_of):
    sensor = Sensor(40, 20)
    model = randomise(build_model(ModelConfig(sensor=sensor, classes=2, dim=16, heads=2, blocks=1)))
    axes = figure_of(embedding_maps.draw_embedding_maps, {"mine": model}, PATH).axes
    grid = embedding_maps.embedding_grid(model)
    for polarity in (0, 1):
        np.testing.assert_array_equal(
            axes[polarity].get_images()[0].get_array(), embedding_maps.colours(grid)[polarity]
        )
        (arrows,) = axes[3 + polarity].collections
        step = -(-40 // embedding_maps.ARROWS)
        field = embedding_maps.principal_components(grid, 2)[polarity, ::step, ::step].reshape(-1, 2)
        np.testing.assert_array_equal(arrows.U, field[:, 0])
        np.testing.assert_array_equal(arrows.V, -field[:, 1])
        assert arrows.get_offsets().tolist()[1] == [step, 0]
    np.testing.assert_array_equal(axes[2].get_images()[0].get_array(), embedding_maps.polarity_similarity(grid))
    assert axes[0].get_ylabel().startswith("mine\nneighbour similarity: ")


def test_attention_is_drawn_with_the_most_attended_events_on_top(figure_of):
    model = randomise(build_model(ModelConfig(sensor=SENSOR, classes=2, dim=16, heads=2, blocks=5, pooling=False)))
    events = make_recording(30, sensor=SENSOR)
    axes = figure_of(attention_maps.draw_attention, model, events, "title", PATH).axes
    received = attention_maps.attention_received(model, events)
    titled = [axis for axis in axes if axis.get_title()]
    assert [axis.get_title() for axis in titled] == [f"block {number}" for number in range(1, 6)]
    for axis, weights in zip(titled, received, strict=True):
        (points,) = axis.collections
        order = np.argsort(weights)
        np.testing.assert_allclose(points.get_array(), weights[order])
        assert points.get_offsets().tolist() == [[float(events.x[n]), float(events.y[n])] for n in order]
        assert points.get_clim() == (0, pytest.approx(np.percentile(received, 99)))
        assert axis.get_ylim() == (4, -1), "y points down, as in the camera"


# ---- answers over time


def answered(labels: list[int], numbers: list[int], step: int = 100_000) -> Timeline:
    windows = Windows(window=0.1)
    starts = np.array(numbers) * step
    scores = np.eye(3)[np.maximum(labels, 0)] * 0.7 + 0.1
    count = np.array(10 * (1 + np.arange(len(labels))))
    both = np.array(labels), np.array(labels)
    last = int(starts[-1]) + 100_000 - 1
    names = ("a", "b", "c")
    return Timeline(names, windows, np.array(numbers), starts, starts + 100_000, count, scores, *both, last, 0, None)


def test_the_columns_of_a_timeline_hold_the_highest_value_of_their_windows():
    timeline = answered([0, 1, 2], [0, 1, 4])
    edges, (picture,) = _columns(timeline, np.array([[3.0], [7.0], [5.0]]))
    assert (edges[0], edges[-1], len(picture)) == (0, 500_000, COLUMNS)
    centres = (edges[1:] + edges[:-1]) / 2
    expected = np.select([centres < 1e5, centres < 2e5, centres > 4e5], [3.0, 7.0, 5.0], np.nan)
    inside = np.abs(centres[:, None] - [1e5, 2e5, 4e5]).min(axis=1) > 1000
    np.testing.assert_array_equal(picture[inside], expected[inside])
    many = answered([0] * 3000, list(range(3000)))
    values = np.zeros((3000, 1))
    values[1234] = 9
    assert np.nanmax(_columns(many, values)[1]) == 9, "no window is lost where several share a column"


def test_a_timeline_shows_answers_labels_scores_and_rates(monkeypatch, tmp_path):
    kept: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *arguments, **more: kept.append(figure))
    monkeypatch.setattr("event2vec.evaluation.figures.timelines.whole_file", Nowhere)
    timeline = answered([0, 0, -1, 2], [0, 1, 2, 4])
    labels = [Span("", 5_000_000, 5_150_000, "b", on_clock=True)]
    draw_timeline(timeline, tmp_path / "x.png", "title", labels, clock=5_000_000)
    bar, scores, rate = kept[0].axes
    given, wanted = bar.collections
    places = [path.get_extents().get_points()[:, 0].tolist() for path in given.get_paths()]
    np.testing.assert_allclose(places, [[0, 0.2], [0.2, 0.3], [0.3, 0.4], [0.4, 0.5]])
    colours = [to_hex(colour) for colour in given.get_facecolor()]
    assert colours[1] == colours[2] == NO_ANSWER, "unknown, and nothing"
    assert len({*colours}) == 3
    np.testing.assert_allclose(wanted.get_paths()[0].get_extents().get_points()[:, 0], [0, 0.15])
    assert [text.get_text() for text in bar.get_yticklabels()] == ["answer", "label"]
    picture = scores.get_images()[0].get_array()
    assert picture.shape == (3, COLUMNS)
    np.testing.assert_allclose(picture[:, 10], [0.8, 0.1, 0.1])
    assert [text.get_text() for text in scores.get_yticklabels()] == ["a", "b", "c"]
    (steps,) = rate.patches
    assert steps.get_data().values[[10, -10]].tolist() == pytest.approx([100, 400]), "events per second"
    assert steps.get_data().edges[-1] == pytest.approx(0.5)


class Nowhere:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None: ...


def test_of_many_classes_a_timeline_shows_those_with_the_highest_scores(monkeypatch, tmp_path):
    kept: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *arguments, **more: kept.append(figure))
    monkeypatch.setattr("event2vec.evaluation.figures.timelines.whole_file", Nowhere)
    timeline = answered([0], [0])
    scores = np.linspace(0, 1, 20)[None]
    names = tuple(f"class {number}" for number in range(20))
    many = replace(timeline, class_names=names, scores=scores)
    draw_timeline(many, tmp_path / "x.png", "title")
    bar, shown, _ = kept[0].axes
    assert [text.get_text() for text in shown.get_yticklabels()] == [f"class {number}" for number in range(4, 20)]
    assert len(bar.get_yticklabels()) == 1, "no labels were given"


def test_a_clip_of_answers_begins_with_the_first_event_that_it_shows():
    timeline = answered([0, 0, -1, 2], [0, 1, 2, 4])
    events = Events.from_arrays([1, 2, 3], [0, 1, 2], [0, 10, 20], [1, 0, 1], sensor=SENSOR)
    shown = Events(events.x, events.y, torch.tensor([150_000, 200_000, 450_000]), events.p, events.rho, SENSOR)
    labels = [Span("", 1_000_000, 1_120_000, "b", on_clock=True), Span("", 1_300_000, 1_460_000, "c", on_clock=True)]
    clip = make_answered_clip(timeline, shown, 77, "title", labels, clock=1_000_000)
    assert [(part.start, part.stop, part.name, part.label) for part in clip.answers] == [
        (0, 50_000, "a", 0),
        (50_000, 150_000, "unknown", None),
        (150_000, 250_000, "nothing", None),
        (250_000, 300_000, "c", 2),
    ]
    assert [(part.start, part.stop, part.name, part.label) for part in clip.truth] == [(150_000, 300_000, "c", 2)]
    assert clip.recorded == 77


def test_a_clip_says_what_the_network_answered_and_whether_it_is_right():
    model = randomise(
        build_model(ModelConfig(sensor=SENSOR, classes=3, dim=16, heads=2, blocks=1), class_names=("a", "b", "c"))
    )
    raw = make_recording(40, sensor=SENSOR)
    (scores,) = model.scores([raw])
    answer = "abc"[int(scores.argmax())]
    other = "b" if answer == "a" else "a"
    right, wrong = make_clip(model, raw, raw, answer), make_clip(model, raw, raw, other)
    assert (right.title, right.right) == (answer, True)
    assert right.verdict == f"prediction {answer} ({float(scores.max()):.0%}), correct"
    assert (wrong.title, wrong.right) == (f"{other}, classified as {answer}", False)
    assert wrong.verdict.endswith(f"true class {other}")
