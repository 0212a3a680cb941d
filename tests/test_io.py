"""Every format gives the events that were put into it; damage gives events or one clear error."""

import contextlib
import json
import shutil
import time

import encoders
import numpy as np
import pytest
from conftest import assert_same
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import forget_highest_memory

from event2vec import Event2VecError, Event2VecWarning, Events, Sensor, read_events, write_events
from event2vec.evaluation.speed import highest_bytes
from event2vec.io import read_recording


@pytest.mark.parametrize("name", encoders.FILES)
def test_each_format_gives_what_was_encoded(name, tmp_path):
    _, _, (width, height), declared, format = encoders.FILES[name]
    path = encoders.write(name, tmp_path)
    recording = read_recording(path)
    x, y, t, p = encoders.columns(*((width, height) if width != height or width > 34 else (34, 30)))
    expected = Events.from_arrays(x, y, t, p, sensor=Sensor(width, height))
    assert_same(recording.events, expected)
    assert (recording.format, recording.sensor_declared) == (format, declared)
    assert (recording.start, recording.out_of_order) == (encoders.START, 0)
    assert recording.warnings == ()


def test_real_recordings_give_what_an_independent_decoder_found(shared_data):
    folder = shared_data / "recordings"
    for name, facts in json.loads((folder / "expected.json").read_text()).items():
        recording = read_recording(folder / name)
        events = recording.events
        if facts["width"] is not None:
            assert events.sensor == Sensor(facts["width"], facts["height"]), name
        x, y = events.x.double(), events.y.double()
        found = {
            "events": len(events),
            "positive": int(events.p.sum()),
            "t_span_us": events.duration,
            "monotonic": recording.out_of_order == 0,
            "x": [int(x.min()), int(x.max())],
            "y": [int(y.min()), int(y.max())],
            "sum_x": int(x.sum()),
            "sum_y": int(y.sum()),
            "sum_t_from_first": int(events.t.sum()),
        }
        assert found == {key: facts[key] for key in found}, name


@pytest.mark.parametrize("name", ["aedat4", "evt2", "evt21", "hdf5", "npz", "es", "aedat31"])
def test_content_is_looked_at_before_the_suffix(name, tmp_path):
    right = encoders.write(name, tmp_path)
    wrong = tmp_path / "recording.bin"
    shutil.copy(right, wrong)
    assert_same(read_events(wrong), read_events(right))


@pytest.mark.parametrize(
    "suffix", [".npz", ".aedat4", ".raw", ".dat", ".h5", ".hdf5", ".csv", ".txt", ".NPZ", ".RAW", ".CSV"]
)
@pytest.mark.parametrize("count", [1, 500])
def test_reading_back_gives_what_was_written(suffix, count, make_events, tmp_path):
    events = make_events(count)
    path = tmp_path / "sub" / f"recording{suffix}"
    write_events(path, events)
    assert_same(read_events(path), events)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name], "temporary files must be gone"


FAR = 2**40  # microseconds; EVT2 has 34 bits for them, DAT 32


@pytest.mark.parametrize("suffix", [".npz", ".aedat4", ".raw", ".dat", ".h5", ".csv", ".txt"])
def test_times_in_a_file_count_from_its_first_event(suffix, tmp_path):
    """Those of a part count from the first event of the whole, which may be long ago."""
    whole = Events.from_arrays([1, 2, 3, 4], [4, 3, 2, 1], [0, FAR - 5, FAR, FAR + 9], [1, 0, 1, 0], sensor=(34, 30))
    part = whole[1:]
    path = tmp_path / f"a{suffix}"
    write_events(path, part)
    recording = read_recording(path)
    assert recording.start == 0
    assert recording.events.t.tolist() == [0, 5, 14]
    assert recording.events.x.tolist() == [2, 3, 4]
    assert part.t.tolist() == [FAR - 5, FAR, FAR + 9], "what is written is not changed"
    assert_same(read_events(path), whole.between(FAR - 5, FAR + 10))


