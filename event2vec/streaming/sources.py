"""Where live events come from: a recording at its own pace, a pipe, UDP, a camera; each by its name."""

import sys
from dataclasses import replace
from pathlib import Path

from event2vec.errors import Event2VecError
from event2vec.events import Events
from event2vec.io import read_arrays
from event2vec.io.recording import AS_STORED, Reading
from event2vec.machine.ports import UDP, parse_udp
from event2vec.sensor import Sensor
from event2vec.streaming.camera_source import CameraSource
from event2vec.streaming.pipe_source import PipeSource
from event2vec.streaming.recording_source import RecordingSource
from event2vec.streaming.source import Source
from event2vec.streaming.udp_source import UdpSource


def open_source(
    source: str | Path | Events | Source,
    sensor: Sensor,
    speed: float = 1.0,
    loop: bool = False,
    how: Reading = AS_STORED,
) -> Source:
    """A source from its name: `camera`, `camera:SERIAL`, `udp://HOST:PORT`, `-` or a file.

    `sensor` is the network's, which packets and pipes are taken to have unless `how` names another one.
    """
    if isinstance(source, Source):
        return source
    _check_pace(source, speed, loop)
    if isinstance(source, Events):
        return RecordingSource(source, speed, loop)
    name = str(source)
    _check_reading(name, how)
    if _is_camera(name):
        return CameraSource(name.partition(":")[2] or None)
    if name == "-":
        return PipeSource(sys.stdin.buffer, how.sensor or sensor, how.columns, how.time_unit)
    if name.startswith(UDP):
        return UdpSource(*parse_udp(name), how.sensor or sensor)
    events = read_arrays(name, replace(how, usual=sensor)).torch()
    return RecordingSource(events, speed, loop)


def _check_reading(name: str, how: Reading) -> None:
    """Refuse what would have no effect: cameras name their sensor, and packets have one order and one unit."""
    if _is_camera(name) and how.sensor is not None:
        raise Event2VecError(f"`sensor` is not for cameras: {name} names its own. Omit it")
    if (_is_camera(name) or name.startswith(UDP)) and (how.columns, how.time_unit) != (None, None):
        raise Event2VecError(f"`columns` and `time_unit` are for pipes and recordings, not for {name}. Omit them")


def _is_camera(name: str) -> bool:
    return name == "camera" or name.startswith("camera:")


def _check_pace(source: str | Path | Events, speed: float, loop: bool) -> None:
    if not 0 < speed <= 1e4:
        raise Event2VecError(f"`speed` must be above 0 and at most 10000, got {speed:g}")
    live = isinstance(source, str) and (source == "-" or source.startswith(("camera", UDP)))
    if live and not Path(str(source)).exists() and (speed != 1 or loop):
        raise Event2VecError(f"`speed` and `loop` are for recordings; {source} has its own pace")
