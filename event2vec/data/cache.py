"""The cache: stores that were prepared for training, found again by what they were made from.

`open_for_training` opens what training reads, and prepares it here first if needed; `cached_stores` and
`remove_cached` list and remove stores.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from event2vec.cluster import Workers
from event2vec.data.addresses import is_address
from event2vec.data.clusters import Clusters, Engine
from event2vec.data.datasets import check_source, open_splits
from event2vec.data.datasets.dataset import Dataset
from event2vec.data.datasets.folder import open_whole
from event2vec.data.parts import REJECTED
from event2vec.data.prepare import PLAN, Plan, Report, carry_out, is_missing, partial_folder, plan_of, remove_parts
from event2vec.data.remote import ADDRESS, address_of, holds_store
from event2vec.data.remote import cache_folder as cache_folder
from event2vec.data.sampling import Sampling
from event2vec.data.store import EventStore
from event2vec.data.store_layout import DESCRIPTION, FILES
from event2vec.data.windows import Windows
from event2vec.errors import Busy, Event2VecError, FileError
from event2vec.io import Recording
from event2vec.machine.atomic import clear_leftovers, is_leftover, move, whole_file
from event2vec.machine.locks import LOCK, hold_shared, is_held, is_shared, own
from event2vec.names import hide_secrets, shorten, shown
from event2vec.progress import SILENT, Progress
from event2vec.sensor import Sensor

NAME = re.compile(r".+-[0-9a-f]{12}", re.DOTALL)  # of an entry: its data set, and the start of its plan's digest

State = Literal["ready", "in use", "being prepared", "unfinished", "unusable"]


def prepare_digits(workers: int = 1, progress: Progress = SILENT, only: str | None = None) -> EventStore:
    """The digits from the user's cache, simulated first if they are missing; all, or one split."""
    return open_for_training(None, "digits", Sampling(), workers, progress, only=only).store


def open_for_training(
    data: str | Path | None,
    dataset: str,
    sampling: Sampling,
    workers: Workers = 1,
    progress: Progress = SILENT,
    engine: Engine | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
    everywhere: bool = False,
    only: str | None = None,
) -> Report:
    """A store that training can read directly, from a store or from a data set as downloaded.

        store = open_for_training("my_recordings", "folder", Sampling(method="clusters", length=256)).store

    A data set is first prepared in the user's cache, and so are clusters, which would take too long to compute in every
    epoch. A store of clusters is used as it is. Earlier work is reused; in distributed training, one process prepares
    and the others wait for it. An `engine` computes the clusters instead of ours, for comparisons.
    `options` are those of `open_dataset`. `everywhere` clusters test recordings as often as training recordings.
    `only` is the one split that is needed: a data set that comes with it is not prepared beyond it.
    """
    found = _find(data, dataset, Clusters.of(sampling, engine, everywhere), options, only)
    if isinstance(found, EventStore):
        _mark_used(found.folder)
        return Report(found, (), ())
    return _open_cached(found, workers, progress)


def open_whole_folder(
    data: Path,
    classes: Sequence[str],
    sensor: Sensor,
    sampling: Sampling,
    windows: Windows | None = None,
    workers: int = 1,
    progress: Progress = SILENT,
) -> EventStore:
    """All recordings of a folder with a sub-folder for each class, as a network for this sensor reads them."""
    clusters, dataset = Clusters.of(sampling), open_whole(data, classes, sensor, windows)
    made_of = f"all recordings in {data.absolute()}"
    return _open_cached(
        Plan((dataset,), clusters, made_of + (f", {clusters.summary}" if clusters else "")), workers, progress
    ).store


