"""The page of a shared network, part by part: only what was measured, and names as text."""

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import yaml
from conftest import SMALL, randomise

from event2vec import Event2VecError, ModelConfig, Recipe, Run, Sampling, build_model
from event2vec.documents import write_json
from event2vec.evaluation.calibration import Calibration
from event2vec.evaluation.evaluate import Evaluation
from event2vec.model.masked import build_masked_model
from event2vec.model.trained_on import TrainedOn
from event2vec.training.metrics import append_row, read_rows, write_rows
from event2vec.training.model_card import model_card

TINY = ModelConfig(sensor=SMALL, classes=3, dim=16, hidden=16, heads=2, blocks=1, pooling=False)
NAMES = ("left | right", "<b>wave</b>", "stop`")


@pytest.fixture
def model():
    return randomise(build_model(TINY, class_names=NAMES, sampling=Sampling(length=1234)))


def made_run(folder, epochs: int = 1, **settings: Any) -> Run:
    """A run's folder as far as the page reads it."""
    folder.mkdir()
    (folder / "recipe.yaml").write_text(Recipe(name="mine").with_settings(settings).to_yaml())
    for epoch in range(1, epochs + 1):
        append_row(folder / "metrics.csv", {"epoch": float(epoch), "seconds": 2.0, "data_share": 0.1})
    return Run(folder)


def result(temperature: float = 1.0) -> Evaluation:
    scores = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.6, 0.3, 0.1], [0.5, 0.4, 0.1]])
    confusion = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 0]])
    found = Calibration.of(scores, np.array([0, 1, 1, 0]), temperature)
    return Evaluation(NAMES, 4, 1, 1, (0.5,), None, confusion, found)


@pytest.mark.parametrize(("epochs", "said"), [(1, "1 epoch, seed 7"), (12, "12 epochs, seed 7")])
def test_the_training_is_told_with_all_its_settings_and_no_file(model, tmp_path, epochs, said):
    labels = "/home/anna/labels.csv"
    run = made_run(tmp_path / "run", epochs, **{"training.seed": 7, "data.labels": labels})
    page = model_card(run, model, "anna/mine", None, {})
    assert f"Recipe `mine`, {said}; all settings:" in page
    settings = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    assert settings["training"]["seed"] == 7
    assert "anna/labels" not in page
    assert settings["data"]["labels"] == ""


def test_results_are_those_that_were_measured(model, tmp_path):
    run = made_run(tmp_path / "run")
    assert "How good it is" not in model_card(run, model, "anna/mine", None, {})
    found = result()
    write_json(run.result("test"), found.facts())
    page = model_card(run, model, "anna/mine", "mit", {"figures/x.png": "A title"})
    _, head, body = page.split("---\n", 2)
    facts = yaml.safe_load(head)
    assert facts["license"] == "mit"
    assert facts["model-index"][0]["name"] == "mine"
    assert facts["model-index"][0]["results"][0]["metrics"] == [{"type": "accuracy", "value": 0.5, "name": "accuracy"}]
    assert "**50.0 %** of 4 test recordings are recognised (95 % interval 15.0 to 85.0 %, Wilson)" in body
    rows = [line for line in body.splitlines() if line.startswith("| ")]
    assert rows[1:] == [
        "| left \\| right | 50.0 % | 9.5 to 90.5 % |",
        "| &lt;b&gt;wave&lt;/b&gt; | 50.0 % | 9.5 to 90.5 % |",
    ], "a class without recordings has no row"
    trust = found.calibration.after
    assert f"Calibration error {100 * trust.error:.1f} % (15 bins), without a fitted temperature" in body
    assert f"mean confidence {100 * trust.confidence:.1f} %, Brier score {trust.brier:.3f}" in body
    assert "![A title](figures/x.png)" in body
    write_json(run.result("test"), result(2.5).facts())
    fitted = model_card(run, model, "anna/mine", None, {})
    assert "with the temperature 2.50 that was fitted on validation recordings" in fitted
    assert "license" not in yaml.safe_load(fitted.split("---\n")[1])


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"accuracy": 0.5}, "is damaged, expected accuracy and interval. Run 'event2vec evaluate' again"),
        ({"accuracy": "x", "interval": [0, 1]}, "is damaged, expected accuracy and interval"),
        ({"accuracy": 0.5, "interval": [0.1, 0.9]}, "has no recordings: an older version wrote it"),
        ({"accuracy": 0.5, "interval": [0, 1], "recordings": 4}, "has no per_class: an older version wrote it"),
    ],
)
def test_results_that_are_damaged_or_old_are_not_shown(model, tmp_path, facts, said):
    run = made_run(tmp_path / "run")
    write_json(run.result("test"), facts)
    with pytest.raises(Event2VecError) as refusal:
        model_card(run, model, "anna/mine", None, {})
    assert said in str(refusal.value)


