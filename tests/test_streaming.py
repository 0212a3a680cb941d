"""Live: what comes in is what is answered, whatever comes in, and nothing queues up."""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from threading import Thread

import eventcv
import numpy as np
import pytest
from conftest import assert_same, make_recording
from golden.make import FOLDER
from shell import run_verb, run_verbs

import event2vec
from event2vec import Classifier, Event2VecError, Events, Sampling, Sensor, load_model, read_events
from event2vec.cli.live import line_of
from event2vec.data.windows import Windows
from event2vec.model.classifier import build_model
from event2vec.model.config import ModelConfig
from event2vec.model.trained_on import QUANTILES, TrainedOn
from event2vec.streaming import Live, live
from event2vec.streaming.answers import NOTHING, Answerer
from event2vec.streaming.camera_source import CameraSource
from event2vec.streaming.chunk import Chunk, StreamClock
from event2vec.streaming.packets import decode, encode, is_packet
from event2vec.streaming.pipe_source import PipeSource
from event2vec.streaming.reader import Reader
from event2vec.streaming.recorder import FORMATS, Recorder
from event2vec.streaming.recording_source import RecordingSource
from event2vec.streaming.ring import LARGEST, SMALLEST, Ring
from event2vec.streaming.source import Source, StreamEnded
from event2vec.streaming.sources import open_source, parse_address
from event2vec.streaming.udp_source import UdpSource
from event2vec.streaming.windows import LONGEST, fewest_events, trained_window

SENSOR = Sensor(34, 34)
NETWORK = FOLDER / "network"


def chunk_of(events, start=0):
    t = events.t.numpy() + start
    return Chunk.of(events.x.numpy(), events.y.numpy(), t, events.p.numpy(), time.monotonic())


def digits(*names, repeats=1):
    """Recordings of digits, one after the other: a stream whose class changes."""
    parts = [read_events(FOLDER / f"recordings/{name}/npz.npz") for name in names for _ in range(repeats)]
    starts = np.cumsum([0, *(part.duration + 1000 for part in parts)])
    columns = {column: np.concatenate([getattr(part, column).numpy() for part in parts]) for column in ("x", "y", "p")}
    t = np.concatenate([part.t.numpy() + start for part, start in zip(parts, starts, strict=False)])
    return Events.from_arrays(**columns, t=t, sensor=parts[0].sensor)


