"""What an export checks and says: made-up recordings, formats, descriptions, and a file only where all agrees."""

import json
import logging
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SMALL, make_recording, randomise
from golden.make import FOLDER

from event2vec import Event2VecError, EventStore, ModelConfig, Run, Sampling, Windows, build_model, export
from event2vec.errors import FileError, MissingExtra
from event2vec.exporting import CLOSE, LENGTHS, Exported, MadeUp, Stored, _compare, _own_model, _recordings, formats
from event2vec.exporting.formats import WRITERS, describe, example, hushed, random_events, refused
from event2vec.model.description import Description
from event2vec.model.exported import SUFFIXES, files_of
from event2vec.progress import SILENT
from event2vec.runtime import FORMAT, read_description
from event2vec.runtime.engines import INPUTS


@pytest.fixture
def model():
    config = ModelConfig(sensor=SMALL, classes=3, dim=16, hidden=16, blocks=1)
    made = randomise(build_model(config, class_names=("a", "b", "ü"), sampling=Sampling(length=50)))
    made.temperature, made.windows = 1.5, Windows(window=0.1)
    return made


def test_made_up_recordings_have_hard_lengths_and_are_the_same_each_time(model):
    made = MadeUp(model)
    assert [len(events) for _, events in made] == [*LENGTHS, 50, 76]
    assert [name for name, _ in made][:2] == ["1 random event", "2 random events"]
    for (_, one), (_, other) in zip(made, MadeUp(model), strict=True):
        assert one.sensor == SMALL
        assert (one.x == other.x).all()
        assert (np.diff(one.t) >= 0).all()
    assert len({float(events.x[0]) for _, events in made}) > 2, "each with events of its own"


def test_random_events_fill_the_sensor_and_a_second():
    events = random_events(5000, SMALL, seed=3)
    assert (events.x.min(), events.x.max(), events.y.min(), events.y.max()) == (0, 33, 0, 29)
    assert 0.99e6 < events.duration < 1e6
    assert 0.4 < events.p.mean() < 0.6


def test_the_example_has_no_size_that_an_exporter_takes_for_a_constant(model):
    columns = example(model)
    assert [tuple(column.shape) for column in columns] == [(3, 37)] * len(INPUTS)
    assert columns[INPUTS.index("valid")].sum(dim=1).tolist() == [37, 36, 35]


def test_a_file_says_of_its_network_what_the_network_is(model, tmp_path):
    text = describe(model)
    assert json.loads(text)["format"] == FORMAT
    assert "ü" in text, "names stay readable"
    assert read_description(tmp_path / "a.onnx", text) == Description.of(model)


@pytest.mark.parametrize("name", SUFFIXES)
def test_each_format_has_a_writer_and_its_files(name):
    assert WRITERS.keys() == SUFFIXES.keys()
    path = Path(f"a{SUFFIXES[name]}")
    assert files_of(path)[-1] == path, "the one to open comes last"
    assert len(files_of(path)) == (2 if name == "openvino" else 1)
    assert files_of(Path("a.XML"))[0] == Path("a.bin")


def test_a_format_that_there_is_not_is_one_line_from_python(model, tmp_path):
    with pytest.raises(Event2VecError, match=r"^format must be one of onnx, openvino, torch, got 'tflite'$"):
        export(model, tmp_path / "a.tflite", "tflite")  # type: ignore[arg-type]
    for name, suffix in SUFFIXES.items():
        with pytest.raises(FileError, match=rf"a\.foo: must end in \{suffix} for the format {name}$"):
            export(model, tmp_path / "a.foo", name)


@pytest.mark.parametrize("module", ["onnxruntime", "onnxscript"])
def test_without_the_extra_it_is_named_and_nothing_is_left(model, tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=r"^exporting to ONNX needs .*pip install 'event2vec\[export\]'$"):
        export(model, tmp_path / "a.onnx")
    assert list(tmp_path.iterdir()) == []


def test_exporters_are_hushed_and_heard_again_afterwards(capsys):
    level = logging.root.manager.disable
    with hushed():
        print("noise")  # noqa: T201
        warnings.warn("noise", stacklevel=1)
        logging.getLogger().critical("noise")
    with pytest.raises(ZeroDivisionError), hushed():
        raise ZeroDivisionError
    assert capsys.readouterr() == ("", "")
    assert logging.root.manager.disable == level
    print("heard")  # noqa: T201
    assert capsys.readouterr().out == "heard\n"


def test_why_a_network_cannot_be_exported_is_its_first_cause_in_one_line(model):
    first = ValueError("the reason\nand pages more")
    middle, last = RuntimeError("noise"), RuntimeError("more noise")
    middle.__cause__, last.__cause__ = first, middle
    said = str(refused(model, "onnx", last))
    assert said == "the network, event2vec, cannot be exported as onnx: the reason"
    said = str(refused(model, "torch", RuntimeError("Could not guard on data-dependent expression u0 < 5")))
    assert said.endswith(
        "as torch: the number of things that it computes depends on the events, which exporters cannot follow"
    )


