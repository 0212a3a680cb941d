"""scikit-learn's and Faiss's K-Means on the same task as ours, only for comparison (Table 5)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from event2vec.clustering import SEED, BatchedKMeans, Seeding, from_unit_cube, share_clusters, to_unit_cube
from event2vec.errors import MissingExtra
from event2vec.events import Events

Points = NDArray[np.float64]
Labelled = tuple[Points, NDArray[Any]]  # centres, and the nearest centre of each point


def cluster_sklearn(events: Events, clusters: int, iterations: int, seed: int = 0) -> Events:
    from sklearn.cluster import KMeans

    def fit(points: Points, count: int) -> Labelled:
        model = KMeans(count, n_init=1, max_iter=iterations, random_state=seed).fit(points)
        return model.cluster_centers_, model.labels_

    return _cluster(events, clusters, fit)


def cluster_faiss(events: Events, clusters: int, iterations: int, seed: int = 0) -> Events:
    try:
        import faiss
    except ImportError:
        raise MissingExtra("clustering with Faiss", "faiss") from None

    def fit(points: Points, count: int) -> Labelled:
        rows = np.ascontiguousarray(points, np.float32)
        # Without these, Faiss leaves out points or complains that there are too few.
        every = {"max_points_per_centroid": len(rows), "min_points_per_centroid": 1}
        model = faiss.Kmeans(3, count, niter=iterations, seed=seed, **every)
        model.train(rows)
        return np.asarray(model.centroids, np.float64), model.index.search(rows, 1)[1][:, 0]

    return _cluster(events, clusters, fit)


def _cluster(events: Events, clusters: int, fit: Callable[[Points, int], Labelled]) -> Events:
    if len(events) <= clusters:
        return events
    points, rising = to_unit_cube(events.arrays()), events.arrays().p
    results = []
    for polarity, share in enumerate(share_clusters(int((~rising).sum()), int(rising.sum()), clusters)):
        if share:
            centres, labels = fit(points[rising == bool(polarity)], share)
            results.append((centres, np.bincount(labels, minlength=share), np.full(share, bool(polarity))))
    return from_unit_cube(events, *(np.concatenate(column) for column in zip(*results, strict=True)))


ALTERNATIVES = {"scikit-learn": cluster_sklearn, "faiss": cluster_faiss}
ENGINES = ("ours", *ALTERNATIVES)  # the rows of Table 5


@dataclass(frozen=True)
class Alternative:
    """One of `ALTERNATIVES`, to use instead of ours."""

    name: str
    iterations: int

    def __call__(self, events: Events, clusters: int, seed: int = SEED) -> Events:
        return ALTERNATIVES[self.name](events, clusters, self.iterations, seed)

    def __str__(self) -> str:
        return f"{self.name} {self.iterations}"


def engine_of(name: str, iterations: int, seeding: Seeding) -> BatchedKMeans | Alternative:
    """One of `ENGINES`; `seeding` applies to ours only."""
    return BatchedKMeans(iterations, seeding) if name == "ours" else Alternative(name, iterations)
