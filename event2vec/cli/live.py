"""Classify a live stream: the newest window, again and again, on one line that is updated in place.

    event2vec live runs/gestures camera                      an event camera on USB; --list shows what is there
    event2vec live runs/gestures udp://127.0.0.1:3333        packets of eventcv or AEStream
    aestream ... output stdout | event2vec live runs/gestures -
    event2vec live runs/gestures clip.aedat4 --loop          a recording, at the speed at which it was recorded
    event2vec live runs/gestures camera --serve :8765        and a page at http://127.0.0.1:8765
    event2vec live gestures.onnx camera                      a network that 'event2vec export' wrote

Standard input (-) is text, t,x,y,p in each line (--columns for another order), or 8 bytes an event as in UDP packets
with times. UDP packets hold 32-bit words: x, polarity and y, and the time in microseconds in a second word; without
times, events have the time of their arrival. Packets and pipes do not name their sensor: it is --sensor, or the
network's.

The network reads its whole window for each answer. Too few events are `nothing`; windows that the machine cannot
keep up with are skipped and counted. Stop with Ctrl-C, or with --seconds.
"""

import json
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from typing import TYPE_CHECKING

from event2vec.cli.options import (
    PREDICTOR,
    add_confidence_option,
    add_json_option,
    add_reading_options,
    check_free,
    reading_options,
)
from event2vec.cli.parser import at_least, existing_predictor, file_to_write
from event2vec.cli.printing import print_table, say
from event2vec.errors import Event2VecError, FileError
from event2vec.machine.ports import UDP, parse_address, parse_udp
from event2vec.names import counted, printable

if TYPE_CHECKING:
    from event2vec.streaming import Live
    from event2vec.streaming.answers import Answer
    from event2vec.streaming.server import PageServer

SOURCES = "camera, camera:SERIAL, udp://HOST:PORT, - or a recording"
QUIET = 1.0  # seconds between two lines with the same answer, where lines stay


