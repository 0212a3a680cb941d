"""See a recording: the event player as one HTML page, or an animation; no network needed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from event2vec.errors import Event2VecError, FileError
from event2vec.events import Events
from event2vec.io import read_events
from event2vec.io.chunks import read_chunks
from event2vec.io.recording import ReadingOptions
from event2vec.machine.atomic import whole_file
from event2vec.player.animation import Animation, find_ffmpeg, write_gif, write_mp4
from event2vec.player.clip import Clip, Thinner, thin
from event2vec.player.page import PlayerPage
from event2vec.sensor import Sensor

MOST = 400_000  # events on a page, 7 MB; longer recordings are thinned
ANIMATIONS: dict[str, Callable[[Path, Animation], None]] = {".gif": write_gif, ".mp4": write_mp4}
SUFFIXES = (".html", *ANIMATIONS)


@dataclass(frozen=True)
class Viewed:
    """A file that shows a recording."""

    path: Path
    recorded: int  # events in the recording
    shown: int  # events in the file
    speed: float | None  # times the recorded speed; a page has a choice of them
    duration: int  # of the recording, in microseconds
    sensor: Sensor

    def facts(self) -> dict[str, Any]:
        """For JSON; units are in the names."""
        return {
            "file": str(self.path),
            "events": self.recorded,
            "events_shown": self.shown,
            "speed": self.speed,
            "duration_us": self.duration,
            "width": self.sensor.width,
            "height": self.sensor.height,
        }


def view(
    recording: Events | str | Path, path: str | Path, *, title: str | None = None, **reading: Unpack[ReadingOptions]
) -> Viewed:
    """Write a page with the event player (.html), or an animation (.gif, or .mp4 where ffmpeg is installed).

        view("walk.aedat4", "walk.html")

    The page is one file that loads nothing. Recordings of more than 400,000 events are thinned on it, at random.
    `reading` holds the options of `read_events`.
    """
    path = Path(path)
    check_view(path)
    if title is None:
        title = path.stem if isinstance(recording, Events) else Path(recording).name
    write = ANIMATIONS.get(path.suffix.lower())
    if write is None:
        return _write_page(recording, path, title, reading)
    events = recording if isinstance(recording, Events) else read_events(recording, **reading)
    _refuse_empty(len(events), title)
    animation = Animation(events)
    with whole_file(path) as temporary:
        write(temporary, animation)
    return Viewed(path, len(events), len(events), animation.speed, events.duration, events.sensor)


def _write_page(recording: Events | str | Path, path: Path, title: str, reading: ReadingOptions) -> Viewed:
    """A file is read in chunks, of which only the events that are shown are kept."""
    thinner = Thinner(MOST)
    times: list[int] = []  # the first of each chunk and the last
    for chunk in thinner.watch([recording] if isinstance(recording, Events) else read_chunks(recording, **reading)):
        times += [int(chunk.t[0]), int(chunk.t[-1])] if len(chunk) else []
    _refuse_empty(thinner.recorded, title)
    page = PlayerPage(Clip(title, thinner.events, thinner.recorded))
    page.write(path)
    return Viewed(path, thinner.recorded, len(page.clip.events), None, times[-1] - times[0], page.clip.events.sensor)


def _refuse_empty(events: int, title: str) -> None:
    if events == 0:
        raise Event2VecError(f"{title} holds no events, so there is nothing to see")


def check_view(path: Path) -> None:
    """Refuse what cannot be written, before a long recording is read."""
    if path.suffix.lower() not in SUFFIXES:
        raise FileError(path, f"cannot be written: '{path.suffix}' is not one of {', '.join(SUFFIXES)}")
    if path.is_dir():
        raise FileError(path, "is a folder, expected the name of a file to write")
    if path.suffix.lower() == ".mp4":
        find_ffmpeg()


def show(events: Events, title: str = "events") -> PlayerPage:
    """The event player in a notebook. `view` writes it to a file.

        show(events)

    Recordings of more than 400,000 events are thinned, at random.
    """
    return PlayerPage(Clip(title, thin(events, MOST), len(events)))
