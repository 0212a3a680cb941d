"""Rows of benchmarks: figures worked out from what was timed, made data of the size that is said, and the tables."""

import gc
import json
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import assert_same, make_recording
from shell import run

from event2vec import Event2VecError, Events, ModelConfig, Sensor, build_model, read_events, run_benchmark, write_events
from event2vec.benchmark import PARTS, attention, clustering, live, measure, model, reading, shards, streaming, training
from event2vec.benchmark.measurement import Measurement
from event2vec.benchmark.summary import compare, summarise
from event2vec.cli.benchmark import _cell
from event2vec.clustering import to_unit_cube
from event2vec.data.store_layout import SHARDS
from event2vec.machine.devices import CPU, Compute
from event2vec.model import compiled_attention
from event2vec.model.attention import forgetting_weights
from event2vec.training.recipe import load_recipe
from event2vec.training.run import Run

RUN = "event2vec.cli.benchmark.run_benchmark"


# Rows, summaries and changes


def test_a_row_has_its_case_first_then_figures_ratios_and_targets():
    found = Measurement({"a": 1}, {"b": 2.0}, {"c": 3.0}, {"d": 4})
    assert list(found.row().items()) == [("a", 1), ("b", 2.0), ("c", 3.0), ("d", 4)]
    assert found.measured == {"b": 2.0, "c": 3.0}, "a target is not measured"
    assert found.is_about({"a": 1, "b": 9})
    assert not found.is_about({"a": 2})
    assert not found.is_about({"b": 2.0})


@pytest.mark.parametrize(
    ("values", "spread"), [((3.0,), (3.0, 3.0, 3.0)), ((1.0, 9.0), (1.0, 5.0, 9.0)), ((7.0, 1.0, 2.0), (1.0, 2.0, 7.0))]
)
def test_a_spread_is_lowest_median_and_highest(values, spread):
    rows = [Measurement({"case": number}, {}, {"ratio": value}) for number, value in enumerate(values)]
    ((found),) = summarise({"data": rows, "live": [Measurement({}, {"ms": 1.0})]})
    assert (found.part, found.ratio, found.lowest, found.median, found.highest) == ("data", "ratio", *spread)


def test_what_was_nothing_before_and_is_something_now_is_a_change():
    """Events that are lost, or windows that are skipped: there is no ratio, but a change there is."""
    now = Measurement({"stream": "made"}, {"lost events": 700, "skipped": 0, "same": 5, "gone": 0})
    before = {"stream": "made", "lost events": 0, "skipped": 4, "same": 5, "gone": 2}
    changes = [change.row() for change in compare({"live": [before]}, {"live": [now]})]
    assert [(each["figure"], each["before"], each["now"], each["now / before"]) for each in changes] == [
        ("lost events", 0.0, 700, None),
        ("skipped", 4.0, 0, 0.0),
        ("gone", 2.0, 0, 0.0),
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        ("a x b", "a x b"),
        (1234567, "1,234,567"),
        (3, "3"),
        (0.126, "0.13"),
        (99.994, "99.99"),
        (100.4, "100"),
        (12345.6, "12,346"),
    ],
)
def test_cells_have_the_digits_that_matter(value, shown):
    assert _cell(value) == shown


# The verb


def measured(part="model", **figures):
    return [Measurement({"part": part}, figures or {"ours ms": 2.5})]


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ((), {}),
        (("--data", "."), {"data": "."}),
        (("--network", "."), {"network": "."}),
        (("--recipe", "asl_dvs"), {"recipe": "asl_dvs"}),
        (("--compile",), {"compile": True}),
        (("--minutes", "0.5"), {"minutes": 0.5}),
        (("--device", "cpu"), {"device": "cpu"}),
        (("--precision", "bf16-mixed"), {"precision": "bf16-mixed"}),
    ],
)
def test_every_option_reaches_the_benchmark(called, options, changes):
    calls = called(RUN, measured())
    assert run("benchmark", "model", *options) == 0
    usual = dict.fromkeys(("data", "recipe", "network", "minutes", "device", "precision")) | {"compile": False}
    assert calls == [(("model",), usual | changes)]


