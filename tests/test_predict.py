"""Answers for files and folders: one for each file, in order, with a reason where there is none."""

import json
import warnings

import numpy as np
import pytest
import torch
from conftest import SMALL, make_recording, randomise

from event2vec import Event2VecError, Event2VecWarning, Events, ModelConfig, Sampling, Sensor, build_model, write_events
from event2vec.evaluation.predict import FileAnswer, find_files, predict
from event2vec.model.predictor import BATCH
from event2vec.model.trained_on import Extent, TrainedOn


@pytest.fixture(scope="module")
def model():
    config = ModelConfig(sensor=SMALL, classes=3, dim=16, hidden=16, heads=2, blocks=1)
    return randomise(build_model(config, class_names=["a", "b", "c"], sampling=Sampling(length=32)))


@pytest.fixture
def folder(tmp_path):
    for number in range(3):
        write_events(tmp_path / "data" / "class" / f"{number}.npz", make_recording(60 + number, seed=number))
    return tmp_path / "data"


def test_every_file_has_its_answer_in_order_whatever_could_not_be_read(model, folder, tmp_path):
    broken, empty, gone = tmp_path / "broken.npz", tmp_path / "empty.npz", tmp_path / "gone.npz"
    broken.write_bytes(b"PK\x03\x04 nothing")
    write_events(empty, make_recording(0))
    files = [gone, folder / "class/1.npz", broken, empty, folder / "class/0.npz"]
    found = predict(model, files)
    assert [answer.file for answer in found] == list(map(str, files))
    assert [answer.error is None for answer in found] == [False, True, False, False, True]
    for answer, seed in ((found[1], 1), (found[4], 0)):
        events = make_recording(60 + seed, seed=seed)
        assert answer.prediction is not None
        torch.testing.assert_close(answer.prediction.scores, model.predict(events).scores, atol=1e-6, rtol=0)
        assert answer.seconds == events.duration / 1e6
    assert found[0].error is not None
    assert "does not exist" in found[0].error
    assert found[3].error == f"{empty}: holds no events, so there is nothing to classify"
    assert all(answer.prediction is None for answer in found if answer.error)


def test_more_files_than_go_through_the_network_at_once_keep_their_answers(model, tmp_path):
    for number in range(BATCH + 3):
        write_events(tmp_path / f"{number:02}.npz", make_recording(40 + number, seed=number))
    found = predict(model, [tmp_path])
    assert len(found) == BATCH + 3
    for number in (0, BATCH - 1, BATCH, BATCH + 2):
        answer = found[number].prediction
        assert answer is not None
        assert answer.events == 40 + number
        alone = model.predict(make_recording(40 + number, seed=number))
        torch.testing.assert_close(answer.scores, alone.scores, atol=1e-6, rtol=0)


def test_a_folder_is_all_its_recordings_and_one_without_any_says_so(model, folder, tmp_path):
    (tmp_path / "none").mkdir()
    found = find_files([folder, tmp_path / "none", "a.npz"])
    assert [answer.file for answer in found[:3]] == [str(folder / f"class/{number}.npz") for number in range(3)]
    assert found[3].error == f"{tmp_path / 'none'}: has no recordings in it, expected files such as .aedat4, .raw, .npz"
    assert found[4] == FileAnswer("a.npz")
    (folder / "notes.docx").write_text("hello")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert len(find_files([folder])) == 3
    assert all(issubclass(each.category, Event2VecWarning) for each in said)


def test_votes_confidence_and_options_of_reading_are_passed_on(model, tmp_path):
    events = make_recording(80)
    write_events(tmp_path / "x.npz", events)
    (three,) = predict(model, [tmp_path / "x.npz"], vote=3)
    assert three.prediction is not None
    assert torch.equal(three.prediction.scores, model.predict(events, vote=3).scores)
    (unsure,) = predict(model, [tmp_path / "x.npz"], min_confidence=1.0)
    assert unsure.prediction is not None
    assert unsure.prediction.label is None
    table = np.stack([events.t, events.x, events.y, events.p], axis=1).astype(np.int64)
    np.savetxt(tmp_path / "x.txt", table, fmt="%d")
    (read,) = predict(model, [tmp_path / "x.txt"], sensor=SMALL, columns="txyp", time_unit="us")
    assert read.prediction is not None
    assert torch.equal(read.prediction.scores, model.predict(events).scores)
    with pytest.raises(Event2VecError, match="`vote` must be at least 1, got 0"):
        predict(model, [tmp_path / "x.npz"], vote=0)


