"""Reading in chunks finds what reading whole files finds, in memory that does not grow with the file."""

import struct
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from tempfile import NamedTemporaryFile

import encoders
import numpy as np
import pytest
import torch
from conftest import make_recording
from hypothesis import given
from hypothesis import strategies as st
from processes import SECONDS_TO_END

from event2vec import Event2VecError, Event2VecWarning, Sensor, read_chunks, read_events
from event2vec.io import read_recording
from event2vec.io.chunks import DISORDER, _Clock, can_stream, first_time
from event2vec.io.recording import Decoded

REAL = ("davis240c.aedat", "davis346.aedat4", "dvs128.aedat", "dvxplorer.aedat4", "evt2.raw", "evt3.raw")


def joined(path, **options):
    chunks = list(read_chunks(path, **options))
    return {name: torch.cat([getattr(chunk, name) for chunk in chunks]) for name in "xytp"}, chunks


def assert_as_whole(path, **options):
    whole, (found, chunks) = read_events(path), joined(path, **options)
    for name, column in found.items():
        assert torch.equal(column, getattr(whole, name)), name
    assert {chunk.sensor for chunk in chunks} == {whole.sensor}
    return chunks


@pytest.mark.parametrize("name", [*REAL, "ncars_car.dat"])
@pytest.mark.parametrize("segment", [20_000, 30_002, 4 << 20])
def test_chunks_of_real_recordings_hold_the_same_events(name, segment, shared_data):
    path = shared_data / "recordings" / name
    assert can_stream(path)
    chunks = assert_as_whole(path, segment=segment)
    assert len(chunks) > 3 or segment > 30_002 or name in ("evt3.raw", "ncars_car.dat")
    assert first_time(path) == read_recording(path).start


@pytest.mark.parametrize("name", encoders.FILES)
def test_every_format_holds_the_same_events_in_pieces_and_those_that_cannot_be_are_read_whole(name, tmp_path):
    path = encoders.write(name, tmp_path)
    chunks = assert_as_whole(path, segment=640)
    assert can_stream(path) == (name not in ("atis", "npz", "mat"))
    assert (len(chunks) > 1) == can_stream(path)
    assert first_time(path) == read_recording(path).start


@pytest.mark.parametrize("name", ["poker_clubs.es", "uzh_davis240.txt"])
def test_real_text_and_event_streams_are_read_in_pieces(name, shared_data):
    assert_as_whole(shared_data / "recordings" / name, segment=5000)


def test_arrays_by_row_are_read_in_pieces_and_those_by_column_and_clusters_whole(tmp_path):
    events = make_recording(3000, duration=900_000)
    rows = np.stack([getattr(events, name).numpy().astype(np.int64) for name in "txyp"], axis=1)
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "columns.npy", np.asfortranarray(rows))
    clusters = np.zeros(3000, [(name, "f8") for name in ("x", "y", "t", "p", "rho")])
    for name, column in zip("txyp", rows.T, strict=True):
        clusters[name] = column
    clusters["rho"] = 7
    np.save(tmp_path / "clusters.npy", clusters)
    assert len(assert_as_whole(tmp_path / "rows.npy", segment=800)) > 10
    assert len(assert_as_whole(tmp_path / "columns.npy", segment=800)) == 2, "the last 50 ms wait for late events"
    (whole,) = assert_as_whole(tmp_path / "clusters.npy", segment=800)
    assert set(whole.rho.tolist()) == {7.0}


def test_a_long_recording_that_cannot_be_streamed_says_so(shared_data, monkeypatch):
    monkeypatch.setattr("event2vec.io.chunks.LARGE", 100)
    with pytest.warns(Event2VecWarning, match="atis cannot be read in chunks; it is read whole"):
        list(read_chunks(shared_data / "recordings" / "nmnist.bin"))


def test_a_file_that_names_no_sensor_has_the_usual_one_if_it_fits(tmp_path):
    path = encoders.write("csv", tmp_path)  # 34 x 30
    for usual, found in (("64x48", Sensor(64, 48)), ("32x32", Sensor(34, 30)), (None, Sensor(34, 30))):
        for segment in (640, 1 << 20):
            assert {chunk.sensor for chunk in read_chunks(path, usual=usual, segment=segment)} == {found}


