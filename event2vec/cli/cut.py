"""Cut a long recording into windows, one file for each.

    event2vec cut wave.raw --window 0.1 --out my_recordings/wave
    event2vec cut wave.raw --window 0.5 --stride 0.25 --min-events 200 --format aedat4 --out my_recordings/wave
    event2vec cut wave.raw --window-events 20000 --out my_recordings/wave

They go to OUT/wave/, so that training never learns from one window and tests on its neighbour. 'train' and 'prepare'
take --window too and need no files in between.
"""

import json
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from event2vec.choices import Suffix
from event2vec.cli.options import (
    add_json_option,
    add_reading_options,
    add_window_options,
    check_free,
    read_windows,
    reading_options,
)
from event2vec.cli.parser import existing
from event2vec.cli.printing import say
from event2vec.cli.progress import shown_progress
from event2vec.errors import Event2VecError

COMPUTES = False
FORMATS = [suffix.removeprefix(".") for suffix in get_args(Suffix)]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=existing("a recording"), help="a recording, in any format")
    parser.add_argument(
        "--out", required=True, metavar="FOLDER", help="folder in which a sub-folder with the windows is created"
    )
    add_window_options(parser)
    parser.add_argument("--format", choices=FORMATS, default="npz", help="what to write")
    parser.add_argument("--overwrite", action="store_true", help="replace existing windows")
    add_reading_options(parser)
    add_json_option(parser)


def check(options: Namespace) -> None:
    if read_windows(options) is None:
        raise Event2VecError("--window SECONDS or --window-events N is required")
    check_free(str(Path(options.out) / Path(options.file).stem), options.overwrite, "--out")


def run(options: Namespace) -> None:
    from event2vec.data.cut import cut_recording

    windows = read_windows(options)
    assert windows is not None
    found = cut_recording(
        options.file,
        options.out,
        windows,
        suffix=f".{options.format}",
        overwrite=options.overwrite,
        progress=shown_progress(),
        **reading_options(options),
    )
    if options.json:
        print(json.dumps({**asdict(found), "folder": str(found.folder)}, indent=2))
        return
    left_out = f"; {found.left_out:,} with too few events left out" if found.left_out else ""
    say(f"{found.folder}: {windows.count(found.files)}{left_out}")
