"""From a data set to a store: in parallel, resumable, with every recording accounted for."""

import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from warnings import warn

from event2vec.arguments import check_kind, several
from event2vec.cluster import Cluster, Workers
from event2vec.clustering import BatchedKMeans, Seeding
from event2vec.data.addresses import COPY_LATER, local_place
from event2vec.data.clusters import Clusters
from event2vec.data.datasets.dataset import Dataset
from event2vec.data.part_workers import write_parts
from event2vec.data.parts import (
    LARGEST_PART,
    PARTS,
    Note,
    Part,
    choose_sensor,
    cut_into_parts,
    facts_of_parts,
    fit_part,
    join_parts,
    write_rejected,
)
from event2vec.data.shard_size import check_shard_size
from event2vec.data.shard_writer import Rows, take_shards, write_index, write_shards
from event2vec.data.store import EventStore
from event2vec.data.store_layout import DESCRIPTION, VERSION
from event2vec.errors import Busy, Event2VecError, Event2VecWarning, FileError
from event2vec.machine.atomic import clear_leftovers, move, whole_file, whole_folder
from event2vec.machine.locks import LOCK, is_in_the_way, own
from event2vec.names import counted
from event2vec.progress import SILENT, Progress
from event2vec.sensor import Sensor

SECONDS_BETWEEN_LOOKS = 0.5  # while waiting for another process
PLAN = "plan"  # the file in the folder of parts that holds the digest of their plan


@dataclass(frozen=True)
class Report:
    """A finished store, and the recordings that were rejected or gave a warning."""

    store: EventStore
    rejected: tuple[Note, ...]
    warnings: tuple[Note, ...]

    @property
    def cutting(self) -> str | None:
        """What of long recordings became windows and what did not, for people; None if nothing was cut or left out."""
        windows, facts = self.store.windows, self.store.facts
        parts = [f"cut into {windows.summary}"] if windows else []
        if left_out := facts.get("left_out"):
            parts.append(f"{counted(left_out, 'window')} with too few events left out")
        if unused := facts.get("unused"):
            parts.append(f"{unused / 1e6:,.1f} s without a label not used")
        return "; ".join(parts) or None


@dataclass(frozen=True)
class Plan:
    """What a store will be made from."""

    datasets: tuple[Dataset, ...]
    clusters: Clusters | None
    made_of: str | None = None  # for people who look at the store later
    shard_mb: int | None = None  # megabytes of each shard; None: one file for each column

    @cached_property
    def digest(self) -> str:
        """Identifies the store, down to the size and date of every file, which may take a while to collect."""
        lines = [f"{VERSION} {LARGEST_PART} {PARTS} {self.clusters}"]
        lines += [f"shards of {self.shard_mb}"] if self.shard_mb else []
        for dataset in self.datasets:
            lines.append(f"{dataset.name} {dataset.split} {dataset.classes} {dataset.windows}")
            for index, (source, label) in enumerate(zip(dataset.sources, dataset.labels, strict=True)):
                lines.append(f"{source}\t{label}\t{dataset.group(index)}\t{dataset.fingerprint(index)}")
        # File names may not be valid UTF-8; Python turns their invalid bytes into surrogates.
        return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()

    @property
    def facts(self) -> dict[str, Any]:
        """What the store records about its plan."""
        facts: dict[str, Any] = {"plan": self.digest}
        if self.made_of:
            facts["made_of"] = self.made_of
        if any(dataset.drawn and dataset.split == "test" for dataset in self.datasets):
            facts["drawn"] = "test"
        if windows := self.datasets[0].cut_by:
            facts["windows"] = asdict(windows)
        return facts


def prepare(
    datasets: Dataset | Sequence[Dataset],
    folder: str | Path,
    workers: int = 1,
    progress: Progress = SILENT,
    clusters: int | None = None,
    clusterings: int = 1,
    seeding: Seeding = "pruned",
    cluster: str | Cluster | None = None,
    shard_mb: int | None = None,
) -> Report:
    """Write all recordings of these splits into one store; the number of workers does not change it.

        prepare(open_splits("folder", "my_recordings/"), "my_store")

    A recording that cannot be used is left out and reported. The same call resumes work that was stopped: finished
    parts are kept in `<folder>.partial` until the store is complete.
    With `clusters`, `cluster_events` reduces each recording to at most that many events, with this `seeding`; each
    training recording is clustered `clusterings` times, from different seeds.
    A Ray `cluster` ("auto", "local" or "HOST:PORT") does the work instead of `workers`: its nodes must see the same
    files. With `shard_mb`, the store is in shards of about that many megabytes, which `copy_store` can move elsewhere.
    """
    parts = several(datasets)
    for part in parts:
        check_kind(part, Dataset, 'data sets, such as open_splits("folder", "my_recordings/")')
    if clusters is not None and clusters < 2:
        raise Event2VecError(f"clusters must be at least 2, one for each polarity, got {clusters}")
    if clusterings < 1 or (clusterings > 1 and clusters is None):
        raise Event2VecError(f"clusterings must be at least 1, and more than 1 requires clusters, got {clusterings}")
    if seeding != "pruned" and clusters is None:
        raise Event2VecError("seeding requires clusters")
    wanted = Clusters(clusters, clusterings, BatchedKMeans(seeding=seeding)) if clusters else None
    if shard_mb is not None:
        check_shard_size(shard_mb)
    plan = Plan(tuple(parts), wanted, shard_mb=shard_mb)
    return carry_out(plan, local_place(folder, COPY_LATER), Cluster.of(cluster) or workers, progress)


