"""The stream's clock and the ring of its newest events."""

import numpy as np
import pytest
from conftest import make_recording
from streams import SENSOR, chunk_of

from event2vec.streaming.chunk import Chunk, StreamClock
from event2vec.streaming.ring import LARGEST, SMALLEST, Ring


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_times_of_32_bits_go_on_after_71_minutes(size):
    true = np.arange(0, 3 * 2**32, 2**32 // 500)
    clock = StreamClock()
    found = np.concatenate(
        [clock.follow(part.astype(np.uint32)) for part in np.array_split(true + 5, len(true) // size)]
    )
    assert (found == true).all()
    assert (clock.late, clock.restarts) == (0, 0)


def test_late_events_are_counted_and_the_clock_never_goes_back():
    clock = StreamClock()
    assert clock.follow(np.array([100, 300, 200, 400])).tolist() == [0, 200, 200, 300]
    assert clock.follow(np.array([350, 500])).tolist() == [300, 400], "late by a packet"
    assert (clock.late, clock.restarts) == (2, 0)
    assert clock.follow(np.array([], np.int64)).tolist() == []


@pytest.mark.parametrize("bits", [32, 64])
def test_a_sender_that_starts_again_goes_on_where_the_stream_was(bits):
    clock = StreamClock(bits)
    clock.follow(np.array([10, 50_000_000]))
    assert clock.follow(np.array([3, 1003])).tolist() == [49_999_990, 50_000_990]
    assert clock.restarts == 1


def test_the_ring_holds_the_newest_window_whatever_the_chunks():
    random, ring, start = np.random.default_rng(0), Ring(), 0
    kept: list[Chunk] = []
    for size in random.integers(1, 30_000, 60):
        part = make_recording(int(size), seed=int(size), sensor=SENSOR, duration=10_000)
        chunk = chunk_of(part, start)
        ring.write(chunk, 50_000)
        start = int(chunk.t[-1])
        kept = [*kept, chunk][-20:]
        view = ring.view().since(start - 50_000)
        t = np.concatenate([one.t for one in kept])
        wanted = t > start - 50_000
        for found, name in zip(view.all(), "xytp", strict=True):
            assert (found == np.concatenate([getattr(one, name) for one in kept])[wanted]).all()
        positions = random.integers(0, len(view), 100)
        assert (view.take(positions)[2] == view.all()[2][positions]).all()
        assert view.intact
    assert len(ring._columns[0]) > SMALLEST, "it grew with the window"


def test_a_ring_that_grows_gives_only_events_that_were_written(monkeypatch):
    monkeypatch.setattr(np, "empty", lambda size, kind: np.full(size, 77, kind))  # memory that somebody used before
    ring, first, second = Ring(), make_recording(70_000), make_recording(40_000)
    for start in range(0, len(first), 10_000):
        ring.write(chunk_of(first[start : start + 10_000]), 0)
    assert len(ring._columns[0]) == SMALLEST
    ring.write(chunk_of(second, 1_000_000), 10**9)
    assert len(ring._columns[0]) > 2 * SMALLEST
    x, _, t, _ = ring.view().all()
    wanted = np.concatenate([first.t.numpy()[-SMALLEST // 2 :], second.t.numpy() + 1_000_000])
    assert (t == wanted).all()
    assert (x[-40_000:] == second.x.numpy()).all()
    ring.write(chunk_of(second, 2_000_000), 10**9)
    assert (ring.view().all()[2][: len(wanted)] == wanted).all()


def test_a_view_knows_that_it_was_written_over():
    ring = Ring()
    ring.write(chunk_of(make_recording(1000)), 0)
    view = ring.view()
    for _ in range(2 * SMALLEST // 1000):
        ring.write(chunk_of(make_recording(1000)), 0)
    assert not view.intact
    assert len(ring._columns[0]) == SMALLEST, "without a window to keep it does not grow"


def test_the_ring_is_bounded(monkeypatch):
    monkeypatch.setattr("event2vec.streaming.ring.LARGEST", 2 * SMALLEST)
    ring = Ring()
    for number in range(10):
        ring.write(chunk_of(make_recording(40_000), number * 300_000), 100_000)
    assert not ring.short, "a third of a chunk fits"
    for number in range(10, 20):
        ring.write(chunk_of(make_recording(40_000), number * 300_000), 10**9)
    assert ring.short
    assert len(ring._columns[0]) == 2 * SMALLEST
    assert len(ring.view()) == SMALLEST
    ring.write(chunk_of(make_recording(200_000)), 10**9)
    assert len(ring.view()) == SMALLEST
    assert LARGEST * 13 < 250e6
