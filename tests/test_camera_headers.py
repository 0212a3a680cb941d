"""What the headers of cameras' files say, and how single records are read: sizes, encodings, bits."""

import struct
from tempfile import NamedTemporaryFile

import encoders
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from event2vec import Event2VecError, Event2VecWarning, Sensor, read_events
from event2vec.io import aedat, detect_format, read_recording
from event2vec.io.aedat import CHIPS, read_aedat2_header
from event2vec.io.atis import OVERFLOW_ROW
from event2vec.io.prophesee import GENERATIONS, LINE_LIMIT, read_header
from event2vec.io.segments import Segment, header_length, misplaced


@pytest.fixture
def write(tmp_path):
    def write(content, name="a.raw"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode("latin-1"))
        return path

    return write


class TestProphesee:
    @pytest.mark.parametrize(
        ("lines", "encoding", "sensor"),
        [
            ("% evt 2.0\n% geometry 64x48\n", "evt2", (64, 48)),
            ("% evt 2.1\n% geometry 64 x 48\n", "evt21", (64, 48)),
            ("% evt 3.0\n% width 64\n% height 48\n", "evt3", (64, 48)),
            ("% format EVT3;height=48;width=64\n", "evt3", (64, 48)),
            ("% format EVT21 ;width=64;height=48;endianness=legacy\n", "evt21", (64, 48)),
            ("% evt 2.0\n% format EVT3;width=9\n", "evt3", None),
            ("% Version 2\n% Height 48\n% Width 64\n", "dat", (64, 48)),
            ("% Data file containing CD events.\n", "dat", None),
            ("% Date 2024-01-01\n", "", None),
            ("% evt 3.0\n% geometry 64x480000\n", "evt3", None),
            ("% evt 3.0\n% geometry 0x48\n", "evt3", None),
            ("% evt 3.0\n% geometry wide\n% width 64\n% height 48\n", "evt3", None),
            ("", "", None),
        ],
    )
    def test_the_encoding_and_the_size_are_read_from_any_of_their_fields(self, lines, encoding, sensor, write):
        header = read_header(write(lines + "% end\n\0\0\0\0"))
        assert (header.encoding, header.sensor) == (encoding, sensor and Sensor(*sensor))
        assert header.length == len(lines) + len("% end\n")
        assert header.swapped is ("legacy" in lines)

    @pytest.mark.parametrize(("name", "sensor"), GENERATIONS)
    def test_an_old_recording_is_known_by_its_plug_in_or_sensor_name(self, name, sensor, write):
        for field in ("plugin_name", "sensor_name"):
            assert read_header(write(f"% evt 2.0\n% {field} HAL_{name.upper()}_x\n")).sensor == sensor
        size = read_header(write(f"% geometry 64x48\n% plugin_name {name}\n")).sensor
        assert size == Sensor(64, 48), "a size comes before a name"

    def test_the_first_of_two_lines_of_one_name_counts(self, write):
        assert read_header(write("% geometry 64x48\n% geometry 9x9\n")).sensor == Sensor(64, 48)

    @pytest.mark.parametrize("after", [b"%\0\0\x80", b"% \x01\x02\n", b"\0", b"%evt 3.0\n", b""])
    def test_the_header_ends_at_the_first_line_that_is_none(self, after, write):
        lines = b"% evt 2.0\r\n%  date 2024\n"
        assert read_header(write(lines + after)).length == len(lines)

    def test_a_header_goes_on_after_a_long_line_and_not_after_its_end(self, write):
        lines = b"% note " + b"x" * (LINE_LIMIT - 8) + b"\n% geometry 64x48\n% end\n"
        header = read_header(write(lines + b"% geometry 9x9\n"))
        assert (header.sensor, header.length) == (Sensor(64, 48), len(lines))

    def test_an_event_on_the_last_pixel_of_a_group_is_read(self, write):
        """EVT2.1 has 32 pixels in a word: both ends of the mask, both polarities, and an empty mask."""
        words = [8 << 60 | 1 << 32]
        words += [kind << 60 | 5 << 54 | 64 << 43 | 7 << 32 | mask for kind, mask in ((0, 1), (1, 1 << 31), (1, 0))]
        path = write(b"% evt 2.1\n% geometry 2048x2048\n% end\n" + np.array(words, "<u8").tobytes())
        events = read_events(path)
        assert (events.x.tolist(), events.y.tolist(), events.p.tolist()) == ([64, 95], [7, 7], [False, True])
        assert read_recording(path).start == 64 + 5

    @pytest.mark.parametrize("words", [[], [8 << 60 | 1 << 32], [14 << 60]])
    def test_words_without_any_event_are_a_recording_without_events(self, words, write):
        path = write(b"% evt 2.1\n% geometry 64x48\n% end\n" + np.array(words, "<u8").tobytes())
        assert len(read_events(path)) == 0

    def test_dat_of_another_kind_of_record_is_named_by_its_size(self, write):
        with pytest.raises(Event2VecError, match=r"has DAT records of 12 bytes, expected 8 .brightness changes"):
            read_events(write(b"% Version 2\n% end\n\x0e\x0c" + b"\0" * 24, "a.dat"))


