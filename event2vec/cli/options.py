"""Options that several verbs share, and how they are read."""

import re
from os import cpu_count
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace

from event2vec.names import shorten, shown

if TYPE_CHECKING:
    from event2vec.sensor import Sensor


def add_reading_options(parser: ArgumentParser) -> None:
    """For files that do not say, or say wrongly, what they hold."""
    parser.add_argument("--sensor", metavar="WxH", help="size of the sensor, such as 346x260; overrides the file's own")
    parser.add_argument("--columns", metavar="TXYP", help="order of the columns of a text file, such as xytp")
    parser.add_argument("--time-unit", choices=["s", "ms", "us", "ns"], help="unit of t in text, npz, npy, mat or HDF5")


def reading_options(options: Namespace) -> dict[str, Any]:
    """The keyword arguments of `read_events`."""
    return {"sensor": parse_sensor(options.sensor), "columns": options.columns, "time_unit": options.time_unit}


def parse_sensor(text: str | None) -> "Sensor | None":
    from event2vec.errors import Event2VecError
    from event2vec.sensor import Sensor

    try:
        return Sensor.parse(text) if text else None
    except ValueError as error:
        raise Event2VecError(f"--sensor: {shorten(str(error), 200)}") from None


def add_workers_option(parser: ArgumentParser, work: str = "prepare a data set") -> None:
    parser.add_argument("--workers", type=int, default=cpu_count() or 1, metavar="N", help=f"processes that {work}")


def add_device_options(parser: ArgumentParser) -> None:
    parser.add_argument("--device", metavar="D", help="cpu, cuda, cuda:1 or mps (default: the best that torch finds)")
    parser.add_argument(
        "--precision",
        choices=["32-true", "bf16-mixed"],
        help="number type (default: on CUDA that of the training, elsewhere 32-true)",
    )


def add_json_option(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the same facts as JSON on standard output")


def read_numbers(text: str, name: str, least: int) -> list[int]:
    """Whole numbers with commas between them."""
    from event2vec.errors import Event2VecError

    numbers = [number.strip() for number in text.split(",")]
    if not all(re.fullmatch("[0-9]{1,9}", number) and int(number) >= least for number in numbers):
        wanted = f"takes whole numbers with commas between them, {least} or more, such as 1,2,4"
        raise Event2VecError(f"--{name} {wanted}, got {shown(text)}")
    return [int(number) for number in numbers]
