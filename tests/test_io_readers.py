"""What single readers promise beyond giving back what was encoded."""

import struct

import encoders
import h5py
import numpy as np
import pytest
import scipy.io
from conftest import assert_same

from event2vec import Event2VecError, Event2VecWarning, Sensor, read_events, write_events
from event2vec.io import read_recording

PIXEL = b"\x00\x00\x00\x02"  # DVS128: one pixel to the left of the right edge, bottom row


def dvs128(path, events, chip=b"# AEChip: DVS128\r\n"):
    path.write_bytes(b"#!AER-DAT2.0\r\n" + chip + b"".join(address + struct.pack(">I", t) for address, t in events))
    return path


class TestAedat2:
    def test_a_clock_that_wraps_goes_on(self, tmp_path):
        recording = read_recording(dvs128(tmp_path / "a.aedat", [(PIXEL, 2**32 - 10), (PIXEL, 5), (PIXEL, 7)]))
        assert recording.events.t.tolist() == [0, 15, 17]
        assert recording.start == 2**32 - 10

    def test_rows_count_from_the_top_and_columns_from_the_left(self, tmp_path):
        events = read_events(dvs128(tmp_path / "a.aedat", [(PIXEL, 0)]))
        assert (events.x.tolist(), events.y.tolist(), events.p.tolist()) == ([126], [127], [True])

    def test_events_that_are_no_pixels_are_left_out(self, tmp_path):
        assert len(read_events(dvs128(tmp_path / "a.aedat", [(PIXEL, 0), (b"\0\0\x80\0", 1), (PIXEL, 2)]))) == 2

    def test_a_header_without_a_chip_is_a_dvs128_when_addresses_fit(self, tmp_path):
        assert read_events(dvs128(tmp_path / "a.aedat", [(PIXEL, 0)], chip=b"")).sensor == Sensor(128, 128)

    def test_an_unknown_chip_is_named(self, tmp_path):
        path = dvs128(tmp_path / "a.aedat", [(PIXEL, 0)], chip=b"# AEChip: cochlea.CochleaAMS1c\r\n")
        with pytest.raises(Event2VecError, match=r"camera called 'CochleaAMS1c', expected one of davis346"):
            read_events(path)

    def test_an_event_that_looks_like_a_header_line_is_an_event(self, tmp_path):
        """Row 39 from the bottom of a DAVIS begins with the byte of #."""
        address = struct.pack(">I", 140 << 22 | 17 << 12 | 1 << 11)
        assert address[:1] == b"#"
        events = b"".join(address + struct.pack(">I", t) for t in range(10, 50))
        for end in (b"", b"#End Of ASCII Header\r\n"):
            path = tmp_path / "a.aedat"
            path.write_bytes(b"#!AER-DAT2.0\r\n# AEChip: DAVIS240C\r\n" + end + events)
            read = read_events(path)
            assert len(read) == 40
            assert (read.x[0].item(), read.y[0].item(), read.p[0].item()) == (17, 39, True)

    def test_frames_and_measurements_of_a_davis_are_left_out(self, tmp_path):
        addresses = [1 << 31 | 5 << 22, 1 << 10, 3 << 22]
        path = tmp_path / "a.aedat"
        records = b"".join(struct.pack(">II", address, t) for t, address in enumerate(addresses))
        path.write_bytes(b"#!AER-DAT2.0\r\n# AEChip: DAVIS346B\r\n" + records)
        assert read_events(path).y.tolist() == [260 - 1 - 3]


