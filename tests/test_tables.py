"""Tables of experiments and comparisons: every number recomputed, every column where it belongs, whatever rows say."""

import csv
import html
import json
import statistics
from dataclasses import replace

import pytest

from event2vec.baselines import NETWORKS
from event2vec.documents import EXPERIMENTS
from event2vec.evaluation.accuracy import wilson_interval
from event2vec.evaluation.speed import INCLUDED, Figure, Speed, Throughput
from event2vec.studies.comparison_table import NOTE as COMPARISON_NOTE
from event2vec.studies.comparison_table import PAPER_NOTE, comparison_row, write_comparison
from event2vec.studies.experiment_file import load_experiment
from event2vec.studies.published import PUBLISHED
from event2vec.studies.results import RunResult, Timed
from event2vec.studies.tables import NOTE, Row, RowResult, figure_text, markdown, spread_text, table, write_table

SPEED = Speed(
    preparing=Figure(1.5, 0.25),
    forward=Figure(20.25, 2.5),
    total=Figure(21.75, 2.75),
    inference=Throughput(64, Figure(12345.67, 89.01)),
    training=Throughput(16, Figure(234.56, 7.89)),
)


def row_of(name, paper=None, **settings):
    return Row(name, settings, {"DVS Gesture": "97.57"} if paper is None else paper)


def run_of(*accuracies, seconds=60.0, epochs=4, timed=None, parameters=1234567):
    return RunResult(accuracies, 50, parameters, seconds, epochs, timed)


def result_of(name, *runs, paper=None, **settings):
    return RowResult.of(row_of(name, paper, **settings), runs or (run_of(0.5),))


def cells(path):
    """A table in Markdown as rows by column."""
    lines = [line for line in path.read_text("utf-8").splitlines() if line.startswith("|")]
    heads, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    assert all(len(row) == len(heads) for row in rows), "no row is longer or shorter than the first"
    return [dict(zip(heads, row, strict=True)) for row in rows]


def test_a_row_sums_up_its_seeds():
    runs = (run_of(0.8, 0.9, seconds=30.0, epochs=3), run_of(0.6, 0.6, seconds=90.0, epochs=5))
    found = RowResult.of(row_of("a"), runs)
    assert found.accuracies == pytest.approx((0.85, 0.6)), "one for each seed"
    assert found.accuracy == pytest.approx(0.725)
    assert (found.seconds, found.epochs, found.recordings, found.parameters) == (60.0, (3, 5), 50, 1234567)
    assert found.std_over_seeds == pytest.approx(statistics.stdev([0.85, 0.6]))
    assert found.std_over_draws == pytest.approx((statistics.stdev([0.8, 0.9]) + 0.0) / 2)


def test_a_table_has_the_figures_in_their_units():
    runs = (run_of(0.8, 0.9, seconds=29.6), run_of(0.6, 0.6, seconds=90.0))
    (row,) = table([RowResult.of(row_of("a"), runs)], "mine")
    assert row == {
        "": "a",
        "accuracy on mine (%)": "72.50",
        "95 % interval": wilson_interval(0.725, 50).percent(),
        "± over seeds": f"{100 * statistics.stdev([0.85, 0.6]):.2f}",
        "± over draws": f"{100 * statistics.stdev([0.8, 0.9]) / 2:.2f}",
        "paper, DVS Gesture (%)": "97.57",
        "parameters": "1,234,567",
        "seconds a run": "60",
    }


def test_what_was_timed_has_columns_with_the_number_of_recordings():
    timed = Timed(17, clustering=Figure(3.456, 0.123), speed=SPEED, memory=1234.5)
    row = replace(row_of("a"), paper_ms="17.10 ± 15.56")
    (found,) = table([RowResult.of(row, (run_of(0.5, timed=timed), run_of(0.5)))], "mine")
    assert {name: text for name, text in found.items() if name not in table([result_of("a")], "mine")[0]} == {
        "clustering of 17 recordings here (ms)": "3.46 ± 0.12",
        "paper (ms)": "17.10 ± 15.56",
        "training (recordings/s)": "234.6 ± 7.9",
        "training batch": "16",
        "inference (recordings/s)": "12,345.7 ± 89.0",
        "inference batch": "64",
        "preparing of 17 recordings (ms)": "1.50 ± 0.25",
        "forward of 17 recordings (ms)": "20.25 ± 2.50",
        "total of 17 recordings (ms)": "21.75 ± 2.75",
        "GPU memory (MB)": "-",
        "memory for one (MB)": "1,234",
    }


