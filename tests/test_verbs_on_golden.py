"""Verbs that judge a network, on the one and the recordings of the repository; and the options that they hand on."""

import json
import shutil

import pytest
from golden.make import FOLDER
from shell import run
from test_golden import RECORDINGS, known

from event2vec import EventStore, load_model, read_events
from event2vec.benchmark import PARTS
from event2vec.benchmark.measurement import Measurement
from event2vec.machine.devices import Compute


@pytest.fixture
def network(tmp_path):
    return str(shutil.copytree(FOLDER / "network", tmp_path / "network"))


@pytest.fixture
def store(tmp_path):
    """The golden recordings; every other one of each digit is for testing."""
    sensor = load_model(FOLDER / "network").config.sensor
    read = [read_events(FOLDER / "recordings" / name, usual=sensor).on_sensor(sensor) for name in RECORDINGS]
    pairs = [(events, "37".index(name[0])) for events, name in zip(read, RECORDINGS, strict=True)]
    splits = [("train", "test")[number % 2] for number in range(len(pairs))]
    made = EventStore.create(tmp_path / "store", pairs, sensor=sensor, classes=["3", "7"], splits=splits)
    return str(made.folder)


def test_an_evaluation_is_the_same_for_programs_and_people(network, store, capsys):
    answers = [int(three < seven) for three, seven in list(known("logits.json").values())[1::2]]
    truth = ["37".index(name[0]) for name in list(RECORDINGS)[1::2]]
    right = sum(answer == label for answer, label in zip(answers, truth, strict=True)) / len(truth)
    assert run("evaluate", network, "--data", store, "--repeats", "2", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["accuracies"] == pytest.approx([right]), "all events are read: another draw would be the same"
    assert facts["recordings"] == len(truth)
    assert run("evaluate", network, "--data", store, "--repeats", "2") == 0
    assert f"{100 * right:.2f}" in capsys.readouterr().out


def test_a_probe_finds_what_the_network_has_learnt(network, store, capsys):
    assert run("probe", network, "--data", store, "--layers", "2", "--events", "256", "--repeats", "1", "--json") == 0
    raw, deepest = json.loads(capsys.readouterr().out)
    assert (raw["features"], deepest["features"], deepest["blocks"]) == ("raw events", "event2vec", 2)
    for kind in ("trained_head", "logistic_regression"):
        assert deepest[kind]["accuracy"] > 0.8, "it tells the two digits apart"


def test_every_part_of_a_benchmark_gets_the_options_that_concern_it(tmp_path, monkeypatch, capsys):
    given = {}

    def pretend(part):
        def measure(*arguments):
            given[part] = arguments
            return [Measurement({"part": part}, {"ours ms": 2.0}, {"ours / limit": 1.5})]

        monkeypatch.setattr(f"event2vec.benchmark.{part}.measure_{part}", measure)

    for part in PARTS:
        pretend(part)
    options = ["--data", str(tmp_path), "--device", "cpu", "--precision", "bf16-mixed", "--recipe", "asl_dvs"]
    assert run("benchmark", *options) == 0
    compute = Compute.choose("cpu", "bf16-mixed")
    assert given == {
        "reading": (tmp_path,),
        "data": (),
        "clustering": (tmp_path, compute),
        "attention": (compute, None),
        "model": ("asl_dvs", False, compute, tmp_path),
        "training": (),
        "live": (tmp_path, None),
        "streaming": (tmp_path, None),
    }
    assert capsys.readouterr().out.count("1.50") == 4 * len(PARTS), "a row of each part, and of the summary"


def test_benchmark_names_a_folder_that_is_missing(tmp_path, capsys):
    assert run("benchmark", "reading", "--data", tmp_path / "missing") == 2
    assert "missing does not exist, expected a folder with recordings" in capsys.readouterr().err


def test_benchmark_runs_all_its_parts_and_compares_with_an_earlier_run(tmp_path, capsys, monkeypatch):
    import event2vec.cli.benchmark as benchmark

    speeds = dict.fromkeys(PARTS, 1.5) | {"model": 2.5}

    def measured(part, **settings):
        return [Measurement({"of": part}, {"left out": None}, {"ours / limit": speeds[part]})]

    monkeypatch.setattr(benchmark, "run_benchmark", measured)
    assert run("benchmark", "--json") == 0
    said = capsys.readouterr()
    rows = json.loads(said.out)
    assert rows == {part: [{"of": part, "left out": None, "ours / limit": speed}] for part, speed in speeds.items()}
    (tmp_path / "before.json").write_text(said.out)
    speeds["model"] = 5.0
    assert run("benchmark", "model", "--compare", tmp_path / "before.json", "--json") == 0
    (change,) = json.loads(capsys.readouterr().out)["changes"]
    assert (change["before"], change["now"], change["now / before"]) == (2.5, 5.0, 2.0)
    assert run("benchmark", "--compare", tmp_path / "before.json") == 0
    assert "highest" in capsys.readouterr().out, "a summary ends the output"

    (tmp_path / "bad.json").write_text("[1]")
    (tmp_path / "other.json").write_text('{"model": {"of": 1}}')
    for name, message in (
        ("bad.json", "is not a JSON object"),
        ("other.json", "was not written by 'event2vec benchmark --json'"),
        ("no.json", "does not exist"),
    ):
        assert run("benchmark", "--compare", tmp_path / name) == 2
        assert message in capsys.readouterr().err
