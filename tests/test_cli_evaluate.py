"""`event2vec evaluate`: what it hands to the library, and every number that it prints, worked out again."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from evaluations import evaluation
from golden.make import FOLDER
from shell import run

from event2vec.cluster import Cluster
from event2vec.evaluation.accuracy import wilson_interval
from event2vec.evaluation.sweeps import Point
from event2vec.progress import ShownProgress

NETWORK = str(FOLDER / "network")
EVALUATE, SEVERAL = "event2vec.training.run.Run.evaluate", "event2vec.training.evaluations.evaluate_runs"
SWEEP = "event2vec.training.run.Run.sweep"


def started(folder):
    """A folder that is taken for a run; only its name matters where the library is replaced."""
    folder.mkdir()
    (folder / "recipe.yaml").touch()
    (folder / "run.json").touch()
    return str(folder)


@pytest.fixture
def some_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Path(started(tmp_path / "some")).name


def given_to(calls):
    ((_, named),) = calls
    calls.clear()
    return named


USUAL = {
    "data": None,
    "split": None,
    "repeats": 10,
    "vote": 1,
    "workers": os.cpu_count(),
    "device": None,
    "precision": None,
}


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ((), {}),
        (("--data", FOLDER), {"data": str(FOLDER)}),
        (("--split", "validation"), {"split": "validation"}),
        (("--repeats", "3"), {"repeats": 3}),
        (("--vote", "4"), {"vote": 4}),
        (("--workers", "2"), {"workers": 2}),
        (("--device", "cpu"), {"device": "cpu"}),
        (("--precision", "bf16-mixed"), {"precision": "bf16-mixed"}),
    ],
    ids=lambda value: " ".join(map(str, value))[:24] if isinstance(value, tuple) else "",
)
def test_every_option_reaches_the_library_for_one_run_for_several_and_in_a_sweep(called, options, changes):
    one, several, sweep = called(EVALUATE, evaluation()), called(SEVERAL, [evaluation()] * 2), called(SWEEP, points(5))
    wanted = USUAL | changes
    for calls, more in ((one, ()), (several, (NETWORK,)), (sweep, ("--events", "5"))):
        assert run("evaluate", NETWORK, *more, *options) == 0
        named = given_to(calls)
        assert isinstance(named.pop("progress"), ShownProgress)
        assert named.pop("cluster", None) is None
        assert named == wanted


def test_the_classes_are_a_table_with_their_share_their_interval_and_their_most_frequent_mistake(called, capsys):
    called(EVALUATE, evaluation())
    assert run("evaluate", NETWORK) == 0
    said = capsys.readouterr()
    heads, ant, bee, cat, total, calibration = said.out.splitlines()
    assert heads.split() == [
        "class",
        "recordings",
        "correct",
        "95",
        "%",
        "interval",
        "most",
        "often",
        "mistaken",
        "for",
    ]
    assert ant.split() == ["ant", "4", "75.0%", *wilson_interval(0.75, 4).percent(1).split(), "bee", "(25%)"]
    assert bee.split() == ["bee", "2", "50.0%", *wilson_interval(0.5, 2).percent(1).split(), "cat", "(50%)"]
    assert cat.split() == ["cat", "0", "-"]
    interval = wilson_interval(4 / 6, 6).percent()
    assert total == f"accuracy 66.67 % on 6 recordings, one draw; 95 % interval {interval} %"
    assert calibration == evaluation().calibration.summary
    assert said.err == "", "a network without a run has no place for pictures"


def test_recordings_are_counted_once_however_often_they_were_drawn(called, capsys):
    """Three of four ants in both draws; a mistake in one of eight answers is 12 %."""
    both = evaluation(
        repeats=2, accuracies=(4 / 6, 3 / 6), confusion=np.array([[6, 1, 1], [0, 1, 3], [0, 0, 0]]), vote=1
    )
    called(EVALUATE, both)
    assert run("evaluate", NETWORK) == 0
    said = capsys.readouterr().out
    rows = {line.split()[0]: line.split() for line in said.splitlines()}
    assert rows["ant"] == ["ant", "4", "75.0%", *wilson_interval(0.75, 4).percent(1).split(), "bee", "(12%)"]
    assert rows["bee"][-2:] == ["cat", "(75%)"]
    spread = 100 * np.std([4 / 6, 3 / 6], ddof=1)
    assert f"accuracy 58.33 ± {spread:.2f} % on 6 recordings, 2 draws; 95 % interval" in said


def test_the_best_five_have_an_interval_of_their_own(called, capsys):
    called(EVALUATE, evaluation(top5=5 / 6))
    assert run("evaluate", NETWORK) == 0
    interval = wilson_interval(5 / 6, 6).percent()
    assert f"\namong the best five: 83.33 %; 95 % interval {interval} %\n" in capsys.readouterr().out


def test_one_recording_is_said_in_the_singular(called, capsys):
    alone = evaluation(recordings=1, accuracies=(1.0,), confusion=np.diag([1, 0, 0]))
    called(EVALUATE, alone)
    assert run("evaluate", NETWORK) == 0
    assert "accuracy 100.00 % on 1 recording, one draw;" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("far", "said"),
    [
        ((), ""),
        ((("a.raw", "too long"),), "1 of 6 recordings is unlike the training recordings, such as a.raw: too long\n"),
        (
            (("a.raw", "too long"), ("b.raw", "few events")),
            "2 of 6 recordings are unlike the training recordings, such as a.raw: too long\n",
        ),
    ],
)
def test_recordings_unlike_those_of_the_training_are_said_for_one_run_and_for_several(called, far, said, capsys):
    called(EVALUATE, evaluation(far=far))
    called(SEVERAL, [evaluation(), evaluation(far=far)])
    assert run("evaluate", NETWORK, "--json") == 0
    assert capsys.readouterr().err == (f"event2vec: {said}" if said else "")
    assert run("evaluate", NETWORK, FOLDER / "network", "--json") == 0
    assert capsys.readouterr().err == (f"event2vec: {NETWORK}: {said}" if said else "")


@pytest.mark.parametrize(
    ("options", "places"),
    [
        ((), "evaluation/confusion_test.png; reliability diagram: {}/evaluation/reliability_test.png"),
        (
            ("--split", "train"),
            "evaluation/confusion_train.png; reliability diagram: {}/evaluation/reliability_train.png",
        ),
        (
            ("--data", "other"),
            "evaluation/other/confusion_test.png; reliability diagram: {}/evaluation/other/reliability_test.png",
        ),
    ],
)
def test_a_run_says_where_its_pictures_are(called, some_run, options, places, capsys):
    Path("other").mkdir()
    called(EVALUATE, evaluation())
    assert run("evaluate", some_run, *options, "--json") == 0
    assert capsys.readouterr().err == f"Confusion matrix: {some_run}/{places.format(some_run)}\n"


def test_a_program_gets_every_figure(called, capsys):
    found = evaluation(top5=5 / 6, far=(("a.raw", "too long"),))
    called(EVALUATE, found)
    assert run("evaluate", NETWORK, "--json") == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(found.facts()))


def test_several_runs_are_a_table_in_their_order(called, tmp_path, capsys):
    names = [started(tmp_path / name) for name in ("b", "a")]
    found = [evaluation(), evaluation(accuracies=(0.5, 0.75), repeats=2)]
    calls = called(SEVERAL, found)
    assert run("evaluate", *names, "--repeats", "2") == 0
    assert calls[0][0] == (names,)
    heads, first, second = capsys.readouterr().out.splitlines()
    assert heads.split() == ["run", "accuracy", "(%)", "95", "%", "interval", "recordings"]
    assert first.split() == [names[0], "66.67", *wilson_interval(4 / 6, 6).percent().split(), "6"]
    assert second.split()[:4] == [names[1], "62.50", "±", f"{100 * np.std([0.5, 0.75], ddof=1):.2f}"]
    assert run("evaluate", *names, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert [(each["run"], each["accuracy"]) for each in facts] == [(names[0], 4 / 6), (names[1], 0.625)]


def test_a_cluster_evaluates_one_run_too_and_gets_its_threads(called):
    calls = called(SEVERAL, [evaluation()])
    assert run("evaluate", NETWORK, "--cluster", "auto", "--threads", "3") == 0
    assert given_to(calls)["cluster"] == Cluster.of("auto", 3)
    assert run("evaluate", NETWORK, "--cluster", "auto") == 0
    assert given_to(calls)["cluster"] == Cluster.of("auto", 1)


# Sweeps


def points(*values, accuracies=None, read=None, seconds=None):
    accuracies = accuracies or [0.5] * len(values)
    return [
        Point(value, evaluation(accuracies=(share,)), read, seconds)
        for value, share in zip(values, accuracies, strict=True)
    ]


def test_a_sweep_is_a_line_for_each_value(called, capsys):
    calls = called(SWEEP, points(1, 2000, accuracies=(0.5, 4 / 6)))
    assert run("evaluate", NETWORK, "--resolution", "1, 2000") == 0
    assert calls[0][0][-2:] == ("resolution", [1, 2000])
    said = capsys.readouterr()
    half, most = (wilson_interval(share, 6).percent() for share in (0.5, 4 / 6))
    assert said.out.splitlines() == [
        f"resolution      1   accuracy 50.00 %   95 % interval {half} %",
        f"resolution  2,000   accuracy 66.67 %   95 % interval {most} %",
    ]
    assert said.err == ""


@pytest.mark.parametrize(
    ("kind", "found", "note"),
    [
        ("events", points(64, read=64), ""),
        ("events", points(64, read=40), " (most recordings have fewer: 40)"),
        ("events", points(4096, read=1234), " (most recordings have fewer: 1,234)"),
        ("windows", points(2.0, seconds=0.75), " (most recordings are shorter: 0.75)"),
        ("windows", points(0.5, seconds=0.5), ""),
    ],
)
def test_a_value_that_most_recordings_do_not_reach_is_marked(called, kind, found, note, capsys):
    called(SWEEP, found)
    assert run("evaluate", NETWORK, f"--{kind}", found[0].value) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith(f" %{note}")


@pytest.mark.parametrize(
    ("accuracies", "said"),
    [
        ((0.5, 0.9, 1.0), "After 0.2 s the accuracy is at least 90 % of that after 0.5 s\n"),
        ((0.95, 0.2, 1.0), "After 0.1 s the accuracy is at least 90 % of that after 0.5 s\n"),
        ((0.5, 0.89, 1.0), "After 0.5 s the accuracy is at least 90 % of that after 0.5 s\n"),
        ((0.5, 0.5, 0.0), ""),
    ],
)
def test_how_soon_the_answer_is_right_is_said_after_a_sweep_over_windows(called, accuracies, said, capsys):
    calls = called(SWEEP, points(0.1, 0.2, 0.5, accuracies=accuracies))
    assert run("evaluate", NETWORK, "--windows", "0.1,0.2,0.5") == 0
    assert calls[0][0][-2:] == ("windows", [0.1, 0.2, 0.5])
    assert capsys.readouterr().err == said


def test_a_sweep_gives_programs_the_same_points_and_says_where_they_are(called, some_run, capsys):
    found = points(8, 64, accuracies=(0.5, 4 / 6), read=8)
    called(SWEEP, found)
    assert run("evaluate", some_run, "--events", "8,64", "--json") == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == json.loads(json.dumps([point.facts("events") for point in found]))
    assert said.err == f"Saved to {some_run}/evaluation/events.csv, plotted in {some_run}/evaluation/events.png\n"
    assert run("evaluate", some_run, "--events", "8,64", "--split", "validation") == 0
    assert "evaluation/events_validation.csv, plotted in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--events", "1", "--windows", "1"), "only one sweep at a time: omit --events or --windows"),
        (("--resolution", "1", "--windows", "1"), "only one sweep at a time: omit --resolution or --windows"),
        (
            ("--events", "0"),
            "--events takes whole numbers of at least 1, separated by commas, such as 1,2,4, got '0'",
        ),
        (
            ("--windows", "0"),
            "--windows takes seconds above 0 with commas between them, such as 0.1,0.2,0.5, got '0'",
        ),
        (
            (NETWORK, "--events", "5"),
            "--events takes one run at a time, without --cluster",
        ),
        (
            ("--windows", "5", "--cluster", "auto"),
            "--windows takes one run at a time, without --cluster",
        ),
        (("--threads", "2"), "--threads is for tasks on a cluster; omit it, or add --cluster"),
        (("--vote", "0"), "--vote: must be at least 1, got 0. See 'event2vec evaluate --help'"),
        (("--repeats", "0"), "--repeats: must be at least 1, got 0. See 'event2vec evaluate --help'"),
        (
            ("--precision", "16"),
            "--precision: must be one of 32-true, bf16-mixed, got '16'. See 'event2vec evaluate --help'",
        ),
    ],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, tuple) else "",
)
def test_a_call_that_cannot_work_is_one_line_before_anything_is_evaluated(called, options, message, capsys):
    calls = called(EVALUATE, evaluation()), called(SWEEP, points(1)), called(SEVERAL, [])
    assert run("evaluate", NETWORK, *options) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"event2vec: {message}\n")
    assert calls == ([], [], [])
