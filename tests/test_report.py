"""The page about a run: whole, by itself, and alive in a real browser."""

import re
import shutil
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_recording
from processes import run_python
from streams import PATIENCE

import event2vec
from event2vec import Event2VecError, Event2VecWarning, EventStore, Sensor, load_recipe
from event2vec.studies.report import report, sections
from event2vec.studies.report.sections import _repeat, _sides
from event2vec.studies.report.study import choose
from event2vec.training.run import Run

pytestmark = pytest.mark.xdist_group("report")  # one process: the run and its page are made once
CLASSES = ["left", "</script><b>right"]
SENSOR = Sensor(20, 16)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two classes of 12 recordings; a network that hardly learnt them."""
    folder = tmp_path_factory.mktemp("report")
    recordings = [(make_recording(150 + number, seed=number, sensor=SENSOR), number % 2) for number in range(24)]
    splits = ["train"] * 16 + ["test"] * 8
    store = EventStore.create(folder / "store", recordings, sensor=SENSOR, classes=CLASSES, splits=splits)
    recipe = load_recipe("digits").with_settings(
        {
            "data.dataset": "folder",
            "sampling.method": "random",
            "sampling.length": 32,
            "model.sensor": "20x16",
            "model.classes": 2,
            "model.dim": 16,
            "model.hidden": 16,
            "training.epochs": 2,
            "training.warmup_epochs": 0,
            "trainer.accelerator": "cpu",
        }
    )
    Run.start(recipe, store, folder / "run", "train")
    return folder / "run"


@pytest.fixture(scope="module")
def made(run):
    return event2vec.report(run, run / "report.html", repeats=2)


@pytest.fixture(scope="module")
def page(made):
    return made.page


@pytest.fixture
def only(monkeypatch):
    """Makes pages with a few sections alone."""

    def choose_sections(*names):
        chosen = {name: sections.SECTIONS[name] for name in names}
        monkeypatch.setattr("event2vec.studies.report.SECTIONS", chosen)

    return choose_sections


def test_a_report_says_where_its_page_is_and_what_is_missing_on_it(made, run):
    assert (made.page, made.problems) == (run / "report.html", {})
    assert made.evaluation is not None
    assert made.evaluation.recordings == 8


def test_the_page_has_all_its_parts_and_needs_nothing_else(page):
    text = page.read_text("utf-8")
    for title in (
        "Watch it read",
        "Data",
        "Training",
        "Accuracy",
        "Confidence",
        "Robustness",
        "What it attends to",
        "Speed",
    ):
        assert re.search(rf"<h2 id='s\d'>{title}", text), title
    assert text.count("<img") == 10, "samples, curves, confusion, reliability, three sweeps, two recordings, embedding"
    assert "http" not in re.sub(r"base64,[^']*", "", text)
    assert not re.search(r"(?:src|href)=(?!'data:|'#)", text), "every picture lies in the page"
    assert "</script><b>" not in text, "names are shown, not obeyed"
    assert "dataset: folder" in text, "the recipe, to reproduce it"
    assert f"event2vec report {page.parent}" in text
    assert text.count(torch.__version__) == 2, "here, and where it was trained"
    interval = r"\(95 % interval \d+\.\d to \d+\.\d %\)"
    assert re.search(rf"Recognises <b>\d+\.\d ± \d+\.\d %</b> {interval} of 8 test", text)
    assert text.count("<th>95 % interval") == 4, "of the classes and of three sweeps"


def test_recordings_are_one_of_each_class_and_the_mistakes(tmp_path):
    recordings = [(make_recording(0 if index == 5 else 9), label) for index, label in enumerate((0, 0, 1, 1, 1, 2, 2))]
    store = EventStore.create(tmp_path / "store", recordings, sensor=Sensor(34, 30), classes=["a", "b", "c"])
    assert choose(store, np.array([0, 1, 0, 1, 0, 2, 2])) == [0, 2, 6, 1, 4], "the empty one is left out"


def test_resolutions_go_from_one_pixel_to_the_sensor(run):
    store = EventStore.open(run.parent / "store")
    assert _sides(store) == [1, 2, 4, 8, 16, 20]


def test_what_is_no_run_is_one_clear_line(run, tmp_path, only):
    with pytest.raises(Event2VecError, match=r"is not a run: it has neither run\.json"):
        report(tmp_path, tmp_path / "report.html")
    shutil.copytree(run, tmp_path / "moved")
    (tmp_path / "moved/run.json").write_text('{"task": "train", "data": "nowhere", "init": null}')
    with pytest.raises(Event2VecError, match="nowhere"):
        report(tmp_path / "moved", tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
    only("Data")
    report(tmp_path / "moved", tmp_path / "report.html", repeats=1, data=str(run.parent / "store"))
    assert (tmp_path / "report.html").read_text("utf-8").count("<img") == 1, "samples of what was named"


def test_the_command_that_repeats_a_run_shows_no_password(tmp_path):
    """Of runs that were made before such addresses were refused: reports are sent to other people."""
    facts = SimpleNamespace(init=None, task="train", environment={})
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("dataset: folder")
    run: Any = SimpleNamespace(folder="runs/a", facts=facts, recipe_file=recipe)
    run.raw_source = "https://anna:secret@host/store?token=secret"
    study: Any = SimpleNamespace(run=run)
    text = _repeat(study)
    assert "https://host/store?..." in text
    assert "secret" not in text


def test_a_section_that_fails_says_so_and_the_others_are_made(run, tmp_path, only, monkeypatch):
    def fail(*_):
        raise MemoryError("no room left")

    only("Data", "Speed on this machine", "How to reproduce it")
    monkeypatch.setattr("event2vec.studies.report.sections.measure_speed", fail)
    with pytest.warns(Event2VecWarning, match="'Speed on this machine' could not be made: no room left"):
        made = report(run, tmp_path / "report.html", repeats=1)
    text = (tmp_path / "report.html").read_text("utf-8")
    assert made.problems == {"Speed on this machine": "no room left"}
    assert "could not be made: no room left" in text
    assert "dataset: folder" in text, "the section after it is there"


def test_a_report_whose_evaluation_fails_has_all_else(run, tmp_path, only, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError

    only("Data", "Training", "Accuracy", "Confidence", "How to reproduce it")
    monkeypatch.setattr("event2vec.studies.report.study.evaluate", fail)
    with pytest.warns(Event2VecWarning, match="'Accuracy' could not be made: RuntimeError"):
        made = report(run, tmp_path / "report.html", repeats=1)
    assert made.problems == {"Accuracy": "RuntimeError"}, "an error without a text has its name"
    assert made.evaluation is None
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "Its accuracy is unknown" in text
    assert text.count("<img") == 2, "all but the confusion matrix and the reliability diagram"
    assert "dataset: folder" in text


def test_an_error_of_any_length_is_a_line_on_the_page(run, tmp_path, monkeypatch):
    def fail(study):
        raise RuntimeError("\x1b[2J" + "long\n" * 10_000)

    monkeypatch.setattr("event2vec.studies.report.SECTIONS", {"Data": fail})
    with pytest.warns(Event2VecWarning):
        problems = report(run, tmp_path / "report.html").problems
    assert len(problems["Data"]) < 250
    assert "\x1b" not in problems["Data"]
    with pytest.raises(Event2VecError, match="is a folder"):
        report(run, tmp_path)


CRASH = """
import os, sys
from pathlib import Path
import event2vec.studies.report as report
sections = {name: report.SECTIONS[name] for name in ("Data", "Training", "Accuracy")}
report.SECTIONS = {**sections, "Speed on this machine": lambda study: os.abort(), "The rest": lambda study: ""}
report.report(Path(sys.argv[1]), Path(sys.argv[2]), repeats=1)
"""


def test_a_process_that_dies_late_leaves_what_it_had_found(run, tmp_path):
    page = tmp_path / "report.html"
    assert run_python("-c", CRASH, run, page).returncode < 0
    text = page.read_text("utf-8")
    assert text.count("<img") == 3
    assert text.count("Not made yet.") == 2


def test_a_report_that_is_stopped_leaves_the_page_of_an_earlier_one(run, tmp_path, monkeypatch):
    def stop(study):
        raise KeyboardInterrupt

    page = tmp_path / "report.html"
    page.write_text("an earlier page")
    monkeypatch.setattr("event2vec.studies.report.SECTIONS", {"Training": sections.SECTIONS["Training"], "Data": stop})
    with pytest.raises(KeyboardInterrupt):
        report(run, page)
    assert page.read_text() == "an earlier page"
    monkeypatch.setattr("event2vec.studies.report.SECTIONS", {"Training": sections.SECTIONS["Training"]})
    report(run, page)
    assert "2 epochs took" in page.read_text("utf-8")


@pytest.fixture
def opened(browser, page):
    """The page, and all that went wrong on it or was fetched from elsewhere."""
    tab, wrong = browser.new_page(), []
    tab.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("request", lambda request: None if request.url.startswith(("file:", "data:")) else wrong.append(request.url))
    tab.goto(page.as_uri())
    yield tab
    assert wrong == []
    tab.close()


def shown(tab):
    """Events in the picture, and the sum of its light."""
    script = """canvas => canvas.getContext('2d', { willReadFrequently: true })
        .getImageData(0, 0, canvas.width, canvas.height).data.reduce((sum, part) => sum + part, 0)"""
    light = tab.eval_on_selector("[data-part=canvas]", script)
    return int(tab.locator("#player").get_attribute("data-shown")), light


def test_the_player_shows_the_events_of_the_time_that_it_is_dragged_to(opened, run):
    events = EventStore.open(run.parent / "store").split("test")[0][0]
    t = events.t.numpy() - int(events.t[0])
    opened.locator("[data-part=window]").fill("100")
    counts = []
    for time in ("100", "450", "1000"):
        opened.locator("[data-part=time]").fill(time)
        now = int(time) / 1000 * t[-1]
        counts.append(shown(opened)[0])
        assert counts[-1] == ((t >= now - 0.1 * t[-1]) & (t <= now)).sum()
    assert len(set(counts)) > 1
    opened.locator("[data-part=window]").fill("1000")
    assert shown(opened)[0] == len(events), "all of it at once"


def test_dragging_over_the_strip_moves_the_time(opened):
    opened.locator("[data-part=strip]").scroll_into_view_if_needed()
    box = opened.locator("[data-part=strip]").bounding_box()
    opened.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 10)
    opened.mouse.down()
    assert abs(float(opened.locator("[data-part=time]").input_value()) - 250) < 10
    opened.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 10)
    opened.mouse.up()
    assert abs(float(opened.locator("[data-part=time]").input_value()) - 750) < 10


def test_it_plays_and_pauses(opened):
    time = opened.locator("[data-part=time]")
    time.fill("0")
    opened.locator("[data-part=speed]").select_option("0.01")  # half a minute: it does not end before it is paused
    opened.locator("[data-part=play]").click()
    opened.wait_for_function("Number(document.querySelector('[data-part=time]').value) > 0", timeout=1000 * PATIENCE)
    opened.locator("[data-part=play]").click()
    paused = time.input_value()
    opened.wait_for_timeout(100)
    assert time.input_value() == paused


def test_attention_is_brightness(opened):
    opened.locator("[data-part=window]").fill("1000")
    opened.locator("[data-part=time]").fill("1000")
    lights = []
    for chosen in ("off", "0", "1"):
        opened.locator("[data-part=attention]").select_option(chosen)
        lights.append(shown(opened)[1])
    assert lights[0] > max(lights[1:]), "without attention all events are as bright as can be"
    assert lights[1] != lights[2], "each block has its own"


def test_another_recording_has_other_events_and_its_own_verdict(opened, run):
    store = EventStore.open(run.parent / "store").split("test")
    opened.locator("[data-part=window]").fill("1000")
    opened.locator("[data-part=clip]").select_option("1")
    opened.locator("[data-part=time]").fill("1000")
    assert shown(opened)[0] == len(store[1][0])
    verdict = opened.locator("[data-part=verdict]")
    wrong = "true class" in verdict.inner_text()
    assert wrong == ("wrong" in (verdict.get_attribute("class") or ""))
