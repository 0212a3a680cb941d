"""What an exported network is given and what becomes of its answers: six arrays in, one mean of scores out."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from conftest import make_recording
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from event2vec.errors import Event2VecError, FileError, MissingExtra
from event2vec.events import COLUMNS, EventBatch
from event2vec.model.description import Description
from event2vec.runtime import ExportedClassifier, check_graph, load, softmax, temper
from event2vec.runtime.engines import ENGINES, SHORTEST, inputs_of, unreadable

LOGITS = hnp.arrays(np.float32, (3, 4), elements=st.floats(-50, 50, width=32))
FACTS = {"format": 1, "model": {"classes": 3, "sensor": "34x30"}, "class_names": ["a", "b", "c"], "sampling": {}}


@dataclass
class Answering:
    """An engine that gives these logits in turn, and keeps what it was asked."""

    answers: list[np.ndarray]
    asked: list[EventBatch] = field(default_factory=list)
    description: str = ""

    def logits(self, batch):
        self.asked.append(batch)
        return self.answers[len(self.asked) - 1]


def exported(*answers, temperature=1.0):
    classifier = ExportedClassifier(Description.from_facts(FACTS), Answering([np.array(each) for each in answers]))
    classifier.temperature = temperature
    return classifier


class TestInputs:
    @pytest.mark.parametrize("lengths", [(0, 0), (1, 0), (1, 1), (2, 1), (7, 3)])
    def test_rows_are_two_events_long_at_least_and_padding_is_marked(self, lengths):
        batch = EventBatch.pad([make_recording(count, seed=count).arrays() for count in lengths])
        given_ = inputs_of(batch)
        assert list(given_) == [*COLUMNS, "valid"]
        length = max(*lengths, SHORTEST)
        for name, column in given_.items():
            assert column.shape == (2, length)
            assert column.dtype == getattr(batch, name).dtype, name
            np.testing.assert_array_equal(column[:, : max(lengths)], getattr(batch, name))
            assert not column[:, max(lengths) :].any()
        assert given_["valid"].sum(axis=1).tolist() == list(lengths)

    def test_columns_that_are_long_enough_are_not_copied(self):
        batch = EventBatch.pad([make_recording(5).arrays()])
        assert all(column is getattr(batch, name) for name, column in inputs_of(batch).items())
        assert inputs_of(batch, shortest=9)["x"].shape == (1, 9)


class TestScores:
    @given(LOGITS)
    def test_scores_add_up_to_one_and_keep_the_order_of_the_logits(self, logits):
        scores = softmax(logits)
        np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-5)
        best = np.take_along_axis(scores, logits.argmax(axis=1)[:, None], axis=1)[:, 0]
        np.testing.assert_array_equal(best, scores.max(axis=1))
        np.testing.assert_allclose(softmax(logits + np.float32(8)), scores, rtol=1e-4, atol=1e-6)

    def test_large_logits_do_not_overflow(self):
        with np.errstate(all="raise", under="ignore"):
            np.testing.assert_allclose(softmax(np.array([[1000.0, 0, -1000]])), [[1, 0, 0]], atol=1e-12)

    @given(LOGITS, st.sampled_from([0.2, 1.0, 3.0]))
    def test_a_temperature_divides_logits(self, logits, temperature):
        moderate = np.clip(logits, -20, 20)
        tempered = temper(softmax(moderate), temperature)
        np.testing.assert_allclose(tempered, softmax(moderate / np.float32(temperature)), atol=2e-5)

    def test_without_a_temperature_scores_are_left_as_they_are(self):
        scores = softmax(np.array([[1.0, 2.0]]))
        assert temper(scores, 1.0) is scores

    def test_a_score_of_zero_stays_a_number(self):
        assert np.isfinite(temper(np.array([[1.0, 0.0]], np.float32), 0.5)).all()
        np.testing.assert_allclose(temper(np.array([[1.0, 0.0]], np.float32), 2.0), [[1, 0]], atol=1e-12)

    def test_several_draws_are_averaged_as_scores_and_tempered_after_that(self):
        one, other = [[5.0, 0, 0]], [[0, 5.0, 0]]
        mean = (softmax(np.array(one)) + softmax(np.array(other))) / 2
        batch = EventBatch.pad([make_recording(3).arrays()])
        np.testing.assert_allclose(exported(one, other).mean_scores([batch, batch]), mean)
        hot = exported(one, other, temperature=2.0)
        np.testing.assert_allclose(hot.mean_scores([batch, batch]), temper(mean, 2.0))
        assert len(hot.engine.asked) == 2


class TestFiles:
    def test_the_network_is_asked_about_two_events_of_its_sensor(self):
        classifier = exported([[0.0, 1, 2]])
        check_graph(Path("a.onnx"), classifier)
        (batch,) = classifier.engine.asked
        assert (batch.valid.tolist(), batch.p.tolist(), str(batch.sensor)) == ([[True, True]], [[False, True]], "34x30")

    @pytest.mark.parametrize("answer", [[[0.0, 1]], [[0.0, 1, 2], [0, 1, 2]], [0.0, 1, 2]])
    def test_other_answers_than_a_score_per_class_are_refused_with_their_shape(self, answer):
        shape = str(np.array(answer).shape)
        with pytest.raises(FileError) as caught:
            check_graph(Path("a.onnx"), exported(answer))
        assert str(caught.value) == (
            f"a.onnx: its logits have shape {shape}, expected (1, 3): a score per class. Export it again"
        )

    def test_an_engine_that_fails_is_one_short_line(self):
        class Failing(Answering):
            def logits(self, batch):
                raise ValueError("first\n" + "x" * 999)

        with pytest.raises(FileError, match=r"a\.onnx: cannot be read as an exported network: first x+...") as caught:
            check_graph(Path("a.onnx"), ExportedClassifier(Description.from_facts(FACTS), Failing([])))
        assert len(str(caught.value)) < 300
        assert str(unreadable(Path("a"), "ONNX", OSError("x"))) == (
            "a: cannot be read as ONNX: x. Export the network again"
        )

    @pytest.mark.parametrize(
        ("name", "problem"),
        [
            ("a.pt2", "is for torch.export.load, which may run code that is in it; export as .onnx instead"),
            ("a.txt", "is not an exported network: expected .onnx or .xml"),
            ("a", "is not an exported network: expected .onnx or .xml"),
        ],
    )
    def test_other_files_are_refused_by_their_suffix(self, name, problem, tmp_path):
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(FileError) as caught:
            load(tmp_path / name)
        assert caught.value.problem == problem

    def test_a_folder_and_nothing_are_no_networks(self, tmp_path):
        (tmp_path / "a.onnx").mkdir()
        with pytest.raises(FileError, match=r"a\.onnx: is not a file$"):
            load(tmp_path / "a.onnx")
        with pytest.raises(FileError, match=r"b\.onnx: does not exist\. Check the name and the folder$"):
            load(tmp_path / "b.onnx")

    @pytest.mark.parametrize("threads", [0, -1])
    def test_threads_are_one_at_least(self, threads, tmp_path):
        (tmp_path / "a.onnx").write_bytes(b"x")
        with pytest.raises(Event2VecError, match=f"threads must be at least 1, got {threads}"):
            load(tmp_path / "a.onnx", threads)

    @pytest.mark.parametrize(
        ("suffix", "package", "said"),
        [
            (".onnx", "onnxruntime", r"an exported network needs .*'event2vec\[export\]'"),
            (".xml", "openvino", r"an exported network for OpenVINO needs .*'event2vec\[export\]'"),
        ],
    )
    def test_without_its_package_the_extra_is_named(self, suffix, package, said, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(MissingExtra, match=said):
            ENGINES[suffix](tmp_path / f"a{suffix}", None)
