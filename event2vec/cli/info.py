"""Show what is in recordings: format, sensor, events, duration, rate, polarity, order.

A file that cannot be read is reported, the others are still shown, and the exit code is 2.
"""

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from event2vec.cli.options import add_json_option, add_reading_options, check_files, reading_options
from event2vec.cli.printing import print_table, say

COMPUTES = False


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="recordings, in any format")
    add_reading_options(parser)
    add_json_option(parser)


def check(options: Namespace) -> None:
    check_files(options.files, options.json)


def run(options: Namespace) -> int:
    from event2vec.errors import Event2VecError
    from event2vec.io import decode_recording
    from event2vec.io.recording import Reading

    how = Reading.of(**reading_options(options))
    reports: list[dict[str, Any]] = []
    for file in options.files:
        try:
            reports.append({"file": str(file), **decode_recording(file, how).facts()})
        except Event2VecError as error:
            reports.append({"file": str(file), "error": str(error)})
    good = [report for report in reports if "error" not in report]
    if options.json:
        print(json.dumps(reports, indent=2))
    elif good:
        _print_table(good)
    for report in reports:
        for warning in report.get("warnings", ()):
            say(f"event2vec: warning: {report['file']}: {warning}")
        if "error" in report:
            say(f"event2vec: {report['error']}")
    return 0 if len(good) == len(reports) else 2


def _print_table(reports: list[dict[str, Any]]) -> None:
    names = [Path(facts["file"]).name for facts in reports]
    rows = [
        (
            Path(facts["file"]).name if len(set(names)) == len(names) else facts["file"],
            facts["format"],
            f"{facts['width']}x{facts['height']}{'' if facts['sensor_declared'] else '*'}",
            f"{facts['events']:,}",
            f"{facts['duration_us'] / 1e6:.3f}",
            f"{facts['rate_per_second']:,.0f}" if facts["rate_per_second"] is not None else "-",
            f"{facts['rising_share']:.1%}" if facts["rising_share"] is not None else "-",
            f"{facts['out_of_order']:,}",
        )
        for facts in reports
    ]
    heads = ("file", "format", "sensor", "events", "seconds", "events/s", "rising", "out of order")
    print_table(heads, rows, left=("file", "format"))
    if not all(facts["sensor_declared"] for facts in reports):
        print("* the file does not name its sensor: this is the smallest that holds the events. Set it with --sensor.")
