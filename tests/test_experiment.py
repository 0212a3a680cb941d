"""Experiments: every row of the paper's tables can be built, and nothing is trained twice."""

import json
from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from conftest import SMALL, assert_same, make_recording
from processes import run_two

from event2vec import Event2VecError, EventStore, Recipe, build_model, cluster_events, load_model, load_recipe
from event2vec.documents import EXPERIMENTS
from event2vec.execution import Execution
from event2vec.model.checkpoint import load_event2vec
from event2vec.progress import Progress
from event2vec.studies.experiment import run_experiment
from event2vec.studies.experiment_file import choose_pretraining, load_experiment
from event2vec.studies.results import RunResult
from event2vec.studies.row_run import Setting, evenly_spaced
from event2vec.studies.tables import Row, RowResult, table, write_table
from event2vec.training.run import Run

SETTINGS = {
    "sampling.length": 16,
    "model.dim": 16,
    "model.hidden": 16,
    "model.blocks": 1,
    "training.epochs": 1,
    "training.batch": 4,
    "trainer.accelerator": "cpu",
}


@pytest.mark.parametrize("name", EXPERIMENTS.names())
def test_every_row_fits_our_recipes(name):
    experiment = load_experiment(name)
    assert len(experiment.rows) >= 2
    for recipe in ("digits", "nmnist", "dvs_gesture"):
        for row in experiment.rows:
            build_model(load_recipe(recipe).with_settings(row.settings).model)


def test_runs_are_kept_resumed_and_never_repeated(tmp_path, monkeypatch):
    recordings = [(make_recording(40, seed=index), index % 2) for index in range(10)]
    store = EventStore.create(
        tmp_path / "store", recordings, sensor=SMALL, classes=["a", "b"], splits=["train"] * 8 + ["test"] * 2
    )
    recipe, experiment = Recipe().with_settings(SETTINGS), load_experiment("sharing")
    started, start = [], Run.start

    def count(*arguments):
        started.append(arguments[2].name)
        if len(started) == 3:
            raise KeyboardInterrupt
        return start(*arguments)

    monkeypatch.setattr(Run, "start", count)
    arguments = (experiment, recipe, Setting(str(store.folder)), tmp_path / "out", 2)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(*arguments)

    class Told(Progress):
        lines: ClassVar[list[str]] = []

        def say(self, line):
            self.lines.append(line)

    setting = Setting(str(store.folder), how=Execution(progress=Told()))
    results = run_experiment(experiment, recipe, setting, tmp_path / "out", 2)
    assert started == ["shared-0", "shared-1", "not_shared-0", "not_shared-0", "not_shared-1"]
    assert len([line for line in Told.lines if ", seed " in line and "95 % interval" in line]) == 4
    assert [len(result.accuracies) for result in results] == [2, 2]
    assert results[0].parameters < results[1].parameters
    rows = table(results, "mine")
    heads = ["", "accuracy on mine (%)", "95 % interval", "± over seeds", "± over draws", "paper, DVS Gesture (%)"]
    assert list(rows[0])[:6] == heads
    assert rows[0]["paper, DVS Gesture (%)"] == "97.57"
    write_table(results, "mine", experiment.title, tmp_path / "out" / "table")
    assert (tmp_path / "out/table.md").read_text("utf-8").count("\n|") == 4
    assert len((tmp_path / "out/table.csv").read_text().splitlines()) == 3
    found = json.loads((tmp_path / "out/shared-0/result.json").read_text())
    assert found["parameters"] == results[0].parameters
    assert results[0].draws[0] == tuple(found["accuracies"])
    assert len(found["accuracies"]) == 10
    (kept, _) = json.loads((tmp_path / "out/table.json").read_text())["rows"]
    assert (kept["accuracy"], kept["std_over_seeds"]) == (results[0].accuracy, results[0].std_over_seeds)
    whole = (tmp_path / "out/shared-0/result.json").read_text()
    damages: tuple[dict[str, object], ...] = (
        {"accuracy": "x"},
        {"accuracies": 1},
        {"accuracies": ["x"]},
        {"accuracies": []},
        {"accuracies": "11"},
        {"accuracy": 2.0},
        {"seconds": True},
        {"timed": {"timed_recordings": 2, "speed": {"forward": 1.0}}},
        {"timed": {"clustering_ms": 1}},
        {"parameters": None},
        {"recordings": 0},
        {"accuracies": [3.0] * 10, "accuracy": 3.0},
    )
    for damage in damages:
        (tmp_path / "out/shared-0/result.json").write_text(json.dumps(found | damage))
        with pytest.raises(Event2VecError, match=r"result.json: is not the result of an experiment. Remove it"):
            run_experiment(*arguments)
    (tmp_path / "out/shared-0/result.json").write_text('{"seconds": 1}')
    with pytest.raises(Event2VecError, match=r"result.json: is not the result of an experiment. Remove it"):
        run_experiment(*arguments)
    (tmp_path / "out/shared-0/result.json").write_text(whole)
    with pytest.raises(Event2VecError, match="was started with other settings"):
        run_experiment(experiment, recipe.with_settings({"training.epochs": 2}), *arguments[2:])
    with pytest.raises(Event2VecError, match=r"or data\. Choose another `out`"):
        run_experiment(experiment, recipe, Setting(str(tmp_path / "other")), *arguments[3:])


