"""Stores in shards as they are written: each shard by itself, here or on a cluster, and the index last."""

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.atomic import whole_file, whole_folder
from event2vec.cluster import Cluster, do_pieces
from event2vec.data.addresses import is_address, usual_form
from event2vec.data.remote import check_free, digest_of, upload
from event2vec.data.shards import ALIGNED, Shard, ShardedColumn, shard_name
from event2vec.data.store import EventStore
from event2vec.data.store_layout import (
    DESCRIPTION,
    DURATIONS,
    LABELS,
    OFFSETS,
    PIXELS,
    RECORDED,
    SETS,
    SHARDED_VERSION,
    SHARDS,
)
from event2vec.errors import Event2VecError, FileError
from event2vec.events import COLUMNS
from event2vec.progress import SILENT, Progress

SHARD_MB = 128  # of a shard: what one request fetches in about a second
LEAST_MB = 1


@dataclass(frozen=True)
class Rows:
    """Consecutive recordings of a store, with all their sets of clusters."""

    folder: Path
    first: int
    stop: int

    @classmethod
    def of(cls, store: EventStore) -> "Rows":
        """All of a store."""
        return cls(store.folder, 0, len(store.all_sets))

    def open(self) -> EventStore:
        return EventStore.open(self.folder)

    @property
    def count(self) -> int:
        return self.stop - self.first


@dataclass(frozen=True)
class _Piece:
    """What one shard is made of, and where it goes."""

    number: int
    rows: tuple[Rows, ...]
    out: str


def copy_store(
    store: str | Path,
    out: str | Path,
    shard_mb: int = SHARD_MB,
    *,
    cluster: str | Cluster | None = None,
    progress: Progress = SILENT,
) -> EventStore:
    """Copy a store in shards of about `shard_mb` megabytes, to a folder or to an address that fsspec knows.

        copy_store("my_store", "s3://bucket/my_store")
        train("folder", "s3://bucket/my_store")

    The store appears when its last file, the index, is there. Shards are written by one process, or side by side on a
    Ray `cluster`.
    """
    if shard_mb < LEAST_MB:
        raise Event2VecError(f"shards must have at least {LEAST_MB} megabyte, got {shard_mb}")
    source = EventStore.open(store)
    everything = Rows.of(source)
    description = {"sensor": [source.sensor.width, source.sensor.height], "classes": source.classes, **source.facts}
    where = Cluster.of(cluster)
    if is_address(out):
        address = usual_form(str(out))
        check_free(address)
        with tempfile.TemporaryDirectory() as folder:
            files = write_shards([everything], Path(folder), description, shard_mb, address, where, progress)
            for name in files:
                upload(Path(folder) / name, f"{address}/{name}")
        return EventStore.open(address)
    if Path(out).exists():
        raise FileError(out, "exists already. Remove it or choose another name")
    with whole_folder(Path(out).absolute()) as work:
        write_shards([everything], work, description, shard_mb, str(work), where, progress)
    return EventStore.open(out)


def write_shards(
    parts: Sequence[Rows],
    folder: Path,
    description: Mapping[str, Any],
    shard_mb: int,
    out: str,
    cluster: Cluster | None,
    progress: Progress,
) -> list[str]:
    """Write the shards of all these recordings to `out`, and their index to `folder`; its files, the last one last."""
    pieces = [_Piece(number, rows, out) for number, rows in enumerate(_cut(parts, shard_mb * 10**6))]
    sizes = [sum(each.count for each in piece.rows) for piece in pieces]
    names = [shard_name(piece.number) for piece in pieces]
    if not is_address(out):
        (Path(out) / SHARDS).mkdir()
    with progress.stage("writing shards", sum(sizes)):
        shards = do_pieces(_write_shard, pieces, names, cluster, progress, sizes=sizes)
    return _write_index(parts, folder, description, shards)


def _cut(parts: Sequence[Rows], most: int) -> Iterator[tuple[Rows, ...]]:
    """The recordings of each shard: as many as fit, at least one. Cuts depend only on the recordings."""
    shard, size = list[Rows](), 0
    for part in parts:
        store = part.open()
        bytes_each = sum(map(_bytes_of_event, store.columns.values()))
        lengths = np.diff(store.offsets[part.first : part.stop + 1])
        first = part.first
        for row, length in enumerate(lengths.tolist(), part.first):
            if size and size + length * bytes_each > most and store.all_sets[row] == 0:
                if row > first:
                    shard.append(Rows(part.folder, first, row))
                yield tuple(shard)
                shard, size, first = [], 0, row
            size += length * bytes_each
        if part.stop > first:
            shard.append(Rows(part.folder, first, part.stop))
    if shard:
        yield tuple(shard)


