"""What streams come from: packets, recordings, pipes and cameras; whatever comes in, the stream goes on."""

import os
import socket
import time

import eventcv
import numpy as np
import pytest
from conftest import make_recording
from streams import SENSOR, Clock, columns_of, read_all

from event2vec import Event2VecError, Sensor
from event2vec.machine.ports import parse_address
from event2vec.streaming.camera_source import CameraSource
from event2vec.streaming.packets import decode, encode, is_packet
from event2vec.streaming.pipe_source import PipeSource
from event2vec.streaming.recording_source import RecordingSource
from event2vec.streaming.source import StreamEnded
from event2vec.streaming.sources import open_source
from event2vec.streaming.udp_source import SWITCH, UdpSource


@pytest.mark.parametrize("timed", [True, False])
def test_packets_are_those_of_eventcv(timed):
    """Both sides, and no byte differs: AEStream's source has the same layout."""
    events = make_recording(500, sensor=Sensor(640, 480))
    rows = np.stack(columns_of(events), axis=1)
    x, y, t, p = rows.T
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(60)
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


def test_udp_gives_what_was_sent(udp):
    source, send = udp
    events = make_recording(1000, sensor=SENSOR)
    x, y, t, p = columns_of(events)
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


def packet_of(timed=True, start=0):
    ones = np.arange(10)
    (packet,) = encode(ones, ones, ones % 2, start + ones if timed else None)
    return packet


def test_a_stray_packet_of_the_other_kind_moves_no_clock(udp):
    source, send = udp
    send(b"\xff" * 16)  # has the form of a packet without times, and no event on the sensor
    send(packet_of(start=1_000_000))
    assert read_all(source, 10)[2].tolist() == list(range(10))
    send(packet_of(timed=False))
    assert source.read() is None
    send(packet_of(start=1_500_000))
    assert read_all(source, 10)[2].tolist() == list(range(500_000, 500_010))
    assert source.rejected == 2


def test_a_sender_that_changes_is_followed_and_time_never_goes_back(udp):
    source, send = udp
    times = []
    for timed in (True, False, True):
        for _ in range(SWITCH + 1):
            send(packet_of(timed, start=5_000_000))
        times.append(read_all(source, 10)[2])
        while source.read() is not None:
            pass
    assert (np.diff(np.concatenate(times)) >= 0).all()
    assert [notice.partition(": ")[2] for notice in source.notices if "packets have" in notice] == [
        "packets have no times; events get the time of their arrival",
        "packets have times now",
    ]


def test_packets_off_the_sensor_do_not_stop_the_clock(udp):
    source, send = udp
    send(packet_of())
    assert len(read_all(source, 10)[0]) == 10
    (far,) = encode(np.array([99]), np.array([99]), np.array([1]), np.array([50]))
    send(far)
    assert source.read() is None
    assert source.rejected == 1


def test_a_port_in_use_is_one_line(udp):
    port = udp[0].socket.getsockname()[1]
    with pytest.raises(Event2VecError, match=f"cannot receive at udp://127.0.0.1:{port}: Address already in use"):
        UdpSource("127.0.0.1", port, SENSOR)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("event2vec.streaming.recording_source.time", clock)
    return clock


def test_a_recording_is_played_at_its_own_pace(clock):
    events = make_recording(500, sensor=SENSOR, duration=200_000)
    source = RecordingSource(events)
    began, parts = clock.now, []
    try:
        while True:
            chunk = source.read()
            if chunk is not None:
                parts.append(chunk)
                assert chunk.t[-1] / 1e6 <= clock.now - began + 1e-6, "no event before its time"
    except StreamEnded:
        pass
    assert (np.concatenate([part.t for part in parts]) == events.t.numpy()).all()
    assert events.duration / 1e6 <= clock.now - began + 1e-6 < events.duration / 1e6 + 0.01, "and none late"
    assert len(parts) > 10


def test_a_recording_can_be_played_faster_and_again(clock):
    events = make_recording(100, sensor=SENSOR, duration=100_000)
    source = RecordingSource(events, speed=20.0, loop=True)
    x, _, t, _ = read_all(source, 350)
    assert (np.diff(t) >= 0).all(), "one loop after the other"
    assert (x[100:200] == x[:100]).all()
    assert t[100] - t[99] == 1000


@pytest.mark.parametrize("loop", [True, False])
def test_events_that_are_far_too_late_are_left_out_and_counted(monkeypatch, clock, loop):
    monkeypatch.setattr("event2vec.streaming.recording_source.LATEST", 0.05)
    events = make_recording(1000, sensor=SENSOR, duration=300_000)
    source = RecordingSource(events, loop=loop)
    source.read()
    clock.sleep(0.2 if not loop else 0.7)
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


@pytest.mark.parametrize("line", [b"12 3 4", b"1234", b"1.2.3 4 5 6", b"1 2 3 4 5", b"1,2,x,4"])
def test_one_damaged_line_does_not_end_the_stream(line):
    source = piped(b"100,3,4,1\n" + line + b"\n250,5,6,0\n")
    assert read_to_end(source) == ([[(3, 4, 0, True), (5, 6, 150, False)]], "the pipe was closed")
    assert source.rejected == 1


def test_what_is_left_when_the_pipe_closes_is_read_or_counted():
    source = piped(b"100,3,4,1\n250,5,6,0")
    assert read_to_end(source)[0] == [[(3, 4, 0, True)], [(5, 6, 150, False)]]
    words = b"".join(encode(np.array([3]), np.array([4]), np.array([1]), np.array([9])))
    for data in (b"100,3,4,1\n250,5", words + b"abc", b"1,2"):
        source = piped(data)
        assert read_to_end(source)[1] == "the pipe was closed"
        assert source.rejected == 1


def test_times_that_go_back_are_said():
    source = piped(b"50000000,3,4,1\n100,5,6,0\n90,5,6,0\n")
    assert read_to_end(source)[0] == [[(3, 4, 0, True), (5, 6, 0, False), (5, 6, 0, False)]]
    late, restarted = source.notices
    assert "out of order" in late
    assert "went back by more than a second" in restarted


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
    rows = np.stack(columns_of(events), axis=1)
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
    assert parse_address(":8765") == ("127.0.0.1", 8765)
    assert parse_address("[::1]:80") == ("::1", 80)
    for wrong in ("8765", "host", "host:99999", "a b:1", ":"):
        with pytest.raises(Event2VecError, match="address must be HOST:PORT"):
            parse_address(wrong)
        with pytest.raises(Event2VecError, match="source must be udp://HOST:PORT"):
            open_source(f"udp://{wrong}", SENSOR)
    with pytest.raises(Event2VecError, match="has its own pace"):
        open_source("udp://127.0.0.1:0", SENSOR, speed=2.0)
    with pytest.raises(Event2VecError, match="`speed` must be above 0"):
        open_source(make_recording(5), SENSOR, speed=0.0)
    with pytest.raises(Event2VecError, match="does not exist"):
        open_source(tmp_path / "missing.raw", SENSOR)