class TestAedat2:
    def davis(self, chip, addresses):
        records = b"".join(struct.pack(">II", address, t) for t, address in enumerate(addresses))
        return b"#!AER-DAT2.0\r\n# AEChip: eu.seebetter." + chip.encode() + b"\r\n" + records

    @pytest.mark.parametrize(("name", "sensor"), [(name, CHIPS[name]) for name in CHIPS if name.startswith("davis")])
    def test_the_corners_of_every_davis_are_in_its_corners(self, name, sensor, write):
        right, top = sensor.width - 1, sensor.height - 1
        addresses = [top << 22, right << 12 | 1 << 11, top << 22 | right << 12]
        events = read_events(write(self.davis(name.upper() + "B", addresses), "a.aedat"))
        assert events.sensor == sensor
        assert events.x.tolist() == [0, right, right]
        assert events.y.tolist() == [0, top, 0], "rows are counted from the bottom"
        assert events.p.tolist() == [False, True, False]

    @given(st.lists(st.tuples(st.integers(0, 127), st.integers(0, 127), st.booleans()), min_size=1, max_size=20))
    def test_every_pixel_of_a_dvs128_is_where_it_is(self, pixels):
        address = np.array([(127 - y) << 8 | (127 - x) << 1 | (not p) for x, y, p in pixels], np.uint32)
        x, y, t, p = aedat._decode_dvs128(None, address, np.arange(len(pixels)), Sensor(128, 128))  # type: ignore[arg-type]
        assert list(zip(x.tolist(), y.tolist(), p.tolist(), strict=True)) == pixels
        assert t.tolist() == list(range(len(pixels)))

    def test_an_unnamed_camera_is_a_dvs128_as_far_as_its_addresses_have_16_bits(self, write):
        narrow = write(b"#!AER-DAT2.0\r\n" + struct.pack(">II", 0x7FFF, 5), "a.aedat")
        assert (read_events(narrow).sensor, read_events(narrow).x.tolist()) == (Sensor(128, 128), [0])
        wide = write(b"#!AER-DAT2.0\r\n" + struct.pack(">II", 0x10000, 5), "a.aedat")
        with pytest.raises(Event2VecError, match=r"is AEDAT 2\.0 from an unnamed camera, expected one of davis346"):
            read_events(wide)

    def test_a_named_dvs128_with_wide_addresses_is_refused(self, write):
        data = b"#!AER-DAT2.0\r\n# AEChip: DVS128\r\n" + struct.pack(">II", 0xABCDE, 5)
        with pytest.raises(Event2VecError, match=r"has the address 0xabcde, but a DVS128 has 16 bits. Is it another"):
            read_events(write(data, "a.aedat"))

    @pytest.mark.parametrize(
        ("line", "chip"), [("# AEChip: a.b.DAVIS346B", "DAVIS346B"), ("#AEChip:X", "X"), ("# chip: X", ""), ("#", "")]
    )
    def test_the_camera_is_the_last_part_of_its_class(self, line, chip, write):
        header = read_aedat2_header(write(f"#!AER-DAT2.0\r\n{line}\r\n\0\1\2", "a.aedat"))
        assert (header.chip, header.length) == (chip, len(f"#!AER-DAT2.0\r\n{line}\r\n"))


