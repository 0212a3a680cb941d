"""Experiments: every row of the paper's tables can be built, and nothing is trained twice."""

import json
from dataclasses import replace

import pytest
from conftest import SMALL, assert_same, make_recording

from event2vec import Event2VecError, EventStore, Recipe, build_model, cluster_events, load_model, load_recipe
from event2vec.experiment import Setting, experiment_names, load_experiment, run_experiment, table, write_table
from event2vec.runs import open_raw_recordings, read_run

SETTINGS = {
    "sampling.length": 16,
    "model.dim": 16,
    "model.hidden": 16,
    "model.blocks": 1,
    "training.epochs": 1,
    "training.batch": 4,
    "trainer.accelerator": "cpu",
}


@pytest.mark.parametrize("name", experiment_names())
def test_every_row_fits_our_recipes(name):
    experiment = load_experiment(name)
    assert len(experiment.rows) >= 2
    for recipe in ("digits", "nmnist", "dvs_gesture"):
        for row in experiment.rows:
            build_model(load_recipe(recipe).with_settings(row.settings).model)


def test_runs_are_kept_resumed_and_never_repeated(tmp_path, monkeypatch):
    import event2vec.training as training

    recordings = [(make_recording(40, seed=index), index % 2) for index in range(10)]
    store = EventStore.create(
        tmp_path / "store", recordings, sensor=SMALL, classes=["a", "b"], splits=["train"] * 8 + ["test"] * 2
    )
    recipe, experiment = Recipe().with_settings(SETTINGS), load_experiment("sharing")
    started, start = [], training.start_run

    def count(*arguments):
        started.append(arguments[2].name)
        if len(started) == 3:
            raise KeyboardInterrupt
        start(*arguments)

    monkeypatch.setattr(training, "start_run", count)
    arguments = (experiment, recipe, Setting(str(store.folder)), tmp_path / "out", 2)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(*arguments)
    told = []
    results = run_experiment(*arguments, tell=told.append)
    assert started == ["shared-0", "shared-1", "not_shared-0", "not_shared-0", "not_shared-1"]
    assert len(told) == 4
    assert [len(result.accuracies) for result in results] == [2, 2]
    assert results[0].parameters < results[1].parameters
    rows = table(results, "mine")
    assert list(rows[0])[:3] == ["", "accuracy on mine (%)", "paper, DVS Gesture (%)"]
    assert rows[0]["paper, DVS Gesture (%)"] == "97.57"
    write_table(rows, experiment.title, tmp_path / "out" / "table")
    assert (tmp_path / "out/table.md").read_text("utf-8").count("\n|") == 4
    assert len((tmp_path / "out/table.csv").read_text().splitlines()) == 3
    assert json.loads((tmp_path / "out/shared-0/result.json").read_text())["parameters"] == results[0].parameters
    with pytest.raises(Event2VecError, match="was begun with other settings"):
        run_experiment(experiment, recipe.with_settings({"training.epochs": 2}), *arguments[2:])
    with pytest.raises(Event2VecError, match=r"or data\. Choose another --out"):
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
    stores = [EventStore.open(read_run(tmp_path / f"out/{name.replace(' ', '_')}-0")["data"]) for name in names]
    for index, (events, label) in enumerate(small):
        for store in stores:
            assert (len(store[index][0]), store[index][1], store.splits[index]) == (16, label, small.splits[index])
            assert store[index][0].rho.sum() == len(events)
    events = small[0][0]
    assert_same(stores[0][0][0], cluster_events(events, 16))
    assert_same(stores[1][0][0], cluster_events(events, 16, seeding="plain"))
    assert load_model(tmp_path / "out/batched_K-Means++_plain-0").sampling.seeding == "plain"
    assert len({tuple(store[0][0].x.tolist()) for store in stores}) == 3
    assert all(float(row["clustering here (ms)"].split()[0]) > 0 for row in rows)
    raw = open_raw_recordings(tmp_path / "out/scikit-learn_20-0", None)
    assert raw.folder == small.folder, "a run knows what its clusters were made of"
    assert rows == table(run_experiment(*arguments), "mine"), "what was measured is kept"


def test_speed_by_the_number_of_events(small, tmp_path):
    experiment = load_experiment("events")
    experiment = replace(experiment, rows=experiment.rows[:1])
    results = run_experiment(
        experiment, Recipe().with_settings(SETTINGS), Setting(str(small.folder)), tmp_path / "out", 1
    )
    (row,) = table(results, "mine")
    for name in ("training recordings/s", "inference recordings/s", "latency (ms)"):
        assert float(row[name].replace(",", "")) > 0


def test_what_is_no_experiment_is_said(tmp_path):
    with pytest.raises(Event2VecError, match="unknown experiment 'tables'; there are attention"):
        load_experiment("tables")
    for content in ("title: x", ""):
        (tmp_path / "bad.yaml").write_text(content)
        with pytest.raises(Event2VecError, match="is no experiment"):
            load_experiment(str(tmp_path / "bad.yaml"))
    (tmp_path / "engine.yaml").write_text("{title: x, rows: [{name: a, settings: {}, paper: {x: 1}, engine: magic}]}")
    with pytest.raises(Event2VecError, match="engine must be one of ours, plain, scikit-learn, faiss, got 'magic'"):
        load_experiment(str(tmp_path / "engine.yaml"))
