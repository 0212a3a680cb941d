"""Long recordings: reading in chunks and answers over time, against the time that the recording itself takes."""

import math
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from event2vec.benchmark.measure import best_seconds, peak_bytes, seconds_and_peak
from event2vec.benchmark.measurement import Measurement
from event2vec.data.sampling import Sampling
from event2vec.data.windows import Windows
from event2vec.errors import FileError
from event2vec.evaluation.timeline import timeline
from event2vec.io import read_recording
from event2vec.io.aedat import AEDAT2_EVENT
from event2vec.io.chunks import read_chunks
from event2vec.model.classifier import Classifier, build_model
from event2vec.model.config import ModelConfig
from event2vec.sensor import Sensor

SENSOR = Sensor(128, 128)
REAL = "dvs128.aedat"
MADE, MADE_SECONDS = 200_000, 10  # events and duration of the recording that is repeated where there is no real one
REPEATS = (16, 64)  # lengths whose memory should be the same
WINDOWS = Windows(window=0.1)
ROUNDS = 2
PER_HOUR = 1_000_000_000  # events of a busy scene


def measure_streaming(recordings: Path | None, minutes: float | None = None) -> list[Measurement]:
    """A DVS128 recording repeated to two lengths: the real one of a folder, or one of our own making.

    With `minutes`, instead answers on a recording of that length: at the rate of the real one, and with 10^9 events an
    hour, for which it is played faster.
    """
    source = recordings / REAL if recordings is not None else None
    if source is not None and not source.is_file():
        raise FileError(source, f"does not exist, expected the DVS128 recording {REAL} in this folder")
    with tempfile.TemporaryDirectory() as name:
        if minutes is not None:
            return [_measure_long(Path(name), source, 60 * minutes, busy) for busy in (False, True)]
        files = {repeats: _write(Path(name) / f"{repeats}.aedat", source, repeats) for repeats in (1, *REPEATS)}
        return [_measured(work, files, repeats) for work in (_read, _answer) for repeats in REPEATS]


def _measure_long(folder: Path, source: Path | None, seconds: float, busy: bool) -> Measurement:
    short, events, duration = _write(folder / "short.aedat", source, 1)
    speed = max(PER_HOUR / 3600 / (events / duration), 1.0) if busy else 1.0
    path, events, duration = _write(folder / "long.aedat", source, math.ceil(seconds / duration * speed), speed)
    taken, memory = seconds_and_peak(_answer, (short,), path)
    size = path.stat().st_size
    path.unlink()
    return Measurement(
        case={"what": "answers over time", "events": events, "events/s": round(events / duration)},
        figures={"recorded s": duration, "answered in s": taken, "memory MB": memory / 2**20},
        ratios={"time / recorded time": taken / duration, "memory / file size": memory / size},
        targets={"target": 1},
    )


def _measured(work: Callable[[Path], int], files: dict[int, tuple[Path, int, float]], repeats: int) -> Measurement:
    path, events, duration = files[repeats]
    seconds = best_seconds({"ours": partial(work, path)}, ROUNDS)["ours"]
    memory = peak_bytes(work, (files[1][0],), path)
    return Measurement(
        case={"what": "reading in chunks" if work is _read else "answers over time", "events": events},
        figures={
            "recorded s": duration,
            "million events/s": events / seconds / 1e6,
            "memory MB": memory / 2**20,
        },
        ratios={"time / recorded time": seconds / duration, "memory / file size": memory / path.stat().st_size},
        targets={"target": 1},
    )


def _read(path: Path) -> int:
    return sum(len(chunk) for chunk in read_chunks(path))


def _answer(path: Path) -> int:
    return len(timeline(_network(), path, WINDOWS))


def _network() -> Classifier:
    """Two blocks of 64 on 512 random events, as the recipe 'folder' has them."""
    config = ModelConfig(sensor=SENSOR, classes=11, blocks=2, pooling=False)
    return build_model(config, sampling=Sampling(length=512)).eval()


def _write(path: Path, source: Path | None, repeats: int, speed: float = 1.0) -> tuple[Path, int, float]:
    """AEDAT 2.0 with the recording again and again, `speed` times as fast; the file, its events and its seconds."""
    x, y, t, p = _recorded(source) if source is not None else _made()
    t = (t / speed).astype(np.int64)
    period = int(t[-1]) + 1000
    records = np.empty(len(t), AEDAT2_EVENT)
    records["address"] = (127 - y) << 8 | (127 - x) << 1 | (1 - p)
    with path.open("wb") as file:
        file.write(b"#!AER-DAT2.0\r\n# AEChip: DVS128\r\n")
        for number in range(repeats):
            records["t"] = (t + number * period) % (1 << 32)
            file.write(records.tobytes())
    return path, repeats * len(t), repeats * period / 1e6


def _recorded(source: Path) -> tuple[np.ndarray, ...]:
    events = read_recording(source).events
    return tuple(column.numpy().astype(np.int64) for column in (events.x, events.y, events.t, events.p))


def _made() -> tuple[np.ndarray, ...]:
    random = np.random.default_rng((0, 0, MADE))
    x, y = random.integers(0, 128, (2, MADE))
    return x, y, np.sort(random.integers(0, MADE_SECONDS * 1_000_000, MADE)), random.integers(0, 2, MADE)
