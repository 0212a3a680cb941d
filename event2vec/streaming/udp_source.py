"""Events in UDP packets."""

import contextlib
import select
import socket
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.errors import Event2VecError
from event2vec.sensor import Sensor
from event2vec.streaming.chunk import Chunk, StreamClock
from event2vec.streaming.packets import decode, is_packet, is_untimed
from event2vec.streaming.source import BUFFER, PATIENCE, Source

GATHER = 0.002  # seconds in which packets come together: many small chunks would slow the thread that answers
DRAIN = 0.004  # seconds in which waiting packets are collected
SWITCH = 8  # packets of the other kind, in a row, after which the sender has changed


class UdpSource(Source):
    """Packets of eventcv and AEStream; without times in them, events have the time of their packet's arrival.

    The first packet with events decides which kind is read: a stray one of the other kind must not move the clock.
    """

    def __init__(self, host: str, port: int, sensor: Sensor) -> None:
        super().__init__()
        self.sensor = sensor
        self.clock = StreamClock()
        self.timed: bool | None = None  # decided by the first packet with events
        self.others = 0  # packets of the other kind since the last of ours
        self.name = f"udp://{host}:{port}"
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        try:
            _ask_for_room(self.socket)
            self.socket.bind((host, port))
        except OSError as error:
            self.socket.close()
            raise Event2VecError(f"cannot receive at {self.name}: {error.strerror or error}") from None
        self.socket.setblocking(False)
        self.name = f"udp://{host}:{self.socket.getsockname()[1]}"  # port 0 is any that is free
        self.buffer = bytearray(BUFFER)

    def read(self) -> Chunk | None:
        if not select.select([self.socket], [], [], PATIENCE)[0]:
            return None
        if self.timed:  # others have the time at which they are received
            time.sleep(GATHER)
        started, view, filled = time.monotonic(), memoryview(self.buffer), 0
        counts, arrivals = list[int](), list[float]()
        while filled <= BUFFER - 65536 and time.monotonic() - started < DRAIN:
            try:
                size = self.socket.recv_into(view[filled:])
            except BlockingIOError:
                break
            packet = view[filled : filled + size]
            if not self._accepts(packet, first=not filled):
                self._reject(1, f"{self.name}: a packet of {size} bytes holds no events of the expected form")
                continue
            filled += size
            counts.append(size // (8 if self.timed else 4))
            arrivals.append(time.monotonic())
        return self._chunk(view[:filled], counts, arrivals) if filled else None

    def _accepts(self, packet: memoryview, first: bool) -> bool:
        """Whether a packet can be read with those before it; the `first` of a chunk may be of another kind."""
        if not is_packet(packet):
            return False
        untimed = is_untimed(packet)
        if self.timed == (not untimed):
            self.others = 0
            return True
        if len(decode(packet, untimed, self.sensor).x) == 0:
            return False
        self.others += 1
        if self.timed is not None and (self.others < SWITCH or not first):
            return False
        self._read_kind(untimed)
        return True

    def _read_kind(self, untimed: bool) -> None:
        if untimed:
            self.notices.append(f"{self.name}: packets have no times; events get the time of their arrival")
        elif self.timed is not None:
            self.notices.append(f"{self.name}: packets have times now")
        self.timed, self.others = not untimed, 0
        self.clock = StreamClock(64 if untimed else 32, self.clock.latest)

    def _chunk(self, data: memoryview, counts: list[int], arrivals: list[float]) -> Chunk | None:
        words = decode(data, not self.timed, self.sensor)
        missing = len(words.kept) - len(words.x)
        self._reject(missing, f"{self.name}: an event outside the {self.sensor} sensor, or of another kind")
        if len(words.x) == 0:
            return None
        raw: NDArray[Any] | None = words.t
        if raw is None:
            raw = np.repeat((1e6 * np.array(arrivals)).astype(np.int64), counts)[words.kept]
        t = self._follow(self.clock, raw)
        return Chunk(words.x, words.y, t, words.p, arrivals[-1])

    def close(self) -> None:
        self.socket.close()


def _ask_for_room(receiver: socket.socket) -> None:
    """As much memory for waiting packets as the system gives: at 1 million events a second 8 MB hold one second."""
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 23)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # past the system's limit, for root
            receiver.setsockopt(socket.SOL_SOCKET, 33, 1 << 23)  # SO_RCVBUFFORCE
