"""Turn a data set into a store: one folder that training maps into memory.

Run it again after it was stopped and it goes on where it was. Recordings that cannot be used are listed in
STORE/rejected.csv and below the progress bar, and the rest is prepared.
"""

import json
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace

from event2vec.cli.options import add_json_option, add_reading_options, add_workers_option, reading_options
from event2vec.cli.printing import say
from event2vec.cli.progress import progress_bar

if TYPE_CHECKING:
    from event2vec.data.prepare import Report

NAMES = ["dvs_gesture", "asl_dvs", "dvs_lip", "nmnist", "folder", "digits"]  # here too, so that --help is quick
SHOWN = 5  # rejected recordings that the summary lists; all are in rejected.csv


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", choices=NAMES, help=f"the data set: {', '.join(NAMES)}")
    parser.add_argument("--root", metavar="R", help="the folder with the data set as downloaded; digits needs none")
    parser.add_argument("--out", required=True, metavar="STORE", help="the folder to write")
    parser.add_argument("--split", choices=["all", "train", "test"], default="all", help="what to prepare")
    parser.add_argument(
        "--clusters",
        type=int,
        metavar="L",
        help="bring each recording to L cluster events (Alg. 1) instead of all its own",
    )
    parser.add_argument(
        "--clusterings",
        type=int,
        default=1,
        metavar="N",
        help="sets of clusters to make of each training recording; training reads them in turn",
    )
    parser.add_argument(
        "--seeding",
        choices=["pruned", "plain"],
        default="pruned",
        help="how cluster centres are seeded: plain is Alg. 1 to the letter, pruned comes closer to the events",
    )
    add_workers_option(parser, "read")
    parser.add_argument("--seed", type=int, default=0, help="for the split of 'folder' and the noise of 'digits'")
    parser.add_argument(
        "--orientation",
        choices=["upright", "mat", "spikingjelly"],
        help="applies only to asl_dvs: upright (default), or as in its .mat files or in SpikingJelly's npz files, "
        "for networks trained on those",
    )
    parser.add_argument("--strict", action="store_true", help="exit with 2 when a recording was rejected")
    add_reading_options(parser)
    add_json_option(parser)


def run(options: Namespace) -> int:
    from event2vec.data.datasets import SPLITS, open_dataset
    from event2vec.data.prepare import prepare
    from event2vec.errors import Event2VecError

    if options.workers < 1:
        raise Event2VecError(f"--workers must be at least 1, got {options.workers}")
    wanted = SPLITS if options.split == "all" else (options.split,)
    datasets = [open_dataset(options.name, options.root, split, **_options(options)) for split in wanted]
    try:
        with progress_bar(f"preparing {options.name}") as progress:
            report = prepare(
                datasets,
                options.out,
                workers=options.workers,
                progress=progress,
                clusters=options.clusters,
                clusterings=options.clusterings,
                seeding=options.seeding,
            )
    except KeyboardInterrupt:
        say("event2vec: stopped. The same command goes on from here")
        return 130
    print(json.dumps(_facts(report), indent=2)) if options.json else _summarise(report)
    return 2 if options.strict and report.rejected else 0


def _options(options: Namespace) -> dict[str, Any]:
    """What the data set can be told; an option that it would not heed is an error."""
    from event2vec.errors import Event2VecError

    reading = {name: value for name, value in reading_options(options).items() if value is not None}
    if options.orientation is not None and options.name != "asl_dvs":
        raise Event2VecError(f"--orientation applies only to asl_dvs, not to {options.name}")
    if options.name == "folder":
        return {"seed": options.seed, **reading}
    if reading:
        raise Event2VecError(f"--{next(iter(reading)).replace('_', '-')} is for 'folder'; {options.name} is known")
    if options.name == "asl_dvs":
        return {"orientation": options.orientation or "upright"}
    return {"seed": options.seed} if options.name == "digits" else {}


def _facts(report: "Report") -> dict[str, Any]:
    from event2vec.data.datasets import SPLITS

    store = report.store
    return {
        "store": str(store.folder),
        "recordings": {split: store.splits.count(split) for split in SPLITS if split in store.splits},
        "clusterings": len(store.names_of_sets("train")),
        "events": int(store.offsets[-1]),
        "classes": len(store.classes),
        "width": store.sensor.width,
        "height": store.sensor.height,
        "rejected": [vars(note) for note in report.rejected],
        "warnings": [vars(note) for note in report.warnings],
    }


def _summarise(report: "Report") -> None:
    store, facts = report.store, _facts(report)
    counts = ", ".join(f"{count:,} {split}" for split, count in facts["recordings"].items())
    sets = f", {facts['clusterings']} sets of clusters of each to train on" if facts["clusterings"] > 1 else ""
    say(
        f"{facts['store']}: {counts} recordings of {facts['classes']} classes, {facts['events']:,} events{sets}, "
        f"sensor {store.sensor}"
    )
    present = {store.classes[label] for label in store.labels}
    if missing := [name for name in store.classes if name not in present]:
        say(f"  no recording of {', '.join(missing[:SHOWN])} ({len(missing)} classes)")
    for notes, title in ((report.warnings, "used, with a remark"), (report.rejected, "rejected")):
        for note in notes[:SHOWN]:
            say(f"  {title}: {note.source}: {note.message}")
        if len(notes) > SHOWN:
            say(f"  {title}: {len(notes) - SHOWN:,} more")
    if report.rejected:
        say(f"  {len(report.rejected):,} rejected in all: {store.folder / 'rejected.csv'}")
