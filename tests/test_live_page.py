"""The live page in a real browser, on a recording that is played and on UDP packets; and what strangers get from it."""

import http.client
import json
import os
import re
import socket
import struct
import sys
import tempfile
import time
from contextlib import ExitStack
from threading import Event, Thread

import numpy as np
import pytest
from conftest import make_recording
from golden.make import FOLDER
from streams import NETWORK, PATIENCE, SENSOR, chunk_of, columns_of, digits

from event2vec import Event2VecError, load_model, read_events, write_events
from event2vec.cli import main
from event2vec.progress import Progress
from event2vec.streaming import Live, live
from event2vec.streaming.dropped import Limit, answer_recording
from event2vec.streaming.frames import MOST_DRAWN, AttentionViewer, newest_events, pack_frame
from event2vec.streaming.live_page import is_own_host
from event2vec.streaming.packets import encode
from event2vec.streaming.ring import Ring
from event2vec.streaming.server import MOST_PAGES, PageServer

pytestmark = pytest.mark.xdist_group("live_page")  # one process: one browser


class Served:
    """A stream that is answered in a thread of its own, and its page."""

    def __init__(self, stream: Live) -> None:
        self.stream, self.answers, self._stop = stream, 0, Event()
        self.page = PageServer(stream, ":0")
        self.thread = Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        for answer in self.stream:
            self.answers += 1
            self.page.publish(answer)
            if self._stop.is_set():
                break

    def close(self) -> None:
        self._stop.set()
        self.thread.join()
        self.page.close()


@pytest.fixture
def serve():
    made = []

    def start(source, **settings):
        made.append(Served(live(NETWORK, source, every=0.05, min_events=60, window=0.3, **settings)))
        return made[-1]

    yield start
    for served in made:
        served.close()


@pytest.fixture
def played(serve):
    """A 3 for two seconds, a 7 for two seconds, and again."""
    return serve(digits("3", "7", repeats=7), loop=True)


@pytest.fixture
def opened(browser):
    """A function that opens the page; at the end nothing may have gone wrong on it or been fetched from elsewhere."""
    wrong, contexts = [], []

    def open_page(served, **settings):
        contexts.append(browser.new_context(**settings))
        tab = contexts[-1].new_page()
        tab.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        own = (served.page.url, "data:")
        tab.on("request", lambda sent: None if sent.url.startswith(own) else wrong.append(sent.url))
        tab.goto(served.page.url)
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def wait_until(tab, condition):
    """As wait_for_function, which the page's own security policy forbids. A condition is script, or a function here."""
    end = time.monotonic() + PATIENCE
    while not (condition() if callable(condition) else tab.evaluate(condition)):
        assert time.monotonic() < end, condition
        tab.wait_for_timeout(15)


def wait_for_frames(tab, more=5):
    before = int(tab.evaluate("document.body.dataset.frames ?? 0"))
    wait_until(tab, f"Number(document.body.dataset.frames) >= {before + more}")


def wait_for_answer(tab, name):
    wait_until(tab, f"document.getElementById('answer').textContent === {json.dumps(name)}")


def test_frames_arrive_and_the_label_follows_the_class(opened, played):
    tab = opened(played)
    wait_for_frames(tab, 10)
    for name in ("3", "7", "3"):
        wait_for_answer(tab, name)
    assert int(tab.evaluate("document.body.dataset.drawn")) > 100, "events were drawn"
    assert tab.locator(".score").count() == 2
    assert tab.locator(".score.best span").inner_text() in {"3", "7"}
    assert re.fullmatch(r"[\d,]+ a second", tab.locator("#rate").inner_text())
    for stage in ("sampling", "network", "drawing"):
        assert re.fullmatch(r"[\d.,]+ ms", tab.locator(f"[data-stage={stage}]").inner_text())
    assert tab.locator("#skipped").inner_text().replace(",", "").isdigit()


