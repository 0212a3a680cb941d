"""Sections of the report page: every table and sentence worked out again from the evaluation, the run and its store."""

import html
import re
import shlex
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import SMALL, make_recording, randomise
from evaluations import evaluation
from trainings import RECIPE

from event2vec import Classifier, EventStore, ModelConfig, Run, Sampling, Windows, build_model, load_recipe, save_model
from event2vec.baselines.config import FrameCnnConfig
from event2vec.documents import write_json
from event2vec.evaluation.accuracy import wilson_interval
from event2vec.evaluation.evaluate import SEED
from event2vec.evaluation.speed import INCLUDED, Figure, Speed, Throughput
from event2vec.evaluation.sweeps import Point
from event2vec.machine.devices import CPU
from event2vec.model.trained_on import TrainedOn
from event2vec.names import counted
from event2vec.progress import SILENT
from event2vec.studies.report import _lead, sections
from event2vec.studies.report.study import CLASSES, MISTAKES, Study, choose
from event2vec.training.environment import environment

COUNTS = (10, 20, 30, 41)  # events of the test recordings


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run with a network that nobody trained, and its store."""
    place = tmp_path_factory.mktemp("sections")
    recordings = [(make_recording(50, seed=index), index % 2) for index in range(5)]
    recordings += [(make_recording(25, seed=9), 2)]
    recordings += [(make_recording(count, seed=count, duration=1000 * count), 0) for count in COUNTS]
    splits = ["train"] * 5 + ["validation"] + ["test"] * 4
    classes = ["a<b", "b", "c"]
    store = EventStore.create(place / "store", recordings, sensor=SMALL, classes=classes, splits=splits)
    run = place / "my run"
    model = randomise(build_model(RECIPE.model, class_names=classes, sampling=Sampling(length=32)))
    save_model(model, run / "model")
    (run / "recipe.yaml").write_text(RECIPE.to_yaml())
    facts = {"task": "train", "data": str(store.folder), "source": str(store.folder), "init": None}
    write_json(run / "run.json", facts | environment())
    return run


@pytest.fixture
def study(folder, monkeypatch):
    monkeypatch.setattr(sections, "_picture", lambda name, draw: f"[{name}]")
    run = Run.open(folder)
    whole = run.store()
    return Study(run, run.model(), whole, whole.split("test"), 2, SILENT, CPU)


def judged(study, **changes):
    """The study, as if this evaluation had been made."""
    study.__dict__["evaluation"] = evaluation(**changes)
    return study


def table_of(text):
    """Rows of cells as people see them."""
    rows = [re.split("<t[hd]>", row)[1:] for row in text.split("<table>")[1].partition("</table>")[0].split("<tr>")[1:]]
    return [[html.unescape(cell.partition("</t")[0]) for cell in row] for row in rows]


def sentences(text):
    return html.unescape(re.sub("<[^>]+>", "", text.replace("</p>", " ")))


# What it is about


def test_the_lead_says_how_good_how_sure_and_how_large_it_is(study):
    parameters = sum(weights.numel() for weights in study.model.parameters())
    size = f"{parameters:,} parameters"
    assert _lead(study) == f"A network with {size}. Its accuracy is unknown; see Accuracy below."
    interval = wilson_interval(4 / 6, 6).percent(1)
    said = f"Recognises <b>66.7 %</b> (95 % interval {interval} %) of 6 test recordings of 3 classes, with {size}."
    assert _lead(judged(study)) == said
    alone = {"recordings": 1, "accuracies": (1.0,), "class_names": ("ant",), "confusion": np.array([[1]])}
    assert " of 1 test recording of 1 class, with" in _lead(judged(study, **alone))


def test_the_data_are_counted_by_class_and_split(study):
    heads, *rows = table_of(sections._data(study))
    assert heads == ["class", "training recordings", "validation recordings", "test recordings"]
    assert rows == [["a<b", "3", "0", "4"], ["b", "2", "0", "0"], ["c", "0", "1", "0"]]


def test_events_and_durations_of_the_test_recordings_are_exact(study):
    durations = [make_recording(count, seed=count, duration=1000 * count).duration / 1e3 for count in COUNTS]
    said = sentences(sections._data(study))
    assert "Sensor 34x30. Test recordings have 10 to 41 events (median 25) " in said
    assert f"and a median duration of {np.median(durations):,.0f} ms." in said
    assert "Training saw" not in said, "which this network does not know"


def test_what_training_saw_is_said_where_the_network_knows(study):
    study.model.trained_on = TrainedOn.of(study.whole.split("train"))
    summary = study.model.trained_on.summary(study.model.sampling)
    assert f"Training saw {summary}. predict and evaluate flag" in sentences(sections._data(study))


# How good it is


def test_each_class_has_its_accuracy_and_interval(study):
    heads, *rows = table_of(sections._accuracy(judged(study)))
    assert heads == ["class", "accuracy (%)", "95 % interval"]
    assert rows == [
        ["ant", "75.0", wilson_interval(0.75, 4).percent(1)],
        ["bee", "50.0", wilson_interval(0.5, 2).percent(1)],
        ["cat", "-", ""],
    ]


def test_the_accuracy_is_said_with_its_draws_and_the_best_five_only_where_they_are(study):
    interval = wilson_interval(4 / 6, 6).percent(1)
    said = sentences(sections._accuracy(judged(study)))
    lead = f"66.7 % of 6 recordings; on other recordings of this kind, expect {interval} % (95 % interval, Wilson). "
    assert said.startswith(lead)
    assert "draws" not in said
    assert "Top-5" not in said
    said = sentences(sections._accuracy(judged(study, repeats=2, accuracies=(4 / 6, 5 / 6), top5=5 / 6)))
    assert "75.0 ± 11.8 % of 6 recordings" in said
    assert "Mean and standard deviation over 2 draws of the events." in said
    assert f"Top-5 accuracy: 83.3 % ({wilson_interval(5 / 6, 6).percent(1)})." in said


def test_scores_are_judged_with_and_without_the_temperature(study):
    found = evaluation().calibration
    heads, *rows = table_of(sections._confidence(judged(study)))
    assert heads == ["scores", "calibration error (%)", "mean confidence (%)", "NLL", "Brier score"]
    for row, name, each in zip(
        rows, ("without a temperature", "with temperature 2.00"), (found.before, found.after), strict=True
    ):
        shares = [f"{100 * value:.1f}" for value in (each.error, each.confidence)]
        assert row == [name, *shares, f"{each.nll:.3f}", f"{each.brier:.3f}"]
    plain = replace(found, temperature=1.0)
    text = sections._confidence(judged(study, calibration=plain))
    assert [row[0] for row in table_of(text)] == ["scores", "as they are given"]
    assert "fitted on the validation recordings" not in text


def test_without_an_evaluation_confidence_is_unknown(study):
    assert sections._confidence(study) == "<p>Unknown; see Accuracy above.</p>"


# How it was trained


def test_the_training_says_its_network_its_epochs_and_its_start(study, monkeypatch):
    assert sections._training(study) == (
        "<p>The run has no metrics.</p><p>A network with 2 blocks of width 16 and 2 attention heads reads up to 32 "
        "random events of each recording.</p>"
    )
    rows = "".join(f"{epoch},45,0.1\n" for epoch in range(1, 5))
    study.run.metrics_file.write_text("epoch,seconds,data_share\n" + rows)
    try:
        write_json(study.run.facts_file, study.run.facts.to_json() | {"init": "runs/<old>"})
        said = sections._training(replace(study, run=Run.open(study.run.folder)))
    finally:
        study.run.metrics_file.unlink()
        write_json(study.run.facts_file, study.run.facts.to_json())
    assert said.startswith("[curves.svg]<p>")
    assert " 4 epochs took 3.0 minutes. It started from the weights of runs/&lt;old&gt;.</p>" in said


def test_another_kind_of_network_is_called_by_its_name():
    assert sections._network(FrameCnnConfig()) == "A network of the kind frame_cnn"
    config = ModelConfig(dim=16, hidden=16, blocks=1, heads=1)
    assert sections._network(config) == "A network with 1 block of width 16 and 1 attention head"


# How robust it is


@pytest.mark.parametrize(
    ("length", "counts"),
    [
        (1024, [128, 256, 512, 1024, 2048]),
        (8, [2, 4, 8, 16]),
        (2, [2, 4]),
        (65536, [500, 1000, 2000, 4000, 8000]),  # it reads all, and the median recording has 4,000
    ],
)
def test_numbers_of_events_go_from_an_eighth_to_twice_as_many(length, counts):
    model: Any = SimpleNamespace(sampling=Sampling(length=length))
    raw: Any = SimpleNamespace(lengths=np.array([100, 4000, 90_000]))
    assert sections._event_counts(model, raw) == counts


def test_times_since_the_onset_go_from_a_sixteenth_of_the_median_to_all_of_it():
    store: Any = SimpleNamespace(durations=np.array([100_000, 160_000, 900_000]))
    assert sections._seconds(store) == [0.01, 0.02, 0.04, 0.08, 0.16]
    instant: Any = SimpleNamespace(durations=np.array([0]))
    assert sections._seconds(instant) == [1e-6, 2e-6, 4e-6, 8e-6, 1.6e-5], "no window is shorter than the clock's tick"


@pytest.mark.parametrize(
    ("kind", "head"), [("events", "events"), ("resolution", "pixels per side"), ("windows", "seconds")]
)
def test_a_sweep_has_a_row_for_each_value_with_its_interval(study, kind, head):
    points = [Point(1234, evaluation()), Point(8, evaluation(accuracies=(0.5,)), 5)]
    heads, *rows = table_of(sections._sweep(points, kind, "A title"))
    assert heads == [head, "accuracy (%)", "95 % interval"]
    assert rows == [
        ["1,234", "66.7", wilson_interval(4 / 6, 6).percent(1)],
        ["8 (median available: 5)", "50.0", wilson_interval(0.5, 6).percent(1)],
    ]


def test_each_sweep_is_over_its_own_values_with_three_draws(study, monkeypatch):
    asked = []

    def sweep(kind, model, raw, values, repeats, progress):
        asked.append((kind, values, repeats))
        return [Point(values[0], evaluation())]

    monkeypatch.setattr(sections, "sweep", sweep)
    text = sections._robustness(study)
    assert asked == [
        ("events", sections._event_counts(study.model, study.raw), 3),
        ("resolution", [1, 2, 4, 8, 16, 34], 3),
        ("windows", sections._seconds(study.raw), 3),
    ]
    assert [text.index(f"[{name}.svg]") for name, _, _ in asked] == sorted(
        text.index(f"[{name}.svg]") for name, _, _ in asked
    )


# What it looks at, and how fast it is


def test_the_recordings_of_the_player_are_one_of_each_class_and_a_few_mistakes(tmp_path):
    labels = [*range(12), *([0] * 8)]
    recordings = [(make_recording(5, seed=number), label) for number, label in enumerate(labels)]
    names = [str(number) for number in range(12)]
    store = EventStore.create(tmp_path / "store", recordings, sensor=SMALL, classes=names)
    right, wrong = np.array(labels), np.full(len(labels), 11)
    assert choose(store, right) == list(range(CLASSES)), "of the first ten classes"
    assert choose(store, wrong) == [*range(CLASSES), 10, 12, 13][: CLASSES + MISTAKES]


def test_a_study_reads_the_events_of_the_first_draw_of_an_evaluation(study):
    from event2vec.data.batches import Recordings

    wanted = Recordings((study.store,), study.model.sampling, SEED)[0, 3][0]
    assert study.tokens(3).t.tolist() == wanted.t.tolist()
    assert len(study.tokens(3)) == 32
    assert [study.truth(index) for index in range(4)] == ["a<b"] * 4


def test_the_long_recording_is_the_test_recording_with_most_windows_where_its_file_is(study, tmp_path):
    assert study.long_recording is None, "the network learnt whole recordings"
    study.model.windows = Windows(window=0.1)
    sources = ["x.raw [0 to 1 s]", "y.raw [0 to 1 s]", "y.raw [1 to 2 s]", "z.raw [0 to 1 s]"]
    (tmp_path / "y.raw").touch()
    test = SimpleNamespace(sources=sources, labels=np.array([0, 1, 1, 0]), classes=["a", "b"])
    whole: Any = SimpleNamespace(split=lambda name: test)
    run: Any = SimpleNamespace(raw_source=str(tmp_path))
    found = replace(study, run=run, whole=whole)
    assert found.long_recording == tmp_path / "y.raw"
    assert found.class_of(tmp_path / "y.raw") == "b"
    (tmp_path / "y.raw").unlink()
    assert found.long_recording is None
    once: Any = SimpleNamespace(split=lambda name: SimpleNamespace(sources=sources[:2]))
    (tmp_path / "x.raw").touch()
    assert replace(found, whole=once).long_recording is None, "no recording has two"


def test_networks_without_attention_or_vectors_say_so(study):
    class Other(Classifier):
        def forward(self, batch, generator=None):
            raise NotImplementedError

    other = replace(study, model=Other(FrameCnnConfig(classes=3), ("a", "b", "c"), Sampling()))
    assert sections._attention(other) == "<p>This network has no attention weights to draw.</p>"
    assert sections._embedding(other) == "<p>This network has no vectors of events.</p>"
    assert sections._attention(study).count("[attention_") == 2
    assert "[embedding.png]" in sections._embedding(study)


def test_speed_is_a_table_of_its_facts_and_says_where_it_was_measured(study, monkeypatch):
    one = Figure(1234.56, 7.89)
    speed, given = Speed(one, one, one, Throughput(8, one), Throughput(4, one)), []
    monkeypatch.setattr(sections, "measure_speed", lambda *arguments: given.append(arguments) or speed)
    monkeypatch.setattr(sections, "training_step", lambda *_: None)
    study.__dict__["chosen"] = [2, 0]
    text = sections._speed(study)
    ((_, recordings, _, compute),) = given
    assert [len(events) for events in recordings] == [30, 10], "with all their events"
    assert compute is CPU
    rows = dict(table_of(text)[1:])
    assert rows == {name: f"{value:,.1f}" for name, value in speed.columns().items()}
    assert rows["preparing ms"] == "1,234.6"
    here = environment()
    machine = f"Measured with torch {here['torch']} with {counted(here['threads'], 'thread')} on {here['machine']}."
    assert sentences(text).endswith(f"{INCLUDED} {machine} ")


def test_the_commands_repeat_the_run_as_they_stand(study):
    blocks = re.findall("<pre>(.*?)</pre>", sections._repeat(study), re.DOTALL)
    first, began, recipe = map(html.unescape, blocks)
    run, data = str(study.run.folder), str(study.whole.folder)
    assert [shlex.split(line) for line in first.splitlines()] == [
        ["event2vec", "train", f"{run}/recipe.yaml", "--data", data, "--out", f"{run}-again"],
        ["event2vec", "evaluate", run],
        ["event2vec", "report", run],
    ]
    assert dict(line.split(": ", 1) for line in began.splitlines())["torch"] == environment()["torch"]
    assert recipe == RECIPE.to_yaml()
    assert load_recipe(study.run.recipe_file) == RECIPE


def test_names_in_tables_are_shown_and_not_obeyed():
    assert table_of(sections._table(["<b>"], [["<i>&"]])) == [["<b>"], ["<i>&"]]
    assert "<b>" not in sections._table(["<b>"], [["<i>&"]])
