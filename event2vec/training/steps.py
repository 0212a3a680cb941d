"""The steps of an epoch: which recordings each rank reads, in what order."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Sampler

from event2vec.data.batches import STEPS
from event2vec.data.seeding import seeded
from event2vec.training.config import TrainingConfig


class Batches(Sampler[list[tuple[int, int]]]):
    """The batches of one rank in one epoch, each recording as (round, index).

    All ranks shuffle alike and take their own parts of each step, so shards never overlap: a step has `accumulate`
    batches of each rank. What does not fill a step is left for another epoch; a data set smaller than a step is filled
    up from its start. The first batch is that of step `start`, counted from the first epoch: where a stopped training
    resumes. Worker processes read ahead before Lightning calls `set_epoch`, so the epoch follows from `start` too.
    With `shards`, the number of each recording's shard, recordings are shuffled within `at_once` shards at a time.
    """

    def __init__(
        self,
        count: int,
        config: TrainingConfig,
        rank: int,
        ranks: int,
        start: int,
        accumulate: int = 1,
        shards: NDArray[np.int64] | None = None,
        at_once: int = 1,
    ) -> None:
        self.count, self.config, self.rank, self.ranks = count, config, rank, ranks
        self.accumulate, self.shards, self.at_once = accumulate, shards, at_once
        self.epoch, self.skip = divmod(start, steps_in_epoch(count, config, ranks * accumulate))

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    @property
    def sampler(self) -> "Batches":
        """Lightning calls `set_epoch` before each epoch on what a batch sampler has here, not on itself."""
        return self

    def __len__(self) -> int:
        return steps_in_epoch(self.count, self.config, self.ranks * self.accumulate) * self.accumulate

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        rounds = range(self.epoch * self.config.repeats, (self.epoch + 1) * self.config.repeats)
        keys = [(draw, index) for draw in rounds for index in self._shuffled(draw)]
        size = self.config.batch * self.ranks * self.accumulate
        keys = (keys * math.ceil(size / len(keys)))[: max(len(keys), size)]
        skip, self.skip = self.skip, 0
        for batch in range(skip * self.accumulate, len(self)):
            first = (batch * self.ranks + self.rank) * self.config.batch
            yield keys[first : first + self.config.batch]

    def _shuffled(self, draw: int) -> list[int]:
        generator = seeded(self.config.seed, draw, STEPS)
        order = torch.randperm(self.count, generator=generator).numpy()
        if self.shards is not None:
            places = torch.randperm(int(self.shards.max()) + 1, generator=generator).numpy() // self.at_once
            order = order[np.argsort(places[self.shards[order]], kind="stable")]
        return order.tolist()


def steps_in_epoch(count: int, config: TrainingConfig, parts: int) -> int:
    """Steps of `parts` batches each: one batch of each rank, times those whose gradients are added up."""
    return max(count * config.repeats // (config.batch * parts), 1)
