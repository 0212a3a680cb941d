"""Windows: every event of a recording in the windows that it belongs to, whatever chunks it comes in."""

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from conftest import assert_same, make_recording
from hypothesis import given
from hypothesis import strategies as st

from event2vec import (
    Event2VecError,
    Events,
    EventStore,
    Progress,
    load_model,
    load_recipe,
    read_events,
    save_model,
    train,
    write_events,
)
from event2vec.cli import main
from event2vec.data.cut import cut_recording
from event2vec.data.datasets import open_splits
from event2vec.data.hints import window_hints
from event2vec.data.prepare import prepare
from event2vec.data.windows import Windows, recording_of, seconds
from event2vec.io.chunks import decode_chunks
from event2vec.progress import SILENT
from event2vec.studies.report import sections
from event2vec.studies.report.study import Study


def spans(windows, events):
    return [(window.start, window.stop, len(window.events)) for window in windows.cut(events)]


def at(*times):
    zeros = [0] * len(times)
    return Events.from_arrays(zeros, zeros, list(times), zeros, sensor="8x8")


def test_a_real_recording_is_cut_into_windows_that_hold_all_of_it(shared_data):
    events = read_events(shared_data / "recordings" / "dvs128.aedat")
    found = list(Windows(window=0.1).cut(events))
    assert sum(len(window.events) for window in found) == len(events)
    for window in found:
        whole = events.between(window.start, window.stop)
        assert torch.equal(window.events.t, whole.t)
        assert torch.equal(window.events.x, whole.x)
        assert window.stop - window.start == 100_000


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize(
    "windows",
    [
        Windows(window=0.05),
        Windows(window=0.05, stride=0.02),
        Windows(window=0.01, stride=0.03),
        Windows(window=10.0),
        Windows(window_events=64),
        Windows(window_events=10_000),
    ],
    ids=lambda windows: windows.summary,
)
def test_chunks_change_nothing(windows, chunk):
    events = make_recording(300)
    chunks = (events[start : start + chunk] for start in range(0, len(events), chunk))
    whole, streamed = list(windows.cut(events)), list(windows.over(chunks))
    assert [window[:3] for window in streamed] == [window[:3] for window in whole]
    assert all(torch.equal(one.events.t, other.events.t) for one, other in zip(whole, streamed, strict=True))
    assert all(torch.equal(one.events.y, other.events.y) for one, other in zip(whole, streamed, strict=True))


def test_windows_overlap_by_the_stride():
    assert spans(Windows(window=1e-5, stride=5e-6), at(*range(20))) == [
        (0, 10, 10),
        (5, 15, 10),
        (10, 20, 10),
        (15, 25, 5),
    ]


def test_a_short_rest_is_left_out_and_half_a_window_is_kept():
    assert spans(Windows(window=1e-5), at(*range(25))) == [(0, 10, 10), (10, 20, 10), (20, 30, 5)]
    assert spans(Windows(window=1e-5), at(*range(24))) == [(0, 10, 10), (10, 20, 10)]
    assert spans(Windows(window=1.0), at(0, 3)) == [(0, 1_000_000, 2)], "a recording shorter than a window is one"
    assert spans(Windows(window_events=10), at(*range(25))) == [(0, 10, 10), (10, 20, 10), (20, 25, 5)]
    assert spans(Windows(window_events=10), at(*range(24))) == [(0, 10, 10), (10, 20, 10)]
    assert spans(Windows(window_events=10), at(4, 7)) == [(0, 4, 2)]


def windows_written_out(times, length, step):
    """Windows by the words of their docstring: number, start, stop and times."""
    found: list[tuple[int, int, int, list[int]]] = []
    for number in range(times[-1] // step + 1):
        start, stop = number * step, number * step + length
        held = [time for time in times if start <= time < stop]
        inside = min(times[-1] + 1 - start, length)
        if held and (2 * inside >= length or not found):
            found.append((number, start, stop, held))
        if held and inside < length:
            break
    return found


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=20),
    st.integers(1, 15),
    st.integers(1, 20),
    st.lists(st.integers(0, 20), max_size=3),
)
def test_windows_by_time_are_those_of_a_plain_loop(times, length, step, cuts):
    events = at(*(time - min(times) for time in sorted(times)))
    windows = Windows(window=length / 1e6, stride=step / 1e6)
    places = [0, *sorted(min(cut, len(events)) for cut in cuts), len(events)]
    chunks = [events[start:stop] for start, stop in pairwise(places)]
    expected = windows_written_out(events.t.tolist(), length, step)
    for found in (list(windows.cut(events)), list(windows.over(chunks)), list(windows.cut(events.arrays()))):
        assert [window[:3] for window in found] == [window[:3] for window in expected]
        assert [window.events.t.tolist() for window in found] == [
            [time - held[0] for time in held] for *_, held in expected
        ]


