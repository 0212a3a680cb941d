"""Benchmarks measure what they say, on sizes small enough for a test."""

import numpy as np
import pytest
import torch
from conftest import SMALL, make_recording

from event2vec import Event2VecError, ModelConfig, Sampling, build_model, write_events
from event2vec.benchmark import attention, clustering, data, model, reading
from event2vec.benchmark.measure import best_seconds, peak_bytes
from event2vec.benchmark.summary import compare, summarise
from event2vec.devices import CPU, Compute
from event2vec.evaluation import speed
from event2vec.evaluation.speed import largest_batch, quickest_batch


def test_the_best_round_of_each_side_counts():
    order = []
    seconds = best_seconds({"one": lambda: order.append(1), "two": lambda: order.append(2)}, rounds=3)
    assert order == [1, 2, 1, 2, 1, 2], "sides take turns"
    assert all(0 < value < 1 for value in seconds.values())


def test_peak_memory_is_that_of_the_call():
    assert 90e6 < peak_bytes(np.ones, (10,), 12_500_000) < 150e6


def test_a_summary_has_the_spread_of_each_ratio():
    rows = [{"events": count, "ours ms": 3.0, "x faiss": ratio} for count, ratio in ((10, 4.0), (20, 2.0), (30, 9.0))]
    (found,) = summarise({"clustering": [*rows, {"events": 40, "x faiss": "-"}]})
    assert found == {"part": "clustering", "ratio": "x faiss", "lowest": 2.0, "middle": 4.0, "highest": 9.0}


def test_a_comparison_is_of_rows_about_the_same():
    before = {"model": [{"batch": 1, "ms": 4.0}, {"batch": 8, "ms": 9.0}], "data": [{"batch": 1, "ms": 1.0}]}
    now = {"model": [{"batch": 8, "ms": 3.0, "new": 1.0}, {"batch": 2, "ms": 7.0}]}
    (change,) = compare(before, now)
    assert change == {"part": "model", "of": "8", "figure": "ms", "before": 9.0, "now": 3.0, "now / before": 1 / 3}


def test_data_is_measured_on_both_sides(monkeypatch):
    """Decompressing 50,000 events to keep 64 takes far longer than reading 64."""
    monkeypatch.setattr(data, "RECORDINGS", 3)
    monkeypatch.setattr(data, "EVENTS", 50_000)
    monkeypatch.setattr(data, "LENGTH", 64)
    (row,) = data.measure_data()
    assert row["batch"] == "3 x 64 of 50,000 events"
    assert 0 < row["store ms"] < row["npz ms"]
    assert row["times faster"] > 1


def test_data_that_differs_between_the_sides_is_not_measured(monkeypatch):
    monkeypatch.setattr(data, "RECORDINGS", 2)
    monkeypatch.setattr(data, "EVENTS", 2000)
    load = data._load
    monkeypatch.setattr(data, "_load", lambda file: load(file).select(slice(1, None)))
    with pytest.raises(AssertionError, match="both sides must draw the same events"):
        data.measure_data()


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


def test_attention_is_measured_on_three_sides(monkeypatch):
    monkeypatch.setattr(attention, "SHAPES", [(1, 1, 64, 8), (1, 1, 128, 8)])
    monkeypatch.setattr(attention, "WRITTEN_OUT_UP_TO", 64)
    monkeypatch.setattr(attention, "peak_bytes", lambda *_: 2**20)
    rows = attention.measure_attention()
    assert [row["pass"] for row in rows] == ["forward", "with gradients"] * 2
    assert rows[0]["folded / plain"] == rows[0]["folded ms"] / rows[0]["plain ms"]
    assert rows[2]["written out ms"] == "-"


def test_networks_are_measured_against_the_limit(monkeypatch):
    monkeypatch.setattr(model, "BATCHES", (2,))
    monkeypatch.setattr(model, "RAW_EVENTS", 500)
    monkeypatch.setattr(model, "PAPER", {"asl_dvs": (model.PAPER["asl_dvs"][0], Sampling(length=64))})
    monkeypatch.setattr(model, "peak_bytes", lambda *_: 2**20)
    throughput, table2 = model.measure_model("asl_dvs")
    ratio = throughput["inference ms"] / throughput["inference limit ms"]
    assert throughput["inference / limit"] == pytest.approx(ratio)
    assert throughput["training limit ms"] == pytest.approx(3 * throughput["inference limit ms"])
    assert table2["parameters"] == 71_580
    assert (table2["recordings"], table2["raw events"], table2["tokens"]) == (1, 500, "64 random")
    with pytest.raises(Event2VecError, match="unknown recipe 'dvs', expected one of asl_dvs"):
        model.measure_model("dvs")


