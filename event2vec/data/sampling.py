"""Sampling: how a recording is reduced to at most L events (Sec. 3.4).

Without torch, so that `--help` is fast and devices need none; the methods are in `uniform.py`, `thinning.py` and
`clustering/`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from event2vec.choices import Seeding
from event2vec.settings import Settings, setting

if TYPE_CHECKING:
    from event2vec.events import Events
    from event2vec.mersenne import Generator


@dataclass(frozen=True, kw_only=True)
class Sampling(Settings, section="sampling"):
    """How a recording of any length becomes the tokens that a network reads (Sec. 3.4).

        Sampling(method="clusters", length=256)

    This is the section `sampling` of a recipe.
    """

    method: Literal["random", "clusters", "temporal", "spatial", "density"] = setting(
        "random",
        "random: a new draw of the events each time; clusters: centres that stand for all events (Alg. 1); "
        "for comparison: temporal (parts of the recording), spatial (every n-th row and column), density (prefers "
        "busy areas)",
    )
    length: int = setting(
        1024, "events that a network reads of each recording, L in the paper; shorter ones are kept whole", least=1
    )
    seeding: Seeding = setting(
        "pruned", "how cluster centres are seeded: pruned keeps the best of spare seeds, plain is Alg. 1 to the letter"
    )
    clusterings: int = setting(
        1,
        "sets of clusters of each recording to train on, read in turn; a store of clusters keeps those it has",
        least=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method == "clusters" and self.length < 2:
            raise ValueError(f"sampling.length must be at least 2, one cluster for each polarity, got {self.length}")
        if self.method != "clusters" and self.clusterings > 1:
            raise ValueError(f"sampling.clusterings above 1 requires sampling.method clusters, got {self.clusterings}")

    @property
    def repeatable(self) -> bool:
        """Whether the same recording always gives the same tokens."""
        return self.method == "clusters"

    def same_every_time(self, lengths: Iterable[int]) -> bool:
        """Whether each draw from recordings of these lengths is the same: of clusters, and of what is read whole."""
        return self.repeatable or all(length <= self.length for length in lengths)

    @property
    def summary(self) -> str:
        """What a network reads, for people."""
        words = {"random": "random events", "clusters": "clusters"}
        return f"up to {self.length:,} {words.get(self.method, f'events ({self.method})')}"

    def shorten(self, events: "Events", generator: "Generator") -> "Events":
        """At most `length` events of a recording. Clusters use no random numbers from the generator."""
        from event2vec.data.uniform import sample_uniform

        if self.method == "clusters":
            return self.cluster(events)
        if self.method == "random":
            return sample_uniform(events, self.length, generator)
        from event2vec.data.thinning import thin_events  # by torch

        return thin_events(self.method, events, self.length, generator)

    def cluster(self, events: "Events") -> "Events":
        """At most `length` clusters of a recording, the same every time."""
        from event2vec.clustering import cluster_events

        return cluster_events(events, self.length, seeding=self.seeding)


def draw_events(events: "Events", sampling: Sampling, seed: int, draw: int, index: int = 0) -> "Events":
    """What a network reads of a recording in one draw; `index` is its index in a store, or 0 for a single one."""
    import numpy as np

    from event2vec.data.seeding import seeded, seeded_arrays

    if len(events) <= sampling.length:  # nothing to draw; a generator takes as long as reading a store of clusters
        return events
    if sampling.repeatable:
        return sampling.cluster(events)
    if isinstance(events.t, np.ndarray):
        return sampling.shorten(events, seeded_arrays(seed, draw, index))
    return sampling.shorten(events, seeded(seed, draw, index, events.t.device))