@pytest.mark.parametrize("first", [0, 1, 2])
def test_rows_with_other_figures_of_the_paper_keep_every_figure_in_its_column(tmp_path, first):
    """An experiment of one's own: the paper has one figure for a row, another for the next, and none for the last."""
    results = [
        result_of("both", paper={"DVS Gesture": "1", "ASL-DVS": "2"}),
        result_of("other", paper={"DVS-Lip": "3"}),
        result_of("none", paper={}),
    ]
    results = results[first:] + results[:first]
    write_table(results, "mine", "Mine", tmp_path / "table")
    with (tmp_path / "table.csv").open(encoding="utf-8") as file:
        in_csv = list(csv.DictReader(file))
    for rows in (table(results, "mine"), cells(tmp_path / "table.md"), in_csv):
        by_name = {row[""]: row for row in rows}
        papers = {name: [row[f"paper, {of} (%)"] for of in ("DVS Gesture", "ASL-DVS", "DVS-Lip")] for name, row in
                  by_name.items()}  # fmt: skip
        assert papers == {"both": ["1", "2", "-"], "other": ["-", "-", "3"], "none": ["-", "-", "-"]}
        assert {row["parameters"] for row in rows} == {"1,234,567"}


def test_rows_that_were_not_timed_are_marked_in_the_columns_of_those_that_were(tmp_path):
    timed = result_of("timed", run_of(0.5, timed=Timed(3, speed=SPEED)))
    for results in ([timed, result_of("plain")], [result_of("plain"), timed]):
        write_table(results, "mine", "Mine", tmp_path / "table")
        by_name = {row[""]: row for row in cells(tmp_path / "table.md")}
        assert by_name["timed"]["training batch"] == "16"
        assert by_name["plain"]["training batch"] == by_name["plain"]["total of 3 recordings (ms)"] == "-"


def test_a_table_says_what_its_deviations_are_and_what_speed_includes_only_where_it_was_measured(tmp_path):
    plain, timed = result_of("a"), result_of("b", run_of(0.5, timed=Timed(3, speed=SPEED)))
    for results, included in (([plain], False), ([plain, timed], True)):
        write_table(results, "mine", "Mine", tmp_path / "table")
        text = (tmp_path / "table.md").read_text("utf-8")
        assert text.startswith("# Mine\n\n| ")
        assert NOTE in text
        assert (INCLUDED in text) == included


def test_the_json_of_a_table_has_all_figures_in_full(tmp_path):
    timed = Timed(3, clustering=Figure(3.25, 0.5), speed=SPEED, memory=12.5)
    first, second = run_of(1 / 3, 2 / 3, seconds=1.25, timed=timed), run_of(0.5, 0.25, seconds=2.5)
    write_table([result_of("a", first, second, **{"model.dim": 16})], "mine", "Mine", tmp_path / "table")
    kept = json.loads((tmp_path / "table.json").read_text())
    assert (kept["title"], kept["data"]) == ("Mine", "mine")
    (row,) = kept["rows"]
    assert row.pop("speed") == SPEED.facts()
    low, high = wilson_interval((0.5 + 0.375) / 2, 50)
    assert row == {
        "name": "a",
        "settings": {"model.dim": 16},
        "accuracy": pytest.approx(0.4375),
        "interval": [pytest.approx(low), pytest.approx(high)],
        "recordings": 50,
        "std_over_seeds": pytest.approx(statistics.stdev([0.5, 0.375])),
        "std_over_draws": pytest.approx((statistics.stdev([1 / 3, 2 / 3]) + statistics.stdev([0.5, 0.25])) / 2),
        "accuracies": [[1 / 3, 2 / 3], [0.5, 0.25]],
        "paper": {"DVS Gesture": "97.57"},
        "parameters": 1234567,
        "seconds": 1.875,
        "epochs": [4, 4],
        "timed_recordings": 3,
        "clustering_ms": [3.25, 0.5],
        "memory_mb": 12.5,
    }


def test_figures_and_spreads_as_text():
    assert figure_text(Figure(1234.567, 8.9), 1) == "1,234.6 ± 8.9"
    assert figure_text(Figure(0.126, 0.0), 2) == "0.13 ± 0.00"
    assert (spread_text(None), spread_text(0.0), spread_text(0.01234)) == ("-", "0.00", "1.23")
    assert markdown([{"a": "1", "b": "2"}]) == ["| a | b |", "|---|---|", "| 1 | 2 |"]


