"""From a file to what a network reads without torch: numpy arrays give what tensors give."""

import subprocess
import sys

import numpy as np
import pytest
from conftest import assert_same
from golden.make import FOLDER

from event2vec import EventBatch, Events, Sampling, Windows, read_events
from event2vec.data.sampling import draw_events
from event2vec.events import COLUMNS
from event2vec.io import read_arrays
from event2vec.io.chunks import decode_chunks, read_chunks

FILES = sorted((FOLDER / "recordings").glob("3/*"))


@pytest.fixture(scope="module")
def events():
    return read_events(FOLDER / "recordings/3/aedat4.aedat4")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_format_gives_the_same_columns(path):
    arrays, tensors = read_arrays(path), read_events(path)
    assert all(isinstance(getattr(arrays, name), np.ndarray) for name in COLUMNS)
    assert_same(arrays.torch(), tensors)


@pytest.mark.parametrize("name", ["evt3.raw", "csv.csv"])
def test_chunks_are_parts_of_the_same_columns(name):
    path = FOLDER / "recordings/3" / name
    parts = list(decode_chunks(path, segment=256))
    assert len(parts) > 1
    assert_same(Events.join(parts).torch(), Events.join(list(read_chunks(path, segment=256))))
    assert_same(Events.join(parts).torch(), read_events(path))


@pytest.mark.parametrize("method", ["random", "clusters", "temporal", "spatial", "density"])
def test_the_same_events_are_drawn_from_arrays(method, events):
    sampling = Sampling(method=method, length=64)
    drawn = draw_events(events.arrays(), sampling, 3, 1, 4)
    assert isinstance(drawn.t, np.ndarray)
    assert_same(drawn.torch(), draw_events(events, sampling, 3, 1, 4))


def test_what_is_done_to_tensors_can_be_done_to_arrays(events):
    arrays = events.arrays()
    assert np.shares_memory(arrays.x, events.x.numpy())
    assert arrays.rho.strides == (0,), "a raw recording has one rho"
    assert_same(arrays.on_sensor("128x96").torch(), events.on_sensor("128x96"))
    assert_same(arrays.between(10_000, 60_000).torch(), events.between(10_000, 60_000))
    assert arrays.on_pixels == events.on_pixels
    np.testing.assert_array_equal(arrays.numpy(), events.numpy())
    windows = Windows(window=0.05, stride=0.02)
    for one, other in zip(windows.cut(arrays), windows.cut(events), strict=True):
        assert one[:3] == other[:3]
        assert_same(one.events.torch(), other.events)
    batch, tensors = EventBatch.pad([arrays, arrays[:7]]), EventBatch.pad([events, events[:7]])
    for name in (*COLUMNS, "valid"):
        np.testing.assert_array_equal(getattr(batch, name), getattr(tensors, name))
    assert_same(batch.torch().row(1), tensors.row(1))


ALONE = """
import sys
from event2vec.data.sampling import Sampling, draw_events
from event2vec.io import read_arrays
from event2vec.io.chunks import decode_chunks
from event2vec.events import EventBatch
events = [read_arrays(path) for path in sys.argv[1:]]
for method in ("random", "clusters"):
    EventBatch.pad([draw_events(each.on_sensor("34x34"), Sampling(method=method, length=32), 0, 0) for each in events])
list(decode_chunks(sys.argv[1], segment=256))
assert not {"torch", "lightning"} & set(sys.modules), "imported"
"""


def test_none_of_it_imports_torch():
    subprocess.run([sys.executable, "-c", ALONE, *map(str, FILES)], check=True, timeout=300)
