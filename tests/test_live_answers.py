"""Live answers: their units, what people read of them, and what a stream hands from one part to the next."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import make_recording
from golden.make import FOLDER
from shell import run
from streams import NETWORK, SENSOR, Clock, Silent, chunk_of

from event2vec import Event2VecError, Sensor, live, load_model
from event2vec.cli.live import QUIET, Lines, line_of
from event2vec.io.recording import Reading
from event2vec.machine.ports import parse_address
from event2vec.streaming import Live
from event2vec.streaming.answers import Answer
from event2vec.streaming.chunk import BACK, Chunk, StreamClock
from event2vec.streaming.dropped import MOST_WINDOWS, answer_recording
from event2vec.streaming.frames import LONGEST, newest_events, pack_frame
from event2vec.streaming.reader import SILENT, Reader
from event2vec.streaming.recorder import Recorder
from event2vec.streaming.ring import Ring
from event2vec.streaming.server import Page, PageServer
from event2vec.streaming.sources import open_source
from event2vec.streaming.windows import check_window

RECORDING = str(FOLDER / "recordings/7/aedat4.aedat4")


@pytest.fixture(scope="module")
def network():
    return load_model(NETWORK)


def answered(**changes):
    facts: dict[str, Any] = {
        "label": 1,
        "name": "wave",
        "confidence": 0.87654321,
        "scores": {"rest": 0.12345679, "wave": 0.87654321},
        "time": 12.3456789,
        "events": 321,
        "rate": 1234567.8,
        "latency": 0.0123456,
        "latency_p50": 0.0101,
        "latency_p95": 0.0206,
        "stages": {"sampling": 0.001, "network": 0.0095, "drawing": 0.0},
        "skipped": 4321,
        "rejected": 5,
        "lost": 6,
    }
    return Answer(**facts | changes)


# What programs and people read


def test_the_facts_of_an_answer_are_in_the_units_of_their_names():
    assert answered(notices=("a", "b"), remarks=("c",)).facts() == {
        "time_s": 12.345679,
        "label": 1,
        "name": "wave",
        "confidence": 0.876543,
        "scores": {"rest": 0.123457, "wave": 0.876543},
        "events": 321,
        "events_per_second": 1234568,
        "latency_ms": 12.346,
        "latency_p50_ms": 10.1,
        "latency_p95_ms": 20.6,
        "stages_ms": {"sampling": 1.0, "network": 9.5, "drawing": 0.0},
        "skipped": 4321,
        "rejected": 5,
        "lost": 6,
        "notices": ["a", "b"],
        "remarks": ["c"],
    }


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {},
            "    12.35 s  wave                  88%     1,234,568 events/s  latency 10/21 ms (p50/p95)  4,321 skipped",
        ),
        (
            {"name": "nothing", "confidence": 0.0, "skipped": 0, "rate": 0.0, "remarks": ("too short",)},
            "    12.35 s  nothing                               0 events/s  latency 10/21 ms (p50/p95)  0 skipped"
            "  unlike training",
        ),
        (
            {"name": "\x1b[2J", "confidence": 1.0, "skipped": 1},
            "    12.35 s  \\x1b[2J              100%     1,234,568 events/s  latency 10/21 ms (p50/p95)  1 skipped",
        ),
    ],
)
def test_a_line_for_people_has_time_answer_rate_latency_and_what_was_skipped(changes, line):
    assert line_of(answered(**changes)) == line


def test_where_lines_stay_there_is_one_for_each_change_and_each_second(monkeypatch, capsys):
    clock = Clock()
    monkeypatch.setattr("event2vec.cli.live.time", clock)
    lines, names = Lines(as_json=False), ["a", "a", "b", "b", "a"]
    for name in names:
        lines.show(answered(name=name))
    assert [line.split()[2] for line in capsys.readouterr().out.splitlines()] == ["a", "b", "a"]
    for _ in range(9):
        clock.sleep(0.25 * QUIET)
        lines.show(answered(name="a"))
    assert len(capsys.readouterr().out.splitlines()) == 1, "after more than a second, again one"
    lines.interrupt()
    assert capsys.readouterr().out == "", "where each answer has its line, none is open"


def test_a_program_gets_every_answer(capsys):
    lines = Lines(as_json=True)
    for _ in range(3):
        lines.show(answered())
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [answered().facts()] * 3


# The verb


class Played:
    """In the place of a stream: some answers, and what the verb asks of it."""

    def __init__(self, answers=(), **changes):
        self.answers, self.closed = answers, 0
        self.window, self.every, self.min_events = 0.25, 0.05, 32
        self.skipped, self.drawing, self.recorder = 0, 0.0, None
        self.reader = SimpleNamespace(failed=False)
        self.source = SimpleNamespace(sensor=SENSOR)
        self.answerer = SimpleNamespace(model=SimpleNamespace(config=SimpleNamespace(sensor=SENSOR)))
        vars(self).update(changes)

    def __iter__(self):
        for answer in self.answers:
            if isinstance(answer, BaseException):
                raise answer
            yield answer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.closed += 1


USUAL = {
    "window": None,
    "every": 0.05,
    "min_events": None,
    "min_confidence": 0.0,
    "speed": 1.0,
    "loop": False,
    "record": None,
    "overwrite": False,
    "sensor": None,
    "columns": None,
    "time_unit": None,
}


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ((), {}),
        (("--window", "0.2"), {"window": 0.2}),
        (("--every", "20"), {"every": 0.02}),
        (("--min-events", "9"), {"min_events": 9}),
        (("--min-confidence", "0.6"), {"min_confidence": 0.6}),
        (("--speed", "2.5"), {"speed": 2.5}),
        (("--loop",), {"loop": True}),
        (("--record", "a.raw", "--overwrite"), {"record": "a.raw", "overwrite": True}),
        (("--sensor", "9x8"), {"sensor": Sensor(9, 8)}),
        (("--columns", "xytp", "--time-unit", "ms"), {"columns": "xytp", "time_unit": "ms"}),
    ],
)
def test_every_option_reaches_the_stream(called, options, changes):
    calls = called("event2vec.streaming.live", Played())
    assert run("live", NETWORK, "camera", *options) == 0
    ((_, source), named) = calls[0]
    assert (source, named) == ("camera", USUAL | changes)


@pytest.mark.parametrize(
    ("stream", "options", "said"),
    [
        (
            {},
            (),
            "Each answer uses the last 0.25 s (the usual length, as the network does not say what it was trained on). "
            "With fewer than 32 events the answer is 'nothing'.",
        ),
        (
            {"min_events": 1},
            ("--window", "1"),
            "Each answer uses the last 0.25 s. With fewer than 1 event the answer is 'nothing'.",
        ),
    ],
)
def test_it_is_said_what_each_answer_is_about(called, stream, options, said, capsys):
    called("event2vec.streaming.live", Played(**stream))
    assert run("live", NETWORK, "camera", *options) == 0
    assert capsys.readouterr().err.splitlines() == [said]


@pytest.mark.parametrize(
    ("skipped", "said"),
    [
        (0, None),
        (1, "1 window skipped: this machine sometimes needs more than 50 ms for one."),
        (2500, "2,500 windows skipped: this machine sometimes needs more than 50 ms for one."),
    ],
)
def test_windows_that_were_skipped_are_summed_up(called, skipped, said, capsys):
    called("event2vec.streaming.live", Played(skipped=skipped))
    assert run("live", NETWORK, "camera") == 0
    assert capsys.readouterr().err.splitlines()[1:] == ([said] if said else [])


@pytest.mark.parametrize(
    ("recorder", "said", "code"),
    [
        ({"recorded": 1, "lost": 0, "problem": None}, ["a.raw: 1 event recorded"], 0),
        (
            {"recorded": 2500, "lost": 1500, "problem": None},
            ["a.raw: 2,500 events recorded; 1,500 were lost: the disk could not keep up"],
            0,
        ),
        (
            {"recorded": 2, "lost": 3, "problem": "a.raw: recording has stopped: full"},
            [
                "a.raw: 2 events recorded; 3 were lost: recording stopped early",
                "event2vec: a.raw: recording has stopped: full",
            ],
            2,
        ),
    ],
)
def test_what_was_recorded_is_complete_before_it_is_summed_up(called, recorder, said, code, capsys):
    stream = Played(recorder=SimpleNamespace(path="a.raw", **recorder))
    called("event2vec.streaming.live", stream)
    assert run("live", NETWORK, "camera") == code
    assert capsys.readouterr().err.splitlines()[1:] == said
    assert stream.closed == 2, "once to complete the file, once at the end"


def test_a_stream_that_could_not_be_read_is_no_success(called):
    called("event2vec.streaming.live", Played(reader=SimpleNamespace(failed=True)))
    assert run("live", NETWORK, "camera") == 2


def test_ctrl_c_ends_with_130_after_what_was_recorded_is_complete_and_said(called, capsys):
    kept = SimpleNamespace(path="a.raw", recorded=5, lost=0, problem=None)
    stream = Played([answered(), KeyboardInterrupt()], recorder=kept, skipped=1)
    called("event2vec.streaming.live", stream)
    assert run("live", NETWORK, "camera") == 130
    first, *others = capsys.readouterr().err.splitlines()
    assert first.startswith("Each answer uses")
    assert others[0] == "a.raw: 5 events recorded"
    assert others[1].startswith("1 window skipped")
    assert others[2] == "event2vec: stopped"
    assert stream.closed >= 1


def test_notices_are_said_once_on_their_own_lines_and_shown_answers_are_timed(called, capsys):
    stream = Played([answered(notices=("the camera is gone", "it is back")), answered()])
    called("event2vec.streaming.live", stream)
    assert run("live", NETWORK, "camera", "--json") == 0
    said = capsys.readouterr()
    assert said.err.splitlines()[1:] == ["event2vec: the camera is gone", "event2vec: it is back"]
    assert len(said.out.splitlines()) == 2
    assert 0 < stream.drawing < 60


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--every", "0.5"), "--every must be from 1 to 60000 milliseconds, got 0.5"),
        (("--every", "60001"), "--every must be from 1 to 60000 milliseconds, got 60001"),
        (("--min-events", "0"), "--min-events: must be at least 1, got 0. See 'event2vec live --help'"),
        (("--min-confidence", "2"), "--min-confidence: must be from 0 to 1, got 2. See 'event2vec live --help'"),
        (
            ("--record", "."),
            "--record: . is a folder, expected the name of a file to write. See 'event2vec live --help'",
        ),
        (("--window", "61"), "window must be from 0.001 to 60 seconds, got 61"),
        (("--speed", "-1"), "--speed must be above 0 and at most 10000, got -1"),
        (("--record", "a.npz"), "a.npz: cannot be recorded: '.npz' is not one of .aedat4, .raw, .dat, .h5, .csv, .txt"),
    ],
)
def test_a_wrong_call_is_one_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("live", NETWORK, RECORDING, *arguments) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"event2vec: {message}\n")


# Sources by their names


@pytest.mark.parametrize(
    ("source", "settings", "message"),
    [
        ("camera", {"how": Reading(sensor=SENSOR)}, "`sensor` is not for cameras: camera names its own. Omit it"),
        ("camera:A1", {"how": Reading(sensor=SENSOR)}, "`sensor` is not for cameras: camera:A1 names its own. Omit it"),
        (
            "camera",
            {"how": Reading(columns="xytp")},
            "`columns` and `time_unit` are for pipes and recordings, not for camera",
        ),
        (
            "udp://:0",
            {"how": Reading(time_unit="ms")},
            "`columns` and `time_unit` are for pipes and recordings, not for udp",
        ),
        ("camera", {"speed": 2.0}, "`speed` and `loop` are for recordings; camera has its own pace"),
        ("-", {"loop": True}, "`speed` and `loop` are for recordings; - has its own pace"),
        ("udp:1", {}, "source must be udp://HOST:PORT, such as udp://127.0.0.1:3333, got 'udp:1'"),
        ("udp://:65536", {}, "source must be udp://HOST:PORT, such as udp://127.0.0.1:3333, got 'udp://:65536'"),
    ],
)
def test_what_would_have_no_effect_on_a_source_is_refused(source, settings, message):
    with pytest.raises(Event2VecError) as wrong:
        open_source(source, SENSOR, **settings)
    assert str(wrong.value).startswith(message)


def test_packets_have_the_sensor_of_the_network_unless_another_is_declared():
    for declared, sensor in ((None, SENSOR), (Sensor(9, 8), Sensor(9, 8))):
        source = open_source("udp://127.0.0.1:0", SENSOR, how=Reading(sensor=declared))
        assert source.sensor == sensor
        source.close()


@pytest.mark.parametrize(
    ("text", "place"),
    [("0.0.0.0:80", ("0.0.0.0", 80)), (":0", ("127.0.0.1", 0)), ("a-b.c:65535", ("a-b.c", 65535))],
)
def test_an_address_is_a_host_and_a_port(text, place):
    assert parse_address(text) == place


@pytest.mark.parametrize("seconds", [0.001, 60.0])
def test_the_shortest_and_the_longest_window_are_allowed(seconds):
    check_window(seconds)
    with pytest.raises(Event2VecError, match=r"window must be from 0\.001 to 60 seconds, got"):
        check_window(seconds * (0.99 if seconds < 1 else 1.01))


@pytest.mark.parametrize("every", [0.0009, 60.1])
def test_answers_come_neither_too_often_nor_too_rarely(network, every):
    with pytest.raises(Event2VecError, match=r"every must be from 0\.001 to 60 seconds, got"):
        Live(network, Silent(), 0.1, every=every)


def test_a_network_that_is_given_and_a_source_of_ones_own_are_used_as_they_are(network):
    source = Silent()
    with live(network, source, window=0.5, every=0.25, min_events=3, min_confidence=0.5) as stream:
        assert (stream.model, stream.source) == (network, source)
        assert (stream.window, stream.every, stream.min_events, stream.min_confidence) == (0.5, 0.25, 3, 0.5)


# The reader


def test_the_rate_is_of_the_last_second(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("event2vec.streaming.reader.time", clock)
    reader = Reader(Silent(), 0.1)
    for count in (100, 20, 3):
        reader._take(chunk_of(make_recording(count)))
        clock.sleep(0.4)
    assert reader.rate == 23, "the first came 1.2 s ago"
    clock.sleep(0.5)
    assert reader.rate == 3
    clock.sleep(5)
    assert reader.rate == 0
    for _ in range(50):
        reader._take(chunk_of(make_recording(1)))
        clock.sleep(0.5)
    assert len(reader._arrivals) <= 4, "what is over is forgotten"


@pytest.mark.parametrize("speed", [1.0, 20.0])
def test_the_clock_of_a_stream_runs_on_at_its_own_speed_while_nothing_moves(speed):
    reader = Reader(Silent(), 0.1)
    assert reader.now(5.0) == 0, "no event has come yet"
    reader.source.speed = speed
    reader._take(replace(chunk_of(make_recording(5), start=1_000_000), happened=100.0))
    newest = reader.newest
    assert newest is not None
    last = newest[0]
    assert reader.now(100.0) == last
    assert reader.now(99.0) == last, "it never goes back"
    assert reader.now(100.5) == last + int(0.5e6 * speed)
    reader.waiting = False
    assert reader.now(100.5) == last, "but not while events wait to be read"


def test_silence_is_said_after_five_seconds_once_and_only_of_a_stream_that_had_begun():
    reader = Reader(Silent(), 0.1)
    reader._tell(SILENT + 1)
    assert list(reader.notices) == [], "it has not begun"
    reader._take(chunk_of(make_recording(5)))
    for silent in (0.0, SILENT, SILENT + 0.1, SILENT + 9, 0.0, 0.0):
        reader._tell(silent)
    assert list(reader.notices) == ["no events for 5 s", "events are coming again"]


def test_notices_that_nobody_hears_take_bounded_memory():
    reader = Reader(Silent(), 0.1)
    for number in range(500):
        reader.source.notices.append(str(number))
        reader._tell(0.0)
    assert list(reader.notices) == [str(number) for number in range(400, 500)]


def test_every_chunk_is_handed_to_the_recorder_once():
    seen: list[Chunk] = []
    reader = Reader(Silent(), 0.1, seen.append)
    chunks = [chunk_of(make_recording(count)) for count in (5, 7)]
    for chunk in chunks:
        reader._take(chunk)
    assert [id(chunk) for chunk in seen] == [id(chunk) for chunk in chunks]


def test_a_sender_falls_back_by_a_second_and_not_by_more():
    for step, restarts in ((BACK, 0), (BACK + 1, 1)):
        stream_clock = StreamClock(64)
        times = stream_clock.follow(np.array([5 * BACK, 5 * BACK - step]))
        assert times.tolist() == [0, 0]
        assert (stream_clock.restarts, stream_clock.late) == (restarts, 1 - restarts)
    assert StreamClock(32, start=77).follow(np.array([9, 10])).tolist() == [77, 78]


def test_a_recording_that_may_replace_a_file_does(tmp_path):
    path = tmp_path / "deep/kept.raw"
    path.parent.mkdir()
    path.write_bytes(b"old")
    with pytest.raises(Event2VecError, match=r"kept\.raw: exists already\. Choose another file, or set `overwrite`"):
        Recorder(path, SENSOR)
    recorder = Recorder(path, SENSOR, overwrite=True)
    recorder(chunk_of(make_recording(9, sensor=SENSOR)))
    recorder.close()
    assert recorder.recorded == 9
    assert path.read_bytes() != b"old"
    with pytest.raises(Event2VecError, match="is a folder, expected the name of a file to record"):
        Recorder(path.parent.rename(tmp_path / "x.raw"), SENSOR)


def test_a_stream_in_which_nothing_came_leaves_no_file(tmp_path):
    recorder = Recorder(tmp_path / "kept.raw", SENSOR)
    recorder.close()
    assert (recorder.recorded, recorder.problem, (tmp_path / "kept.raw").exists()) == (0, None, False)


# The page


def test_a_frame_after_a_pause_has_the_newest_tenth_of_a_second():
    ring = Ring()
    events = make_recording(3000, sensor=SENSOR, duration=1_000_000)
    ring.write(chunk_of(events), 10**7)
    end = events.duration
    for since, first in ((-1, end - LONGEST), (end - 50_000, end - 50_000)):
        x, y, p = newest_events(ring, since, end)
        wanted = (events.t > first).numpy()
        assert (x == events.x.numpy()[wanted]).all()
        assert (y == events.y.numpy()[wanted]).all()
        assert (p == events.p.numpy()[wanted]).all()


@pytest.mark.parametrize("attention", [False, True])
def test_a_frame_can_be_read_back(attention):
    x, y, p = np.array([1, 300, 65535]), np.array([2, 4, 6]), np.array([True, False, True])
    seen = np.array([0, 128, 255], np.uint8)
    frame = pack_frame({"frame": 7}, (x, y, p, *([seen] if attention else [])))
    length = int.from_bytes(frame[:4], "little")
    assert json.loads(frame[4 : 4 + length]) == {"frame": 7, "count": 3, "attention": attention}
    rest = frame[4 + length :]
    assert np.frombuffer(rest[:6], "<u2").tolist() == x.tolist()
    assert np.frombuffer(rest[6:12], "<u2").tolist() == y.tolist()
    assert list(rest[12:15]) == [1, 0, 1]
    assert list(rest[15:]) == (seen.tolist() if attention else [0, 0, 0])


@pytest.fixture(scope="module")
def waiting(network):
    """A stream in which nothing comes."""
    with Live(network, Silent(), 0.3) as stream:
        yield stream


@pytest.mark.parametrize(
    ("wish", "attention", "window", "drawn"),
    [
        ({"drawn": 1}, False, 0.3, True),
        ({"attention": True}, True, 0.3, False),
        ({"attention": 1}, False, 0.3, False),
        ({"window": 0.5}, False, 0.5, False),
        ({"window": 61}, False, 0.3, False),
        ({"window": "0.5"}, False, 0.3, False),
        ({"attention": True, "window": 2, "drawn": 1}, True, 2.0, True),
    ],
)
def test_a_page_can_choose_attention_and_a_window_that_is_allowed(waiting, wish, attention, window, drawn):
    server: Any = SimpleNamespace(stream=waiting)
    waiting.window, page = 0.3, Page()
    page.drawn.clear()
    PageServer._heed(server, wish, page)
    assert (page.attention, server.stream.window, page.drawn.is_set()) == (attention, window, drawn)


@pytest.mark.parametrize("wish", [None, [], "drawn", {"delete": 1}, {"drawn": 1, "x": 2}])
def test_any_other_wish_is_not_understood(wish):
    with pytest.raises(TypeError):
        PageServer._heed(SimpleNamespace(), wish, Page())  # type: ignore[arg-type]


def test_the_page_keeps_the_last_five_notices_and_numbers_its_answers():
    server: Any = SimpleNamespace(_answer=(0, {}), _notices=[])
    for number in range(4):
        PageServer.publish(server, answered(notices=(f"{number} a", f"{number} b")))
    PageServer.publish(server, answered())
    assert server._answer == (5, answered().facts())
    assert server._notices == ["1 b", "2 a", "2 b", "3 a", "3 b"]


@pytest.mark.parametrize(("host", "url"), [("127.0.0.1", "http://127.0.0.1:80"), ("::1", "http://[::1]:80")])
def test_the_address_of_the_page_can_be_typed_into_a_browser(host, url):
    server: Any = SimpleNamespace(host=host, port=80)
    assert PageServer.url.fget(server) == url  # type: ignore[attr-defined]


# Dropped recordings


def test_a_short_recording_is_answered_as_predict_does_best_class_first(network):
    path = Path(RECORDING)
    found = answer_recording(network, "a/b.aedat4", path.read_bytes(), 10.0)
    answer = network.predict(path)
    assert found["verdict"].startswith(f"{answer.name} ({answer.confidence:.0%}), from all of its 0.")
    scores = dict(zip(network.class_names, answer.scores.tolist(), strict=True))
    assert list(found["scores"]) == sorted(scores, key=lambda name: -scores[name])
    assert found["scores"] == pytest.approx(scores, abs=1e-6)


@pytest.mark.parametrize(("window", "over_time"), [(0.25, False), (0.15, True)])
def test_only_a_recording_of_clearly_more_than_a_window_is_answered_over_time(network, window, over_time):
    """It lasts 0.297 s: less than one and a half windows, or more."""
    found = answer_recording(network, "a.npz", (FOLDER / "recordings/3/npz.npz").read_bytes(), window)
    assert ("scores are means over all of them" in found["verdict"]) == over_time
    assert sum(found["scores"].values()) == pytest.approx(1, abs=1e-4)


def test_a_long_recording_has_a_bounded_number_of_windows(network, monkeypatch):
    asked = []

    def note(model, events, windows, progress):
        asked.append(windows)
        raise Event2VecError("enough")

    monkeypatch.setattr("event2vec.streaming.dropped.timeline", note)
    events = make_recording(300, sensor=SENSOR, duration=100_000_000)
    monkeypatch.setattr("event2vec.streaming.dropped.read_events", lambda *_, **__: events)
    for window, stride in ((0.1, events.duration / 1e6 / MOST_WINDOWS), (1.0, 0.5)):
        with pytest.raises(Event2VecError, match="enough"):
            answer_recording(network, "a.npz", b"", window)
        assert (asked[-1].window, asked[-1].min_events) == (window, 32)
        assert asked[-1].stride == pytest.approx(stride)


def test_a_recording_without_events_is_said_by_its_name(network, monkeypatch):
    monkeypatch.setattr("event2vec.streaming.dropped.read_events", lambda *_, **__: make_recording(0))
    with pytest.raises(Event2VecError, match=r"^a\.npz: holds no events, so there is nothing to classify$"):
        answer_recording(network, "a.npz", b"", 0.1)