class TestAedat31:
    HEADER = b"#!AER-DAT3.1\r\n#Source 1: DAVIS240C\r\n#!END-HEADER\r\n"

    def packet(self, count, capacity=None, kind=1, width=8, overflow=0, times=None):
        events = b"".join(
            struct.pack("<Ii", (n + 1) << 17 | 3 << 2 | 3, time) for n, time in enumerate(times or range(count))
        )
        capacity = count if capacity is None else capacity
        header = struct.pack("<hhiiiiii", kind, 1, width, 4, overflow, capacity, count, count)
        return header + events + b"\0" * (width * capacity - len(events))

    def test_a_packet_may_have_room_for_more_events_than_it_holds(self, write):
        events = read_events(write(self.HEADER + self.packet(2, capacity=5) + self.packet(1, times=[9]), "a.aedat"))
        assert (events.t.tolist(), events.x.tolist(), events.sensor) == ([0, 1, 9], [1, 2, 1], Sensor(240, 180))

    def test_an_empty_packet_and_packets_of_other_kinds_hold_nothing(self, write):
        data = self.HEADER + self.packet(0) + self.packet(2, kind=2, width=12) + self.packet(1)
        assert len(read_events(write(data, "a.aedat"))) == 1
        assert len(read_events(write(self.HEADER, "a.aedat"))) == 0

    @pytest.mark.parametrize(
        ("packet", "problem"),
        [
            ({"count": 3, "capacity": 2}, "has a broken packet at byte 50: 3 events of 8 bytes, capacity 2. The file"),
            ({"count": 1, "width": 0, "capacity": 1}, "broken packet at byte 50: 1 event of 0 bytes"),
            ({"count": 1, "overflow": -1}, "has a broken packet at byte 50"),
            ({"count": 1, "width": 12}, "has polarity events of 12 bytes at byte 50, expected 8"),
        ],
    )
    def test_a_packet_that_cannot_be_is_placed(self, packet, problem, write):
        assert len(self.HEADER) == 50
        with pytest.raises(Event2VecError, match=problem):
            read_events(write(self.HEADER + self.packet(**packet), "a.aedat"))

    @pytest.mark.parametrize("cut", [1, 27])
    def test_a_header_of_a_packet_that_is_cut_short_is_left_out_and_said(self, cut, write):
        data = self.HEADER + self.packet(2) + self.packet(1)[:cut]
        said = "1 byte at the end was" if cut == 1 else "27 bytes at the end were"
        with pytest.warns(Event2VecWarning, match=f"the last packet is truncated: {said} ignored"):
            assert len(read_events(write(data, "a.aedat"))) == 2


class TestAtis:
    def record(self, x, y, p, t):
        return bytes([x, y, p << 7 | t >> 16, t >> 8 & 255, t & 255])

    @given(
        st.lists(
            st.tuples(
                st.integers(0, 255),
                st.integers(0, OVERFLOW_ROW - 1),
                st.booleans(),
                st.integers(0, 2**23 - 1),
            ),
            min_size=1,
            max_size=10,
        )
    )
    def test_every_bit_is_where_it_belongs(self, rows):
        rows = sorted(rows, key=lambda row: row[3])
        with NamedTemporaryFile(suffix=".bin") as file:
            file.write(b"".join(self.record(*row) for row in rows))
            file.flush()
            events = read_events(file.name)
        assert list(zip(*(getattr(events, name).tolist() for name in "xyp"), strict=True)) == [row[:3] for row in rows]
        assert events.t.tolist() == [row[3] - rows[0][3] for row in rows]

    @pytest.mark.parametrize(
        ("x", "y", "sensor", "declared"),
        [(33, 33, (34, 34), True), (34, 3, (35, 4), False), (3, 34, (4, 35), False), (0, 0, (34, 34), True)],
    )
    def test_pictures_of_34_pixels_are_those_of_nmnist(self, x, y, sensor, declared, write):
        recording = read_recording(write(self.record(x, y, 1, 5), "a.bin"))
        assert (recording.events.sensor, recording.sensor_declared) == (Sensor(*sensor), declared)

    def test_a_file_of_overflows_alone_has_no_events(self, write):
        assert len(read_events(write(self.record(0, OVERFLOW_ROW, 0, 0), "a.bin"))) == 0