@pytest.mark.parametrize("timed", [None, Timed(2), Timed(7, Figure(1.0, 0.5), SPEED, 3.5), Timed(7, None, SPEED, None)])
def test_a_result_is_read_as_it_was_written(tmp_path, timed):
    result = run_of(0.5, 1 / 3, seconds=12.75, epochs=9, timed=timed)
    result.write(tmp_path / "result.json")
    assert RunResult.read(tmp_path / "result.json") == result


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"name": ""}, "name must be text without a slash, got ''"),
        ({"name": "a/b"}, "name must be text without a slash, got 'a/b'"),
        ({"name": "a\x1b"}, "name must be text without a slash"),
        ({"settings": [1]}, r"settings must be given by their names, got \[1\]"),
        ({"pretrain": 5}, "settings must be given by their names, got 5"),
        ({"engine": "magic"}, "engine must be one of ours, scikit-learn, faiss, got 'magic'"),
        ({"iterations": 0}, "iterations must be from 1 to 10,000, got 0"),
        ({"iterations": 10_001}, "iterations must be from 1 to 10,000, got 10001"),
        ({"iterations": 1.5}, "iterations must be from 1 to 10,000, got 1.5"),
    ],
)
def test_a_row_that_cannot_be_is_refused(changes, problem):
    with pytest.raises(ValueError, match=problem):
        replace(row_of("a"), **changes)


def test_an_experiment_keeps_the_papers_figures_as_they_are_written(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "title: Mine\nspeed: true\npretrain: {folder: nmnist}\n"
        "rows: [{name: a, settings: {model.dim: 16}, paper: {x: 97.50, y: '97.50', z: 75}, iterations: 7, "
        "engine: scikit-learn, paper_ms: 1.0 ± 2.0}]"
    )
    found = load_experiment(str(tmp_path / "mine.yaml"))
    assert (found.title, found.speed, found.pretrain, found.repeats, found.timed) == (
        "Mine",
        True,
        {"folder": "nmnist"},
        10,
        500,
    )
    (row,) = found.rows
    assert (row.settings, row.iterations, row.engine, row.paper_ms) == (
        {"model.dim": 16},
        7,
        "scikit-learn",
        "1.0 ± 2.0",
    )
    assert row.paper == {"x": "97.5", "y": "97.50", "z": "75"}


@pytest.mark.parametrize("name", EXPERIMENTS.names())
def test_the_papers_tables_have_a_title_with_their_number_and_a_figure_for_every_row(name):
    found = load_experiment(name)
    assert found.title.endswith(")")
    assert "(Table " in found.title or "(Figure " in found.title
    assert all(row.paper for row in found.rows)
    assert len({tuple(row.paper) for row in found.rows}) == 1, "of the same data sets"


# Networks compared


def compared(name="event2vec", accuracy=0.5, **changes):
    timed = changes.pop("timed", Timed(3, speed=SPEED, memory=1234.5))
    runs = changes.pop("runs", None) or (run_of(accuracy, accuracy, accuracy, seconds=90.0, timed=timed),)
    settings = {} if name == "event2vec" else {"model.network": name}
    return RowResult.of(Row(name, settings, {}), runs)


def test_a_row_of_a_comparison_has_ours_first_and_the_papers_beside_it():
    runs = (
        run_of(0.8, 0.9, 0.7, seconds=60.0, epochs=3, timed=Timed(3, speed=SPEED, memory=1234.5)),
        run_of(0.6, 0.6, 0.6, seconds=120.0, epochs=5),
    )
    row = comparison_row(compared(runs=runs))
    assert row == {
        "network": "event2vec",
        "method": "Transformer + Event2Vec",
        "accuracy (%)": "70.00",
        "95 % interval": wilson_interval(0.7, 50).percent(),
        "± over seeds": f"{100 * statistics.stdev([0.8, 0.6]):.2f}",
        "± over draws": "5.00",
        "parameters": "1,234,567",
        "epochs": "3 and 5",
        "minutes": "1.50",
        "training (recordings/s)": "234.6 ± 7.9",
        "inference (recordings/s)": "12,345.7 ± 89.0",
        "preparing (ms)": "1.50 ± 0.25",
        "forward (ms)": "20.25 ± 2.50",
        "total (ms)": "21.75 ± 2.75",
        "memory (MB)": "1,234",
        "paper: data set": "DVS Gesture",
        "paper: accuracy (%)": "97.57 ± 1.31",
        "paper: size": "0.52",
        "paper: training (recordings/s)": "1016.19 ± 61.18",
        "paper: inference (recordings/s)": "2900.08 ± 277.30",
        "paper: preparing + forward = total (ms)": "9.92 + 13.51 = 23.43",
        "paper: GPU memory (MB)": "602",
    }