@pytest.fixture
def small(tmp_path):
    recordings = [(make_recording(60, seed=index), index % 2) for index in range(10)]
    splits = ["train"] * 8 + ["test"] * 2
    return EventStore.create(tmp_path / "store", recordings, sensor=SMALL, classes=["a", "b"], splits=splits)


def test_clusters_of_each_engine_are_made_once_and_timed(small, tmp_path):
    experiment = load_experiment("clustering")
    names = ("batched K-Means++", "batched K-Means++ plain", "scikit-learn 20")
    experiment = replace(experiment, rows=tuple(row for row in experiment.rows if row.name in names))
    arguments = (experiment, Recipe().with_settings(SETTINGS), Setting(str(small.folder)), tmp_path / "out", 1)
    rows = table(run_experiment(*arguments), "mine")
    assert [row["paper (ms)"] for row in rows] == ["17.10 ± 15.56", "17.10 ± 15.56", "374.22 ± 145.97"]
    stores = [EventStore.open(Run.open(tmp_path / f"out/{name.replace(' ', '_')}-0").facts.data) for name in names]
    for index, (events, label) in enumerate(small):
        for store in stores:
            assert (len(store[index][0]), store[index][1], store.splits[index]) == (16, label, small.splits[index])
            assert store[index][0].rho.sum() == len(events)
    events = small[0][0]
    assert_same(stores[0][0][0], cluster_events(events, 16))
    assert_same(stores[1][0][0], cluster_events(events, 16, seeding="plain"))
    assert load_model(tmp_path / "out/batched_K-Means++_plain-0").sampling.seeding == "plain"
    assert len({tuple(store[0][0].x.tolist()) for store in stores}) == 3
    for row, name in zip(rows, names, strict=True):
        timed = RunResult.read(tmp_path / f"out/{name.replace(' ', '_')}-0/result.json").timed
        assert timed is not None
        assert timed.clustering is not None
        assert (timed.recordings, timed.speed) == (2, None)
        assert timed.clustering.mean > 0
        shown = f"{timed.clustering.mean:.2f} ± {timed.clustering.deviation:.2f}"
        assert row["clustering of 2 recordings here (ms)"] == shown
    raw = Run.open(tmp_path / "out/scikit-learn_20-0").raw_store()
    assert raw.folder == small.folder, "a run knows what its clusters were made of"
    assert rows == table(run_experiment(*arguments), "mine"), "what was measured is kept"


def test_speed_by_the_number_of_events(small, tmp_path):
    experiment = load_experiment("events")
    experiment = replace(experiment, rows=experiment.rows[:1])
    results = run_experiment(
        experiment, Recipe().with_settings(SETTINGS), Setting(str(small.folder)), tmp_path / "out", 1
    )
    (row,) = table(results, "mine")
    timed = RunResult.read(tmp_path / "out/64_events-0/result.json").timed
    assert timed is not None
    speed = timed.speed
    assert speed is not None
    shown = {
        "training (recordings/s)": speed.training.rate,
        "inference (recordings/s)": speed.inference.rate,
        "preparing of 2 recordings (ms)": speed.preparing,
        "forward of 2 recordings (ms)": speed.forward,
        "total of 2 recordings (ms)": speed.total,
    }
    for name, figure in shown.items():
        mean, _, spread = row[name].replace(",", "").split()
        assert figure.mean > 0
        assert (float(mean), float(spread)) == pytest.approx((figure.mean, figure.deviation), abs=0.06)
    assert (row["training batch"], row["inference batch"]) == (str(speed.training.batch), str(speed.inference.batch))
    assert row["GPU memory (MB)"] == "-", "a CPU has none"


