"""A stream that is kept in a file while it is answered."""

from threading import Event

import pytest
from conftest import assert_same, make_recording
from golden.make import FOLDER
from streams import NETWORK, PATIENCE, SENSOR, Silent, chunk_of

from event2vec import Event2VecError, load_model, read_events
from event2vec.streaming import Live, live
from event2vec.streaming.chunk import Chunk
from event2vec.streaming.recorder import FORMATS, Recorder


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
    """Here the disk writes nothing before the reader has handed over all."""
    handed_over = Event()
    monkeypatch.setattr("event2vec.streaming.recorder.MOST_WAITING", 1000)
    monkeypatch.setattr(Recorder, "_write", lambda self, sink, chunk: handed_over.wait())
    recorder = Recorder(tmp_path / "kept.raw", SENSOR)
    for _ in range(50):
        recorder(chunk_of(make_recording(500)))
    handed_over.set()
    recorder.close()
    assert recorder.lost == 48 * 500, "all but what may wait"


def test_a_recording_that_fails_says_so(small_disk):
    recorder = Recorder(small_disk.folder / "kept.aedat4", SENSOR)
    chunk = chunk_of(make_recording(200_000))
    for _ in range(20):
        recorder(chunk)
    recorder.close()
    assert "recording has stopped" in str(recorder.problem)
    assert recorder.lost > 0


def test_a_recorder_that_has_failed_takes_nothing_more_and_says_why_once(tmp_path, monkeypatch):
    def fail(self, sink, chunk):
        raise OSError("broken")

    monkeypatch.setattr(Recorder, "_write", fail)
    recorder, chunk = Recorder(tmp_path / "kept.raw", SENSOR), chunk_of(make_recording(300))
    recorder(chunk)
    recorder._thread.join(PATIENCE)
    with Live(load_model(NETWORK), Silent(), 0.1, recorder=recorder) as stream:
        said = [stream._answer(0.0, None).notices for _ in range(2)]
        recorder(chunk)
    assert said == [(f"{recorder.path}: recording has stopped: broken",), ()]
    assert recorder.problem in said[0]
    assert (recorder.recorded, recorder.lost) == (0, 600)


def test_what_cannot_be_recorded_is_refused_first(tmp_path):
    (tmp_path / "there.raw").write_bytes(b"")
    for name, problem in (("a.npz", "is not one of .aedat4"), ("there.raw", "exists already")):
        with pytest.raises(Event2VecError, match=problem):
            live(NETWORK, FOLDER / "recordings/3/npz.npz", record=tmp_path / name)
