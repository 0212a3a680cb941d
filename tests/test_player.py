"""See a recording: the page with the player in a real browser, animations as they are read back."""

import base64
import html
import json
import os
import re
import shutil

import numpy as np
import pytest
from conftest import assert_same, make_recording
from golden.make import FOLDER
from shell import run

from event2vec import Event2VecError, Events, Sensor, read_events, show, view
from event2vec.player import MOST
from event2vec.player.animation import COLOURS, Animation
from event2vec.player.clip import Clip, Part, Thinner
from event2vec.player.page import PlayerPage, embed_player

pytestmark = pytest.mark.xdist_group("player")  # one process: one browser


@pytest.fixture
def real():
    return next(path for path in sorted((FOLDER / "recordings/3").iterdir()) if path.suffix == ".bin")


def test_the_page_holds_every_event_and_loads_nothing(real, tmp_path):
    events = read_events(real)
    made = view(real, tmp_path / "see.html")
    text = made.path.read_text("utf-8")
    assert (made.recorded, made.shown, made.speed) == (len(events), len(events), None)
    assert f"<h1>{real.name}</h1>" in text
    assert f"{len(events):,} events" in text
    assert not re.search(r"(?:src|href)=(?!'data:)|http|@import|url\(", text)
    (clip,) = json.loads(text.partition("id=clips>")[2].partition("</script>")[0])
    assert clip["recorded"] == len(events)
    assert clip["duration"] == events.duration


def test_a_long_recording_is_thinned_evenly_and_says_so(tmp_path):
    events = make_recording(MOST + 1000)
    made = view(events, tmp_path / "long.html")
    assert (made.shown, made.recorded) == (MOST, MOST + 1000)
    assert show(events).clip.events.t.tolist() == show(events).clip.events.t.tolist(), "the same events each time"


@pytest.mark.parametrize("suffix", [".html", ".gif"])
def test_the_duration_of_a_part_is_its_own(suffix, tmp_path):
    """Its times count from the first event of the whole recording."""
    part = make_recording(300)[100:]
    assert int(part.t[0]) > 0
    made = view(part, tmp_path / f"part{suffix}")
    assert (made.duration, made.recorded) == (part.duration, 200)


def decoded(clip):
    """The columns of a clip as the player's script reads them."""
    kinds = {"x": "<u2", "y": "<u2", "t": "<f8", "p": "u1"}
    columns = clip["columns"]
    return {name: np.frombuffer(base64.b64decode(columns[name]), kind).tolist() for name, kind in kinds.items()}


def test_columns_are_handed_over_in_the_types_that_the_script_reads():
    events = Events.from_arrays(
        [0.4, 299.6, 7.0], [1.0, 2.5, 199.0], [5, 2**40, 2**40 + 1], [1, 0, 1], sensor=(301, 200), rho=[3, 1, 2]
    )
    facts = Clip("mine", events, 70).facts()
    assert decoded(facts) == {"x": [0, 300, 7], "y": [1, 2, 199], "t": [0, 2**40 - 5, 2**40 - 4], "p": [1, 0, 1]}
    assert (facts["width"], facts["height"], facts["duration"]) == (301, 200, 2**40 - 4)
    assert (facts["recorded"], facts["verdict"], facts["right"], facts["answers"]) == (70, "", True, [])
    assert decoded(Clip("mine", events[1:], 2).facts())["t"] == [0, 1], "a part begins at 0"


def test_what_is_said_of_a_recording_goes_with_it():
    attention = np.arange(6, dtype=np.uint8).reshape(2, 3)
    parts = (Part(0, 10, "wave", 2, 0.75), Part(10, 20, "too few events", None))
    facts = Clip("mine", make_recording(3), 3, "wave", False, attention, parts, parts[:1]).facts()
    assert [list(base64.b64decode(row)) for row in facts["columns"]["attention"]] == [[0, 1, 2], [3, 4, 5]]
    assert facts["answers"] == [
        {"start": 0, "stop": 10, "name": "wave", "label": 2, "confidence": 0.75},
        {"start": 10, "stop": 20, "name": "too few events", "label": None, "confidence": None},
    ]
    assert (facts["truth"], facts["right"]) == (facts["answers"][:1], False)
    json.dumps(facts)