@given(st.integers(1, 60), st.integers(1, 20))
def test_windows_by_count_hold_each_event_once_and_the_rest_is_less_than_half_a_window(count, size):
    found = list(Windows(window_events=size).cut(at(*range(0, 3 * count, 3))))
    sizes = [len(window.events) for window in found]
    assert all(each == size for each in sizes[:-1])
    assert (2 * sizes[-1] >= size) or len(found) == 1
    assert 2 * (count - sum(sizes)) < size
    assert [window.number for window in found] == list(range(len(found)))
    assert [(window.start, window.stop) for window in found] == [
        (3 * size * number, 3 * (size * number + each - 1) + 1) for number, each in enumerate(sizes)
    ]


def test_no_event_in_two_windows_shares_its_memory_with_the_recording():
    """What a window's times are changed to must not reach the window beside it."""
    events = at(*range(20))
    found = list(Windows(window=1e-5, stride=5e-6).cut(events))
    assert [window.events.t[0].item() for window in found] == [0] * len(found)
    assert events.t.tolist() == list(range(20))


@pytest.mark.parametrize(("microseconds", "text"), [(0, "0"), (1, "0.000001"), (1_250_000, "1.25"), (10**7, "10")])
def test_seconds_are_exact_and_short(microseconds, text):
    assert seconds(microseconds) == text


def test_lengths_are_whole_microseconds_and_a_stride_is_one_at_least():
    windows = Windows(window=0.1, stride=0.05)
    assert (windows.length, windows.step) == (100_000, 50_000)
    assert (Windows(window=0.1).step, Windows(window=2.5e-6).length) == (100_000, 2)
    assert Windows(window=1e-6, stride=1e-7).step == 1
    assert Windows(window=1e6).length == 10**12
    with pytest.raises(ValueError, match=r"windows\.window must be at least 0 and at most 1e\+06, got 1000001"):
        Windows(window=1_000_001.0)


def test_the_most_that_windows_may_overlap_is_a_thousand():
    assert Windows(window=1.0, stride=0.001).step == 1000
    with pytest.raises(ValueError, match=r"stride must be at least window / 1000, got 0\.0009"):
        Windows(window=1.0, stride=0.000999)


def test_settings_for_windows_are_passed_on_whole():
    assert Windows.of(0.1, 0.05, 7, 0) == Windows(window=0.1, stride=0.05, min_events=7)
    assert Windows.of(0.0, 0.0, 1, 9) == Windows(window_events=9)
    assert Windows(window=0.1, stride=0.1).summary == "windows of 0.1 s", "a stride of a window is none"
    assert Windows(window=0.1, min_events=1200).summary == "windows of 0.1 s with 1,200 events or more"
    assert Windows(window=0.1).count(1) == "1 window of 0.1 s"
    assert Windows(window_events=5).count(1200) == "1,200 windows of 5 events"


def test_a_pause_has_no_windows_and_takes_no_time():
    far = 2**61
    found = list(Windows(window=1e-5).cut(at(0, 1, far, far + 9, far + 20)))
    assert sum(len(window.events) for window in found) == 4, "the last microsecond is no half of a window"
    assert found[0].number == 0
    assert found[1].number > 10**16
    assert spans(Windows(window=1e-6, stride=1e-5), at(*range(25))) == [(0, 1, 1), (10, 11, 1), (20, 21, 1)]