def test_text_whose_times_become_fractions_or_that_is_damaged_late_is_one_line(tmp_path):
    lines = [f"{20_000 * step} 1 2 1\n" for step in range(100)]
    (tmp_path / "x.txt").write_text("".join(lines) + "2000000.5 1 2 1\n")
    with pytest.raises(
        Event2VecError, match=r"x.txt: has whole times first and fractional ones later. Set `time_unit`"
    ):
        list(read_chunks(tmp_path / "x.txt", segment=200))
    assert len(list(read_chunks(tmp_path / "x.txt", segment=200, time_unit="us"))) > 3
    (tmp_path / "x.txt").write_text("".join(lines) + "2000 1 b 1\n")
    with pytest.raises(Event2VecError, match=r"x.txt: is not a table of numbers"):
        list(read_chunks(tmp_path / "x.txt", segment=200))
    (tmp_path / "x.txt").write_text("".join(lines) + "2000000 1")
    with pytest.warns(Event2VecWarning, match=r"x.txt: the last line is truncated: 9 bytes"):
        assert sum(map(len, read_chunks(tmp_path / "x.txt", segment=200))) == 100


def evt3_words(count):
    """Groups of pixels over many rows, through several overflows of the clock, cut anywhere."""
    random = np.random.default_rng((0, 0, count))
    words = []
    for step in range(count):
        time = step * 40_000  # microseconds
        words += [0x8000 | time >> 12 & 0xFFF, 0x6000 | time & 0xFFF, int(random.integers(0, 480))]
        words += [0x3000 | int(random.integers(0, 2)) << 11 | int(random.integers(0, 600))]
        words += [0x4000 | int(random.integers(1, 4096)), 0x4000 | int(random.integers(1, 4096))]
        words += [0x5000 | int(random.integers(1, 256)), 0x2000 | int(random.integers(0, 640))]
    return np.array(words, "<u2").tobytes()


@pytest.mark.parametrize("segment", [2, 6, 50, 4096])
def test_evt3_can_be_cut_at_any_word(segment, tmp_path):
    header = b"% evt 3.0\n% format EVT3;height=480;width=640\n% end\n"
    (tmp_path / "x.raw").write_bytes(header + evt3_words(60 if segment < 50 else 600))
    chunks = assert_as_whole(tmp_path / "x.raw", segment=segment)
    assert sum(map(len, chunks)) > 600


@pytest.mark.parametrize("segment", [8, 64])
def test_packets_of_aedat31_and_words_of_evt21_are_cut_between(segment, tmp_path):
    header = b"#!AER-DAT3.1\r\n#Source 1: DVS128\r\n#!END-HEADER\r\n"
    packets = b""
    for packet in range(6):
        events = [(packet * 10 + n) * 20_000 for n in range(10)]
        body = b"".join(struct.pack("<Ii", n << 17 | 3 << 2 | 3, time) for n, time in enumerate(events))
        packets += encoders.aedat31_packet(1, body, 10)
    (tmp_path / "x.aedat").write_bytes(header + packets)
    assert len(assert_as_whole(tmp_path / "x.aedat", segment=segment)) > 1
    words = b""
    for step in range(40):
        time = step * 30_000
        high = 8 << 60 | (time >> 6) << 32
        words += struct.pack("<QQ", high, step % 2 << 60 | (time & 63) << 54 | step << 43 | 5 << 32 | 0b1011)
    (tmp_path / "x.raw").write_bytes(b"% evt 2.1\n% format EVT21;height=480;width=640\n% end\n" + words)
    assert len(assert_as_whole(tmp_path / "x.raw", segment=segment)) > 1


def dvs128(path, t):
    records = np.empty(len(t), [("address", ">u4"), ("t", ">u4")])
    records["address"], records["t"] = np.arange(len(t)) % (1 << 15), np.asarray(t, np.int64) % (1 << 32)
    path.write_bytes(b"#!AER-DAT2.0\r\n# AEChip: DVS128\r\n" + records.tobytes())
    return path


def test_a_clock_that_overflows_goes_on_in_the_next_chunk(tmp_path):
    t = np.arange(3000) * 1_000_000 + (1 << 32) - 5_000_000
    path = dvs128(tmp_path / "x.aedat", t)
    found, _ = joined(path, segment=800)
    assert found["t"].tolist() == (t - t[0]).tolist()


