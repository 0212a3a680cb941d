"""Experiments: every row of the paper's tables can be built, and nothing is trained twice."""

import json

import pytest
from conftest import SMALL, make_recording

from event2vec import Event2VecError, EventStore, Recipe, build_model, load_recipe
from event2vec.experiment import experiment_names, load_experiment, run_experiment, table, write_table

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
    arguments = (experiment, recipe, str(store.folder), tmp_path / "out", 2)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(*arguments)
    told = []
    results = run_experiment(*arguments, tell=told.append)
    assert started == ["shared-0", "shared-1", "not_shared-0", "not_shared-0", "not_shared-1"]
    assert len(told) == 4
    assert [len(result.accuracies) for result in results] == [2, 2]
    assert results[0].parameters < results[1].parameters
    rows = table(experiment, results, "mine")
    assert list(rows[0])[:3] == ["", "accuracy on mine (%)", "paper, DVS Gesture (%)"]
    assert rows[0]["paper, DVS Gesture (%)"] == "97.57"
    write_table(rows, experiment.title, tmp_path / "out" / "table")
    assert (tmp_path / "out/table.md").read_text("utf-8").count("\n|") == 4
    assert len((tmp_path / "out/table.csv").read_text().splitlines()) == 3
    assert json.loads((tmp_path / "out/shared-0/result.json").read_text())["parameters"] == results[0].parameters
    with pytest.raises(Event2VecError, match="is the result of other settings"):
        run_experiment(experiment, recipe.with_settings({"training.epochs": 2}), *arguments[2:])


def test_what_is_no_experiment_is_said(tmp_path):
    with pytest.raises(Event2VecError, match="unknown experiment 'tables'; there are attention"):
        load_experiment("tables")
    (tmp_path / "bad.yaml").write_text("title: x")
    with pytest.raises(Event2VecError, match="is no experiment"):
        load_experiment(str(tmp_path / "bad.yaml"))
