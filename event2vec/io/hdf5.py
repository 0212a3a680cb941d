"""HDF5 in the layouts of DSEC, Metavision and plain columns, read with h5py.

eventcv reads HDF5 too, but not what people have: DSEC is packed with Blosc, polarity is often an int16,
and Metavision keeps the size of the sensor in an attribute that it does not look at.
"""

import math
import mmap
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from event2vec.errors import FileError, MissingExtra
from event2vec.events import Events, Sensor
from event2vec.io.arrays import NAMES, columns_to_decoded
from event2vec.io.recording import Decoded

ECF_FILTER = 0x8ECF  # Prophesee's codec
LARGEST_RATIO = 5000  # of the bytes that a chunk claims to those that are stored
USUAL_CHUNK = 1 << 26
SIZE = re.compile(rb"\d{1,5}x\d{1,5}")
PLACES = ("events", "CD/events", "/")


def read_hdf5(path: Path, time_unit: str | None = None) -> Decoded:
    """Columns in a group, or one table with named fields."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            place = _find_events(path, file)
            if isinstance(place, h5py.Dataset) and _filters(place) == [ECF_FILTER]:
                return _read_ecf(path, _sensor(file))
            table = _load(path, place)
            sensor = _sensor(place) or _sensor(file)
            offset = int(np.asarray(file["t_offset"]).reshape(-1)[0]) if "t_offset" in file else 0
    except (FileError, MissingExtra):
        raise
    except Exception as error:  # h5py raises OSError, KeyError, RuntimeError, ValueError and more on damage
        reason = " ".join(str(error).split())[:200]
        raise FileError(path, f"cannot be read as HDF5: {reason}. Is the file whole?") from None
    decoded = columns_to_decoded(path, table, time_unit)
    return Decoded(decoded.x, decoded.y, decoded.t.astype(np.int64) + offset, decoded.p, sensor, decoded.rho)


def _find_events(path: Path, file: Any) -> Any:
    """The group or table that holds the events: a usual place, else the first that has all four columns."""
    import h5py

    for place in PLACES:
        if place in file and _holds_events(file[place]):
            return file[place]
    found: list[Any] = []
    file.visititems(lambda _, node: found.append(node) if _holds_events(node) else None)
    if found:
        return found[0]
    names: list[str] = []
    file.visititems(lambda name, node: names.append(name) if isinstance(node, h5py.Dataset) else None)
    raise FileError(path, f"holds no events: expected x, y, t, p under 'events' or 'CD/events', found {names[:8]}")


def _holds_events(node: Any) -> bool:
    import h5py

    names = (node.dtype.names or ()) if isinstance(node, h5py.Dataset) else tuple(node)
    lowered = {name.lower() for name in names}
    return all(lowered & set(synonyms) for synonyms in NAMES.values())


def _filters(dataset: Any) -> list[int]:
    settings = dataset.id.get_create_plist()
    return [settings.get_filter(position)[0] for position in range(settings.get_nfilters())]


def _load(path: Path, place: Any) -> dict[str, Any]:
    import h5py

    if isinstance(place, h5py.Dataset):
        table = _read(path, place)
        return {name: table[name] for name in table.dtype.names}
    known = {name for synonyms in NAMES.values() for name in synonyms} | {"rho"}
    return {
        name: _read(path, place[name])
        for name in place
        if name.lower() in known and isinstance(place[name], h5py.Dataset)
    }


def _read(path: Path, dataset: Any) -> Any:
    import h5py

    _check_size(path, dataset)
    missing = [code for code in _filters(dataset) if not h5py.h5z.filter_avail(code)]
    if missing:
        try:
            import hdf5plugin  # noqa: F401  (importing it registers the filters)
        except ImportError:
            raise MissingExtra(f"{path}: packed with HDF5 filter {missing[0]}, which", "hdf5") from None
    return dataset[()]


def _check_size(path: Path, dataset: Any) -> None:
    """Refuse a shape beyond what is stored: HDF5 would fill the rest with zeros."""
    stored = dataset.id.get_storage_size()
    held = stored
    if dataset.chunks:
        chunk = math.prod(dataset.chunks) * dataset.dtype.itemsize
        held = chunk * dataset.id.get_num_chunks() if chunk <= max(USUAL_CHUNK, LARGEST_RATIO * stored) else 0
    if dataset.nbytes > held and dataset.size > 0:
        raise FileError(
            path, f"claims {dataset.nbytes} bytes in '{dataset.name}' and holds {held} of them. The file is damaged"
        )


def _sensor(node: Any) -> Sensor | None:
    """Attributes width and height, or Metavision's geometry."""
    attributes = node.attrs
    if "width" in attributes and "height" in attributes:
        width, height = int(attributes["width"]), int(attributes["height"])
    elif "geometry" in attributes and (size := _geometry(node)):
        width, height = (int(side) for side in size.split("x"))
    else:
        return None
    return Sensor.or_none(width, height)


def _geometry(node: Any) -> str:
    """The attribute as WIDTHxHEIGHT, "" when it is not of that form.

    Strings of open length lie in heaps. The HDF5 library walks a damaged heap for ever, or reserves whatever a
    damaged length asks for, so we look into the heaps ourselves.
    """
    import h5py

    kind = h5py.check_string_dtype(node.attrs.get_id("geometry").dtype)
    if kind and kind.length is None:
        found = {text for text in _heap_strings(Path(node.file.filename)) if SIZE.fullmatch(text)}
        if len(found) <= 1:
            return next(iter(found), b"").decode()
    # Of a fixed length, or one of several sizes that the file names: only the library knows which.
    text = node.attrs["geometry"]
    text = text if isinstance(text, bytes) else str(text).encode()
    return text.decode() if SIZE.fullmatch(text) else ""


def _heap_strings(path: Path) -> Iterator[bytes]:
    """The contents of all global heaps, without trailing zeros."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        heap = data.find(b"GCOL")
        while heap >= 0:
            end = min(heap + int.from_bytes(data[heap + 8 : heap + 16], "little"), len(data))
            place = heap + 16
            while place + 16 <= end:
                index, size = struct.unpack("<H6xQ", data[place : place + 16])
                if index == 0:  # the rest is free
                    break
                yield data[place + 16 : min(place + 16 + size, end)].rstrip(b"\0")
                place += 16 + (size + 7) // 8 * 8
            heap = data.find(b"GCOL", heap + 4)


def _read_ecf(path: Path, sensor: Sensor | None) -> Decoded:
    """Metavision's own compression, which only the optional evlib decodes."""
    try:
        import evlib
    except ImportError:
        raise MissingExtra(f"{path}: packed with Prophesee's ECF codec, which", "ecf") from None
    table = evlib.load_events(str(path)).collect()
    t = table["t"].dt.total_microseconds() if table["t"].dtype.is_temporal() else table["t"]
    x, y, p = (table[name].to_numpy() for name in ("x", "y", "polarity"))
    return Decoded(x, y, t.to_numpy(), p, sensor)


def write_hdf5(path: Path, events: Events) -> None:
    """The plain layout, events/{x,y,t,p}, with the size of the sensor."""
    import h5py

    with h5py.File(path, "w") as file:
        group = file.create_group("events")
        group.attrs["width"], group.attrs["height"] = events.sensor.width, events.sensor.height
        for name, kind in (("x", np.uint16), ("y", np.uint16), ("t", np.int64), ("p", np.bool_)):
            group.create_dataset(
                name, data=getattr(events, name).numpy().astype(kind), compression="gzip", shuffle=True
            )
