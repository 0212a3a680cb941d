"""Answers over time: those of windows, smoothed, in spans that cover the recording, and scored against labels."""

import csv
import json
import weakref
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from conftest import make_recording, randomise

from event2vec import (
    Event2VecError,
    Events,
    ModelConfig,
    Sampling,
    Sensor,
    Windows,
    build_model,
    load_model,
    read_events,
    save_model,
    timeline,
    view_answers,
    write_events,
)
from event2vec.cli import main
from event2vec.data.datasets.dvs_gesture import CLASSES as GESTURES
from event2vec.data.labels import Span
from event2vec.evaluation.figures.timelines import draw_timeline
from event2vec.evaluation.smoothing import most_likely_path, running_mean
from event2vec.evaluation.timeline import Timeline, _Answers
from event2vec.evaluation.timeline_score import match_labels, score_timeline


def made(labels, numbers=None, window=0.1, stride=0.0, classes=("a", "b", "c")):
    """A timeline whose windows have these answers."""
    windows = Windows(window=window, stride=stride)
    numbers = np.arange(len(labels)) if numbers is None else np.array(numbers)
    starts = numbers * windows.step
    scores = np.full((len(labels), len(classes)), 0.1)
    scores[np.arange(len(labels)), labels] = 0.8
    return Timeline(
        classes,
        windows,
        numbers,
        starts,
        starts + windows.length,
        np.full(len(labels), 50),
        scores,
        np.array(labels),
        np.array(labels),
        int(starts[-1]) + windows.length - 1,
        0,
        None,
    )


def described(found):
    return [(span.start / 1e6, span.stop / 1e6, span.name) for span in found.spans]


def test_neighbours_with_one_answer_are_one_span():
    found = made([0, 0, 1, 1, 1, 0])
    assert described(found) == [(0, 0.2, "a"), (0.2, 0.5, "b"), (0.5, 0.6, "a")]
    assert [(span.windows, span.events) for span in found.spans] == [(2, 100), (3, 150), (1, 50)]
    assert found.spans[0].confidence == pytest.approx(0.8)


def test_time_without_events_is_nothing_and_unknown_is_said():
    found = made([0, -1, -1, 2], [0, 1, 2, 5])
    assert described(found) == [(0, 0.1, "a"), (0.1, 0.3, "unknown"), (0.3, 0.5, "nothing"), (0.5, 0.6, "c")]
    assert [span.label for span in found.spans] == [0, None, None, 2]


def test_spans_cover_the_recording_once_whatever_the_stride():
    for stride in (0.03, 0.05, 0.1, 0.25):
        spans = made([0, 1, 1, 0, 2], stride=stride).spans
        assert spans[0].start == 0
        assert all(one.stop == other.start for one, other in pairwise(spans))
        assert next(span.name for span in spans if span.name != "nothing") == "a"
    assert described(made([0, 1], stride=0.05)) == [(0, 0.075, "a"), (0.075, 0.15, "b")], "between their middles"


@pytest.mark.parametrize("stride", [0.01, 0.03, 0.05, 0.1, 0.25])
@pytest.mark.parametrize("seed", range(3))
def test_time_is_counted_once_whichever_windows_had_too_few_events(stride, seed):
    random = np.random.default_rng((seed, 0, 2))
    numbers = np.flatnonzero(random.random(30) < 0.5)
    found = made(random.integers(0, 3, len(numbers)), numbers, stride=stride)
    spans = found.spans
    assert (spans[0].start, spans[-1].stop) == (0, found.duration + 1)
    assert all(one.stop == other.start for one, other in pairwise(spans))
    assert all(each.start < each.stop for each in spans)
    right = [score_timeline(found, [span(0, 9, name)]) for name in "abc"]
    answered = sum(each.stop - each.start for each in spans if each.label is not None)
    assert sum(each.accuracy for each in right) == pytest.approx(answered / (found.duration + 1))


def test_answers_that_share_time_meet_in_the_middle_without_the_window_between_them():
    found = made([0, 1], [0, 2], stride=0.03)
    assert described(found) == [(0, 0.08, "a"), (0.08, 0.16, "b")]
    assert score_timeline(made([0, 0], [0, 2], stride=0.03), [span(0, 0.16, "a")]).accuracy == 1


