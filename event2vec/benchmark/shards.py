"""Drawing training batches from shards: here, from the local cache of a store elsewhere, and fetched first."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from event2vec.benchmark.data import LENGTH, RECORDINGS, draw_batch, write_store
from event2vec.benchmark.measure import best_seconds
from event2vec.benchmark.measurement import Measurement
from event2vec.data.shard_writer import copy_store
from event2vec.data.store import EventStore
from event2vec.data.store_layout import SHARDS

ROUNDS = 5
SHARD_MB = 16


def measure_shards() -> list[Measurement]:
    """The batch of `measure_data`, which needs all recordings of a store and so all of its shards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = write_store(folder / "store")
        sharded = copy_store(plain.folder, folder / "web" / "store", SHARD_MB)
        size = sum(path.stat().st_size for path in (sharded.folder / SHARDS).iterdir())
        sides: dict[str, Callable[[], object]] = {
            "plain store": lambda: draw_batch(EventStore.open(plain.folder)),
            "shards here": lambda: draw_batch(EventStore.open(sharded.folder)),
        }
        with _served(folder / "web", folder / "cache") as address:
            if address:
                sides["shards in the cache"] = lambda: draw_batch(EventStore.open(address))
                sides["shards fetched first"] = lambda: _draw_cold(address)
            seconds = best_seconds(sides, ROUNDS)
    cold = seconds.get("shards fetched first")
    return [
        Measurement(
            case={"batch": f"{RECORDINGS} x {LENGTH}, {size / 1e6:.0f} MB in shards of {SHARD_MB}"},
            figures={f"{side}, batches/s": 1 / value for side, value in seconds.items()}
            | {"fetched MB/s": size / cold / 1e6 if cold else None},
            ratios={"shards against plain": seconds["shards here"] / seconds["plain store"]},
        )
    ]


def _draw_cold(address: str) -> object:
    shutil.rmtree(EventStore.open(address).folder)
    return draw_batch(EventStore.open(address))


@contextmanager
def _served(folder: Path, cache: Path) -> Iterator[str | None]:
    """The address of a store on a web server of this machine; None without the packages that read it."""
    if not find_spec("fsspec") or not find_spec("aiohttp"):
        yield None
        return
    before = os.environ.get("EVENT2VEC_CACHE")
    os.environ["EVENT2VEC_CACHE"] = str(cache)
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"port (\d+)", server.stdout.readline())
            assert found
            yield f"http://127.0.0.1:{found[1]}/store"
        finally:
            server.kill()
            if before is None:
                del os.environ["EVENT2VEC_CACHE"]
            else:
                os.environ["EVENT2VEC_CACHE"] = before