class TestAedat31:
    HEADER = b"#!AER-DAT3.1\r\n#Source 1: DVS128\r\n#!END-HEADER\r\n"

    def event(self, t, valid=1):
        return struct.pack("<Ii", 5 << 17 | 6 << 2 | 2 | valid, t)

    def test_overflows_carry_the_clock_on_and_invalid_events_are_left_out(self, tmp_path):
        path = tmp_path / "a.aedat"
        first = encoders.aedat31_packet(1, self.event(2**31 - 1) + self.event(0, valid=0), 2)
        second = encoders.aedat31_packet(1, self.event(4), 1, overflow=1)
        path.write_bytes(self.HEADER + first + second)
        events = read_events(path)
        assert events.t.tolist() == [0, 5]
        assert (events.x.tolist(), events.y.tolist(), events.p.tolist()) == ([5, 5], [6, 6], [True, True])

    def test_whole_events_of_a_cut_packet_are_kept(self, tmp_path):
        path = tmp_path / "a.aedat"
        path.write_bytes(self.HEADER + encoders.aedat31_packet(1, b"".join(map(self.event, range(9))), 9)[:-13])
        with pytest.warns(Event2VecWarning, match="3 bytes at the end were ignored"):
            assert len(read_events(path)) == 7

    def test_a_broken_packet_is_placed(self, tmp_path):
        path = tmp_path / "a.aedat"
        path.write_bytes(self.HEADER + encoders.aedat31_packet(1, self.event(1), -5))
        with pytest.raises(Event2VecError, match=f"broken packet at byte {len(self.HEADER)}: -5 events"):
            read_events(path)

    def test_unix_line_ends_are_read_and_other_codings_named(self, tmp_path):
        path = tmp_path / "a.aedat"
        packet = encoders.aedat31_packet(1, self.event(3), 1)
        path.write_bytes(self.HEADER.replace(b"\r\n", b"\n") + packet)
        assert len(read_events(path)) == 1
        path.write_bytes(self.HEADER.replace(b"#Source", b"#Format: SerialTS\r\n#Source") + packet)
        with pytest.raises(Event2VecError, match="in the format SerialTS, expected RAW"):
            read_events(path)

    def test_a_header_without_an_end_is_an_error(self, tmp_path):
        path = tmp_path / "a.aedat"
        path.write_bytes(b"#!AER-DAT3.1\r\n")
        with pytest.raises(Event2VecError, match="END-HEADER"):
            read_events(path)


class TestEvt21:
    def words(self, path, words):
        path.write_bytes(b"% evt 2.1\n% geometry 64x8\n% end\n" + np.array(words, "<u8").tobytes())
        return path

    def test_each_bit_of_the_mask_is_a_pixel_to_the_right(self, tmp_path):
        path = self.words(tmp_path / "a.raw", [8 << 60 | 1 << 32, 1 << 60 | 3 << 54 | 32 << 43 | 5 << 32 | 0x80000005])
        events = read_events(path)
        assert events.x.tolist() == [32, 34, 63]
        assert events.y.tolist() == [5, 5, 5]
        assert events.p.all()
        assert read_recording(path).start == 64 + 3

    def test_a_clock_that_wraps_goes_on_and_other_words_are_skipped(self, tmp_path):
        last = 0xFFFFFFF
        pixel = 2 << 32 | 1
        path = self.words(tmp_path / "a.raw", [8 << 60 | last << 32, pixel, 14 << 60, 8 << 60, pixel])
        assert read_events(path).t.tolist() == [0, 64]

    def test_words_before_the_first_time_stamp_are_reported(self, tmp_path):
        path = self.words(tmp_path / "a.raw", [1, 8 << 60 | 1 << 32, 1])
        with pytest.warns(Event2VecWarning, match="words before the first timestamp were ignored: 1"):
            assert len(read_events(path)) == 1

    def test_without_any_time_stamp_it_is_an_error(self, tmp_path):
        with pytest.raises(Event2VecError, match="no timestamp"):
            read_events(self.words(tmp_path / "a.raw", [1, 1]))

    def test_the_swapped_words_of_an_imx636_are_read(self, tmp_path):
        encoders.evt21(tmp_path / "plain.raw")
        encoders.evt21(tmp_path / "swapped.raw", swapped=True)
        assert_same(read_events(tmp_path / "swapped.raw"), read_events(tmp_path / "plain.raw"))