def test_without_a_part_all_are_measured_in_their_order_and_said(called, capsys):
    calls = called(RUN, measured())
    assert run("benchmark", "--json") == 0
    said = capsys.readouterr()
    assert [given for given, _ in calls] == [(part,) for part in PARTS]
    assert said.err.splitlines() == [f"measuring {part}" for part in PARTS]
    assert json.loads(said.out) == {part: [{"part": "model", "ours ms": 2.5}] for part in PARTS}


def test_rows_with_other_columns_are_a_table_of_their_own(monkeypatch, capsys):
    rows = [
        Measurement({"a": 1}, {"ms": 2.0}),
        Measurement({"b": "x"}, {"MB": 300.0}),
        Measurement({"a": 3}, {"ms": 4}),
    ]
    monkeypatch.setattr(RUN, lambda *_, **__: rows)
    assert run("benchmark", "data") == 0
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert table == [["a", "ms"], ["1", "2.00"], ["3", "4"], ["b", "MB"], ["x", "300"]]


@pytest.mark.parametrize("as_json", [True, False])
def test_a_comparison_shows_what_changed_and_says_where_nothing_can_be_compared(called, tmp_path, as_json, capsys):
    options = ("--json",) if as_json else ()
    for before, changed in (([{"part": "model", "ours ms": 5.0}], True), ([{"part": "else", "ours ms": 5.0}], False)):
        (tmp_path / "before.json").write_text(json.dumps({"model": before}))
        called(RUN, measured())
        assert run("benchmark", "model", "--compare", tmp_path / "before.json", *options) == 0
        said = capsys.readouterr()
        warning = f"event2vec: warning: {tmp_path}/before.json has no measurement in common with this run"
        assert (warning in said.err.splitlines()) == (not changed)
        assert ("0.5" in said.out) == changed
        if as_json:
            assert len(json.loads(said.out)["changes"]) == changed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("speed",),
            "PART: must be one of reading, data, clustering, attention, model, training, streaming, live, got",
        ),
        (("model", "--recipe", "digits"), "unknown recipe 'digits', expected one of dvs_gesture, asl_dvs, dvs_lip"),
        (("streaming", "--minutes", "0"), "--minutes: must be above 0, got 0. See 'event2vec benchmark --help'"),
        (("live", "--minutes", "-1"), "--minutes: must be above 0, got -1. See 'event2vec benchmark --help'"),
        (
            ("data", "--compare", "no.json"),
            "--compare: no.json does not exist, expected a file that --json wrote earlier. See",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_call_is_one_line_before_anything_is_measured(called, arguments, message, capsys):
    calls = called(RUN, measured())
    assert run("benchmark", *arguments) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"event2vec: {message}")
    assert (said.out, said.err.count("\n"), calls) == ("", 1, [])


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '{"model": 5}',
        '{"model": [5]}',
        '{"model": [{"a": []}]}',
        '{"model": [{"a": {}}]}',
        '{"other": [{"a": 1}]}',
    ],
)
def test_what_the_benchmark_did_not_write_is_refused_before_anything_is_measured(called, content, tmp_path, capsys):
    (tmp_path / "a.json").write_text(content)
    calls = called(RUN, measured())
    assert run("benchmark", "model", "--compare", tmp_path / "a.json") == 2
    assert capsys.readouterr().err.startswith(f"event2vec: {tmp_path}/a.json: ")
    assert calls == []


def test_an_unknown_part_or_folder_is_one_line_from_python_too(tmp_path):
    with pytest.raises(
        Event2VecError, match=r"^unknown part 'modle' \(did you mean model\?\); expected one of reading"
    ):
        run_benchmark("modle")
    (tmp_path / "file").touch()
    with pytest.raises(Event2VecError, match="file: is not a folder, expected a folder with recordings"):
        run_benchmark("reading", data=tmp_path / "file")


