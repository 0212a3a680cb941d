"""Parts of a store: a few recordings each, written independently and then joined into a store with one sensor."""

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from event2vec.data.clusters import Clusters
from event2vec.data.datasets.dataset import Dataset
from event2vec.data.store import EventStore
from event2vec.data.store_layout import CENTRES, PIXELS
from event2vec.data.store_writer import StoreWriter
from event2vec.data.windows import Windows
from event2vec.errors import Event2VecError, FileError
from event2vec.events import Events
from event2vec.io import Recording
from event2vec.names import printable, shorten
from event2vec.sensor import LARGEST_SIDE, Sensor

LARGEST_PART = 64  # recordings that one worker processes at a time, and the most that are lost if work is stopped
PARTS = 64  # small data sets get smaller parts, so that all workers have something to do
REJECTED = "rejected.csv"
SHOWN = 5  # other sensors that are named
ANY_SENSOR = Sensor(LARGEST_SIDE, LARGEST_SIDE)  # parts are written before the store's sensor is known


@dataclass(frozen=True)
class Note:
    """A message about one recording."""

    source: str
    split: str
    message: str


@dataclass(frozen=True)
class Part:
    """Some consecutive recordings of one split, and the folder they are written to."""

    dataset: Dataset
    start: int
    stop: int
    folder: Path
    clusters: Clusters | None
    sensor: Sensor | None = None  # what its recordings are brought to before they are clustered; None: each has its own

    def __len__(self) -> int:
        return self.stop - self.start


class _Size(NamedTuple):
    """The sensor of one recording, kept until those of all others are known."""

    width: int
    height: int
    declared: bool

    def is_of(self, sensor: Sensor) -> bool:
        return (self.width, self.height) == (sensor.width, sensor.height)

    def fits(self, sensor: Sensor) -> bool:
        """Whether the recording can come from this sensor."""
        return self.is_of(sensor) or (not self.declared and self.width <= sensor.width and self.height <= sensor.height)