def _bytes_of_event(column: NDArray[Any] | ShardedColumn) -> int:
    """What a column takes on the disk: nothing where all values are 1."""
    if isinstance(column, ShardedColumn):
        return column.itemsize
    return 0 if column.strides == (0,) else column.dtype.itemsize


def _kind(name: str, dtype: np.dtype[Any]) -> str:
    """The name of a column's type in the layout. numpy may call the same one '<b1' or '|b1', after other libraries."""
    return next(kind for kind in PIXELS[name] if kind != "ones" and np.dtype(kind) == dtype)


def _write_shard(piece: _Piece, progress: Progress) -> Shard:
    columns = _columns(piece.rows)
    types = {name: "ones" if column is None else _kind(name, column.dtype) for name, column in columns.items()}
    events = sum(int(store.offsets[rows.stop] - store.offsets[rows.first]) for rows, store in _stores(piece.rows))
    name, digest = f"{SHARDS}/{shard_name(piece.number)}", hashlib.sha256()
    if is_address(piece.out):
        with tempfile.TemporaryDirectory() as folder:
            _write(Path(folder) / "shard", columns, digest)
            upload(Path(folder) / "shard", f"{piece.out}/{name}")
    else:
        with whole_file(Path(piece.out) / name) as temporary:
            _write(temporary, columns, digest)
    return Shard(events, types, digest.hexdigest())


def _stores(rows: Sequence[Rows]) -> Iterator[tuple[Rows, EventStore]]:
    return ((each, each.open()) for each in rows)


def _columns(rows: Sequence[Rows]) -> dict[str, NDArray[Any] | None]:
    """The columns of a shard; None where all values are 1."""
    found = dict[str, list[NDArray[Any]]]({name: [] for name in COLUMNS})
    for each, store in _stores(rows):
        for row in range(each.first, each.stop):
            place = slice(int(store.offsets[row]), int(store.offsets[row + 1]))
            for name in COLUMNS:
                found[name].append(store.columns[name][place])
    columns = dict[str, NDArray[Any] | None]({name: np.concatenate(pieces) for name, pieces in found.items()})
    if all(piece.strides == (0,) for piece in found["rho"] if len(piece)):
        columns["rho"] = None
    return columns


def _write(path: Path, columns: Mapping[str, NDArray[Any] | None], digest: Any) -> None:
    with path.open("wb") as file:
        for name in COLUMNS:
            column = columns[name]
            if column is None:
                continue
            for content in (column.data.cast("B"), bytes(-column.nbytes % ALIGNED)) if len(column) else ():
                file.write(content)
                digest.update(content)


def _write_index(
    parts: Sequence[Rows], folder: Path, description: Mapping[str, Any], shards: Sequence[Shard]
) -> list[str]:
    index: dict[str, list[Any]] = {name: [] for name in (OFFSETS, LABELS, SETS, DURATIONS, RECORDED)}
    texts: dict[str, list[str]] = {"splits": [], "sources": [], "groups": []}
    first = 0
    for part, store in _stores(parts):
        place, whole = slice(part.first, part.stop), store.all_rows()
        index[OFFSETS].append(store.offsets[place] - store.offsets[part.first] + first)
        first += int(store.offsets[part.stop] - store.offsets[part.first])
        index[LABELS].append(store.all_labels[place])
        index[SETS].append(store.all_sets[place])
        index[DURATIONS].append(whole.durations[place])
        index[RECORDED].append(whole.recorded[place])
        texts["splits"] += store.all_splits[place]
        texts["sources"] += store.all_sources[place]
        texts["groups"] += store.all_groups[place]
    index[OFFSETS].append(np.array([first], np.int64))
    for name, pieces in index.items():
        np.save(folder / name, np.concatenate(pieces))
    digests = {name: digest_of(folder / name) for name in index}
    facts = {
        "version": SHARDED_VERSION,
        "events": first,
        "index": digests,
        "shards": [shard.facts() for shard in shards],
    }
    (folder / DESCRIPTION).write_text(json.dumps({**description, **facts, **texts}, indent=1), encoding="utf-8")
    return [*index, DESCRIPTION]