# How sides are measured


def test_rubbish_is_not_collected_while_sides_are_timed_and_again_afterwards(monkeypatch):
    seen = []
    monkeypatch.setattr(measure, "seconds_of", lambda side, compute: seen.append(gc.isenabled()) or 1.0)
    measure.best_seconds({"a": int}, 2)
    assert seen == [False, False]
    assert gc.isenabled()


def test_peak_memory_is_measured_alone_on_a_cpu():
    assert measure.peak_of(lambda: pytest.fail("not here"), CPU, alone=lambda: 12) == 12


# Clustering


def timing(events, clusters, ours, sklearn=8.0, faiss=4.0):
    seconds = {"ours": ours, "ours, torch": 1.0, "scikit-learn": sklearn, "scikit-learn 300": 90.0, "faiss": faiss}
    return clustering.Timing(events, clusters, seconds, {"ours": 1.01, "faiss": 0.99})


def test_clustering_is_compared_with_the_alternatives_that_run_as_long():
    row = timing(4000, 256, ours=2.0).measurement()
    assert row.case == {"events": 4000, "clusters": 256}
    assert row.ratios == {"x scikit-learn": 4.0, "x faiss": 2.0, "inertia ours": 1.01, "inertia faiss": 0.99}
    assert row.figures["scikit-learn 300 ms"] == 90_000.0


def test_growth_is_of_the_largest_over_the_smallest_for_each_number_of_clusters():
    timings = [timing(64_000, 256, 6.0), timing(4_000, 256, 1.0), timing(16_000, 256, 2.0)]
    timings += [timing(4_000, 512, 2.0), timing(256_000, 512, 32.0)]
    rows = [each.row() for each in clustering._growth(timings)]
    assert rows == [
        {"clusters": 256, "events grow": 16.0, "time grows": 6.0},
        {"clusters": 512, "events grow": 64.0, "time grows": 16.0},
    ]


def test_inertia_is_the_squared_distance_to_the_nearest_centre_of_the_same_polarity():
    events, centres = make_recording(200, seed=1), make_recording(12, seed=2)
    columns = []
    for part in (events, centres):
        x, y = part.x.numpy() / (events.sensor.width - 1), part.y.numpy() / (events.sensor.height - 1)
        columns.append(to_unit_cube(part, events).numpy() if part is centres else
                       to_unit_cube(part).numpy())  # fmt: skip
        assert columns[-1][:, 0] == pytest.approx(x, abs=0.05)
        assert columns[-1][:, 1] == pytest.approx(y, abs=0.05)
    total = 0.0
    for place, rises in zip(columns[0], events.p.numpy(), strict=True):
        total += min(((place - centre) ** 2).sum() for centre in columns[1][centres.p.numpy() == rises])
    assert clustering.inertia(events, centres) == pytest.approx(total, rel=1e-5)
    assert clustering.inertia(events, events) == pytest.approx(0, abs=1e-9)


def test_events_are_the_first_of_the_smallest_recording_that_has_enough(tmp_path):
    for count in (900, 300, 500):
        write_events(tmp_path / f"{count}.npz", make_recording(count, seed=count))
    (tmp_path / "notes.txt").write_text("no recording\n")
    assert_same(clustering._take_events(400, tmp_path), make_recording(500, seed=500).select(slice(0, 400)))
    made = clustering._take_events(1000, tmp_path)
    assert (len(made), made.sensor) == (1000, Sensor(346, 260)), "made, where none has as many"


# Live