def test_a_window_is_called_by_its_recording_and_its_time():
    found = list(Windows(window=0.1, stride=0.05).cut(make_recording(300)))
    assert found[1].name("wave/long.raw") == "wave/long.raw [0.05 to 0.15 s]"
    assert not list(Windows(window=0.1).cut(make_recording(0)))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"window": -1.0}, "windows.window must be at least 0"),
        ({"window": float("nan")}, "must be a finite number"),
        ({}, "window or window_events must be above 0, got neither"),
        ({"window": 0.1, "window_events": 5}, "got both"),
        ({"window_events": -5}, "windows.window_events must be at least 0"),
        ({"window": 0.1, "stride": -0.1}, "windows.stride must be at least 0"),
        ({"window": 1.0, "stride": 1e-6}, "stride must be at least window / 1000"),
        ({"window": 1e-9}, "window must be at least one microsecond"),
        ({"window": 0.1, "min_events": 0}, "windows.min_events must be at least 1"),
        ({"window_events": 10, "stride": 0.1}, "stride and min_events are for windows by time"),
    ],
)
def test_windows_that_cannot_be_are_refused(settings, problem):
    with pytest.raises(ValueError, match=problem):
        Windows(**settings)


def test_settings_that_ask_for_no_windows_give_none_and_say_what_is_missing():
    assert Windows.of(0.0, 0.0, 1, 0) is None
    with pytest.raises(ValueError, match=r"stride requires window, such as 0.1 .seconds."):
        Windows.of(0.0, 0.1, 1, 0)
    with pytest.raises(ValueError, match="min_events requires window"):
        Windows.of(0.0, 0.0, 5, 0)


def test_windows_are_named_for_people():
    assert Windows(window=0.1).summary == "windows of 0.1 s"
    assert Windows(window=0.1, stride=0.05, min_events=200).summary == (
        "windows of 0.1 s every 0.05 s with 200 events or more"
    )
    assert Windows(window_events=20_000).summary == "windows of 20,000 events"


def test_the_recording_of_a_window_is_found_by_its_name():
    window = next(Windows(window=0.1).cut(at(0, 10)))
    for source in ("a/b.raw", "odd [1].raw", "x [0 to 1 s].raw"):
        assert recording_of(window.name(source)) == source
    assert recording_of("day.raw [12.5 to 14 s] [0 to 0.1 s]") == "day.raw", "a window of a labelled span"


def test_events_at_one_instant_are_one_window():
    t = np.zeros(50, np.int64)
    events = Events.from_arrays(t, t, t, t, sensor="8x8")
    assert spans(Windows(window=0.1), events) == [(0, 100_000, 50)]


@pytest.fixture
def long_folder(shared_data, tmp_path):
    """Three classes of three long recordings each: parts of a real one."""
    events = read_events(shared_data / "recordings" / "dvs128.aedat")
    part = events.duration // 9
    for number in range(9):
        name = f"{'abc'[number % 3]}/{number}.npz"
        write_events(tmp_path / "data" / name, events.between(number * part, (number + 1) * part))
    return tmp_path / "data"


SMALL_NETWORK = {"dim": 16, "hidden": 16, "blocks": 1, "heads": 2}


def test_training_on_long_recordings_learns_from_their_windows_and_the_network_keeps_them(long_folder, tmp_path):
    how: dict[str, Any] = {"data.window": 0.1, "data.stride": 0.05, "data.min_events": 5, "sampling.length": 32}
    run = train("folder", long_folder, tmp_path / "run", model=SMALL_NETWORK, training={"epochs": 1}, **how)
    windows = Windows(window=0.1, stride=0.05, min_events=5)
    assert run.model().windows == run.store().windows == windows
    store = run.store()
    assert len(store) > 9
    assert int(store.lengths.min()) >= 5
    assert int(store.durations.max()) < 100_000
    parts = {split: set(store.split(split).groups) for split in set(store.splits)}
    assert sum(map(len, parts.values())) == 9, "windows of one recording lie in one part"
    clusters = train(
        "folder",
        store.folder,
        tmp_path / "clusters",
        model=SMALL_NETWORK,
        training={"epochs": 1},
        sampling={"method": "clusters", "length": 8},
    )
    assert clusters.model().windows == windows, "also when another store is made from the windows"
    save_model(run.model(), tmp_path / "copy")
    assert load_model(tmp_path / "copy").windows == windows
    assert_report_plays_a_long_recording(run, long_folder)