def test_both_deviations_are_of_a_sample_and_said_apart(tmp_path):
    def result(*draws):
        means = tuple(sum(each) / len(each) for each in draws)
        return RowResult(Row("one", {}, {"DVS Gesture": "97.57 ± 1.31"}), means, 50, draws, 1000, 60.0)

    two = result((0.9, 0.8), (0.7, 0.8))
    (row,) = table([two], "mine")
    assert (row["accuracy on mine (%)"], row["± over seeds"], row["± over draws"]) == ("80.00", "7.07", "7.07")
    assert row["95 % interval"] == "66.96 to 88.76", "of 50 recordings, however often each was drawn"
    assert two.std_over_seeds == pytest.approx((2 * 0.05**2) ** 0.5), "n - 1"
    three = result((0.9, 0.9), (0.6, 0.9))
    assert three.std_over_draws == pytest.approx((0 + 0.3 / 2**0.5) / 2), "the mean over networks"
    (alone,) = table([result((0.9,))], "mine")
    assert (alone["± over seeds"], alone["± over draws"]) == ("-", "-")
    write_table([two], "mine", "Table 4", tmp_path / "table")
    assert "± over seeds | ± over draws |" in (tmp_path / "table.md").read_text("utf-8")
    assert json.loads((tmp_path / "table.json").read_text())["rows"][0]["accuracies"] == [[0.9, 0.8], [0.7, 0.8]]


def test_times_are_taken_over_the_whole_store_or_evenly(small):
    assert [len(events) for events in evenly_spaced(small, 50)] == [60] * 10
    few = evenly_spaced(small, 4)
    assert [torch.equal(events.t, small[index][0].t) for events, index in zip(few, (0, 3, 6, 9), strict=True)] == [
        True
    ] * 4


def test_each_row_is_pretrained_with_its_own_attention_and_never_twice(small, tmp_path, monkeypatch):
    recipe = Recipe().with_settings(SETTINGS | {"model.pooling": False, "training.learning_rate": 0.0})
    pretrain = recipe.with_settings({"training.learning_rate": 0.001})
    experiment = load_experiment("attention")
    again = replace(experiment.rows[0], name="forgetting again")
    experiment = replace(experiment, rows=(*experiment.rows, again))
    begun, start = [], Run.start
    monkeypatch.setattr(Run, "start", lambda *given: begun.append((given[2].name, given[3])) or start(*given))
    setting = Setting(str(small.folder), pretrain=pretrain)
    results = run_experiment(experiment, recipe, setting, tmp_path / "out", 1)
    names = ["forgetting-0", "gated_linear-0"]
    assert begun == [(name, task) for name in names for task in ("pretrain", "train")] + [
        ("forgetting_again-0", "train")
    ]
    assert len(results) == 3
    for name, first in zip([*names, "forgetting_again-0"], [*names, names[0]], strict=True):
        before, after = (load_event2vec(tmp_path / "out" / run) for run in (f"pretrained/{first}", name))
        taken = after.backbone.state_dict()
        assert all(torch.equal(taken[key], value) for key, value in before.backbone.state_dict().items())
    run_experiment(experiment, recipe, setting, tmp_path / "out", 1)
    assert len(begun) == 5, "finished runs are not repeated"


def test_pretraining_of_another_network_is_refused_before_it_starts(small, tmp_path):
    recipe = Recipe().with_settings(SETTINGS | {"model.pooling": False})
    setting = Setting(str(small.folder), pretrain=recipe.with_settings({"model.dim": 32}))
    with pytest.raises(Event2VecError, match=r"does not fit forgetting: model.dim is 32 there and 16 in recipe"):
        run_experiment(load_experiment("attention"), recipe, setting, tmp_path / "out", 1)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["attention", "sharing", "sampling"])