@pytest.mark.parametrize(
    ("duration", "words"), [(1500, "1.5 ms"), (9_999_000, "9,999.0 ms"), (10_000_000, "10.00 s"), (4e9, "4,000.00 s")]
)
def test_the_heading_has_the_name_the_count_and_the_duration(duration, words):
    events = Events.from_arrays([1, 2], [1, 2], [0, int(duration)], [1, 0], sensor=(34, 30))
    page = str(PlayerPage(Clip("<b>&\x1b.raw", events, 1_234_567)))
    assert f"<p class=note>1,234,567 events in {words}, 34x30</p>" in page
    assert r"<title>&lt;b&gt;&amp;\x1b.raw</title>" in page
    assert "<b>&" not in page
    answered = PlayerPage(Clip("a", events, 2, "2 of 3 right", answers=(Part(0, 1, "wave", 0),)))
    assert "34x30; 2 of 3 right</p>" in str(answered)


def test_no_name_can_end_the_script_that_holds_it():
    text = embed_player([Clip("</script><script>alert(1)", make_recording(2), 2), Clip("two", make_recording(1), 1)])
    data = text.partition("id=clips>")[2].partition("</script>")[0]
    assert [clip["title"] for clip in json.loads(data)] == ["</script><script>alert(1)", "two"]


@pytest.fixture
def opened(browser):
    """A function that opens a page; at the end nothing may have gone wrong or been fetched from elsewhere."""
    wrong, contexts = [], []

    def open_page(place, **settings):
        contexts.append(browser.new_context(**settings))
        tab = contexts[-1].new_page()
        tab.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("request", lambda sent: None if sent.url.startswith(("file:", "data:")) else wrong.append(sent.url))
        tab.goto(place.as_uri())
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def test_the_player_shows_all_events_of_a_recording_without_a_network(opened, real, tmp_path):
    tab = opened(view(real, tmp_path / "see.html").path)
    assert not tab.locator("[data-part=attention]").is_visible(), "there is no network whose attention to show"
    tab.locator("[data-part=window]").fill("1000")
    tab.locator("[data-part=time]").fill("1000")
    assert int(tab.locator("#player").get_attribute("data-shown")) == len(read_events(real))
    assert tab.locator("[data-part=thinned]").inner_text() == ""


def test_a_thinned_recording_starts_with_a_short_time_window(opened, tmp_path):
    events = make_recording(MOST + 1000, duration=60_000_000)
    tab = opened(view(events, tmp_path / "minute.html").path)
    assert tab.locator("[data-part=thinned]").inner_text() == "Thinned: 400,000 of 401,000 events, picked at random."
    assert tab.locator("[data-part=length]").inner_text() == "50.0 ms", "not 8 % of a minute"
    tab.locator("[data-part=play]").click()
    tab.wait_for_function("Number(document.querySelector('[data-part=time]').value) > 300.5")


@pytest.fixture
def answered(tmp_path):
    events = make_recording(4000, duration=40_000_000)
    end = events.duration
    answers = [
        Part(0, 16_000_000, "left", 0, 0.9),
        Part(16_000_000, 24_000_000, "unknown", None, 0.3),
        Part(24_000_000, end, "</span>right", 1, 0.6),
    ]
    truth = [Part(0, 8_000_000, "left", 0), Part(16_000_000, end, "left", 0)]
    PlayerPage(Clip("long", events, 4000, "12 answers", answers=answers, truth=truth)).write(tmp_path / "long.html")
    return tmp_path / "long.html"


