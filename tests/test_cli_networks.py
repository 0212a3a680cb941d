"""Verbs that share, convert, probe, draw and compare networks: what each option hands on, and every line they print."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from evaluations import evaluation
from golden.make import FOLDER
from shell import refusal, run

from event2vec import Event2VecError, ModelConfig, Sampling, build_model
from event2vec.cluster import Cluster
from event2vec.evaluation.accuracy import Accuracies
from event2vec.evaluation.probe import ProbeRow
from event2vec.evaluation.speed import Figure, Speed, Throughput
from event2vec.evaluation.sweeps import Point
from event2vec.exporting import Exported
from event2vec.model.exported import SUFFIXES
from event2vec.progress import ShownProgress
from event2vec.studies.compare import Comparison
from event2vec.studies.comparison_table import NOTE as COMPARISON_NOTE
from event2vec.studies.comparison_table import PAPER_NOTE
from event2vec.studies.experiment import Reproduction
from event2vec.studies.gallery import Gallery
from event2vec.studies.report import Report
from event2vec.studies.results import Timed
from event2vec.studies.tables import NOTE as TABLE_NOTE
from event2vec.studies.tables import Row, RowResult
from event2vec.training.push import Pushed

NETWORK = str(FOLDER / "network")
WORKERS = os.cpu_count()
EXPORT, PROBE, PUSH = "event2vec.exporting.export", "event2vec.studies.probe.probe", "event2vec.training.push.push"
COMPARE, SWEEP = "event2vec.studies.compare.compare", "event2vec.studies.compare.compare_sweep"
GALLERY, REPORT = "event2vec.studies.gallery.draw_gallery", "event2vec.studies.report.report"
EXPERIMENT, IMPORT = "event2vec.studies.experiment.experiment", "event2vec.training.authors.import_network"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def refused(capsys, *arguments):
    assert run(*arguments) == 2
    return refusal(*capsys.readouterr())


def handed_on(calls):
    ((given, named),) = calls
    if "progress" in named:
        assert isinstance(named.pop("progress"), ShownProgress)
    return given, named


# probe


def probed(features="event2vec", blocks=0, trained=(0.5, 0.75), logistic=(0.25,)):
    return ProbeRow(features, blocks, Accuracies(trained, 4), Accuracies(logistic, 4))


def test_a_probe_is_a_table_with_both_classifiers_and_their_intervals(called, capsys):
    rows = [probed("raw events", None), probed(), probed(blocks=1), probed(blocks=2, trained=(1.0,))]
    called(PROBE, rows)
    assert run("probe", NETWORK, "--dataset", "digits") == 0
    said = capsys.readouterr()
    heads, *lines = said.out.splitlines()
    assert heads.split("  ")[0] == "accuracy (%), 95 % interval"
    assert heads.split()[-4:] == ["trained", "head", "logistic", "regression"]
    for line, row, name in zip(
        lines, rows, ("raw events", "event2vec, 0 blocks", "event2vec, 1 block", "event2vec, 2 blocks"), strict=True
    ):
        both = [row.trained.percent_with_interval(), row.logistic.percent_with_interval()]
        assert [cell.strip() for cell in line.split("  ") if cell] == [name, *both]
        assert line.index(both[1]) + len(both[1]) == len(heads), "columns are aligned right below their heads"
    assert said.err == "on 4 test recordings of digits\n"


@pytest.mark.parametrize(("data", "name"), [(".", "place"), ("sub/", "sub"), ("../place", "place")])
def test_a_probe_says_the_name_of_its_data(called, tmp_path, monkeypatch, data, name, capsys):
    (tmp_path / "place/sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "place")
    called(PROBE, [ProbeRow("raw events", None, Accuracies((1.0,), 1), Accuracies((1.0,), 1))])
    assert run("probe", NETWORK, "--data", data) == 0
    assert capsys.readouterr().err == f"on 1 test recording of {name}\n"


@pytest.mark.parametrize(
    ("options", "given", "named"),
    [
        ((), (None, "folder", None), {}),
        (("--dataset", "nmnist"), (None, "nmnist", None), {}),
        (("--layers", "0, 2"), (None, "folder", [0, 2]), {}),
        (("--method", "clusters"), (None, "folder", None), {"sampling": Sampling(method="clusters", length=256)}),
        (("--events", "9"), (None, "folder", None), {"sampling": Sampling(length=9)}),
        (("--repeats", "3"), (None, "folder", None), {"repeats": 3}),
        (("--workers", "2"), (None, "folder", None), {"workers": 2}),
        (("--device", "cpu", "--precision", "bf16-mixed"), (None, "folder", None),
         {"device": "cpu", "precision": "bf16-mixed"}),
    ],
)  # fmt: skip
def test_every_option_of_a_probe_reaches_the_library(called, options, given, named):
    calls = called(PROBE, [probed()])
    assert run("probe", NETWORK, *options) == 0
    usual = {"sampling": Sampling(length=256), "repeats": 10, "workers": WORKERS, "device": None, "precision": None}
    assert handed_on(calls) == ((NETWORK, *given), usual | named)


# push


PUSHED = Pushed("hf://anna/g", "https://hub/anna/g", "c0ffee", ("config.json", "README.md"))


def test_what_was_pushed_is_said_with_the_way_to_load_it(called, capsys):
    pytest.importorskip("huggingface_hub", reason="needs pip install 'event2vec[hub]'")
    calls = called(PUSH, PUSHED)
    assert run("push", NETWORK, "anna/g") == 0
    assert capsys.readouterr().err.splitlines() == [
        "2 files pushed to https://hub/anna/g",
        "Load it with: event2vec predict hf://anna/g FILE, or load_model('hf://anna/g') in Python",
    ]
    assert handed_on(calls) == ((NETWORK, "anna/g"), {"private": False, "license_name": None, "message": None})
    calls.clear()
    assert run("push", NETWORK, "hf://anna/g", "--private", "--license", "mit", "--message", "two", "--json") == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == {
        "address": "hf://anna/g",
        "page": "https://hub/anna/g",
        "commit": "c0ffee",
        "files": ["config.json", "README.md"],
    }
    assert said.err == ""
    wanted = {"private": True, "license_name": "mit", "message": "two"}
    assert handed_on(calls) == ((NETWORK, "hf://anna/g"), wanted)


@pytest.mark.parametrize("repo", ["anna", "anna/", "/g", "anna/g@v1", "anna/g/../x", "https://hub/anna/g"])
def test_a_name_that_no_repository_has_is_refused_before_the_network_is_loaded(called, repo, capsys):
    pytest.importorskip("huggingface_hub", reason="needs pip install 'event2vec[hub]'")
    calls = called(PUSH, PUSHED)
    assert refused(capsys, "push", NETWORK, repo) == f"REPO must be OWNER/NAME, got '{repo}'"
    assert calls == []


# import


def imported(classes, kind="classifier"):
    config = ModelConfig(dim=16, hidden=16, blocks=1, pooling=False, classes=max(len(classes), 1))
    if kind == "masked":
        from event2vec.model.masked import MaskedEventModel

        return SimpleNamespace(model=MaskedEventModel(config), assumed=("rho is linear",))
    model = build_model(config, class_names=classes, sampling=Sampling(length=77))
    return SimpleNamespace(model=model, assumed=("rho is linear", "classes are ours"))


@pytest.mark.parametrize(
    ("classes", "named"),
    [
        (("a",), "1 class: a"),
        (tuple("abcde"), "5 classes: a, b, c, d, e"),
        (tuple("abcdef"), "6 classes: a, b, c, d, e, ..."),
    ],
)
def test_an_imported_network_is_said_with_its_classes_and_what_was_assumed(called, classes, named, capsys):
    Path("theirs.ckpt").touch()
    found = imported(classes)
    called(IMPORT, found)
    assert run("import", "theirs.ckpt", "--recipe", "dvs_gesture", "--out", "my net") == 0
    parameters = sum(weights.numel() for weights in found.model.parameters())
    assert capsys.readouterr().err.splitlines() == [
        f"my net: {parameters:,} parameters, {named}",
        "  assumed: rho is linear",
        "  assumed: classes are ours",
        "Use it with: event2vec predict 'my net' RECORDING",
    ]


def test_a_pretrained_network_is_to_be_trained_further(called, capsys):
    Path("theirs.ckpt").touch()
    called(IMPORT, imported((), "masked"))
    assert run("import", "theirs.ckpt", "--recipe", "dvs_lip_pretrain", "--out", "net") == 0
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.endswith(" parameters, pre-trained, without classes")
    assert last == "Use it with: event2vec train RECIPE --init net --model.intensity linear"


def test_a_program_is_told_what_was_imported(called, capsys):
    Path("theirs.ckpt").touch()
    called(IMPORT, imported(("a", "b")))
    assert run("import", "theirs.ckpt", "--recipe", "dvs_gesture", "--out", "net", "--json") == 0
    said = capsys.readouterr()
    facts = json.loads(said.out)
    assert said.err == ""
    assert (facts["out"], facts["kind"], facts["classes"]) == ("net", "classifier", ["a", "b"])
    assert facts["sampling"]["length"] == 77
    assert (facts["model"]["dim"], facts["assumed"]) == (16, ["rho is linear", "classes are ours"])


def test_what_import_cannot_do_is_one_line_and_leaves_what_was_there(called, capsys):
    Path("theirs.ckpt").touch()
    Path("net").mkdir()
    calls = called(IMPORT, imported(("a",)))
    command = ("import", "theirs.ckpt", "--out", "net", "--recipe")
    assert refused(capsys, *command, "digits") == "net: exists already. Choose another --out or add --overwrite"
    assert refused(capsys, *command, "digts", "--overwrite").startswith("unknown recipe 'digts' (did you mean digits?)")
    wanted = "CHECKPOINT: no.ckpt does not exist, expected a checkpoint. See 'event2vec import --help'"
    assert refused(capsys, "import", "no.ckpt", "--recipe", "digits", "--out", "x") == wanted
    wanted = "--classes: no does not exist, expected a prepared store. See 'event2vec import --help'"
    assert refused(capsys, *command, "digits", "--classes", "no") == wanted
    assert calls == []
    assert list(Path("net").iterdir()) == []


# export


def made(**changes):
    facts: dict[str, Any] = {
        "path": Path("a.onnx"),
        "format": "onnx",
        "bytes": 1_234_567,
        "recordings": 5,
        "made_up": False,
    }
    return Exported(**facts | {"largest_difference": 1.234e-6} | changes)


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        (
            {},
            ["a.onnx: 1.23 MB", "It answers 5 test recordings as torch does; logits differ by at most 1.2e-06."],
        ),
        (
            {"recordings": 1, "bytes": 4_000, "largest_difference": 0.0},
            ["a.onnx: 0.00 MB", "It answers 1 test recording as torch does; logits differ by at most 0.0e+00."],
        ),
        (
            {"recordings": 6, "made_up": True},
            [
                "a.onnx: 1.23 MB",
                "It answers 6 made-up recordings as torch does; logits differ by at most 1.2e-06.",
                "event2vec: the network has no test recordings; give some with --data",
            ],
        ),
    ],
)
def test_an_export_says_its_size_and_how_it_was_checked(called, changes, lines, capsys):
    called(EXPORT, made(**changes))
    assert run("export", NETWORK) == 0
    assert capsys.readouterr().err.splitlines() == lines
    assert run("export", NETWORK, "--json") == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == json.loads(json.dumps(made(**changes).facts()))
    assert said.err == ""


@pytest.mark.parametrize("format", SUFFIXES)
def test_a_file_has_the_name_of_the_run_and_the_suffix_of_its_format(called, format):
    calls = called(EXPORT, made())
    options = () if format == "onnx" else ("--format", format)
    assert run("export", NETWORK, *options, "--workers", "2", "--data", ".") == 0
    wanted = {"data": ".", "workers": 2}
    assert handed_on(calls) == ((NETWORK, f"network{SUFFIXES[format]}", format), wanted)


@pytest.mark.parametrize("name", ["network.xml", "network.bin"])
def test_neither_file_of_openvino_is_replaced_unasked(called, name, capsys):
    Path(name).write_text("mine")
    calls = called(EXPORT, made())
    command = ("export", NETWORK, "--format", "openvino")
    assert refused(capsys, *command) == f"{name}: exists already. Choose another --out or add --overwrite"
    assert calls == []
    assert run(*command, "--overwrite") == 0
    assert run(*command, "--out", "other.xml") == 0


# figures, report, demo


def test_every_option_of_figures_reaches_the_library(called, capsys):
    calls = called(GALLERY, Gallery(Path("here"), {"one": 0.1234, "two": 1.0}, None))
    options = ("--out", "x", "--data", ".", "--recordings", "7", "--workers", "2", "--device", "cpu")
    assert run("figures", NETWORK, NETWORK, *options, "--precision", "bf16-mixed") == 0
    named = {"recordings": 7, "data": ".", "workers": 2, "device": "cpu", "precision": "bf16-mixed"}
    assert handed_on(calls) == (([NETWORK, NETWORK], "x"), named)
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "one: neighbouring pixels have a cosine similarity of 0.123",
        "two: neighbouring pixels have a cosine similarity of 1.000",
    ]
    assert said.err == "The figures are in here\n"
    calls.clear()
    assert run("figures", NETWORK) == 0
    named = {"recordings": 3, "data": None, "workers": WORKERS, "device": None, "precision": None}
    assert handed_on(calls) == (([NETWORK], None), named)


@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_figures_that_are_missing_are_no_success(called, as_json, capsys):
    called(GALLERY, Gallery(Path("here"), {}, Event2VecError("the store is gone")))
    assert run("figures", NETWORK, *as_json) == 2
    wanted = ["The figures are in here", "event2vec: some figures could not be drawn: the store is gone"]
    assert capsys.readouterr().err.splitlines() == wanted


def test_every_option_of_a_report_reaches_the_library(called):
    Path("some").mkdir()
    Path("some/run.json").touch()
    calls = called(REPORT, Report(Path("page.html"), evaluation(), {}))
    assert run("report", "some", "--data", ".", "--precision", "bf16-mixed") == 0
    named = {"repeats": 10, "data": ".", "workers": WORKERS, "device": None, "precision": "bf16-mixed"}
    assert handed_on(calls) == (("some", None), named)


def test_a_report_on_one_recording_is_said_in_the_singular(called, capsys):
    Path("some").mkdir()
    Path("some/run.json").touch()
    called(REPORT, Report(Path("page.html"), evaluation(recordings=1, accuracies=(1.0,)), {}))
    assert run("report", "some") == 0
    assert capsys.readouterr().err.startswith("100.0 % of 1 recording (95 % interval ")


@pytest.mark.parametrize(("problems", "code"), [({}, 0), ({"Accuracy": "no"}, 2)])
def test_a_demo_whose_page_lacks_a_section_is_no_success(called, problems, code, capsys):
    kept: list[Any] = []
    called("event2vec.training.train.train", SimpleNamespace(keep_evaluation=kept.append))
    reports = called(REPORT, Report(Path("page.html"), None if problems else evaluation(), problems))
    assert run("demo", "--workers", "1", "--out", "mine") == code
    ((_, named),) = reports
    assert named["workers"] == 1
    assert len(kept) == (0 if problems else 1), "an evaluation that failed is not kept"
    assert "accuracy" in capsys.readouterr().out or problems


# experiment, compare


ROW = {"": "one", "accuracy on digits (%)": "97.50", "95 % interval": "90 to 99"}


def test_every_option_of_an_experiment_reaches_the_library_and_the_table_is_shown(called, capsys):
    calls = called(EXPERIMENT, Reproduction("Kinds (Table 7)", [], [ROW], Path("out")))
    options = ("--epochs", "4", "--seeds", "2", "--out", "o", "--workers", "2", "--device", "cpu")
    more = ("--precision", "bf16-mixed", "--cluster", "auto", "--threads", "3", "--pretrain", "digits")
    assert run("experiment", "attention", "--recipe", "digits", *options, *more) == 0
    given, named = handed_on(calls)
    assert given == ("attention", None)
    assert named == {
        "recipe": "digits",
        "seeds": 2,
        "epochs": 4,
        "init": None,
        "pretrain": "digits",
        "out": "o",
        "workers": 2,
        "device": "cpu",
        "precision": "bf16-mixed",
        "cluster": Cluster.of("auto", 3),
    }
    said = capsys.readouterr()
    title, heads, row, note = said.out.splitlines()
    assert (title, note) == ("Kinds (Table 7)", TABLE_NOTE)
    assert heads.split() == ["accuracy", "on", "digits", "(%)", "95", "%", "interval"]
    assert row.split() == ["one", "97.50", "90", "to", "99"]
    assert said.err == "The table is in out/table.csv, out/table.md and out/table.json\n"


def test_an_experiment_has_every_figure_as_json(called, capsys):
    shared = RowResult(Row("shared", {}, {"DVS Gesture": "97.57"}), (0.9,), 50, ((0.9,),), 1000, 60.0)
    called(EXPERIMENT, Reproduction("Sharing", [shared], [ROW], Path("out")))
    assert run("experiment", "sharing", "--json") == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == {
        "folder": "out",
        "title": "Sharing",
        "rows": [json.loads(json.dumps(shared.facts()))],
    }
    assert said.err.startswith("The table is in")


def test_an_experiment_starts_from_a_network_and_has_three_seeds_unless_told_otherwise(called):
    calls = called(EXPERIMENT, Reproduction("", [], [], Path("out")))
    assert run("experiment", "attention", "--init", NETWORK, "--data", ".") == 0
    given, named = handed_on(calls)
    assert given == ("attention", ".")
    assert (named["init"], named["pretrain"], named["seeds"], named["epochs"], named["cluster"]) == (
        NETWORK,
        None,
        3,
        None,
        None,
    )


ONE = Figure(3.0, 1.0)
SPEED = Speed(ONE, ONE, ONE, Throughput(1, ONE), Throughput(1, ONE))


def test_a_comparison_is_two_tables_with_their_notes(called, capsys):
    ours = RowResult(Row("event2vec", {}, {}), (0.975,), 40, ((0.975,),), 12, 60.0, (1,), Timed(3, speed=SPEED))
    calls = called(COMPARE, Comparison([ours], "Trained for 1 epoch.", Path("out")))
    assert run("compare", "--recipe", "digits", "--networks", "event2vec, frame_cnn", "--seeds", "2") == 0
    said = capsys.readouterr()
    heads, row, protocol, note, title, heads_of_paper, row_of_paper, paper_note = said.out.splitlines()
    assert "paper" not in heads, "ours alone"
    assert heads.split()[:3] == ["network", "accuracy", "(%)"]
    assert row.split()[:2] == ["event2vec", "97.50"]
    assert (protocol, note) == ("Trained for 1 epoch.", COMPARISON_NOTE)
    assert (title, paper_note) == ("Beside the paper", PAPER_NOTE)
    wanted = ["network", "accuracy", "(%)", "parameters", "paper:", "data", "set", "paper:", "accuracy", "(%)"]
    assert heads_of_paper.split()[: len(wanted)] == wanted
    assert row_of_paper.split()[:6] == ["event2vec", "97.50", "12", "DVS", "Gesture", "97.57"]
    files = "table.html, table.csv, table.md, table.json, accuracy_*.png"
    assert said.err == f"Tables and pictures are in out: {files}\n"
    assert run("compare", "--recipe", "digits", "--networks", "event2vec, frame_cnn", "--seeds", "2", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["folder"], facts["protocol"]) == ("out", "Trained for 1 epoch.")
    (figures,) = facts["rows"]
    assert (figures["accuracy"], figures["interval"]) == (0.975, pytest.approx(ours.interval))
    assert figures["paper"]["accuracy"] == "97.57 ± 1.31"
    calls.pop()
    given, named = handed_on(calls)
    assert given == (None, ["event2vec", "frame_cnn"])
    assert named == {
        "seeds": 2,
        "recipe": "digits",
        "minutes": None,
        "epochs": None,
        "out": None,
        "workers": WORKERS,
        "device": None,
        "precision": None,
        "cluster": None,
    }


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        (("--minutes", "0.5"), {"minutes": 0.5}),
        (("--epochs", "3"), {"epochs": 3}),
        (("--out", "o"), {"out": "o"}),
        (("--workers", "2"), {"workers": 2}),
        (("--device", "cpu"), {"device": "cpu"}),
        (("--precision", "32-true"), {"precision": "32-true"}),
        (("--cluster", "auto"), {"cluster": Cluster.of("auto", 1)}),
    ],
)
def test_every_option_of_a_comparison_reaches_table_and_figures(called, options, changes, capsys):
    tables, figures = called(COMPARE, Comparison([], "", Path("out"))), called(SWEEP, {})
    assert run("compare", "--data", ".", *options) == 0
    assert capsys.readouterr().out == "", "another process has the results"
    assert run("compare", "--data", ".", "--figure", "resolution", *options) == 0
    (given, named), (swept, more) = handed_on(tables), handed_on(figures)
    assert (given, swept) == ((".", None), ("resolution", ".", None))
    assert named.pop("seeds") == 1
    assert named == more
    assert {name: named[name] for name in changes} == changes
    assert named["recipe"] == "folder"


def test_a_figure_of_a_comparison_is_a_row_for_each_network_and_value(called, capsys):
    found = {"a": [Point(8, evaluation()), Point(64, evaluation(accuracies=(0.5,)))], "b": [Point(8, evaluation())]}
    calls = called(SWEEP, found)
    assert run("compare", "--recipe", "digits", "--figure", "events", "--values", "64,8") == 0
    assert handed_on(calls)[0] == ("events", None, [64, 8])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["network", "events", "accuracy", "(%)"]
    assert rows[1:] == [["a", "8", "66.67"], ["a", "64", "50.00"], ["b", "8", "66.67"]]
    assert run("compare", "--recipe", "digits", "--figure", "events", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert [(each["network"], each["events"]) for each in facts] == [("a", 8), ("a", 64), ("b", 8)]
    assert facts[1]["accuracy"] == 0.5


SEE = {  # what is wrong with an option's value ends in where to look
    ("compare", "--data", ".", "--minutes", "0"): "--minutes: must be above 0, got 0",
    ("compare", "--data", ".", "--seeds", "0"): "--seeds: must be at least 1, got 0",
    ("compare", "--data", ".", "--figure", "speed"): "--figure: must be one of events, resolution, got 'speed'",
    ("experiment", "attention", "--seeds", "0"): "--seeds: must be at least 1, got 0",
    ("export", NETWORK, "--format", "tflite"): "--format: must be one of onnx, openvino, torch, got 'tflite'",
    ("figures", NETWORK, "--recordings", "-1"): "--recordings: must be at least 0, got -1",
    (
        "probe",
        NETWORK,
        "--method",
        "x",
    ): "--method: must be one of random, clusters, temporal, spatial, density, got 'x'",
    ("demo", "--epochs", "0"): "--epochs: must be at least 1, got 0",
}


@pytest.mark.parametrize("arguments", SEE, ids=lambda arguments: " ".join(arguments[:4]))
def test_a_value_that_does_not_fit_is_one_line_with_where_to_look(arguments, capsys):
    assert refused(capsys, *arguments) == f"{SEE[arguments]}. See 'event2vec {arguments[0]} --help'"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("compare", "--data", ".", "--figure", "events", "--networks", "frame_cnn"),
            "--figure has networks of its own, with one seed; omit --networks and --seeds",
        ),
        (("compare", "--data", ".", "--values", "8"), "--values is for --figure; omit it"),
        (
            ("compare", "--data", ".", "--figure", "events", "--values", "0"),
            "--values takes whole numbers of at least 1, separated by commas, such as 1,2,4, got '0'",
        ),
        (
            ("compare", "--data", ".", "--threads", "2"),
            "--threads is for tasks on a cluster; omit it, or add --cluster",
        ),
        (
            ("experiment", "attention", "--recipe", "nmnist"),
            "--data is required: a prepared store, or the folder with nmnist as downloaded",
        ),
    ],
    ids=lambda value: " ".join(value)[-50:] if isinstance(value, tuple) else "",
)
def test_options_that_do_not_go_together_are_one_line(arguments, message, capsys):
    assert refused(capsys, *arguments) == message
