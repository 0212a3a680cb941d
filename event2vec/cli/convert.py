"""Write a recording in another format, given by the suffix of OUT.

Times in OUT start at 0 with its first event. Suffixes: .npz (lossless, also for clusters), .aedat4, .raw (EVT2), .dat,
.h5, .csv, .txt.
"""

import json
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path

from event2vec.cli.options import add_json_option, add_reading_options, check_free, reading_options
from event2vec.cli.parser import existing
from event2vec.cli.printing import say
from event2vec.errors import Event2VecError, FileError
from event2vec.names import counted

COMPUTES = False


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("input", metavar="IN", type=existing("a recording"), help="a recording, in any format")
    parser.add_argument("output", metavar="OUT", help="the file to write; its suffix names the format")
    parser.add_argument("--start", type=float, default=0.0, metavar="SECONDS", help="omit events before this time")
    parser.add_argument("--stop", type=float, metavar="SECONDS", help="omit events from this time on")
    parser.add_argument("--overwrite", action="store_true", help="replace OUT if it exists")
    add_reading_options(parser)
    add_json_option(parser)


def check(options: Namespace) -> None:
    from event2vec.io import check_output

    if options.stop is not None and options.stop <= options.start:
        raise Event2VecError(f"--stop {options.stop:g} must come after --start {options.start:g}")
    check_output(Path(options.output))
    check_free(options.output, options.overwrite, "OUT")


def run(options: Namespace) -> None:
    from event2vec.io import decode_recording, write_events
    from event2vec.io.recording import Reading

    output = Path(options.output)
    recording = decode_recording(options.input, Reading.of(**reading_options(options)))
    for warning in recording.warnings:
        say(f"event2vec: warning: {options.input}: {warning}")
    events = recording.events
    if options.start or options.stop is not None:
        stop = events.duration + 1 if options.stop is None else round(options.stop * 1e6)
        events = events.between(round(options.start * 1e6), stop)
        if len(events) == 0:
            raise FileError(
                options.input, f"has no events in that interval; it lasts {recording.events.duration / 1e6:g} s"
            )
    write_events(output, events)
    if options.json:
        facts = {"events": len(events), "duration_us": events.duration, "input_start_us": recording.start}
        print(json.dumps({"file": str(output), **facts, **asdict(events.sensor)}, indent=2))
        return
    say(f"{output}: {counted(len(events), 'event')}, {events.duration / 1e6:.3f} s, {events.sensor}")
    if recording.start:
        say(f"The input starts at {recording.start} us on the camera's clock.")
