"""Turn a data set into a store: one folder that training maps into memory.

If it was stopped, the same command resumes it. Recordings that cannot be used are listed in STORE/rejected.csv and at
the end, and the rest is prepared.
"""

import json
from argparse import ArgumentParser, Namespace
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, get_args

from event2vec.choices import Orientation
from event2vec.cli.options import (
    CLUSTER,
    FOLDER,
    add_json_option,
    add_reading_options,
    add_window_options,
    add_workers_option,
    read_windows,
    reading_options,
)
from event2vec.cli.parser import at_least, existing
from event2vec.cli.printing import say
from event2vec.cli.progress import shown_progress
from event2vec.cluster import Cluster
from event2vec.data.addresses import COPY_LATER, local_place
from event2vec.data.datasets import DATASETS, SPLITS, describe_source, open_dataset, open_splits
from event2vec.data.sampling import Sampling
from event2vec.data.shard_size import LEAST_MB, SHARD_MB
from event2vec.data.windows import LABELS
from event2vec.errors import Event2VecError
from event2vec.names import counted
from event2vec.settings import choices_of

if TYPE_CHECKING:
    from event2vec.data.prepare import Report

COMPUTES = False
SHOWN = 5  # rejected recordings that the summary lists; all are in rejected.csv


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", choices=DATASETS, help=f"the data set: {', '.join(DATASETS)}")
    parser.add_argument(
        "--data",
        metavar="FOLDER",
        type=existing(FOLDER),
        help=f"{FOLDER}; digits need none",
    )
    parser.add_argument("--out", required=True, metavar="STORE", help="the folder to write")
    parser.add_argument("--split", choices=("all", *SPLITS), default="all", help="what to prepare")
    _add_cluster_options(parser)
    add_workers_option(parser, "read")
    parser.add_argument(
        "--shard-mb",
        type=at_least(LEAST_MB),
        metavar="MB",
        help=f"write the store in shards of about this size, such as {SHARD_MB}, to be copied and fetched one by one",
    )
    parser.add_argument("--cluster", metavar="WHERE", help=f"read {CLUSTER}")
    _add_folder_options(parser)
    parser.add_argument(
        "--orientation",
        choices=get_args(Orientation),
        help="applies only to asl_dvs: upright (default), or as in its .mat files or in SpikingJelly's npz files, "
        "for networks trained on those",
    )
    parser.add_argument("--strict", action="store_true", help="exit with code 2 if any recording is rejected")
    add_reading_options(parser)
    add_json_option(parser)


def _add_cluster_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--clusters",
        type=at_least(2),
        metavar="L",
        help="reduce each recording to L cluster events (Alg. 1) instead of keeping all, for recipes with "
        "sampling.method clusters; L is their sampling.length. (--cluster, by contrast, names a Ray cluster)",
    )
    parser.add_argument(
        "--clusterings",
        type=at_least(1),
        default=1,
        metavar="N",
        help="sets of clusters to make of each training recording, which training reads in turn: "
        "sampling.clusterings of a recipe",
    )
    parser.add_argument(
        "--seeding",
        choices=choices_of(Sampling, "seeding"),
        default="pruned",
        help="how cluster centres are seeded: plain is Alg. 1 to the letter, pruned comes closer to the events; "
        "sampling.seeding of a recipe",
    )


def _add_folder_options(parser: ArgumentParser) -> None:
    """How recordings of one's own are cut, labelled and divided."""
    parser.add_argument(
        "--seed",
        type=at_least(0),
        metavar="N",
        help="for the split of 'folder' and the noise of 'digits' (default: 0)",
    )
    parser.add_argument(
        "--group-by",
        metavar="HOW",
        help="recordings of 'folder' that stay together when test recordings are drawn: those of one sub-folder of a "
        "class (folders, the default), those with the same match of a regular expression in their path below the "
        "class, such as '^[^_]+' for what comes before the first _, or none",
    )
    add_window_options(parser)
    parser.add_argument("--labels", metavar="TABLE", help=LABELS)


def check(options: Namespace) -> None:
    read_windows(options)
    Cluster.of(options.cluster)
    out = local_place(options.out, COPY_LATER)
    if options.data is None and options.name != "digits":
        raise Event2VecError(f"--data is required: {describe_source(options.name)}")
    if options.data is not None and options.name == "digits":
        raise Event2VecError("the digits are built in: omit --data, or choose another data set")
    _options(options)
    from event2vec.data.prepare import check_folder  # with numpy, which all that is refused before can do without

    check_folder(out, "--out")


