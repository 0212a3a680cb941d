"""Whatever a file holds or is: events or one short error, at once, in little memory, and no other file is read."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import encoders
import h5py
import numpy as np
import pytest
import scipy.io
from conftest import assert_same
from processes import NEEDS_PROC, SECONDS_TO_END, forget_highest_memory, is_alive

from event2vec import Event2VecError, read_events, write_events
from event2vec.errors import MissingExtra
from event2vec.evaluation.speed import highest_bytes
from event2vec.io import hdf5, read_recording
from event2vec.io.arrays import NAMES

COLUMNS: dict[str, Any] = {"x": [1, 2], "y": [3, 4], "t": [5, 9], "p": [1, 0]}


def refusal(path, **options):
    """The one error of a file: it comes within seconds of work, and fits on a few lines of a terminal."""
    start = time.process_time()
    with pytest.raises(Event2VecError) as caught:
        read_events(path, **options)
    assert time.process_time() - start < 15
    message = str(caught.value)
    assert len(message) < len(str(path)) + 500
    assert message.replace(str(path), "").isprintable()
    return message


class TestWhatIsNoFile:
    def test_a_pipe_a_socket_and_a_device_are_refused_before_they_are_opened(self, tmp_path):
        os.mkfifo(tmp_path / "pipe.raw")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(tmp_path / "socket.raw"))
            for path in (tmp_path / "pipe.raw", tmp_path / "socket.raw", Path("/dev/zero")):
                assert "is a pipe, a socket or a device, expected a file" in refusal(path)
        (tmp_path / "link.h5").symlink_to(tmp_path / "pipe.raw")
        assert "is a pipe" in refusal(tmp_path / "link.h5")


FOLDERS = ["Aufnahmen ü 日本", "two words", os.fsdecode(b"not UTF-8 \xff\xfe")]


@pytest.mark.parametrize("folder", FOLDERS, ids=ascii)
class TestNamesOfFolders:
    @pytest.mark.parametrize("name", encoders.FILES)
    def test_every_format_is_read_whatever_its_folder_is_called(self, name, folder, tmp_path):
        plain = encoders.write(name, tmp_path)
        place = tmp_path / folder
        place.mkdir()
        assert_same(read_events(plain.rename(place / plain.name)), read_events(encoders.write(name, tmp_path)))

    @pytest.mark.parametrize("suffix", [".npz", ".aedat4", ".raw", ".dat", ".h5", ".csv", ".txt"])
    def test_every_format_is_written_whatever_its_folder_is_called(self, suffix, folder, make_events, tmp_path):
        events = make_events(50)
        write_events(tmp_path / folder / f"a{suffix}", events)
        assert_same(read_events(tmp_path / folder / f"a{suffix}"), events)


def test_convert_on_a_full_disk_ends_with_2_and_one_line(small_disk, make_events, tmp_path):
    write_events(tmp_path / "a.npz", make_events(1 << 20, duration=1 << 40))
    command = [sys.executable, "-m", "event2vec", "convert", tmp_path / "a.npz", small_disk.folder / "a.h5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_TO_END)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "a.h5: the disk is full. Free some space" in done.stderr
    assert list(small_disk.folder.iterdir()) == []


class TestPackedZeros:
    """Real recordings are packed to a twentieth; what is packed to a thousandth fills the memory when it is read."""

    COUNT = 50_000_000

    def check(self, path):
        forget_highest_memory()
        before = highest_bytes()
        message = refusal(path)
        assert "expected" in message
        assert "bytes" in message
        assert "save it without compression" in message
        assert highest_bytes() - before < 100 << 20

    def test_npz(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({self.COUNT},), }}".encode()
            content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"\0" * self.COUNT
            for name in "xytp":
                archive.writestr(f"{name}.npy", content)
        self.check(tmp_path / "a.npz")

    def test_hdf5(self, tmp_path):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            for name in "xytp":
                file.create_dataset(
                    name, data=np.zeros(self.COUNT, "u1"), compression="gzip", chunks=(self.COUNT // 4,)
                )
        self.check(tmp_path / "a.h5")

    def test_mat(self, tmp_path):
        zeros = np.zeros((self.COUNT, 1), "u1")
        scipy.io.savemat(tmp_path / "a.mat", dict.fromkeys(("ts", "x", "y", "pol"), zeros), do_compression=True)
        self.check(tmp_path / "a.mat")

    @pytest.mark.parametrize("packing", ["lz4", "zstd", "zstd without a length"])
    def test_aedat4(self, packing, tmp_path):
        data = encoders.write("aedat4", tmp_path).read_bytes()
        header = bytearray(data[: 18 + int.from_bytes(data[14:18], "little")])
        if packing == "lz4":
            block = b"\x1f\0\x01\0" + b"\xff" * 1_000_000 + b"\0"
            packet = b"\x04\x22\x4d\x18\x60\x40\x82" + struct.pack("<I", len(block)) + block + b"\0" * 4
        else:
            header[62] = 3  # the header's field for the kind of compression
            length = b"\0\x58" if packing.endswith("length") else b"\x80\x58" + struct.pack("<I", 2000 << 17)
            run = struct.pack("<I", 1 << 20 | 1 << 1)[:3] + b"\0"  # 128 kB of zeros
            packet = b"\x28\xb5\x2f\xfd" + length + run * 2000 + b"\x01\0\0"
        header[50:58] = struct.pack("<q", len(header) + 8 + len(packet))  # where the table is
        path = tmp_path / "a.aedat4"
        path.write_bytes(header + struct.pack("<ii", 0, len(packet)) + packet)
        self.check(path)

    def test_a_header_that_is_packed_zeros_is_refused_too(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            content = b"\x93NUMPY\x02\x00" + struct.pack("<I", self.COUNT) + b"\0" * self.COUNT
            for name in "xytp":
                archive.writestr(f"{name}.npy", content)
        assert "a header of 50000000 bytes" in refusal(tmp_path / "a.npz")

    def test_members_that_are_not_needed_are_not_read(self, tmp_path):
        np.savez_compressed(tmp_path / "a.npz", **COLUMNS, frames=np.zeros(self.COUNT, "u1"))
        assert len(read_events(tmp_path / "a.npz")) == 2


class TestMatlab:
    def variables(self):
        random = np.random.default_rng(3)
        numbers = [
            random.integers(0, 100, (40, 1)).astype(kind)
            for kind in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "?")
        ]
        yield from numbers
        yield np.array([[7.0]])  # stored as one byte beside its type
        yield random.integers(0, 9, (3, 5, 2))
        yield np.zeros((0, 0))

    @pytest.mark.parametrize("compressed", [True, False])
    def test_numbers_are_those_that_scipy_reads(self, compressed, tmp_path):
        from event2vec.io.matlab import read_matlab

        table = {f"v{number}": variable for number, variable in enumerate(self.variables())}
        others = {"text": "hello", "cell": np.array([1, "a"], object), "both": {"x": 1}, "turned": np.array([1j])}
        scipy.io.savemat(tmp_path / "a.mat", table | others, do_compression=compressed)
        expected = scipy.io.loadmat(tmp_path / "a.mat")
        names, arrays = read_matlab(tmp_path / "a.mat", {*table, *others})
        assert sorted(names) == sorted(table | others)
        assert sorted(arrays) == sorted(table)
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, expected[name])
            assert array.shape == expected[name].shape

    def test_whole_doubles_in_small_types_and_the_other_byte_order_are_read(self, tmp_path):
        """MATLAB stores doubles that are whole as 16-bit integers, and a short name beside its own length."""

        def matrix(name, numbers):
            body = struct.pack(">IIII", 6, 8, 6, 0) + struct.pack(">IIii", 5, 8, len(numbers), 1)
            body += struct.pack(">HH4s", len(name), 1, name)
            content = struct.pack(f">{len(numbers)}h", *numbers)
            return body + struct.pack(">II", 3, len(content)) + content + b"\0" * (-len(content) % 8)

        file = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack(">H", 0x100) + b"MI"
        for name, numbers in ((b"t", [1, 2, 300]), (b"x", [4, 5, 6]), (b"y", [7, 8, 9]), (b"on", [1, 0, 1])):
            body = matrix(name, numbers)
            file += struct.pack(">II", 14, len(body)) + body
        (tmp_path / "a.mat").write_bytes(file)
        events = read_events(tmp_path / "a.mat")
        assert (events.t.tolist(), events.x.tolist(), events.y.tolist()) == ([0, 1, 299], [4, 5, 6], [7, 8, 9])

    def test_a_damaged_length_is_an_error_and_not_the_end_of_the_process(self, tmp_path):
        table = {name: np.arange(50)[:, None] for name in ("ts", "x", "y", "pol")}
        scipy.io.savemat(tmp_path / "a.mat", table)
        data = bytearray((tmp_path / "a.mat").read_bytes())
        data[176:180] = struct.pack("<I", 1000)
        (tmp_path / "a.mat").write_bytes(data)
        assert "cannot be read as a MATLAB file" in refusal(tmp_path / "a.mat")

    def test_level_4_is_refused_in_words(self, tmp_path):
        scipy.io.savemat(tmp_path / "a.mat", {"x": [1, 2]}, format="4")
        assert "is not a MATLAB file of level 5. Save it again in MATLAB: save(name, '-v7')" in refusal(
            tmp_path / "a.mat"
        )


def columns_file(path, **instead):
    with h5py.File(path, "w") as file:
        for name, column in (COLUMNS | instead).items():
            if column is not None:
                file[f"events/{name}"] = column
    return path


class TestHdf5:
    SECRET = b"root:secret password"

    @pytest.fixture
    def secret(self, tmp_path):
        (tmp_path / "secret").write_bytes(self.SECRET * 8)
        columns_file(tmp_path / "other.h5")
        return tmp_path / "secret"

    def test_external_storage_is_never_opened(self, secret, tmp_path):
        with h5py.File(columns_file(tmp_path / "a.h5", x=None), "a") as file:
            file.create_dataset("events/x", (64,), "u1", external=[(str(secret), 0, 64)])
        assert "keeps '/events/x' in other files, which are not opened" in refusal(tmp_path / "a.h5")

    @pytest.mark.parametrize("kind", ["pipe", "device"])
    def test_external_storage_without_an_end_does_not_stop_us(self, kind, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        source = str(tmp_path / "pipe") if kind == "pipe" else "/dev/zero"
        with h5py.File(columns_file(tmp_path / "a.h5", t=None), "a") as file:
            file.create_dataset("events/t", (10**9,), "u1", external=[(source, 0, 10**9)])
        assert "in other files" in refusal(tmp_path / "a.h5")

    @pytest.mark.parametrize(
        "link", [h5py.SoftLink("/elsewhere"), h5py.ExternalLink("other.h5", "/events/x")], ids=["soft", "external"]
    )
    def test_links_are_not_followed(self, link, secret, tmp_path):
        with h5py.File(columns_file(tmp_path / "a.h5", x=None), "a") as file:
            file["elsewhere"] = [1, 2]
            file["events/x"] = link
        assert "a link or a group as 'x', expected numbers. Links are not followed" in refusal(tmp_path / "a.h5")

    @pytest.mark.parametrize("place", ["events", "CD", "t_offset"])
    def test_a_link_in_place_of_a_group_is_not_followed(self, place, secret, tmp_path):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file[place] = h5py.ExternalLink("other.h5", "/events")
        assert "holds no events" in refusal(tmp_path / "a.h5")

    def test_a_virtual_table_is_not_followed(self, secret, tmp_path):
        layout = h5py.VirtualLayout((2,), "i8")
        layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "events/x", (2,), "i8")
        with h5py.File(columns_file(tmp_path / "a.h5", x=None), "a") as file:
            file.create_virtual_dataset("events/x", layout)
        assert "in other files" in refusal(tmp_path / "a.h5")

    def test_columns_of_open_length_are_refused(self, tmp_path):
        with h5py.File(columns_file(tmp_path / "a.h5", p=None), "a") as file:
            file.create_dataset("events/p", (2,), h5py.vlen_dtype(np.int8))
        assert "variable-length entries or references in '/events/p'" in refusal(tmp_path / "a.h5")

    def test_a_chain_of_filters_is_refused(self, tmp_path):
        settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        settings.set_chunk((2,))
        for _ in range(5):
            settings.set_deflate(9)
        with h5py.File(columns_file(tmp_path / "a.h5", x=None), "a") as file:
            space = h5py.h5s.create_simple((2,))
            h5py.h5d.create(file["events"].id, b"x", h5py.h5t.NATIVE_INT64, space, settings)
            file["events/x"][:] = [1, 2]
        assert "uses 5 filters in '/events/x', expected one compression" in refusal(tmp_path / "a.h5")

    def test_shuffled_packed_and_summed_columns_are_usual(self, tmp_path):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            for name, column in COLUMNS.items():
                options = {"scaleoffset": 0, "shuffle": True, "compression": "gzip", "fletcher32": False}
                file.create_dataset(f"events/{name}", data=np.array(column, "i8"), **options)
        assert len(read_events(tmp_path / "a.h5")) == 2

    def test_thousands_of_nested_groups_are_left_alone(self, tmp_path):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            group = file
            for _ in range(3000):
                group = group.create_group("g")
        assert "holds no events" in refusal(tmp_path / "a.h5")

    def test_a_group_in_itself_is_left_alone(self, tmp_path):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            for name in "abcdefgh":
                file[name] = file["/"]
        assert "holds no events" in refusal(tmp_path / "a.h5")

    def test_a_heap_that_leads_nowhere_ends_after_seconds(self, tmp_path):
        path = encoders.write("hdf5_metavision", tmp_path)
        data = bytearray(path.read_bytes())
        heap = data.index(b"GCOL")
        data[heap + 24 : heap + 32] = struct.pack("<Q", 2**64 - 16)  # the first entry claims to end where it begins
        path.write_bytes(data)
        assert "cannot be read as HDF5: reading it took more than 3 s of CPU time" in refusal(path)

    def test_waiting_for_others_does_not_count_as_reading(self, tmp_path):
        """Here for the one that asked, which reads late; on a busy machine for a turn on the processor."""
        many = np.arange(100_000)
        path = columns_file(tmp_path / "a.h5", x=many % 30, y=many % 30, t=many, p=many % 2)
        request = {"path": os.fsencode(path).hex(), "names": list(NAMES.values()), "part": None, "bytes": 1 << 25}
        command = [sys.executable, "-P", str(hdf5.CHILD)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(json.dumps(request | {"seconds": 1, "wall_seconds": 60}).encode() + b"\n")
            child.stdin.flush()
            time.sleep(1.5)
            table, _ = hdf5._receive(child.stdout)
            child.stdin.close()
        assert sorted(table) == ["p", "t", "x", "y"]

    def test_a_reader_that_cannot_start_is_not_a_damaged_file(self, tmp_path, monkeypatch):
        path = columns_file(tmp_path / "a.h5")
        (tmp_path / "h5py.py").write_text("raise ImportError")
        monkeypatch.syspath_prepend(tmp_path)
        hdf5._child().end()
        with pytest.raises(Event2VecError, match=r"HDF5 reader could not be started\. Check it: .* -c 'import h5py'"):
            read_recording(path)
        hdf5._child().end()

    @pytest.mark.parametrize("offset", [2**63, np.uint64(2**64 - 1), 1e300, float("nan"), 0.5, [1, 2], b"text"])
    def test_an_offset_that_no_clock_shows_is_an_error(self, offset, tmp_path):
        with h5py.File(columns_file(tmp_path / "a.h5"), "a") as file:
            file["t_offset"] = np.asarray(offset)
        assert "has a t_offset of" in refusal(tmp_path / "a.h5")

    def test_an_offset_moves_the_clock(self, tmp_path):
        with h5py.File(columns_file(tmp_path / "a.h5"), "a") as file:
            file["t_offset"] = 2**61
        assert read_recording(tmp_path / "a.h5").start == 2**61 + 5

    def test_a_claim_of_many_rows_reserves_nothing(self, tmp_path):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            for name in "xytp":
                file.create_dataset(f"events/{name}", (10**9,), "i8")
        forget_highest_memory()
        before = highest_bytes()
        assert "claims 8000000000 bytes in '/events/p' but holds 0" in refusal(tmp_path / "a.h5")
        assert highest_bytes() - before < 50 << 20

    def test_the_child_that_reads_crashes_alone_and_is_started_again(self, tmp_path):
        path = columns_file(tmp_path / "a.h5")
        read_events(path)
        first = hdf5._child().process
        assert first is not None
        first.send_signal(signal.SIGSEGV)
        first.wait(SECONDS_TO_END)
        assert len(read_events(path)) == 2
        assert hdf5._child().process is not first

    def test_a_name_is_that_of_the_folder_we_are_in_now(self, tmp_path, monkeypatch):
        for number, folder in enumerate((tmp_path / "a", tmp_path / "b")):
            folder.mkdir()
            columns_file(folder / "same.h5", x=[number, number])
            monkeypatch.chdir(folder)
            assert read_events("same.h5").x.tolist() == [number, number]

    @NEEDS_PROC
    def test_the_child_that_reads_ends_with_its_parent(self, tmp_path):
        path = columns_file(tmp_path / "a.h5")
        code = (
            "import sys, time; from event2vec import read_events; from event2vec.io import hdf5\n"
            f"read_events({str(path)!r}); print(hdf5._child().process.pid, flush=True); time.sleep(60)"
        )
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            child = int(parent.stdout.readline())
            parent.kill()
        until = time.monotonic() + 60
        while is_alive(child) and time.monotonic() < until:
            time.sleep(0.02)
        assert not is_alive(child)

    def test_prophesees_codec_is_decoded_by_the_optional_package(self, tmp_path, monkeypatch):
        settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        settings.set_chunk((4,))
        settings.set_filter(0x8ECF, h5py.h5z.FLAG_OPTIONAL)
        kind = h5py.h5t.py_create(np.dtype([("x", "<u2"), ("y", "<u2"), ("p", "<i2"), ("t", "<i8")]))
        with h5py.File(tmp_path / "a.hdf5", "w") as file:
            group = file.create_group("CD")
            h5py.h5d.create(group.id, b"events", kind, h5py.h5s.create_simple((4,)), settings)
        stub = tmp_path / "evlib.py"
        monkeypatch.syspath_prepend(tmp_path)
        stub.write_text("raise ImportError")
        hdf5._child().end()
        with pytest.raises(MissingExtra, match=r"ECF codec.*pip install 'event2vec\[ecf\]'"):
            read_events(tmp_path / "a.hdf5")
        stub.write_text(
            "import numpy\n"
            "class Column:\n"
            "    dtype = type('', (), {'is_temporal': lambda self: False})()\n"
            "    def to_numpy(self): return numpy.array([1, 0])\n"
            "class Table(dict):\n"
            "    collect = lambda self: self\n"
            "    __missing__ = lambda self, name: Column()\n"
            "load_events = lambda path: Table()\n"
        )
        hdf5._child().end()
        assert read_events(tmp_path / "a.hdf5").x.tolist() == [0, 1]
        hdf5._child().end()


class TestNumbers:
    @pytest.mark.parametrize("suffix", [".npz", ".npy", ".h5"])
    def test_times_beyond_63_bits_do_not_wrap(self, suffix, tmp_path):
        path, t = tmp_path / f"a{suffix}", np.array([2**63 + 5, 2**63 + 9], np.uint64)
        if suffix == ".h5":
            columns_file(path, t=t)
        elif suffix == ".npz":
            np.savez(path, **(COLUMNS | {"t": t}))
        else:
            table = np.zeros(2, [("x", "i4"), ("y", "i4"), ("t", "u8"), ("p", "i4")])
            table["t"] = t
            np.save(path, table)
        assert "t must be below 2^63" in refusal(path)

    def test_a_polarity_beyond_63_bits_does_not_wrap(self, tmp_path):
        np.savez(tmp_path / "a.npz", **(COLUMNS | {"p": np.array([2**64 - 1, 1], np.uint64)}))
        assert "p must be 0/1" in refusal(tmp_path / "a.npz")

    @pytest.mark.parametrize("kind", ["u1", "u2", "u4", "u8", "i4", "f2", "f8", "g"])
    def test_counts_of_every_type_are_read_under_both_names(self, kind, tmp_path):
        for name in ("rho", "intensity"):
            np.savez(tmp_path / "a.npz", **(COLUMNS | {name: np.array([3, 1], kind)}))
            assert read_events(tmp_path / "a.npz").rho.tolist() == [3, 1]

    OTHERS = (  # what another program may call intensity
        np.array([0.5, 3]),
        np.array([0, 3]),
        np.array([np.inf, 3]),
        np.array([np.nan, 3]),
        np.array([1, 2, 3]),
        np.ones((2, 2)),
        np.array(["dark", "light"]),
    )

    @pytest.mark.parametrize("intensity", [*OTHERS, np.array([{}, {}])], ids=str)
    def test_an_intensity_that_is_not_a_count_is_left_alone(self, intensity, tmp_path):
        np.savez(tmp_path / "a.npz", **COLUMNS, intensity=intensity)
        recording = read_recording(tmp_path / "a.npz")
        assert (recording.events.rho.tolist(), recording.events.t.tolist()) == ([1, 1], [0, 4])
        assert recording.warnings == ()

    @pytest.mark.parametrize("intensity", [*OTHERS[:-1], None, h5py.SoftLink("/elsewhere")], ids=str)
    def test_an_intensity_in_hdf5_that_is_not_a_count_is_left_alone(self, intensity, tmp_path):
        with h5py.File(columns_file(tmp_path / "a.h5"), "a") as file:
            if intensity is None:
                file.create_group("events/intensity")
            else:
                file["events/intensity"] = intensity
        assert read_events(tmp_path / "a.h5").rho.tolist() == [1, 1]

    def test_times_from_0_to_1_beside_counts_are_seconds_and_it_is_said(self, tmp_path):
        np.savez(tmp_path / "a.npz", **(COLUMNS | {"t": [0.0, 0.5]}), intensity=[3, 1])
        recording = read_recording(tmp_path / "a.npz")
        assert recording.events.t.tolist() == [0, 500_000]
        assert recording.warnings == ("its times from 0 to 1 were read as seconds; `time_unit` sets another unit",)
        assert read_recording(tmp_path / "a.npz", time_unit="ms").events.t.tolist() == [0, 500]

    @pytest.mark.parametrize("t", [[0.0, 1.5], [-0.5, 0.5]])
    def test_other_times_with_fractions_need_their_unit(self, t, tmp_path):
        np.savez(tmp_path / "a.npz", **(COLUMNS | {"t": t}), intensity=[3, 1])
        assert "has fractional times and no unit" in refusal(tmp_path / "a.npz")

    def test_whole_times_as_floats_are_microseconds(self, tmp_path):
        np.savez(tmp_path / "a.npz", **(COLUMNS | {"t": [0.0, 400.0]}), intensity=[3, 1])
        assert read_events(tmp_path / "a.npz").t.tolist() == [0, 400]

    def test_numbers_of_16_bytes_are_read(self, tmp_path):
        wide: dict[str, Any] = {name: np.array(column, "g") for name, column in COLUMNS.items()}
        np.savez(tmp_path / "a.npz", **wide)
        assert read_events(tmp_path / "a.npz").t.tolist() == [0, 4]


class TestText:
    @pytest.mark.parametrize(
        "text",
        [
            "9" * 5000 + " 1 2 1\n",
            "1 2 3 1\n" + "9" * 5000 + " 1 2 1\n",
            ("# " + "[" * 4000 + "\n") * 64,
            ("# " + " " * 4000 + "(\n") * 64,
            "t" * 1_000_000,
            "\x1b[31mred\x07\n",
        ],
        ids=["a first number", "a number", "brackets", "blanks", "one word", "controls"],
    )
    def test_strange_text_is_one_short_error_at_once(self, text, tmp_path):
        (tmp_path / "a.txt").write_text(text)
        refusal(tmp_path / "a.txt")

    def test_a_long_line_is_read(self, tmp_path):
        (tmp_path / "a.txt").write_text("1 2 3 1" + " 7" * 1_000_000)
        assert len(read_events(tmp_path / "a.txt")) == 1


class TestMessages:
    """What a file calls itself may be long, and may be meant for the terminal."""

    NAME = "A\x9b31m\x85" * 900

    def test_the_camera_of_an_aedat_file(self, tmp_path):
        (tmp_path / "a.aedat").write_bytes(b"#!AER-DAT2.0\r\n# AEChip: " + self.NAME.encode("latin-1") + b"\r\n")
        refusal(tmp_path / "a.aedat")

    def test_the_format_of_an_aedat_file(self, tmp_path):
        header = b"#!AER-DAT3.1\r\n#Format: " + self.NAME.encode("latin-1") + b"\r\n#!END-HEADER\r\n"
        (tmp_path / "a.aedat").write_bytes(header)
        refusal(tmp_path / "a.aedat")

    def test_the_encoding_of_a_raw_file(self, tmp_path):
        (tmp_path / "a.raw").write_bytes(b"% evt " + self.NAME.encode("latin-1")[:3000] + b"\n")
        refusal(tmp_path / "a.raw")

    def test_the_columns_of_arrays(self, tmp_path):
        columns: dict[str, Any] = {f"{self.NAME}{number}": [1] for number in range(3)}
        np.savez(tmp_path / "a.npz", **columns)
        np.save(tmp_path / "a.npy", np.zeros(1, [(f"{self.NAME[:90]}{number}", "i4") for number in range(40)]))
        scipy.io.savemat(tmp_path / "a.mat", {"A" * 31: [1], "B" * 31: [2]})
        with h5py.File(tmp_path / "a.h5", "w") as file:
            for number in range(9):
                file[f"{self.NAME}{number}"] = [1]
        for suffix in ("npz", "npy", "mat", "h5"):
            refusal(tmp_path / f"a.{suffix}")

    def test_the_header_of_a_long_aedat_file_is_read_in_time(self, tmp_path):
        (tmp_path / "a.aedat").write_bytes(b"#!AER-DAT2.0\r\n" + (b"#" + b"a" * 99 + b"\n") * 80_000)
        start = time.process_time()
        assert len(read_events(tmp_path / "a.aedat")) == 0
        assert time.process_time() - start < 60, "not again and again from the start"


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_polarity_is_true_or_false_whatever_byte_the_file_has(tmp_path, suffix):
    polarity = np.array([0, 5, 255, 1], np.uint8).view(np.bool_)
    table: dict[str, Any] = {"t": np.arange(4), "x": np.arange(4), "y": np.arange(4), "p": polarity}
    path = tmp_path / f"odd{suffix}"
    if suffix == ".npz":
        np.savez(path, **table)
    else:
        rows = np.zeros(4, [("t", "<i8"), ("x", "<u2"), ("y", "<u2"), ("p", "?")])
        for name, column in table.items():
            rows[name] = column
        rows["p"].view(np.uint8)[:] = polarity.view(np.uint8)
        np.save(path, rows)
    assert int(read_events(path).p.sum()) == 3


def test_a_column_without_a_shape_is_refused(tmp_path):
    import h5py

    path = tmp_path / "empty.h5"
    with h5py.File(path, "w") as file:
        for name in "xytp":
            file[f"events/{name}"] = h5py.Empty("<i8")
    with pytest.raises(Event2VecError, match="has no data in"):
        read_events(path)


def test_clusters_of_the_authors_have_times_from_0_to_1(tmp_path):
    path = tmp_path / "clusters.npz"
    columns: dict[str, Any] = {"t": [0.0, 0.25, 1.0], "x": [0.5, 1.0, 2.0], "y": [0, 0, 0], "p": [0, 1, 1]}
    np.savez(path, **columns, intensity=[3, 1, 2])
    events = read_recording(path).events
    assert events.t.tolist() == [0, 250_000, 1_000_000]
    assert events.rho.tolist() == [3, 1, 2]
