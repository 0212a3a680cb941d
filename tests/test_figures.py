"""Pictures show the events that they are of."""

import matplotlib.image
import pytest

from event2vec import Events, EventStore, Sensor
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
