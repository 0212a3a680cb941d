"""Benchmarks measure what they say, on sizes small enough for a test."""

import json
import os
from dataclasses import replace
from functools import partial
from typing import Any

import encoders
import numpy as np
import pytest
import torch
from conftest import SMALL, assert_same, make_recording
from golden.make import FOLDER

from event2vec import Event2VecError, EventBatch, ModelConfig, Recipe, Sampling, build_model, read_events, write_events
from event2vec.benchmark import attention, clustering, data, live, measure, model, reading, shards, streaming, training
from event2vec.benchmark.measure import best_seconds, peak_bytes
from event2vec.benchmark.measurement import Measurement
from event2vec.benchmark.summary import Change, Spread, compare, summarise
from event2vec.evaluation import speed
from event2vec.evaluation.speed import Figure, Speed, Throughput, largest_batch, quickest_batch
from event2vec.machine.devices import CPU, Compute
from event2vec.model.classifier import Classifier
from event2vec.model.compiled_attention import INSTALLED
from event2vec.training.muon import Muon
from event2vec.training.timing import training_step


def test_the_best_round_of_each_side_counts(monkeypatch):
    order = []
    clock = {"one": iter((0.3, 0.1, 0.2)), "two": iter((0.5, 0.6, 0.4))}
    monkeypatch.setattr(measure, "seconds_of", lambda side, compute: next(clock[side()]))

    def run(name):
        order.append(name)
        return name

    seconds = best_seconds({name: partial(run, name) for name in clock}, rounds=3)
    assert order == ["one", "two"] * 3, "sides take turns"
    assert seconds == {"one": 0.1, "two": 0.4}


def test_peak_memory_is_that_of_the_call():
    assert 90e6 < peak_bytes(np.ones, (10,), 12_500_000) < 150e6


def test_a_summary_has_the_spread_of_each_ratio():
    found = ((10, 4.0), (20, 2.0), (30, 9.0), (40, 5.0), (50, None))
    rows = [Measurement({"events": count}, {"ours ms": 3.0}, {"x faiss": ratio}) for count, ratio in found]
    assert summarise({"clustering": rows}) == [Spread("clustering", "x faiss", 2.0, 4.5, 9.0)]
    assert summarise({"clustering": rows[-1:]}) == [], "a side that was left out has no ratio"


def test_a_comparison_is_of_rows_about_the_same():
    before: dict[str, list[dict[str, Any]]]
    before = {"model": [{"batch": 1, "ms": 4.0}, {"batch": 8, "ms": 9, "left": "-"}], "data": [{"batch": 1, "ms": 1.0}]}
    now = {
        "model": [
            Measurement({"batch": 8}, {"ms": 3.0, "new": 1.0, "left": 5.0}, {"ours / limit": None}),
            Measurement({"batch": 2}, {"ms": 7.0}),
        ]
    }
    (change,) = compare(before, now)
    assert change == Change("model", "8", "ms", before=9.0, now=3.0)
    assert change.row()["now / before"] == pytest.approx(1 / 3)


def test_what_json_keeps_is_what_a_later_run_is_compared_with():
    first = Measurement({"shape": "1 x 2", "pass": "forward"}, {"ms": 3.0}, {"ours / limit": 1.5}, {"target": 1.3})
    written = json.loads(json.dumps({"attention": [first.row()]}))
    assert compare(written, {"attention": [first]}) == [], "nothing changed"
    slower = replace(first, figures={"ms": 4.5})
    assert compare(written, {"attention": [slower]}) == [Change("attention", "1 x 2, forward", "ms", 3.0, 4.5)]
    other = replace(slower, case={"shape": "1 x 2", "pass": "with gradients"})
    assert compare(written, {"attention": [other]}) == []


def test_data_is_measured_on_both_sides(monkeypatch):
    """Each side is run, and their times are told apart; which is the faster is not for a test to say."""
    monkeypatch.setattr(data, "RECORDINGS", 3)
    monkeypatch.setattr(data, "EVENTS", 2000)
    monkeypatch.setattr(data, "LENGTH", 64)
    sizes = {}

    def once(sides, rounds):
        sizes.update({name: side().x.shape for name, side in sides.items()})
        return {"store": 0.25, "npz": 2.0}

    monkeypatch.setattr(data, "best_seconds", once)
    (found,) = data.measure_data()
    assert sizes == {"store": (3, 64), "npz": (3, 64)}
    assert found.case == {"batch": "3 x 64 of 2,000 events"}
    assert found.figures == {"store ms": 250.0, "npz ms": 2000.0}
    assert found.ratios == {"times faster": 8.0}


