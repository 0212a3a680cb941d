"""Events of a USB camera."""

import contextlib
import time
from typing import Any

import numpy as np

from event2vec.errors import Event2VecError
from event2vec.names import excerpt
from event2vec.sensor import Sensor
from event2vec.streaming.chunk import Chunk, StreamClock
from event2vec.streaming.source import PATIENCE, Source

REOPEN = 1.0  # seconds between two attempts to find a camera again


class CameraSource(Source):
    """A USB camera through eventcv. If it is unplugged, we look for it again every second."""

    def __init__(self, serial: str | None = None) -> None:
        super().__init__()
        self.serial = serial
        self.clock = StreamClock(64)
        self.tried = 0.0
        self.camera: Any = self._open()
        self.sensor = Sensor(*self.camera.sensor_size)

    def _open(self) -> Any:
        import eventcv

        self.tried = time.monotonic()
        if not list_cameras():
            raise Event2VecError("no event camera was found. Plug one in; on Linux, eventcv's udev rules must be there")
        try:
            return eventcv.stream(self.serial, dt_ms=5.0)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a Rust panic is not an Exception
            raise Event2VecError(
                f"the camera cannot be opened: {excerpt(error, 160)}. Is another program using it?"
            ) from None

    def read(self) -> Chunk | None:
        if self.camera is None:
            self._look_again()
            return None
        try:
            window = self.camera.read(timeout_ms=1000 * PATIENCE)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.close()
            self.notices.append(f"the camera is gone: {excerpt(error, 120)}. Retrying every second")
            return None
        if window is None:
            return None
        rows = window.numpy().view(np.int64)
        fits = (rows[:, 0] < self.sensor.width) & (rows[:, 1] < self.sensor.height)
        rows = rows[fits]
        self._reject(int(np.count_nonzero(~fits)), f"an event outside the {self.sensor} sensor: is it another camera?")
        x, y, t, p = rows.T
        return Chunk.of(x, y, self._follow(self.clock, t), p != 0, time.monotonic()) if len(rows) else None

    def _look_again(self) -> None:
        time.sleep(PATIENCE)
        if time.monotonic() - self.tried < REOPEN:
            return
        with contextlib.suppress(Event2VecError):
            self.camera = self._open()
            self.notices.append("the camera is back")

    def close(self) -> None:
        camera, self.camera = self.camera, None
        if camera is not None:
            with contextlib.suppress(Exception):
                camera.close()


def list_cameras() -> list[dict[str, Any]]:
    """The event cameras that eventcv finds on USB: kind, name, serial and more of each.

        [camera["serial"] for camera in list_cameras()]

    `live(model, "camera:SERIAL")` reads one of them.
    """
    import eventcv

    return list(eventcv.list_cameras())