class TestProphesee:
    @pytest.mark.parametrize(
        ("line", "sensor"),
        [
            ("% geometry 320x320", Sensor(320, 320)),
            ("% plugin_name hal_plugin_gen31_fx3", Sensor(640, 480)),
            ("% plugin_name hal_plugin_imx636_evk4", Sensor(1280, 720)),
            ("% plugin_name hal_plugin_genx320", Sensor(320, 320)),
        ],
    )
    def test_the_sensor_comes_from_the_size_or_the_plugin(self, line, sensor, tmp_path):
        path = tmp_path / "a.raw"
        words = encoders.evt2_words(*encoders.columns())
        path.write_bytes(f"% evt 2.0\n{line}\n".encode() + words.tobytes())
        assert read_events(path).sensor == sensor

    @pytest.mark.parametrize("name", ["evt2", "evt3"])
    def test_a_record_that_looks_like_a_header_line_is_a_record(self, name, tmp_path):
        """Recorders before 2022 write no line that ends the header."""
        path = encoders.write(name, tmp_path)
        whole = read_events(path)
        header, _, records = path.read_bytes().partition(b"% end\n")
        stamp = b"\x25\x00\x00\x80" if name == "evt2" else b"\x25\x80"
        path.write_bytes(header + stamp + records)
        assert len(read_events(path)) == len(whole)

    @pytest.mark.parametrize(("name", "period"), [("evt3", 1 << 24), ("dat", 1 << 32)])
    def test_a_clock_that_wraps_goes_on(self, name, period, tmp_path, monkeypatch):
        x, y, _, p = encoders.columns()
        t = np.linspace(period - 1000, period + 1000, len(x)).astype(np.int64)
        monkeypatch.setattr(encoders, "columns", lambda: (x, y, t % period if name == "dat" else t, p))
        events = read_events(encoders.write(name, tmp_path))
        np.testing.assert_array_equal(events.t.numpy(), t - t[0])

    def test_an_unknown_encoding_is_named(self, tmp_path):
        path = tmp_path / "a.raw"
        path.write_bytes(b"% evt 4.0\n% end\n" + b"\0" * 16)
        with pytest.raises(Event2VecError, match=r"encoding 'evt4', expected EVT2, EVT2\.1 or EVT3"):
            read_events(path)

    def test_a_header_without_records_is_a_recording_without_events(self, tmp_path):
        path = tmp_path / "a.raw"
        path.write_bytes(b"% evt 2.0\n% geometry 34x30\n% end\n")
        assert len(read_events(path)) == 0
        path.write_bytes(b"% evt 2.0\n% end\n")
        with pytest.raises(Event2VecError, match=r"holds no events and does not name its sensor.*`sensor`"):
            read_events(path)


class TestText:
    def test_a_decimal_point_means_seconds_and_none_means_microseconds(self, tmp_path):
        path = tmp_path / "a.txt"
        path.write_text("0.5 1 2 1\n0.500003 3 4 0\n")
        assert read_events(path).t.tolist() == [0, 3]
        path.write_text("500 1 2 1\n503 3 4 0\n")
        assert read_events(path).t.tolist() == [0, 3]
        assert read_events(path, time_unit="ms").t.tolist() == [0, 3000]

    @pytest.mark.parametrize("header", ["x y t p\n", "# x y t p\n", "X;Y;Timestamp;Polarity\n", "x, y, ts, pol\n"])
    def test_a_header_names_the_columns(self, header, tmp_path):
        separator = ";" if ";" in header else ","
        path = tmp_path / "a.csv"
        path.write_text(header + separator.join("1270") + "\n" + separator.join("3491") + "\n")
        events = read_events(path)
        assert (events.x.tolist(), events.y.tolist(), events.t.tolist()) == ([1, 3], [2, 4], [0, 2])
        assert events.p.tolist() == [False, True]

    def test_options_override_header_and_decimal_point(self, tmp_path):
        path = tmp_path / "a.txt"
        path.write_text("1 2 0.5 1\n3 4 2.5 0\n")
        events = read_events(path, columns="xytp", time_unit="us")
        assert events.t.tolist() == [0, 2]
        assert events.x.tolist() == [1, 3]

    @pytest.mark.parametrize(
        "text",
        [
            '"x","y","t","p"\n1,2,5,0\n3,4,7,1\n',
            ",x,y,t,p\n0,1,2,5,0\n1,3,4,7,1\n",
            "x [px],y [px],t [us],p\n1,2,5,0\n3,4,7,1\n",
            "x\ty\tt\tp\r\n1\t2\t5\t0\r\n3\t4\t7\t1\r\n",
            "% Data of a walk\n5 1 2 0\n7 3 4 1\n",
        ],
    )
    def test_tables_of_other_programs_are_understood(self, text, tmp_path):
        path = tmp_path / "a.txt"
        path.write_bytes(text.encode())
        events = read_events(path)
        assert (events.x.tolist(), events.y.tolist(), events.t.tolist()) == ([1, 3], [2, 4], [0, 2])

    def test_one_fraction_among_whole_numbers_means_seconds_too(self, tmp_path):
        path = tmp_path / "a.txt"
        path.write_text("0 1 2 1\n0.001 3 4 0\n1e-2 3 4 0\n")
        assert read_events(path).t.tolist() == [0, 1000, 10_000]

    def test_a_file_without_rows_is_read_back(self, tmp_path, make_events):
        for suffix in (".csv", ".txt"):
            write_events(tmp_path / f"a{suffix}", make_events(0))
            assert_same(read_events(tmp_path / f"a{suffix}"), make_events(0))

    @pytest.mark.parametrize("first", ["240 180\n", "# sensor 240x180\n"])
    def test_the_sensor_may_stand_in_the_first_line(self, first, tmp_path):
        path = tmp_path / "a.txt"
        path.write_text(first + "0.1 5 6 1\n")
        assert read_events(path).sensor == Sensor(240, 180)

    @pytest.mark.parametrize(
        ("text", "options", "message"),
        [
            ("hello\nworld\n", {}, "begins with 'hello', expected a header"),
            ("# hello\n", {}, "no numbers in its first 64 lines"),
            ("1 2 3\n", {}, "has 3 columns, expected at least 4"),
            ("1 2 3 1\n1 b 3 0\n", {}, "is not a table of numbers"),
            ("t,x,y,q\n1,2,3,1\n", {}, "begins with 't,x,y,q', expected a header with t, x, y, p"),
            ("1 2 3 1\n", {"columns": "txy"}, "must name each of t, x, y, p once"),
            ("1 2 3 1\n", {"time_unit": "minutes"}, "unknown time unit 'minutes'"),
            ("1 2 3 7\n", {}, "p must be 0/1"),
            ("1 2 3 1\nnan 2 3 1\n", {"time_unit": "s"}, "times that are not numbers"),
        ],
    )
    def test_what_is_wrong_is_said(self, text, options, message, tmp_path):
        path = tmp_path / "a.txt"
        path.write_text(text)
        with pytest.raises(Event2VecError, match=message):
            read_events(path, **options)


