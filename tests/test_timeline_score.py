"""Scores of answers over time, by hand: seconds, spans and latencies, in the cases where counting twice is easy."""

import json
from dataclasses import replace

import numpy as np
import pytest

from event2vec import Event2VecError, Windows
from event2vec.data.datasets.dvs_gesture import CLASSES as GESTURES
from event2vec.data.labels import Span
from event2vec.evaluation.timeline import Timeline
from event2vec.evaluation.timeline_score import TimelineScore, _count_found, _Piece, match_labels, score_timeline


def made(labels: str, stride: float = 0.1) -> Timeline:
    """A timeline of windows of 0.1 s with these answers: a, b, c, or ? for unknown."""
    windows = Windows(window=0.1, stride=stride)
    answers = np.array(["abc".find(label) for label in labels])
    numbers = np.arange(len(answers))
    starts = numbers * windows.step
    scores = np.full((len(answers), 3), 0.2)
    scores[numbers, np.maximum(answers, 0)] = 0.6
    last = int(starts[-1]) + windows.length - 1
    counts = np.full(len(answers), 50)
    stops = starts + windows.length
    return Timeline(tuple("abc"), windows, numbers, starts, stops, counts, scores, answers, answers, last, 0, None)


def span(start: float, stop: float, name: str) -> Span:
    return Span("", round(start * 1e6), round(stop * 1e6), name)


def test_labels_may_come_in_any_order():
    labels = [span(0.4, 0.6, "c"), span(0, 0.2, "a"), span(0.2, 0.4, "b")]
    assert score_timeline(made("aabbcc"), labels) == score_timeline(made("aabbcc"), sorted(labels, key=str))
    touching = [span(0.2, 0.3, "a"), span(0, 0.2, "a")]
    assert score_timeline(made("aaabb"), touching).spans == 1


def test_an_answer_across_labels_that_touch_is_one_answer():
    """Labelled time without a gap is one stretch: answers are cut to it, and not to each label."""
    score = score_timeline(made("aaaa"), [span(0, 0.2, "a"), span(0.2, 0.4, "b")])
    assert (score.spans, score.answers, score.found) == (2, 1, 1)
    assert score.accuracy == 0.5
    assert score.f1 == pytest.approx(2 / 3)
    apart = score_timeline(made("aaaaa"), [span(0, 0.2, "a"), span(0.3, 0.5, "a")])
    assert (apart.spans, apart.answers, apart.found) == (2, 2, 2), "an answer goes on through time without a label"
    assert apart.accuracy == 1
    assert apart.seconds == pytest.approx(0.4)


def test_labels_that_overlap_are_one_stretch_as_long_as_the_longer():
    score = score_timeline(made("aaaa"), [span(0, 0.4, "a"), span(0.1, 0.2, "b")])
    assert score.answers == 1
    assert score.seconds == pytest.approx(0.5), "each label counts"
    inside = score_timeline(made("aaaa"), [span(0, 0.4, "a"), span(0.1, 0.2, "a")])
    assert inside.spans == 1, "of one class they are one label"
    assert inside.seconds == pytest.approx(0.4)


def test_an_answer_finds_one_label_and_a_label_has_one_answer():
    one_answer = [_Piece(0, 100, 0)]
    two_labels = [_Piece(0, 50, 0), _Piece(50, 100, 0)]
    assert _count_found(two_labels, one_answer) == 1, "both overlap by half, one is found"
    assert _count_found(one_answer, two_labels) == 1
    assert _count_found([_Piece(0, 100, 0), _Piece(0, 100, 1)], one_answer) == 1, "of its own class alone"
    labels = [_Piece(0, 100, 0), _Piece(40, 140, 0)]
    answers = [_Piece(30, 130, 0), _Piece(45, 145, 0)]
    assert _count_found(labels, answers) == 2, "the best pair first, and the other two are left for each other"


@pytest.mark.parametrize(("stop", "found"), [(200, 1), (201, 0), (50, 1), (49, 0)])
def test_an_answer_has_found_a_label_from_half_of_what_both_cover(stop, found):
    assert _count_found([_Piece(0, 100, 2)], [_Piece(0, stop, 2)]) == found
    assert _count_found([_Piece(0, 100, 2)], [_Piece(100, 200, 2)]) == 0, "they only touch"