class TestFormats:
    @pytest.mark.parametrize(
        ("name", "content", "format"),
        [
            ("a.xyz", b"#!AER-DAT2.0\r\n", "aedat2"),
            ("a.AEDAT", b"# made by jAER\r\n", "aedat2"),
            ("a.txt", b"# made by hand\n", "text"),
            ("a.CSV", b"1,2,3,1\n", "text"),
            ("a.raw", b"% evt 3.0\n% end\n", "evt3"),
            ("a.dat", b"% evt 2.1\n% end\n", "evt21"),
            ("a.dat", b"\0\x08\0\0", "dat"),
            ("a.txt", b"% evt 3.0\n1 2 3 1\n", "text"),
            ("a.BIN", b"\0" * 5, "atis"),
            ("a.mat", b"anything", "mat"),
            ("a.xyz", b"MATLAB 7.3 MAT-file", "hdf5"),
            ("a.xyz", b"MATLAB 5.0 MAT-file", "mat"),
            ("a.bin", b"PK\x05\x06", "npz"),
        ],
    )
    def test_the_first_bytes_decide_and_then_the_suffix(self, name, content, format, write):
        assert detect_format(write(content, name)) == format

    @pytest.mark.parametrize(
        ("name", "content"), [("a.raw", b"\0\0\0\0"), ("a", b"1 2 3 1\n"), ("a.log", b"% Date 2024\n")]
    )
    def test_what_is_neither_is_shown_by_its_beginning(self, name, content, write):
        with pytest.raises(Event2VecError) as caught:
            detect_format(write(content, name))
        assert f"begins with {content[:8]!r}, which is not a known format. Supported: AEDAT 2.0" in str(caught.value)


class TestSegments:
    @pytest.mark.parametrize("name", ["aedat2_dvs128", "aedat31", "aedat4", "evt2", "evt3", "dat"])
    def test_the_first_record_comes_after_the_header(self, name, tmp_path):
        path = encoders.write(name, tmp_path)
        length = header_length(path, detect_format(path))
        assert 0 < length < path.stat().st_size
        if name == "dat":
            assert path.read_bytes()[length - 2 : length] == b"\x0c\x08"
        if name == "aedat31":
            assert path.read_bytes()[:length].endswith(b"#!END-HEADER\r\n")

    def test_a_piece_is_the_header_then_what_is_remembered_then_the_part(self, tmp_path):
        source = tmp_path / "source"
        source.write_bytes(b"HEADabcdefgh")
        with source.open("rb") as file:
            Segment(6, 9, b"..").write(file, 4, tmp_path / "piece")
        assert (tmp_path / "piece").read_bytes() == b"HEAD..cde"

    def test_an_error_in_a_later_piece_has_its_place(self, tmp_path):
        from event2vec.errors import FileError

        error = FileError(tmp_path / "piece.raw", "is odd")
        assert str(misplaced(error, tmp_path / "a.raw", Segment(1_234_567, 9))) == (
            f"{tmp_path}/a.raw: is odd (in the part from byte 1,234,567 on)"
        )
        assert misplaced(error, tmp_path / "a.raw", Segment(0, 9)).problem == "is odd"
