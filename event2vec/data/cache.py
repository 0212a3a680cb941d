"""The cache of stores that were prepared for training: what is in it, what is in use, and how to remove it."""

import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from event2vec.data.parts import REJECTED
from event2vec.data.prepare import PLAN, is_missing, partial_folder, plan_of, remove_parts
from event2vec.data.remote import ADDRESS, address_of
from event2vec.data.remote import cache_folder as cache_folder
from event2vec.data.store import EventStore
from event2vec.data.store_layout import DESCRIPTION, FILES
from event2vec.errors import Busy, Event2VecError, FileError
from event2vec.machine.atomic import clear_leftovers, is_leftover, move, whole_file
from event2vec.machine.locks import LOCK, hold_shared, is_held, is_shared, own
from event2vec.names import hide_secrets, shorten, shown

NAME = re.compile(r".+-[0-9a-f]{12}", re.DOTALL)  # of an entry: its data set, and the start of its plan's digest

State = Literal["ready", "in use", "being prepared", "unfinished", "unusable"]

_READING: dict[Path, int] = {}  # entries that this process has opened, with the descriptor that holds their lock


def mark_used(folder: Path) -> None:
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
        known = shorten(", ".join(_entries()), 300)
        there_is = f"it has {known}" if known else "the cache is empty"
        raise FileError(cache_folder(), f"has no entry {shown(name)}; {there_is}")
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