def test_the_callers_network_is_neither_moved_nor_changed(model):
    model.train()
    own = _own_model(model, None)
    assert own is not model
    assert (model.training, own.training) == (True, False)
    own.temperature = 9.0
    assert model.temperature == 1.5


@pytest.mark.parametrize(("temperature", "allowed"), [(1.0, 1e-4), (2.0, 1e-4), (0.1, 1e-3)])
def test_scores_may_differ_more_only_where_a_low_temperature_widens_the_logits(model, temperature, allowed):
    model.temperature = temperature
    right = np.array([[2.0, 1.0, 0.0], [0.7, 0.2, 0.1]])
    near, far = right.copy(), right.copy()
    near[1, 1] += 0.99 * allowed
    far[1, 1] += 1.01 * allowed
    assert _compare(model, "clip", right, near) == 0.0, "of logits"
    with pytest.raises(Event2VecError, match=r"^the exported network differs on clip: it answers a, torch a; "):
        _compare(model, "clip", right, far)


def test_a_difference_of_logits_is_told_and_bounded(model):
    right = np.array([[2.0, 1.0, 0.0], [0.7, 0.2, 0.1]])
    for step in (0.5 * CLOSE, -0.5 * CLOSE):
        found = right.copy()
        found[0, 2] += step
        assert _compare(model, "clip", right, found) == pytest.approx(0.5 * CLOSE)
    for step in (1.01 * CLOSE, -1.01 * CLOSE):
        found = right.copy()
        found[0, 2] += step
        with pytest.raises(
            Event2VecError, match=r"a logit differs by 0\.000101, expected at most 0\.0001, and a score"
        ):
            _compare(model, "clip", right, found)


def test_another_class_is_refused_however_close_the_scores_are(model):
    right = np.array([[1.00001, 1.0, 0.0], [0.40001, 0.4, 0.2]])
    found = right[:, [1, 0, 2]]
    with pytest.raises(Event2VecError, match="it answers b, torch a;"):
        _compare(model, "two\nlines", right, found)
    only_score = np.stack([right[0], found[1]])
    with pytest.raises(Event2VecError, match=r"differs on two\\nlines"):
        _compare(model, "two\nlines", right, only_score)


def test_it_is_checked_on_the_test_recordings_or_on_all_of_data_that_is_not_divided(model, tmp_path, monkeypatch):
    recordings = [(make_recording(10 + number), 0) for number in range(5)]
    for name, splits in (("divided", ["train"] * 3 + ["test"] * 2), ("whole", ["train"] * 5)):
        store = EventStore.create(tmp_path / name, recordings, sensor=SMALL, classes=["a"], splits=splits)
        monkeypatch.setattr(Run, "raw_store", lambda self, data, *_, store=store: store)
        found = _recordings(FOLDER / "network", model, tmp_path / name, 1, SILENT)
        assert isinstance(found, Stored)
        wanted = (3, 4) if name == "divided" else range(5)
        assert [len(events) for _, events in found] == [10 + number for number in wanted]
        assert [source for source, _ in found] == [store.sources[number] for number in wanted]
    assert isinstance(_recordings(FOLDER / "network", model, None, 1, SILENT), MadeUp), "it is no run"
    assert isinstance(_recordings(model, model, None, 1, SILENT), MadeUp)


def test_nothing_is_written_where_the_file_does_not_agree(model, tmp_path, monkeypatch):
    """The draft is of another network, and in the place of an older file."""
    (tmp_path / "a.pt2").write_text("older")
    other = randomise(build_model(model.config, class_names=model.class_names, sampling=model.sampling), seed=5)

    class Pretended:
        description = describe(model)

        def __init__(self, path):
            assert path.read_text() == "draft"

        @torch.no_grad()
        def logits(self, batch):
            return other.eval()(batch.torch()).numpy()

    monkeypatch.setitem(WRITERS, "torch", lambda model, path: path.write_text("draft"))
    monkeypatch.setattr(formats, "TorchEngine", Pretended)
    with pytest.raises(Event2VecError, match=r"differs on 1 random event: .* Nothing was written; please report it"):
        export(model, tmp_path / "a.pt2", "torch")
    assert (tmp_path / "a.pt2").read_text() == "older"
    monkeypatch.setattr(Pretended, "logits", lambda self, batch: model.eval()(batch.torch()).detach().numpy())
    made = export(model, tmp_path / "deep/a.pt2", "torch")
    assert (tmp_path / "deep/a.pt2").read_text() == "draft"
    assert made == Exported(tmp_path / "deep/a.pt2", "torch", 5, 6, True, 0.0)
    assert made.facts() == {
        "path": str(tmp_path / "deep/a.pt2"),
        "format": "torch",
        "bytes": 5,
        "recordings": 6,
        "made_up": True,
        "largest_difference": 0.0,
    }