def test_rows_on_dvs_lip_are_pretrained_and_others_are_not(name):
    experiment = load_experiment(name)
    assert choose_pretraining(experiment, load_recipe("dvs_lip"), None) == load_recipe("dvs_lip_pretrain")
    assert choose_pretraining(experiment, load_recipe("dvs_gesture"), None) is None
    assert choose_pretraining(experiment, load_recipe("digits"), "nmnist") == load_recipe("nmnist")


@pytest.mark.slow
def test_only_the_first_of_two_processes_judges_and_prints(small, tmp_path):
    """Launched together they train together, row after row; the second leaves all files to the first."""
    recipe = Recipe().with_settings(SETTINGS | {"model.pooling": False, "training.batch": 2})
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml())
    command = ["experiment", "sharing", "--recipe", tmp_path / "recipe.yaml", "--data", small.folder]
    command += ["--pretrain", tmp_path / "recipe.yaml", "--seeds", "1", "--out", tmp_path / "out", "--device", "cpu"]
    done = run_two("-m", "event2vec", *command)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Weights of the two directions") == 1
    results = [line for line in done.stderr.splitlines() if "shared, seed 0: " in line]
    assert len(results) == 2, "one line for each row"
    rows = json.loads((tmp_path / "out/table.json").read_text())["rows"]
    assert [row["name"] for row in rows] == ["shared", "not shared"]


def test_rows_of_your_own_need_no_figures_of_the_paper(tmp_path):
    (tmp_path / "mine.yaml").write_text("title: Width\nrows: [{name: narrow, settings: {model.dim: 16}}]")
    (row,) = load_experiment(str(tmp_path / "mine.yaml")).rows
    assert (row.name, row.settings, row.paper) == ("narrow", {"model.dim": 16}, {})
    (tmp_path / "mine.yaml").write_text("title: Width\nrows: [{settings: {}}]")
    with pytest.raises(Event2VecError, match="expected title, and rows of name and settings"):
        load_experiment(str(tmp_path / "mine.yaml"))


def test_what_all_rows_change_is_said_once(tmp_path):
    rows = "rows: [{name: narrow, settings: {model.dim: 16}}, {name: usual}]"
    (tmp_path / "mine.yaml").write_text(f"title: Width\nsettings: {{model.dim: 32, model.blocks: 1}}\n{rows}")
    narrow, usual = load_experiment(str(tmp_path / "mine.yaml")).rows
    assert narrow.settings == {"model.dim": 16, "model.blocks": 1}, "a row's own settings come last"
    assert usual.settings == {"model.dim": 32, "model.blocks": 1}


def test_what_is_no_experiment_is_said(tmp_path):
    with pytest.raises(Event2VecError, match="unknown experiment 'tables'; expected attention"):
        load_experiment("tables")
    row = "{name: a, settings: {}, paper: {x: 1}}"
    for content in (
        "title: x",
        "",
        f"title: 1\nrows: [{row}]",
        "title: x\nrows: []",
        f"title: x\nrows: [{row}, {row}]",
        "title: x\nrows: [1]",
        "title: x\nrows: [{name: ../a, settings: {}, paper: {}}]",
        "title: x\nrows: [{name: a, settings: 5, paper: {}}]",
        f"title: x\nsettings: 5\nrows: [{row}]",
        "title: x\nrows: [{name: a, settings: {}, paper: 5}]",
        "title: x\nrows: [{name: a, settings: {}, paper: {}, iterations: many}]",
        f"title: x\nrows: [{row}]\npretrain: {{folder: [1]}}",
    ):
        (tmp_path / "bad.yaml").write_text(content)
        with pytest.raises(Event2VecError, match="is not an experiment"):
            load_experiment(str(tmp_path / "bad.yaml"))
    (tmp_path / "engine.yaml").write_text("{title: x, rows: [{name: a, settings: {}, paper: {x: 1}, engine: magic}]}")
    with pytest.raises(Event2VecError, match="engine must be one of ours, scikit-learn, faiss, got 'magic'"):
        load_experiment(str(tmp_path / "engine.yaml"))