def test_events_that_come_late_are_put_in_their_place_and_those_too_late_are_an_error(tmp_path):
    t = np.arange(3000) * 1000 + 60_000
    t[1::2] -= 40_000
    assert_as_whole(dvs128(tmp_path / "x.aedat", t), segment=800)
    t[2000] -= 900_000
    with pytest.raises(Event2VecError, match=r"x.aedat: has an event that comes \d+ ms late.* event2vec convert"):
        list(read_chunks(dvs128(tmp_path / "x.aedat", t), segment=800))


def test_wrong_input_is_named_with_its_file(shared_data, tmp_path):
    dvs = shared_data / "recordings" / "dvs128.aedat"
    with pytest.raises(Event2VecError, match=r"dvs128.aedat: is aedat2, which has a fixed time unit"):
        list(read_chunks(dvs, time_unit="ms"))
    with pytest.raises(Event2VecError, match=r"dvs128.aedat: an event at .* outside the sensor.* `sensor`"):
        list(read_chunks(dvs, sensor="20x20"))
    with pytest.raises(Event2VecError, match=r"nowhere.raw: does not exist"):
        list(read_chunks(tmp_path / "nowhere.raw"))
    (tmp_path / "short.aedat4").write_bytes(b"#!AER-DAT4.0\r\n" + (1 << 30).to_bytes(4, "little"))
    with pytest.raises(Event2VecError, match=r"short.aedat4: has a header of 1,073,741,842 bytes in a smaller file"):
        list(read_chunks(tmp_path / "short.aedat4", segment=10))
    data = (shared_data / "recordings" / "evt2.raw").read_bytes()
    (tmp_path / "cut.raw").write_bytes(data[:-1])
    with pytest.warns(Event2VecWarning, match=r"cut.raw: the last word is truncated: 3 bytes"):
        found, _ = joined(tmp_path / "cut.raw")
    with pytest.warns(Event2VecWarning):
        assert len(found["t"]) == len(read_events(tmp_path / "cut.raw"))


def test_a_broken_packet_in_the_middle_is_named_with_its_place(tmp_path):
    header = b"#!AER-DAT3.1\r\n#Source 1: DVS128\r\n#!END-HEADER\r\n"
    body = b"".join(struct.pack("<Ii", n << 17 | 3 << 2 | 3, n) for n in range(10))
    packet = encoders.aedat31_packet(1, body, 10)
    broken = bytearray(packet)
    broken[4:8] = (-1).to_bytes(4, "little", signed=True)
    (tmp_path / "x.aedat").write_bytes(header + 3 * packet + bytes(broken) + packet)
    with pytest.raises(Event2VecError, match=r"x.aedat: .*damaged.* .in the part from byte \d+ on."):
        list(read_chunks(tmp_path / "x.aedat", segment=100))


def test_memory_does_not_grow_with_the_file(tmp_path):
    """Ten million events are 80 MB on disk and over 200 MB in memory; chunks take a part of that."""
    dvs128(tmp_path / "x.aedat", np.arange(10_000_000) * 3)
    script = (
        "import sys\nfrom event2vec import read_chunks\nfrom event2vec.evaluation.speed import highest_bytes\n"
        "count = sum(len(c) for c in __import__('itertools').islice(read_chunks(sys.argv[1]), 3))\n"
        "before = highest_bytes()\n"
        "count = sum(len(c) for c in read_chunks(sys.argv[1]))\n"
        "print(count, highest_bytes() - before)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "x.aedat")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS_TO_END)
    count, grown = map(int, done.stdout.split())
    assert count == 10_000_000
    assert grown < 50 << 20, f"{grown:,} bytes more"


@given(
    st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, DISORDER)), min_size=1, max_size=40), st.integers(1, 60)
)
def test_events_that_come_up_to_50_ms_late_are_found_where_the_whole_file_has_them(steps, segment):
    """Each is late by some of what has passed before it, whatever piece of the file it is in."""
    times = np.cumsum([step for step, _ in steps]) + DISORDER
    rows = [
        (time - late, index % 34, index % 30) for index, (time, (_, late)) in enumerate(zip(times, steps, strict=True))
    ]
    with NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("# sensor 34x30\n" + "".join(f"{t} {x} {y} 1\n" for t, x, y in rows))
        file.flush()
        assert_as_whole(Path(file.name), segment=segment)


