"""`event2vec live`: what it prints on recordings, packets and pipes, for people and for programs."""

import io
import json
import os
import socket
from types import SimpleNamespace

import pytest
from golden.make import FOLDER
from shell import refusal, run
from streams import NETWORK, SENSOR, Silent, columns_of, digits

from event2vec import load_model
from event2vec.cli.live import Lines, line_of
from event2vec.streaming import Live
from event2vec.streaming.packets import encode
from event2vec.streaming.recorder import Recorder
from event2vec.streaming.source import StreamEnded
from event2vec.streaming.udp_source import UdpSource

RECORDING = str(FOLDER / "recordings/7/aedat4.aedat4")


@pytest.fixture(autouse=True)
def _on_a_busy_machine(monkeypatch, tmp_path):
    """No event of a recording that is played is ever too late."""
    monkeypatch.setattr("event2vec.streaming.recording_source.LATEST", 1e6)
    monkeypatch.chdir(tmp_path)


def answers_of(printed):
    return [json.loads(line) for line in printed.splitlines()]


def test_a_recording_is_played_kept_and_answered_to_its_end(capsys):
    assert run("live", NETWORK, RECORDING, "--every", "20", "--json", "--record", "kept.raw") == 0
    said = capsys.readouterr()
    answers = answers_of(said.out)
    assert answers[-1]["name"] == "7"
    assert answers[-1]["notices"] == ["the recording has ended"]
    assert "200 events recorded" in said.err
    assert run("live", NETWORK, RECORDING, "--record", "kept.raw") == 2
    assert "kept.raw: exists already" in capsys.readouterr().err


def test_people_get_a_line_for_each_change_and_hear_how_the_window_was_chosen(capsys):
    assert run("live", NETWORK, RECORDING, "--every", "20") == 0
    said = capsys.readouterr()
    assert "events/s" in said.out
    assert "the usual length" in said.err


def test_a_stream_ends_after_the_seconds_asked_for(capsys):
    assert run("live", NETWORK, RECORDING, "--loop", "--seconds", "0", "--json") == 0
    assert len(answers_of(capsys.readouterr().out)) == 1


def test_another_sensor_is_said(capsys):
    assert run("live", NETWORK, RECORDING, "--speed", "50", "--sensor", "80x60") == 0
    assert "Events are scaled from 80x60 to the 34x34 that the network reads" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((NETWORK,), "a SOURCE is required: camera, camera:SERIAL, udp://HOST:PORT, - or a recording"),
        ((), "a RUN and a SOURCE are required"),
        ((NETWORK, "missing.raw"), "missing.raw: does not exist"),
        ((NETWORK, "camera"), "no event camera was found"),
        ((NETWORK, RECORDING, "--window", "0"), "window must be from 0.0"),
        ((NETWORK, RECORDING, "--every", "0"), "--every must be from 1 to 60000 milliseconds"),
    ],
    ids=lambda value: " ".join(map(str, value))[-40:] if isinstance(value, tuple) else "",
)
def test_a_wrong_call_is_one_line(arguments, message, capsys):
    assert run("live", *arguments) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert message in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.raw",), "missing.raw: does not exist, expected camera, camera:SERIAL, udp://HOST:PORT, - or a"),
        (("udp://foo",), "SOURCE must be udp://HOST:PORT, such as udp://127.0.0.1:3333, got 'udp://foo'"),
        ((RECORDING, "--serve", "foo"), "--serve must be HOST:PORT, such as 127.0.0.1:8765, got 'foo'"),
        ((RECORDING, "--record", "kept.raw"), "kept.raw: exists already. Choose another --record or add --overwrite"),
    ],
    ids=lambda value: " ".join(map(str, value))[-40:] if isinstance(value, tuple) else "",
)
def test_what_can_be_known_at_once_is_refused_before_the_network_is_loaded(arguments, message, called, capsys):
    open("kept.raw", "w").close()
    opened = called("event2vec.runtime.open_predictor", None)
    assert run("live", NETWORK, *arguments) == 2
    assert refusal(*capsys.readouterr()).startswith(message)
    assert opened == []