def test_the_figures_of_a_load_are_percentiles_in_milliseconds_and_rates():
    load = live.Load(wall=2.0, cpu=0.5, skipped=3)
    for number in range(101):
        load.note(SimpleNamespace(label=0, latency=number / 1e3, lost=7, stages={"sampling": 0.002, "network": 0.004}))  # type: ignore[arg-type]
    load.note(SimpleNamespace(label=None, latency=99.0, lost=9, stages={}))  # type: ignore[arg-type]
    load.memory = [10 * 2**20, 30 * 2**20, 25 * 2**20]
    assert load.figures() == {
        "p50 ms": pytest.approx(50.0),
        "p95 ms": pytest.approx(95.0),
        "p99 ms": pytest.approx(99.0),
        "sampling p50 ms": pytest.approx(2.0),
        "sampling p95 ms": pytest.approx(2.0),
        "network p50 ms": pytest.approx(4.0),
        "network p95 ms": pytest.approx(4.0),
        "answers/s": 51.0,
        "skipped": 3,
        "lost events": 9,
        "CPU share": 0.25,
        "memory MB": 25.0,
        "memory growth MB": 20.0,
    }


def test_a_load_without_answers_or_memory_has_no_figures_of_them():
    found = live.Load(answers=4, wall=2.0).figures()
    assert found["answers/s"] == 2.0
    assert {found[name] for name in ("p50 ms", "p99 ms", "network p95 ms", "memory MB", "memory growth MB")} == {None}


@pytest.mark.parametrize("rate", [100_000, 1_000_000])
def test_a_made_stream_has_the_rate_that_is_said_and_all_pixels(rate):
    network = build_model(ModelConfig(sensor=Sensor(40, 20), dim=16, hidden=16, blocks=1, classes=2))
    events = live.made_events(network, rate)
    assert len(events) == rate * live.MADE
    assert events.duration + 1000 == pytest.approx(1e6 * live.MADE, rel=0.01), "the loop begins a millisecond later"
    assert (int(events.x.max()), int(events.y.max()), int(events.x.min())) == (39, 19, 0)


def test_the_longest_recording_of_a_folder_is_played(tmp_path):
    for name, count, duration in (("a", 50, 100_000), ("b", 5, 900_000), ("c", 500, 200_000)):
        write_events(tmp_path / f"{name}.npz", make_recording(count, duration=duration))
    path, events = live._longest(tmp_path)
    assert (path.name, len(events)) == ("b.npz", 5)


@pytest.mark.parametrize(("rate", "target"), [(1_000_000, True), (5_000_000, False)])
def test_only_streams_up_to_a_million_events_a_second_have_a_target(monkeypatch, rate, target):
    monkeypatch.setattr(live, "run_load", lambda *_: live.Load(wall=1.0))
    network = live._network("digits")
    row = live._measure("digits", "made", live.made_events(network, rate), 1.0, 3.0)
    assert row.targets == ({"target p95 ms": 20} if target else {})
    assert row.case["events/s"] == pytest.approx(rate, rel=0.02)


def test_with_minutes_one_stream_of_a_million_events_a_second_is_played_as_long(monkeypatch):
    asked = []
    monkeypatch.setattr(live, "run_load", lambda *given: asked.append(given) or live.Load(wall=1.0))
    (row,) = live.measure_live(None, 0.5)
    ((_, events, speed, seconds),) = asked
    assert (speed, seconds, len(events)) == (1.0, 30.0, 100_000)
    assert row.case["network"] == "dvs_gesture"


# Streaming


@pytest.mark.parametrize(("repeats", "speed"), [(1, 1.0), (3, 1.0), (2, 4.0)])
def test_a_repeated_recording_has_its_events_again_and_again(tmp_path, monkeypatch, repeats, speed):
    monkeypatch.setattr(streaming, "MADE", 400)
    x, y, t, p = streaming._made()
    path, count, seconds = streaming._write(tmp_path / "a.aedat", None, repeats, speed)
    found = read_events(path)
    assert len(found) == count == repeats * 400
    period = int(t[-1] / speed) + 1000
    assert seconds == pytest.approx(repeats * period / 1e6)
    for number in range(repeats):
        part = slice(number * 400, (number + 1) * 400)
        for name, column in (("x", x), ("y", y), ("p", p)):
            assert (getattr(found, name)[part].numpy() == column).all()
        starts = (t / speed).astype(np.int64) + number * period
        assert (found.t[part].numpy() == starts - int(t[0] / speed)).all()


