"""See a recording: one HTML page with the event player, or an animation. No network is needed.

    event2vec view walk.aedat4               writes walk.html here; open it in a browser
    event2vec view walk.aedat4 --gif         an animation to send: walk.gif
    event2vec view walk.aedat4 --mp4         the same through ffmpeg, where that is installed

The page loads nothing from elsewhere: drag through time, choose the time window and the speed. Recordings of more than
400,000 events are thinned on the page, at random. Animations have all events; short recordings are played slowly, long
ones quickly, with a note.
"""

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from event2vec.cli.options import add_json_option, add_reading_options, check_free, reading_options
from event2vec.cli.parser import existing, file_to_write
from event2vec.cli.printing import say
from event2vec.errors import Event2VecError
from event2vec.names import counted

if TYPE_CHECKING:
    from event2vec.player import Viewed


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=existing("a recording"), help="a recording, in any format")
    parser.add_argument("--gif", action="store_true", help="write an animation instead of the page")
    parser.add_argument("--mp4", action="store_true", help="the same as MP4, with ffmpeg")
    parser.add_argument(
        "--out", metavar="FILE", type=file_to_write, help="the file to write (default: the recording's name, here)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    add_reading_options(parser)
    add_json_option(parser)


def check(options: Namespace) -> None:
    if options.gif and options.mp4:
        raise Event2VecError("choose either --gif or --mp4")
    suffix = _suffix(options)
    if options.out and suffix and Path(options.out).suffix.lower() != suffix:
        raise Event2VecError(f"--out must end in {suffix} with --{suffix[1:]}, got {options.out}")
    check_free(str(_output(options)), options.overwrite, "--out")


def _suffix(options: Namespace) -> str:
    return ".gif" if options.gif else ".mp4" if options.mp4 else ""


def _output(options: Namespace) -> Path:
    return Path(options.out or Path(options.file).stem + (_suffix(options) or ".html"))


def run(options: Namespace) -> None:
    from event2vec.player import view

    made = view(options.file, _output(options), **reading_options(options))
    if options.json:
        print(json.dumps(made.facts(), indent=2))
    else:
        _summarise(made)


def _summarise(made: "Viewed") -> None:
    say(f"{made.path}: {counted(made.recorded, 'event')}, {made.duration / 1e6:.3f} s, {made.sensor}")
    if made.shown < made.recorded:
        say(f"Thinned: the page has {made.shown:,} of the events, picked at random.")
    speed = "1" if made.speed is None else f"{made.speed:.2g}"
    if speed != "1":
        say(f"The animation plays at {speed} times the recorded speed.")
