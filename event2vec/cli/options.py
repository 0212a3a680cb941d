"""Options that several verbs share, and how they are read."""

import os
import re
from argparse import ArgumentParser, Namespace, _ActionsContainer
from typing import Any, get_args

from event2vec.choices import Precision, TimeUnit
from event2vec.cli.parser import at_least, existing, existing_run, positive, share
from event2vec.cli.progress import shown_progress
from event2vec.cluster import EXPECTED, Cluster
from event2vec.data.windows import MIN_EVENTS, Windows
from event2vec.errors import Event2VecError, FileError
from event2vec.execution import ExecutionOptions
from event2vec.names import shorten, shown
from event2vec.sensor import Sensor

FOLDER = "the folder with your recordings, or with the data set as downloaded"
DATA = f"a prepared store (also s3://, gs:// or https://), or {FOLDER}"
CLUSTER = f"on the machines of a Ray cluster, which share a file system: {EXPECTED}"
RUN = "a run, a folder with a saved network, or hf://OWNER/NAME"
PREDICTOR = "a run, a folder with a saved network, hf://OWNER/NAME, or a file that 'event2vec export' wrote"


def add_reading_options(parser: ArgumentParser) -> None:
    """For files that do not say what they hold, or say it wrongly."""
    parser.add_argument(
        "--sensor",
        metavar="WxH",
        type=parse_sensor,
        help="size of the sensor, such as 346x260; overrides the file's own",
    )
    parser.add_argument("--columns", metavar="TXYP", help="order of the columns of a text file, such as xytp")
    parser.add_argument("--time-unit", choices=get_args(TimeUnit), help="unit of t in text, npz, npy, mat or HDF5")


def reading_options(options: Namespace) -> dict[str, Any]:
    """The keyword arguments of `read_events`."""
    return {"sensor": options.sensor, "columns": options.columns, "time_unit": options.time_unit}


def add_confidence_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--min-confidence",
        type=share,
        default=0.0,
        metavar="P",
        help="answer 'unknown' where the best score is below this, such as 0.6",
    )


def add_window_options(parser: _ActionsContainer) -> None:
    """How long recordings are cut."""
    parser.add_argument("--window", type=positive, metavar="SECONDS", help="cut recordings into windows of this length")
    parser.add_argument(
        "--stride",
        type=positive,
        metavar="SECONDS",
        help="time from the start of one window to the start of the next (default: the window length)",
    )
    parser.add_argument("--min-events", type=at_least(1), metavar="N", help=MIN_EVENTS)
    parser.add_argument(
        "--window-events", type=at_least(1), metavar="N", help="cut by this number of events instead of by time"
    )


def read_windows(options: Namespace) -> Windows | None:
    """The windows that were asked for; None: recordings stay whole."""
    try:
        return Windows.of(
            options.window or 0.0, options.stride or 0.0, options.min_events or 1, options.window_events or 0
        )
    except ValueError as error:
        raise Event2VecError(f"windows: {error}") from None


def parse_sensor(text: str | None) -> Sensor | None:
    """From text such as 346x260; None if there is no text."""
    try:
        return Sensor.parse(text) if text else None
    except ValueError as error:
        raise Event2VecError(f"--sensor: {shorten(str(error), 200)}") from None


def add_workers_option(parser: ArgumentParser, work: str = "prepare a data set") -> None:
    default = os.cpu_count() or 1
    parser.add_argument("--workers", type=at_least(1), default=default, metavar="N", help=f"processes that {work}")


def add_cluster_options(parser: ArgumentParser, work: str) -> None:
    parser.add_argument(
        "--cluster",
        metavar="WHERE",
        help=f"{work} {CLUSTER}",
    )
    parser.add_argument(
        "--threads", type=at_least(1), metavar="N", help="CPU cores of each task on the cluster (default: 1)"
    )


def check_cluster_options(options: Namespace) -> None:
    """Refuse an address that cannot be one before torch is loaded."""
    if options.threads is not None and options.cluster is None:
        raise Event2VecError("--threads is for tasks on a cluster; omit it, or add --cluster")
    read_cluster(options)


def read_cluster(options: Namespace) -> Cluster | None:
    return Cluster.of(options.cluster, options.threads or 1)


def add_data_option(parser: ArgumentParser, explanation: str) -> None:
    parser.add_argument("--data", metavar="PATH", type=existing(DATA), help=explanation)


def add_run_argument(parser: ArgumentParser, expected: str = RUN) -> None:
    parser.add_argument("run", metavar="RUN", type=existing_run(expected), help=expected)


def add_repeats_option(parser: ArgumentParser) -> None:
    explanation = "number of independent random draws of the events (clusters are always the same: 1)"
    parser.add_argument("--repeats", type=at_least(1), default=10, metavar="N", help=explanation)


def add_vote_option(parser: ArgumentParser) -> None:
    explanation = "average the scores of K draws of the events in each answer"
    parser.add_argument("--vote", type=at_least(1), default=1, metavar="K", help=explanation)


def add_device_options(parser: ArgumentParser) -> None:
    parser.add_argument("--device", metavar="D", help="cpu, cuda, cuda:1 or mps (default: the best that torch finds)")
    parser.add_argument(
        "--precision",
        choices=get_args(Precision),
        help="number type (default: on CUDA that of the training, elsewhere 32-true)",
    )


def add_execution_options(parser: ArgumentParser) -> None:
    """How a verb carries out its work."""
    add_device_options(parser)
    add_workers_option(parser)


def execution_options(options: Namespace) -> ExecutionOptions:
    """The arguments of the library for the options of `add_execution_options`."""
    return {
        "workers": options.workers,
        "device": options.device,
        "precision": options.precision,
        "progress": shown_progress(),
    }


def add_json_option(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the same facts as JSON on standard output")


def read_numbers(text: str, name: str, least: int) -> list[int]:
    """Whole numbers separated by commas."""
    numbers = [number.strip() for number in text.split(",")]
    if not all(re.fullmatch("[0-9]{1,9}", number) and int(number) >= least for number in numbers):
        wanted = f"takes whole numbers of at least {least}, separated by commas, such as 1,2,4"
        raise Event2VecError(f"--{name} {wanted}, got {shown(text)}")
    return [int(number) for number in numbers]


def read_seconds(text: str, name: str) -> list[float]:
    """Times with commas between them."""
    numbers = [number.strip() for number in text.split(",")]
    if not all(
        re.fullmatch(r"[0-9]{0,6}(\.[0-9]{1,6})?", number) and number and float(number) > 0 for number in numbers
    ):
        wanted = "takes seconds above 0 with commas between them, such as 0.1,0.2,0.5"
        raise Event2VecError(f"--{name} {wanted}, got {shown(text)}")
    return [float(number) for number in numbers]


def check_free(path: str, overwrite: bool, name: str) -> None:
    """Refuse to replace a file or folder, before any work."""
    if os.path.exists(path) and not overwrite:
        raise FileError(path, f"exists already. Choose another {name} or add --overwrite")


def check_files(files: list[str], json: bool) -> None:
    """Refuse at once if no FILE exists; if some do, or with --json, each is reported in its place."""
    if not json and not any(os.path.lexists(file) for file in files):
        raise FileError(files[0], "does not exist. Check the name and the folder")
