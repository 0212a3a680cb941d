"""A recording as an animation to send to people: GIF, or MP4 where ffmpeg is installed."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from event2vec.errors import Event2VecError, FileError
from event2vec.events import Events
from event2vec.names import excerpt

RATE = 25  # frames a second; GIF counts hundredths of a second
SHORTEST, LONGEST = 3.0, 12.0  # seconds; other recordings are played more slowly or more quickly
WINDOW = 33_000  # microseconds of events in a frame, or 8 % of a short recording
SIDE = 480  # pixels; smaller sensors are enlarged to at most this
COLOURS = ((17, 17, 17), (80, 160, 255), (255, 150, 50))  # background, darker, brighter


@dataclass(frozen=True)
class Animation:
    """How a recording is cut into pictures, each a matrix of 0, 1 (darker) and 2 (brighter)."""

    events: Events

    @property
    def seconds(self) -> float:
        return min(max(self.events.duration / 1e6, SHORTEST), LONGEST)

    @property
    def speed(self) -> float:
        """Times the recorded speed."""
        return self.events.duration / 1e6 / self.seconds

    def __len__(self) -> int:
        return round(RATE * self.seconds)

    def frames(self) -> Iterator[NDArray[np.uint8]]:
        """Each frame has the events of a time window up to its moment; later events cover earlier ones."""
        events, sensor = self.events, self.events.sensor
        x, y, t, p = (column.cpu().numpy() for column in (events.x, events.y, events.t, events.p))
        t = t - t[:1]
        column, row, colour = x.round().astype(np.int64), y.round().astype(np.int64), p.astype(np.uint8) + 1
        ends = np.linspace(0, events.duration, len(self) + 1)[1:]
        length = max(events.duration / len(self), min(0.08 * events.duration, WINDOW))
        firsts, lasts = np.searchsorted(t, ends - length), np.searchsorted(t, ends, "right")
        enlarge = max(1, SIDE // max(sensor.width, sensor.height))
        for first, last in zip(firsts, lasts, strict=True):
            frame = np.zeros((sensor.height, sensor.width), np.uint8)
            frame[row[first:last], column[first:last]] = colour[first:last]
            yield np.kron(frame, np.ones((enlarge, enlarge), np.uint8))


def write_gif(path: Path, animation: Animation) -> None:
    from PIL import Image

    def picture(frame: NDArray[np.uint8]) -> "Image.Image":
        image = Image.fromarray(frame, "P")
        image.putpalette([part for colour in COLOURS for part in colour])
        return image

    first, *rest = map(picture, animation.frames())
    first.save(path, "GIF", save_all=True, append_images=rest, duration=1000 // RATE, loop=0)


def find_ffmpeg() -> str:
    program = shutil.which("ffmpeg")
    if program is None:
        raise Event2VecError("mp4 needs the program ffmpeg, which was not found. Install it, or write a .gif instead")
    return program


def write_mp4(path: Path, animation: Animation) -> None:
    """H.264 as every browser plays it: sides must be even, so that an odd one gets a row or column of background."""
    program, frames = find_ffmpeg(), animation.frames()
    first = next(frames)
    given = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{first.shape[1]}x{first.shape[0]}", "-r", str(RATE)]
    wanted = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-f", "mp4"]
    command = [program, "-v", "error", "-y", *given, "-i", "-", *wanted, str(path)]
    palette = np.array(COLOURS, np.uint8)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        try:
            for frame in (first, *frames):
                process.stdin.write(palette[frame].tobytes())
        except BrokenPipeError:  # it ended early, and says why
            pass
        said = process.communicate()[1].decode("utf-8", "replace")
    if process.returncode:
        raise FileError(path, f"ffmpeg could not write it: {excerpt(said, 160) or process.returncode}")
