"""Units of time, where text ends, and how large a packet unpacks: the small things that readers share."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from event2vec import Event2VecError
from event2vec.io.headers import is_text
from event2vec.io.packing import LZ4_MAGIC, ZSTD_MAGIC, unpacked_at_most
from event2vec.io.units import to_microseconds


@pytest.mark.parametrize(
    ("t", "unit", "found"),
    [
        ([1, 2], None, [1, 2]),
        ([1, 2], "us", [1, 2]),
        ([1.0, 2.0], None, [1, 2]),
        ([0.5, 1.25], "s", [500_000, 1_250_000]),
        ([1, 2], "ms", [1000, 2000]),
        ([1499, 1500, 2501], "ns", [1, 2, 3]),
        ([-0.001], "s", [-1000]),
    ],
)
def test_times_become_whole_microseconds(t, unit, found):
    assert to_microseconds(Path("a.csv"), np.array(t), unit).tolist() == found


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1), st.sampled_from(["i8", "u8"]))
def test_whole_nanoseconds_since_1970_become_the_nearest_microsecond(times, kind):
    """As floats they would be off by up to 128 ns, and events of one moment would lie a microsecond apart."""
    t = np.array(times).astype(kind)
    found = to_microseconds(Path("a.npy"), t, "ns")
    assert found.dtype == np.int64
    for nanoseconds, microseconds in zip(t.tolist(), found.tolist(), strict=True):
        assert abs(1000 * microseconds - nanoseconds) <= 500


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1), st.sampled_from(["i4", "u4", "f8", "i8"]))
def test_whole_seconds_and_milliseconds_are_exact(times, kind):
    t = np.array(times).astype(kind)
    assert to_microseconds(Path("a"), t, "s").tolist() == [time * 10**6 for time in times]
    assert to_microseconds(Path("a"), t, "ms").tolist() == [time * 10**3 for time in times]
    assert to_microseconds(Path("a"), t, "us").tolist() == times


@pytest.mark.parametrize("kind", ["u1", "i4", "i8"])
def test_whole_microseconds_are_not_copied(kind):
    t = np.array([1, 2], kind)
    assert to_microseconds(Path("a"), t, None) is t
    assert to_microseconds(Path("a"), t, "us") is t


def test_the_largest_time_is_below_2_to_the_62():
    assert to_microseconds(Path("a"), np.array([2.0**61]), "us").tolist() == [2**61]
    for t, unit in ((2.0**62, "us"), (-(2.0**62), "us"), (2**62 // 10**6 + 1, "s")):
        with pytest.raises(Event2VecError, match=r"a: has times that are not numbers, or beyond 2\^62 microseconds"):
            to_microseconds(Path("a"), np.array([t]), unit)


@pytest.mark.parametrize(
    ("t", "unit", "message"),
    [
        ([0.5], None, r"a\.csv: has fractional times and no unit. Set `time_unit` to s"),
        ([1], "h", "unknown time unit 'h'; expected one of s, ms, us, ns"),
        ([np.nan], "s", "not numbers, or beyond"),
        ([1e300], "s", "not numbers, or beyond"),
        ([np.inf], "ms", "not numbers, or beyond"),
    ],
)
def test_times_that_no_unit_explains_are_refused(t, unit, message):
    with pytest.raises(Event2VecError, match=message):
        to_microseconds(Path("a.csv"), np.array(t), unit)


@pytest.mark.parametrize(
    ("line", "text"), [(b"# by us\r\n", True), ("é\t1".encode(), True), (b"", True), (b"a\0b", False), (b"\x7f", False)]
)
def test_binary_records_are_told_from_text(line, text):
    assert is_text(line) is text


def zstd_frame(blocks, content=None):
    """A frame of (kind, size, bytes) blocks, which names its content size or does not."""
    named = b"" if content is None else content.to_bytes(4, "little")
    frame = ZSTD_MAGIC + bytes([0x80 if named else 0]) + b"\0" + named  # no single segment: a byte for the window
    for number, (kind, size, data) in enumerate(blocks):
        last = number == len(blocks) - 1
        frame += (size << 3 | kind << 1 | last).to_bytes(3, "little") + data
    return frame


def test_blocks_that_state_their_size_are_counted_exactly():
    assert unpacked_at_most(zstd_frame([(0, 5, b"hello"), (1, 1000, b"x")])) == 1005
    two = zstd_frame([(0, 5, b"hello")]) + zstd_frame([(1, 7, b"x")])
    assert unpacked_at_most(two) == 12, "frames add up"


def test_a_packed_block_counts_as_its_largest_or_as_the_frame_says():
    assert unpacked_at_most(zstd_frame([(2, 3, b"abc")])) == 1 << 17
    assert unpacked_at_most(zstd_frame([(2, 3, b"abc")], content=500)) == 500
    assert unpacked_at_most(zstd_frame([(1, 900, b"x"), (2, 3, b"abc")], content=500)) == 900, "a run is certain"


def test_a_frame_that_is_cut_short_ends_the_count():
    frame = zstd_frame([(0, 5, b"hello"), (1, 1000, b"x")])
    assert unpacked_at_most(frame[:12]) == 5
    assert unpacked_at_most(ZSTD_MAGIC) == 0


def test_lz4_is_bounded_by_what_its_bytes_can_copy():
    packet = LZ4_MAGIC + bytes(96)
    assert unpacked_at_most(packet) == 69 * 100
    assert unpacked_at_most(LZ4_MAGIC + b"\xff" * 96) == 255 * 100
    assert unpacked_at_most(b"plain") == 5
