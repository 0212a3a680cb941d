"""Reading files: our adapter against eventcv alone, and our own readers on long recordings."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from event2vec.benchmark.measure import best_seconds, peak_bytes
from event2vec.benchmark.measurement import Measurement
from event2vec.io import detect_format, read_recording
from event2vec.io.aedat import AEDAT2_EVENT, POLARITY_EVENT

ADAPTED = 2_000_000  # events in each file that eventcv decodes
LONG = 10_000_000  # events in each file that we decode
PACKET = 8192
ROUNDS = 15


def measure_reading(recordings: Path | None) -> list[Measurement]:
    """Files of our own making, and AEDAT4, EVT2 and EVT3 files of the user's where a folder is given."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = _write_adapted(folder)
        if recordings is not None:
            real = sorted(path for path in recordings.iterdir() if path.suffix in (".aedat4", ".raw"))
            files += [path for path in real if detect_format(path) in ("aedat4", "evt2", "evt3")]
        rows = _against_eventcv(files)
        for file in files:
            if file.parent == folder:
                file.unlink()
        return rows + [_own(file) for file in _write_long(folder)]


def _against_eventcv(files: list[Path]) -> list[Measurement]:
    """All files in turn, as a data set is read: the same file again and again would find its memory still warm."""
    sides: dict[str, Callable[[], Any]] = {}
    for file in files:
        sides[f"ours {file}"] = partial(read_recording, file)
        sides[f"eventcv {file}"] = partial(_eventcv_alone, str(file))
    seconds = best_seconds(sides, ROUNDS)
    return [_compared(file, seconds[f"ours {file}"], seconds[f"eventcv {file}"]) for file in files]


def _compared(file: Path, ours: float, eventcv: float) -> Measurement:
    return Measurement(
        case={"file": file.name, "events": len(read_recording(file).events)},
        figures={"ours ms": ours * 1e3, "eventcv ms": eventcv * 1e3},
        ratios={"ours / eventcv": ours / eventcv},
        targets={"target": 1.3},
    )


def _eventcv_alone(name: str) -> Any:
    import eventcv

    return eventcv.load(name, time_unit="us").numpy()


def _own(file: Path) -> Measurement:
    small = file.with_name("small" + file.suffix)
    small.write_bytes(file.read_bytes()[: 1 << 16])
    seconds = best_seconds({"ours": lambda: read_recording(file)}, 3)
    memory = peak_bytes(read_recording, (small,), file)
    return Measurement(
        case={"file": file.name, "events": LONG},
        figures={"ours ms": seconds["ours"] * 1e3},
        ratios={"memory / file size": memory / file.stat().st_size},
        targets={"target ms": 1000, "target memory": 6},
    )


def _events(count: int, side: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng((0, 0, count))
    x, y = random.integers(0, side, (2, count))
    return x, y, random.exponential(2.0, count).cumsum().astype(np.int64), random.integers(0, 2, count)


def _write_adapted(folder: Path) -> list[Path]:
    import eventcv

    stream = eventcv.from_numpy(np.stack(_events(ADAPTED, 480), 1), sensor_size=(640, 480), time_unit="us")
    files = {"made.aedat4": None, "made_evt2.raw": "evt2", "made_evt3.raw": "evt3"}
    for name, format in files.items():
        eventcv.save(stream, str(folder / name), format=format)
    return [folder / name for name in files]


def _write_long(folder: Path) -> list[Path]:
    """A DVS128's AEDAT 2.0 and an AEDAT 3.1 file."""
    x, y, t, p = _events(LONG, 128)
    old = np.empty(LONG, AEDAT2_EVENT)
    old["address"], old["t"] = y << 8 | x << 1 | p, t
    first = folder / "dvs128_long.aedat"
    first.write_bytes(b"#!AER-DAT2.0\r\n# AEChip: DVS128\r\n" + old.tobytes())
    new = np.empty(LONG, POLARITY_EVENT)
    new["data"], new["t"] = x << 17 | y << 2 | p << 1 | 1, t
    second = folder / "aedat31_long.aedat"
    with second.open("wb") as file:
        file.write(b"#!AER-DAT3.1\r\n#Source 1: DVS128\r\n#!END-HEADER\r\n")
        for start in range(0, LONG, PACKET):
            packet = new[start : start + PACKET]
            file.write(np.array([1, 1], "<i2").tobytes())
            file.write(np.array([8, 4, 0, len(packet), len(packet), len(packet)], "<i4").tobytes())
            file.write(packet.tobytes())
    return [first, second]
