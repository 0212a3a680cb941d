"""Text that people and other programs write: every line is an event, a comment or an error, and none is lost."""

import numpy as np
import pytest
from conftest import assert_same, make_recording

from event2vec import Event2VecError, Event2VecWarning, Events, Sensor, read_chunks, read_events, write_events
from event2vec.io import read_recording, text

ROWS = "1 2 3 1\n5 4 3 0\n9 6 3 1\n"


@pytest.fixture
def written(tmp_path):
    """A file with this content, as its path."""

    def write(content, suffix=".txt"):
        path = tmp_path / f"a{suffix}"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def columns_of(events):
    return {name: getattr(events, name).tolist() for name in "xytp"}


def in_pieces(path, segment=20, **options):
    """The same recording, read some lines at a time."""
    return Events.join(list(read_chunks(path, segment=segment, **options)))


class TestBeforeTheEvents:
    @pytest.mark.parametrize("length", [text.LONGEST_HEAD - 3, text.LONGEST_HEAD - 2, text.LONGEST_HEAD, 20_000])
    def test_a_long_comment_costs_no_event(self, length, written):
        """Lines are read in bounded pieces; the pieces of one line must not count as several."""
        path = written("# " + "x" * length + "\n" + ROWS)
        for options in ({}, {"columns": "txyp"}):
            assert read_events(path, **options).t.tolist() == [0, 4, 8]
            assert_same(in_pieces(path, **options), read_events(path, **options))

    def test_numbers_in_the_rest_of_a_long_comment_are_no_event(self, written):
        assert read_events(written("#" + " 7" * 5000 + "\n" + ROWS)).t.tolist() == [0, 4, 8]

    def test_numbers_must_begin_in_the_first_64_lines(self, written):
        comments = "# a\n" * (text.HEADER_LINES - 1)
        assert len(read_events(written(comments + ROWS))) == 3
        with pytest.raises(Event2VecError, match="has no numbers in its first 64 lines; expected t x y p on each line"):
            read_events(written(comments + "# a\n" + ROWS))

    def test_empty_lines_before_and_between_rows_are_skipped(self, written):
        path = written("\n\n# by us\n\n" + ROWS.replace("\n", "\n\n"))
        assert columns_of(read_events(path))["t"] == [0, 4, 8]
        assert_same(in_pieces(path), read_events(path))

    def test_a_mark_of_byte_order_is_no_part_of_the_first_name(self, written):
        path = written("\ufefft,x,y,p\n" + ROWS.replace(" ", ","))
        assert columns_of(read_events(path)) == {"x": [2, 4, 6], "y": [3, 3, 3], "t": [0, 4, 8], "p": [1, 0, 1]}

    @pytest.mark.parametrize(
        ("first", "sensor"),
        [
            ("640 480", Sensor(640, 480)),
            ("% sensor 12x9", Sensor(12, 9)),
            ("#sensor   12x9", Sensor(12, 9)),
            ("# sensor 65536x1024", Sensor(65536, 1024)),
        ],
    )
    def test_a_size_is_width_then_height(self, first, sensor, written):
        recording = read_recording(written(f"{first}\n{ROWS}"))
        assert (recording.events.sensor, recording.sensor_declared) == (sensor, True)
        assert len(recording.events) == 3

    @pytest.mark.parametrize(("first", "found"), [("0 480", "0 x 480"), ("640 0", "640 x 0"), ("65537 2", "65537 x 2")])
    def test_a_size_that_no_sensor_has_is_named(self, first, found, written):
        with pytest.raises(Event2VecError, match=f"names a sensor of {found} pixels, expected 1 to 65536 per side"):
            read_events(written(f"{first}\n{ROWS}"))

    def test_two_numbers_further_down_are_a_short_row_and_no_size(self, written):
        with pytest.raises(Event2VecError, match="has 2 columns, expected at least 4"):
            read_events(written("# by us\n640 480\n" + ROWS))

    def test_names_in_a_comment_name_the_columns_and_other_comments_do_not(self, written):
        path = written("# of a walk\n# p t y x\n1 5 3 2\n0 8 4 6\n")
        assert columns_of(read_events(path)) == {"x": [2, 6], "y": [3, 4], "t": [0, 3], "p": [True, False]}

    def test_columns_that_are_given_override_a_header_and_let_other_first_lines_pass(self, written):
        path = written("walk of Anna\nt x y p\n1 2 3 1\n0 4 3 5\n")
        assert columns_of(read_events(path, columns="pxyt")) == {"x": [2, 4], "y": [3, 3], "t": [0, 4], "p": [1, 0]}

    @pytest.mark.parametrize("columns", ["txypp", "txyq", "TXYP", "", "xyt"])
    def test_an_order_that_does_not_name_each_column_once_is_refused(self, columns, written):
        with pytest.raises(Event2VecError, match="must name each of t, x, y, p once, such as txyp"):
            read_events(written(ROWS), columns=columns)

    def test_a_header_alone_needs_a_sensor_to_be_a_recording(self, written):
        assert len(read_events(written("# sensor 8x6\nt x y p\n"))) == 0
        with pytest.raises(Event2VecError, match=r"holds no events and does not name its sensor\. Set the sensor size"):
            read_events(written("t x y p\n"))


