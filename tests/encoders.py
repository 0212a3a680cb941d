"""Small valid files of every format, encoded here and not by the code under test."""

import struct
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import scipy.io

START = 1_000_000  # the camera's clock at the first event
COUNT = 200


def columns(width: int = 34, height: int = 30) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x, y, t, p with every edge of the sensor in use; t on the camera's clock."""
    random = np.random.default_rng(7)
    x, y = random.integers(0, width, COUNT), random.integers(0, height, COUNT)
    x[:2], y[:2] = (0, width - 1), (height - 1, 0)
    t = np.sort(random.integers(0, 300_000, COUNT))
    t[0] = 0
    return x, y, t + START, random.integers(0, 2, COUNT)


def aedat2_dvs128(path: Path) -> None:
    x, y, t, p = columns(128, 128)
    records = np.empty(COUNT, [("address", ">u4"), ("t", ">u4")])
    records["address"] = (127 - y) << 8 | (127 - x) << 1 | (1 - p)
    records["t"] = t
    path.write_bytes(b"#!AER-DAT2.0\r\n# AEChip: ch.unizh.ini.jaer.chip.retina.DVS128\r\n" + records.tobytes())


def aedat2_davis(path: Path) -> None:
    x, y, t, p = columns(240, 180)
    records = np.empty(COUNT, [("address", ">u4"), ("t", ">u4")])
    records["address"] = (179 - y) << 22 | x << 12 | p << 11
    records["t"] = t
    path.write_bytes(b"#!AER-DAT2.0\r\n# AEChip: eu.seebetter.ini.chips.davis.DAVIS240C\r\n" + records.tobytes())


def aedat31_packet(kind: int, body: bytes, number: int, width: int = 8, overflow: int = 0) -> bytes:
    return struct.pack("<hhiiiiii", kind, 1, width, 4, overflow, number, number, number) + body


def aedat31(path: Path) -> None:
    x, y, t, p = columns(128, 128)
    events = np.empty(COUNT, [("data", "<u4"), ("t", "<i4")])
    events["data"], events["t"] = x << 17 | y << 2 | p << 1 | 1, t
    body = events.tobytes()
    half = COUNT // 2
    path.write_bytes(
        b"#!AER-DAT3.1\r\n#Format: RAW\r\n#Source 1: DVS128\r\n#!END-HEADER\r\n"
        + aedat31_packet(1, body[: half * 8], half)
        + aedat31_packet(3, b"\0" * 36 * 2, 2, width=36)  # inertial measurements
        + aedat31_packet(1, body[half * 8 :], COUNT - half)
    )


def evt2_words(x: np.ndarray, y: np.ndarray, t: np.ndarray, p: np.ndarray) -> np.ndarray:
    words = []
    high = -1
    for column, row, time, rising in zip(x, y, t, p, strict=True):
        if time >> 6 != high:
            high = int(time) >> 6
            words.append(8 << 28 | high & 0xFFFFFFF)
        words.append(int(rising) << 28 | (int(time) & 63) << 22 | int(column) << 11 | int(row))
    return np.array(words, "<u4")


def evt2(path: Path) -> None:
    words = evt2_words(*columns())
    path.write_bytes(b"% evt 2.0\n% geometry 34x30\n% end\n" + words.tobytes())


def evt21(path: Path, swapped: bool = False) -> None:
    x, y, t, p = columns()
    words = []
    high = -1
    for column, row, time, rising in zip(x, y, t, p, strict=True):
        if time >> 6 != high:
            high = int(time) >> 6
            words.append(8 << 60 | high << 32)
        base = int(column) & ~31
        pixel = 1 << (int(column) - base)
        words.append(int(rising) << 60 | (int(time) & 63) << 54 | base << 43 | int(row) << 32 | pixel)
    data = np.array(words, "<u8")
    if swapped:
        data = data << np.uint64(32) | data >> np.uint64(32)
    order = b";endianness=legacy" if swapped else b""
    path.write_bytes(b"% format EVT21;height=30;width=34" + order + b"\n% end\n" + data.tobytes())


def evt3(path: Path) -> None:
    words = []
    for column, row, time, rising in zip(*columns(), strict=True):
        words += [8 << 12 | int(time) >> 12 & 0xFFF, 6 << 12 | int(time) & 0xFFF, int(row)]
        words.append(2 << 12 | int(rising) << 11 | int(column))
    path.write_bytes(b"% evt 3.0\n% format EVT3;height=30;width=34\n% end\n" + np.array(words, "<u2").tobytes())


def dat(path: Path, size: bytes = b"% Height 30\n% Width 34\n") -> None:
    x, y, t, p = columns()
    events = np.empty(COUNT, [("t", "<u4"), ("data", "<u4")])
    events["t"], events["data"] = t, p << 28 | y << 14 | x
    path.write_bytes(b"% Data file containing CD events.\n% Version 2\n" + size + b"\x0c\x08" + events.tobytes())


def dat_without_size(path: Path) -> None:
    dat(path, b"")


def es(path: Path) -> None:
    import event_stream

    x, y, t, p = columns()
    events = np.empty(COUNT, event_stream.dvs_dtype)
    events["t"], events["x"], events["y"], events["on"] = t, x, y, p
    with event_stream.Encoder(str(path), "dvs", 34, 30) as encoder:
        encoder.write(events)