def test_cameras_are_listed(capsys, monkeypatch):
    assert run("live", "--list") == 0
    assert "No event camera was found" in capsys.readouterr().err
    camera = {"name": "DVXplorer", "kind": "inivation", "serial": "A1", "speed": "USB 3"}
    monkeypatch.setattr("event2vec.streaming.camera_source.list_cameras", lambda: [camera])
    assert run("live", "--list") == 0
    assert "DVXplorer" in capsys.readouterr().out
    assert run("live", "--list", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [camera]


def test_packets_are_answered_and_rubbish_among_them_is_said_once(capsys, monkeypatch):
    """The packets wait at the port before the stream is read, and the stream ends when all are read."""
    x, y, t, p = columns_of(digits("7"))
    opened, read, seen = [], UdpSource.read, []

    def open_and_fill(address, sensor, **settings):
        source = UdpSource("127.0.0.1", 0, SENSOR)
        opened.append(address)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for packet in (b"rubbish", *encode(x, y, p, t), b"rubbish"):
                sender.sendto(packet, source.socket.getsockname())
        return source

    def read_or_end(source):
        chunk = read(source)
        if chunk is not None:
            seen.append(len(chunk))
        elif sum(seen) == len(t):
            raise StreamEnded("the sender has gone")
        return chunk

    monkeypatch.setattr("event2vec.streaming.open_source", open_and_fill)
    monkeypatch.setattr(UdpSource, "read", read_or_end)
    assert run("live", NETWORK, "udp://127.0.0.1:3333", "--json") == 0
    said = capsys.readouterr()
    last = answers_of(said.out)[-1]
    assert opened == ["udp://127.0.0.1:3333"]
    assert (last["name"], last["events"], last["rejected"]) == ("7", 200, 2)
    assert said.err.count("a packet of 7 bytes") == 1


def type_in(monkeypatch, data):
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=os.fdopen(reading, "rb")))


def test_text_in_a_pipe_is_answered(capsys, monkeypatch):
    text = "".join(f"{t},{x:.0f},{y:.0f},{int(p)}\n" for x, y, t, p, _ in digits("3").numpy().tolist())
    type_in(monkeypatch, text.encode())
    assert run("live", NETWORK, "-", "--json") == 0
    last = answers_of(capsys.readouterr().out)[-1]
    assert (last["name"], last["events"]) == ("3", 200)


def test_a_stream_that_cannot_be_read_is_no_success(capsys, monkeypatch):
    type_in(monkeypatch, b"#!AER-DAT4.0\r\n....")
    assert run("live", NETWORK, "-") == 2
    assert "give its name instead of -" in capsys.readouterr().err


def test_a_recording_that_fails_is_no_success_and_the_disk_is_not_blamed(capsys, monkeypatch):
    def fail(self, sink, chunk):
        raise RuntimeError("broken")

    monkeypatch.setattr(Recorder, "_write", fail)
    assert run("live", NETWORK, RECORDING, "--every", "20", "--record", "kept.raw") == 2
    said = capsys.readouterr().err
    assert "0 events recorded; 200 were lost: recording stopped early" in said
    assert "recording has stopped: broken" in said


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_at_a_terminal_one_line_renews_itself_and_what_is_said_stands_below(monkeypatch):
    stream = Live(load_model(NETWORK), Silent(), 0.3)
    answer = stream._answer(0.0, None)
    stream.close()
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    lines = Lines(as_json=False)
    for _ in range(2):
        lines.show(answer)
    lines.interrupt()
    lines.interrupt()
    assert terminal.getvalue() == 2 * f"\r{line_of(answer)}\x1b[K" + "\n"
    assert "nothing" in line_of(answer)
