"""Recordings of a store to batches: which, in what order, and with which draw."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor
from torch.utils.data import Dataset

from event2vec.data.sampling import Sampling
from event2vec.data.seeding import seeded
from event2vec.data.store import EventStore
from event2vec.events import EventBatch, Events

Batch = tuple[EventBatch, Tensor, list[int]]
STEPS = 2**32  # added to the index of a step's draws, so that they never are those of a recording


@dataclass(frozen=True)
class Recordings(Dataset[tuple[Events, int, int]]):
    """What one rank reads: a recording and its draw, by (round, index)."""

    sets: Sequence[EventStore]  # the same recordings; of clusters there may be several
    sampling: Sampling
    seed: int
    change: Callable[[Events], Events] | None = None  # done to the events before clusters are made of them

    def __getitem__(self, key: tuple[int, int]) -> tuple[Events, int, int]:
        draw, index = key
        store = self.sets[(draw + index) % len(self.sets)]  # each round mixes all sets
        generator = seeded(self.seed, draw, index)
        if self.sampling.method == "random":
            events, label = store.sample(index, self.sampling.length, generator)
            return (self.change(events) if self.change else events), label, index
        events, label = store[index]
        events = self.change(events) if self.change else events
        return self.sampling.shorten(events, generator), label, index


def collate(items: Sequence[tuple[Events, int]]) -> tuple[EventBatch, Int64[Tensor, " batch"]]:
    """Recordings with labels as one batch.

    DataLoader(store, batch_size=32, collate_fn=collate)
    """
    recordings, labels = zip(*items, strict=True)
    return EventBatch.pad(recordings), torch.tensor(labels)


def collate_indexed(items: Sequence[tuple[Events, int, int]]) -> Batch:
    """The same with the index of each recording."""
    return *collate([item[:2] for item in items]), [index for _, _, index in items]
