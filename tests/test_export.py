"""Networks as files for a device: what they answer, what they say, and that torch is not needed to ask them."""

import json
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SMALL, make_recording, randomise
from golden.make import FOLDER
from processes import run_python
from shell import run_verb

from event2vec import (
    ModelConfig,
    Sampling,
    Sensor,
    Windows,
    build_model,
    load_model,
    read_events,
    save_model,
    timeline,
    write_events,
)
from event2vec.errors import Event2VecError, FileError
from event2vec.events import EventBatch
from event2vec.exporting import CLOSE, LENGTHS, _check, _check_description, _publish, export
from event2vec.exporting.formats import open_draft
from event2vec.model.classifier import temper
from event2vec.model.description import Description
from event2vec.model.trained_on import TrainedOn
from event2vec.runtime import ExportedClassifier, load, open_predictor, read_description
from event2vec.runtime import temper as temper_arrays
from event2vec.runtime.engines import inputs_of
from event2vec.streaming.answers import Answerer

ROOT = Path(__file__).parents[1]
RECORDINGS = FOLDER / "recordings"
QUANTILES = (100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0)

# In a process of its own: the checks of shapes that tests run with cannot be followed.
WRITE = """
import importlib.util, json, shutil, sys
from event2vec import export, load_model
from event2vec.exporting import formats
formats.write_onnx = lambda model, path: shutil.copy("network.onnx", path)  # OpenVINO's begins with the same file
follow, programs = formats.follow, []
def follow_once(model):
    programs or programs.append(follow(model))
    return programs[0]
formats.follow = follow_once  # torch's has the same operations
model = load_model(sys.argv[1])
formats = {"onnx": "onnx", "torch": "pt2"} | ({"openvino": "xml"} if importlib.util.find_spec("openvino") else {})
made = [export(model.train(), f"network.{suffix}", format).facts() for format, suffix in formats.items()]
assert model.training, "the caller's network stays as it was"
print(json.dumps(made))
"""
shares_files = pytest.mark.xdist_group("exported")  # they take long to write


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """A small network with all that a network may keep, in every format; and the network itself."""
    folder = tmp_path_factory.mktemp("exported")
    config = ModelConfig(sensor=Sensor(34, 34), classes=2, dim=16, hidden=16, blocks=1, relative=True, neighbourhood=5)
    sampling = Sampling(method="clusters", length=64)
    model = randomise(build_model(config, class_names=("3", "7"), sampling=sampling))
    model.temperature = 1.7
    model.trained_on = TrainedOn(9, (0.2,) * 7, QUANTILES, (1000.0,) * 7)
    model.windows = Windows(window=0.1, stride=0.05)
    save_model(model, folder / "saved")
    for made in json.loads(run_python("-c", WRITE, "saved", folder=folder, check=True).stdout):
        assert made["largest_difference"] <= CLOSE
        assert (made["recordings"], made["made_up"]) == (len(LENGTHS) + 2, True)
    return folder


def but_scores(prediction):
    return {name: value for name, value in vars(prediction).items() if name != "scores"}


@shares_files
@pytest.mark.slow
@pytest.mark.parametrize("name", ["network.onnx", "network.xml"])
def test_an_exported_network_answers_as_the_network_itself(exported, name):
    if name.endswith("xml"):
        pytest.importorskip("openvino")
    model, device = load_model(exported / "saved"), load(exported / name, threads=1)
    assert Description.of(device) == Description.of(model)
    files = sorted(RECORDINGS.glob("*/*"))
    for sampling, vote in ((model.sampling, 1), (Sampling(length=128), 3)):
        model.sampling = device.sampling = sampling
        for one, other in zip(model.predict(files, vote=vote), device.predict(files, vote=vote), strict=True):
            assert but_scores(other) == but_scores(one), "label, name, remarks and all"
            np.testing.assert_allclose(other.scores, one.scores, atol=CLOSE)
    lengths = [make_recording(count, sensor=model.config.sensor) for count in (1, 2, 3, 700)]
    np.testing.assert_allclose(device.scores(lengths), model.scores(lengths), atol=CLOSE)


def open_file(path):
    """As on a device; a program of torch's, which this test wrote itself, as the export opens it."""
    if path.suffix == ".xml":
        pytest.importorskip("openvino")
    return open_draft(path, "torch") if path.suffix == ".pt2" else load(path, threads=1)


