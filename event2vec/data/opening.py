"""Open what training reads. What has to be prepared goes into the cache, under a name made from what it is made of."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from event2vec.cluster import Workers
from event2vec.data.addresses import is_address
from event2vec.data.cache import NAME, mark_used
from event2vec.data.clusters import Clusters, Engine
from event2vec.data.datasets import check_source, open_splits
from event2vec.data.datasets.dataset import Dataset
from event2vec.data.datasets.folder import open_whole
from event2vec.data.prepare import Plan, Report, carry_out, is_missing
from event2vec.data.remote import address_of, cache_folder, holds_store
from event2vec.data.sampling import Sampling
from event2vec.data.store import EventStore
from event2vec.data.store_layout import DESCRIPTION
from event2vec.data.windows import Windows
from event2vec.errors import Event2VecError, FileError
from event2vec.io import Recording
from event2vec.names import hide_secrets, shown
from event2vec.progress import SILENT, Progress
from event2vec.sensor import Sensor


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
        mark_used(found.folder)
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
        mark_used(recorded)
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
    mark_used(report.store.folder)
    return report
