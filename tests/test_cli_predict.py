"""`event2vec predict`: a table for recordings, spans for long ones, and what each option changes."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_recording, randomise
from shell import run

from event2vec import (
    Event2VecError,
    ModelConfig,
    Prediction,
    Sampling,
    Sensor,
    Timeline,
    Windows,
    build_model,
    save_model,
    write_events,
)
from event2vec.evaluation.predict import FileAnswer
from event2vec.evaluation.timeline import timeline
from event2vec.model.trained_on import QUANTILES, TrainedOn
from event2vec.progress import ShownProgress

SENSOR = Sensor(34, 30)
NAMES = ("ant", "bee", "cat", "dog")
USUAL = TrainedOn(9, (0.3,) * len(QUANTILES), (60.0,) * len(QUANTILES), (200.0,) * len(QUANTILES))
PREDICT, TIMELINE = "event2vec.evaluation.predict.predict", "event2vec.evaluation.timeline.timeline"


@pytest.fixture(scope="module")
def model():
    config = ModelConfig(sensor=SENSOR, classes=4, dim=16, hidden=16, blocks=1)
    return randomise(build_model(config, class_names=NAMES, sampling=Sampling(length=32)))


@pytest.fixture
def place(model, tmp_path, monkeypatch):
    """A folder with a network that learnt whole recordings, one that learnt windows, and recordings."""
    monkeypatch.chdir(tmp_path)
    save_model(model, Path("net"))
    model.windows = Windows(window=0.1, min_events=5)
    try:
        save_model(model, Path("windowed"))
    finally:
        model.windows = None
    for number in (1, 2):
        write_events(Path(f"{number}.npz"), make_recording(90 * number, seed=number, duration=500_000))
    return tmp_path


def answered(file="a.raw", scores=(0.5, 0.25, 0.125, 0.125), **changes):
    facts: dict[str, Any] = {"label": 0, "name": "ant", "scores": np.array(scores), "events": 1234, "scaled_from": None}
    return FileAnswer(file, Prediction(**facts | changes), 0.3)


def rows_of(out):
    return [line.split() for line in out.splitlines()]


# One answer for each recording


def test_the_table_has_the_three_best_classes_best_first(called, place, capsys):
    called(PREDICT, [answered(scores=(0.05, 0.6, 0.1, 0.25), label=1, name="bee")])
    assert run("predict", "net", "1.npz") == 0
    said = capsys.readouterr()
    heads, row = rows_of(said.out)
    assert heads == ["file", "events", "answer", "scores"]
    assert row == ["a.raw", "1,234", "bee", "bee", "60.0%", "dog", "25.0%", "cat", "10.0%"]
    assert said.err == ""


def test_a_program_gets_all_classes_and_every_fact(called, place, capsys):
    found = answered(scores=(0.05, 0.6, 0.1, 0.25), label=1, name="bee", remarks=("too long",))
    called(PREDICT, [found, FileAnswer("b.raw", error="b.raw: is broken")])
    assert run("predict", "net", "1.npz", "--json") == 2
    said = capsys.readouterr()
    good, bad = json.loads(said.out)
    assert list(good["scores"].items()) == [("bee", 0.6), ("dog", 0.25), ("cat", 0.1), ("ant", 0.05)]
    assert {name: value for name, value in good.items() if name != "scores"} == {
        "file": "a.raw",
        "label": 1,
        "name": "bee",
        "unknown": None,
        "confidence": 0.6,
        "remarks": ["too long"],
        "events": 1234,
        "scaled_from": None,
        "duration_s": 0.3,
    }
    assert bad == {"file": "b.raw", "error": "b.raw: is broken"}
    assert said.err.splitlines() == [
        "event2vec: a.raw: unlike the training recordings: too long",
        "event2vec: b.raw: is broken",
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"scaled_from": Sensor(346, 260)}, ["a.raw: scaled from 346x260 to the 34x30 that the network reads"]),
        ({"remarks": ("x", "y")}, ["a.raw: unlike the training recordings: x; y"]),
        ({"unknown": "hardly any events", "remarks": ("x",)}, ["a.raw: hardly any events"]),
        (
            {"scaled_from": Sensor(2, 1), "remarks": ("x",)},
            [
                "a.raw: scaled from 2x1 to the 34x30 that the network reads",
                "a.raw: unlike the training recordings: x",
            ],
        ),
    ],
)
def test_what_people_should_know_of_an_answer_is_a_line_of_its_own(called, place, changes, said, capsys):
    called(PREDICT, [answered(**changes)])
    assert run("predict", "net", "1.npz") == 0
    assert capsys.readouterr().err.splitlines() == [f"event2vec: {line}" for line in said]


def test_where_nothing_could_be_answered_there_is_no_table_and_no_success(called, place, capsys):
    called(PREDICT, [FileAnswer("b.raw", error="b.raw: is broken")])
    assert run("predict", "net", "1.npz") == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "event2vec: b.raw: is broken\n")


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ((), {}),
        (("--vote", "3"), {"vote": 3}),
        (("--min-confidence", "0.6"), {"min_confidence": 0.6}),
        (("--sensor", "9x8"), {"sensor": Sensor(9, 8)}),
        (("--columns", "xytp"), {"columns": "xytp"}),
        (("--time-unit", "ms"), {"time_unit": "ms"}),
    ],
)
def test_every_option_reaches_the_network(called, place, options, changes):
    calls = called(PREDICT, [answered()])
    assert run("predict", "net", "1.npz", "2.npz", *options) == 0
    ((_, files), named) = calls[0]
    assert files == ["1.npz", "2.npz"]
    assert named == {"vote": 1, "min_confidence": 0.0, "sensor": None, "columns": None, "time_unit": None} | changes


@pytest.mark.parametrize(("seconds", "hint"), [(0.3, False), (0.6, False), (0.61, True), (0.1, False), (60.0, True)])
def test_recordings_that_are_far_longer_than_in_training_get_a_hint_at_windows(
    called, place, model, monkeypatch, seconds, hint, capsys
):
    monkeypatch.setattr(model, "trained_on", USUAL)
    save_model(model, Path("net"))
    called(PREDICT, [answered(), replace(answered(), seconds=seconds)])
    assert run("predict", "net", "1.npz") == 0
    line = "event2vec: for answers over time on windows as in training: --window 0.3\n"
    assert capsys.readouterr().err == (line if hint else "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("gone.raw",), "gone.raw: does not exist. Check the name and the folder"),
        (("1.npz", "--csv", "."), "--csv: . is a folder, expected the name of a file to write. See"),
        (("1.npz", "--picture", "."), "--picture: . is a folder, expected the name of a file to write. See"),
        (("1.npz", "--page", "."), "--page: . is a folder, expected the name of a file to write. See"),
        (
            ("1.npz", "--whole", "--smooth", "hmm"),
            "--whole gives one answer for a recording and --smooth answers over time; choose one",
        ),
        (
            ("1.npz", "--labels", "gone.csv"),
            "--labels: gone.csv does not exist, expected a table of file, start, stop and class, or beside. "
            "See 'event2vec predict --help'",
        ),
        (
            ("1.npz", "--whole", "--labels", "beside"),
            "--whole gives one answer for a recording and --labels answers over time; choose one",
        ),
        (
            ("1.npz", "--whole", "--window-events", "9"),
            "--whole gives one answer for a recording and --window-events answers over time; choose one",
        ),
        (
            ("1.npz", "--smooth", "none", "--smooth-over", "2"),
            "--smooth-over is for --smooth mean and hmm; omit it with --smooth none",
        ),
        (
            ("1.npz", "--smooth", "median"),
            "--smooth: must be one of none, mean, hmm, got 'median' (did you mean mean?). See",
        ),
        (("1.npz", "--smooth-over", "0"), "--smooth-over: must be above 0, got 0. See"),
        (
            ("1.npz", "--window", "1", "--window-events", "5"),
            "windows: either window or window_events must be above 0, got both",
        ),
        (("1.npz", "--picture", "a.gif"), "a.gif: is not a picture, expected a name that ends in .png, .svg, .pdf"),
        (("1.npz", "--page", "a.htm"), "a.htm: is not a page, expected a name that ends in .html"),
        (("1.npz", "2.npz", "--picture", "a.png"), "--picture shows one recording; give one FILE"),
        ((".", "--page", "a.html"), "--page shows one recording; give one FILE"),
        (("1.npz", "--stride", "0.5"), "windows: stride requires window, such as 0.1 (seconds)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_call_that_cannot_work_is_one_line(place, options, message, capsys):
    assert run("predict", "net", *options) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"event2vec: {message}")
    assert said.err.count("\n") == 1


# Answers over time


def spans(*labels, **changes):
    """A timeline of windows of 0.1 s with these answers, whose scores are 0.7 and 0.1 thrice."""
    windows = Windows(window=0.1, min_events=5)
    starts = np.arange(len(labels)) * windows.length
    scores = np.full((len(labels), 4), 0.1)
    scores[np.arange(len(labels)), labels] = 0.7
    facts: dict[str, Any] = {
        "class_names": NAMES,
        "windows": windows,
        "numbers": np.arange(len(labels)),
        "starts": starts,
        "stops": starts + windows.length,
        "events": np.full(len(labels), 50),
        "scores": scores,
        "labels": np.array(labels),
        "unsmoothed": np.array(labels),
        "duration": len(labels) * windows.length - 1,
        "left_out": 0,
        "scaled_from": None,
    }
    return Timeline(**facts | changes)


def test_neighbours_with_one_answer_are_a_row_with_times_in_seconds(called, place, capsys):
    called(TIMELINE, spans(0, 0, -1, 3))
    assert run("predict", "windowed", "1.npz") == 0
    said = capsys.readouterr()
    title, heads, *rows = rows_of(said.out)
    assert title == ["1.npz"]
    assert heads == ["start", "s", "stop", "s", "answer", "confidence", "windows"]
    assert rows == [
        ["0.000", "0.200", "ant", "70.0%", "2"],
        ["0.200", "0.300", "unknown", "70.0%", "1"],
        ["0.300", "0.400", "dog", "70.0%", "1"],
    ]
    assert said.err == "1.npz: 4 windows of 0.1 s with 5 events or more, 3 spans in 0.400 s\n"


def test_time_without_events_is_a_row_without_a_confidence(called, place, capsys):
    found = spans(0, 1)
    gap = replace(found, numbers=np.array([0, 2]), starts=found.starts * 2, stops=found.starts * 2 + 100_000)
    called(TIMELINE, replace(gap, duration=299_999))
    assert run("predict", "windowed", "1.npz") == 0
    assert rows_of(capsys.readouterr().out)[3] == ["0.100", "0.200", "nothing", "0"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"left_out": 1}, ["1 window had too few events for an answer"]),
        ({"left_out": 2000}, ["2,000 windows had too few events for an answer"]),
        ({"scaled_from": Sensor(9, 8)}, ["scaled from 9x8 to the sensor that the network reads"]),
        ({"far": 1, "remark": "so long"}, ["1 of 2 windows is unlike the training recordings: so long"]),
        ({"far": 2, "remark": "so long"}, ["2 of 2 windows are unlike the training recordings: so long"]),
    ],
)
def test_what_people_should_know_of_a_timeline_follows_it(called, place, changes, said, capsys):
    called(TIMELINE, spans(0, 1, **changes))
    assert run("predict", "windowed", "1.npz", "--json") == 0
    _, *more = capsys.readouterr().err.splitlines()
    assert more == [f"event2vec: 1.npz: {line}" for line in said]


def test_a_program_gets_a_line_for_each_span_with_its_file(called, place, capsys):
    found = spans(0, 0, 3)
    called(TIMELINE, found)
    assert run("predict", "windowed", "1.npz", "2.npz", "--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.pop("file") for line in lines] == ["1.npz", "1.npz", "2.npz", "2.npz"]
    ant = {"label": 0, "name": "ant", "confidence": pytest.approx(0.7), "windows": 2, "events": 100}
    dog = {"label": 3, "name": "dog", "confidence": pytest.approx(0.7), "windows": 1, "events": 50}
    assert lines == [{"start": 0.0, "stop": 0.2, **ant}, {"start": 0.2, "stop": 0.3, **dog}] * 2


WHOLE = {
    "smoothing": "mean",
    "smooth_over": None,
    "min_confidence": 0.0,
    "vote": 1,
    "sensor": None,
    "columns": None,
    "time_unit": None,
}


@pytest.mark.parametrize(
    ("options", "windows", "changes"),
    [
        ((), Windows(window=0.1, min_events=5), {}),
        (("--window", "0.2"), Windows(window=0.2), {}),
        (("--window", "0.2", "--stride", "0.05"), Windows(window=0.2, stride=0.05), {}),
        (("--window-events", "40"), Windows(window_events=40), {}),
        (("--stride", "0.05"), Windows(window=0.1, stride=0.05, min_events=5), {}),
        (("--min-events", "9"), Windows(window=0.1, min_events=9), {}),
        (("--smooth", "hmm"), Windows(window=0.1, min_events=5), {"smoothing": "hmm"}),
        (("--smooth-over", "0.7"), Windows(window=0.1, min_events=5), {"smooth_over": 0.7}),
        (("--vote", "3"), Windows(window=0.1, min_events=5), {"vote": 3}),
        (("--min-confidence", "0.4"), Windows(window=0.1, min_events=5), {"min_confidence": 0.4}),
        (("--sensor", "9x8"), Windows(window=0.1, min_events=5), {"sensor": Sensor(9, 8)}),
        (("--columns", "xytp", "--time-unit", "ms"), None, {"columns": "xytp", "time_unit": "ms"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_every_option_reaches_the_timeline_and_what_is_not_given_is_as_in_training(
    called, place, options, windows, changes
):
    calls = called(TIMELINE, spans(0, 1))
    assert run("predict", "windowed", "1.npz", *options) == 0
    (((_, file, given), named),) = calls
    assert file == "1.npz"
    assert windows in (None, given)
    assert isinstance(named.pop("progress"), ShownProgress)
    assert named == WHOLE | changes


def test_a_stride_that_the_windows_of_the_training_do_not_allow_is_one_line(place, capsys):
    assert run("predict", "windowed", "1.npz", "--stride", "0.00001") == 2
    said = capsys.readouterr()
    assert said.err.startswith("event2vec: windows: stride must be at least window / 1000")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("network", "options", "over_time"),
    [
        ("net", (), False),
        ("net", ("--window", "0.1"), True),
        ("net", ("--window-events", "30"), True),
        ("windowed", (), True),
        ("windowed", ("--whole",), False),
    ],
)
def test_windows_of_the_network_or_of_the_call_give_answers_over_time(place, network, options, over_time, capsys):
    assert run("predict", network, "1.npz", *options) == 0
    assert ("start s" in capsys.readouterr().out) == over_time


@pytest.mark.parametrize("option", [("--smooth", "hmm"), ("--csv", "a.csv"), ("--smooth-over", "1")])
def test_a_network_without_windows_asks_for_them(place, option, capsys):
    assert run("predict", "net", "1.npz", *option) == 2
    wanted = "the network was trained on whole recordings, without windows. Set --window"
    assert capsys.readouterr().err == f"event2vec: 1.npz: {wanted}\n"


def test_a_recording_that_fails_is_said_and_the_others_are_answered(place, capsys):
    Path("bad.raw").write_bytes(b"nothing")
    assert run("predict", "windowed", "1.npz", "bad.raw", "2.npz", "--json", "--csv", "all.csv") == 2
    said = capsys.readouterr()
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert list(dict.fromkeys(line["file"] for line in lines)) == ["1.npz", "bad.raw", "2.npz"]
    (bad,) = (line for line in lines if "error" in line)
    assert said.err.count("bad.raw") == 1, "its name is not said twice"
    assert f"event2vec: {bad['error']}" in said.err.splitlines()
    with Path("all.csv").open() as file:
        assert {row["file"] for row in csv.DictReader(file)} == {"1.npz", "2.npz"}


def test_without_any_answer_no_table_of_windows_is_left(place, capsys):
    Path("bad.raw").write_bytes(b"nothing")
    assert run("predict", "windowed", "bad.raw", "--csv", "all.csv") == 2
    assert "Every window is in" not in capsys.readouterr().err
    assert not Path("all.csv").exists()


def test_the_table_of_windows_is_that_of_the_library(place, model, capsys):
    assert run("predict", "windowed", "1.npz", "2.npz", "--csv", "all.csv", "--stride", "0.05") == 0
    assert capsys.readouterr().err.splitlines()[-1] == "Every window is in all.csv"
    windows = Windows(window=0.1, stride=0.05, min_events=5)
    wanted = [{"file": name, **row} for name in ("1.npz", "2.npz") for row in timeline(model, name, windows).rows()]
    with Path("all.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [list(row) for row in rows] == [list(row) for row in wanted]
    for row, right in zip(rows, wanted, strict=True):
        assert (row["file"], row["answer"], row["events"]) == (right["file"], right["answer"], str(right["events"]))
        numbers = ("start", "stop", *(f"score {name}" for name in NAMES))
        assert [float(row[name]) for name in numbers] == pytest.approx([right[name] for name in numbers], abs=1e-6)


def test_labels_score_the_answers_for_people_and_programs(called, place, capsys):
    called(TIMELINE, spans(0, 0, 3, 3))
    Path("labels.csv").write_text("file,start,stop,class\n1.npz,0,0.2,ant\n1.npz,0.2,0.4,bee\n")
    assert run("predict", "windowed", "1.npz", "--labels", "labels.csv", "--json") == 0
    said = capsys.readouterr()
    *_, score = (json.loads(line) for line in said.out.splitlines())
    assert score["file"] == "1.npz"
    assert (score["score"]["accuracy"], score["score"]["spans"], score["score"]["found"]) == (0.5, 2, 1)
    line = "1.npz: 50.0% of 0.4 labelled seconds are right; 1 of 2 spans found (F1 0.500 at overlap 0.5); "
    assert line + "median onset latency 0.1 s" in said.err.splitlines()


def test_each_file_that_was_asked_for_is_written_and_named(called, place, capsys, monkeypatch):
    drawn = []
    monkeypatch.setattr("event2vec.evaluation.figures.timelines.draw_timeline", lambda *given: drawn.append(given[1:3]))
    called(TIMELINE, spans(0, 1))
    assert run("predict", "windowed", "1.npz", "--picture", "a.PDF") == 0
    assert drawn == [(Path("a.PDF"), "1.npz")]
    assert capsys.readouterr().err.splitlines()[-1] == "Picture: a.PDF"
    pages = called("event2vec.evaluation.figures.clips.view_answers", spans(0, 1))
    assert run("predict", "windowed", "1.npz", "--page", "a.html", "--vote", "2") == 0
    ((given, named),) = pages
    assert given[1:] == ("1.npz", "a.html", Windows(window=0.1, min_events=5))
    assert (named["vote"], named["labels"]) == (2, None)
    assert capsys.readouterr().err.splitlines()[-1] == "Player: a.html"


def test_a_problem_that_names_its_file_is_not_named_again(place, monkeypatch, capsys):
    for problem, said in (("1.npz: is odd", "1.npz: is odd"), ("is odd", "1.npz: is odd")):

        def fail(*_, problem=problem, **__):
            raise Event2VecError(problem)

        monkeypatch.setattr(TIMELINE, fail)
        assert run("predict", "windowed", "1.npz") == 2
        assert capsys.readouterr().err == f"event2vec: {said}\n"