def test_npz_keeps_cluster_centres_and_empty_recordings(tmp_path):
    centres = Events.from_arrays([0.5, 3.25], [1.0, 2.75], [0, 9], [True, False], sensor=Sensor(5, 4), rho=[3, 1.5])
    write_events(tmp_path / "centres.npz", centres)
    assert_same(read_events(tmp_path / "centres.npz"), centres)
    empty = Events.from_arrays([], [], [], [], sensor=Sensor(5, 4))
    write_events(tmp_path / "empty.npz", empty)
    assert_same(read_events(tmp_path / "empty.npz"), empty)


@pytest.mark.parametrize("suffix", [".raw", ".h5", ".csv", ".aedat4"])
def test_other_formats_refuse_what_they_would_change(suffix, make_events, tmp_path):
    centres = Events.from_arrays([0.5], [1.0], [0], [True], sensor=Sensor(5, 4))
    with pytest.raises(Event2VecError, match=r"cluster centres.*\.npz"):
        write_events(tmp_path / f"a{suffix}", centres)
    with pytest.raises(Event2VecError, match="cannot hold more than 2048"):
        write_events(tmp_path / "large.raw", make_events(5, sensor=Sensor(4000, 10)))
    with pytest.raises(Event2VecError, match="cannot hold more than 32768"):
        write_events(tmp_path / "large.aedat4", make_events(5, sensor=Sensor(40_000, 10)))
    with pytest.raises(Event2VecError, match="without events"):
        write_events(tmp_path / "empty.dat", make_events(0))
    assert list(tmp_path.iterdir()) == []