def test_facts_have_the_best_class_first_and_are_json(model):
    events = make_recording(80, sensor=Sensor(68, 60))
    answer = FileAnswer("x.npz", model.predict(events), seconds=0.25)
    facts = json.loads(json.dumps(answer.facts(model.class_names)))
    scores = list(facts["scores"].values())
    assert scores == sorted(scores, reverse=True)
    assert next(iter(facts["scores"])) == facts["name"]
    assert facts["confidence"] == pytest.approx(scores[0])
    assert answer.prediction is not None
    assert facts["scores"]["b"] == pytest.approx(float(answer.prediction.scores[1]))
    assert (facts["scaled_from"], facts["events"], facts["duration_s"]) == ("68x60", 80, 0.25)
    assert (facts["unknown"], facts["remarks"]) == (None, [])
    assert FileAnswer("y.npz", error="y.npz: is broken").facts(model.class_names) == {
        "file": "y.npz", "error": "y.npz: is broken",
    }  # fmt: skip
    own = FileAnswer("z.npz", model.predict(make_recording(80)))
    assert own.facts(model.class_names)["scaled_from"] is None


# ---- what scores mean


def seen(events: float, duration: float) -> TrainedOn:
    rate = events / duration
    return TrainedOn(5, (duration,) * 7, (events,) * 7, (rate,) * 7)


def test_the_limit_of_confidence_is_reached_by_what_equals_it(model):
    scores = torch.tensor([0.25, 0.5, 0.25])
    judged = model.judge(scores, Extent(100.0, 1.0), 0.5)
    assert (judged.label, judged.unknown) == (1, None)
    below = model.judge(scores, Extent(100.0, 1.0), 0.51)
    assert below.label is None
    assert below.unknown == "b is the best class with 50.0%, below the 51.0% asked for"
    assert torch.equal(below.scores, scores), "the scores are shown as they are"


@pytest.mark.parametrize("make", [torch.tensor, np.array], ids=["tensor", "array"])
def test_scores_that_are_no_numbers_are_unknown_and_all_alike(model, make):
    judged = model.judge(make([float("nan")] * 3), Extent(100.0, 1.0), 0.0)
    assert judged.label is None
    assert judged.unknown is not None
    assert judged.unknown.startswith("the network gave scores that are not numbers")
    assert judged.scores.tolist() == pytest.approx([1 / 3] * 3)
    few = model.judge(make([0.8, 0.1, 0.1]), Extent(1.0, 0.0), 0.0)
    assert few.unknown == "1 event is too few to judge by"
    assert few.scores.tolist() == pytest.approx([1 / 3] * 3)


def test_too_few_events_come_before_too_little_confidence(model):
    judged = model.judge(torch.tensor([0.4, 0.3, 0.3]), Extent(1.0, 0.0), 0.9)
    assert judged.unknown == "1 event is too few to judge by"


def test_remarks_are_said_and_answered_all_the_same(model):
    model.trained_on = seen(100.0, 1.0)
    try:
        judged = model.judge(torch.tensor([0.4, 0.3, 0.3]), Extent(100.0, 3.0), 0.0)
        assert judged.label == 0
        assert judged.remarks == (
            "3 s long, in training 1 to 1",
            "33.3 events per second, in training 100 to 100",
        )
        assert model.judge(torch.tensor([0.4, 0.3, 0.3]), Extent(9.9, 1.0), 0.0).unknown is not None
    finally:
        model.trained_on = None


def test_a_network_on_clusters_is_judged_by_what_it_reads(model):
    """rho of the clusters sums to the events that were recorded."""
    config = ModelConfig(sensor=SMALL, classes=3, dim=16, hidden=16, heads=2, blocks=1)
    clusters = randomise(build_model(config, sampling=Sampling(method="clusters", length=8)))
    clusters.trained_on = seen(60.0, 0.3)
    answer = clusters.predict(make_recording(60))
    assert answer.unknown is None
    assert not [remark for remark in answer.remarks if "events" in remark.split(",")[0].split()]
    assert answer.events == 60


def test_a_table_of_pixels_is_used_where_more_events_are_read_than_it_has_rows():
    config = ModelConfig(sensor=SMALL, classes=3, dim=16, hidden=16, heads=2, blocks=1)
    rows = 2 * SMALL.width * SMALL.height
    model = build_model(config, sampling=Sampling(length=32)).eval()
    assert model.for_reading(rows // 32) is model, "exactly as many or fewer"
    assert model.for_reading(rows // 32 + 1) is not model
    assert model.train().for_reading(10**6) is model, "a table does not learn"
    clusters = build_model(config, sampling=Sampling(method="clusters", length=32)).eval()
    assert clusters.for_reading(10**6) is clusters, "clusters are between pixels"
    large = build_model(ModelConfig(sensor=Sensor(1280, 720), classes=3, dim=64, heads=2, blocks=1)).eval()
    assert large.for_reading(10**6) is large, "a table of half a gigabyte"
    fits = build_model(ModelConfig(sensor=Sensor(512, 256), classes=3, dim=64, heads=2, blocks=1)).eval()
    assert fits.for_reading(10**6) is not fits, "67 megabytes are worth it"


def test_one_event_of_a_large_recording_is_still_the_whole_recording():
    one = Events.from_arrays([3], [4], [0], [1], sensor=SMALL, rho=[7.0])
    assert Extent.of(one) == Extent(7.0, 0.0)
    assert Extent.of(one).rate is None
    assert Extent(6.0, 2.0).rate == 3.0
