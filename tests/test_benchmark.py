"""Benchmarks measure what they say, on sizes small enough for a test."""

import numpy as np

from event2vec.benchmark import clustering, data, reading
from event2vec.benchmark.measure import best_seconds, peak_bytes


def test_the_best_round_of_each_side_counts():
    order = []
    seconds = best_seconds({"one": lambda: order.append(1), "two": lambda: order.append(2)}, rounds=3)
    assert order == [1, 2, 1, 2, 1, 2], "sides take turns"
    assert all(0 < value < 1 for value in seconds.values())


def test_peak_memory_is_that_of_the_call():
    assert 90e6 < peak_bytes(np.ones, (10,), 12_500_000) < 150e6


def test_data_is_measured_on_both_sides(monkeypatch):
    monkeypatch.setattr(data, "RECORDINGS", 3)
    monkeypatch.setattr(data, "EVENTS", 5000)
    (row,) = data.measure_data()
    assert row["times faster"] == row["npz ms"] / row["store ms"]


def test_reading_is_measured_on_made_files_and_given_ones(monkeypatch, shared_data):
    monkeypatch.setattr(reading, "ADAPTED", 2000)
    monkeypatch.setattr(reading, "LONG", 20_000)
    monkeypatch.setattr(reading, "ROUNDS", 1)
    rows = reading.measure_reading(shared_data / "recordings")
    assert [row["file"] for row in rows][:3] == ["made.aedat4", "made_evt2.raw", "made_evt3.raw"]
    assert {"evt2.raw", "evt3.raw", "davis346.aedat4"} <= {row["file"] for row in rows}
    assert [row["events"] for row in rows[-2:]] == [20_000, 20_000]


def test_clustering_is_measured_with_its_growth(monkeypatch):
    monkeypatch.setattr(clustering, "SIZES", (300, 900))
    monkeypatch.setattr(clustering, "CLUSTERS", (16, 32))
    monkeypatch.setattr(clustering, "ROUNDS", 1)
    monkeypatch.setattr(clustering, "_memory", lambda events, clusters: {"events": len(events)})  # eight processes
    rows = clustering.measure_clustering(None)
    assert [(row["events"], row["clusters"]) for row in rows[:4]] == [(300, 16), (300, 32), (900, 16), (900, 32)]
    assert all(0.5 < row["inertia ours"] < 1.5 for row in rows[:4])
    assert [row["clusters"] for row in rows[-2:]] == [16, 32]
    assert all(row["events grow"] == 3 for row in rows[-2:])
