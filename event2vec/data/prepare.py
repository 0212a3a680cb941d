"""A data set to a store: in parallel, resumable, and every recording accounted for."""

import csv
import hashlib
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass, replace
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import NamedTuple
from warnings import warn

from event2vec.atomic import clear_leftovers, move, whole_file
from event2vec.clustering import SEED, Seeding
from event2vec.clustering import VERSION as CLUSTERING
from event2vec.clustering.alternatives import engine_of
from event2vec.clustering.compiled_engine import library
from event2vec.data.datasets import SPLITS, Dataset, open_dataset
from event2vec.data.sampling import Sampling
from event2vec.data.store import DESCRIPTION, VERSION, EventStore, StoreWriter, name_of_set
from event2vec.errors import Busy, Event2VecError, Event2VecWarning, FileError
from event2vec.events import Events
from event2vec.io import Recording
from event2vec.locks import LOCK, is_in_the_way, own
from event2vec.sensor import LARGEST_SIDE, Sensor
from event2vec.workers import end_with_parent

LARGEST_PART = 64  # recordings that one worker takes at a time, and that are lost at most when the work is stopped
PARTS = 64  # small data sets are cut finer, so that all workers have something to do
SECONDS_BETWEEN_LOOKS = 0.5  # at what another process prepares
PLAN = "plan"  # in the folder of the parts: what they belong to
REJECTED = "rejected.csv"
ANY_SENSOR = Sensor(LARGEST_SIDE, LARGEST_SIDE)  # parts are written before the sensor of the whole is known


@dataclass(frozen=True)
class Note:
    """Something to tell about one recording."""

    source: str
    split: str
    message: str


@dataclass(frozen=True)
class Report:
    """A finished store, and what did not get into it."""

    store: EventStore
    rejected: tuple[Note, ...]
    warnings: tuple[Note, ...]