@pytest.mark.parametrize(
    ("gpu", "process", "shown"), [(602.4, None, "602"), (602.4, 9.0, "602"), (None, 9.0, "9"), (None, None, "-")]
)
def test_memory_is_that_of_the_gpu_else_of_the_process(gpu, process, shown):
    timed = Timed(3, speed=replace(SPEED, gpu_memory=gpu), memory=process)
    assert comparison_row(compared(timed=timed))["memory (MB)"] == shown


def test_epochs_are_said_once_where_all_seeds_have_the_same():
    timed = Timed(3, speed=SPEED)
    for counts, shown in (((4, 4, 4), "4"), ((4, 5, 4), "4 and 5"), ((7,), "7")):
        runs = [run_of(0.5, epochs=count, timed=timed) for count in counts]
        assert comparison_row(compared(runs=runs))["epochs"] == shown


def test_a_network_that_the_paper_does_not_know_has_its_name_and_no_figures():
    row = comparison_row(compared("mine"))
    assert row["method"] == "mine"
    assert {text for head, text in row.items() if head.startswith("paper")} == {"-"}


def test_every_compared_network_says_what_the_paper_calls_it():
    assert {"event2vec", *NETWORKS} == PUBLISHED.keys()


@pytest.mark.parametrize("name", [name for name, each in PUBLISHED.items() if each.latency != "-"])
def test_the_papers_latencies_add_up(name):
    preparing, forward, total = (float(part) for part in PUBLISHED[name].latency.replace("=", "+").split("+"))
    assert preparing + forward == pytest.approx(total, abs=0.011)


@pytest.fixture
def drawn(monkeypatch):
    """What pictures of a comparison show, by their files; they take long to draw."""
    pictures = {}

    def draw(dots, axis, path):
        pictures[path.name] = (axis, [(dot.name, dot.value, dot.accuracy, dot.interval, dot.ours) for dot in dots])
        path.with_suffix(".svg").write_text("<svg/>")

    monkeypatch.setattr("event2vec.studies.comparison_table.draw_comparison", draw)
    return pictures


def test_a_comparison_is_written_in_every_form_and_marks_the_best(tmp_path, drawn):
    names = {"event2vec": 0.9, "frame_cnn": 0.9, "max_former": 0.5}
    results = [compared(name, accuracy) for name, accuracy in names.items()]
    rows = [comparison_row(result) for result in results]
    write_comparison(results, "Trained <for> 1 epoch.", tmp_path)
    page = (tmp_path / "table.html").read_text("utf-8")
    assert "<h1>3 networks on 50 test recordings</h1>" in page
    marked = [line.partition("<td>")[2].partition("</td>")[0] for line in page.split("<tr class=best>")[1:]]
    assert marked == ["event2vec", "frame_cnn"], "both of those that are equally good"
    assert "Trained &lt;for&gt; 1 epoch." in page
    assert "Trained <for>" not in page
    assert page.count("<img alt='accuracy against ") == 3
    assert "http" not in page.partition("base64,")[0], "one file that loads nothing"
    assert cells(tmp_path / "table.md") == rows
    with (tmp_path / "table.csv").open(encoding="utf-8") as file:
        assert list(csv.DictReader(file)) == rows
    for text in ((tmp_path / "table.md").read_text("utf-8"), html.unescape(page)):
        assert COMPARISON_NOTE in text
        assert PAPER_NOTE in text
    kept = json.loads((tmp_path / "table.json").read_text())
    assert kept["protocol"] == "Trained <for> 1 epoch."
    assert [row["accuracy"] for row in kept["rows"]] == [pytest.approx(share) for share in names.values()]


def test_pictures_of_a_comparison_have_its_parameters_minutes_and_latency(tmp_path, drawn):
    results = [compared(), compared("frame_cnn", 0.75)]
    write_comparison(results, "", tmp_path)
    for name, axis, value in (
        ("parameters", "parameters", 1234567),
        ("minutes", "minutes of training", 1.5),
        ("latency", "ms for one recording", 21.75),
    ):
        ours, other = (wilson_interval(share, 50) for share in (0.5, 0.75))
        dots = [("event2vec", value, 0.5, ours, True), ("frame_cnn", value, 0.75, other, False)]
        assert drawn[f"accuracy_{name}.png"] == (axis, dots)


def test_one_network_on_one_recording_is_said_as_people_say_it(tmp_path, drawn):
    alone = compared(runs=(RunResult((1.0,), 1, 10, 60.0, 1, Timed(1, speed=SPEED)),))
    write_comparison([alone], "", tmp_path)
    assert (tmp_path / "table.md").read_text("utf-8").startswith("# 1 network on 1 test recording\n")