def test_batches_come_from_shards_here_and_elsewhere(monkeypatch):
    pytest.importorskip("aiohttp", reason="needs aiohttp: pip install 'event2vec[remote]'")
    for name, value in (("RECORDINGS", 3), ("EVENTS", 2000), ("LENGTH", 64)):
        monkeypatch.setattr(data, name, value)
    monkeypatch.setattr(shards, "ROUNDS", 1)
    cache = os.environ["EVENT2VEC_CACHE"]
    (found,) = shards.measure_shards()
    places = ("plain store", "shards here", "shards in the cache", "shards fetched first")
    assert list(found.figures) == [*(f"{place}, batches/s" for place in places), "fetched MB/s"]
    assert all(figure is not None and figure > 0 for figure in found.figures.values())
    assert os.environ["EVENT2VEC_CACHE"] == cache


def test_data_that_differs_between_the_sides_is_not_measured(monkeypatch):
    monkeypatch.setattr(data, "RECORDINGS", 2)
    monkeypatch.setattr(data, "EVENTS", 2000)
    load = data._load
    monkeypatch.setattr(data, "_load", lambda file: load(file).select(slice(1, None)))
    with pytest.raises(AssertionError, match="both sides must draw the same events"):
        data.measure_data()


def test_reading_is_measured_on_made_files_and_given_ones(monkeypatch):
    monkeypatch.setattr(reading, "ADAPTED", 2000)
    monkeypatch.setattr(reading, "LONG", 20_000)
    monkeypatch.setattr(reading, "ROUNDS", 1)
    rows = [found.row() for found in reading.measure_reading(FOLDER / "recordings/3")]
    names = ["made.aedat4", "made_evt2.raw", "made_evt3.raw", "aedat4.aedat4", "evt2.raw", "evt3.raw"]
    assert [row["file"] for row in rows] == [*names, "dvs128_long.aedat", "aedat31_long.aedat"]
    assert [row["events"] for row in rows] == [2000] * 3 + [encoders.COUNT] * 3 + [20_000] * 2
    for row in rows[:6]:
        assert row["ours / eventcv"] == pytest.approx(row["ours ms"] / row["eventcv ms"])


def test_clustering_is_measured_with_its_growth(monkeypatch):
    monkeypatch.setattr(clustering, "SIZES", (300, 900))
    monkeypatch.setattr(clustering, "CLUSTERS", (16, 32))
    monkeypatch.setattr(clustering, "ROUNDS", 1)
    monkeypatch.setattr(clustering, "peak_bytes", lambda *_: 2**20)  # eight processes
    rows = [found.row() for found in clustering.measure_clustering(None)]
    assert [(row["events"], row["clusters"]) for row in rows[:4]] == [(300, 16), (300, 32), (900, 16), (900, 32)]
    assert all(0.5 < row["inertia ours"] < 1.5 for row in rows[:4])
    assert [row["clusters"] for row in rows[-2:]] == [16, 32]
    for row, small, large in zip(rows[-2:], rows[:2], rows[2:4], strict=True):
        assert row["events grow"] == 3
        assert row["time grows"] == pytest.approx(large["ours ms"] / small["ours ms"])


def test_attention_is_measured_on_four_sides(monkeypatch):
    monkeypatch.setattr(attention, "SHAPES", [(1, 1, 64, 8), (1, 1, 128, 8)])
    monkeypatch.setattr(attention, "STOPS", [(1, 1, 64, 8)])
    monkeypatch.setattr(attention, "MOST_ROUNDS", 2)
    monkeypatch.setattr(attention, "WRITTEN_OUT_UP_TO", 64)
    monkeypatch.setattr(attention, "peak_bytes", lambda *_: 2**20)
    rows = [found.row() for found in attention.measure_attention()]
    assert [row["pass"] for row in rows[:4]] == ["forward", "with gradients"] * 2
    assert rows[0]["folded / plain"] == rows[0]["folded ms"] / rows[0]["plain ms"]
    assert rows[2]["written out ms"] is None
    drawn = [f"drawn around {bias}" for bias in (0, 4, 7)]
    assert [row["gates"] for row in rows[4:]] == (drawn * 2 if INSTALLED else [])


