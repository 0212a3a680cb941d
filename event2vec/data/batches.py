"""From the recordings of a store to batches: which recordings, in what order, and which draw of their events."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor
from torch.utils.data import Dataset

from event2vec.data.sampling import Sampling, draw_events
from event2vec.data.seeding import seeded
from event2vec.data.store import EventStore
from event2vec.data.store_reader import check_events
from event2vec.events import COLUMNS, EventBatch, Events

Batch = tuple[EventBatch, Tensor, list[int]]
STEPS = 2**32  # added to the index for draws of a whole step, which must differ from those of any recording


@dataclass(frozen=True)
class Recordings(Dataset[tuple[Events, int, int]]):
    """What one rank reads: a recording and its draw, by (round, index)."""

    sets: Sequence[EventStore]  # the same recordings, once per clustering
    sampling: Sampling
    seed: int
    change: Callable[[Events], Events] | None = None  # applied to all events, before some are drawn or clustered

    def __getitem__(self, key: tuple[int, int]) -> tuple[Events, int, int]:
        draw, index = key
        store = self._set(draw, index)
        if self.sampling.method == "random" and self.change is None:  # reads only the events that are kept
            events, label = store.sample(index, self.sampling.length, seeded(self.seed, draw, index))
            return events, label, index
        events, label = store[index]
        changed = self.change(events) if self.change else events
        return draw_events(changed, self.sampling, self.seed, draw, index), label, index

    def __getitems__(self, keys: Sequence[tuple[int, int]]) -> Batch:
        """What PyTorch's DataLoader calls; it needs `identity_collate`, too."""
        return self.batch(keys)

    def batch(self, keys: Sequence[tuple[int, int]]) -> Batch:
        """Several recordings, their labels and indices. Those of which nothing is left out are read in one pass."""
        sources = [(self._set(draw, index), index) for draw, index in keys]
        indices = [index for _, index in keys]
        if self.change is None and all(store.length(index) <= self.sampling.length for store, index in sources):
            return *read_together(sources), indices
        recordings, labels, _ = zip(*(self[key] for key in keys), strict=True)
        return EventBatch.pad(recordings), torch.tensor(labels), indices

    def _set(self, draw: int, index: int) -> EventStore:
        return self.sets[(draw + index) % len(self.sets)]  # each round mixes all sets


def identity_collate(batch: Any) -> Any:
    """The `collate_fn` of a DataLoader over `Recordings`, which give whole batches."""
    return batch


def sets_of(store: EventStore, sampling: Sampling) -> tuple[EventStore, ...]:
    """The recordings to train on: all sets of clusters, or only the first if events are drawn at random."""
    return store.sets("train") if sampling.method == "clusters" else (store.split("train"),)


def collate(items: Sequence[tuple[Events, int]]) -> tuple[EventBatch, Int64[Tensor, " batch"]]:
    """Recordings with labels as one batch, for PyTorch's DataLoader.

        for batch, labels in DataLoader(store, batch_size=32, collate_fn=collate):
            logits = model(batch)

    A store holds recordings of any length: shorter ones are padded.
    """
    recordings, labels = zip(*items, strict=True)
    return EventBatch.pad(recordings), torch.tensor(labels)


def read_together(recordings: Sequence[tuple[EventStore, int]]) -> tuple[EventBatch, Int64[Tensor, " batch"]]:
    """Whole recordings of stores that share their files, padded, and their labels: each column is read only once."""
    store = recordings[0][0]
    rows = np.array([each.row(index) for each, index in recordings])
    firsts = store.offsets[rows, None]
    counts = store.offsets[rows + 1, None] - firsts
    places = np.arange(counts.max())
    valid = places < counts
    if not valid.any():
        return _read_one_by_one(recordings)
    places = firsts + np.minimum(places, counts - 1)  # padding repeats the last event until the check is done
    x, y, t, p, rho = (store.columns[name][places] for name in COLUMNS)
    try:
        check_events(x, y, t, p, rho, store.sensor)
    except ValueError:
        return _read_one_by_one(recordings)  # which names the damaged one
    columns = (x.astype(np.float32), y.astype(np.float32), t.astype(np.int64), p.astype(np.bool_), rho)
    if not valid.all():
        columns = tuple(column * valid for column in columns)
    x, y, t, p, rho = map(torch.from_numpy, columns)
    return EventBatch(x, y, t, p, rho, torch.from_numpy(valid), store.sensor), torch.from_numpy(store.all_labels[rows])


def _read_one_by_one(recordings: Sequence[tuple[EventStore, int]]) -> tuple[EventBatch, Int64[Tensor, " batch"]]:
    events, labels = zip(*(store[index] for store, index in recordings), strict=True)
    return EventBatch.pad(events), torch.tensor(labels)
