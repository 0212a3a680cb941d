"""Verbs that judge a network, on the one and the recordings of the repository; and the options that they hand on."""

import json
import shutil

import pytest
from golden.make import FOLDER
from test_golden import RECORDINGS, known

from event2vec import EventStore, load_model, read_events
from event2vec.benchmark import PARTS
from event2vec.benchmark.measurement import Measurement
from event2vec.cli import main
from event2vec.devices import Compute


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
    assert main(["evaluate", network, "--data", store, "--repeats", "2", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["accuracies"] == pytest.approx([right, right])
    assert facts["recordings"] == len(truth)
    assert main(["evaluate", network, "--data", store, "--repeats", "2"]) == 0
    assert f"{100 * right:.2f}" in capsys.readouterr().out


def test_a_probe_finds_what_the_network_has_learnt(network, store, capsys):
    assert (
        main(["probe", network, "--data", store, "--layers", "2", "--events", "256", "--repeats", "1", "--json"]) == 0
    )
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
    assert main(["benchmark", *options]) == 0
    compute = Compute.choose("cpu", "bf16-mixed")
    assert given == {
        "reading": (tmp_path,),
        "data": (),
        "clustering": (tmp_path, compute),
        "attention": (compute, None),
        "model": ("asl_dvs", False, compute, tmp_path),
        "training": (),
        "live": (tmp_path, None),
        "streaming": (tmp_path,),
    }
    assert capsys.readouterr().out.count("1.50") == 4 * len(PARTS), "a row of each part, and of the summary"