def atis(path: Path) -> None:
    x, y, t, p = columns()
    rows = np.stack([x, y, p << 7 | t >> 16, t >> 8 & 255, t & 255], axis=1)
    path.write_bytes(rows.astype(np.uint8).tobytes())


def npz(path: Path) -> None:
    x, y, t, p = columns()
    np.savez_compressed(path, t=t, x=x, y=y, p=p)


def npy(path: Path) -> None:
    x, y, t, p = columns()
    events = np.empty(COUNT, [("timestamp", "<i8"), ("x", "<u2"), ("y", "<u2"), ("polarity", "?")])
    events["timestamp"], events["x"], events["y"], events["polarity"] = t, x, y, p
    np.save(path, events)


def mat(path: Path) -> None:
    x, y, t, p = (column[:, None] for column in columns())
    scipy.io.savemat(
        path, {"time": t.astype(float), "x": x.astype(np.uint8), "y": y, "pol": p * 2 - 1}, do_compression=True
    )


def txt(path: Path) -> None:
    x, y, t, p = columns()
    lines = zip(t, x, y, p, strict=True)
    path.write_text("".join(f"{time / 1e6:.6f} {column} {row} {rising}\n" for time, column, row, rising in lines))


def csv(path: Path) -> None:
    x, y, t, p = columns()
    lines = zip(x, y, p, t, strict=True)
    path.write_text("x,y,polarity,timestamp\n" + "".join(",".join(map(str, line)) + "\n" for line in lines))


def hdf5(path: Path) -> None:
    x, y, t, p = columns()
    with h5py.File(path, "w") as file:
        for name, column in zip("xytp", (x.astype("u2"), y.astype("u2"), t, p.astype("i2")), strict=True):
            file.create_dataset(f"events/{name}", data=column)


def hdf5_dsec(path: Path) -> None:
    """As DSEC has it: Blosc, 32-bit times and an offset for all of them."""
    import hdf5plugin

    x, y, t, p = columns()
    packed = hdf5plugin.Blosc(cname="zstd")
    with h5py.File(path, "w") as file:
        for name, column in zip(
            "xytp", (x.astype("u2"), y.astype("u2"), (t - START).astype("u4"), p.astype("u1")), strict=True
        ):
            file.create_dataset(f"events/{name}", data=column, chunks=(64,), **packed)
        file["t_offset"] = np.int64(START)
        file["ms_to_idx"] = np.arange(10)


def hdf5_metavision(path: Path) -> None:
    x, y, t, p = columns()
    events = np.empty(COUNT, [("x", "<u2"), ("y", "<u2"), ("p", "<i2"), ("t", "<i8")])
    events["x"], events["y"], events["p"], events["t"] = x, y, p, t
    with h5py.File(path, "w") as file:
        file.create_dataset("CD/events", data=events, chunks=(64,), compression="gzip")
        file.create_dataset("CD/indexes", data=np.zeros(2, [("id", "<u8"), ("ts", "<i8")]))
        file.create_dataset("EXT_TRIGGER/events", data=np.zeros(1, [("p", "<i2"), ("t", "<i8"), ("id", "<i2")]))
        file.attrs["geometry"] = "34x30"


def aedat4(path: Path) -> None:
    """The one format that we have no encoder of our own for: its packets are compressed FlatBuffers."""
    import eventcv

    x, y, t, p = columns()
    stream = eventcv.from_numpy(np.stack([x, y, t, p], axis=1), sensor_size=(34, 30), time_unit="us")
    eventcv.save(stream, str(path))


# name: (suffix, encoder, (width, height), whether the file names its sensor, format that we detect)
FILES: dict[str, tuple[str, Callable[[Path], None], tuple[int, int], bool, str]] = {
    "aedat2_dvs128": (".aedat", aedat2_dvs128, (128, 128), True, "aedat2"),
    "aedat2_davis": (".aedat", aedat2_davis, (240, 180), True, "aedat2"),
    "aedat31": (".aedat", aedat31, (128, 128), True, "aedat31"),
    "aedat4": (".aedat4", aedat4, (34, 30), True, "aedat4"),
    "evt2": (".raw", evt2, (34, 30), True, "evt2"),
    "evt21": (".raw", evt21, (34, 30), True, "evt21"),
    "evt3": (".raw", evt3, (34, 30), True, "evt3"),
    "dat": (".dat", dat, (34, 30), True, "dat"),
    "dat_without_size": (".dat", dat_without_size, (34, 30), False, "dat"),
    "es": (".es", es, (34, 30), True, "es"),
    "atis": (".bin", atis, (34, 34), True, "atis"),
    "npz": (".npz", npz, (34, 30), False, "npz"),
    "npy": (".npy", npy, (34, 30), False, "npy"),
    "mat": (".mat", mat, (34, 30), False, "mat"),
    "txt": (".txt", txt, (34, 30), False, "text"),
    "csv": (".csv", csv, (34, 30), False, "text"),
    "hdf5": (".h5", hdf5, (34, 30), False, "hdf5"),
    "hdf5_dsec": (".h5", hdf5_dsec, (34, 30), False, "hdf5"),
    "hdf5_metavision": (".hdf5", hdf5_metavision, (34, 30), True, "hdf5"),
}


def write(name: str, folder: Path) -> Path:
    path = folder / f"{name}{FILES[name][0]}"
    FILES[name][1](path)
    return path
