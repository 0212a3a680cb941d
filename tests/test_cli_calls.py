"""What verbs hand to the library, and what they print of its answer; the work itself is done elsewhere."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from evaluations import evaluation
from golden.make import FOLDER
from shell import run

from event2vec import Event2VecError, Sampling, load_recipe, read_events
from event2vec.cluster import Cluster
from event2vec.evaluation.accuracy import Accuracies
from event2vec.evaluation.evaluate import Evaluation
from event2vec.evaluation.probe import ProbeRow
from event2vec.progress import ShownProgress
from event2vec.studies.gallery import Gallery
from event2vec.studies.report import Report
from event2vec.studies.tables import Row, RowResult
from event2vec.training.folds import CrossValidation, Fold

NETWORK = FOLDER / "network"


@pytest.fixture
def report(called):
    return called("event2vec.studies.report.report", Report(Path("page.html"), evaluation(), {}))


@pytest.fixture
def some_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("some").mkdir()
    Path("some/run.json").touch()
    return "some"


def test_a_report_says_how_good_the_network_is_and_where_the_page_lies(report, some_run, capsys):
    assert run("report", some_run, "--out", "page.html", "--repeats", "3", "--device", "cpu", "--workers", "1") == 0
    ((given, named),) = report
    assert given == (some_run, "page.html")
    assert (named["repeats"], named["device"], named["workers"], named["data"]) == (3, "cpu", 1, None)
    assert capsys.readouterr().err == "66.7 % of 6 recordings (95 % interval 30.0 to 90.3 %). The page: page.html\n"
    Path("page.html").touch()
    assert run("report", some_run, "--out", "page.html") == 2
    assert "page.html: exists already. Choose another --out or add --overwrite" in capsys.readouterr().err
    assert run("report", some_run, "--out", "page.html", "--overwrite") == 0


def test_a_report_with_a_section_that_failed_is_not_a_success(called, some_run, capsys):
    called("event2vec.studies.report.report", Report(Path("page.html"), None, {"Accuracy": "the store is gone"}))
    assert run("report", some_run) == 2
    assert capsys.readouterr().err == "The page: page.html\n"
    assert run("report", some_run, "--json") == 2
    facts = {"page": "page.html", "evaluation": None, "problems": {"Accuracy": "the store is gone"}}
    assert json.loads(capsys.readouterr().out) == facts


def test_a_report_has_its_page_and_its_evaluation_as_json(report, some_run, capsys):
    assert run("report", some_run, "--json") == 0
    said = capsys.readouterr()
    facts = {"page": "page.html", "evaluation": json.loads(json.dumps(evaluation().facts())), "problems": {}}
    assert (json.loads(said.out), said.err) == (facts, "")


@pytest.fixture
def trained(called, report):
    kept: list[Evaluation] = []
    return called("event2vec.training.train.train", SimpleNamespace(keep_evaluation=kept.append)), kept


def test_the_demo_trains_on_digits_and_shows_what_was_learnt(trained, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/demo").mkdir(parents=True)
    (tmp_path / "runs/demo/precious").touch()
    assert run("demo", "--epochs", "2", "--workers", "1") == 0
    calls, kept = trained
    ((given, named),) = calls
    assert given == ("digits",)
    assert (named["out"], named["workers"], named["training.epochs"]) == (Path("runs/demo-2"), 1, 2)
    assert [found.recordings for found in kept] == [6]
    said = capsys.readouterr()
    assert "accuracy 66.67 % on 6 recordings, one draw; 95 % interval 30.00 to 90.32 %" in said.out
    assert said.err.splitlines()[-1].endswith("See what it learnt: page.html")


def test_the_demo_trains_as_long_as_the_recipe_says(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("demo") == 0
    assert "training.epochs" not in trained[0][0][1]


def test_of_processes_that_show_the_demo_together_one_reports(trained, report, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert run("demo") == 0
    assert report == []


def test_an_evaluation_is_shown_class_by_class(called, capsys):
    many = evaluation(repeats=2, vote=3, accuracies=(4 / 6, 5 / 6), top5=1.0, far=(("a.raw", "too long"),))
    called("event2vec.training.run.Run.evaluate", many)
    assert run("evaluate", NETWORK) == 0
    said = capsys.readouterr()
    rows = {line.split()[0]: line for line in said.out.splitlines() if line.strip()}
    assert "75.0%" in rows["ant"]
    assert rows["ant"].split()[-2:] == ["bee", "(25%)"]
    assert rows["bee"].split()[-2:] == ["cat", "(50%)"]
    assert rows["cat"].split() == ["cat", "0", "-"], "of which there was none"
    assert "accuracy 75.00 ± 11.79 % on 6 recordings, 2 evaluations, each averaging 3 draws" in said.out
    assert "among the best five: 100.00 %" in said.out
    called("event2vec.training.run.Run.evaluate", evaluation(vote=3))
    assert run("evaluate", NETWORK) == 0
    assert "accuracy 66.67 % on 6 recordings, the average of 3 draws; 95 % interval" in capsys.readouterr().out
    assert "1 of 6 recordings is unlike the training recordings, such as a.raw: too long" in said.err


def test_a_probe_is_a_table_for_people_and_a_list_for_programs(called, capsys):
    row = ProbeRow("event2vec", 1, Accuracies((0.5, 0.7), 10), Accuracies((0.8,), 10))
    raw = ProbeRow("raw events", None, Accuracies((0.2,), 10), Accuracies((0.3,), 10))
    probes = called("event2vec.studies.probe.probe", [raw, row])
    command = ("probe", NETWORK, "--data", FOLDER, "--dataset", "nmnist", "--events", "64", "--method", "clusters")
    assert run(*command) == 0
    said = capsys.readouterr()
    assert "event2vec, 1 block" in said.out
    assert "60.00 ± 14.14 (31.27 to 83.18)" in said.out
    assert said.err == "on 10 test recordings of golden\n"
    given, named = probes[0]
    assert given == (str(NETWORK), str(FOLDER), "nmnist", None)
    assert named["sampling"] == Sampling(method="clusters", length=64)
    assert run(*command, "--layers", "2", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert [each["features"] for each in facts] == ["raw events", "event2vec"]
    assert facts[1]["trained_head"]["accuracy"] == pytest.approx(0.6)
    assert probes[1][0][3] == [2]
    assert run(*command, "--events", "1") == 2
    assert "sampling.length must be at least 2" in capsys.readouterr().err


def test_an_experiment_is_printed_and_written(called, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        RowResult(Row(name, {}, {"DVS Gesture": paper}), (0.9, 0.8), 50, ((0.9,), (0.8,)), 1000, 60.0)
        for name, paper in (("shared", "97.57"), ("not shared", "96.63"))
    ]
    calls = called("event2vec.studies.experiment.run_experiment", rows)
    assert run("experiment", "sharing", "--recipe", "digits", "--epochs", "3", "--seeds", "2") == 0
    ((experiment, recipe, setting, folder, seeds), _) = calls[0]
    assert (len(experiment.rows), recipe.training.epochs, setting.pretrain, seeds) == (2, 3, None, 2)
    assert folder == Path("experiments/sharing-digits")
    said = capsys.readouterr()
    assert "not shared" in said.out
    assert "97.57" in said.out
    assert {path.name for path in (tmp_path / folder).iterdir()} == {"table.csv", "table.md", "table.json"}
    called("event2vec.studies.experiment.run_experiment", [])
    assert run("experiment", "sharing", "--out", "other") == 0
    assert capsys.readouterr().out == "", "another process has the results"
    assert not (tmp_path / "other").exists()
    assert run("experiment", "sharing", "--init", NETWORK, "--pretrain", "digits") == 2
    assert "--pretrain each from its own; omit one of them" in capsys.readouterr().err


@pytest.fixture
def real():
    return FOLDER / "recordings/3/aedat4.aedat4"


def test_a_recording_is_seen_as_a_page_or_an_animation(real, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    events = read_events(real)
    assert run("view", real) == 0
    shown = f"aedat4.html: {len(events)} events, {events.duration / 1e6:.3f} s, {events.sensor}\n"
    assert capsys.readouterr().err == shown
    assert (tmp_path / "aedat4.html").stat().st_size > 1000
    assert run("view", "missing.raw") == 2
    assert "missing.raw does not exist, expected a recording" in capsys.readouterr().err
    assert run("view", real, "--gif", "--mp4") == 2
    assert "choose either --gif or --mp4" in capsys.readouterr().err
    assert run("view", real, "--gif", "--out", "a.html") == 2
    assert "--out must end in .gif with --gif, got a.html" in capsys.readouterr().err


def test_what_was_thinned_or_slowed_down_is_said(real, tmp_path, capsys, called, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = {"recorded": 1_000_000, "shown": 400_000, "speed": 0.5, "duration": 2e6, "sensor": "34x30"}
    made = SimpleNamespace(path=Path("a.gif"), **shown)
    calls = called("event2vec.player.view", made)
    assert run("view", real, "--gif", "--out", "a.gif") == 0
    assert calls[0][0][1] == Path("a.gif")
    assert capsys.readouterr().err.splitlines() == [
        "a.gif: 1,000,000 events, 2.000 s, 34x30",
        "Thinned: the page has 400,000 of the events, picked at random.",
        "The animation plays at 0.5 times the recorded speed.",
    ]


@pytest.mark.parametrize("task", ["train", "pretrain"])
def test_training_gets_the_places_and_only_the_settings_that_were_given(called, task, tmp_path):
    calls = called(f"event2vec.training.train.{task}", None)
    places = ("--data", tmp_path, "--out", "run", "--init", NETWORK)
    assert run(task, "folder", *places, "--workers", "3", "--training.epochs", "5", "--window", "0.5") == 0
    ((given, named),) = calls
    assert given == ("folder", str(tmp_path), "run", str(NETWORK))
    assert named.pop("workers") == 3
    assert isinstance(named.pop("progress"), ShownProgress)
    assert named == {"training.epochs": 5, "data.window": 0.5}


def test_a_resumed_run_gets_what_may_differ_from_its_start(called, tmp_path, capsys):
    calls = called("event2vec.training.run.Run.resume", None)
    (tmp_path / "run.json").write_text('{"task": "train", "data": "store"}')
    resume = ("train", "--resume", tmp_path)
    assert run(*resume, "--data", tmp_path, "--training.epochs", "9") == 0
    ((given, named),) = calls
    assert given[-1] == str(tmp_path)
    assert named["training.epochs"] == 9
    for option in (("--out", "x"), ("--init", NETWORK)):
        assert run(*resume, *option) == 2
        assert f"--resume continues the run as it was started; omit {option[0]}" in capsys.readouterr().err
    assert run("pretrain", *resume[1:]) == 2
    error = capsys.readouterr().err
    assert (
        error == f"event2vec: {tmp_path}: was started by train. Resume it with: event2vec train --resume {tmp_path}\n"
    )
    assert len(calls) == 1


def test_folds_are_a_table_with_their_sum(called, tmp_path, capsys):
    folds = (Fold(1, 0.9, 10, 5, 1.0), Fold(2, 0.7, 10, 4, 2.5))
    calls = called("event2vec.training.folds.cross_validate", CrossValidation.of(Path("out"), folds))
    assert run("train", "folder", "--data", tmp_path, "--folds", "2", "--training.epochs", "5") == 0
    ((given, named),) = calls
    assert given == ("folder", str(tmp_path), None, None)
    assert (named["folds"], named["training.epochs"]) == (2, 5)
    said = capsys.readouterr()
    rows = [line.split() for line in said.out.splitlines()]
    assert rows[1][:3] == ["1", "90.00", "%"]
    assert rows[2][-1] == "2.5"
    assert "accuracy 80.00 ± 14.14 % over 2 folds, 20 recordings; 95 % interval" in said.out
    assert "Saved to out/folds.json and out/folds.csv" in said.err
    assert run("train", "folder", "--data", tmp_path, "--folds", "2", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert [facts[name] for name in ("folder", "summary", "table")] == ["out", "out/folds.json", "out/folds.csv"]
    assert facts["interval"] == pytest.approx(CrossValidation.of(Path("out"), folds).interval)
    assert [fold["interval"] for fold in facts["folds"]] == [pytest.approx(fold.interval) for fold in folds]


def test_figures_say_where_they_are_and_which_are_missing(called, capsys):
    problem = Event2VecError("the store is gone")
    calls = called("event2vec.studies.gallery.draw_gallery", Gallery(Path("figures"), {"mine": 0.994}, problem))
    assert run("figures", NETWORK, "--recordings", "0", "--out", "figures", "--device", "cpu") == 2
    ((given, named),) = calls
    assert given == ([str(NETWORK)], "figures")
    assert (named["recordings"], named["device"], named["data"]) == (0, "cpu", None)
    said = capsys.readouterr()
    assert said.out == "mine: neighbouring pixels have a cosine similarity of 0.994\n"
    assert said.err.splitlines() == [
        "The figures are in figures",
        "event2vec: some figures could not be drawn: the store is gone",
    ]
    called("event2vec.studies.gallery.draw_gallery", Gallery(Path("figures"), {"mine": 0.994}, None))
    assert run("figures", NETWORK, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"neighbour_similarity": {"mine": 0.994}, "folder": "figures"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("train", "digits", "--cluster", "auto"),
            "--cluster trains folds side by side: add --folds. To train one model on several nodes, use torchrun",
        ),
        (("train", "digits", "--threads", "2"), "--threads is for tasks on a cluster; omit it, or add --cluster"),
        (
            ("pretrain", "digits", "--folds", "2"),
            "unknown option --folds (did you mean --data.folds?). See 'event2vec pretrain --help'",
        ),
        (("train", "digits", "--workers", "0"), "--workers: must be at least 1, got 0. See 'event2vec train --help'"),
        (
            ("train", "digits", "--init", "gone"),
            "--init: gone does not exist, expected a run. See 'event2vec train --help'",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_training_that_cannot_be_is_one_line(called, arguments, message, capsys):
    calls = called("event2vec.training.train.train", None), called("event2vec.training.train.pretrain", None)
    assert run(*arguments) == 2
    said = capsys.readouterr()
    assert (said.out, said.err, calls) == ("", f"event2vec: {message}\n", ([], []))


def test_folds_get_their_cluster_and_their_threads(called, tmp_path):
    made = CrossValidation.of(Path("out"), (Fold(1, 0.9, 10, 5, 1.0), Fold(2, 0.7, 10, 4, 2.5)))
    calls = called("event2vec.training.folds.cross_validate", made)
    places = ("--data", tmp_path, "--out", tmp_path / "out", "--init", NETWORK)
    assert run("train", "folder", *places, "--folds", "2", "--cluster", "auto", "--threads", "3") == 0
    ((given, named),) = calls
    assert given == ("folder", str(tmp_path), str(tmp_path / "out"), str(NETWORK))
    assert named["cluster"] == Cluster.of("auto", 3)
    assert (tmp_path / "out").exists() is False


@pytest.mark.parametrize("more", [(), ("--folds", "3")])
def test_settings_are_printed_alone_whatever_else_was_asked_for(called, more, tmp_path, capsys):
    calls = called("event2vec.training.train.train", None), called("event2vec.training.folds.cross_validate", None)
    assert run("train", "digits", "--print-config", "--training.epochs", "7", *more) == 0
    said = capsys.readouterr()
    wanted = load_recipe("digits").with_settings({"training.epochs": 7})
    assert (said.out, said.err, calls) == (wanted.to_yaml(), "", ([], []))
    assert run("train", "digits", "--print-config", "--training.epochs", "7", "--json", *more) == 0
    assert json.loads(capsys.readouterr().out) == yaml.safe_load(said.out)
    (tmp_path / "recipe.yaml").write_text(said.out)
    (tmp_path / "run.json").write_text('{"task": "train", "data": "store"}')
    assert run("train", "--resume", tmp_path, "--print-config") == 0
    assert capsys.readouterr().out == wanted.to_yaml(), "those of a run are its own"