def test_neighbouring_windows_meet_where_no_event_lies_between(network):
    for count in (54, 55, 60):
        events = make_recording(count, sensor=network.config.sensor)
        found = timeline(network, events, Windows(window_events=10), smoothing="none")
        spans = found.spans
        assert "nothing" not in [span.name for span in spans]
        assert len(spans) <= len(found)
        assert all(one.stop == other.start for one, other in pairwise(spans))
        assert (spans[0].start, spans[-1].stop) == (0, events.duration + 1)


def test_a_rest_that_is_too_short_for_a_window_belongs_to_the_last_answer():
    found = made([0, 1])
    assert described(replace(found, duration=249_998)) == [(0, 0.1, "a"), (0.1, 0.249999, "b")]
    assert described(replace(found, duration=249_999))[-1] == (0.2, 0.25, "nothing"), "a window with too few events"


def test_a_class_may_have_the_name_of_a_column():
    row = next(made([0], classes=("start", "answer", "file")).rows())
    assert (row["start"], row["answer"]) == (0.0, "start")
    assert [row[f"score {name}"] for name in ("start", "answer", "file")] == [0.8, 0.1, 0.1]


def noisy(truth, share=0.3):
    random = np.random.default_rng((0, 0, 0))
    scores = np.full((len(truth), 3), 0.2)
    scores[np.arange(len(truth)), truth] = 0.6
    wrong = random.random(len(truth)) < share
    scores[wrong] = random.dirichlet((1, 1, 1), int(wrong.sum()))
    return scores


def test_smoothing_removes_flicker_and_keeps_what_lasts():
    truth = np.repeat([0, 1, 0, 2], [30, 25, 40, 30])
    scores = noisy(truth)
    rough = (scores.argmax(axis=1) == truth).mean()
    mean = (running_mean(scores, 5).argmax(axis=1) == truth).mean()
    path = most_likely_path(scores, 5)
    assert rough < 0.9 < mean < (path == truth).mean()
    changes = np.flatnonzero(np.diff(path)) + 1
    assert np.diff([0, *changes, len(path)]).min() >= 5