def test_chunks_and_answers_are_of_the_whole_file(tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "MADE", 400)
    monkeypatch.setattr(streaming, "MADE_SECONDS", 1)
    path, count, seconds = streaming._write(tmp_path / "a.aedat", None, 2)
    assert streaming._read(path) == count
    assert streaming._answer(path) == pytest.approx(seconds / 0.1, abs=1)


# Reading


@pytest.mark.parametrize("number", [0, 1])
def test_long_files_hold_the_events_that_were_made(tmp_path, monkeypatch, number):
    monkeypatch.setattr(reading, "LONG", 20_000)
    found = read_events(reading._write_long(tmp_path)[number])
    x, y, t, p = reading._events(20_000, 128)
    if number == 0:  # a DVS128 counts x and y from the other end, and a rising event as 0
        x, y, p = 127 - x, 127 - y, 1 - p
    for name, column in (("x", x), ("y", y), ("t", t - t[0]), ("p", p)):
        np.testing.assert_array_equal(getattr(found, name).numpy(), column, err_msg=name)


def test_a_file_is_compared_by_its_time_over_that_of_eventcv(tmp_path):
    write_events(tmp_path / "a.npz", make_recording(7))
    row = reading._compared(tmp_path / "a.npz", 0.003, 0.002).row()
    assert row == {
        "file": "a.npz",
        "events": 7,
        "ours ms": 3.0,
        "eventcv ms": 2.0,
        "ours / eventcv": 1.5,
        "target": 1.3,
    }


# Attention


def test_the_four_sides_compute_what_they_are_called(monkeypatch):
    inputs = attention._inputs((2, 2, 24, 8), gradients=False, compute=CPU, bias=1.0)
    right = [part.double() for part in attention.written_out(*inputs)]
    for one, other in zip(attention.folded(*inputs), right, strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-5, rtol=0)
    q, k, v, log_forget = inputs
    turned = [part.flip(2) for part in inputs]
    assert torch.equal(right[0], (forgetting_weights(q, k, log_forget) @ v).double())
    again = forgetting_weights(turned[0], turned[1], turned[3]) @ turned[2]
    assert torch.equal(right[1], again.flip(2).double()), "the second direction, turned back"
    open_gates = [part.double() for part in attention.written_out(q, k, v, torch.zeros_like(log_forget))]
    torch.testing.assert_close(attention.plain(*inputs)[0].double(), open_gates[0], atol=1e-5, rtol=0)
    monkeypatch.setattr(compiled_attention, "INSTALLED", False)
    assert not attention._is_compiled(CPU)


@pytest.mark.parametrize(
    ("shape", "rounds"), [((8, 2, 1024, 32), 12), ((1, 2, 16384, 32), 5), ((1, 2, 128, 32), 200), ((8, 6, 1024, 32), 5)]
)
def test_large_shapes_have_fewer_rounds_and_all_have_some(shape, rounds):
    assert attention._rounds(shape) == rounds


def test_bfloat16_is_measured_in_bfloat16_and_gates_stay_exact():
    inputs = attention._inputs((1, 1, 8, 4), gradients=True, compute=Compute(CPU.device, "bf16-mixed"))
    assert [part.dtype for part in inputs] == [torch.bfloat16] * 3 + [torch.float32]
    assert all(part.requires_grad for part in inputs)


def test_a_run_of_a_side_leaves_the_setting_of_stops_as_it_was():
    before = compiled_attention.Settings.stops
    attention._run("plain", attention._inputs((1, 1, 8, 4), gradients=True, compute=CPU), stops=not before)
    assert compiled_attention.Settings.stops == before


# Networks and training


