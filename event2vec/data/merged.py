"""Several stores described as one: what must be alike is checked, and what each has kept is put together."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from event2vec.data.remote import address_of
from event2vec.data.store import EventStore
from event2vec.data.store_layout import DESCRIPTION
from event2vec.errors import Event2VecError, FileError
from event2vec.names import counted, shorten


def version_of(store: EventStore) -> str:
    """Which store this is, and which version of it: a store is written only once."""
    if address := address_of(store.folder):  # the name of the local folder says which version of it
        return f"{address} {store.folder.name}"
    return f"{store.folder.resolve()} {(store.folder / DESCRIPTION).stat().st_mtime_ns}"


def describe_together(stores: Sequence[EventStore]) -> dict[str, Any]:
    """What store.json says of all these recordings; stores that do not fit together are refused."""
    if not stores:
        raise Event2VecError("there are no stores to copy, expected at least one")
    _check_alike(stores)
    first = stores[0]
    facts = first.facts if len(stores) == 1 else _merged_facts([store.facts for store in stores])
    return {"sensor": [first.sensor.width, first.sensor.height], "classes": first.classes, **facts}


def _check_alike(stores: Sequence[EventStore]) -> None:
    first = stores[0]
    for number, store in enumerate(stores[1:], 1):
        if any(store.folder.resolve() == other.folder.resolve() for other in stores[:number]):
            raise FileError(store.folder, "is given twice. Name each store once")
        for describe in ALIKE:
            found, expected = describe(store), describe(first)
            if found != expected:
                raise FileError(
                    store.folder,
                    f"has {shorten(found)}, and {first.folder} has {shorten(expected)}. "
                    "Prepare both in the same way to make one store of them",
                )


def _classes(store: EventStore) -> str:
    return f"the classes {', '.join(store.classes)}"


def _sensor(store: EventStore) -> str:
    return f"a sensor of {store.sensor}"


def _sampling(store: EventStore) -> str:
    """Clusters stand for several events each, and may have been made several times."""
    every = store.all_rows()
    if bool((every.recorded == every.lengths).all()):
        return "all events of its recordings"
    return f"clusters, {counted(int(store.all_sets.max()) + 1, 'set')} of a recording"


def _windows(store: EventStore) -> str:
    return store.windows.summary if store.windows else "whole recordings"


ALIKE: tuple[Callable[[EventStore], str], ...] = (_classes, _sensor, _sampling, _windows)


def _merged_facts(facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Lists one after the other, numbers and counts summed; of all else, what all have in common."""
    merged = dict[str, Any]()
    for name in dict.fromkeys(name for each in facts for name in each):
        values = [each[name] for each in facts if name in each]
        if name in ("rejected", "warnings"):
            merged[name] = [note for value in values for note in value]
        elif name in ("left_out", "unused"):
            merged[name] = sum(values)
        elif name == "scaled":
            merged[name] = sum(map(Counter, values), Counter[str]())
        elif name == "made_of":
            merged[name] = "; ".join(values)
        elif len(values) == len(facts) and all(value == values[0] for value in values):
            merged[name] = values[0]
    return merged
