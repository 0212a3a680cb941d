"""Write a trained network as a file for a device: ONNX, OpenVINO, or torch's exported program.

    event2vec export runs/gestures                              gestures.onnx
    event2vec export runs/gestures --format openvino --out device/gestures.xml
    event2vec predict gestures.onnx clip.raw

The file holds the network and all that it needs: class names, sensor, how events are drawn, windows, the temperature of
its scores and what training saw. It takes any number of recordings and of events. Before the file is written, it
is checked on the run's test recordings: where an answer differs from torch's, or a logit by more than 0.0001, the
export fails and names the recording. On a device, 'pip install event2vec-runtime' reads recordings and answers without
torch.
"""

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import get_args

from event2vec.cli.options import add_data_option, add_json_option, add_run_argument, add_workers_option, check_free
from event2vec.cli.parser import file_to_write
from event2vec.cli.printing import say
from event2vec.cli.progress import shown_progress
from event2vec.model.exported import SUFFIXES, Format, files_of
from event2vec.names import counted


def add_arguments(parser: ArgumentParser) -> None:
    add_run_argument(parser)
    parser.add_argument("--format", choices=get_args(Format), default="onnx", help="what reads the file")
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=file_to_write,
        help="where it goes (default: here, with the name of the run); "
        "OpenVINO writes its weights to a .bin file next to it",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace FILE when it exists")
    add_data_option(parser, "where its test recordings are now, if they were moved; or others to check with")
    add_workers_option(parser)
    add_json_option(parser)


def check(options: Namespace) -> None:
    if options.out is None:
        options.out = f"{Path(options.run).resolve().name}{SUFFIXES[options.format]}"
    for file in files_of(Path(options.out)):
        check_free(str(file), options.overwrite, "--out")


def run(options: Namespace) -> None:
    from event2vec.exporting import export

    made = export(
        options.run, options.out, options.format, data=options.data, workers=options.workers, progress=shown_progress()
    )
    if options.json:
        print(json.dumps(made.facts(), indent=2))
        return
    kind = "made-up recording" if made.made_up else "test recording"
    say(f"{made.path}: {made.bytes / 1e6:.2f} MB")
    say(
        f"It answers {counted(made.recordings, kind)} as torch does; logits differ by at most "
        f"{made.largest_difference:.1e}."
    )
    if made.made_up:
        say("event2vec: the network has no test recordings; give some with --data")
