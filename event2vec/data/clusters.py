"""Clusters in a store: how many per recording, in how many sets, and the engine that computes them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from event2vec.clustering import SEED, BatchedKMeans
from event2vec.data.sampling import Sampling
from event2vec.events import Events


@runtime_checkable
class Engine(Protocol):
    """Computes clusters: `BatchedKMeans`, or another in comparisons. Its `str` names everything they depend on."""

    def __call__(self, events: Events, clusters: int, seed: int) -> Events: ...


@dataclass(frozen=True)
class Clusters:
    """How recordings are clustered before they are stored."""

    count: int  # the most events that a recording keeps
    sets: int = 1  # clusterings of each training recording
    engine: Engine = field(default_factory=BatchedKMeans)
    everywhere: bool = False  # whether test recordings have as many clusterings: in cross-validation, all of them train

    @classmethod
    def of(cls, sampling: Sampling, engine: Engine | None = None, everywhere: bool = False) -> "Clusters | None":
        """What training needs: None if it draws events at random. The default engine is ours, with these settings."""
        if sampling.method != "clusters":
            return None
        sets, engine = sampling.clusterings, engine or BatchedKMeans(seeding=sampling.seeding)
        return cls(sampling.length, sets, engine, everywhere and sets > 1)

    def make(self, events: Events, split: str) -> Iterator[Events]:
        """The sets of one recording, from different seeds. The first is what predictions use."""
        if not isinstance(self.engine, BatchedKMeans):  # ours alone needs no tensors
            events = events.torch()
        for number in range(self.sets if split == "train" or self.everywhere else 1):
            yield self.engine(events, self.count, SEED + number)

    @property
    def summary(self) -> str:
        """For people."""
        by = "" if self.engine == BatchedKMeans() else f" by {self.engine}"
        of_all = " of all recordings" if self.everywhere else ""
        return f"{self.count} clusters{f' in {self.sets} sets{of_all}' if self.sets > 1 else ''}{by}"

    def __str__(self) -> str:
        """Everything that the clusters depend on."""
        return f"{self.count} clusters, {self.sets} sets{' everywhere' if self.everywhere else ''}, {self.engine}"
