"""The files of a store as they are read: every size and number is checked before it is believed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from event2vec.data.remote import address_of
from event2vec.data.shards import Shard, Shards
from event2vec.data.store_layout import DESCRIPTION, DURATIONS, PIXELS, RECORDED, SHARDED_VERSION, VERSION
from event2vec.documents import read_json
from event2vec.errors import FileError
from event2vec.events import COLUMNS
from event2vec.names import counted, shown
from event2vec.sensor import Sensor

LARGEST_DESCRIPTION = 2**30  # bytes; it names every recording
PREPARE_AGAIN = "Remove the folder and prepare it again"


def read_description(folder: Path) -> dict[str, Any]:
    path = folder / DESCRIPTION
    if not folder.is_dir():
        raise FileError(folder, "is not a folder, expected a store made by 'event2vec prepare'")
    if not path.exists():
        raise FileError(folder, f"is not a store: it has no {DESCRIPTION}. Make one with 'event2vec prepare'")
    facts = read_json(path, LARGEST_DESCRIPTION)
    version = facts.pop("version", None)
    if version not in (VERSION, SHARDED_VERSION) or ("shards" in facts) != (version == SHARDED_VERSION):
        raise FileError(path, f"has layout version {shown(version)}, this program reads {VERSION}. {PREPARE_AGAIN}")
    return facts


def take_number(facts: dict[str, Any], name: str) -> int:
    return _check_number(facts.pop(name, None), name)


def take_sensor(facts: dict[str, Any]) -> Sensor:
    match facts.pop("sensor", None):
        case [width, height]:
            return Sensor(_check_number(width, "sensor"), _check_number(height, "sensor"))
        case other:
            raise ValueError(f"sensor must be a width and a height, got {shown(other)}")


def take_texts(facts: dict[str, Any], name: str) -> tuple[str, ...]:
    texts = facts.pop(name, None)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{name} must be a list of strings, got {shown(texts)}")
    return tuple(texts)


def _check_number(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**62:
        raise ValueError(f"{name} must be a whole number, got {shown(value)}")
    return value


def read_index(path: Path, count: int) -> NDArray[np.int64]:
    """Integers saved by numpy."""
    return _read_numbers(path, count, "i").astype(np.int64)


def read_amounts(path: Path, count: int) -> NDArray[np.float64]:
    """Numbers from 0 saved by numpy, with fractions."""
    found = _read_numbers(path, count, "f").astype(np.float64)
    if not (found >= 0).all():
        raise ValueError(f"{path.name} has numbers below 0")
    return found


def _read_numbers(path: Path, count: int, kind: str) -> NDArray[Any]:
    """The size in the header is compared with the file before memory is reserved."""
    size = _size(path)
    with path.open("rb") as file:
        try:
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        except Exception:  # numpy parses headers with Python's parser, which raises many kinds of errors
            raise ValueError(f"{path.name} is not a NumPy file") from None
        if shape != (count,) or dtype.kind != kind or size - file.tell() != count * dtype.itemsize:
            found = f"{shown(shape)} of {shown(dtype.str)} in {size:,} bytes"
            raise ValueError(f"{path.name} has {found}, expected {count} whole numbers")
        return np.fromfile(file, dtype, count)


def map_column(folder: Path, name: str, kind: Any, events: int) -> NDArray[Any]:
    if kind not in PIXELS[name]:
        raise ValueError(f"column {name} is of type {shown(kind)}, expected {' or '.join(PIXELS[name])}")
    if kind == "ones":
        return np.broadcast_to(np.float32(1), events)
    path, dtype = folder / f"{name}.bin", np.dtype(kind)
    size = _size(path)
    if size != events * dtype.itemsize:
        raise ValueError(f"{path.name} has {size:,} bytes, expected {events:,} events of {dtype.itemsize} bytes each")
    # As a plain array: indexing np.memmap itself takes several times as long.
    return np.asarray(np.memmap(path, dtype, mode="r")) if events else np.empty(0, dtype)


def _size(path: Path) -> int:
    if not path.is_file():
        raise ValueError(f"{path.name} {'is not a file' if path.exists() else 'is missing'}")
    return path.stat().st_size


def check_index(
    offsets: NDArray[np.int64], labels: NDArray[np.int64], events: int, classes: int, sources: int, others: set[int]
) -> None:
    whole = (
        offsets[0] == 0
        and offsets[-1] == events
        and bool((offsets[1:] >= offsets[:-1]).all())
        and others == {sources}
        and (len(labels) == 0 or (labels.min() >= 0 and labels.max() < classes))
    )
    if not whole:
        raise ValueError(f"its index does not match its {counted(events, 'event')}")


def check_sets(
    sets: NDArray[np.int64],
    labels: NDArray[np.int64],
    splits: Sequence[str],
    sources: Sequence[str],
    groups: Sequence[str],
) -> None:
    """Each further set must follow the previous one of the same recording."""
    further = np.flatnonzero(sets)
    follows = bool((sets[further] == sets[further - 1] + 1).all()) and (len(sets) == 0 or sets[0] == 0)
    same = bool((labels[further] == labels[further - 1]).all()) and all(
        all(names[row] == names[row - 1] for names in (splits, sources, groups)) for row in further.tolist()
    )
    if not (follows and same):
        raise ValueError("its sets of clusters do not match its recordings")


def check_events(
    x: NDArray[Any], y: NDArray[Any], t: NDArray[Any], p: NDArray[Any], rho: NDArray[Any], sensor: Sensor
) -> None:
    """Check what `Events` guarantees: training would not notice a damaged store otherwise. Takes rows of events too."""
    if t.size == 0:
        return
    for name, column, side in (("x", x, sensor.width), ("y", y, sensor.height)):
        low = 0 if column.dtype.kind == "u" else column.min()
        if not (low >= 0 and column.max() <= side - 1):  # NaN fails both
            found = column[~((column >= 0) & (column <= side - 1))][0]
            raise ValueError(f"an event at {name} = {found:g} outside the sensor, which is {sensor}")
    if t[..., 0].min() < 0 or t[..., -1].max() >= 2**62 or (t[..., 1:] < t[..., :-1]).any():
        raise ValueError("times that decrease, are negative or are too large")
    if p.view(np.uint8).max() > 1:
        raise ValueError("polarities other than 0 and 1")
    if rho.strides != (0,) and not (rho.min() >= 1 and rho.max() < 2**53):
        raise ValueError("rho below 1 or not a number")


class Measures(NamedTuple):
    """What is known of all recordings without reading them."""

    durations: NDArray[np.int64]
    recorded: NDArray[np.float64]


def open_columns(
    folder: Path, facts: dict[str, Any], events: int, offsets: NDArray[np.int64]
) -> tuple[Mapping[str, Any], Measures | None]:
    """The columns, in one file each or in shards; these come with the measures of their recordings."""
    if "shards" not in facts:
        types = facts.pop("types", None)
        if not isinstance(types, dict):
            raise ValueError(f"types must name one type for each column, got {shown(types)}")
        return {name: map_column(folder, name, types.get(name), events) for name in COLUMNS}, None
    facts.pop("index", None)  # for those who fetch it
    listed = facts.pop("shards")
    if not isinstance(listed, list):
        raise ValueError(f"shards must be a list, got {shown(listed)}")
    shards = Shards(folder, address_of(folder), [Shard.read(each) for each in listed])
    if shards.starts[-1] != events:
        raise ValueError(f"its shards have {counted(int(shards.starts[-1]), 'event')}, expected {events:,}")
    if not np.isin(shards.starts, offsets).all():
        raise ValueError("a recording is in two of its shards")
    durations = read_index(folder / DURATIONS, len(offsets) - 1)
    return shards.columns(), Measures(durations, read_amounts(folder / RECORDED, len(offsets) - 1))