class TestRows:
    def test_further_columns_are_ignored(self, written):
        assert columns_of(read_events(written("1 2 3 1 77 abc\n5 4 3 0 78 def\n"))) == {
            "x": [2, 4],
            "y": [3, 3],
            "t": [0, 4],
            "p": [True, False],
        }

    @pytest.mark.parametrize(
        ("unit", "found"), [(None, [0, 250_000]), ("s", [0, 250_000]), ("ms", [0, 250]), ("us", [0, 1])]
    )
    def test_a_unit_that_is_given_wins_over_the_decimal_point(self, unit, found, written):
        assert read_events(written("0.5 1 1 1\n0.75 1 1 1\n"), time_unit=unit).t.tolist() == found

    def test_whole_seconds_are_seconds_if_they_have_a_point(self, written):
        path = written("# sensor 8x8\n5.0 1 1 1\n7.0 1 1 1\n")
        assert read_events(path).t.tolist() == in_pieces(path, 1).t.tolist() == [0, 2_000_000]
        assert read_events(written("5 1 1 1\n7 1 1.0 1\n")).t.tolist() == [0, 2], "the point of another column is none"

    def test_pixels_between_pixels_are_kept(self, written):
        path = written("# sensor 8x6\n1 2.5 0.25 1\n5 7 5 0\n")
        assert columns_of(read_events(path)) == {"x": [2.5, 7.0], "y": [0.25, 5.0], "t": [0, 4], "p": [True, False]}

    def test_windows_line_ends_are_line_ends(self, written):
        path = written("# sensor 8x8\r\n" + ROWS.replace("\n", "\r\n"))
        assert_same(read_events(path), read_events(written("# sensor 8x8\n" + ROWS, ".csv")))
        assert_same(in_pieces(path), read_events(path))

    @pytest.mark.parametrize("letter", ["Å", "…", "\x1c"])
    def test_a_letter_whose_bytes_end_lines_elsewhere_ends_none_here(self, letter, written):
        """Å is C3 85 in UTF-8, and 85 alone is a line end to Python's `splitlines`."""
        path = written(f"# {letter}ngström\n{ROWS[:-1]}  # {letter}\n")
        assert read_events(path).t.tolist() == [0, 4, 8]
        assert_same(in_pieces(path), read_events(path))
        with pytest.warns(Event2VecWarning, match="the last line is truncated: 2 bytes at the end were ignored"):
            assert read_events(written(f"# {letter}ngström\n{ROWS}9 ")).t.tolist() == [0, 4, 8]

    def test_only_a_last_line_without_its_end_can_be_cut_short(self, written):
        with pytest.raises(Event2VecError, match="is not a table of numbers"):
            read_events(written(ROWS + "9 2\n"))
        with pytest.warns(Event2VecWarning, match="3 bytes at the end were ignored"):
            assert len(read_events(written(ROWS + "9 2"))) == 3
        assert len(read_events(written(ROWS + "9 2 3 1"))) == 4, "whole, though its end is missing"
        assert len(read_events(written(ROWS + "  "))) == 3, "and blanks are no line"

    @pytest.mark.parametrize("row", ["nan 1 1 1", "5 nan 1 1", "5 1 inf 1", "5 1 1 nan", "1e30 1 1 1"])
    def test_what_is_no_number_is_refused_whole_or_in_pieces(self, row, written):
        path = written(f"# sensor 8x8\n{ROWS}{row}\n")
        for read in (read_events, in_pieces):
            with pytest.raises(Event2VecError):
                read(path)


class TestPieces:
    @pytest.mark.parametrize("segment", [1, 7, 8, 9, 64])
    def test_a_piece_ends_with_a_line_wherever_it_is_cut(self, segment, written):
        path = written(
            "# sensor 34x30\n" + "".join(f"{t} {t % 34} {t % 30} {t % 2}\n" for t in range(0, 400_000, 8000))
        )
        assert_same(in_pieces(path, segment), read_events(path))

    def test_seconds_are_seconds_in_every_piece(self, written):
        rows = "".join(f"{t / 10:.1f} 1 2 1\n" for t in range(40))
        path = written("# sensor 8x8\n" + rows.replace(".0 ", ".00 "))
        assert_same(in_pieces(path), read_events(path))
        assert in_pieces(path).duration == 3_900_000

    def test_a_piece_with_wrong_polarities_is_not_said_to_need_a_sensor(self, written):
        """In one piece or in many: the same words, and the remedy that fits."""
        path = written("".join(f"{t} 1 2 2\n" for t in range(0, 400_000, 1000)))
        for read in (read_events, in_pieces):
            with pytest.raises(
                Event2VecError, match=r"got 2\. The file is damaged or not in the format it seems to be"
            ):
                read(path)
        path = written("".join(f"{t} 9 2 1\n" for t in range(0, 400_000, 1000)))
        for read in (read_events, in_pieces):
            with pytest.raises(Event2VecError, match=r"which is 8x8\. Set the sensor size with `sensor`"):
                read(path, sensor="8x8")


@pytest.mark.parametrize(
    ("suffix", "lines"),
    [
        (".csv", ["# sensor 12x9", "t,x,y,p", "0,3,1,1", "1000000,5,0,0"]),
        (".txt", ["# sensor 12x9", "t x y p", "0 3 1 1", "1000000 5 0 0"]),
    ],
)
def test_what_is_written_can_be_read_by_eye(suffix, lines, tmp_path):
    events = Events.from_arrays([3, 5], [1, 0], [7, 1_000_007], [1, 0], sensor=(12, 9))
    write_events(tmp_path / f"a{suffix}", events)
    assert (tmp_path / f"a{suffix}").read_text().splitlines() == lines


def test_numpy_reads_what_is_written(tmp_path):
    events = make_recording(40)
    write_events(tmp_path / "a.csv", events)
    t, x, y, p = np.loadtxt(tmp_path / "a.csv", delimiter=",", skiprows=2).T
    np.testing.assert_array_equal(np.stack([x, y, t, p]), [getattr(events, name).numpy() for name in "xytp"])
