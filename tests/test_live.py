"""Live: an answer is about the newest window, whatever the machine can do, and nothing queues up."""

import time
from dataclasses import replace
from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from conftest import make_recording
from streams import NETWORK, PATIENCE, SENSOR, Clock, Silent, chunk_of, digits

import event2vec
from event2vec import Classifier, Event2VecError, ModelConfig, Sampling, Sensor, build_model, load_model, read_events
from event2vec.cli.live import line_of
from event2vec.data.windows import Windows
from event2vec.model.trained_on import QUANTILES, TrainedOn
from event2vec.streaming import Live, live
from event2vec.streaming.answers import NOTHING, Answerer
from event2vec.streaming.reader import Reader
from event2vec.streaming.recorder import Recorder
from event2vec.streaming.recording_source import RecordingSource
from event2vec.streaming.ring import SMALLEST, Ring, View
from event2vec.streaming.source import StreamEnded
from event2vec.streaming.windows import LONGEST, fewest_events, trained_window


@pytest.fixture(scope="module")
def network():
    return load_model(NETWORK)


@pytest.fixture(autouse=True)
def _on_a_busy_machine(monkeypatch):
    """No event of a recording that is played is ever too late."""
    monkeypatch.setattr("event2vec.streaming.recording_source.LATEST", 1e6)


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
    model, events = clusterer(), make_recording(2000, sensor=SENSOR)
    model.temperature = 2.5
    read = Answerer(model, SENSOR).read(view_of(events))
    assert read is not None
    np.testing.assert_allclose(read.scores, model.predict(events).scores.numpy(), atol=1e-6)
    thinned = Answerer(model, SENSOR).read(view_of(make_recording(6144, sensor=SENSOR)))
    assert thinned is not None
    assert float(thinned.tokens.rho.sum()) == pytest.approx(6144), "a third was clustered, and stands for all"


def test_one_thread_and_two_give_the_same_answer_and_torch_keeps_its_own_number(network):
    before = torch.get_num_threads()
    answerer, view, scores = Answerer(network, SENSOR), view_of(make_recording(500, sensor=SENSOR)), []
    assert answerer.threads in (1, before)
    for threads in (1, 2):
        answerer.threads = threads
        read = answerer.read(view)
        assert read is not None
        scores.append(read.scores)
        assert torch.get_num_threads() == before
    np.testing.assert_array_equal(scores[0], scores[1])


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
    stream = Live(network, RecordingSource(digits("3"), loop=True), 0.3, 0.01)
    counts = []
    for answer in islice(stream, 4):
        counts.append(answer.skipped)
        time.sleep(0.1)
    stream.close()
    assert all(after - before >= 8 for before, after in pairwise(counts)), counts


def test_a_window_that_is_overwritten_is_read_again_and_never_called_nothing(network, monkeypatch):
    stream, tries = Live(network, Silent(), 60.0, min_events=10), list[View]()
    stream.reader._take(chunk_of(make_recording(500, sensor=SENSOR, duration=1000)))
    read = stream.answerer.read

    def overwritten_three_times(view):
        tries.append(view)
        return read(view) if len(tries) > 3 else None

    monkeypatch.setattr(stream.answerer, "read", overwritten_three_times)
    answer = next(iter(stream))
    assert answer.name in network.class_names
    assert len(tries) == 4, "twice for a moment that was skipped, and twice for the next"
    assert answer.skipped >= 1
    stream.close()


def test_windows_that_are_cut_short_are_said_once(network, monkeypatch):
    monkeypatch.setattr("event2vec.streaming.ring.LARGEST", SMALLEST)
    stream = Live(network, Silent(), 60.0)
    for number in range(3):
        stream.reader._take(chunk_of(make_recording(30_000, sensor=SENSOR, duration=1000), number * 1000))
        stream.reader._tell(0.0)
    assert ["windows are cut short" in notice for notice in stream.reader.notices] == [True]
    stream.close()


def test_moments_that_passed_are_not_made_up_for(network, monkeypatch):
    clock = Clock()
    monkeypatch.setattr("event2vec.streaming.time", clock)
    stream, due = Live(network, Silent(), 0.1, every=0.01), clock.now + 0.02
    due += stream._wait(due)
    assert (clock.now, stream.skipped) == (1000.02, 0), "it waits for the first"
    clock.sleep(0.105)
    due += stream._wait(due)
    assert stream.skipped == 9
    assert clock.now < due < clock.now + 0.01, "the next is about the newest window"
    stream.close()


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


def test_live_says_unknown_where_predict_does():
    usual = len(QUANTILES)
    saw = TrainedOn(9, (0.1,) * usual, (1e3,) * usual, (1e4,) * usual)
    broken = load_model(NETWORK)
    next(broken.parameters()).data.fill_(torch.nan)
    few = load_model(NETWORK)
    few.trained_on = saw
    events = make_recording(90, sensor=SENSOR, duration=100_000)
    for model in (few, broken):
        stream = Live(model, Silent(), 0.2, min_events=1)
        chunk = chunk_of(events)
        stream.reader._take(chunk)
        answer, predicted = stream._answer(chunk.happened, None), model.predict(events)
        stream.close()
        assert (answer.label, answer.name) == (predicted.label, predicted.name) == (None, "unknown")
        assert list(answer.scores.values()) == pytest.approx(predicted.scores.tolist())
        assert answer.remarks == predicted.remarks


def test_a_window_can_be_changed_while_it_runs(network):
    stream = Live(network, Silent(), 0.2)
    chunk = chunk_of(make_recording(300, sensor=SENSOR, duration=100_000))
    stream.reader._take(chunk)
    assert stream._answer(chunk.happened, None).events == 300
    stream.window = 0.05
    assert stream._answer(chunk.happened, None).events == int((chunk.t > chunk.t[-1] - 50_000).sum())
    with pytest.raises(Event2VecError, match=r"^window must be"):
        stream.window = 1e9
    stream.close()


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
    reader.join(PATIENCE)
    assert list(reader.notices) == ["no events for 0.05 s", "events are coming again"]
    assert reader.ended == "over"


def test_a_source_that_fails_ends_with_one_line():
    class Broken(Silent):
        def read(self):
            raise RuntimeError("\x1b[2Jbroken\n" * 100)

    reader = Reader(Broken(), 0.1)
    reader.start()
    reader.join(PATIENCE)
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
        assert ("unlike training" in line_of(answer)) == bool(remarks)
    stream.close()


def test_live_is_public():
    assert event2vec.live is live
    assert isinstance(load_model(NETWORK), Classifier)