def assert_report_plays_a_long_recording(run, folder):
    """The player of the report has a test recording from its start to its end, with answers and its class."""
    study = Study(run, run.model(), run.store(), run.raw_store().split("test"), 1, SILENT, run.compute(None, None))
    page = sections._player(study)
    *_, long = json.loads(page.partition("id=clips>")[2].partition("</script>")[0])
    name = long["title"].removesuffix(", answers over time")
    (path,) = folder.rglob(name)
    events = read_events(path)
    assert (long["recorded"], long["duration"]) == (len(events), events.duration)
    assert [part["name"] for part in long["truth"]] == [path.parent.name]
    ends = [0, *(part["stop"] for part in long["answers"])]
    assert [part["start"] for part in long["answers"]] == ends[:-1]
    assert ends[-1] == events.duration
    path.write_bytes(b"gone")
    assert "Answers over time could not be computed" in sections._player(study)
    path.unlink()
    assert study.long_recording is None


def test_a_store_with_other_windows_than_the_recipe_wants_is_refused(long_folder, tmp_path):
    store = prepare(open_splits("folder", long_folder, windows=Windows(window=0.1)), tmp_path / "store").store
    recipe = load_recipe("folder").with_settings({"data.window": 0.05})
    with pytest.raises(Event2VecError, match=r"has windows of 0.1 s, the recipe wants windows of 0.05 s"):
        train(recipe, store, tmp_path / "run")
    given: dict[str, Any] = {"data.window": 0.05}
    with pytest.raises(Event2VecError, match=r"is a store.* Omit data.window, or prepare it with `window`"):
        train("folder", store, tmp_path / "run", **given)
    facts = json.loads((store.folder / "store.json").read_text())
    (store.folder / "store.json").write_text(json.dumps({**facts, "windows": {"window": -1}}))
    with pytest.raises(Event2VecError, match=r"is a damaged store: windows.window must be at least 0"):
        _ = EventStore.open(store.folder).windows


def test_windows_with_few_events_are_counted_and_a_recording_without_any_other_is_rejected(tmp_path):
    for name in ("full", "quiet"):
        write_events(tmp_path / "data" / name / "0.npz", make_recording(300 if name == "full" else 3))
    datasets = open_splits("folder", tmp_path / "data", windows=Windows(window=0.1, min_events=101))
    report = prepare(datasets, tmp_path / "store")
    found = [len(window.events) for window in Windows(window=0.1).cut(make_recording(300))]
    assert report.store.lengths.tolist() == [count for count in found if count > 100]
    assert report.store.facts["left_out"] == sum(count <= 100 for count in found)
    assert "too few events left out" in str(report.cutting)
    assert report.rejected[0].message == "none of its windows has 101 events; the fullest has 2"


def test_long_recordings_and_classes_with_one_get_a_hint(tmp_path):
    for number in range(5):
        write_events(tmp_path / "data" / "short" / f"{number}.npz", make_recording(50, seed=number, duration=100_000))
    write_events(tmp_path / "data" / "long" / "0.npz", make_recording(50, duration=18_000_000))
    store = prepare(open_splits("folder", tmp_path / "data"), tmp_path / "store").store
    far, single = window_hints(store)
    assert far.startswith("long/0.npz lasts 1")
    assert far.endswith("most recordings 0.0956 s; a `window` of 0.096 s cuts long ones into many")
    assert single.startswith("1 class has only one recording: 'long'. If it is long, cut it into windows with `window`")
    windows = prepare(open_splits("folder", tmp_path / "data", windows=Windows(window=0.1)), tmp_path / "windows").store
    assert window_hints(windows) == []


def run_verb(*arguments):
    return main([str(argument) for argument in arguments])