def carry_out(plan: Plan, folder: Path, workers: Workers = 1, progress: Progress = SILENT) -> Report:
    """Make the store of a plan, or open it if it exists."""
    folder = Path(os.path.realpath(folder))  # a link stays a link: its target is written
    partial = partial_folder(folder)
    parts = cut_into_parts(plan.datasets, partial, plan.clusters)
    if not parts:
        raise Event2VecError(f"the data set {plan.datasets[0].name} has no recordings")
    # If nothing is left to do, nothing is written: the store may be in a read-only folder.
    if is_missing(folder) or os.path.lexists(partial):
        title, total = f"preparing {plan.datasets[0].name}", sum(map(len, parts))
        with progress.stage(title, total), _alone(partial, plan, parts, progress):
            clear_leftovers(partial)
            if is_missing(folder):
                _start_or_resume(partial, plan)
                write_parts(parts, workers, progress)
                sensor = choose_sensor(parts)
                parts = [fit_part(part, sensor) for part in parts]
                if fitted := [part for part in parts if part.sensor]:
                    with progress.stage(f"scaling to a {sensor} sensor", sum(map(len, fitted))):
                        write_parts(fitted, workers, progress)
                # Joined inside the folder of parts, so that a kill at any moment leaves nothing outside it.
                _join(plan, parts, partial / "joined", sensor, workers, progress)
                move(partial / "joined", folder)
            remove_parts(partial)
    return _finished(folder, plan)


def _join(
    plan: Plan, parts: Sequence[Part], folder: Path, sensor: Sensor, workers: Workers, progress: Progress
) -> None:
    if plan.shard_mb is None:
        join_parts(parts, folder, sensor, plan.facts)
        return
    rows = [Rows.of(EventStore.open(part.folder)) for part in parts]
    found = facts_of_parts(parts, sensor)
    description = {"sensor": [sensor.width, sensor.height], "classes": parts[0].dataset.classes, **plan.facts, **found}
    cluster = replace(workers, threads=1) if isinstance(workers, Cluster) else None
    place = folder.with_name("sharded")  # shards that are complete stay there if this is stopped
    shards = write_shards(rows, str(place), plan.digest, plan.shard_mb, cluster, progress)
    with whole_folder(folder) as work:
        write_index(rows, work, description, shards)
        write_rejected(found["rejected"], work)
        take_shards(place, work, len(shards))  # last: what fails before leaves them for the next call


def partial_folder(folder: Path) -> Path:
    """Where the parts of a store are kept until it is complete."""
    return folder.with_name(folder.name + ".partial")


def is_missing(folder: Path) -> bool:
    """Whether the store does not exist yet; an empty folder does not count."""
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


@contextmanager
def _alone(folder: Path, plan: Plan, parts: Sequence[Part], progress: Progress) -> Iterator[None]:
    """Let one process prepare a store. Others wait, show its progress, and take over if it dies."""
    with ExitStack() as held:
        said = False
        while True:
            try:
                if is_in_the_way(folder):
                    raise _not_ours(folder)
                held.enter_context(own(folder))
                break
            except Busy as busy:
                if plan_of(folder) not in (None, plan.digest):
                    raise
                if not said:
                    warn(f"{busy}. Its result will be used here", Event2VecWarning, stacklevel=2)
                said = True
            progress.advance(sum(len(part) for part in parts if part.folder.exists()))
            time.sleep(SECONDS_BETWEEN_LOOKS)
        yield


def check_folder(folder: Path, name: str = "folder") -> None:
    """Refuse to prepare where something else than a store is; the error calls the place `name`."""
    if not is_missing(folder) and not (folder / DESCRIPTION).exists():
        raise FileError(folder, f"exists already and is not a store. Choose another {name}")


def _finished(folder: Path, plan: Plan) -> Report:
    """The store in the folder, if it is what the plan describes."""
    check_folder(folder)
    store = EventStore.open(folder)
    if store.facts.get("plan") != plan.digest:
        raise FileError(
            folder, "exists already, made from other data or with other options. Remove it or choose another folder"
        )
    try:
        rejected, warnings = ([Note(*note) for note in store.facts[kind]] for kind in ("rejected", "warnings"))
    except (KeyError, TypeError):
        raise FileError(folder, "has no list of rejected recordings. Remove the folder and prepare it again") from None
    return Report(store, tuple(rejected), tuple(warnings))


def _start_or_resume(folder: Path, plan: Plan) -> None:
    """Keep finished parts of the same plan; remove those of another."""
    found = plan_of(folder)
    if found is None and {path.name for path in folder.iterdir()} != {LOCK}:
        raise _not_ours(folder)
    if found == plan.digest:
        shutil.rmtree(folder / "joined", ignore_errors=True)
        return
    remove_parts(folder)
    with whole_file(folder / PLAN) as temporary:
        temporary.write_text(plan.digest, "utf-8")


def plan_of(folder: Path) -> str | None:
    """The digest of the plan that the parts in a folder belong to; None if there are none."""
    try:
        return (folder / PLAN).read_text("utf-8")
    except FileNotFoundError:
        return None
    except (UnicodeDecodeError, OSError):
        raise _not_ours(folder) from None


def _not_ours(folder: Path) -> FileError:
    return FileError(
        folder,
        "exists already and is not a folder of unfinished parts, as needed here. Move it or choose another folder",
    )


def remove_parts(folder: Path) -> None:
    """Remove all parts, and their plan last: a kill must not leave parts without a plan."""
    if plan_of(folder) is not None:
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
        (folder / PLAN).unlink()