def test_speed_is_measured_on_every_recording_with_its_deviation(monkeypatch):
    config, sampling = ModelConfig(sensor=SMALL, dim=16, hidden=16, blocks=1), Sampling(length=32)
    prepared, shorten = [], speed._shorten
    monkeypatch.setattr(
        speed, "_shorten", lambda sampling, events: prepared.append(events) or shorten(sampling, events)
    )
    recordings = [make_recording(count) for count in (50, 40, 30)]
    for compute in (CPU, Compute(CPU.device, "bf16-mixed")):
        found = speed.measure_speed(build_model(config, sampling=sampling), recordings, compute)
        assert {id(events) for events in prepared} == {id(events) for events in recordings}
        for name in ("preparing ms", "forward ms", "total ms", "inference recordings/s", "training recordings/s"):
            assert found[name] > 0
            assert found[f"{name} ±"] > 0
        assert found["total ms"] == pytest.approx(found["preparing ms"] + found["forward ms"])
        assert "GPU memory MB" not in found, "a CPU has none"
        assert all(int(found[f"{name} batch"]).bit_count() == 1 for name in ("inference", "training")), "powers of 2"


@pytest.mark.parametrize(("most", "expected"), [(1, 1), (2, 2), (3, 3), (100, 96), (127, 96), (128, 128), (200, 192)])
def test_the_largest_batch_is_a_power_of_two_or_between_two(most, expected):
    def run(size):
        if size > most:
            raise torch.OutOfMemoryError

    assert largest_batch(int, run) == expected


def test_work_that_never_runs_is_not_taken_for_too_large():
    def run(size):
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        largest_batch(int, run)


def test_work_that_breaks_is_not_taken_for_too_large():
    def run(size):
        if size > 2:
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        largest_batch(int, run)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@needs_gpu
def test_peak_memory_of_a_gpu_is_that_of_the_call():
    compute = Compute.choose("cuda")
    peak = measure.peak_of(lambda: torch.zeros(2**24, device="cuda"), compute, alone=lambda: -1)
    assert 2**26 <= peak - torch.cuda.memory_allocated() < 2**27


@pytest.mark.gpu
@needs_gpu
def test_the_largest_batch_of_a_gpu_is_found():
    whole = torch.cuda.mem_get_info()[1]
    part = whole // 10  # bytes of one
    size = largest_batch(lambda size: size, lambda size: torch.zeros(size * part, dtype=torch.uint8, device="cuda"))
    assert size in (4, 6, 8)


def test_the_quickest_batch_stops_where_doubling_gains_nothing(monkeypatch):
    monkeypatch.setattr(speed, "seconds_of", lambda work: work())  # a clock that no other process disturbs
    up_to_eight = {1: 0.02, 2: 0.02, 4: 0.03, 8: 0.05, 16: 0.1, 32: 0.1}
    assert quickest_batch(int, up_to_eight.get) == 8
    assert quickest_batch(int, up_to_eight.get, limit=0) == 1, "no memory to spare"
    assert quickest_batch(int, lambda size: 1.0) == 1, "long enough as it is"


def test_real_recordings_of_a_folder_are_measured(tmp_path):
    for number in range(2):
        write_events(tmp_path / f"{number}.npz", make_recording(20 + number))
    (tmp_path / "notes.txt").write_text("no recording\n")
    assert [len(events) for events in model._read(tmp_path)] == [20, 21]
    (tmp_path / "empty").mkdir()
    with pytest.raises(Event2VecError, match="has no recordings that can be read"):
        model._read(tmp_path / "empty")


def test_operations_are_counted_by_hand():
    config = ModelConfig(dim=16, hidden=16, heads=2, blocks=1, pooling=False, classes=3)
    phi, projections, feed = 3 * 4 + 4 * 8 + 8 * 16, 16 * (16 + 8 + 8 + 2) + 32 * 16, 2 * 16 * 16
    attention = 2 * 2 * 16 * 10 // 2  # directions, two products, both heads, half of ten keys
    assert model.count_operations(config, 10) == 2 * (10 * (phi + projections + feed + attention) + 16 * 3)
