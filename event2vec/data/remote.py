"""Stores on other machines, by fsspec: a local folder holds the index and the shards that are in use.

The folder is an entry of the user's cache. Shards appear in it complete and checked, each fetched by one process, and
the least recently used are removed where all of them together exceed `EVENT2VEC_SHARDS_GB`.
"""

import hashlib
import math
import os
import posixpath
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from event2vec.data.addresses import check_address, is_address, usual_form
from event2vec.data.store_layout import DESCRIPTION, INDEX, SHARDS
from event2vec.documents import parse_json, read_json, write_json
from event2vec.errors import Busy, DiskFull, Event2VecError, FileError, Unreachable, has_no_room
from event2vec.machine.atomic import whole_file, whole_folder
from event2vec.machine.locks import own
from event2vec.names import excerpt, hide_secrets, shorten, shown

ADDRESS = "address.json"  # in the local folder: where the store itself is
SECONDS_BETWEEN_LOOKS = 0.05  # while another process fetches a shard or an index
SHARDS_GB = 20.0
PACKAGES = {"s3": "'event2vec[remote]'", "http": "'event2vec[remote]'", "https": "'event2vec[remote]'", "gs": "gcsfs"}
OPTIONS: dict[str, dict[str, Any]] = {
    "s3": {"config_kwargs": {"connect_timeout": 10, "retries": {"max_attempts": 3}}},
}