class TestArrays:
    def test_names_and_polarities_of_other_libraries_are_known(self, tmp_path):
        for number, (t, p, kind) in enumerate([("ts", "pol", "i1"), ("timestamp", "polarity", "f8"), ("t", "p", "?")]):
            events = np.zeros(2, [(t, "f8"), ("x", ">u2"), ("y", "u1"), (p, kind)])
            events[t], events["x"], events[p] = [7, 9], [300, 2], [1, 0 if kind == "?" else -1]
            np.save(tmp_path / f"{number}.npy", events)
            read = read_events(tmp_path / f"{number}.npy")
            assert (read.x.tolist(), read.t.tolist(), read.p.tolist()) == ([300, 2], [0, 2], [True, False])

    def test_times_with_fractions_need_a_unit(self, tmp_path):
        np.savez(tmp_path / "a.npz", t=[0.5, 0.75], x=[1, 2], y=[1, 2], p=[0, 1])
        with pytest.raises(Event2VecError, match="`time_unit`"):
            read_events(tmp_path / "a.npz")
        assert read_events(tmp_path / "a.npz", time_unit="s").t.tolist() == [0, 250_000]

    def test_four_plain_columns_are_t_x_y_p(self, tmp_path):
        np.save(tmp_path / "a.npy", np.array([[10, 1, 2, 1], [30, 3, 4, 0]]))
        events = read_events(tmp_path / "a.npy")
        assert (events.t.tolist(), events.x.tolist(), events.p.tolist()) == ([0, 20], [1, 3], [True, False])

    @pytest.mark.parametrize(
        ("array", "message"),
        [
            (np.zeros((3, 2)), r"shape \(3, 2\)"),
            (np.zeros(2, [("x", "i4"), ("y", "i4")]), "no column for t"),
            (np.zeros(2, [("x", "i4"), ("y", "i4"), ("t", "i4"), ("p", "U1")]), "column p of type"),
        ],
    )
    def test_arrays_of_another_kind_are_refused(self, array, message, tmp_path):
        np.save(tmp_path / "a.npy", array)
        with pytest.raises(Event2VecError, match=message):
            read_events(tmp_path / "a.npy")

    def test_a_header_that_claims_too_much_is_refused_before_memory_is_reserved(self, tmp_path):
        np.savez(tmp_path / "a.npz", x=np.zeros(8), y=np.zeros(8), t=np.zeros(8), p=np.zeros(8))
        data = (tmp_path / "a.npz").read_bytes()
        (tmp_path / "a.npz").write_bytes(data.replace(b"'shape': (8,), }        ", b"'shape': (800000000,), }"))
        with pytest.raises(Event2VecError, match="Is the file complete"):
            read_events(tmp_path / "a.npz")
        header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (90000000000,), }"
        (tmp_path / "b.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        with pytest.raises(Event2VecError, match="claims 720000000000 bytes"):
            read_events(tmp_path / "b.npy")

    def test_single_numbers_are_columns_of_one_event(self, tmp_path):
        np.savez(tmp_path / "a.npz", t=5, x=np.array([[3]]), y=np.array(2), p=1, rho=np.float32(1))
        assert read_events(tmp_path / "a.npz").x.tolist() == [3]

    def test_what_else_is_in_an_npz_is_left_alone(self, tmp_path):
        foreign = {"meta": np.array([{"a": 1}]), "sensor": np.array("DAVIS346")}
        np.savez(tmp_path / "a.npz", t=[5], x=[3], y=[2], p=[1], **foreign, allow_pickle=True)
        assert read_events(tmp_path / "a.npz").sensor == Sensor(4, 3)

    def test_a_mat_file_without_the_columns_says_what_it_has(self, tmp_path):
        scipy.io.savemat(tmp_path / "a.mat", {"frames": np.zeros((2, 2)), "x": [1, 2]})
        with pytest.raises(Event2VecError, match=r"no column for y.*it has x"):
            read_events(tmp_path / "a.mat")


class TestAtis:
    def test_overflow_marks_carry_the_clock_on(self, tmp_path):
        path = tmp_path / "a.bin"
        path.write_bytes(bytes([1, 2, 0x80, 0, 5, 0, 240, 0, 0, 0, 3, 4, 0, 0, 6]))
        events = read_events(path)
        assert (events.t.tolist(), events.p.tolist()) == ([0, 8193], [True, False])

    def test_larger_pictures_than_nmnist_are_measured_by_their_events(self, tmp_path):
        path = tmp_path / "a.bin"
        path.write_bytes(bytes([200, 100, 0x80, 0, 5]))
        assert read_recording(path).sensor_declared is False
        assert read_events(path).sensor == Sensor(201, 101)

    def test_a_file_too_short_for_one_event_is_an_error(self, tmp_path):
        path = tmp_path / "a.bin"
        path.write_bytes(b"abc")
        with pytest.raises(Event2VecError, match="holds only 3 of the 5 bytes of an event"):
            read_events(path)


class TestHdf5:
    def test_a_layout_without_events_lists_what_there_is(self, tmp_path):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["images/left"] = np.zeros(3)
        with pytest.raises(Event2VecError, match=r"holds no events.*images/left"):
            read_events(tmp_path / "a.h5")

    def test_columns_of_other_names_in_another_place_are_found(self, tmp_path):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            for name, column in (("xs", [1, 2]), ("ys", [3, 4]), ("ts", [5, 9]), ("ps", [1, 0])):
                file[f"camera/left/{name}"] = np.array(column)
        assert read_events(tmp_path / "a.h5").t.tolist() == [0, 4]

    def test_the_sensor_is_that_of_its_own_attribute(self, tmp_path):
        path = encoders.write("hdf5_metavision", tmp_path)
        with h5py.File(path, "a") as file:
            file.attrs["a_note"] = "1920x1080"
        assert read_events(path).sensor == Sensor(34, 30)

    def test_well_packed_columns_are_not_taken_for_damage(self, tmp_path):
        count = 1_000_000
        with h5py.File(tmp_path / "a.h5", "w") as file:
            for name in "xytp":
                file.create_dataset(f"events/{name}", data=np.ones(count, "u1"), chunks=(count,), compression="gzip")
        assert len(read_events(tmp_path / "a.h5")) == count

    def test_a_shape_beyond_what_is_stored_is_refused(self, tmp_path):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            for name in "xytp":
                file.create_dataset(f"events/{name}", shape=(2_000_000_000,), chunks=(1000,), dtype="i8")
        with pytest.raises(Event2VecError, match=r"claims 16000000000 bytes in '/events/.' but holds 0"):
            read_events(tmp_path / "a.h5")
