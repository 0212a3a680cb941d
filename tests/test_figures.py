"""Pictures show the events that they are of."""

import matplotlib.image
import numpy as np
import pytest

from event2vec import Events, EventStore, Sensor
from event2vec.figures.confusion import draw_confusion
from event2vec.figures.curves import draw_curves
from event2vec.figures.report import Answer, write_report
from event2vec.figures.samples import _moments, draw_samples

SENSOR = Sensor(6, 4)


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
    assert matplotlib.image.imread(tmp_path / "out" / "samples.png").shape[0] > 300


def test_curves_have_a_panel_for_each_metric(tmp_path):
    rows = [
        {"epoch": epoch, "train_loss": 2 / epoch, "test_loss": 3 / epoch, "train_accuracy": 0.1 * epoch}
        for epoch in (1.0, 2.0, 3.0)
    ]
    for count in (1, 3):
        draw_curves(rows[:count], tmp_path / "curves.png", "title")
        height, width, _ = matplotlib.image.imread(tmp_path / "curves.png").shape
        assert width > 2 * height, "two panels side by side"


@pytest.mark.parametrize("classes", [2, 40])
def test_confusion_is_drawn_in_percent_of_each_class(tmp_path, classes):
    confusion = np.eye(classes, dtype=np.int64) * 3
    confusion[1] = 0  # a class without recordings
    names = tuple(f"class {number}" for number in range(classes))
    draw_confusion(confusion, names, tmp_path / "confusion.png", "title")
    picture = matplotlib.image.imread(tmp_path / "confusion.png")
    yellow = np.abs(picture[..., :3] - np.array([0.993, 0.906, 0.144])).max(axis=-1) < 0.02
    assert yellow.mean() > 0.2 / classes, "the diagonal is full"


def test_a_report_is_one_page_with_its_mistakes_marked(tmp_path, make_events):
    (tmp_path / "recipe.yaml").write_text("name: <mine>\n")
    events = make_events(200)
    answers = [Answer(events, "a", {"a": 0.9, "b": 0.1}), Answer(events, "b<i>", {"a": 0.6, "b<i>": 0.4})]
    facts = {
        "accuracy": 0.5,
        "accuracy_std": 0.1,
        "repeats": 2,
        "recordings": 2,
        "class_names": ["a", "b<i>"],
        "per_class": {"a": 1.0, "b<i>": None},
    }
    write_report(tmp_path, facts, answers, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "50.0 % ± 10.0" in page
    assert page.count("<span class=wrong>") == 1
    assert "really b&lt;i&gt;" in page
    assert "name: &lt;mine&gt;" in page
    assert page.count("data:image/png;base64,") == 2