def test_overlap_is_intersection_over_union_of_one_class():
    assert _Piece(0, 100, 1).overlap(_Piece(50, 150, 1)) == pytest.approx(1 / 3)
    assert _Piece(50, 150, 1).overlap(_Piece(0, 100, 1)) == pytest.approx(1 / 3)
    assert _Piece(0, 100, 1).overlap(_Piece(25, 75, 1)) == 0.5
    assert _Piece(0, 100, 1).overlap(_Piece(0, 100, 2)) == 0
    assert _Piece(0, 100, 1).overlap(_Piece(300, 400, 1)) == 0


def test_labels_are_cut_to_the_recording():
    score = score_timeline(made("aabb"), [span(-5, 0.2, "a"), span(0.2, 99, "b")])
    assert score.seconds == pytest.approx(0.4)
    assert (score.accuracy, score.f1) == (1, 1)
    assert score_timeline(made("aabb"), [span(0.3, 99, "b"), span(50, 60, "c")]).spans == 1
    with pytest.raises(Event2VecError, match=r"no label lies in the recording, which lasts 0.4 s"):
        score_timeline(made("aabb"), [span(-2, 0, "a"), span(0.4, 1, "b")])


def test_unknown_is_no_answer_and_is_never_right():
    score = score_timeline(made("a??b"), [span(0, 0.2, "a"), span(0.2, 0.4, "b")])
    assert score.accuracy == 0.5
    assert (score.answers, score.found) == (2, 2)
    nothing = score_timeline(made("????"), [span(0, 0.4, "a")])
    assert (nothing.accuracy, nothing.f1, nothing.answers, nothing.latency) == (0, 0, 0, None)


def test_overlapping_windows_share_their_time_before_it_is_counted():
    """With a stride of half a window, answers change in the middle of what two windows share."""
    found = made("aabb", stride=0.05)
    score = score_timeline(found, [span(0, 0.125, "a"), span(0.125, 0.25, "b")])
    assert score.accuracy == 1
    assert score_timeline(found, [span(0, 0.25, "a")]).accuracy == pytest.approx(0.5)


def test_latency_is_until_the_window_ends_whose_answer_is_first_right():
    labels = [span(0, 0.3, "a"), span(0.3, 0.6, "b"), span(0.6, 0.9, "c")]
    score = score_timeline(made("caa" + "abb" + "aaa"), labels)
    assert score.latencies == pytest.approx([0.2, 0.2]), "c is never recognised"
    assert score.latency == pytest.approx(0.2)
    three = replace(score, latencies=(0.1, 0.4, 0.2))
    assert three.latency == pytest.approx(0.2), "the median"
    halfway = score_timeline(made("aabb"), [span(0.15, 0.4, "a")])
    assert halfway.latencies == pytest.approx([0.05]), "half of the window lies in the span: enough"
    hardly = score_timeline(made("aabb"), [span(0.151, 0.4, "a")])
    assert hardly.latency is None


def test_a_window_that_the_recording_cuts_short_ends_with_it():
    found = replace(made("aab"), duration=249_999)
    score = score_timeline(found, [span(0.2, 0.25, "b")])
    assert score.latencies == pytest.approx([0.05])
    assert score.accuracy == 1


def test_facts_hold_everything_for_json():
    score = score_timeline(made("aabb"), [span(0, 0.2, "a"), span(0.2, 0.4, "a")])
    facts = json.loads(json.dumps(score.facts()))
    assert facts == {
        "seconds": 0.4, "accuracy": 0.5, "spans": 1, "found": 1, "answers": 2, "latencies": [0.1],
        "f1": score.f1, "latency": score.latency,
    }  # fmt: skip
    assert TimelineScore(1.0, 0.0, 0, 0, 0, ()).f1 == 0
    assert score.summary == (
        "50.0% of 0.4 labelled seconds are right; 1 of 1 spans found (F1 0.667 at overlap 0.5); "
        "median onset latency 0.1 s"
    )


def test_numbers_are_gestures_only_to_a_network_with_exactly_their_names():
    numbered = [Span("", 0, 5, "3")]
    assert match_labels(numbered, GESTURES[::-1])[0].name == GESTURES[2], "in whatever order it has them"
    with pytest.raises(Event2VecError, match="the labels name '3', which the network does not know"):
        match_labels(numbered, GESTURES[:-1])
    with pytest.raises(
        Event2VecError, match=r"the labels name 'hand claping', which the network does not know.*hand clapping"
    ):
        match_labels([Span("", 0, 5, "hand claping")], GESTURES)
    named = [Span("", 0, 5, "hand clapping")]
    assert match_labels(named, GESTURES) == named