def test_events_of_udp_are_shown_and_answered(opened, serve):
    served, done = serve("udp://127.0.0.1:0"), Event()
    port = int(served.stream.source.name.rpartition(":")[2])
    events = digits("7")
    x, y, t, p = columns_of(events)

    def send():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            started, start = time.monotonic(), 0
            while not done.is_set():
                for part in np.array_split(np.arange(len(t)), 20):
                    for packet in encode(x[part], y[part], p[part], start + t[part]):
                        sender.sendto(packet, ("127.0.0.1", port))
                    time.sleep(max(0.0, started + (start + t[part[-1]]) / 1e6 - time.monotonic()))
                start += events.duration + 1000

    tab = opened(served)
    wait_for_answer(tab, "nothing")
    thread = Thread(target=send)
    thread.start()
    try:
        wait_for_answer(tab, "7")
        wait_for_frames(tab, 10)
        assert int(tab.evaluate("document.body.dataset.drawn")) > 50
    finally:
        done.set()
        thread.join()
    wait_for_answer(tab, "nothing")


def test_a_closed_tab_and_a_second_tab_do_no_harm(opened, played):
    first, second = opened(played), opened(played)
    wait_for_frames(first)
    wait_for_frames(second)
    first.close()
    wait_for_frames(second, 10)
    third = opened(played)
    wait_for_frames(third)
    before = played.answers
    wait_until(third, lambda: played.answers > before + 3)
    wait_until(third, lambda: played.page._pages == 2)


def test_a_page_can_be_paused(opened, played):
    tab = opened(played)
    wait_for_frames(tab)
    tab.locator("#pause").click()
    tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")  # the last one
    frames, answers = tab.evaluate("document.body.dataset.frames"), played.answers
    wait_until(tab, lambda: played.answers > answers + 5)  # the network goes on
    assert tab.evaluate("document.body.dataset.frames") == frames
    tab.locator("#pause").click()
    wait_for_frames(tab)


def test_the_window_can_be_chosen(opened, played):
    tab, other = opened(played), opened(played)
    wait_for_frames(tab)
    tab.locator("#window").fill("0.12")
    tab.locator("#window").press("Enter")
    wait_until(other, "document.getElementById('window').value === '0.12'")
    assert played.stream.window == 0.12
    tab.locator("#window").fill("1000000")
    tab.locator("#window").press("Enter")
    wait_until(tab, "document.getElementById('window').value === '0.12'")


def test_attention_is_shown_on_request(opened, played):
    tab = opened(played)
    wait_for_answer(tab, "3")
    tab.locator("#attention").check()
    wait_for_frames(tab, 3)
    tokens = tab.evaluate("live.light.filter((light) => light > 0).length")
    assert 20 < tokens <= 256
    levels = tab.evaluate("new Set(live.light.filter((light) => light > 0)).size")
    assert levels > 5, "as bright as the network looks at it"
    tab.locator("#attention").uncheck()
    wait_for_frames(tab)


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1200, "light")])
def test_the_page_fits_phone_and_screen_light_and_dark(opened, played, width, scheme):
    tab = opened(played, viewport={"width": width, "height": 800}, color_scheme=scheme)
    wait_for_frames(tab)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    paper = max(map(int, re.findall(r"\d+", tab.evaluate("getComputedStyle(document.body).backgroundColor"))))
    assert paper < 60 if scheme == "dark" else paper > 200


