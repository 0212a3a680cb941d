"""How verbs parse: types of options, help that keeps its lines, and one line for a wrong call."""

from argparse import ArgumentTypeError, Namespace

import pytest

from event2vec import Event2VecError, Sensor
from event2vec.cli.options import (
    add_window_options,
    check_files,
    check_free,
    parse_sensor,
    read_numbers,
    read_seconds,
    read_windows,
)
from event2vec.cli.parser import Parser, at_least, existing, file_to_write, number, positive, share, whole_number


@pytest.fixture
def parser():
    parser = Parser("fly", "Fly.\n\n    event2vec fly high    as it is written here")
    parser.add_argument("where", metavar="WHERE", help="up or down")
    parser.add_argument("--height", type=int, default=3, metavar="M", help="metres")
    parser.add_argument("--speed", type=float, help="metres a second")
    parser.add_argument("--style", choices=["calm", "wild"], default="calm", help="how")
    parser.add_argument("--loud", action="store_true", help="with noise")
    return parser


def test_options_are_read_with_their_types(parser):
    options = parser.parse(["up", "--height", "7", "--speed=0.5", "--loud"])
    assert options == Namespace(where="up", height=7, speed=0.5, style="calm", loud=True)
    assert parser.parse(["--", "--height"]).where == "--height", "what follows -- is no option"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["up", "--hight", "7"], "unknown option --hight (did you mean --height?). See 'event2vec fly --help'"),
        (["--hight=7"], "unknown option --hight (did you mean --height?)"),
        (["up", "--he", "7"], "unknown option --he"),
        (["up", "down"], "unexpected argument 'down'; put options after the other arguments"),
        (["up", "-x", "7"], "unknown option '-x'. See 'event2vec fly --help'"),
        (["-v", "up"], "unknown option '-v'. See 'event2vec fly --help'"),
        (["up", "-3"], "unexpected argument '-3'; put options after the other arguments"),
        (["up", "-"], "unexpected argument '-'; put options after the other arguments"),
        (["up", "--height", "high"], "--height: must be a whole number, got 'high'"),
        (["up", "--style", "clam"], "--style: must be one of calm, wild, got 'clam' (did you mean calm?)"),
        ([], "WHERE is required: up or down. See 'event2vec fly --help'"),
        (["up", "--height", "x" * 5000], "--height: must be a whole number, got 'xxx"),
    ],
)
def test_a_wrong_call_is_one_short_line(parser, arguments, message):
    with pytest.raises(Event2VecError) as wrong:
        parser.parse(arguments)
    assert message in str(wrong.value)
    assert len(str(wrong.value)) < 400
    assert "\n" not in str(wrong.value)


def test_help_keeps_its_lines_and_shows_defaults(parser):
    shown = parser.format_help()
    assert "    event2vec fly high    as it is written here" in shown
    assert "metres (default: 3)" in shown
    assert "how (default: calm)" in shown
    assert "metres a second\n" in shown, "without a default there is none to show"
    assert "with noise\n" in shown, "a switch is off unless it is given"


@pytest.mark.parametrize(
    ("read", "good", "found"),
    [
        (whole_number, " 12 ", 12),
        (whole_number, "-3", -3),
        (number, "1e-3", 0.001),
        (at_least(2), "2", 2),
        (positive, "0.5", 0.5),
        (share, "0", 0.0),
        (share, "1", 1.0),
        (existing("this file"), __file__, __file__),
        (file_to_write, "new.html", "new.html"),
    ],
)
def test_a_value_that_fits_is_taken(read, good, found):
    assert read(good) == found


@pytest.mark.parametrize(
    ("read", "wrong", "message"),
    [
        (whole_number, "1_000", "must be a whole number"),
        (whole_number, "1.5", "must be a whole number"),
        (whole_number, "9" * 16, "must be a whole number"),
        (number, "inf", "must be a number"),
        (number, "one", "must be a number"),
        (at_least(2), "1", "must be at least 2, got 1"),
        (positive, "0", "must be above 0, got 0"),
        (share, "1.5", "must be from 0 to 1, got 1.5"),
        (share, "-0.1", "must be from 0 to 1, got -0.1"),
        (existing("a run"), "/nowhere", "/nowhere does not exist, expected a run"),
        (file_to_write, "/", "/ is a folder, expected the name of a file to write"),
    ],
)
def test_a_value_that_does_not_fit_says_what_would(read, wrong, message):
    with pytest.raises(ArgumentTypeError, match=message):
        read(wrong)


def test_lists_have_commas():
    assert read_numbers("1, 2,4", "events", least=1) == [1, 2, 4]
    assert read_seconds("0.1, 2,.5", "windows") == [0.1, 2.0, 0.5]
    for wrong in ("", "1,,2", "0", "1;2", "1.5", "9" * 10):
        with pytest.raises(Event2VecError, match="--events takes whole numbers of at least 1"):
            read_numbers(wrong, "events", least=1)
    for wrong in ("", "0", "-1", "1,,2", "1e3", "0.0"):
        with pytest.raises(Event2VecError, match="--windows takes seconds above 0"):
            read_seconds(wrong, "windows")


def test_a_sensor_is_written_as_two_numbers():
    assert parse_sensor("346x260") == Sensor(346, 260)
    assert parse_sensor(None) is None
    with pytest.raises(Event2VecError, match="--sensor: a sensor must be WIDTHxHEIGHT"):
        parse_sensor("346")


def windows_of(*arguments):
    parser = Parser("cut", None)
    add_window_options(parser)
    return read_windows(parser.parse(list(arguments)))


def test_windows_are_asked_for_by_time_or_by_events():
    assert windows_of() is None
    half = windows_of("--window", "0.5", "--stride", "0.25", "--min-events", "7")
    assert (half.window, half.stride, half.min_events) == (0.5, 0.25, 7)
    assert windows_of("--window-events", "1000").window_events == 1000
    with pytest.raises(Event2VecError, match="windows: "):
        windows_of("--stride", "0.5")


def test_what_exists_is_not_replaced_unasked(tmp_path):
    check_free(str(tmp_path / "new"), overwrite=False, name="--out")
    check_free(str(tmp_path), overwrite=True, name="--out")
    with pytest.raises(Event2VecError, match=r"exists already. Choose another --out or add --overwrite"):
        check_free(str(tmp_path), overwrite=False, name="--out")


def test_files_are_refused_at_once_only_if_none_is_there():
    check_files(["nowhere", __file__], json=False)
    check_files(["nowhere"], json=True)
    with pytest.raises(Event2VecError, match=r"nowhere: does not exist. Check the name and the folder"):
        check_files(["nowhere", "neither"], json=False)