# The stream's clock


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_times_of_32_bits_go_on_after_71_minutes(size):
    true = np.arange(0, 3 * 2**32, 2**32 // 500)
    clock = StreamClock()
    found = np.concatenate(
        [clock.follow(part.astype(np.uint32)) for part in np.array_split(true + 5, len(true) // size)]
    )
    assert (found == true).all()
    assert (clock.late, clock.restarts) == (0, 0)


def test_late_events_are_counted_and_the_clock_never_goes_back():
    clock = StreamClock()
    assert clock.follow(np.array([100, 300, 200, 400])).tolist() == [0, 200, 200, 300]
    assert clock.follow(np.array([350, 500])).tolist() == [300, 400], "late by a packet"
    assert (clock.late, clock.restarts) == (2, 0)
    assert clock.follow(np.array([], np.int64)).tolist() == []


@pytest.mark.parametrize("bits", [32, 64])
def test_a_sender_that_starts_again_goes_on_where_the_stream_was(bits):
    clock = StreamClock(bits)
    clock.follow(np.array([10, 50_000_000]))
    assert clock.follow(np.array([3, 1003])).tolist() == [49_999_990, 50_000_990]
    assert clock.restarts == 1


# The ring


def test_the_ring_holds_the_newest_window_whatever_the_chunks():
    random, ring, start = np.random.default_rng(0), Ring(), 0
    kept: list[Chunk] = []
    for size in random.integers(1, 30_000, 60):
        part = make_recording(int(size), seed=int(size), sensor=SENSOR, duration=10_000)
        chunk = chunk_of(part, start)
        ring.write(chunk, 50_000)
        start = int(chunk.t[-1])
        kept = [*kept, chunk][-20:]
        view = ring.view().since(start - 50_000)
        t = np.concatenate([one.t for one in kept])
        wanted = t > start - 50_000
        for found, name in zip(view.all(), "xytp", strict=True):
            assert (found == np.concatenate([getattr(one, name) for one in kept])[wanted]).all()
        positions = random.integers(0, len(view), 100)
        assert (view.take(positions)[2] == view.all()[2][positions]).all()
        assert view.intact
    assert len(ring._columns[0]) > SMALLEST, "it grew with the window"


def test_a_view_knows_that_it_was_written_over():
    ring = Ring()
    ring.write(chunk_of(make_recording(1000)), 0)
    view = ring.view()
    for _ in range(2 * SMALLEST // 1000):
        ring.write(chunk_of(make_recording(1000)), 0)
    assert not view.intact
    assert len(ring._columns[0]) == SMALLEST, "without a window to keep it does not grow"


def test_the_ring_is_bounded(monkeypatch):
    monkeypatch.setattr("event2vec.streaming.ring.LARGEST", 2 * SMALLEST)
    ring = Ring()
    for number in range(10):
        ring.write(chunk_of(make_recording(40_000), number * 300_000), 10**9)
    assert len(ring._columns[0]) == 2 * SMALLEST
    assert len(ring.view()) == SMALLEST
    ring.write(chunk_of(make_recording(200_000)), 10**9)
    assert len(ring.view()) == SMALLEST
    assert LARGEST * 13 < 250e6


# Packets and UDP


@pytest.mark.parametrize("timed", [True, False])
def test_packets_are_those_of_eventcv(timed):
    """Both sides, and no byte differs: AEStream's source has the same layout."""
    events = make_recording(500, sensor=Sensor(640, 480))
    rows = np.stack([getattr(events, name).numpy().astype(np.int64) for name in "xytp"], axis=1)
    x, y, t, p = rows.T
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(5)
        sender = eventcv.UdpSender(f"127.0.0.1:{receiver.getsockname()[1]}", timestamps=timed)
        sender.send(eventcv.from_numpy(rows, sensor_size=(640, 480), time_unit="us"))
        theirs = [receiver.recv(65536) for _ in encode(x, y, p, t if timed else None)]
    assert theirs == encode(x, y, p, t if timed else None)
    words = decode(b"".join(theirs), not timed, Sensor(640, 480))
    for found, sent in ((words.x, x), (words.y, y), (words.p, p), *([(words.t, t)] if timed else [])):
        assert (found == sent).all()
    assert timed or words.t is None


def test_what_is_off_the_sensor_or_no_packet_is_found():
    x, y, p = np.array([3, 40, 5]), np.array([3, 3, 50]), np.array([True, False, True])
    (data,) = encode(x, y, p, np.array([1, 2, 3]))
    assert decode(data, False, SENSOR).kept.tolist() == [True, False, False]
    assert is_packet(data)
    for rubbish in (b"", b"abc", data[:12], data + b"x"):
        assert not is_packet(rubbish)


@pytest.fixture
def udp():
    source = UdpSource("127.0.0.1", 0, SENSOR)
    address = source.socket.getsockname()
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    yield source, lambda data: sender.sendto(data, address)
    sender.close()
    source.close()


def read_all(source, count):
    parts: list[Chunk] = []
    end = time.monotonic() + 10
    while sum(len(part) for part in parts) < count and time.monotonic() < end:
        chunk = source.read()
        parts += [chunk] if chunk is not None else []
    return tuple(np.concatenate([getattr(part, name) for part in parts]) for name in "xytp")


def test_udp_gives_what_was_sent(udp):
    source, send = udp
    events = make_recording(1000, sensor=SENSOR)
    x, y, t, p = (getattr(events, name).numpy().astype(np.int64) for name in "xytp")
    for packet in encode(x, y, p, t + 2**32 - 100_000):
        send(packet)
    found = read_all(source, 1000)
    for mine, sent in zip(found, (x, y, t, p), strict=True):
        assert (mine == sent).all(), "also across the overflow of 32 bits"
    assert source.rejected == 0
    assert source.read() is None, "silence is no end"


def test_events_without_times_have_those_of_their_arrival(udp):
    source, send = udp
    (packet,) = encode(np.arange(10), np.arange(10), np.ones(10))
    send(packet)
    first = source.read()
    time.sleep(0.05)
    send(packet)
    second = source.read()
    assert (first.t == 0).all()
    assert 40_000 < second.t[0] < 60_000_000
    assert len(source.notices) == 1
    assert "no times" in source.notices[0]


def test_rubbish_packets_are_counted_and_said_once(udp):
    source, send = udp
    (packet,) = encode(np.arange(10), np.arange(10), np.ones(10), np.arange(10))
    for data in (b"rubbish", b"", packet[:12], bytes(range(256)) * 4, packet):
        send(data)
    x = read_all(source, 10)[0]
    assert x[-10:].tolist() == list(range(10))
    assert source.rejected > 3
    assert len(source.notices) == 1
    assert "will only be counted" in source.notices[0]


def test_a_port_in_use_is_one_line(udp):
    port = udp[0].socket.getsockname()[1]
    with pytest.raises(Event2VecError, match=f"cannot receive at udp://127.0.0.1:{port}: Address already in use"):
        UdpSource("127.0.0.1", port, SENSOR)


# Other sources


def test_a_recording_is_played_at_its_own_pace():
    events = make_recording(500, sensor=SENSOR, duration=200_000)
    source = RecordingSource(events)
    began, parts = time.monotonic(), []
    try:
        while True:
            chunk = source.read()
            if chunk is not None:
                parts.append(chunk)
                assert chunk.t[-1] / 1e6 <= time.monotonic() - began + 0.001, "no event before its time"
    except StreamEnded:
        pass
    assert (np.concatenate([part.t for part in parts]) == events.t.numpy()).all()
    assert events.duration / 1e6 <= time.monotonic() - began
    assert len(parts) > 10


def test_a_recording_can_be_played_faster_and_again():
    events = make_recording(100, sensor=SENSOR, duration=100_000)
    source = RecordingSource(events, speed=20.0, loop=True)
    x, _, t, _ = read_all(source, 350)
    assert (np.diff(t) >= 0).all(), "one loop after the other"
    assert (x[100:200] == x[:100]).all()
    assert t[100] - t[99] == 1000


@pytest.mark.parametrize("loop", [True, False])
def test_events_that_are_far_too_late_are_left_out_and_counted(monkeypatch, loop):
    monkeypatch.setattr("event2vec.streaming.recording_source.LATEST", 0.05)
    events = make_recording(1000, sensor=SENSOR, duration=300_000)
    source = RecordingSource(events, loop=loop)
    source.read()
    time.sleep(0.2 if not loop else 0.7)
    first = read_all(source, 1)[2]
    assert source.lost > 100
    assert first[0] > 150_000
    assert len(first) < 1000
    assert "too fast for this machine" in source.notices[0]
    rest = read_to_end(source, 200)[0] if loop else read_to_end(source)[0]
    assert (np.diff([row[2] for rows in rest for row in rows]) >= 0).all()


def piped(data, **settings):
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    return PipeSource(os.fdopen(reading, "rb"), SENSOR, **settings)


def read_to_end(source, most=10**9):
    """All chunks as rows, and why there are no more."""
    rows: list[list] = []
    try:
        while sum(len(part) for part in rows) < most:
            if (chunk := source.read()) is not None:
                rows.append(list(zip(chunk.x, chunk.y, chunk.t, chunk.p, strict=True)))
        return rows, ""
    except StreamEnded as ended:
        return rows, str(ended)
    finally:
        source.close()


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("100,3,4,1\n250,5,6,0\n", {}),
        ("# by us\n100 3 4 1\n250 5 6 -1\n", {}),
        ("3 4 0.1 1\n5 6 0.25 0\n", {"columns": "xytp", "time_unit": "ms"}),
    ],
)
def test_a_pipe_takes_lines_of_text(text, settings):
    found, ended = read_to_end(piped(text.encode(), **settings))
    assert found == [[(3, 4, 0, True), (5, 6, 150, False)]]
    assert ended == "the pipe was closed"


def test_a_pipe_takes_the_words_of_packets():
    data = b"".join(encode(np.array([3, 5]), np.array([4, 6]), np.array([1, 0]), np.array([2**32 - 1, 9])))
    assert read_to_end(piped(data))[0] == [[(3, 4, 0, True), (5, 6, 10, False)]]


def test_damaged_lines_are_counted_and_the_rest_is_read():
    source = piped(b"100,3,4,1\nSent a total of 3 events\n1,2\n200,99,4,1\nnan,3,4,1\n250,5,6,0\n")
    found, _ = read_to_end(source)
    assert found == [[(3, 4, 0, True), (5, 6, 150, False)]]
    assert source.rejected == 4
    assert len(source.notices) == 1


@pytest.mark.parametrize("data", [b"#!AER-DAT4.0\r\n....", b"\x89HDF\r\n\x1a\n....", b"PK\x03\x04........"])
def test_a_file_in_a_pipe_is_refused_in_one_line(data):
    assert "give its name instead of -" in read_to_end(piped(data))[1]


class FakeCamera:
    """As eventcv's, which no machine of ours has: windows of events, then the cable is pulled."""

    sensor_size = (34, 34)

    def __init__(self, windows):
        self.windows, self.closed = list(windows), False

    def read(self, *, timeout_ms):
        assert timeout_ms <= 100
        if not self.windows:
            raise RuntimeError("device disconnected")
        return self.windows.pop(0)

    def close(self):
        self.closed = True


def stream_of(events, start=0):
    rows = np.stack([getattr(events, name).numpy().astype(np.int64) for name in "xytp"], axis=1)
    rows[:, 2] += start
    return eventcv.from_numpy(rows, sensor_size=(34, 34), time_unit="us")


def test_a_camera_that_is_unplugged_is_said_and_found_again(monkeypatch):
    events = make_recording(50, sensor=SENSOR)
    cameras = [FakeCamera([stream_of(events, 7_000), None]), FakeCamera([stream_of(events, 9_000_000)])]
    opened = []
    monkeypatch.setattr("event2vec.streaming.camera_source.REOPEN", 0.05)
    monkeypatch.setattr(eventcv, "list_cameras", lambda: [{"name": "fake"}])
    monkeypatch.setattr(eventcv, "stream", lambda serial, dt_ms: opened.append(serial) or cameras[len(opened) - 1])
    source = CameraSource("A1")
    assert (read_all(source, 50)[2] == events.t.numpy()).all()
    assert source.read() is None
    assert source.read() is None, "the cable is pulled"
    assert "the camera is gone: device disconnected" in source.notices[0]
    assert cameras[0].closed
    second = read_all(source, 50)
    assert (np.diff(second[2]) >= 0).all()
    assert source.notices[1] == "the camera is back"
    assert opened == ["A1", "A1"]


def test_no_camera_is_one_line():
    with pytest.raises(Event2VecError, match="no event camera was found"):
        open_source("camera", SENSOR)


def test_sources_have_names(tmp_path):
    assert parse_address(":8765", "") == ("127.0.0.1", 8765)
    assert parse_address("[::1]:80", "") == ("::1", 80)
    for wrong in ("8765", "host", "host:99999", "a b:1", ":"):
        with pytest.raises(Event2VecError, match="expected HOST:PORT"):
            parse_address(wrong, "example")
    with pytest.raises(Event2VecError, match="has its own pace"):
        open_source("udp://127.0.0.1:0", SENSOR, speed=2.0)
    with pytest.raises(Event2VecError, match="speed must be above 0"):
        open_source(make_recording(5), SENSOR, speed=0.0)
    with pytest.raises(Event2VecError, match="does not exist"):
        open_source(tmp_path / "missing.raw", SENSOR)


# Recording


@pytest.mark.parametrize("suffix", FORMATS)
def test_what_is_recorded_reads_back(tmp_path, suffix):
    events = make_recording(700, sensor=SENSOR)
    recorder = Recorder(tmp_path / f"kept{suffix}", SENSOR)
    whole = chunk_of(events, 5_000_000_000)
    for start in range(0, 700, 99):
        part = slice(start, start + 99)
        recorder(Chunk(whole.x[part], whole.y[part], whole.t[part], whole.p[part], 0.0))
    recorder.close()
    assert (recorder.recorded, recorder.lost, recorder.problem) == (700, 0, None)
    assert_same(read_events(recorder.path, sensor=SENSOR), events)


def test_a_slow_disk_loses_events_of_the_file_and_never_stops_the_reader(tmp_path, monkeypatch):
    monkeypatch.setattr("event2vec.streaming.recorder.MOST_WAITING", 1000)
    monkeypatch.setattr(Recorder, "_write", lambda self, sink, chunk: time.sleep(0.05))
    recorder = Recorder(tmp_path / "kept.raw", SENSOR)
    began = time.monotonic()
    for _ in range(50):
        recorder(chunk_of(make_recording(500)))
    assert time.monotonic() - began < 2
    assert recorder.lost > 20_000
    recorder.close()


def test_a_recording_that_fails_says_so(tmp_path, small_disk):
    recorder = Recorder(small_disk.folder / "kept.aedat4", SENSOR)
    for _ in range(20):
        recorder(chunk_of(make_recording(200_000)))
        time.sleep(0.02)
    recorder.close()
    assert "recording has stopped" in str(recorder.problem)
    assert recorder.lost > 0


def test_what_cannot_be_recorded_is_refused_first(tmp_path):
    (tmp_path / "there.raw").write_bytes(b"")
    for name, problem in (("a.npz", "is not one of .aedat4"), ("there.raw", "exists already")):
        with pytest.raises(Event2VecError, match=problem):
            live(NETWORK, FOLDER / "recordings/3/npz.npz", record=tmp_path / name)


# Answers


@pytest.fixture(scope="module")
def network():
    return load_model(NETWORK)


class Silent(Source):
    """Events put there beforehand, and nothing more."""

    def __init__(self, sensor=SENSOR):
        super().__init__()
        self.sensor = sensor

    def read(self):
        time.sleep(0.001)
        return None


def view_of(events):
    ring = Ring()
    ring.write(chunk_of(events), 10**9)
    return ring.view()


@pytest.mark.parametrize("count", [40, 256, 5000])
@pytest.mark.parametrize("sensor", [SENSOR, Sensor(80, 60)])
@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_an_answer_is_what_predict_gives(network, monkeypatch, count, sensor, temperature):
    monkeypatch.setattr(network, "temperature", temperature)
    events = make_recording(count, sensor=sensor)
    read = Answerer(network, sensor).read(view_of(events))
    assert read is not None
    np.testing.assert_allclose(read.scores, network.predict(events).scores.numpy(), atol=1e-6)


def clusterer(length=32):
    config = ModelConfig(sensor=SENSOR, classes=3, dim=16, hidden=16, heads=2, blocks=1)
    return build_model(config, sampling=Sampling(method="clusters", length=length))


def test_an_answer_on_clusters_is_what_predict_gives_and_counts_all_events():
    model, events = clusterer(), make_recording(4000, sensor=SENSOR)
    model.temperature = 2.5
    read = Answerer(model, SENSOR).read(view_of(events))
    assert read is not None
    np.testing.assert_allclose(read.scores, model.predict(events).scores.numpy(), atol=1e-6)
    thinned = Answerer(model, SENSOR).read(view_of(make_recording(12_288, sensor=SENSOR)))
    assert thinned is not None
    assert float(thinned.tokens.rho.sum()) == pytest.approx(12_288), "a third was clustered, and stands for all"


def test_too_few_events_are_nothing(network):
    stream = Live(network, Silent(), 0.1, min_events=10)
    chunk = chunk_of(make_recording(9, sensor=SENSOR, duration=1000))
    stream.reader._take(chunk)
    answer = stream._answer(time.monotonic(), None)
    assert (answer.label, answer.name, answer.confidence, answer.events) == (None, NOTHING, 0.0, 9)
    assert set(answer.scores.values()) == {0.0}
    stream.close()


def test_an_answer_that_is_not_sure_enough_is_unknown(network):
    stream = Live(network, Silent(), 0.1, min_confidence=1.0)
    chunk = chunk_of(make_recording(500, sensor=SENSOR, duration=1000))
    stream.reader._take(chunk)
    answer = stream._answer(chunk.happened, None)
    assert (answer.label, answer.name) == (None, "unknown")
    assert answer.confidence == max(answer.scores.values()) > 0
    stream.close()
    with pytest.raises(Event2VecError, match="from 0 to 1"):
        Live(network, Silent(), 0.1, min_confidence=2.0)


def test_a_window_empties_when_nothing_moves(network):
    stream = Live(network, Silent(), 0.2)
    chunk = chunk_of(make_recording(300, sensor=SENSOR, duration=100_000))
    stream.reader._take(chunk)
    assert stream._answer(chunk.happened, None).events == 300
    assert stream._answer(chunk.happened + 0.15, None).events < 300
    later = stream._answer(chunk.happened + 0.5, None)
    assert (later.events, later.name) == (0, NOTHING)
    stream.close()


def test_a_reader_that_is_behind_does_not_make_the_window_empty(network):
    stream = Live(network, Silent(), 0.2)
    now = time.monotonic()
    stream.reader._take(replace(chunk_of(make_recording(300, sensor=SENSOR, duration=100_000)), happened=now - 5))
    stream.reader.waiting = False
    answer = stream._answer(now, None)
    assert answer.events == 300
    assert answer.latency > 4, "and the answer says how late it is"
    stream.close()


def test_the_label_follows_the_class_of_the_stream(network):
    """Step by step, without a clock: every 20 ms of the stream an answer on the newest 300 ms."""
    stream, events = Live(network, Silent(), 0.3, min_events=60), digits("3", "7", "3", repeats=2)
    answers = []
    for start in range(0, events.duration, 20_000):
        part = chunk_of(events.select((events.t >= start) & (events.t < start + 20_000)))
        if len(part):
            stream.reader._take(part)
            answers.append(stream._answer(part.happened, None))
    firm = [answer.name for answer in answers if answer.confidence > 0.9]
    assert [name for name, before in zip(firm, [None, *firm], strict=False) if name != before] == ["3", "7", "3"]
    assert answers[0].name == NOTHING
    stream.close()


def test_a_recording_is_answered_to_its_end(network):
    answers = list(live(network, digits("7", repeats=2), window=0.3, every=0.02, min_events=60))
    assert answers[-1].notices[-1] == "the recording has ended"
    assert answers[-1].name == "7", "its last window, however late"
    assert all(answer.stages["network"] > 0 for answer in answers if answer.label is not None)
    assert min(answer.latency for answer in answers if answer.label is not None) > 0


def test_windows_that_cannot_be_answered_in_time_are_skipped_and_counted(network):
    stream = live(network, digits("3", repeats=3), every=0.01)
    answers = []
    for answer in stream:
        answers.append(answer)
        time.sleep(0.1)
    assert answers[-1].skipped >= 8 * len(answers[1:-1])
    times = np.array([answer.time for answer in answers])
    assert (np.diff(times)[:-1] > 0.05).all(), "each is about the newest window, and none queues up"


def test_a_loop_that_is_left_ends_the_stream_and_completes_the_file(network, tmp_path):
    recorder = Recorder(tmp_path / "kept.aedat4", SENSOR)
    stream = Live(network, RecordingSource(digits("3"), loop=True), 0.3, 0.02, recorder=recorder)
    for answer in stream:
        if answer.time > 0.4:
            break
    stream.close()
    assert not stream.reader.is_alive()
    kept = read_events(tmp_path / "kept.aedat4")
    assert len(kept) == recorder.recorded > 200
    assert (kept.x[:200] == digits("3").x).all()


def test_a_window_can_be_changed_while_it_runs(network):
    stream = live(network, digits("3", repeats=3), every=0.02)
    counts = []
    for answer in stream:
        counts.append(answer.events)
        if answer.time > 0.5:
            stream.window = 0.05
    assert counts[-2] < 0.5 * max(counts)
    with pytest.raises(Event2VecError, match="--window must be"):
        stream.window = 1e9


def test_a_stream_that_stops_is_said_and_one_that_returns_too(monkeypatch):
    monkeypatch.setattr("event2vec.streaming.reader.SILENT", 0.05)

    class Halting(Silent):
        """A chunk, a pause, a chunk, the end."""

        reads = 0

        def read(self):
            self.reads += 1
            time.sleep(0.01)
            if self.reads > 30:
                raise StreamEnded("over")
            return chunk_of(make_recording(5)) if self.reads in (1, 30) else None

    reader = Reader(Halting(), 0.1)
    reader.start()
    reader.join(5)
    assert list(reader.notices) == ["no events for 0.05 s", "events are coming again"]
    assert reader.ended == "over"


def test_a_source_that_fails_ends_with_one_line():
    class Broken(Silent):
        def read(self):
            raise RuntimeError("\x1b[2Jbroken\n" * 100)

    reader = Reader(Broken(), 0.1)
    reader.start()
    reader.join(5)
    ended = str(reader.ended)
    assert ended.startswith("the stream cannot be read: ")
    assert len(ended) < 200
    assert "\x1b" not in ended


def trained(windows=None, durations=(70_000, 80_000, 90_000)):
    model = clusterer()
    model.windows = windows
    seconds = np.array(durations) / 1e6
    columns = seconds, np.full(len(seconds), 5000.0), 5000 / seconds
    model.trained_on = TrainedOn(len(seconds), *(tuple(np.quantile(column, QUANTILES)) for column in columns))
    return model


def test_the_window_is_that_of_the_training_which_the_network_keeps():
    assert trained_window(trained(Windows(window=0.12, min_events=40))).seconds == 0.12
    assert fewest_events(trained(Windows(window=0.12, min_events=40))) == 40
    found = trained_window(trained(Windows(window_events=500)))
    assert found.seconds == pytest.approx(0.08)
    assert found.reason == "the median duration of its training recordings"
    assert fewest_events(trained()) == 500, "where predict finds too few events"
    assert trained_window(trained(durations=(9e8,))).seconds == LONGEST
    alone = load_model(NETWORK)
    assert (trained_window(alone).seconds, fewest_events(alone)) == (0.3, alone.sampling.length // 8)
    with live(trained(Windows(window=0.12)), Silent()) as stream:
        assert stream.window == 0.12


def test_a_window_far_from_the_training_is_said_with_the_answer():
    stream = Live(trained(), Silent(), 0.1)
    for seed, (count, remarks) in enumerate([(5000, ()), (20_000, ("20,000 events, in training 5,000 to 5,000",))]):
        chunk = chunk_of(make_recording(count, sensor=SENSOR, duration=80_000, seed=seed), start=seed * 10**6)
        stream.reader._take(chunk)
        answer = stream._answer(chunk.happened, None)
        assert answer.remarks[: len(remarks)] == remarks
        assert bool(answer.remarks) == bool(remarks)
        assert ("far from training" in line_of(answer)) == bool(remarks)
    stream.close()


def test_live_is_public():
    assert event2vec.live is live
    assert isinstance(load_model(NETWORK), Classifier)


# The command line


def test_the_verb_plays_a_recording_and_ends(tmp_path):
    recording = FOLDER / "recordings/7/aedat4.aedat4"
    lines, said, *wrong = run_verbs(
        ("live", NETWORK, recording, "--every", "20", "--json", "--record", "kept.raw"),
        ("live", NETWORK, recording, "--every", "20"),
        ("live", NETWORK, 2),
        ("live", NETWORK, "missing.raw", 2),
        ("live", NETWORK, "camera", 2),
        ("live", NETWORK, recording, "--window", "0", 2),
        ("live", NETWORK, recording, "--record", "kept.raw", 2),
        ("live", "--list"),
        folder=tmp_path,
    )
    answers = [json.loads(line) for line in lines.out.splitlines()]
    assert answers[-1]["name"] == "7"
    assert answers[-1]["notices"] == ["the recording has ended"]
    assert "200 events recorded" in lines.err
    assert "events/s" in said.out
    assert "the usual length" in said.err
    assert [one.err.count("\n") for one in wrong] == [1] * 6


def test_the_verb_answers_udp_and_says_what_is_rubbish(tmp_path):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    events, done = digits("7"), list[bool]()

    def send():
        x, y, t, p = (getattr(events, name).numpy().astype(np.int64) for name in "xytp")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            start = 0
            while not done:
                sender.sendto(b"rubbish", ("127.0.0.1", port))
                for packet in encode(x, y, p, t + start):
                    sender.sendto(packet, ("127.0.0.1", port))
                start += events.duration
                time.sleep(events.duration / 1e6)

    thread = Thread(target=send)
    thread.start()
    try:
        found = run_verb("live", NETWORK, f"udp://127.0.0.1:{port}", "--seconds", "2", "--json", folder=tmp_path)
    finally:
        done.append(True)
        thread.join()
    answers = [json.loads(line) for line in found.out.splitlines()]
    assert "7" in [answer["name"] for answer in answers]
    assert answers[-1]["rejected"] > 0
    assert found.err.count("a packet of 7 bytes") == 1


def test_the_verb_answers_a_pipe(tmp_path):
    events = digits("3")
    text = "".join(f"{t},{x:.0f},{y:.0f},{int(p)}\n" for x, y, t, p, _ in events.numpy().tolist())
    command = [sys.executable, "-m", "event2vec", "live", str(NETWORK), "-", "--json"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert answers[-1]["name"] == "3"
    assert answers[-1]["events"] == 200