def cache_folder() -> Path:
    """Where stores that the user did not name are kept: $EVENT2VEC_CACHE, else the system's place for caches."""
    if named := os.environ.get("EVENT2VEC_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "event2vec"


def prepare_digits(workers: int = 1, progress: Callable[[int, int], None] | None = None) -> EventStore:
    """The digits from the user's cache, built there when they are missing."""
    return open_for_training(None, "digits", Sampling(), workers, progress).store


def open_for_training(
    data: str | Path | None,
    dataset: str,
    sampling: Sampling,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
    clusterings: int = 1,
    engine: str = "ours",
    iterations: int = 20,
) -> Report:
    """A store that training can read as it is, from a store or from a data set as downloaded.

    A data set is prepared into the user's cache first, and so are clusters, which take too long to make anew in every
    epoch: each recording to train on gets `clusterings` sets of them. A store of clusters stays as it is. Work that was
    done before is found again, and where several processes train together, one prepares and the others wait for it.
    `engine` and `iterations` are for comparisons (Table 5); ours seeds as the sampling says.
    """
    wanted = Clusters(sampling.length, clusterings, engine, iterations, sampling.seeding)
    clusters = wanted if sampling.method == "clusters" else None
    if data is not None and dataset == "digits" and not (Path(data) / DESCRIPTION).is_file():
        raise FileError(data, "is not a store; the digits are built in, leave --data out, or choose another recipe")
    if data is None and dataset != "digits":
        raise Event2VecError(f"--data is missing: a store, or the folder with the data set '{dataset}' as downloaded")
    if data is not None and (Path(data) / DESCRIPTION).is_file():
        store = EventStore.open(data)
        if clusters is None or len(store) == 0 or int(store.lengths.max()) <= clusters.count:
            return Report(store, (), ())
        further = store.names_of_sets("train")[1:]  # made anew from the first
        splits = [split for split in dict.fromkeys(store.splits) if split not in further]
        parts: list[Dataset] = [StoredSplit.of(store, split) for split in splits]
    else:
        parts = [open_dataset(dataset, data, split) for split in SPLITS]
    folder = cache_folder() / f"{parts[0].name}-{_plan(parts, clusters)[:12]}"
    return _prepare(parts, folder, workers, progress, clusters)


@dataclass(frozen=True)
class StoredSplit(Dataset):
    """One split of a store, to be prepared once more in another form."""

    store: EventStore

    @classmethod
    def of(cls, store: EventStore, split: str) -> "StoredSplit":
        part = store.split(split)
        return cls(store.folder.name, split, store.classes, part.sources, tuple(part.labels.tolist()), part)

    def read(self, index: int) -> Recording:
        return Recording(self.store[index][0], "store", 0, 0, True)

    def fingerprint(self, index: int) -> str:
        """The place in the store, and the date of the whole: a store is written once."""
        description = self.store.folder / DESCRIPTION
        return f"{self.store.folder.resolve()} {self.store.rows[index]} {description.stat().st_mtime_ns}"


def prepare(
    datasets: Sequence[Dataset],
    folder: str | Path,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
    clusters: int | None = None,
    clusterings: int = 1,
    seeding: Seeding = "pruned",
) -> Report:
    """Write all recordings of these splits into one store, in their order whatever the number of workers.

    A recording that cannot be used is left out and reported. Work that was stopped goes on where it was: finished
    parts lie in `<folder>.partial` until the store is whole. `progress` is told how many of how many are done.
    With `clusters`, recordings are brought to so many events by `cluster_events` with `seeding`; those to train on,
    `clusterings` times over from different starts.
    """
    if clusters is not None and clusters < 2:
        raise Event2VecError(f"clusters must be at least 2, one for each polarity, got {clusters}")
    if clusterings < 1 or (clusterings > 1 and clusters is None):
        raise Event2VecError(f"clusterings must be at least 1, and more than 1 need clusters, got {clusterings}")
    if seeding != "pruned" and clusters is None:
        raise Event2VecError("--seeding needs --clusters")
    wanted = Clusters(clusters, clusterings, seeding=seeding) if clusters else None
    return _prepare(datasets, Path(folder), workers, progress, wanted)


@dataclass(frozen=True)
class Clusters:
    """What recordings are brought to, how many times over those to train on, and by which engine."""

    count: int
    sets: int = 1
    engine: str = "ours"
    iterations: int = 20
    seeding: Seeding = "pruned"  # of our engine

    def __call__(self, events: Events, split: str) -> Iterator[tuple[str, Events]]:
        """Each set with the split that it belongs to. The first is the one that a prediction sees."""
        engine = engine_of(self.engine, self.seeding)
        for number in range(1, (self.sets if split == "train" else 1) + 1):
            clusters = engine(events, self.count, iterations=self.iterations, seed=SEED + number - 1)
            yield name_of_set(split, number), clusters

    def __str__(self) -> str:
        """All that the result depends on: without its compiled part our engine gives other clusters."""
        version = f"{CLUSTERING} {library() is not None}" if self.engine == "ours" else ""
        seeding = f" {self.seeding}" if self.engine == "ours" and self.seeding != "pruned" else ""
        sets = f" {self.sets} sets" if self.sets > 1 else ""  # one is what stores had before there were several
        return f"{self.count} {self.engine} {self.iterations} {version}{seeding}{sets}"


def _prepare(
    datasets: Sequence[Dataset],
    folder: Path,
    workers: int,
    progress: Callable[[int, int], None] | None,
    clusters: Clusters | None,
) -> Report:
    folder = Path(os.path.realpath(folder))  # a link stays one: what it leads to is written
    plan = _plan(datasets, clusters)
    partial_folder = folder.with_name(folder.name + ".partial")
    tasks = _tasks(datasets, partial_folder, clusters)
    progress = progress or (lambda done, total: None)
    if _is_missing(folder) or os.path.lexists(
        partial_folder
    ):  # else nothing is written: a store may lie where nobody can
        with _alone(partial_folder, plan, tasks, progress):
            if _is_missing(folder):
                _start_or_resume(partial_folder, plan)
                _run(tasks, workers, progress)
                # Joined where the parts are, so that a kill at any moment leaves nothing outside that folder.
                _join(datasets, tasks, partial_folder / "joined", plan)
                move(partial_folder / "joined", folder)
            _remove(partial_folder)
    return _finished(folder, plan)


def _is_missing(folder: Path) -> bool:
    """Whether the store is still to be made; an empty folder may have been made for it."""
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


@contextmanager
def _alone(folder: Path, plan: str, tasks: Sequence["_Task"], progress: Callable[[int, int], None]) -> Iterator[None]:
    """One process prepares a store. Another that wants the same waits, sees how it goes and takes over if it dies."""
    with ExitStack() as held:
        told = False
        while True:
            try:
                if is_in_the_way(folder):
                    raise _in_the_way(folder)
                held.enter_context(own(folder))
                break
            except Busy as busy:
                if _plan_of(folder) not in (None, plan):
                    raise
                if not told:
                    warn(f"{busy}. What it prepares will be used here", Event2VecWarning, stacklevel=2)
                told = True
            progress(*_count_done(tasks))
            time.sleep(SECONDS_BETWEEN_LOOKS)
        yield


def _plan(datasets: Sequence[Dataset], clusters: Clusters | None) -> str:
    """Identifies what is to be prepared, down to the size and date of every file."""
    lines = [f"{VERSION} {LARGEST_PART} {PARTS} {clusters}"]
    for dataset in datasets:
        lines.append(f"{dataset.name} {dataset.split} {dataset.classes}")
        for index, (source, label) in enumerate(zip(dataset.sources, dataset.labels, strict=True)):
            lines.append(f"{source}\t{label}\t{dataset.fingerprint(index)}")
    # File names need not be text; Python marks their odd bytes as surrogates.
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _finished(folder: Path, plan: str) -> Report:
    """What is there already, when it is what was asked for."""
    store = EventStore.open(folder)
    if store.facts.get("plan") != plan:
        raise FileError(
            folder, "exists already, from other data or with other options. Remove it or choose another --out"
        )
    try:
        rejected, warnings = ([Note(*note) for note in store.facts[kind]] for kind in ("rejected", "warnings"))
    except (KeyError, TypeError):
        raise FileError(folder, "does not say what was rejected. Remove the folder and prepare it again") from None
    return Report(store, tuple(rejected), tuple(warnings))


def _start_or_resume(folder: Path, plan: str) -> None:
    """Keep finished parts of the same work; those of another are of no use."""
    clear_leftovers(folder)
    begun = _plan_of(folder)
    if begun is None and {path.name for path in folder.iterdir()} != {LOCK}:
        raise _in_the_way(folder)
    if begun == plan:
        shutil.rmtree(folder / "joined", ignore_errors=True)
        return
    _remove(folder)
    with whole_file(folder / PLAN) as temporary:
        temporary.write_text(plan, "utf-8")


def _plan_of(folder: Path) -> str | None:
    """What the parts in a folder belong to; None where there are none."""
    try:
        return (folder / PLAN).read_text("utf-8")
    except FileNotFoundError:
        return None
    except (UnicodeDecodeError, OSError):
        raise _in_the_way(folder) from None


def _in_the_way(folder: Path) -> FileError:
    return FileError(folder, "is in the way: unfinished work would go there. Move it or choose another --out")


def _remove(folder: Path) -> None:
    """Remove all parts, and the plan when they are gone: a kill must not leave parts that belong to nothing."""
    if _plan_of(folder) is not None:
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
        (folder / PLAN).unlink()


@dataclass(frozen=True)
class _Task:
    """Some neighbouring recordings of one split, and where they go."""

    dataset: Dataset
    start: int
    stop: int
    folder: Path
    clusters: Clusters | None

    def __len__(self) -> int:
        return self.stop - self.start


class _Size(NamedTuple):
    """The sensor of one recording, kept until it is known what the others have."""

    width: int
    height: int
    declared: bool

    def fits(self, sensor: Sensor) -> bool:
        """Whether the recording can be one of this sensor's."""
        same = (self.width, self.height) == (sensor.width, sensor.height)
        return same or (not self.declared and self.width <= sensor.width and self.height <= sensor.height)


def _tasks(datasets: Sequence[Dataset], folder: Path, clusters: Clusters | None) -> list[_Task]:
    """Cut by the number of recordings alone, so that parts fit whatever the number of workers was."""
    length = min(max(sum(map(len, datasets)) // PARTS, 1), LARGEST_PART)
    return [
        _Task(dataset, start, min(start + length, len(dataset)), folder / f"{dataset.split}-{start:08d}", clusters)
        for dataset in datasets
        for start in range(0, len(dataset), length)
    ]


def _count_done(tasks: Sequence[_Task]) -> tuple[int, int]:
    """How many of how many recordings lie in finished parts."""
    return sum(len(task) for task in tasks if task.folder.exists()), sum(map(len, tasks))


def _run(tasks: list[_Task], workers: int, progress: Callable[[int, int], None]) -> None:
    todo = [task for task in tasks if not task.folder.exists()]
    done, total = _count_done(tasks)
    progress(done, total)
    for count in _in_parallel(todo, workers) if workers > 1 and len(todo) > 1 else map(_work, todo):
        done += count
        progress(done, total)


def _in_parallel(tasks: list[_Task], workers: int) -> Iterator[int]:
    # Spawned, not forked: torch and eventcv run threads of their own, which a fork would leave half alive.
    others, wait = set(active_children()), True
    pool = ProcessPoolExecutor(
        min(workers, len(tasks)), get_context("spawn"), initializer=_start_worker, initargs=(tasks,)
    )
    try:
        for future in as_completed([pool.submit(_work_on, number) for number in range(len(tasks))]):
            yield future.result()
    except KeyboardInterrupt:
        wait = False  # the pool's own thread may never hear from workers that are ended
        for worker in set(active_children()) - others:
            worker.kill()  # parts appear whole or not at all, so nothing half-done is left
        raise
    except BrokenProcessPool:
        raise Event2VecError(
            "a worker process was killed, most likely for want of memory. What is done is kept: "
            "run the same command again with fewer --workers"
        ) from None
    finally:
        pool.shutdown(wait=wait, cancel_futures=True)


_TASKS: list[_Task] = []  # in a worker: all there are, so that only their numbers travel


def _start_worker(tasks: list[_Task]) -> None:
    import torch

    end_with_parent()
    _TASKS[:] = tasks
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends the pool
    torch.set_num_threads(1)


def _work_on(number: int) -> int:
    """Numbers alone travel: Ctrl-C in the middle of a long message would leave the parent waiting for ever."""
    return _work(_TASKS[number])


def _work(task: _Task) -> int:
    """Read the recordings of one part, and give their number. Each appears in its store or among its rejected."""
    dataset = task.dataset
    rejected: list[tuple[str, str]] = []
    warnings: list[tuple[str, str]] = []
    sensors: list[_Size] = []
    facts = {"rejected": rejected, "warnings": warnings, "sensors": sensors}
    with StoreWriter(task.folder, sensor=ANY_SENSOR, classes=dataset.classes, **facts) as writer:
        for index in range(task.start, task.stop):
            source = dataset.sources[index]
            try:
                recording = dataset.read(index)
            except Event2VecError as error:
                rejected.append((source, str(error)))
                continue
            if len(recording.events) == 0:
                rejected.append((source, "holds no events"))
                continue
            warnings += [(source, warning) for warning in recording.warnings]
            sensor = recording.events.sensor
            sensors.append(_Size(sensor.width, sensor.height, recording.sensor_declared))
            unchanged = [(dataset.split, recording.events)]
            for split, events in unchanged if task.clusters is None else task.clusters(recording.events, dataset.split):
                writer.append(replace(events, sensor=ANY_SENSOR), dataset.labels[index], split, source)
    return len(task)


def _join(datasets: Sequence[Dataset], tasks: Sequence[_Task], folder: Path, plan: str) -> None:
    """Put the parts together for the one sensor that they share, with a list of what was rejected."""
    # One part open at a time: each holds four files.
    facts = [EventStore.open(task.folder).facts for task in tasks]
    rejected, warnings = (
        [
            Note(source, task.dataset.split, message)
            for task, fact in zip(tasks, facts, strict=True)
            for source, message in fact[kind]
        ]
        for kind in ("rejected", "warnings")
    )
    sizes = [[_Size(*size) for size in fact["sensors"]] for fact in facts]
    if not any(sizes):
        first = f"The first of {len(rejected)}: {rejected[0].message}" if rejected else "It is empty"
        raise Event2VecError(f"nothing in {datasets[0].name} could be used. {first}")
    sensor = _common_sensor([size for part in sizes for size in part])
    with StoreWriter(folder, sensor=sensor, classes=datasets[0].classes, plan=plan) as writer:
        for task, part in zip(tasks, sizes, strict=True):
            rejected += _copy_part(EventStore.open(task.folder), part, writer)
        writer.facts["rejected"], writer.facts["warnings"] = (
            list(map(astuple, notes)) for notes in (rejected, warnings)
        )
        with (writer.work / REJECTED).open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            csv.writer(file).writerows([("source", "split", "reason"), *map(astuple, rejected)])


def _copy_part(part: EventStore, sizes: Sequence[_Size], writer: StoreWriter) -> list[Note]:
    """Append the recordings that fit the sensor of the whole; the others come back as rejected."""
    strangers = []
    splits, sources = part.splits, part.sources
    sets = len(part) // max(len(sizes), 1)  # of clusters, which follow each other for each recording
    for index, size in enumerate(sizes):
        first = index * sets
        if size.fits(writer.sensor):
            for row in range(first, first + sets):
                events, label = part[row]
                writer.append(replace(events, sensor=writer.sensor), label, splits[row], sources[row])
        else:
            problem = f"was made with a sensor of {size.width}x{size.height}, and the store is for {writer.sensor}"
            strangers.append(Note(sources[first], splits[first], problem))
    return strangers


def _common_sensor(sizes: Sequence[_Size]) -> Sensor:
    """The size that keeps the most recordings: one that files name, or the smallest that holds those that name none."""
    counts = Counter(sizes)
    candidates = {Sensor(size.width, size.height) for size in counts if size.declared}
    unnamed = [size for size in counts if not size.declared]
    if unnamed:
        candidates.add(Sensor(max(size.width for size in unnamed), max(size.height for size in unnamed)))
    kept = {sensor: sum(count for size, count in counts.items() if size.fits(sensor)) for sensor in candidates}
    return max(candidates, key=lambda sensor: (kept[sensor], sensor.width, sensor.height))