def mixed_batch(longest, sensor):
    counts = (longest, longest // 2, 17)
    return EventBatch.pad([make_recording(count, seed=count, sensor=sensor).arrays() for count in counts])


@shares_files
@pytest.mark.slow
@pytest.mark.parametrize("name", ["network.onnx", "network.xml", "network.pt2"])
def test_logits_agree_at_lengths_beyond_what_the_network_draws(exported, name):
    """Several rows each, none of them as long as the example that the exporter followed."""
    model, device = load_model(exported / "saved"), open_file(exported / name)
    for longest in (333, 1024, 4096):
        batch = mixed_batch(longest, model.config.sensor)
        with torch.no_grad():
            right = model(batch.torch()).numpy()
        np.testing.assert_allclose(device.logits(batch), right, rtol=0, atol=CLOSE)


@shares_files
@pytest.mark.slow
@pytest.mark.parametrize("name", ["network.onnx", "network.xml"])
def test_threads_get_their_own_answers(exported, name):
    device = open_file(exported / name)
    batches = [mixed_batch(100 + 40 * number, device.config.sensor) for number in range(16)]
    right = [device.logits(batch) for batch in batches]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(5):
            for one, other in zip(right, threads.map(device.logits, batches), strict=True):
                np.testing.assert_allclose(other, one, atol=1e-6)


@shares_files
@pytest.mark.slow
def test_a_file_is_small_and_says_what_it_reads(exported):
    onnx = pytest.importorskip("onnx")
    path = exported / "network.onnx"
    weights = (exported / "saved/model.safetensors").stat().st_size
    assert path.stat().st_size < 60_000 + 2 * weights, "the lines of code that operations came from are not in it"
    for file in (path, path.with_suffix(".pt2")):
        assert b"event2vec/model/" not in file.read_bytes(), "nor are the paths of this machine"
    (operations,) = onnx.load(path).opset_import
    assert (operations.domain, operations.version) == ("", 18)
    network: Any = load(path).engine
    assert [each.shape for each in network.session.get_inputs()] == [["rows", "events"]] * 6
    facts = json.loads(network.description)
    assert facts["model"]["sensor"] == {"width": 34, "height": 34}
    assert facts["class_names"] == ["3", "7"]


@shares_files
@pytest.mark.slow
def test_torch_writes_a_program_that_we_do_not_load(exported):
    with pytest.raises(FileError, match=r"export as \.onnx instead"):
        load(exported / "network.pt2")


@shares_files
@pytest.mark.slow
def test_answers_over_time_are_those_of_the_network(exported):
    """By the verb, and so from a file: the network has windows."""
    path, file = exported / "network.onnx", RECORDINGS / "3/aedat4.aedat4"
    ours = timeline(load_model(exported / "saved"), read_events(file))
    theirs = timeline(open_predictor(path), file)
    np.testing.assert_array_equal(theirs.labels, ours.labels)
    np.testing.assert_allclose(theirs.scores, ours.scores, atol=CLOSE)
    said = [json.loads(line) for line in run_verb("predict", path, file, "--json").out.splitlines()]
    assert [(span["start"], span["name"]) for span in said] == [(span.start / 1e6, span.name) for span in ours.spans]


# In place of onnxruntime-web, which comes from npm: it notes what the network is asked, and gives these logits.
NETWORK_OF_THE_PAGE = """
const notedAnswer = async (inputs) => (window.asked = inputs, { logits: { data: [1, 2] } });
window.ort = {
  Tensor: class { constructor(type, data, shape) { Object.assign(this, { type, data, shape }); } },
  InferenceSession: { create: async () => ({ run: notedAnswer }) },
};
"""
ASKED_FOR = "Object.entries(asked).map(([name, each]) => [name, each.type, each.shape, Array.from(each.data, Number)])"


@shares_files
@pytest.mark.slow
def test_the_web_page_reads_the_file_and_asks_the_network_as_we_do(exported, browser, tmp_path):
    """In a real browser, with the page's own script: all but ONNX Runtime itself."""
    onnx = pytest.importorskip("onnx")
    page = browser.new_page()
    page.add_init_script(NETWORK_OF_THE_PAGE)
    page.goto((ROOT / "examples/web/index.html").as_uri())
    page.set_input_files("#model", exported / "network.onnx")
    page.wait_for_function("document.getElementById('answer').textContent.includes('the network reads clusters')")

    whole = onnx.load(exported / "network.onnx")
    (entry,) = whole.metadata_props
    facts = json.loads(entry.value) | {"sampling": {"method": "random", "length": 64}}
    entry.value = json.dumps(facts)
    onnx.save(whole, tmp_path / "random.onnx")
    events = make_recording(50, sensor=Sensor(67, 34))
    write_events(tmp_path / "clip.csv", events)
    page.set_input_files("#model", tmp_path / "random.onnx")
    page.set_input_files("#recording", tmp_path / "clip.csv")
    page.wait_for_function("document.getElementById('answer').textContent.startsWith('7 (')")
    assert page.evaluate("about") == facts, "class names, sensor, temperature and all"
    raised = np.exp(np.array([1.0, 2.0]) / facts["temperature"])
    assert f"{100 * raised[1] / raised.sum():.1f} %" in page.inner_text("#answer")
    right = inputs_of(EventBatch.pad([events.on_sensor(Sensor(34, 34)).arrays()]))
    asked = page.evaluate(ASKED_FOR)
    assert {name: (kind, shape) for name, kind, shape, _ in asked} == {
        name: (column.dtype.name, [1, 50]) for name, column in right.items()
    }
    for name, _, _, values in asked:
        np.testing.assert_allclose(values, right[name][0].astype(float), rtol=1e-6, err_msg=name)
    page.close()


ALONE = """
import sys, json
from event2vec.runtime import load
model = load(sys.argv[1])
assert model.sampling.method == "clusters"
assert all(answer.label is not None for answer in model.predict(sys.argv[2:]))
model.sampling = type(model.sampling)(length=100)
assert all(answer.label is not None for answer in model.predict(sys.argv[2:]))
assert not {"torch", "lightning", "sklearn", "matplotlib"} & set(sys.modules), "imported"
print(json.dumps(sorted(name for name in sys.modules if name.startswith("event2vec"))))
"""


@shares_files
@pytest.mark.slow
def test_no_torch_is_imported_and_the_runtime_package_has_all_that_is(exported):
    """With clusters, as the file says, and with random events."""
    path = exported / "network.onnx"
    files = sorted(map(str, RECORDINGS.glob("3/*")))
    command = [sys.executable, "-c", ALONE, str(path), *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    settings = tomllib.loads((ROOT / "runtime/pyproject.toml").read_text())
    modules = {name.removesuffix(".__init__") for name in settings["tool"]["setuptools"]["py-modules"]}
    compiled = {each["name"] for each in settings["tool"]["setuptools"]["ext-modules"]}
    assert set(json.loads(done.stdout)) - compiled <= modules


class Off:
    """An engine that computes with torch, and errs on rows with fewer than this many events."""

    description = ""

    def __init__(self, model, fewest, by):
        self.model, self.fewest, self.by = model, fewest, by

    @torch.no_grad()
    def logits(self, batch):
        found = self.model(batch.torch()).numpy().copy()
        found[batch.valid.sum(axis=1) < self.fewest, 0] += self.by
        return found


@pytest.fixture
def tiny():
    config = ModelConfig(sensor=SMALL, classes=3, dim=16, hidden=16, blocks=1)
    return randomise(build_model(config, class_names=("a", "b", "c"), sampling=Sampling(length=64))).eval()


def test_what_differs_is_refused_by_the_name_of_its_first_recording(tiny):
    recordings = [(f"number {count}", make_recording(count)) for count in (90, 80, 20, 70, 10)]
    assert _check(tiny, ExportedClassifier(Description.of(tiny), Off(tiny, 30, 5e-5)), recordings) < CLOSE
    for by in (2e-4, np.nan):
        with pytest.raises(Event2VecError, match="differs on number 20: it answers"):
            _check(tiny, ExportedClassifier(Description.of(tiny), Off(tiny, 30, by)), recordings)


@pytest.mark.parametrize("least", [0.0, 0.6])
def test_scores_that_are_not_numbers_name_no_class(tiny, least):
    """In torch as on a device, for one recording and over time."""
    device = ExportedClassifier(Description.of(tiny), Off(tiny, 30, np.nan))
    good, bad = device.predict([make_recording(80), make_recording(20)])
    assert good.label is not None
    assert bad.scores.dtype == np.float32
    broken = build_model(tiny.config, class_names=tiny.class_names, sampling=tiny.sampling)
    next(broken.parameters()).data.fill_(np.nan)
    for answer in (bad, broken.predict(make_recording(20), min_confidence=least)):
        assert (answer.label, answer.name) == (None, "unknown")
        assert "scores that are not numbers" in str(answer.unknown)
        np.testing.assert_allclose(answer.scores, 1 / 3)
    assert set(timeline(broken, make_recording(80), Windows(window=0.01), min_confidence=least).labels) == {-1}


def test_other_facts_than_the_networks_are_refused(tiny):
    """A file is asked as a user would: by what it says of itself."""
    right = ExportedClassifier(Description.of(tiny), Off(tiny, 0, 0))
    _check_description(tiny, right)
    for name, value in (("temperature", 1.5), ("class_names", ("a", "c", "b")), ("sampling", Sampling(length=32))):
        changed: dict[str, Any] = {name: value}
        other = ExportedClassifier(replace(Description.of(tiny), **changed), right.engine)
        with pytest.raises(Event2VecError, match=f"has another {name} than"):
            _check_description(tiny, other)
    recordings = [("long", make_recording(90))]
    with pytest.raises(Event2VecError, match="differs on long"):
        _check(tiny, other, recordings)
    hot = ExportedClassifier(replace(Description.of(tiny), temperature=1.5), right.engine)
    with pytest.raises(Event2VecError, match=r"differs on long.*a logit differs by 0,"):
        _check(tiny, hot, recordings)


def test_what_a_device_cannot_do_is_refused_at_once(tiny, tmp_path):
    with pytest.raises(FileError, match=r"must end in \.xml for the format openvino"):
        export(tiny, tmp_path / "network.onnx", "openvino")
    with pytest.raises(Event2VecError, match="data requires a run"):
        export(tiny, tmp_path / "network.onnx", data=tmp_path)
    tiny.sampling = Sampling(method="density")
    with pytest.raises(Event2VecError, match="a method for comparisons that devices do not have"):
        export(tiny, tmp_path / "network.onnx")


def test_an_old_graph_never_has_new_weights_beside_it(tmp_path):
    """And the verb refuses to replace either file without being asked to."""
    draft, path = tmp_path / "draft/network.xml", tmp_path / "network.xml"
    draft.parent.mkdir()
    draft.write_text("new")
    path.write_text("old")
    with pytest.raises(FileNotFoundError):
        _publish(draft, path)
    assert not path.exists()
    draft.with_suffix(".bin").write_text("weights")
    _publish(draft, path)
    assert (path.read_text(), path.with_suffix(".bin").read_text()) == ("new", "weights")
    path.unlink()
    said = run_verb("export", FOLDER / "network", "--format", "openvino", "--out", path, code=2).err
    assert "network.bin: exists already" in said


@pytest.mark.parametrize("temperature", [1.0, 0.3, 2.5])
def test_scores_are_tempered_as_in_torch(temperature):
    scores = torch.rand(5, 4, generator=torch.Generator().manual_seed(0)).softmax(1)
    scores[0] = torch.tensor([1.0, 0, 0, 0])
    np.testing.assert_allclose(temper_arrays(scores.numpy(), temperature), temper(scores, temperature), atol=1e-6)


ASKED = {"format": 1, "model": {"classes": 2}, "class_names": ["a", "b"]}


def test_files_that_are_no_exported_networks_are_refused_in_one_line(tmp_path):
    path = tmp_path / "network.onnx"
    with pytest.raises(FileError, match="does not exist"):
        load(path)
    path.write_bytes(b"\x08\x07rubbish" * 9)
    with pytest.raises(FileError, match="cannot be read as ONNX") as caught:
        load(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(FileError, match=r"expected \.onnx or \.xml"):
        load(RECORDINGS / "3/evt3.raw")
    for text, problem in (
        ("", "did not write it"),
        ("{", "not JSON"),
        ('{"format": 9}', "has format 9"),
        ('{"format": 1, "model": {"classes": 2}, "class_names": ["a"]}', "has 1 names"),
        (json.dumps(ASKED | {"sampling": {"method": "density"}}), r"reads up to 1,024 events \(density\), exported"),
    ):
        with pytest.raises(FileError, match=problem):
            read_description(path, text)


@shares_files
@pytest.mark.slow
def test_live_windows_are_answered_as_predict_does(exported):
    from test_live import view_of

    device = load(exported / "network.onnx")
    events = make_recording(900, sensor=device.config.sensor)
    read = Answerer(device, device.config.sensor).read(view_of(events))
    assert read is not None
    np.testing.assert_allclose(read.scores, device.scores([events])[0], atol=1e-6)


@shares_files
@pytest.mark.slow
def test_a_file_whose_network_is_not_what_it_describes_is_refused(exported, tmp_path):
    import onnx

    path = tmp_path / "changed.onnx"
    with pytest.raises(Event2VecError, match="threads must be at least 1, got 0"):
        load(exported / "network.onnx", threads=0)
    whole = onnx.load(exported / "network.onnx")
    (entry,) = whole.metadata_props
    facts = json.loads(entry.value)
    entry.value = json.dumps(facts | {"model": facts["model"] | {"classes": 3}, "class_names": ["3", "7", "9"]})
    onnx.save(whole, path)
    with pytest.raises(FileError, match=r"logits have shape \(1, 2\), expected \(1, 3\)"):
        load(path)
    renamed = onnx.load(exported / "network.onnx")
    renamed.graph.input.add().CopyFrom(renamed.graph.input[0])
    renamed.graph.input[-1].name = "polarity"
    onnx.save(renamed, path)
    with pytest.raises(FileError, match="cannot be read as an exported network"):
        load(path)
