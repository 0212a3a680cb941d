"""Read HDF5 in a child process, started by hdf5.py: one request per line of stdin, the answer on stdout.

On a damaged file the HDF5 library may loop forever, reserve any amount of memory, or crash. Here that does no harm:
limits on time and memory end this process, and its parent reports a damaged file. Nothing from event2vec is imported,
so it starts in a tenth of a second.
"""

import faulthandler
import json
import math
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Any

import h5py
import numpy as np

with suppress(ImportError):
    import hdf5plugin  # noqa: F401  (importing it registers the filters)

FREE_FILTERS = {h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}  # neither expands its input
INTENSITY = "intensity"
ECF_FILTER = 0x8ECF  # Prophesee's codec
PLACES = (("events",), ("CD", "events"), ())
DEEPEST, MOST_NODES = 8, 1000  # levels of nested groups, and nodes that a search visits
USUAL_CHUNK, LARGEST_RATIO = 1 << 26, 5000  # bytes; and how many times larger a chunk may be than its stored bytes
SPARE_MEMORY = 128 << 20  # for the library's own tables


class Refused(Exception):
    """Why there is no recording: the final message of the answer."""

    def __init__(self, **message: Any) -> None:
        super().__init__(message)
        self.message = message


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C; this process ends with it
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # no core dumps
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # text printed by a library must not mix with answers
    for line in sys.stdin.buffer:
        request = json.loads(line)
        # Both limits work even while a library holds a lock.
        faulthandler.dump_traceback_later(request["wall_seconds"], exit=True)
        _limit_work(request["seconds"])
        _limit_memory(2 * request["bytes"] + SPARE_MEMORY)
        _answer(request, answers)
        faulthandler.cancel_dump_traceback_later()


def _limit_work(seconds: float) -> None:
    """Limit the CPU time from now on; time spent waiting does not count."""
    _limit(resource.RLIMIT_CPU, math.ceil(time.process_time() + seconds))


def _limit_memory(more: int) -> None:
    """Limit how many more bytes this process may reserve."""
    if sys.platform == "linux":
        with open("/proc/self/statm") as facts:
            now = int(facts.read().split()[0]) * resource.getpagesize()
        _limit(resource.RLIMIT_AS, now + more)


def _limit(what: int, most: int) -> None:
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _answer(request: dict[str, Any], answers: IO[bytes]) -> None:
    """Send the columns one by one as they are read, then the other facts, or why there are none."""
    facts: dict[str, Any] = {"offset": 0, "sensor": None, "rows": 0}
    try:
        for name, column in _columns(request, facts):
            _send(answers, {"column": name, "type": column.dtype.str, "shape": column.shape})
            answers.write(np.ascontiguousarray(column).reshape(-1).view(np.uint8).data)
    except Refused as refusal:
        facts = refusal.message
    except BrokenPipeError:  # the parent is gone
        raise
    except BaseException as error:  # damage can make h5py raise anything; a Rust panic is not an Exception
        facts = {"error": f"cannot be read as HDF5: {' '.join(str(error).split())[:160]}. Is the file complete?"}
    _send(answers, facts)


def _send(answers: IO[bytes], message: dict[str, Any]) -> None:
    answers.write(json.dumps(message).encode() + b"\n")
    answers.flush()