def test_prepare_and_train_take_windows_by_their_short_names(long_folder, tmp_path, capsys):
    command = ("prepare", "folder", "--data", long_folder, "--workers", "1", "--json")
    assert run_verb(*command, "--out", tmp_path / "a", "--window", "0.02", "--min-events", "5") == 0
    assert json.loads(capsys.readouterr().out)["windows"] == {
        "window": 0.02,
        "stride": 0.0,
        "min_events": 5,
        "window_events": 0,
    }
    assert run_verb(*command, "--out", tmp_path / "b", "--window-events", "100") == 0
    assert set(EventStore.open(tmp_path / "b").lengths[:10].tolist()) == {100}
    for wrong, problem in (
        (("--window", "-1"), "--window: must be above 0, got -1"),
        (("--window", "0.1", "--stride", "0"), "--stride: must be above 0, got 0"),
        (("--stride", "0.1"), "stride requires window"),
        (("--window", "0.1", "--window-events", "5"), "window or window_events must be above 0, got both"),
    ):
        assert run_verb(*command, "--out", tmp_path / "c", *wrong) == 2
        assert problem in capsys.readouterr().err
    assert run_verb("train", "folder", "--window", "0.1", "--stride", "0.05", "--print-config") == 0
    assert "window: 0.1\n  stride: 0.05" in capsys.readouterr().out
    assert run_verb("train", "folder", "--data", long_folder, "--stride", "0.05") == 2
    assert "stride requires window" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["npz", "aedat4"])
def test_cut_writes_the_windows_of_a_real_recording_as_files(suffix, shared_data, tmp_path, capsys):
    file = shared_data / "recordings" / "dvs128.aedat"
    command = ("cut", file, "--window", "0.1", "--min-events", "500", "--format", suffix, "--out", tmp_path / "walk")
    assert run_verb(*command) == 0
    written = sorted((tmp_path / "walk" / "dvs128").iterdir())
    wanted = [window for window in Windows(window=0.1).cut(read_events(file)) if len(window.events) >= 500]
    assert [len(read_events(path)) for path in written] == [len(window.events) for window in wanted]
    assert written[0].name == f"000000_0s.{suffix}"
    assert_same(read_events(written[1]), wanted[1].events)
    assert f"{len(wanted)} windows of 0.1 s" in capsys.readouterr().err
    assert run_verb(*command) == 2
    assert "dvs128: exists already. Choose another --out or add --overwrite" in capsys.readouterr().err
    assert run_verb(*command, "--overwrite", "--json") == 0
    assert json.loads(capsys.readouterr().out)["files"] == len(wanted)


def test_a_long_recording_is_cut_in_chunks(shared_data, tmp_path, monkeypatch):
    file, chunks = shared_data / "recordings" / "dvs128.aedat", list[int]()

    def read(path, how):
        for chunk in decode_chunks(path, how, segment=1 << 16):
            chunks.append(len(chunk))
            yield chunk

    monkeypatch.setattr("event2vec.data.cut.decode_chunks", read)
    found = cut_recording(file, tmp_path, Windows(window=1.0))
    assert len(chunks) > 3
    written = [len(read_events(path)) for path in sorted(found.folder.iterdir())]
    assert written == [len(window.events) for window in Windows(window=1.0).cut(read_events(file))]


def test_cut_refuses_what_it_cannot_do_and_leaves_nothing(shared_data, tmp_path, capsys):
    file = shared_data / "recordings" / "nmnist.bin"
    assert run_verb("cut", file, "--out", tmp_path / "out") == 2
    assert "--window SECONDS or --window-events N is required" in capsys.readouterr().err
    assert run_verb("cut", file, "--out", tmp_path / "out", "--window", "0.1", "--min-events", "1000000") == 2
    assert "no window with 1,000,000 events or more, so nothing is written" in capsys.readouterr().err
    assert not (tmp_path / "out" / "nmnist").exists()
    with pytest.raises(Event2VecError, match=r"cannot be written as '.mp4', expected one of .npz"):
        cut_recording(file, tmp_path / "out", Windows(window=0.1), suffix=".mp4")