def test_a_dropped_recording_is_answered_and_forgotten(opened, played, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = FOLDER / "recordings/7/aedat4.aedat4"
    tab = opened(played)
    wait_for_frames(tab)
    tab.locator("#file").set_input_files(path)
    wait_until(tab, "document.getElementById('dropped-answer').textContent.startsWith('7')")
    assert "aedat4.aedat4" in tab.locator("#dropped-name").inner_text()
    tab.locator("[data-part=window]").fill("1000")
    tab.locator("[data-part=time]").fill("1000")
    assert tab.locator("#player").get_attribute("data-shown") == "200"
    assert tab.locator("#dropped-scores .score").count() == 2
    assert os.listdir(tmp_path) == [], "nothing is kept"
    wait_for_frames(tab)
    tab.locator("#dismiss").click()
    assert not tab.locator("#dropped").is_visible()


def test_a_long_recording_that_is_dropped_is_answered_over_time(opened, played, tmp_path):
    events = digits("3", "7", repeats=5)
    write_events(tmp_path / "long.npz", events)
    tab = opened(played)
    wait_for_frames(tab)
    tab.locator("#file").set_input_files(tmp_path / "long.npz")
    wait_until(tab, "document.getElementById('dropped-answer').textContent.includes('windows of 0.3 s')")
    said = tab.locator("#dropped-player [data-part=verdict]")
    for place, name in (("250", "3"), ("850", "7")):
        tab.locator("#dropped-player [data-part=time]").fill(place)
        assert said.inner_text().startswith(f"{name} (")
    assert tab.locator("#dropped-scores .score").count() == 2


def test_what_is_no_recording_is_one_line_on_the_page(opened, played, tmp_path):
    tab = opened(played)
    wait_for_frames(tab)
    (tmp_path / "<b>notes.txt").write_text("hello")
    tab.locator("#file").set_input_files(tmp_path / "<b>notes.txt")
    wait_until(tab, "document.getElementById('dropped-answer').textContent.includes('notes.txt')")
    assert "/tmp" not in tab.locator("#dropped-answer").inner_text(), "the server's folders are its own"
    tab.evaluate("live.largest = 3")
    tab.locator("#file").set_input_files(FOLDER / "recordings/7/npz.npz")
    assert "at most 3 are answered" in tab.locator("#dropped-answer").inner_text()


def test_a_recording_dropped_on_a_cluster_of_names_is_shown_safely():
    model = load_model(NETWORK)
    data = (FOLDER / "recordings/3/npz.npz").read_bytes()
    found = answer_recording(model, "../../x\x1b.npz", data, 0.3)
    assert found["verdict"].startswith("3 (")
    assert "\x1b" not in json.dumps(found, ensure_ascii=False)
    with pytest.raises(Event2VecError, match=r"clip\.raw"):
        answer_recording(model, "clip.raw", b"rubbish", 0.3)


# Without a browser


def ask(served, path="/", headers=None, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", served.page.port, timeout=PATIENCE)
    try:
        connection.request(method, path, headers=headers or {})
        response = connection.getresponse()
        return response.status, response.read().decode(), response.headers
    finally:
        connection.close()


UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def test_only_own_requests_are_answered(played):
    port = played.page.port
    status, text, headers = ask(played)
    assert (status, "Event2Vec live" in text) == (200, True)
    assert "http" not in re.sub(r"https?:\"", "", text), "nothing is loaded from elsewhere"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    for host in (f"evil.example:{port}", "127.0.0.1:1", "127.0.0.1", "", f"127.0.0.1.evil.example:{port}"):
        assert ask(played, headers={"Host": host})[0] == 403, host
    for path in ("/etc/passwd", "/live.js", "/?a=1", "/../", "//"):
        assert ask(played, path)[0] == 404, path
    assert ask(played, "/live")[0] == 403, "a stream only for the own page"
    for origin in ("http://evil.example", f"https://127.0.0.1:{port}", "null", f"http://127.0.0.1:{port + 1}"):
        assert ask(played, "/live", {**UPGRADE, "Origin": origin})[0] == 403, origin
    assert ask(played, "/live", {**UPGRADE, "Origin": f"http://127.0.0.1:{port}"})[0] == 101
    assert ask(played, method="POST")[0] in (400, 405)
    assert ask(played, headers={"Long": "x" * 100_000})[0] in (400, 431)
    assert ask(played)[0] == 200


@pytest.mark.parametrize(
    ("host", "bound", "expected"),
    [
        ("localhost:80", "127.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("[::1]:80", "::1", True),
        ("192.168.0.7:80", "0.0.0.0", True),
        ("camera.local:80", "camera.local", True),
        ("camera.local:80", "0.0.0.0", False),
        ("localhost:81", "127.0.0.1", False),
        ("localhost:80:80", "127.0.0.1", False),
        ("", "127.0.0.1", False),
    ],
)
def test_a_host_is_known_by_address_or_by_the_name_that_was_given(host, bound, expected):
    assert is_own_host(host, bound, 80) is expected


def connect(served, path="live"):
    client = pytest.importorskip("websockets.sync.client", reason="needs websockets")
    host = f"127.0.0.1:{served.page.port}"
    return client.connect(f"ws://{host}/{path}", origin=f"http://{host}", max_size=1 << 24)


def test_a_browser_that_does_not_draw_gets_no_further_frame_and_slows_nobody(played):
    with connect(played) as slow, connect(played) as quick:
        assert json.loads(slow.recv(timeout=PATIENCE))["names"] == ["3", "7"]
        assert isinstance(slow.recv(timeout=PATIENCE), bytes)
        with pytest.raises(TimeoutError):
            slow.recv(timeout=0.5)
        quick.recv(timeout=PATIENCE)
        for _ in range(10):
            frame = quick.recv(timeout=PATIENCE)
            quick.send('{"drawn": 1}')
        before, end = played.answers, time.monotonic() + PATIENCE
        while played.answers == before:
            assert time.monotonic() < end, "the stream has stopped"
            time.sleep(0.01)
        (length,) = struct.unpack("<I", frame[:4])
        head = json.loads(frame[4 : 4 + length])
        assert len(frame) == 4 + length + 6 * head["count"]


@pytest.mark.parametrize("rubbish", ["{", "[1]", '{"delete": 1}', "x" * 5000, b"\0" * 10, "[" * 150])
def test_a_page_that_talks_rubbish_is_closed_and_the_others_stay(played, rubbish):
    with connect(played) as bad, connect(played) as good:
        bad.send(rubbish)
        with pytest.raises(Exception, match=r"1008 .* not understood"):
            list(bad)
        good.recv(timeout=PATIENCE)
        assert isinstance(good.recv(timeout=PATIENCE), bytes)


@pytest.mark.parametrize(
    ("said", "pieces", "problem"),
    [
        ("{}", [], "did not say"),
        ('{"name": "a.npz", "size": 1e12}', [], "expected 1 to"),
        ('{"name": "a.npz", "size": 0}', [], "expected 1 to"),
        ('{"name": "a.npz", "size": 10}', [b"x" * 20], "not what the page announced"),
        ('{"name": "a.npz", "size": 10}', ["text"], "not what the page announced"),
        ('{"name": "a.npz", "size": 10}', [b"PK\3\4xx", b"xxxx"], "a.npz"),
    ],
)
def test_a_damaged_upload_is_one_line(played, said, pieces, problem):
    with connect(played, "recording") as page:
        page.send(said)
        for piece in pieces:
            page.send(piece)
        assert problem in json.loads(page.recv(timeout=PATIENCE))["error"]


def test_an_upload_that_never_ends_is_given_up(played, monkeypatch):
    monkeypatch.setattr("event2vec.streaming.server.LONGEST_READING", 0.3)
    with connect(played, "recording") as page:
        page.send('{"name": "a.npz", "size": 10}')
        assert "more than 0.3 seconds" in json.loads(page.recv(timeout=PATIENCE))["error"]


class Endless:
    """In the place of `answer_recording`: it works until it is ended."""

    def __init__(self):
        self.begun, self.ended = Event(), Event()

    def __call__(self, model, name, data, window, progress):
        self.begun.set()
        try:
            while True:
                progress.advance(0)
                time.sleep(0.005)
        finally:
            self.ended.set()


def drop(page, data=b"x"):
    page.send(json.dumps({"name": "a.npz", "size": len(data)}))
    page.send(data)


def test_a_recording_that_takes_too_long_is_ended_before_the_next_begins(played, monkeypatch):
    work, answer = Endless(), "event2vec.streaming.server.answer_recording"
    monkeypatch.setattr("event2vec.streaming.server.LONGEST_READING", 0.3)
    with monkeypatch.context() as patched, connect(played, "recording") as page:
        patched.setattr(answer, work)
        drop(page)
        assert "more than 0.3 seconds" in json.loads(page.recv(timeout=PATIENCE))["error"]
        assert work.ended.is_set()
    monkeypatch.setattr("event2vec.streaming.server.LONGEST_READING", PATIENCE)
    with connect(played, "recording") as page:
        drop(page, (FOLDER / "recordings/3/npz.npz").read_bytes())
        assert "verdict" in json.loads(page.recv(timeout=PATIENCE))


def test_closing_does_not_wait_for_a_recording(played, monkeypatch):
    work = Endless()
    monkeypatch.setattr("event2vec.streaming.server.answer_recording", work)
    with connect(played, "recording") as page:
        drop(page)
        assert work.begun.wait(PATIENCE)
        played.page.close()
    assert work.ended.is_set()


class EndLater(Progress):
    def __init__(self):
        self.seen = list[int]()

    def advance(self, done, note=""):
        self.seen.append(done)
        if done:
            raise TimeoutError


def test_answers_over_time_can_be_ended(tmp_path):
    write_events(tmp_path / "x.npz", digits("3", "7", repeats=3))
    progress = EndLater()
    with pytest.raises(TimeoutError):
        answer_recording(load_model(NETWORK), "x.npz", (tmp_path / "x.npz").read_bytes(), 0.3, progress)
    assert len(progress.seen) == 2, "after reading, and after the first answers"


def test_a_limit_ends_what_is_late_or_given_up():
    limit = Limit(PATIENCE, Event())
    limit.advance(1)
    limit.given_up.set()
    for over in (limit, Limit(0.0, Event())):
        with pytest.raises(TimeoutError):
            over.advance(1)


def test_pages_are_limited(played):
    with ExitStack() as pages:
        for _ in range(MOST_PAGES):
            pages.enter_context(connect(played)).recv(timeout=PATIENCE)
        with pytest.raises(Exception, match="503"):
            pages.enter_context(connect(played))


def test_a_port_in_use_and_a_missing_extra_are_one_line(played, monkeypatch):
    with pytest.raises(Event2VecError, match=f"cannot serve at 127.0.0.1:{played.page.port}: .*in use"):
        PageServer(played.stream, f":{played.page.port}")
    monkeypatch.setitem(sys.modules, "websockets", None)
    with pytest.raises(Event2VecError, match=r"pip install 'event2vec\[live\]'"):
        PageServer(played.stream, ":0")


def test_a_frame_has_the_events_since_the_last_one_thinned_if_many():
    ring, events = Ring(), make_recording(MOST_DRAWN + 500, sensor=SENSOR, duration=50_000)
    ring.write(chunk_of(events), 10**6)
    end = events.duration
    x, _, p = newest_events(ring, end - 1000, end)
    assert len(x) == int((events.t > end - 1000).sum())
    assert (x == events.x[events.t > end - 1000].numpy()).all()
    assert p.dtype == np.bool_
    assert len(newest_events(ring, -1, end)[0]) == MOST_DRAWN
    frame = pack_frame({"frame": 3}, newest_events(ring, end - 100, end))
    assert int.from_bytes(frame[:4], "little") % 4 == 0, "columns begin where numbers of two bytes may"


def test_attention_is_that_of_the_network_on_the_streams_own_pixels():
    model, events = load_model(NETWORK), read_events(FOLDER / "recordings/3/npz.npz", sensor=SENSOR)
    x, y, p, seen = AttentionViewer(model, SENSOR)(events)
    assert (x == events.x.numpy()).all()
    assert (y == events.y.numpy()).all()
    assert (p == events.p.numpy()).all()
    assert seen.max() == 255
    assert len(set(seen.tolist())) > 5


def test_the_verb_serves_the_page_and_ends(capsys):
    assert main(["live", str(NETWORK), str(FOLDER / "recordings/3/npz.npz"), "--serve", ":0"]) == 0
    assert re.search(r"The page: http://127\.0\.0\.1:\d+", capsys.readouterr().err)
