"""Stores in shards as they are written: each shard by itself, here or on a cluster, and the index last."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.arguments import several
from event2vec.cluster import Cluster, do_pieces
from event2vec.data.addresses import is_address, usual_form
from event2vec.data.merged import describe_together, version_of
from event2vec.data.remote import check_free, digest_of, read_file, remove_files, size_of, upload, writing
from event2vec.data.shard_size import SHARD_MB, check_shard_size
from event2vec.data.shards import ALIGNED, Shard, ShardedColumn, note_of, shard_name
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
from event2vec.documents import parse_json
from event2vec.errors import FileError
from event2vec.events import COLUMNS
from event2vec.machine.atomic import clear_leftovers, whole_folder
from event2vec.machine.locks import LOCK, own
from event2vec.names import shown
from event2vec.progress import SILENT, Progress


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
    out: str  # a folder or an address
    made_of: str  # all shards of this store: one of another store is not mistaken for it

    @property
    def place(self) -> str:
        return f"{self.out}/{SHARDS}/{shard_name(self.number)}"

    @property
    def note(self) -> str:
        """Beside the shard once it is complete, until all are: what it is, so that it need not be written again."""
        return note_of(self.place)


def copy_store(
    store: str | Path | Sequence[str | Path],
    out: str | Path,
    shard_mb: int = SHARD_MB,
    *,
    cluster: str | Cluster | None = None,
    progress: Progress = SILENT,
) -> EventStore:
    """Copy a store in shards of about `shard_mb` megabytes, to a folder or to an address that fsspec knows.

        copy_store("my_store", "s3://bucket/my_store")
        train("folder", "s3://bucket/my_store")
        copy_store(["first", "second"], "both")

    Several stores become one; their classes, sensor and sampling must agree. The store appears when its last file, the
    index, is there. Shards are written by one process, or side by side on a Ray `cluster`; the same call continues
    what was stopped, from the first shard that is not complete.
    """
    check_shard_size(shard_mb)
    sources = [EventStore.open(each) for each in several(store)]
    made_of = " ".join(["shards of", str(shard_mb), *map(version_of, sources)])
    rows = [*map(Rows.of, sources)]
    copy = _Copy(rows, describe_together(sources), made_of, shard_mb, Cluster.of(cluster), progress)
    if is_address(out):
        copy.to_address(usual_form(str(out)))
    else:
        copy.to_folder(Path(out).absolute())
    return EventStore.open(out)


@dataclass(frozen=True)
class _Copy:
    """Recordings on their way to a new store."""

    rows: Sequence[Rows]
    description: Mapping[str, Any]
    made_of: str
    shard_mb: int
    cluster: Cluster | None
    progress: Progress

    def to_folder(self, folder: Path) -> None:
        if folder.exists():
            raise FileError(folder, "exists already. Remove it or choose another name")
        with _unfinished_copy(folder) as partial:
            shards = self._write_shards(str(partial))
            with whole_folder(folder) as work:
                write_index(self.rows, work, self.description, shards)
                take_shards(partial, work, len(shards))  # last: what fails before leaves them for the next call

    def to_address(self, address: str) -> None:
        check_free(address)
        shards = self._write_shards(address)
        with tempfile.TemporaryDirectory() as folder:
            for name in write_index(self.rows, Path(folder), self.description, shards):
                upload(Path(folder) / name, f"{address}/{name}")
        remove_files([note_of(f"{address}/{SHARDS}/{shard_name(number)}") for number in range(len(shards))])

    def _write_shards(self, out: str) -> list[Shard]:
        return write_shards(self.rows, out, self.made_of, self.shard_mb, self.cluster, self.progress)


@contextmanager
def _unfinished_copy(folder: Path) -> Iterator[Path]:
    """Where the shards of a copy are until it is complete; what a stopped one left is there."""
    partial = folder.with_name(f"{folder.name}.partial")
    with own(partial):
        clear_leftovers(partial / SHARDS)
        if strange := {path.name for path in partial.iterdir()} - {SHARDS, LOCK}:
            raise FileError(partial, f"exists and is not an unfinished copy: it has {shown(min(strange))}. Move it")
        yield partial
        shutil.rmtree(partial / SHARDS)


def take_shards(source: Path, target: Path, count: int) -> None:
    """Move this many shards to another folder, without their notes and without what an earlier try left."""
    (target / SHARDS).mkdir()
    for name in map(shard_name, range(count)):
        (source / SHARDS / name).rename(target / SHARDS / name)


def write_shards(
    parts: Sequence[Rows],
    out: str,
    made_of: str,
    shard_mb: int,
    cluster: Cluster | None,
    progress: Progress,
) -> list[Shard]:
    """Write the shards of all these recordings to a folder or an address, except those that are complete there."""
    cuts = enumerate(_cut(parts, shard_mb * 10**6))
    pieces = [_Piece(number, rows, out, made_of) for number, rows in cuts]
    sizes = [sum(each.count for each in piece.rows) for piece in pieces]
    names = [shard_name(piece.number) for piece in pieces]
    if not is_address(out):
        (Path(out) / SHARDS).mkdir(parents=True, exist_ok=True)
    with progress.stage("writing shards", sum(sizes)):
        return do_pieces(_write_once, pieces, names, cluster, progress, sizes=sizes)


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


def _write_once(piece: _Piece, progress: Progress) -> Shard:
    """Unless it is there: the task that wrote it may be lost before it says so, or the work was stopped later."""
    return _finished(piece) or _write_shard(piece)


def _finished(piece: _Piece) -> Shard | None:
    """The shard, if an earlier try has completed it."""
    text = read_file(piece.note)
    if text is None:
        return None
    try:
        facts = parse_json(piece.note, text)
        shard = Shard.read(facts.get("shard"))
    except (ValueError, FileError):
        return None
    return shard if facts.get("made_of") == piece.made_of and size_of(piece.place) == shard.size else None


def _write_shard(piece: _Piece) -> Shard:
    columns = _columns(piece.rows)
    types = {name: "ones" if column is None else _kind(name, column.dtype) for name, column in columns.items()}
    events = sum(int(store.offsets[rows.stop] - store.offsets[rows.first]) for rows, store in _stores(piece.rows))
    digest = hashlib.sha256()
    with writing(piece.place) as temporary:
        _write(temporary, columns, digest)
    shard = Shard(events, types, digest.hexdigest())
    with writing(piece.note) as temporary:
        temporary.write_text(json.dumps({"made_of": piece.made_of, "shard": shard.facts()}), encoding="utf-8")
    return shard


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


def write_index(
    parts: Sequence[Rows], folder: Path, description: Mapping[str, Any], shards: Sequence[Shard]
) -> list[str]:
    """Write all but the shards; the names of the files, the last one last."""
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
