"""The layout of a store's folder: its files, their types, and the version of the layout."""

from collections.abc import Mapping

from event2vec.events import COLUMNS

VERSION = 3  # 2: sets of clusters are a column; 3: groups are one too
DESCRIPTION = "store.json"
OFFSETS, LABELS, SETS = "offsets.npy", "labels.npy", "sets.npy"
SHARDED_VERSION = 4  # columns are in shards; the rest is as in 3
SHARDS = "shards"  # the folder with them
DURATIONS, RECORDED = "durations.npy", "recorded.npy"  # of each recording, so that no shard is read for them
INDEX = (OFFSETS, LABELS, SETS, DURATIONS, RECORDED)
FILES = frozenset({DESCRIPTION, *INDEX, SHARDS, *(f"{name}.bin" for name in COLUMNS)})

# Each column starts with the first type and changes to the next when a recording needs it.
Types = Mapping[str, tuple[str, ...]]
PIXELS: Types = {
    "x": ("<u2", "<f4"),
    "y": ("<u2", "<f4"),
    "t": ("<u4", "<i8"),  # 71 minutes fit in 32 bits
    "p": ("|b1",),
    "rho": ("ones", "<f4"),  # no file as long as every event stands for itself
}
CENTRES: Types = {**PIXELS, "x": ("<f4",), "y": ("<f4",), "rho": ("<f4",)}  # of clusters: fractional from the start