def add_arguments(parser: ArgumentParser) -> None:
    parser.usage = "%(prog)s RUN SOURCE [options]"
    parser.add_argument("run", metavar="RUN", nargs="?", type=existing_predictor(PREDICTOR), help=PREDICTOR)
    parser.add_argument("source", metavar="SOURCE", nargs="?", help=SOURCES)
    parser.add_argument("--list", action="store_true", help="list the cameras on USB and exit")
    parser.add_argument(
        "--window",
        type=float,
        metavar="SECONDS",
        help="time used for each answer (default: as in training)",
    )
    parser.add_argument("--every", type=float, default=50.0, metavar="MS", help="milliseconds between two answers")
    parser.add_argument(
        "--min-events",
        type=at_least(1),
        metavar="N",
        help="answer 'nothing' for fewer events (default: as in training, else an eighth of what the network reads)",
    )
    add_confidence_option(parser)
    parser.add_argument("--speed", type=float, default=1.0, metavar="X", help="play a recording this much faster")
    parser.add_argument("--loop", action="store_true", help="play a recording again and again")
    parser.add_argument("--seconds", type=float, metavar="S", help="stop after this time")
    parser.add_argument(
        "--record",
        metavar="FILE",
        type=file_to_write,
        help="save the stream: .aedat4, .raw, .dat, .h5, .csv or .txt",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the file of --record when it exists")
    parser.add_argument(
        "--serve",
        metavar="HOST:PORT",
        help="a page with events, answers and latency; :8765 is for this machine only, 0.0.0.0:8765 for others too",
    )
    add_reading_options(parser)
    add_json_option(parser)


def check(options: Namespace) -> None:
    if not options.list and options.source is None:
        missing = "a RUN and a SOURCE are" if options.run is None else "a SOURCE is"
        raise Event2VecError(f"{missing} required: {SOURCES}")
    if not 1 <= options.every <= 60_000:  # the library has seconds
        raise Event2VecError(f"--every must be from 1 to 60000 milliseconds, got {options.every:g}")
    if options.source is not None:
        _check_source(options.source)
    if options.serve is not None:
        parse_address(options.serve, "--serve")
    if options.record is not None:
        check_free(options.record, options.overwrite, "--record")


def _check_source(source: str) -> None:
    """Refuse what cannot be a source; whether a camera or a port works shows when it is opened."""
    if source.startswith(UDP):
        parse_udp(source, "SOURCE")
    elif source != "-" and source.partition(":")[0] != "camera" and not os.path.exists(source):
        raise FileError(source, f"does not exist, expected {SOURCES}")


def run(options: Namespace) -> int:
    if options.list:
        return _list(options.json)
    from event2vec.runtime import open_predictor
    from event2vec.streaming import live
    from event2vec.streaming.windows import trained_window

    model = open_predictor(options.run)
    stream = live(
        model,
        options.source,
        window=options.window,
        every=options.every / 1e3,
        min_events=options.min_events,
        min_confidence=options.min_confidence,
        speed=options.speed,
        loop=options.loop,
        record=options.record,
        overwrite=options.overwrite,
        **reading_options(options),
    )
    why = "" if options.window is not None else f" ({trained_window(model).reason})"
    fewest = f"With fewer than {counted(stream.min_events, 'event')} the answer is 'nothing'."
    say(f"Each answer uses the last {stream.window:.3g} s{why}. {fewest}")
    network = stream.answerer.model.config.sensor
    if stream.source.sensor != network:
        say(f"Events are scaled from {stream.source.sensor} to the {network} that the network reads.")
    far = model.trained_on.remark("duration", stream.window) if model.trained_on else None
    if far:
        say(f"event2vec: the window is unlike the training recordings: {far}")
    with stream, ExitStack() as cleanup:
        page = cleanup.enter_context(_serve(stream, options.serve)) if options.serve else None
        try:
            _show(stream, options, page)
        finally:
            _sum_up(stream)
    recorder = stream.recorder
    return 2 if stream.reader.failed or (recorder is not None and recorder.problem is not None) else 0


def _serve(stream: "Live", address: str) -> "PageServer":
    from event2vec.streaming.server import PageServer

    page = PageServer(stream, address)
    say(f"The page: {page.url}")
    return page


def _list(as_json: bool) -> int:
    from event2vec.streaming.camera_source import list_cameras

    cameras = list_cameras()
    if as_json:
        print(json.dumps(cameras, indent=2, default=str))
    elif cameras:
        names = ("name", "kind", "serial", "speed")
        print_table(names, [[str(camera.get(name, "")) for name in names] for camera in cameras], left=names)
    else:
        say("No event camera was found. Plug one in; on Linux, eventcv's udev rules must be there.")
    return 0


def _show(stream: "Live", options: Namespace, page: "PageServer | None") -> None:
    end = float("inf") if options.seconds is None else time.monotonic() + options.seconds
    lines = Lines(options.json)
    for answer in stream:
        began = time.perf_counter()
        for notice in answer.notices:
            lines.interrupt()
            say(f"event2vec: {notice}")
        lines.show(answer)
        if page is not None:
            page.publish(answer)
        stream.drawing = time.perf_counter() - began + (page.drawing if page is not None else 0.0)
        if time.monotonic() >= end:
            break
    lines.interrupt()


def _sum_up(stream: "Live") -> None:
    recorder = stream.recorder
    if recorder is not None:
        stream.close()
        why = "the disk could not keep up" if recorder.problem is None else "recording stopped early"
        lost = f"; {recorder.lost:,} were lost: {why}" if recorder.lost else ""
        say(f"{recorder.path}: {counted(recorder.recorded, 'event')} recorded{lost}")
        if recorder.problem is not None:
            say(f"event2vec: {recorder.problem}")
    if stream.skipped:
        say(
            f"{counted(stream.skipped, 'window')} skipped: this machine sometimes needs more than "
            f"{1e3 * stream.every:g} ms for one."
        )


class Lines:
    """One line that is updated in place at a terminal; elsewhere a line for each change, or each second."""

    def __init__(self, as_json: bool) -> None:
        self.as_json, self.terminal = as_json, sys.stdout.isatty() and not as_json
        self.said: tuple[str, float] = ("", 0.0)
        self.open = False

    def show(self, answer: "Answer") -> None:
        if self.as_json:
            print(json.dumps(answer.facts()), flush=True)
        elif self.terminal:
            print(f"\r{line_of(answer)}\x1b[K", end="", flush=True)
            self.open = True
        elif answer.name != self.said[0] or time.monotonic() - self.said[1] > QUIET:
            print(line_of(answer), flush=True)
            self.said = answer.name, time.monotonic()

    def interrupt(self) -> None:
        """Leave the line as it is; what follows begins a new one."""
        if self.open:
            print(flush=True)
            self.open = False


def line_of(answer: "Answer") -> str:
    sure = f"{answer.confidence:4.0%}" if answer.confidence else "    "
    latency = f"{1e3 * answer.latency_p50:.0f}/{1e3 * answer.latency_p95:.0f} ms"
    return (
        f"{answer.time:9.2f} s  {printable(answer.name):20} {sure}  {answer.rate:12,.0f} events/s  "
        f"latency {latency} (p50/p95)  {answer.skipped:,} skipped{'  unlike training' if answer.remarks else ''}"
    )