def test_what_the_network_reads_and_knows_is_said(model, tmp_path):
    page = model_card(Run(tmp_path), model, "anna/mine", None, {})
    assert "It reads up to 1,234 random events of a recording, and knows 3 classes:" in page
    assert "left \\| right, &lt;b&gt;wave&lt;/b&gt;, stop'." in page
    assert f"{sum(weight.numel() for weight in model.parameters()):,} parameters" in page
    assert "for a 34x30 sensor" in page
    assert "It was trained on" not in page
    assert "How it was trained" not in page
    model.trained_on = TrainedOn(9, (1.0,) * 7, (100.0,) * 7, (100.0,) * 7)
    model.sampling = Sampling(method="clusters", length=64)
    page = model_card(Run(tmp_path), model, "anna/mine", None, {})
    assert f"It was trained on {model.trained_on.summary(model.sampling)}. Recordings far" in page
    assert "It reads up to 64 clusters of a recording" in page
    assert "event2vec predict hf://anna/mine recording.aedat4" in page


def test_a_pre_trained_network_has_no_classes_and_says_how_to_fine_tune_it(tmp_path):
    page = model_card(Run(tmp_path), build_masked_model(TINY), "anna/mine", None, {})
    assert "event2vec train folder --data my_recordings/ --init hf://anna/mine" in page
    assert "event2vec predict" not in page
    assert "classes:" not in page
    assert yaml.safe_load(page.split("---\n")[1]) == {
        "library_name": "event2vec", "tags": ["event2vec", "event-camera", "neuromorphic"],
    }  # fmt: skip


# ---- the table of epochs, from which pages and curves are made


def test_an_epoch_without_a_metric_has_an_empty_place_and_comes_back_without_it(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,seconds,data_share,validation_loss\n1.0,2.0,0.1,\n2.0,2.0,0.1,0.5\n")
    first, second = read_rows(path)
    assert first == {"epoch": 1.0, "seconds": 2.0, "data_share": 0.1}
    assert second["validation_loss"] == 0.5


def test_all_later_epochs_go_where_an_earlier_one_is_trained_again(tmp_path):
    path = tmp_path / "metrics.csv"
    for epoch in (1.0, 2.0, 3.0, 2.0):
        append_row(path, {"epoch": epoch, "seconds": epoch, "data_share": 0.0})
    assert [row["epoch"] for row in read_rows(path)] == [1, 2]


def test_tables_of_anything_have_the_columns_of_their_last_row(tmp_path):
    write_rows(tmp_path / "x.csv", [asdict(Sampling(length=5)), asdict(Sampling(length=6))])
    head, first, second = (tmp_path / "x.csv").read_text().splitlines()
    assert head.split(",") == list(asdict(Sampling()))
    assert ",5," in first
    assert ",6," in second


@pytest.mark.parametrize(
    "content", ["epoch,seconds,data_share\n", "epoch,seconds,data_share\n1,2\n", "epoch,seconds,data_share\n1,2,3,4\n"]
)
def test_a_table_without_epochs_or_with_lines_cut_short_is_one_error(tmp_path, content):
    (tmp_path / "metrics.csv").write_text(content)
    with pytest.raises(Event2VecError, match=r"metrics.csv: is not a table of a run's epochs"):
        read_rows(tmp_path / "metrics.csv")
