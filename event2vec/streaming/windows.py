"""How much of a stream a network reads at once."""

from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from event2vec.data.store import EventStore
from event2vec.errors import Event2VecError
from event2vec.training.run import Run

USUAL = 0.3  # seconds, where nothing is known about the training
SHORTEST, LONGEST = 0.001, 60.0  # seconds
LOOKED_AT = 32  # training recordings whose durations are looked at


@dataclass(frozen=True)
class Window:
    """A length in seconds, and where it comes from."""

    seconds: float
    reason: str


def trained_window(run: str | Path | Run) -> Window:
    """The median duration of what the network was trained on, if its store is still there; else 0.3 s."""
    try:
        store = EventStore.open(Run.open(run).facts.data).split("train")
        chosen = np.unique(np.linspace(0, len(store) - 1, min(LOOKED_AT, len(store))).round().astype(int))
        seconds = median(store[int(index)][0].duration / 1e6 for index in chosen)
    except (Event2VecError, OSError, ValueError):  # a network alone, or a store that was moved
        return Window(USUAL, "the usual length, as the recordings that the network was trained on are not here")
    return Window(min(max(seconds, SHORTEST), LONGEST), "the median duration of its training recordings")


def check_window(seconds: float) -> None:
    if not SHORTEST <= seconds <= LONGEST:
        raise Event2VecError(f"--window must be {SHORTEST:g} to {LONGEST:g} seconds, got {seconds:g}")