def reopen_for_training(
    recorded: Path,
    source: str | None,
    dataset: str,
    sampling: Sampling,
    workers: int = 1,
    progress: Progress = SILENT,
    options: Mapping[str, Any] = MappingProxyType({}),
    everywhere: bool = False,
) -> EventStore:
    """The store that a run was trained on. If it is no longer in the cache, it is rebuilt from its `source`.

    A source that has changed since would give a different store: that is an error, and nothing is prepared.
    """
    if not is_missing(recorded):
        _mark_used(recorded)
        return EventStore.open(recorded)
    remedy = "Set the recordings with `data`"
    if not NAME.fullmatch(recorded.name) or (source and os.path.realpath(source) == os.path.realpath(recorded)):
        raise FileError(recorded, f"is gone, and event2vec did not make it from other data. {remedy}")
    try:
        plan = _find(source, dataset, Clusters.of(sampling, None, everywhere), options)
    except Event2VecError as error:
        raise FileError(recorded, f"is gone and cannot be rebuilt: {error}. {remedy}") from None
    if isinstance(plan, EventStore) and is_address(source or "") and plan.folder.name == recorded.name:
        return plan
    if isinstance(plan, EventStore) or _name_of(plan) != recorded.name:
        of = shown(source) if source else f"the {dataset}"
        raise FileError(
            recorded, f"is gone, and {of} would not give the same store: it or event2vec has changed. {remedy}"
        )
    return _open_cached(plan, workers, progress).store


def _find(
    data: str | Path | None,
    dataset: str,
    clusters: Clusters | None,
    options: Mapping[str, Any],
    only: str | None = None,
) -> EventStore | Plan:
    """The store in `data`, if training can read it directly; otherwise the plan for a store made from it."""
    is_store = data is not None and holds_store(data)
    if data is not None and dataset == "digits" and not is_store:
        raise FileError(data, "is not a store. The digits are built in: omit `data`, or choose another recipe")
    check_source(dataset, data)
    made_of = dataset if data is None else f"{dataset} in {Path(data).absolute()}"
    if data is not None and is_store:
        store = EventStore.open(data)
        if clusters is None or len(store) == 0 or int(store.lengths.max()) <= clusters.count:
            return store
        made_of = hide_secrets(f"the store {address_of(store.folder) or store.folder.absolute()}")
        parts: list[Dataset] = [StoredSplit.of(store, split) for split in dict.fromkeys(store.splits)]
    else:
        parts = open_splits(dataset, data, **options)
        if dataset != "folder":  # whose recordings may be of several cameras, of which all choose the sensor
            parts = [part for part in parts if part.split == only] or parts
    return Plan(tuple(parts), clusters, made_of + (f", {clusters.summary}" if clusters else ""))


@dataclass(frozen=True)
class StoredSplit(Dataset):
    """One split of a store, as the source of another store."""

    store: EventStore

    @classmethod
    def of(cls, store: EventStore, split: str) -> "StoredSplit":
        part = store.split(split)
        labels, drawn = tuple(part.labels.tolist()), store.facts.get("drawn") == split
        return cls(store.folder.name, split, store.classes, part.sources, labels, part, drawn=drawn)

    def group(self, index: int) -> str:
        return self.store.all_groups[self.store.rows[index]]

    @property
    def cut_by(self) -> Windows | None:
        return self.windows or self.store.windows

    def read(self, index: int) -> Recording:
        return Recording(self.store[index][0], "store", 0, 0, True)

    def fingerprint(self, index: int) -> str:
        """The row in the store, and the date of the store, which is written only once."""
        if address := address_of(self.store.folder):  # the name of the local folder says which version of it
            return f"{address} {self.store.rows[index]} {self.store.folder.name}"
        description = self.store.folder / DESCRIPTION
        return f"{self.store.folder.resolve()} {self.store.rows[index]} {description.stat().st_mtime_ns}"


def _name_of(plan: Plan) -> str:
    return f"{plan.datasets[0].name}-{plan.digest[:12]}"


def _open_cached(plan: Plan, workers: Workers, progress: Progress) -> Report:
    report = carry_out(plan, cache_folder() / _name_of(plan), workers, progress)
    _mark_used(report.store.folder)
    return report


_READING: dict[Path, int] = {}  # entries that this process has opened, with the descriptor that holds their lock


def _mark_used(folder: Path) -> None:
    """Record the time of use as the date of the entry's folder, and let others see that this process reads it."""
    folder = Path(os.path.realpath(folder))
    if folder.parent != Path(os.path.realpath(cache_folder())) or not (folder / DESCRIPTION).is_file():
        return
    with suppress(OSError):  # a read-only cache
        os.utime(folder)
    with suppress(OSError):
        if folder not in _READING:
            _READING[folder] = hold_shared(folder / DESCRIPTION)