@pytest.mark.parametrize("width", [390, 1200])
def test_a_long_recording_is_played_with_its_answers(opened, answered, width):
    tab = opened(answered, viewport={"width": width, "height": 900})
    said = tab.locator("[data-part=verdict]")
    for time, text, wrong in (
        ("100", "left (90 %)", False),
        ("300", "left (90 %)", False),
        ("500", "unknown (30 %), label left", True),
        ("900", "</span>right (60 %), label left", True),
    ):
        tab.locator("[data-part=time]").fill(time)
        assert said.inner_text() == text
        assert ("wrong" in (said.get_attribute("class") or "")) == wrong
    assert " of 4" in tab.locator("[data-part=clock]").inner_text()
    assert tab.locator("[data-part=clock]").inner_text().endswith(" s"), "not forty thousand milliseconds"
    assert tab.locator("[data-part=answers] span").count() == 3
    assert tab.locator("[data-part=truth] span").count() == 2
    tab.locator("[data-part=answers]").scroll_into_view_if_needed()
    box = tab.locator("[data-part=answers]").bounding_box()
    tab.mouse.click(box["x"] + 0.25 * box["width"], box["y"] + 5)
    assert abs(float(tab.locator("[data-part=time]").input_value()) - 250) < 10, "dragging there moves the time too"
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_a_recording_without_answers_has_no_tracks(opened, real, tmp_path):
    tab = opened(view(real, tmp_path / "see.html").path)
    assert not tab.locator("[data-part=tracks]").is_visible()


def test_chunks_are_thinned_evenly_in_bounded_memory():
    events = make_recording(50_000, duration=10_000_000)
    chunks = [events.select(slice(start, start + 1000)) for start in range(0, len(events), 1000)]
    for most in (700, 5000):
        thinner = Thinner(most)
        held = []
        for chunk, given in zip(chunks, thinner.watch(chunks), strict=True):
            assert given is chunk
            held.append(sum(map(len, thinner._held)))
        assert max(held) <= 2 * most
        assert thinner.recorded == 50_000
        found = thinner.events
        assert most // 2 < len(found) <= most
        assert bool((found.t.diff() >= 0).all())
        quarters = np.histogram(found.t.numpy(), 4, (0, events.duration))[0] / len(found)
        assert np.all(np.abs(quarters - 0.25) < 0.07)
    few = Thinner(60_000)
    assert len(list(few.watch(chunks))) == 50
    assert_same(few.events, events)


def test_a_speed_can_be_chosen(opened, tmp_path):
    tab = opened(view(make_recording(100, duration=1_000_000), tmp_path / "see.html").path)
    tab.locator("[data-part=speed]").select_option("10")
    tab.locator("[data-part=play]").click()
    tab.wait_for_function("document.querySelector('[data-part=time]').value == 1000", timeout=60_000)
    assert tab.locator("[data-part=play]").inner_text() == "Play", "at the end it stops"


@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_fits_phone_and_screen(opened, real, tmp_path, width):
    tab = opened(view(real, tmp_path / "see.html").path, viewport={"width": width, "height": 800}, color_scheme="dark")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    dark = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(map(int, re.findall(r"\d+", dark))) < 60


def test_a_notebook_shows_the_page_in_a_frame(opened, tmp_path):
    events = make_recording(50)
    shown = show(events, "</script><b>mine")
    frame = shown._repr_html_()
    assert html.unescape(frame.partition('srcdoc="')[2].partition('"')[0]) == str(shown)
    (tmp_path / "notebook.html").write_text(f"<!doctype html><link rel=icon href='data:,'>{frame}", "utf-8")
    inner = opened(tmp_path / "notebook.html").frame_locator("iframe")
    inner.locator("[data-part=window]").fill("1000")
    inner.locator("[data-part=time]").fill("1000")
    assert inner.locator("#player").get_attribute("data-shown") == "50"
    assert inner.locator("h1").inner_text() == "</script><b>mine"


def test_frames_hold_the_latest_event_of_each_pixel():
    events = Events.from_arrays(
        [1, 1, 2, 5], [0, 0, 3, 2], [0, 10, 500_000, 1_000_000], [1, 0, 1, 0], sensor=Sensor(6, 4)
    )
    animation = Animation(events)
    frames = list(animation.frames())
    assert len(frames) == len(animation) == 75
    assert animation.speed == pytest.approx(1 / 3)
    assert frames[0].shape == (4 * 80, 6 * 80)
    small = [frame[::80, ::80] for frame in frames]
    assert small[0][0, 1] == 1, "the later of two events, which is darker"
    assert [int(np.count_nonzero(frame)) for frame in (small[0], small[20], small[37], small[-1])] == [1, 0, 1, 1]
    assert small[-1][2, 5] == 1


