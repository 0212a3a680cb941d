"""See it work, without data, camera or GPU.

Shows handwritten digits to a simulated event camera, keeps the recordings in a store in your cache folder, says
what is in it and draws a few of them.
"""

import os
import sys
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from event2vec.cli.progress import progress_bar


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--out", default="runs/demo", metavar="FOLDER", help="where the picture goes")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="processes that simulate")


def run(options: Namespace) -> None:
    from event2vec.figures.samples import draw_samples
    from event2vec.prepare import prepare_digits

    with progress_bar("showing digits to a simulated camera") as progress:
        store = prepare_digits(options.workers, progress)
    lengths = store.lengths
    print(f"The digits data set, in {store.folder}:", file=sys.stderr)
    for split in ("train", "test"):
        print(f"  {store.splits.count(split):,} recordings to {split} on", file=sys.stderr)
    print(
        f"  {len(store.classes)} classes, sensor {store.sensor}, {lengths.min():,} to {lengths.max():,} events in a "
        f"recording, {lengths.sum():,} in all",
        file=sys.stderr,
    )
    picture = Path(options.out) / "digits.png"
    draw_samples(store.split("test"), picture)
    print(f"One recording of each class is drawn in {picture}", file=sys.stderr)