def _columns(request: dict[str, Any], facts: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The columns of a recording, or of some of its rows, by name. Other facts are added to `facts`."""
    path, names, most = os.fsdecode(bytes.fromhex(request["path"])), request["names"], request["bytes"]
    known = {name for synonyms in names for name in synonyms} | {"rho"}
    part = slice(*request["part"]) if request["part"] else ()
    with h5py.File(path, "r") as file:
        place = _find_events(file, names)
        facts["sensor"] = _sensor(place) or _sensor(file)
        facts["offset"] = _offset(file)
        if isinstance(place, h5py.Group):
            found = {name: _dataset(place, name) for name in place if name.lower() in known}
            if empty := [name for name, dataset in found.items() if dataset.shape is None]:
                raise Refused(error=f"has no data in '{empty[0]}', expected a column of numbers")
            found |= _intensity(place, max(dataset.size for dataset in found.values()), most)
            _check(found.values(), most)
            facts["rows"] = max(len(dataset) if dataset.ndim else 1 for dataset in found.values())
            for name, dataset in found.items():
                yield name, dataset[part]
        elif _filters(place) == [ECF_FILTER]:
            yield from _ecf_columns(path)
        else:
            _check([place], most)
            facts["rows"] = len(place) if place.ndim else 1
            table = place[part]
            for name in table.dtype.names:
                if name.lower() in known or name == INTENSITY:
                    yield name, table[name]


def _intensity(group: Any, length: int, most: int) -> dict[str, Any]:
    """The column `intensity`, the authors' name for rho, if it can be that. Another program's is ignored."""
    node = _inside(group, INTENSITY)
    if not isinstance(node, h5py.Dataset) or node.shape is None or node.size != length:
        return {}
    try:
        _check([node], most)
    except Refused:
        return {}
    return {INTENSITY: node}


def _find_events(file: Any, names: list[list[str]]) -> Any:
    """The group or table with the events: in a usual place, else the first with all four columns."""
    for steps in PLACES:
        place = file
        for step in steps:
            place = _inside(place, step)
        if place is not None and _holds_events(place, names):
            return place
    datasets: list[str] = []
    for name, node in _walk(file):
        if _holds_events(node, names):
            return node
        if isinstance(node, h5py.Dataset) and len(datasets) < 8:
            datasets.append(name[:60])
    raise Refused(error=f"holds no events: expected x, y, t, p under 'events' or 'CD/events', found {datasets}")


def _walk(file: Any) -> Iterator[tuple[str, Any]]:
    """All nodes of the file, level by level."""
    level, left = [("", file)], MOST_NODES
    for _ in range(DEEPEST):
        groups, level = level, []
        for path, group in groups:
            for name in group:
                if left == 0:
                    return
                left -= 1
                node = _inside(group, name)
                if node is not None:
                    yield f"{path}{name}", node
                if isinstance(node, h5py.Group):
                    level.append((f"{path}{name}/", node))


def _inside(group: Any, name: str) -> Any:
    """The node with that name; None if there is none, or if it is a link, which may lead to another file."""
    key = name.encode("utf-8", "surrogateescape")
    if not isinstance(group, h5py.Group) or not group.id.links.exists(key):
        return None
    if group.id.links.get_info(key).type != h5py.h5l.TYPE_HARD:
        return None
    return group[name]


def _holds_events(node: Any, names: list[list[str]]) -> bool:
    present = tuple(node) if isinstance(node, h5py.Group) else node.dtype.names or ()
    lowered = {name.lower() for name in present}
    return all(lowered & set(synonyms) for synonyms in names)


def _dataset(group: Any, name: str) -> Any:
    node = _inside(group, name)
    if not isinstance(node, h5py.Dataset):
        raise Refused(
            error=f"has a link or a group as '{name[:60]}', expected numbers. Links are not followed: copy the data"
        )
    return node


def _check(datasets: Any, most: int) -> None:
    """Refuse data sets that are not plain numbers in this file, or that exceed `most` bytes in total."""
    for dataset in datasets:
        settings, name = dataset.id.get_create_plist(), dataset.name[:60]
        if settings.get_external_count() or settings.get_layout() == h5py.h5d.VIRTUAL:
            raise Refused(error=f"keeps '{name}' in other files, which are not opened. Copy the numbers into one file")
        if dataset.dtype.hasobject:
            raise Refused(error=f"has variable-length entries or references in '{name}', expected plain numbers")
        filters = _filters(dataset)
        if len(set(filters)) < len(filters) or len(set(filters) - FREE_FILTERS) > 2:
            raise Refused(error=f"uses {len(filters)} filters in '{name}', expected one compression")
        if missing := [code for code in filters if not h5py.h5z.filter_avail(code)]:
            raise Refused(missing=f"compressed with HDF5 filter {missing[0]}, which", extra="hdf5")
        if dataset.nbytes > _held(dataset):
            claim = f"claims {dataset.nbytes} bytes in '{name}' but holds {_held(dataset)} of them"
            raise Refused(error=f"{claim}. The file is damaged")
    claimed = sum(dataset.nbytes for dataset in datasets)
    if claimed > most:
        raise Refused(claimed=claimed)


def _filters(dataset: Any) -> list[int]:
    settings = dataset.id.get_create_plist()
    return [settings.get_filter(position)[0] for position in range(settings.get_nfilters())]


def _held(dataset: Any) -> int:
    """Bytes actually stored for a data set's shape: HDF5 would fill the rest with zeros."""
    stored: int = dataset.id.get_storage_size()
    if not dataset.chunks:
        return stored
    chunk = math.prod(dataset.chunks) * dataset.dtype.itemsize
    return chunk * dataset.id.get_num_chunks() if chunk <= max(USUAL_CHUNK, LARGEST_RATIO * stored) else 0


def _offset(file: Any) -> int | float:
    """DSEC's start of the clock; NaN if it is not a number."""
    if not file.id.links.exists(b"t_offset"):
        return 0
    dataset = _dataset(file, "t_offset")
    _check([dataset], 64)
    value = np.asarray(dataset[()]).reshape(-1)
    if value.size != 1 or value.dtype.kind not in "iuf":
        return math.nan
    return float(value[0]) if value.dtype.kind == "f" else int(value[0])


def _sensor(node: Any) -> list[int] | None:
    """Attributes width and height, or Metavision's geometry."""
    attributes = node.attrs
    if "width" in attributes and "height" in attributes:
        return [int(attributes["width"]), int(attributes["height"])]
    geometry = attributes.get("geometry", "")
    text = geometry.decode("latin-1") if isinstance(geometry, bytes) else str(geometry)
    size = re.fullmatch(r"(\d{1,5})x(\d{1,5})", text)
    return [int(side) for side in size.groups()] if size else None


def _ecf_columns(path: str) -> Iterator[tuple[str, Any]]:
    """Metavision's own compression, which only the optional package evlib decodes."""
    try:
        import evlib
    except ImportError:
        raise Refused(missing="compressed with Prophesee's ECF codec, which", extra="ecf") from None
    table = evlib.load_events(path).collect()
    t = table["t"].dt.total_microseconds() if table["t"].dtype.is_temporal() else table["t"]
    yield from {"t": t.to_numpy(), **{name: table[name].to_numpy() for name in ("x", "y", "polarity")}}.items()


if __name__ == "__main__":
    main()