@pytest.mark.parametrize(("seconds", "expected"), [(0.1, 3.0), (5.0, 5.0), (60.0, 12.0)])
def test_an_animation_lasts_a_bearable_time(seconds, expected):
    animation = Animation(Events.from_arrays([0, 1], [0, 1], [0, int(seconds * 1e6)], [0, 1], sensor=Sensor(2, 2)))
    assert animation.seconds == expected
    assert animation.speed == pytest.approx(seconds / expected)


@pytest.mark.parametrize(
    ("sensor", "shape"), [((481, 2), (2, 481)), ((480, 2), (2, 480)), ((240, 100), (200, 480)), ((3, 160), (480, 9))]
)
def test_small_sensors_are_enlarged_by_a_whole_number_and_never_turned(sensor, shape):
    width, height = sensor
    events = Events.from_arrays([width - 1], [0], [0], [1], sensor=sensor)
    first, *rest = Animation(events).frames()
    assert first.shape == shape
    assert len(rest) == 74, "an instant lasts three seconds"
    assert first[0, -1] == 2
    assert first[-1, 0] == 0
    assert np.count_nonzero(first) == (shape[0] // height) * (shape[1] // width)


def test_every_event_is_in_some_frame_however_long_the_recording():
    """Frames of an hour are further apart than a window of 33 ms."""
    for duration in (10, 3_600_000_000):
        events = Events.from_arrays(
            range(30), [0] * 30, np.linspace(0, duration, 30).astype(int), [1] * 30, sensor="30x1"
        )
        seen = np.max([frame[0] for frame in Animation(events).frames()], axis=0)
        assert (seen[:: len(seen) // 30] > 0).all(), duration


def test_a_gif_reads_back_as_its_frames(real, tmp_path):
    from PIL import Image, ImageSequence

    made = view(real, tmp_path / "see.gif")
    frames = list(Animation(read_events(real)).frames())
    with Image.open(made.path) as image:
        shown = []
        for picture in ImageSequence.Iterator(image):  # equal neighbours are one picture that lasts longer
            shown += [np.asarray(picture.convert("RGB"))] * (picture.info["duration"] // 40)
    assert len(shown) == len(frames)
    assert all((np.array(COLOURS, np.uint8)[frame] == seen).all() for frame, seen in zip(frames, shown, strict=True))


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs ffmpeg")
def test_an_mp4_has_even_sides_and_can_be_opened(tmp_path):
    made = view(make_recording(300, sensor=Sensor(481, 333)), tmp_path / "see.mp4")
    assert made.path.read_bytes()[4:8] == b"ftyp"


def test_what_cannot_be_written_is_one_line(real, tmp_path, monkeypatch):
    with pytest.raises(Event2VecError, match=r"'\.avi' is not one of \.html, \.gif, \.mp4"):
        view(real, tmp_path / "see.avi")
    with pytest.raises(Event2VecError, match="holds no events"):
        view(make_recording(0), tmp_path / "see.html")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Event2VecError, match="mp4 needs the program ffmpeg, which was not found"):
        view(real, tmp_path / "see.mp4")
    broken = tmp_path / "ffmpeg"
    broken.write_text("#!/bin/sh\necho no codec >&2\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(Event2VecError, match="ffmpeg could not write it: no codec"):
        view(real, tmp_path / "see.mp4")
    assert sorted(os.listdir(tmp_path)) == ["ffmpeg"], "nothing is left half written"


def test_the_verb_says_how_fast_its_animation_plays(real, tmp_path, capsys):
    assert run("view", real, "--gif", "--out", tmp_path / "a.gif") == 0
    assert "times the recorded speed" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["a.gif"]
    assert run("view", real, "--out", tmp_path / "a.gif") == 2
    assert "a.gif: exists already. Choose another --out or add --overwrite" in capsys.readouterr().err
    assert run("view", real, "--out", tmp_path / "a.gif", "--overwrite") == 0
