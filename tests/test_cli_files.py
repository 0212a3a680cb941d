"""Verbs for files of recordings: every column of `info`, and what `convert`, `cut` and `view` write, say and refuse."""

import json
from pathlib import Path
from types import SimpleNamespace

import encoders
import pytest
from conftest import assert_same, make_recording
from shell import refusal, run

from event2vec import Events, Sensor, Windows, read_events, write_events
from event2vec.io import WRITERS
from event2vec.progress import ShownProgress

VIEW = "event2vec.player.view"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def said_by(capsys, *arguments, code=0):
    assert run(*arguments) == code
    return capsys.readouterr()


def refused(capsys, *arguments):
    """The one line of a call that cannot work."""
    return refusal(*said_by(capsys, *arguments, code=2))


# info


def test_every_column_of_the_table_is_the_fact_of_its_name(capsys):
    x, t, p = [1, 2, 3, 4], [0, 500_000, 250_000, 2_000_000], [1, 0, 1, 1]
    Path("a.csv").write_text("\n".join(f"{when + 7},{place},2,{rise}" for when, place, rise in zip(t, x, p)))  # noqa: B905
    heads, row = said_by(capsys, "info", "a.csv", "--sensor", "20x10").out.splitlines()
    assert heads.split() == [
        "file",
        "format",
        "sensor",
        "events",
        "seconds",
        "events/s",
        "rising",
        "out",
        "of",
        "order",
    ]
    assert row.split() == ["a.csv", "text", "20x10", "4", "2.000", "2", "75.0%", "1"]


def test_thousands_have_commas_and_a_recording_without_length_has_no_rate(capsys):
    write_events(Path("many.npz"), make_recording(12_345, duration=1_000_000))
    one = Events.from_arrays([1], [2], [5], [1], sensor="9x8")
    write_events(Path("one.npz"), one)
    write_events(Path("none.npz"), one[0:0])
    _, many, one_row, none = said_by(capsys, "info", "many.npz", "one.npz", "none.npz").out.splitlines()
    duration = read_events("many.npz").duration
    assert many.split()[3:6] == ["12,345", f"{duration / 1e6:.3f}", f"{12_345 / duration * 1e6:,.0f}"]
    assert one_row.split()[3:7] == ["1", "0.000", "-", "100.0%"]
    assert none.split()[3:7] == ["0", "0.000", "-", "-"]


def test_a_sensor_that_the_file_names_has_no_star_and_no_note(capsys):
    write_events(Path("a.npz"), make_recording(5))
    assert "*" not in said_by(capsys, "info", "a.npz").out


def test_files_with_one_name_are_shown_with_their_folders(capsys):
    for folder in ("one", "two"):
        write_events(Path(folder, "a.npz"), make_recording(5))
    write_events(Path("b.npz"), make_recording(5))
    names = [line.split()[0] for line in said_by(capsys, "info", "one/a.npz", "two/a.npz").out.splitlines()[1:]]
    assert names == ["one/a.npz", "two/a.npz"]
    names = [line.split()[0] for line in said_by(capsys, "info", "one/a.npz", "b.npz").out.splitlines()[1:]]
    assert names == ["a.npz", "b.npz"], "the name alone where it is enough"


def test_only_files_that_cannot_be_read_leave_no_table(capsys):
    Path("bad.raw").write_bytes(b"nothing")
    said = said_by(capsys, "info", "bad.raw", code=2)
    assert said.out == ""
    assert said.err.startswith("event2vec: bad.raw: ")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--columns", "xytp", "--time-unit", "ms"), "1 2 0.5 1\n3 4 2.5 0\n"),
        ((), "500 1 2 1\n2500 3 4 0\n"),
    ],
)
def test_options_for_reading_are_used(options, text, capsys):
    Path("a.txt").write_text(text)
    (facts,) = json.loads(said_by(capsys, "info", "a.txt", "--json", *options).out)
    assert (facts["start_us"], facts["duration_us"], facts["width"], facts["height"]) == (500, 2000, 4, 5)