def cache_folder() -> Path:
    """Where prepared stores are kept: $EVENT2VEC_CACHE, or else the system's folder for caches."""
    if named := os.environ.get("EVENT2VEC_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "event2vec"


def holds_store(place: str | os.PathLike[str]) -> bool:
    """Whether this is a folder with a store, or an address, where nothing else can be."""
    return is_address(place) or (Path(place) / DESCRIPTION).is_file()


def local_folder(address: str) -> Path:
    """The local folder of a store elsewhere, with its current index.

    Its description is fetched each time and names the folder: servers do not all say when a file has changed. It has
    the checksums of the rest of the index, so that other labels alone make another description too.
    """
    address = usual_form(address)
    with _explained(address):
        system, path = _open(address)
        description = system.cat_file(posixpath.join(path, DESCRIPTION))
        digest = hashlib.sha256(address.encode() + b" " + description).hexdigest()[:12]
        name = posixpath.basename(address)
        folder = cache_folder() / f"{shorten(name) or 'store'}-{digest}"
        while not (folder / DESCRIPTION).is_file():
            try:
                with own(folder.with_name(f"{folder.name}.fetch")):
                    if not (folder / DESCRIPTION).is_file():
                        _fetch_index(system, path, address, folder, description)
            except Busy:  # another process fetches it
                time.sleep(SECONDS_BETWEEN_LOOKS)
    return folder


def _fetch_index(system: Any, path: str, address: str, folder: Path, description: bytes) -> None:
    digests = _digests_in(description, f"{address}/{DESCRIPTION}")
    with whole_folder(folder, replace=True) as work:  # shards may be left of a folder that was removed under a reader
        for name in INDEX:
            system.get_file(posixpath.join(path, name), str(work / name))
            if digest_of(work / name) != digests[name]:
                raise FileError(
                    f"{address}/{name}",
                    f"is not what {DESCRIPTION} describes: the store is being replaced, or is damaged. "
                    "Try again, or copy the store there again",
                )
        (work / DESCRIPTION).write_bytes(description)
        (work / SHARDS).mkdir()
        write_json(work / ADDRESS, {"address": address})


def _digests_in(description: bytes, name: str) -> dict[str, str]:
    """The checksums of the other files of the index."""
    found = parse_json(name, description.decode("utf-8", "replace")).get("index")
    if not isinstance(found, dict) or not all(isinstance(found.get(each), str) for each in INDEX):
        raise FileError(
            name, "is not the index of a store in shards. Copy the store there with: event2vec copy FOLDER ADDRESS"
        )
    return found


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def address_of(folder: Path) -> str | None:
    """Where the store of a local folder is; None if it is this folder."""
    if not (folder / ADDRESS).is_file():
        return None
    address = read_json(folder / ADDRESS).get("address")
    if not isinstance(address, str) or not is_address(address):
        raise FileError(folder / ADDRESS, "is damaged. Remove the folder")
    return address


def fetch_shard(folder: Path, address: str, name: str, size: int, digest: str) -> Path:
    """A shard in the local folder, fetched first if it is not there."""
    target, room = folder / SHARDS / name, room_for_shards()
    while not target.is_file():
        try:
            with own(target.with_suffix(".fetch")):
                if not target.is_file():
                    _download(f"{address}/{SHARDS}/{name}", target, size, digest)
                    _make_room(target, room)
        except Busy:  # another process fetches it
            time.sleep(SECONDS_BETWEEN_LOOKS)
    with suppress(OSError):
        os.utime(target)  # when it was last used
    return target


def _download(address: str, target: Path, size: int, digest: str) -> None:
    with whole_file(target) as temporary:
        with _explained(address):
            system, path = _open(address)
            system.get_file(path, str(temporary))
        check_shard(temporary, size, digest, address)


def check_shard(path: Path, size: int, digest: str, name: str | Path) -> None:
    """Refuse a shard that is not what the index says."""
    found = path.stat().st_size
    if found != size:
        raise FileError(name, f"has {found:,} bytes, expected {size:,}. Copy the store there again")
    if digest_of(path) != digest:
        raise FileError(name, "is damaged: its checksum is not that of the index. Copy the store there again")


def room_for_shards() -> float:
    """Bytes that all shards in the cache may take together."""
    text = os.environ.get("EVENT2VEC_SHARDS_GB", str(SHARDS_GB))
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not 0 <= limit < math.inf:
        raise Event2VecError(f"EVENT2VEC_SHARDS_GB must be a number of gigabytes from 0, such as 20, got {shown(text)}")
    return limit * 1e9


def _make_room(newest: Path, limit: float) -> None:
    """Remove what was used least recently. A process that reads a removed shard keeps it until it opens another."""
    found = []
    for mirror in cache_folder().glob(f"*/{ADDRESS}"):
        for path in (mirror.parent / SHARDS).glob("*.bin"):
            with suppress(FileNotFoundError):  # another process removes it too
                facts = path.stat()
                found.append((facts.st_mtime, facts.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= limit:
            return
        if path != newest:
            path.unlink(missing_ok=True)
            total -= size


def upload(source: Path, address: str) -> None:
    """Write a local file to an address."""
    with _explained(address):
        system, path = _open(address)
        if system.protocol in ("file", ("file", "local")):
            system.makedirs(posixpath.dirname(path), exist_ok=True)
        system.put_file(str(source), path)


@contextmanager
def writing(place: str) -> Iterator[Path]:
    """A temporary path; the file that is written there appears at a path or an address at the end, complete."""
    if not is_address(place):
        with whole_file(Path(place)) as temporary:
            yield temporary
        return
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder) / "file"
        yield temporary
        upload(temporary, place)


def read_file(place: str) -> str | None:
    """The text of a small file, here or at an address; None if there is none."""
    if not is_address(place):
        return Path(place).read_text("utf-8", "replace") if Path(place).is_file() else None
    with _explained(place):
        system, path = _open(place)
        return system.cat_file(path).decode("utf-8", "replace") if system.exists(path) else None


def size_of(place: str) -> int | None:
    """Bytes of a file, here or at an address; None if there is none."""
    if not is_address(place):
        return Path(place).stat().st_size if Path(place).is_file() else None
    with _explained(place):
        system, path = _open(place)
        return int(system.info(path)["size"]) if system.exists(path) else None


def remove_files(addresses: Sequence[str]) -> None:
    """Remove files as far as that is allowed: some may write to a bucket and not remove anything."""
    with suppress(Exception):  # each library has errors of its own
        system, _ = _open(addresses[0])
        system.rm([_open(address)[1] for address in addresses])


def check_free(address: str) -> None:
    """Refuse an address that cannot be written, or where a store is."""
    with _explained(address):
        system, path = _open(address)
        taken = system.exists(posixpath.join(path, DESCRIPTION))
    if taken:
        raise FileError(address, "has a store already. Choose another address")
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder) / "writable"
        probe.touch()
        upload(probe, f"{address}/{SHARDS}/.writable")
    remove_files([f"{address}/{SHARDS}/.writable"])


def _open(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it. Addresses with a secret are refused here, the only way in."""
    import fsspec

    check_address(address)
    return fsspec.core.url_to_fs(address, **OPTIONS.get(address.partition("://")[0], {}))


@contextmanager
def _explained(address: str) -> Iterator[None]:
    """What goes wrong on the way to another machine, in one line: each library has errors of its own."""
    try:
        yield
    except Event2VecError:
        raise
    except ImportError:
        package = PACKAGES.get(address.partition("://")[0], "'event2vec[remote]'")
        raise FileError(address, f"needs an optional package. Run: pip install {package}") from None
    except Exception as error:
        raise _explain_here(error) or _explain_there(error, address) from None


def _explain_here(error: Exception) -> FileError | None:
    """What went wrong in the cache; None: it was elsewhere."""
    if has_no_room(error):
        return DiskFull(cache_folder())
    name = error.filename if isinstance(error, OSError) else None
    if not isinstance(name, str | Path) or not Path(name).is_relative_to(cache_folder()):
        return None
    assert isinstance(error, OSError)
    return FileError(name, f"cannot be written: {error.strerror}. Set EVENT2VEC_CACHE to a folder of yours")


def _explain_there(error: Exception, address: str) -> FileError:
    what = excerpt(hide_secrets(str(error)), 150)
    if isinstance(error, FileNotFoundError):
        return FileError(address, "was not found: no such bucket, or no such file in it. Check the address")
    if isinstance(error, PermissionError) or getattr(error, "status", 0) in (401, 403):
        return FileError(address, f"is not accessible: {what}. Check your credentials")
    if type(error).__name__ == "NoCredentialsError":  # of botocore, which need not be installed
        return FileError(address, f"needs credentials: {what}. Set them as its package expects")
    if isinstance(error, ValueError | TypeError | NotImplementedError):  # the same at every try
        return FileError(address, f"cannot be reached: {type(error).__name__}: {what}. Check the address")
    return Unreachable(address, f"cannot be reached: {type(error).__name__}: {what}. Check the network connection")