class TestHints:
    def store(self, folder, durations, labels=None, classes=("a", "b"), **more):
        """Recordings that last so many seconds."""
        given = zip(durations, labels or [0] * len(durations), strict=True)
        recordings = [(at(0, round(1e6 * duration)), label) for duration, label in given]
        return EventStore.create(folder, recordings, sensor="8x8", classes=classes, **more)

    @pytest.mark.parametrize(("longest", "hint"), [(10.0, False), (10.001, True)])
    def test_a_recording_is_far_longer_from_ten_times_the_median_on(self, longest, hint, tmp_path):
        store = self.store(tmp_path / "store", [1.0, 1.0, longest], sources=["x", "y", "z.raw"])
        wanted = ["z.raw lasts 10 s, most recordings 1 s; a `window` of 1 s cuts long ones into many"]
        assert window_hints(store) == (wanted if hint else [])

    def test_the_longest_is_named_and_the_others_are_counted(self, tmp_path):
        store = self.store(tmp_path / "store", [0.5, 0.5, 6, 0.5, 70, 0.5, 8], sources=list("tuvwxyz"))
        assert window_hints(store) == [
            "x lasts 70 s (and 2 more like it), most recordings 0.5 s; a `window` of 0.5 s cuts long ones into many"
        ]

    def test_recordings_of_an_instant_have_no_usual_duration(self, tmp_path):
        assert window_hints(self.store(tmp_path / "store", [0, 0, 0, 5])) == []
        assert window_hints(self.store(tmp_path / "none", [])) == []

    def test_classes_with_a_single_recording_are_named_as_far_as_there_is_room(self, tmp_path):
        classes = tuple("abcdef")
        store = self.store(tmp_path / "store", [1.0] * 6, [5, 0, 1, 2, 3, 3], classes)
        assert window_hints(store) == [
            "4 classes have only one recording: 'f', 'a', 'b' and 1 more. If they are long, cut them into windows "
            "with `window`; testing a class needs a second recording"
        ]


class TestCutting:
    def recording(self, tmp_path):
        """Four windows of a tenth of a second, the second of which has one event."""
        times = [*range(0, 100_000, 10_000), 150_000, *range(200_000, 400_000, 20_000)]
        path = tmp_path / "wave.long.csv"
        path.write_text("".join(f"{t / 1e6:.6f},1,2,1\n" for t in times))
        return path

    def test_files_are_named_by_number_and_start_and_the_rest_is_counted(self, tmp_path):
        cut = cut_recording(
            self.recording(tmp_path), tmp_path / "out", Windows(window=0.1, min_events=5), suffix=".csv"
        )
        assert (cut.folder, cut.files, cut.left_out) == (tmp_path / "out" / "wave.long", 3, 1)
        names = sorted(path.name for path in cut.folder.iterdir())
        assert names == ["000000_0s.csv", "000002_0.2s.csv", "000003_0.3s.csv"]
        assert read_events(cut.folder / names[1]).t.tolist() == [0, 20_000, 40_000, 60_000, 80_000]

    def test_options_are_those_of_reading(self, tmp_path):
        path = self.recording(tmp_path)
        cut = cut_recording(path, tmp_path / "out", Windows(window=0.1), time_unit="ms", sensor="9x7", columns="tyxp")
        assert (cut.files, cut.left_out) == (1, 0), "0.4 ms are one window"
        (file,) = cut.folder.iterdir()
        events = read_events(file)
        assert (str(events.sensor), events.x[0].item(), events.y[0].item()) == ("9x7", 2, 1)

    def test_a_folder_is_replaced_only_if_that_is_asked_for_and_only_as_a_whole(self, tmp_path):
        path, windows = self.recording(tmp_path), Windows(window=0.1)
        cut_recording(path, tmp_path, windows)
        with pytest.raises(
            Event2VecError, match=r"wave\.long: exists already\. Choose another folder, or set `overwrite`"
        ):
            cut_recording(path, tmp_path, windows)
        with pytest.raises(Event2VecError, match="has no window with 99 events or more, so nothing is written"):
            cut_recording(path, tmp_path, Windows(window=0.1, min_events=99), overwrite=True)
        assert len(list((tmp_path / "wave.long").iterdir())) == 4, "what failed leaves the old one"
        cut_recording(path, tmp_path, Windows(window=0.2), overwrite=True)
        assert len(list((tmp_path / "wave.long").iterdir())) == 2

    def test_progress_counts_windows_also_those_that_are_left_out(self, tmp_path):
        class Noted(Progress):
            def __init__(self):
                self.done = []

            def advance(self, done, note=""):
                self.done.append(done)

        noted = Noted()
        cut_recording(self.recording(tmp_path), tmp_path, Windows(window=0.1, min_events=5), progress=noted)
        assert noted.done == [1, 2, 3, 4]