def test_info_needs_one_file_that_exists(capsys):
    assert refused(capsys, "info", "no.raw", "neither.raw") == "no.raw: does not exist. Check the name and the folder"
    said = said_by(capsys, "info", "no.raw", "--json", code=2)
    (facts,) = json.loads(said.out)
    assert facts["file"] == "no.raw"
    assert said.err == f"event2vec: {facts['error']}\n"


# convert


def exactly(*times):
    """An event at each of these microseconds, in a column of its own."""
    return Events.from_arrays(range(len(times)), [0] * len(times), times, [1] * len(times), sensor="9x8")


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ((), [0, 1, 2, 3]),
        (("--start", "0.5"), [1, 2, 3]),
        (("--start", "0.500001"), [2, 3]),
        (("--stop", "1"), [0, 1]),
        (("--stop", "1.000001"), [0, 1, 2]),
        (("--start", "0.5", "--stop", "1.5"), [1, 2]),
        (("--start", "-3"), [0, 1, 2, 3]),
        (("--stop", "100"), [0, 1, 2, 3]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_start_is_kept_and_stop_is_not(options, kept, capsys):
    write_events(Path("in.npz"), exactly(0, 500_000, 1_000_000, 1_500_000))
    said_by(capsys, "convert", "in.npz", "out.npz", *options)
    found = read_events("out.npz")
    assert found.x.tolist() == kept
    assert found.t[0] == 0, "times in OUT start at 0"
    assert found.duration == 500_000 * (kept[-1] - kept[0])


def test_what_was_written_is_said_with_its_events_seconds_and_sensor(capsys):
    write_events(Path("in.npz"), exactly(0, 1_250_000))
    assert said_by(capsys, "convert", "in.npz", "out.csv").err == "out.csv: 2 events, 1.250 s, 9x8\n"
    assert said_by(capsys, "convert", "in.npz", "one.csv", "--start", "1").err == "one.csv: 1 event, 0.000 s, 9x8\n"


def test_what_was_written_is_json_too(capsys):
    Path("in.csv").write_text("7,1,1,1\n1250007,2,2,0\n")
    said = said_by(capsys, "convert", "in.csv", "out.npz", "--sensor", "9x8", "--json")
    facts = {"file": "out.npz", "events": 2, "duration_us": 1_250_000, "input_start_us": 7, "width": 9, "height": 8}
    assert (json.loads(said.out), said.err) == (facts, "")


@pytest.mark.parametrize("suffix", [suffix for suffix in WRITERS if suffix != ".hdf5"])
def test_every_suffix_of_the_help_can_be_written(suffix, capsys):
    events = make_recording(50)
    write_events(Path("in.npz"), events)
    said_by(capsys, "convert", "in.npz", f"out{suffix}")
    assert_same(read_events(f"out{suffix}", sensor=events.sensor), events)


def test_a_file_is_replaced_only_when_asked_and_a_folder_never(capsys):
    write_events(Path("in.npz"), exactly(0, 1_250_000))
    Path("out.csv").write_text("precious")
    wanted = "out.csv: exists already. Choose another OUT or add --overwrite"
    assert refused(capsys, "convert", "in.npz", "out.csv") == wanted
    assert Path("out.csv").read_text() == "precious"
    said_by(capsys, "convert", "in.npz", "in.npz", "--overwrite", "--start", "1")
    assert len(read_events("in.npz")) == 1, "a recording may replace itself"
    Path("folder.npz").mkdir()
    wanted = "folder.npz: is a folder, expected the name of a file to write"
    assert refused(capsys, "convert", "in.npz", "folder.npz", "--overwrite") == wanted


def test_warnings_about_the_input_are_said(capsys):
    Path("in.csv").write_text("0,1,1,1\n10,2,2,0\n50")
    said = said_by(capsys, "convert", "in.csv", "out.npz", "--sensor", "9x8").err.splitlines()
    assert said == [
        "event2vec: warning: in.csv: the last line is truncated: 2 bytes at the end were ignored",
        "out.npz: 2 events, 0.000 s, 9x8",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no.npz", "out.csv"), "IN: no.npz does not exist, expected a recording. See 'event2vec convert --help'"),
        (("in.npz", "out.csv", "--start", "2", "--stop", "2"), "--stop 2 must come after --start 2"),
        (("in.npz", "out.csv", "--stop", "-1"), "--stop -1 must come after --start 0"),
        (("in.npz", "out.csv", "--start", "2"), "in.npz: has no events in that interval; it lasts 1.25 s"),
        (("in.npz", "out.csv", "--start", "x"), "--start: must be a number, got 'x'. See 'event2vec convert --help'"),
        (("in.npz", "out"), f"out: cannot be written: '' is not one of {', '.join(WRITERS)}"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_convert_cannot_do_is_one_line_and_writes_nothing(arguments, message, capsys):
    write_events(Path("in.npz"), exactly(0, 1_250_000))
    assert refused(capsys, "convert", *arguments) == message
    assert [path.name for path in Path().iterdir()] == ["in.npz"]


# cut


def test_windows_become_files_named_by_number_and_start(capsys):
    write_events(Path("wave.npz"), exactly(0, 100_000, 250_000, 499_999, 650_000))
    said = said_by(capsys, "cut", "wave.npz", "--window", "0.25", "--out", "out")
    assert said.err == "out/wave: 3 windows of 0.25 s\n"
    found = {path.name: len(read_events(path)) for path in sorted(Path("out/wave").iterdir())}
    assert found == {"000000_0s.npz": 2, "000001_0.25s.npz": 2, "000002_0.5s.npz": 1}


@pytest.mark.parametrize(
    ("options", "windows", "suffix"),
    [
        (("--window", "0.1"), Windows(window=0.1), ".npz"),
        (("--window", "0.1", "--stride", "0.05"), Windows(window=0.1, stride=0.05), ".npz"),
        (("--window", "0.1", "--min-events", "30"), Windows(window=0.1, min_events=30), ".npz"),
        (("--window-events", "40"), Windows(window_events=40), ".npz"),
        (("--window", "0.1", "--format", "csv"), Windows(window=0.1), ".csv"),
        (("--window", "0.1", "--format", "aedat4"), Windows(window=0.1), ".aedat4"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_each_option_of_cut_has_its_effect(options, windows, suffix, capsys):
    events = make_recording(120, duration=400_000)
    write_events(Path("a.npz"), events)
    facts = json.loads(said_by(capsys, "cut", "a.npz", "--out", "out", "--json", *options).out)
    wanted = [window for window in windows.cut(events) if len(window.events) >= windows.min_events]
    written = sorted(Path("out/a").iterdir())
    assert [(path.suffix, len(read_events(path))) for path in written] == [
        (suffix, len(window.events)) for window in wanted
    ]
    left_out = len(list(windows.cut(events))) - len(wanted)
    assert facts == {"folder": "out/a", "files": len(wanted), "left_out": left_out}


def test_windows_with_too_few_events_are_counted(capsys):
    write_events(Path("a.npz"), exactly(0, 10, 150_000, 250_000))
    said = said_by(capsys, "cut", "a.npz", "--out", "out", "--window", "0.1", "--min-events", "2")
    assert said.err == "out/a: 1 window of 0.1 s with 2 events or more; 2 with too few events left out\n"


def test_cut_reads_as_it_is_told(called):
    Path("a.txt").write_text("1 2 0.5 1\n")
    calls = called("event2vec.data.cut.cut_recording", SimpleNamespace(folder=Path("x"), files=1, left_out=0))
    assert run("cut", "a.txt", "--out", "out", "--window", "0.1", "--overwrite", "--columns", "xytp",
               "--time-unit", "ms", "--sensor", "9x8") == 0  # fmt: skip
    ((given, named),) = calls
    assert given == ("a.txt", "out", Windows(window=0.1))
    assert isinstance(named.pop("progress"), ShownProgress)
    assert named == {
        "suffix": ".npz",
        "overwrite": True,
        "sensor": Sensor(9, 8),
        "columns": "xytp",
        "time_unit": "ms",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--out", "out"), "--window SECONDS or --window-events N is required"),
        (
            ("--window", "0.1"),
            "--out is required: folder in which a sub-folder with the windows is created. See 'event2vec cut --help'",
        ),
        (("--out", "out", "--window", "0"), "--window: must be above 0, got 0. See 'event2vec cut --help'"),
        (("--out", "out", "--stride", "1"), "windows: stride requires window, such as 0.1 (seconds)"),
        (
            ("--out", "out", "--window-events", "5", "--min-events", "2"),
            "windows: stride and min_events are for windows by time; omit them with window_events",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cut_cannot_do_is_one_line(arguments, message, capsys):
    write_events(Path("a.npz"), make_recording(20))
    assert refused(capsys, "cut", "a.npz", *arguments) == message


# view


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ((), "walk.html"),
        (("--gif",), "walk.gif"),
        (("--mp4",), "walk.mp4"),
        (("--out", "b.html"), "b.html"),
        (("--out", "b.gif"), "b.gif"),
        (("--out", "b.GIF", "--gif"), "b.GIF"),
    ],
)
def test_the_file_is_here_with_the_name_of_the_recording_unless_named(options, path, called):
    write_events(Path("deep/walk.npz"), make_recording(20))
    calls = called(VIEW, SimpleNamespace(path=path, recorded=20, shown=20, speed=None, duration=1, sensor="9x8"))
    assert run("view", "deep/walk.npz", "--sensor", "40x40", *options) == 0
    reading = {"sensor": Sensor(40, 40), "columns": None, "time_unit": None}
    assert calls == [(("deep/walk.npz", Path(path)), reading)]


def test_what_view_wrote_is_json_too(capsys):
    write_events(Path("a.npz"), make_recording(20))
    said = said_by(capsys, "view", "a.npz", "--json")
    events = read_events("a.npz")
    assert json.loads(said.out) == {
        "file": "a.html",
        "events": 20,
        "events_shown": 20,
        "speed": None,
        "duration_us": events.duration,
        "width": events.sensor.width,
        "height": events.sensor.height,
    }
    assert said.err == ""


@pytest.mark.parametrize(
    ("speed", "said"),
    [
        (None, []),
        (1.0, []),
        (1.01, []),
        (1.04, []),
        (0.98, ["The animation plays at 0.98 times the recorded speed."]),
        (12.34, ["The animation plays at 12 times the recorded speed."]),
    ],
)
def test_a_speed_is_said_only_where_it_is_not_the_recorded_one(speed, said, called, capsys):
    write_events(Path("a.npz"), make_recording(20))
    called(VIEW, SimpleNamespace(path="a", recorded=20, shown=20, speed=speed, duration=2_500_000, sensor="9x8"))
    assert said_by(capsys, "view", "a.npz").err.splitlines() == ["a: 20 events, 2.500 s, 9x8", *said]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--out", "there.html"), "there.html: exists already. Choose another --out or add --overwrite"),
        (("--gif",), "a.gif: exists already. Choose another --out or add --overwrite"),
        (("--mp4", "--out", "x.gif"), "--out must end in .mp4 with --mp4, got x.gif"),
        (("--out", "x.txt"), "x.txt: cannot be written: '.txt' is not one of .html, .gif, .mp4"),
        (
            ("--out", "."),
            "--out: . is a folder, expected the name of a file to write. See 'event2vec view --help'",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_view_cannot_do_is_one_line_and_replaces_nothing(arguments, message, capsys):
    write_events(Path("a.npz"), make_recording(20))
    for name in ("there.html", "a.gif"):
        Path(name).write_text("mine")
    assert refused(capsys, "view", "a.npz", *arguments) == message
    assert (Path("there.html").read_text(), Path("a.gif").read_text()) == ("mine", "mine")


def test_a_recording_without_events_has_nothing_to_see(capsys):
    write_events(Path("none.npz"), make_recording(0))
    for options in ((), ("--gif",)):
        assert refused(capsys, "view", "none.npz", *options) == "none.npz holds no events, so there is nothing to see"
    assert [path.name for path in Path().iterdir()] == ["none.npz"]


def test_every_format_is_seen_and_named_as_it_is(tmp_path, capsys):
    path = encoders.write("evt2", tmp_path)
    said = said_by(capsys, "view", path, "--out", "x.html").err
    events = read_events(path)
    assert said == f"x.html: {len(events)} events, {events.duration / 1e6:.3f} s, {events.sensor}\n"
    assert path.name in Path("x.html").read_text("utf-8")
