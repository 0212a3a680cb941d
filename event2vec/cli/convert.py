"""Write a recording in another format, picked by the suffix of OUT.

Times in OUT count from its first event. Suffixes: .npz (exact, also for clusters), .aedat4, .raw (EVT2), .dat,
.h5, .csv, .txt.
"""

from jsonargparse import ArgumentParser, Namespace

from event2vec.cli.options import add_reading_options, reading_options
from event2vec.cli.printing import say


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("input", metavar="IN", help="a recording, in any format")
    parser.add_argument("output", metavar="OUT", help="the file to write; its suffix names the format")
    parser.add_argument("--start", type=float, default=0.0, metavar="SECONDS", help="leave out what comes before")
    parser.add_argument("--stop", type=float, metavar="SECONDS", help="leave out what comes from here on")
    parser.add_argument("--overwrite", action="store_true", help="replace OUT when it exists")
    add_reading_options(parser)


def run(options: Namespace) -> None:
    from pathlib import Path

    from event2vec.errors import Event2VecError, FileError
    from event2vec.io import read_recording, write_events

    if options.stop is not None and options.stop <= options.start:
        raise Event2VecError(f"--stop {options.stop:g} must come after --start {options.start:g}")
    output = Path(options.output)
    if output.exists() and not options.overwrite:
        raise FileError(output, "exists already. Choose another name or add --overwrite")
    recording = read_recording(options.input, **reading_options(options))
    for warning in recording.warnings:
        say(f"event2vec: warning: {options.input}: {warning}")
    events = recording.events
    if options.start or options.stop is not None:
        stop = events.duration + 1 if options.stop is None else round(options.stop * 1e6)
        events = events.between(round(options.start * 1e6), stop)
        if len(events) == 0:
            raise FileError(
                options.input, f"has no events in that part; it lasts {recording.events.duration / 1e6:g} s"
            )
    write_events(output, events)
    say(f"{output}: {len(events):,} events, {events.duration / 1e6:.3f} s, {events.sensor}")
    if recording.start:
        say(f"The camera's clock stood at {recording.start} us at the first event of the input.")