def test_a_made_batch_is_in_time_order_on_the_sensor_and_the_same_each_time():
    batch, again = (model.made_batch(Sensor(40, 20), 3, 50) for _ in range(2))
    assert torch.equal(batch.t, again.t)
    assert batch.x.shape == (3, 50)
    assert (batch.t.diff(dim=1) >= 0).all()
    assert (batch.t[:, 0] == 0).all()
    assert (float(batch.x.max()), float(batch.y.max())) == (39.0, 19.0)
    assert (float(batch.x.min()), float(batch.y.min())) == (0.0, 0.0)
    assert torch.equal(batch.x, batch.x.round())


def test_a_rate_is_that_of_ten_products(monkeypatch):
    monkeypatch.setattr(model, "MATRIX", 8)
    monkeypatch.setattr(model, "best_seconds", lambda sides, rounds, compute: (sides["product"](), {"product": 0.5})[1])
    assert model.measure_rate(CPU) == 10 * 2 * 8**3 / 0.5


def test_the_first_steps_of_a_loop_and_the_last_are_not_timed(monkeypatch):
    def start(recipe, store, folder, task, progress):
        with progress.stage("training"):
            for end in (0.0, 9.0, 12.0, 13.0, 15.0, 15.5, 30.0):
                monkeypatch.setattr(time, "perf_counter", lambda end=end: end)
                progress.advance(1)
        assert len(store) == training.STEPS * recipe.training.batch

    monkeypatch.setattr(training, "STEPS", 2)
    monkeypatch.setattr(Run, "start", start)
    assert training._time_steps(load_recipe("digits")) == [1.0, 2.0, 0.5]


# Shards


def test_shards_are_measured_in_batches_a_second(monkeypatch):
    monkeypatch.setattr(shards, "write_store", lambda folder: SimpleNamespace(folder=folder))
    sharded = SimpleNamespace(folder=Path("sharded"))
    monkeypatch.setattr(shards, "copy_store", lambda source, out, size: replace_folder(sharded, out))
    monkeypatch.setattr(shards, "find_spec", lambda name: None)
    monkeypatch.setattr(shards, "best_seconds", lambda sides, rounds: dict(zip(sides, (0.5, 0.25), strict=True)))
    (row,) = shards.measure_shards()
    assert row.case == {"batch": "64 x 1024, 3 MB in shards of 16"}
    assert row.figures == {"plain store, batches/s": 2.0, "shards here, batches/s": 4.0, "fetched MB/s": None}
    assert row.ratios == {"shards against plain": 0.5}


def replace_folder(store, out):
    shard = out / SHARDS / "0"
    shard.parent.mkdir(parents=True)
    shard.write_bytes(bytes(3_000_000))
    store.folder = out
    return store


def test_networks_of_one_recording_say_what_they_are_about(monkeypatch):
    """`benchmark model`: rows of one answer are for digits and gestures, on a CPU."""
    asked = []
    for name in ("_throughput", "_table2", "_answer"):
        monkeypatch.setattr(model, name, lambda *given, name=name: asked.append((name, given[0])) or name)
    model.measure_model("asl_dvs")
    assert asked == [("_throughput", "asl_dvs")] * 3 + [("_table2", "asl_dvs")]
    asked.clear()
    model.measure_model(None)
    assert [name for kind, name in asked if kind == "_answer"] == ["digits", "dvs_gesture"]
    assert [name for kind, name in asked if kind == "_table2"] == ["dvs_gesture", "asl_dvs", "dvs_lip"]
    asked.clear()
    model.measure_model(None, compute=Compute(CPU.device, "bf16-mixed"))
    assert "_answer" not in dict(asked)


def test_events_of_one_moment_have_a_rate_too(monkeypatch):
    monkeypatch.setattr(live, "run_load", lambda *_: live.Load(wall=1.0))
    instant = Events.from_arrays([1, 2], [1, 2], [5, 5], [1, 0], sensor="40x20")
    assert live._measure("digits", "made", instant, 1.0, 1.0).case["events/s"] == 2_000_000