def test_networks_are_measured_against_the_limit(monkeypatch):
    monkeypatch.setattr(model, "BATCHES", (2,))
    monkeypatch.setattr(model, "RAW_EVENTS", 500)
    monkeypatch.setattr(model, "PAPER", {"asl_dvs": (model.PAPER["asl_dvs"][0], Sampling(length=64))})
    monkeypatch.setattr(model, "peak_bytes", lambda *_: 2**20)
    throughput, table2 = (found.row() for found in model.measure_model("asl_dvs"))
    ratio = throughput["inference ms"] / throughput["inference limit ms"]
    assert throughput["inference / limit"] == pytest.approx(ratio)
    assert throughput["training limit ms"] == pytest.approx(3 * throughput["inference limit ms"])
    assert table2["parameters"] == 71_580
    assert (table2["recordings"], table2["raw events"], table2["tokens"]) == (1, 500, "64 random")
    with pytest.raises(Event2VecError, match="unknown recipe 'dvs', expected one of asl_dvs"):
        model.measure_model("dvs")


@pytest.mark.skipif(not INSTALLED, reason="event2vec was installed without its compiled part")
def test_trained_gates_are_measured_in_every_block(monkeypatch, make_events):
    monkeypatch.setattr(attention, "MOST_ROUNDS", 1)
    config = ModelConfig(dim=16, hidden=16, blocks=2, classes=3, pooling=True)
    rows = [found.row() for found in attention._measure_trained(build_model(config))]
    assert [row["gates"] for row in rows] == ["trained, block 1"] * 2 + ["trained, block 2"] * 2
    first, second = (int(rows[number]["shape"].split(" x ")[2]) for number in (0, 2))
    assert second == -(-first // 2), "blocks read what their pooling leaves"
    assert all(row["stopping / whole"] > 0 for row in rows)


@pytest.mark.skipif(not INSTALLED, reason="event2vec was installed without its compiled part")
def test_training_is_measured_as_a_loop_and_in_both_forms(monkeypatch):
    monkeypatch.setattr(training, "LOOPS", ("digits",))
    monkeypatch.setattr(training, "FORMS", {"digits": 2})
    monkeypatch.setattr(training, "STEPS", 8)
    loop, forms = (found.row() for found in training.measure_training())
    assert (loop["loop"], loop["batch"], loop["events"]) == ("digits", 32, 256)
    assert 0 < loop["step ms"] <= loop["median ms"]
    assert loop["step / limit"] == pytest.approx(loop["step ms"] / loop["limit ms"])
    assert forms["folded / compiled"] == pytest.approx(forms["folded ms"] / forms["compiled ms"])


def test_only_steps_of_the_training_are_timed():
    watch = training.Watch()
    for title, steps in [("training", 3), ("fitting the temperature", 2)]:
        with watch.stage(title, steps):
            for step in range(steps):
                watch.advance(step)
    assert len(watch.ends) == 3


def test_an_answer_is_split_into_what_takes_its_time(make_events):
    config = ModelConfig(dim=16, hidden=16, blocks=2, classes=3)
    network = build_model(config, sampling=Sampling(method="clusters", length=32))
    found = speed.split_answer(network, make_events(300).on_sensor(config.sensor), rounds=2)
    facts = found.facts()
    assert facts["total ms"] == pytest.approx(
        sum(facts[f"{name} ms"] for name in ("sampling", "embedding", "blocks", "rest"))
    )
    assert min(found.sampling, found.embedding, found.blocks) > 0
    assert not network.embed._forward_hooks, "nothing is left on the network"


def test_speed_is_measured_on_every_recording_with_its_deviation(monkeypatch):
    config, sampling = ModelConfig(sensor=SMALL, dim=16, hidden=16, blocks=1), Sampling(length=32)
    prepared, shorten = [], speed._shorten
    monkeypatch.setattr(
        speed, "_shorten", lambda sampling, events: prepared.append(events) or shorten(sampling, events)
    )
    recordings = [make_recording(count) for count in (50, 40, 30)]
    for compute in (CPU, Compute(CPU.device, "bf16-mixed")):
        network = build_model(config, sampling=sampling)
        learn = training_step(network, Recipe(), compute)
        found = speed.measure_speed(network, recordings, learn, compute)
        assert {id(events) for events in prepared} == {id(events) for events in recordings}
        for figure in (found.preparing, found.forward, found.total, found.inference.rate, found.training.rate):
            assert figure.mean > 0
            assert figure.deviation > 0
        assert found.total.mean == pytest.approx(found.preparing.mean + found.forward.mean)
        assert found.gpu_memory is None, "a CPU has none"
        assert all(work.batch.bit_count() == 1 for work in (found.inference, found.training)), "powers of 2"


def test_a_speed_is_kept_in_full_and_shown_as_one_number_under_each_heading():
    rates = (Throughput(8, Figure(90.0, 2.0)), Throughput(4, Figure(30.0, 1.0)))
    for memory in (None, 64.0):
        speed = Speed(Figure(1.0, 0.1), Figure(2.0, 0.2), Figure(3.0, 0.3), *rates, memory)
        kept = json.loads(json.dumps(speed.facts()))
        assert Speed.from_facts(kept) == speed
        columns = speed.columns()
        assert ("GPU memory MB" in columns) == (memory is not None)
        assert (columns["forward ms"], columns["forward ms ±"], columns["training batch"]) == (2.0, 0.2, 4)


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


def test_the_quickest_batch_has_most_recordings_a_second(monkeypatch):
    monkeypatch.setattr(speed, "seconds_of", lambda work: work())  # a clock that no other process disturbs
    up_to_eight = {1: 0.02, 2: 0.02, 4: 0.03, 8: 0.05, 16: 0.1, 32: 0.2}
    assert quickest_batch(int, up_to_eight.get) == 8
    assert quickest_batch(int, (up_to_eight | {2: 0.05, 4: 0.05}).get) == 8, "one size without a gain is passed over"
    assert quickest_batch(int, up_to_eight.get, limit=0) == 1, "no memory to spare"
    assert quickest_batch(int, lambda size: 1.0) == 1, "no time for more"


def test_a_batch_is_warmed_up_and_the_quickest_of_three_counts(monkeypatch):
    monkeypatch.setattr(speed, "seconds_of", lambda work: work())
    disturbed = {
        1: iter([9.0, 0.1, 0.1, 0.1, 0.1]),
        2: iter([0.4, 0.9, 0.1, 0.9]),
        4: iter([0.4] * 4),
        8: iter([0.8] * 4),
    }
    monkeypatch.setattr(speed, "SEARCH", 60.0)
    assert quickest_batch(int, lambda size: next(disturbed[size])) == 2


def test_a_timed_step_is_one_of_training_on_a_copy(monkeypatch):
    recipe = Recipe().with_settings({"training.optimizer": "muon", "training.clip": 1.0, "augment.rotate": 5.0})
    network = build_model(ModelConfig(sensor=SMALL, dim=16, hidden=16, blocks=1), sampling=Sampling(length=32)).eval()
    before = {name: weight.clone() for name, weight in network.state_dict().items()}
    seen, learn = list[bool](), Classifier.learn

    def watch(self: Classifier, batch: EventBatch, generator: torch.Generator | None) -> Any:
        seen.append(self.training and generator is not None and self is not network)
        return learn(self, batch, generator)

    monkeypatch.setattr(Classifier, "learn", watch)
    stepped, step = [], Muon.step
    monkeypatch.setattr(Muon, "step", lambda self: (stepped.append(self), step(self))[1])
    training_step(network, recipe, CPU)(EventBatch.pad([make_recording(40), make_recording(20)]))
    assert seen == [True]
    assert len(stepped) == 1
    assert not network.training
    assert all(torch.equal(weight, before[name]) for name, weight in network.state_dict().items())


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
    counted = 2 * (10 * (phi + projections + feed + attention) + 16 * 3)
    assert model.count_operations(config, 10) == counted
    assert model.count_training_operations(config, 10) == 3 * counted
    around = 2 * 10 * 16 * (3 * 2 * 5 * 5)  # stretches of time, polarities, cells
    config = replace(config, neighbourhood=5)
    assert model.count_operations(config, 10) == counted + around
    assert model.count_training_operations(config, 10) == 3 * counted + 2 * around, "counts have no gradient"


def test_live_is_measured_by_rate_and_by_speed(monkeypatch):
    monkeypatch.setattr(live, "RATES", (100_000,))
    monkeypatch.setattr(live, "SPEEDS", (1.0, 50.0))
    monkeypatch.setattr(live, "SECONDS", 0.3)
    monkeypatch.setattr(live, "TARGETS", {"digits": 20, "dvs_gesture": 60})
    rows = [found.row() for found in live.measure_live(FOLDER / "recordings/3")]
    assert [row["network"] for row in rows] == ["digits", *["dvs_gesture"] * 3]
    assert rows[0]["events/s"] == pytest.approx(100_000, rel=0.02)
    assert rows[3]["stream"] == rows[2]["stream"].replace(", 1 x", ", 50 x"), "the longest of the recordings"
    assert rows[3]["events/s"] == pytest.approx(50 * rows[2]["events/s"], abs=30_000)
    assert 0 < rows[0]["p50 ms"] <= rows[0]["p95 ms"] <= rows[0]["p99 ms"]
    assert rows[0]["answers/s"] > 0


def test_a_long_live_stream_is_measured_for_its_memory(monkeypatch):
    monkeypatch.setattr(live, "MEMORY_EVERY", 0.1)
    monkeypatch.setattr(live, "TARGET_RATE", 50_000)
    load = live.run_load(live._network("digits"), live.made_events(live._network("digits"), 50_000), 1.0, 1.0)
    assert len(load.memory) >= 3
    (row,) = live.measure_live(None, 0.005)
    assert row.row()["memory growth MB"] >= 0


def test_live_needs_recordings_that_can_be_read(tmp_path):
    with pytest.raises(Event2VecError, match="has no recordings that can be read"):
        live._longest(tmp_path)


@pytest.mark.parametrize("real", [True, False])
def test_streaming_repeats_a_recording_and_compares_with_its_duration(real, shared_data, monkeypatch):
    monkeypatch.setattr(streaming, "REPEATS", (1, 2))
    monkeypatch.setattr(streaming, "MADE", 5000)
    monkeypatch.setattr(streaming, "ROUNDS", 1)
    monkeypatch.setattr(streaming, "peak_bytes", lambda *arguments: 1 << 20)
    rows = [each.row() for each in streaming.measure_streaming(shared_data / "recordings" if real else None)]
    assert [row["what"] for row in rows] == ["reading in chunks"] * 2 + ["answers over time"] * 2
    assert rows[1]["events"] == 2 * rows[0]["events"] == (260_228 if real else 10_000)
    assert rows[1]["recorded s"] == pytest.approx(2 * rows[0]["recorded s"])
    assert all(row["time / recorded time"] > 0 for row in rows)


def test_a_long_recording_is_answered_as_recorded_and_at_a_high_rate(shared_data, monkeypatch):
    asked = []
    monkeypatch.setattr(
        streaming, "seconds_and_peak", lambda work, warm_up, path: asked.append(work(path)) or (3.0, 1 << 20)
    )
    quiet, busy = [each.row() for each in streaming.measure_streaming(shared_data / "recordings", minutes=0.15)]
    assert quiet["recorded s"] == pytest.approx(busy["recorded s"], rel=0.4)
    assert busy["events/s"] == pytest.approx(1e9 / 3600, rel=0.01)
    assert busy["events"] > 5 * quiet["events"]
    assert asked == pytest.approx([quiet["recorded s"] / 0.1, busy["recorded s"] / 0.1], abs=1)


def test_the_repeated_recording_is_the_real_one(shared_data, tmp_path):
    source = shared_data / "recordings" / "dvs128.aedat"
    path, count, _ = streaming._write(tmp_path / "x.aedat", source, 1)
    assert_same(read_events(path), read_events(source))
    assert count == 130_114
    with pytest.raises(Event2VecError, match=r"dvs128.aedat: does not exist, expected the DVS128 recording"):
        streaming.measure_streaming(tmp_path)