def test_an_event_50_ms_late_is_in_time_and_one_later_is_not_once_others_are_given_out(tmp_path):
    lines = "".join(f"{t} 1 2 1\n" for t in range(0, 400_000, 10_000))
    given_out = 390_000 - DISORDER - 10_000  # the last event that is far enough behind the latest
    for late, fits in ((given_out, True), (given_out - 1, False)):
        path = tmp_path / f"{late}.txt"
        path.write_text(f"# sensor 8x8\n{lines}{late} 1 2 1\n")
        if fits:
            assert_as_whole(path, segment=1)
        else:
            with pytest.raises(Event2VecError, match="has an event that comes 0 ms late, expected at most 50 ms in a"):
                list(read_chunks(path, segment=1))


@pytest.mark.parametrize("period", [1 << 24, 1 << 34])
def test_a_clock_goes_on_through_pauses_of_up_to_half_its_range(period):
    """Decoders of pieces begin again at what the camera's clock shows; several overflows may lie between."""
    clock = _Clock()
    half = period // 2
    true = np.array([period - 5, period + 3, period + half - 1, 2 * period - 3, 2 * period + 7, 2 * period + half])
    for place in range(0, 6, 2):
        part = true[place : place + 2] % period
        decoded = Decoded(part, part, part, part, None)
        np.testing.assert_array_equal(clock.times(decoded, period), true[place : place + 2])


def test_a_piece_that_counts_from_its_own_start_is_put_on_the_clock_of_the_camera():
    clock, t = _Clock(), np.array([0, 5])
    found = [clock.times(Decoded(t, t, t, t, None, clock=start), 0).tolist() for start in (100, 900)]
    assert found == [[100, 105], [900, 905]]


class TestChoosing:
    """What is read in chunks, and what at once."""

    def text(self, tmp_path, count=50):
        path = tmp_path / "a.csv"
        path.write_text("".join(f"{t},1,2,1\n" for t in range(0, count * 10_000, 10_000)))
        return path

    def test_a_file_of_one_segment_is_read_whole(self, tmp_path):
        path = self.text(tmp_path)
        size = path.stat().st_size
        assert len(list(read_chunks(path, segment=size))) == 1
        assert len(list(read_chunks(path, segment=size - 1))) == 2

    def test_options_reach_the_reader_in_either_case(self, tmp_path):
        path = self.text(tmp_path)
        for segment in (100, 1 << 20):
            options = {"segment": segment, "time_unit": "ms", "columns": "tyxp", "sensor": "9x7"}
            found, chunks = joined(path, **options)
            assert found["t"][1].item() == 10_000_000
            assert (found["x"][0].item(), found["y"][0].item()) == (2, 1)
            assert {chunk.sensor for chunk in chunks} == {Sensor(9, 7)}

    def test_a_file_is_read_as_it_is_asked_for(self, tmp_path):
        """So that the first events of hours are there at once; what is wrong at the end is found at the end."""
        path = self.text(tmp_path, 500)
        with path.open("a") as file:
            file.write("damage\n")
        chunks = read_chunks(path, segment=1000, sensor="8x8")
        assert len(next(chunks)) > 0
        with pytest.raises(Event2VecError, match=r"a\.csv: is not a table of numbers"):
            list(chunks)

    def test_every_chunk_has_events_and_counts_on_where_the_last_ended(self, tmp_path):
        events = list(read_chunks(self.text(tmp_path, 500), segment=300))
        assert len(events) > 10
        assert all(len(chunk) for chunk in events)
        assert all(one.t[-1] <= other.t[0] for one, other in pairwise(events))
        assert events[0].t[0].item() == 0


def test_the_first_time_is_that_of_the_earliest_event_of_the_first_piece(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("# sensor 8x8\n700 1 2 1\n650 1 2 1\n900 1 2 1\n")
    assert first_time(path) == read_recording(path).start == 650
    path.write_text("# sensor 8x8\nt x y p\n")
    assert first_time(path) == 0