def test_events_out_of_order_are_sorted_and_counted(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("30,1,1,1\n10,2,2,0\n20,3,3,1\n20,4,4,1\n")
    recording = read_recording(path)
    assert recording.events.t.tolist() == [0, 10, 10, 20]
    assert recording.events.x.tolist() == [2, 3, 4, 1], "equal times keep their order"
    assert (recording.out_of_order, recording.start) == (1, 10)


RECORD_BYTES = {
    "aedat2_dvs128": 8,
    "aedat2_davis": 8,
    "aedat31": 8,
    "evt21": 8,
    "dat": 8,
    "evt2": 4,
    "evt3": 2,
    "atis": 5,
    "es": 5,
}


@pytest.mark.parametrize(("name", "width"), RECORD_BYTES.items())
def test_a_record_cut_short_is_left_out_with_a_warning(name, width, tmp_path):
    path = encoders.write(name, tmp_path)
    whole = read_events(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(Event2VecWarning, match=r"\b\d+ bytes? at the end (was|were) ignored") as caught:
        shorter = read_events(path)
    assert int(str(caught[0].message).split(": ")[-1].split()[0]) >= min(width - 1, 4)
    assert_same(shorter, whole.select(slice(0, len(whole) - 1)))


def test_a_packet_cut_short_is_left_out_with_a_warning(shared_data, tmp_path):
    data = (shared_data / "recordings" / "davis346.aedat4").read_bytes()
    path = tmp_path / "cut.aedat4"
    path.write_bytes(data[:300_000])
    with pytest.warns(Event2VecWarning, match="the last packet is truncated"):
        assert 0 < len(read_events(path)) < 117_667


@pytest.mark.parametrize("cut", [1, 1000])
def test_a_table_cut_short_loses_no_event(cut, shared_data, tmp_path):
    data = (shared_data / "recordings" / "davis346.aedat4").read_bytes()
    path = tmp_path / "cut.aedat4"
    path.write_bytes(data[:-cut])
    with pytest.warns(Event2VecWarning, match="the last table is truncated"):
        assert len(read_events(path)) == 117_667


def test_a_line_cut_short_is_left_out_with_a_warning(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("0.1 1 1 1\n0.2 2 2 0\n0.3 3")
    with pytest.warns(Event2VecWarning, match="5 bytes at the end were ignored"):
        assert len(read_events(path)) == 2


def test_a_file_that_cannot_be_read_says_why_and_what_to_do(tmp_path):
    empty, folder, strange = tmp_path / "empty.raw", tmp_path / "folder", tmp_path / "strange.xyz"
    empty.touch()
    folder.mkdir()
    strange.write_bytes(b"\x01\x02\x03\x04")
    for path, problem in (
        (tmp_path / "missing.raw", "does not exist"),
        (empty, "is empty"),
        (folder, "is a folder"),
        (strange, "not a known format. Supported: AEDAT"),
    ):
        with pytest.raises(Event2VecError, match=f"{path.name}.*{problem}"):
            read_events(path)


def test_an_event_outside_the_sensor_is_an_error_that_names_the_remedy(tmp_path):
    for name in ("evt2", "aedat4", "dat", "npz", "aedat2_davis"):
        with pytest.raises(Event2VecError, match=r"outside the sensor, which is 20x20.*`sensor`"):
            read_events(encoders.write(name, tmp_path), sensor=Sensor(20, 20))


def test_a_sensor_that_is_given_overrides_the_file(tmp_path):
    path = encoders.write("evt2", tmp_path)
    assert read_events(path, sensor=Sensor(640, 480)).sensor == Sensor(640, 480)


def test_an_option_that_would_change_nothing_is_an_error(tmp_path):
    path = encoders.write("evt2", tmp_path)
    with pytest.raises(Event2VecError, match="is evt2, which names its columns"):
        read_events(path, columns="xytp")
    with pytest.raises(Event2VecError, match="is evt2, which has a fixed time unit"):
        read_events(path, time_unit="ms")


def test_writing_names_a_suffix_that_it_does_not_know(make_events, tmp_path):
    with pytest.raises(Event2VecError, match=r"'\.mp4' is not one of \.npz"):
        write_events(tmp_path / "a.mp4", make_events(3))


def damage(data: bytes, edits: list[tuple[str, float, bytes]]) -> bytes:
    """Overwrite, insert, remove or cut at places given as a share of the length."""
    for kind, place, new in edits:
        position = int(place * len(data))
        if kind == "cut":
            data = data[:position]
        elif kind == "insert":
            data = data[:position] + new + data[position:]
        elif kind == "remove":
            data = data[:position] + data[position + len(new) :]
        else:
            data = data[:position] + new + data[position + len(new) :]
    return data


EXTREMES = [
    b"\xff" * 4,
    b"\xff\xff\xff\x7f",
    b"\0" * 4,
    b"\0\0\0\x80",
    b"\xff" * 8,
    b"99999999",
    b"-1",
    b"nan",
    b"1e999",
]
EDIT = st.tuples(
    st.sampled_from(["write", "write", "write", "insert", "remove", "cut"]),
    st.floats(0, 1, exclude_max=True),
    st.one_of(st.binary(min_size=1, max_size=16), st.sampled_from(EXTREMES)),
)


@pytest.mark.parametrize("name", encoders.FILES)
@pytest.mark.filterwarnings("ignore::event2vec.Event2VecWarning")
def test_damage_gives_events_or_one_error(name, tmp_path):
    path = encoders.write(name, tmp_path)
    data = path.read_bytes()
    forget_highest_memory()
    before = highest_bytes()

    @settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(EDIT, min_size=1, max_size=4))
    def read_damaged(edits):
        path.write_bytes(damage(data, edits))
        start = time.process_time()  # not of a clock: the machine may be busy with something else
        with contextlib.suppress(Event2VecError):
            events = read_events(path)
            assert bool((events.t[1:] >= events.t[:-1]).all())
            assert len(events) <= 100 * len(data)
        assert time.process_time() - start < 2

    read_damaged()
    assert highest_bytes() - before < 200 << 20, "a damaged file of a few kilobytes must not take much memory"


def test_a_pickle_is_never_loaded(tmp_path):
    fired = tmp_path / "fired"

    class Trap:
        def __reduce__(self):
            return fired.touch, ()

    np.save(tmp_path / "a.npy", np.array([Trap()]), allow_pickle=True)
    np.savez(tmp_path / "b.npz", t=np.array([Trap()]), x=[0], y=[0], p=[1])
    for path in (tmp_path / "a.npy", tmp_path / "b.npz"):
        with pytest.raises(Event2VecError):
            read_events(path)
    assert not fired.exists()