def cut_into_parts(datasets: Sequence[Dataset], folder: Path, clusters: Clusters | None) -> list[Part]:
    """Parts depend only on the recordings, so that work can be resumed with any number of workers.

    Recordings from one file are in one part: it is read once.
    """
    length = min(max(sum(map(len, datasets)) // PARTS, 1), LARGEST_PART)
    parts = []
    for dataset in datasets:
        starts = [0] if len(dataset) else []
        for index in range(1, len(dataset)):
            if index - starts[-1] >= length and not dataset.is_in_file_of_last(index):
                starts.append(index)
        places = pairwise([*starts, len(dataset)])
        parts += [Part(dataset, *place, folder / f"{dataset.split}-{place[0]:08d}", clusters) for place in places]
    return parts


def write_part(part: Part) -> int:
    """Read the recordings of one part; return how many. Each ends up in the part's store or in its list of rejects."""
    dataset = part.dataset
    facts: dict[str, Any] = {"rejected": [], "warnings": [], "sensors": [], "left_out": 0, "unused": 0}
    types = CENTRES if part.clusters else PIXELS
    with StoreWriter(part.folder, sensor=ANY_SENSOR, classes=dataset.classes, types=types, **facts) as writer:
        for index in range(part.start, part.stop):
            try:
                writer.facts["unused"] += dataset.unused(index)
                recording = _read(dataset, index)
                own = recording.on_sensor(part.sensor) if part.sensor else recording.events
                pieces, left_out = _cut(own, dataset.sources[index], dataset.windows)
            except Event2VecError as error:
                facts["rejected"].append((dataset.sources[index], _reason(error, dataset.sources[index])))
                continue
            facts["warnings"] += [(dataset.sources[index], warning) for warning in recording.warnings]
            sensor = recording.events.sensor
            facts["sensors"] += [_Size(sensor.width, sensor.height, recording.sensor_declared)] * len(pieces)
            writer.facts["left_out"] += left_out
            for source, piece in pieces:
                sets = part.clusters.make(piece, dataset.split) if part.clusters else [piece]
                for number, events in enumerate(sets):
                    whole, group = replace(events, sensor=ANY_SENSOR), dataset.group(index)
                    writer.append(whole, dataset.labels[index], dataset.split, source, number, group)
    return len(part)


def _cut(events: Events, source: str, windows: Windows | None) -> tuple[list[tuple[str, Events]], int]:
    """The windows of a recording with their names, and how many were left out; without windows, the recording."""
    if windows is None:
        return [(source, events)], 0
    found = list(windows.cut(events))
    kept = [(window.name(source), window.events) for window in found if len(window.events) >= windows.min_events]
    if not kept:
        most = max(len(window.events) for window in found)
        raise Event2VecError(f"none of its windows has {windows.min_events:,} events; the fullest has {most:,}")
    return kept, found[-1].number + 1 - len(kept)


def _reason(error: Event2VecError, source: str) -> str:
    """What is wrong, without the path if it only repeats the name of the recording."""
    if isinstance(error, FileError) and str(error.path).endswith(source):
        return printable(error.problem)
    return str(error)


def _read(dataset: Dataset, index: int) -> Recording:
    recording = dataset.read(index)
    if len(recording.events) == 0:
        raise Event2VecError("holds no events")
    return recording


def choose_sensor(parts: Sequence[Part]) -> Sensor:
    """The sensor of the whole store, from what was found in its parts."""
    # Only one part is open at a time: each holds several files.
    found = [EventStore.open(part.folder).facts for part in parts]
    sizes = [_Size(*size) for each in found for size in each["sensors"]]
    if not sizes:
        rejected = [*_notes(parts, found, "rejected")]
        raise Event2VecError(
            f"no recording of {parts[0].dataset.name} could be used. "
            f"The first of {len(rejected)}: {rejected[0].source}: {rejected[0].message}"
        )
    return _common_sensor(sizes)


def fit_part(part: Part, sensor: Sensor) -> Part:
    """The part itself, or the one to be written instead: with recordings of other sensors scaled to the store's.

    Clusters depend on the sensor too, so they are made after that, as a prediction makes them.
    """
    sizes = [_Size(*size) for size in EventStore.open(part.folder).facts["sensors"]]
    if all(size.is_of(sensor) if part.clusters else size.fits(sensor) for size in sizes):
        return part
    return replace(part, folder=part.folder.with_name(f"{part.folder.name}-{sensor}"), sensor=sensor)


def join_parts(parts: Sequence[Part], folder: Path, sensor: Sensor, facts: Mapping[str, Any]) -> None:
    """Join the parts into one store, with a list of what was rejected."""
    types = CENTRES if parts[0].clusters else PIXELS
    with StoreWriter(folder, sensor=sensor, classes=parts[0].dataset.classes, types=types, **facts) as writer:
        for part in parts:
            _copy_part(EventStore.open(part.folder), writer)
        writer.facts |= facts_of_parts(parts, sensor)
        write_rejected(writer.facts["rejected"], writer.work)


def facts_of_parts(parts: Sequence[Part], sensor: Sensor) -> dict[str, Any]:
    """What a store records of its parts: rejected recordings, warnings, what was left out or scaled."""
    found = [EventStore.open(part.folder).facts for part in parts]
    sizes = [_Size(*size) for each in found for size in each["sensors"]]
    return {
        **{kind: [*map(astuple, _notes(parts, found, kind))] for kind in ("rejected", "warnings")},
        **{name: sum(each[name] for each in found) for name in ("left_out", "unused")},
        "scaled": Counter(f"{size.width}x{size.height}" for size in sizes if not size.fits(sensor)),
    }


def write_rejected(rejected: Sequence[tuple[str, ...]], folder: Path) -> None:
    with (folder / REJECTED).open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        csv.writer(file).writerows([("source", "split", "reason"), *rejected])


def describe_scaled(store: EventStore) -> str | None:
    """How many recordings are from other sensors, for people."""
    scaled = store.facts.get("scaled")
    if not isinstance(scaled, dict) or not scaled:
        return None
    listed = ", ".join(f"{count} of {size}" for size, count in list(scaled.items())[:SHOWN])
    more = ", ..." if len(scaled) > SHOWN else ""
    return f"Recordings of other sensors are scaled to {store.sensor}: {shorten(listed, 200)}{more}"


def _notes(parts: Sequence[Part], facts: Sequence[dict[str, Any]], kind: str) -> Iterator[Note]:
    for part, each in zip(parts, facts, strict=True):
        yield from (Note(source, part.dataset.split, message) for source, message in each[kind])


def _copy_part(part: EventStore, writer: StoreWriter) -> None:
    for row in range(len(part.all_sets)):
        place = slice(int(part.offsets[row]), int(part.offsets[row + 1]))
        columns = {name: column[place] for name, column in part.columns.items()}
        split, source, group = part.all_splits[row], part.all_sources[row], part.all_groups[row]
        writer.append_columns(columns, int(part.all_labels[row]), split, source, int(part.all_sets[row]), group)


def _common_sensor(sizes: Sequence[_Size]) -> Sensor:
    """The size that leaves most recordings as they are: one that files name, or the smallest that holds all others."""
    counts = Counter(sizes)
    candidates = {Sensor(size.width, size.height) for size in counts if size.declared}
    unnamed = [size for size in counts if not size.declared]
    if unnamed:
        candidates.add(Sensor(max(size.width for size in unnamed), max(size.height for size in unnamed)))
    kept = {sensor: sum(count for size, count in counts.items() if size.fits(sensor)) for sensor in candidates}
    return max(candidates, key=lambda sensor: (kept[sensor], sensor.width, sensor.height))