def run(options: Namespace) -> int:
    from event2vec.data.prepare import prepare

    how = {"windows": read_windows(options), **_options(options)}
    if options.split == "all":
        datasets = open_splits(options.name, options.data, **how)
    else:
        datasets = [open_dataset(options.name, options.data, options.split, **how)]
    try:
        report = prepare(
            datasets,
            options.out,
            workers=options.workers,
            progress=shown_progress(),
            clusters=options.clusters,
            clusterings=options.clusterings,
            seeding=options.seeding,
            cluster=options.cluster,
            shard_mb=options.shard_mb,
        )
    except KeyboardInterrupt:
        say("event2vec: stopped. Run the same command again to continue")
        return 130
    print(json.dumps(_facts(report), indent=2)) if options.json else _summarise(report)
    return 2 if options.strict and report.rejected else 0


def _options(options: Namespace) -> dict[str, Any]:
    """The options of the data set; one that would have no effect is an error."""
    reading = {name: value for name, value in reading_options(options).items() if value is not None}
    if options.orientation is not None and options.name != "asl_dvs":
        raise Event2VecError(f"--orientation applies only to asl_dvs, not to {options.name}")
    for name in ("group_by", "labels"):
        if getattr(options, name) is not None:
            reading[name] = getattr(options, name)
    if options.seed is not None and options.name not in ("folder", "digits"):
        raise Event2VecError(f"--seed applies only to folder and digits, not to {options.name}")
    if options.name == "folder":
        return {"seed": options.seed or 0, **reading}
    if reading:
        raise Event2VecError(f"--{next(iter(reading)).replace('_', '-')} applies only to folder, not to {options.name}")
    if options.name == "asl_dvs":
        return {"orientation": options.orientation or "upright"}
    return {"seed": options.seed or 0} if options.name == "digits" else {}


def _facts(report: "Report") -> dict[str, Any]:
    from event2vec.data.splits import Groups

    store, groups = report.store, Groups.of(report.store)
    return {
        "store": str(store.folder),
        "recordings": {split: store.splits.count(split) for split in SPLITS if split in store.splits},
        "clusterings": len(store.sets("train")) if "train" in store.splits else 1,
        "events": int(store.offsets[-1]),
        "scaled": store.facts.get("scaled", {}),
        "groups": dict(Counter(split for splits in groups.splits.values() for split in splits)) if groups else None,
        "windows": asdict(store.windows) if store.windows else None,
        "windows_left_out": store.facts.get("left_out", 0),
        "seconds_without_label": store.facts.get("unused", 0) / 1e6,
        "classes": len(store.classes),
        "width": store.sensor.width,
        "height": store.sensor.height,
        "rejected": [vars(note) for note in report.rejected],
        "warnings": [vars(note) for note in report.warnings],
    }


def _summarise(report: "Report") -> None:
    from event2vec.data.hints import window_hints
    from event2vec.data.parts import describe_scaled
    from event2vec.data.splits import Groups

    store, facts = report.store, _facts(report)
    counts = ", ".join(f"{count:,} {split}" for split, count in facts["recordings"].items())
    sets = f", {facts['clusterings']} clusterings of each training recording" if facts["clusterings"] > 1 else ""
    say(
        f"{facts['store']}: {counts} {'recording' if len(store) == 1 else 'recordings'} of "
        f"{counted(facts['classes'], 'class', 'classes')}, {counted(facts['events'], 'event')}{sets}, "
        f"sensor {store.sensor}"
    )
    for line in (report.cutting, *window_hints(store)):
        if line:
            say(f"  {line}")
    if scaled := describe_scaled(store):
        say(f"  {scaled}")
    if groups := Groups.of(store):
        say(f"  {groups.summary}")
        if groups.warning:
            say(f"  {groups.warning}")
    present = {store.classes[label] for label in store.labels}
    if missing := [name for name in store.classes if name not in present]:
        say(f"  no recording of {', '.join(missing[:SHOWN])} ({counted(len(missing), 'class', 'classes')})")
    for notes, title in ((report.warnings, "used, with a warning"), (report.rejected, "rejected")):
        for note in notes[:SHOWN]:
            say(f"  {title}: {note.source}: {note.message}")
        if len(notes) > SHOWN:
            say(f"  {title}: {len(notes) - SHOWN:,} more")
    if report.rejected:
        say(f"  {counted(len(report.rejected), 'recording')} rejected, listed in {store.folder / 'rejected.csv'}")