@pytest.mark.parametrize("fewest", [1, 2, 3])
def test_the_most_likely_path_is_the_best_of_all(fewest):
    """Against every sequence of seven windows."""
    scores = np.random.default_rng((0, 0, 1)).dirichlet((0.5, 0.5, 0.5), 7)
    best, value = np.zeros(7, np.int64), -np.inf
    for number in range(3**7):
        path = np.array([number // 3**place % 3 for place in range(7)])
        lengths = np.diff([0, *(np.flatnonzero(np.diff(path)) + 1), 7])
        changes = len(lengths) - 1
        # A change is paid once, when a class is entered; the windows it is entered with do not pay for staying.
        stays = 7 - fewest - changes * fewest
        total = np.log(np.maximum(scores[np.arange(7), path], 1e-6)).sum()
        total += changes * np.log(0.05 / 2) + stays * np.log(0.95)
        if lengths.min() >= fewest and total > value:
            best, value = path, total
    assert most_likely_path(scores, fewest).tolist() == best.tolist()


def test_short_recordings_are_smoothed_too():
    one = np.array([[0.2, 0.8]])
    assert most_likely_path(one, 5).tolist() == [1]
    assert running_mean(one, 5).tolist() == one.tolist()
    assert most_likely_path(np.ones((3, 1)), 2).tolist() == [0, 0, 0]


@pytest.fixture(scope="module")
def network():
    config = ModelConfig(sensor=Sensor(128, 128), classes=3, dim=16, hidden=16, heads=2, blocks=1)
    model = randomise(build_model(config, class_names=("a", "b", "c"), sampling=Sampling(length=64)))
    model.windows = Windows(window=0.1)
    return model


def test_a_file_is_answered_as_its_windows_are(network, shared_data):
    file = shared_data / "recordings" / "dvs128.aedat"
    found = timeline(network, file, smoothing="none", batch=7)
    windows = list(network.windows.cut(read_events(file)))
    predictions = network.predict([window.events for window in windows])
    assert len(found) == len(windows) > 50
    torch.testing.assert_close(
        torch.from_numpy(found.scores).float(), torch.stack([each.scores for each in predictions]), atol=1e-5, rtol=0
    )
    assert found.labels.tolist() == [each.label for each in predictions]
    assert found.events.tolist() == [len(window.events) for window in windows]
    spans = found.spans
    assert (spans[0].start, spans[-1].stop) == (0, read_events(file).duration + 1)


def test_the_events_of_answered_windows_are_not_kept(network):
    """An hour of them would fill the memory: a slice of none keeps the whole chunk alive."""
    events = make_recording(5000, sensor=network.config.sensor, duration=1_000_000)
    chunks = [weakref.ref(events.x.untyped_storage())]
    found = _Answers(network, network.windows, 1)
    for part in network.windows.cut(events):
        found.add([part])
        chunks.append(weakref.ref(part.events.t))
    del events, part
    assert len(found.found) == 10
    assert [chunk() for chunk in chunks] == [None] * 11


def test_what_no_class_reaches_is_unknown_and_quiet_windows_are_left_out(network):
    events = make_recording(500, sensor=network.config.sensor, duration=1_000_000)
    sure = timeline(network, events, smoothing="none")
    least = float(np.sort(sure.scores.max(axis=1))[3])
    found = timeline(network, events, smoothing="none", min_confidence=least + 1e-9)
    assert ((found.labels == -1) == (sure.scores.max(axis=1) <= least)).all()
    assert (found.labels == -1).sum() == 4
    fewer = timeline(network, events, Windows(window=0.1, min_events=50))
    assert fewer.left_out == int((sure.events < 50).sum()) > 0
    with pytest.raises(Event2VecError, match=r"none of 10 windows has 1,000 events, so there is nothing to answer"):
        timeline(network, events, Windows(window=0.1, min_events=1000))


def test_a_network_without_windows_asks_for_them(network):
    bare = build_model(network.config, sampling=Sampling(length=8))
    events = make_recording(50, sensor=network.config.sensor)
    with pytest.raises(Event2VecError, match="whole recordings, without windows"):
        timeline(bare, events)
    assert len(timeline(bare, events, Windows(window_events=10))) == 5
    with pytest.raises(Event2VecError, match="`min_confidence` must be from 0 to 1"):
        timeline(network, events, min_confidence=2.0)


def span(start, stop, name):
    return Span("", round(start * 1e6), round(stop * 1e6), name)


def test_right_answers_score_in_full():
    found = made([0, 0, 1, 1, 2, 2])
    score = score_timeline(found, [span(0, 0.2, "a"), span(0.2, 0.4, "b"), span(0.4, 0.6, "c")])
    assert (score.accuracy, score.f1, score.found, score.spans) == (1, 1, 3, 3)
    assert score.latencies == pytest.approx([0.1, 0.1, 0.1])
    halves = [span(0, 0.1, "a"), span(0.1, 0.2, "a")]
    assert score_timeline(found, halves).spans == 1, "labels of one class that touch are one span"
    assert "100.0% of 0.6 labelled seconds are right; 3 of 3 spans found (F1 1.000" in score.summary


def test_time_without_a_label_does_not_count_and_late_answers_are_late():
    found = made([2, 1, 0, 0, 2, 2])  # a is recognised in the second of three windows
    score = score_timeline(found, [span(0.1, 0.4, "a")])
    assert score.seconds == pytest.approx(0.3)
    assert score.accuracy == pytest.approx(2 / 3)
    assert (score.found, score.answers) == (1, 2), "c lies outside, b inside"
    assert score.f1 == pytest.approx(2 / 3)
    assert score.latency == pytest.approx(0.2)
    missed = score_timeline(found, [span(0.4, 0.6, "a")])
    assert (missed.accuracy, missed.f1, missed.latency) == (0, 0, None)
    assert "no span was recognised" in missed.summary


def test_latency_is_that_of_live_answers_on_windows_mostly_inside_the_span():
    found = made([0, 0, 0, 1, 1, 1])
    assert score_timeline(found, [span(0.3, 0.6, "b")]).latency == pytest.approx(0.1)
    later = replace(found, unsmoothed=np.array([0, 0, 0, 0, 1, 1]))  # smoothing has looked ahead
    assert score_timeline(later, [span(0.3, 0.6, "b")]).latency == pytest.approx(0.2)
    assert score_timeline(found, [span(0.39, 0.6, "b")]).latency == pytest.approx(0.11), "not the one that touches it"


def test_the_numbers_of_dvs_gesture_are_its_names_to_a_network_that_has_them():
    numbered = [Span("", 0, 5, "1", on_clock=True), Span("", 5, 9, "11", on_clock=True)]
    assert [each.name for each in match_labels(numbered, GESTURES)] == ["hand clapping", "other gestures"]
    assert match_labels(numbered, ("1", "11")) == numbered
    with pytest.raises(Event2VecError, match="the labels name '12', which the network does not know"):
        match_labels([Span("", 0, 5, "12")], GESTURES)


def test_labels_on_the_cameras_clock_are_moved_and_wrong_ones_are_named():
    found = made([0, 0, 1])
    on_clock = Span("", 5_000_000, 5_200_000, "a", on_clock=True)
    assert score_timeline(found, [on_clock], clock=5_000_000).accuracy == 1
    with pytest.raises(Event2VecError, match=r"the labels name 'aa', which the network does not know"):
        score_timeline(found, [span(0, 1, "aa")])
    with pytest.raises(Event2VecError, match=r"no label lies in the recording, which lasts 0.3 s"):
        score_timeline(found, [span(7, 8, "a")])


def test_a_picture_is_drawn_of_one_window_and_of_thousands(tmp_path):
    for number, count in enumerate((1, 4000)):
        found = made([index // 50 % 3 for index in range(count)])
        path = tmp_path / f"{number}.png"
        draw_timeline(found, path, "$ a file", [span(0, 0.1, "b")])
        assert path.stat().st_size > 5000
    draw_timeline(replace(found, labels=np.full(4000, -1)), tmp_path / "x.svg", "unknown")
    assert (tmp_path / "x.svg").read_text().lstrip().startswith("<?xml")


def run_verb(*arguments):
    return main([str(argument) for argument in arguments])


@pytest.fixture
def saved(network, tmp_path):
    save_model(network, tmp_path / "net")
    return tmp_path / "net"


def test_predict_shows_a_timeline_of_a_long_recording(saved, shared_data, tmp_path, capsys):
    file = shared_data / "recordings" / "dvs128.aedat"
    written = ("--csv", tmp_path / "x.csv", "--picture", tmp_path / "x.png", "--page", tmp_path / "x.html")
    assert run_verb("predict", saved, file, *written) == 0
    printed = capsys.readouterr()
    assert "start s" in printed.out
    assert "windows of 0.1 s" in printed.err
    assert (tmp_path / "x.png").stat().st_size > 5000
    with (tmp_path / "x.csv").open() as rows:
        table = list(csv.DictReader(rows))
    assert len(table) == 62
    (clip,) = json.loads((tmp_path / "x.html").read_text().partition("id=clips>")[2].partition("</script>")[0])
    assert (clip["recorded"], clip["truth"]) == (130_114, [])
    assert {part["name"] for part in clip["answers"]} <= {"a", "b", "c"}
    assert sum(float(table[1][f"score {name}"]) for name in "abc") == pytest.approx(1)
    assert run_verb("predict", saved, file, "--json", "--stride", "0.05", "--smooth", "hmm") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["start"] == 0
    assert {"file", "stop", "name", "label", "confidence", "windows", "events"} <= lines[0].keys()
    assert run_verb("predict", saved, file, "--whole") == 0
    assert "start s" not in capsys.readouterr().out


def test_predict_scores_a_timeline_and_names_what_is_wrong(saved, tmp_path, capsys, network):
    file = tmp_path / "x.npz"
    write_events(file, make_recording(900, sensor=network.config.sensor, duration=900_000))
    table = tmp_path / "labels.csv"
    table.write_text("file,start,stop,class\nx.npz,0,0.4,a\nx.npz,0.5,0.8,b\nother.npz,0,1,c\n")
    assert run_verb("predict", saved, file, "--labels", table, "--json") == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert json.loads(last)["score"]["spans"] == 2
    (tmp_path / "x_labels.csv").write_text("class,start,stop\nb,0.1,0.3\n")
    assert run_verb("predict", saved, file, "--labels", "beside") == 0
    assert "of 0.2 labelled seconds are right" in capsys.readouterr().err
    table.write_text("other.npz,0,1,c\n")
    for options, problem in (
        (("--labels", table), "has no label for x.npz"),
        (("--whole", "--window", "0.1"), "--whole gives one answer for a recording and --window answers over time"),
        (("--window", "-0.1"), "--window: must be above 0"),
        (("--stride", "0"), "--stride: must be above 0"),
        (("--stride", "0.00001"), "stride must be at least window / 1000"),
        (("--picture", tmp_path / "x.txt"), "is not a picture, expected a name that ends in .png"),
        (("--page", tmp_path / "x.png"), "is not a page, expected a name that ends in .html"),
        (("--labels", tmp_path / "gone.csv"), "does not exist"),
    ):
        assert run_verb("predict", saved, file, *options) == 2
        assert problem in capsys.readouterr().err
    assert run_verb("predict", saved, file, tmp_path / "gone.raw", "--json") == 2
    assert "does not exist" in json.loads(capsys.readouterr().out.splitlines()[-1])["error"]
    for option, name in (("--csv", "y.csv"), ("--picture", "y.png"), ("--page", "y.html")):
        (tmp_path / name).write_text("mine")
        assert run_verb("predict", saved, file, option, tmp_path / name) == 2
        assert f"{name}: exists already. Choose another {option} or add --overwrite" in capsys.readouterr().err
        assert (tmp_path / name).read_text() == "mine"
        assert run_verb("predict", saved, file, option, tmp_path / name, "--overwrite") == 0
        assert (tmp_path / name).stat().st_size > 200
        capsys.readouterr()
    for option, name in (("--picture", "x.png"), ("--page", "x.html")):
        assert run_verb("predict", saved, file, file, option, tmp_path / name) == 2
        assert f"{option} shows one recording" in capsys.readouterr().err


def test_python_writes_the_table_and_the_page_of_the_command_line(saved, tmp_path, network):
    write_events(tmp_path / "x.npz", make_recording(900, sensor=network.config.sensor, duration=900_000))
    (tmp_path / "x_labels.csv").write_text("class,start,stop\nb,0.1,0.3\n")
    written = ("--csv", tmp_path / "verb.csv", "--page", tmp_path / "verb.html", "--labels", "beside")
    assert run_verb("predict", saved, tmp_path / "x.npz", *written) == 0
    found = view_answers(load_model(saved), tmp_path / "x.npz", tmp_path / "python.html", labels="beside")
    found.write_csv(tmp_path / "python.csv")
    assert (tmp_path / "python.html").read_bytes() == (tmp_path / "verb.html").read_bytes()
    ours, theirs = ((tmp_path / name).read_text().splitlines() for name in ("python.csv", "verb.csv"))
    assert [f"file,{ours[0]}", *(f"{tmp_path / 'x.npz'},{row}" for row in ours[1:])] == theirs
    with pytest.raises(Event2VecError, match="is not a page, expected a name that ends in"):
        view_answers(network, tmp_path / "x.npz", tmp_path / "x.csv")


def test_labels_are_checked_before_anything_is_answered(saved, tmp_path, capsys, network, monkeypatch):
    write_events(tmp_path / "x.npz", make_recording(900, sensor=network.config.sensor))
    (tmp_path / "x_labels.csv").write_text("class,start,stop\nz,0.1,0.3\n")

    def answer(*given, **more):
        raise AssertionError("an hour is lost")

    monkeypatch.setattr("event2vec.evaluation.timeline.timeline", answer)
    assert run_verb("predict", saved, tmp_path / "x.npz", "--labels", "beside") == 2
    assert "the labels name 'z', which the network does not know" in capsys.readouterr().err


def test_events_at_one_instant_are_answered(network):
    zeros = np.zeros(20, np.int64)
    found = timeline(network, Events.from_arrays(zeros, zeros, zeros, zeros, sensor="128x128"))
    assert [(each.start, each.stop) for each in found.spans] == [(0, 1)]