@dataclass(frozen=True)
class CachedStore:
    """An entry of the cache: a store, or the parts of an unfinished one."""

    name: str
    state: State
    made_of: str | None  # None if the store does not say
    recordings: int | None  # None if the store is not complete
    size: int  # bytes on disk
    last_used: float  # seconds since 1970
    problem: str | None = None  # why it is unusable


def cached_stores() -> list[CachedStore]:
    """The entries of the cache, last used first. Folders that are not ours are neither listed nor removed.

        sum(entry.size for entry in cached_stores())  # bytes

    Set EVENT2VEC_CACHE to keep the cache in another folder.
    """
    found = [_describe(cache_folder() / name) for name in _entries()]
    return sorted(found, key=lambda entry: (-entry.last_used, entry.name))


def remove_cached(name: str) -> CachedStore:
    """Remove an entry of the cache, and return what it was. Refused if another process prepares or reads it.

        for entry in cached_stores():
            remove_cached(entry.name)

    What was removed is prepared again when it is needed.
    """
    if name not in _entries():
        known = shorten(", ".join(_entries()) or "nothing", 300)
        raise FileError(cache_folder(), f"has no entry {shown(name)}; it has {known}")
    folder = cache_folder() / name
    entry, partial = _describe(folder), partial_folder(folder)
    with own(partial):  # raises Busy if another process prepares it
        clear_leftovers(partial)
        _stop_reading(folder)
        if is_shared(folder / DESCRIPTION):
            raise Busy(folder, "in use by another process; wait for it to finish")
        if plan_of(partial) is None:  # if this is killed, the next call or preparation removes the rest
            with whole_file(partial / PLAN) as temporary:
                temporary.write_text("removed", "utf-8")
        shutil.rmtree(partial / "removed", ignore_errors=True)
        if folder.is_dir():
            move(folder, partial / "removed")
        remove_parts(partial)
    return entry


def _stop_reading(folder: Path) -> None:
    descriptor = _READING.pop(Path(os.path.realpath(folder)), None)
    if descriptor is not None:
        os.close(descriptor)


def _entries() -> list[str]:
    """Names of stores that were prepared here, complete or not: users may keep other folders in the same place."""
    root = cache_folder()
    names = {path.name.removesuffix(".partial") for path in root.iterdir()} if root.is_dir() else set[str]()
    return sorted(name for name in names if NAME.fullmatch(name) and _is_ours(root / name))


def _is_ours(folder: Path) -> bool:
    partial = partial_folder(folder)
    if folder.is_symlink() or partial.is_symlink():
        return False
    return (_holds_store(folder) or not folder.exists()) and (_holds_parts(partial) or not partial.exists())


def _holds_store(folder: Path) -> bool:
    return folder.is_dir() and {path.name for path in folder.iterdir()} <= FILES | {REJECTED, ADDRESS}


def _holds_parts(folder: Path) -> bool:
    try:
        if not folder.is_dir() or plan_of(folder) is not None:
            return folder.is_dir()
        return all(path.name == LOCK or is_leftover(path) for path in folder.iterdir())
    except (FileError, FileNotFoundError):  # not ours, or just removed
        return False


def _describe(folder: Path) -> CachedStore:
    partial = partial_folder(folder)
    size, used = _size(folder) + _size(partial), max(_last_used(folder), _last_used(partial))
    if is_held(partial):
        return CachedStore(folder.name, "being prepared", None, None, size, used)
    if is_missing(folder):
        return CachedStore(folder.name, "unfinished", None, None, size, used)
    try:
        store = EventStore.open(folder)
    except Event2VecError as error:
        return CachedStore(folder.name, "unusable", None, None, size, used, str(error))
    made_of = address_of(folder) or store.facts.get("made_of")
    state: State = "in use" if is_shared(folder / DESCRIPTION) else "ready"
    made_of = hide_secrets(made_of) if isinstance(made_of, str) else None
    return CachedStore(folder.name, state, made_of, len(store), size, used)


def _size(folder: Path) -> int:
    """The size of all files; another process may remove some meanwhile."""
    size = 0
    for place, _, files in os.walk(folder):
        for file in files:
            with suppress(FileNotFoundError):
                size += os.lstat(Path(place) / file).st_size
    return size


def _last_used(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:
        return 0.0
