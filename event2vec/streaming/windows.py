"""How much of a stream a network reads at once."""

import math
from dataclasses import dataclass

from event2vec.errors import Event2VecError
from event2vec.model.predictor import Predictor
from event2vec.model.trained_on import TOO_FEW

USUAL = 0.3  # seconds, where nothing is known about the training
SHORTEST, LONGEST = 0.001, 60.0  # seconds


@dataclass(frozen=True)
class Window:
    """A length in seconds, and where it comes from."""

    seconds: float
    reason: str


def trained_window(model: Predictor) -> Window:
    """The windows that the network was trained on, else the usual duration of its recordings: it keeps both."""
    if model.windows is not None and model.windows.window:
        return Window(_within(model.windows.window), "as in its training")
    if model.trained_on is not None:
        return Window(_within(model.trained_on.usual_duration), "the median duration of its training recordings")
    return Window(USUAL, "the usual length, as the network does not say what it was trained on")


def fewest_events(model: Predictor) -> int:
    """Windows with fewer events get no answer: as in training, else an eighth of the tokens of the network.

    Where training saw far more events, `predict` has no answer for a tenth of the fewest; so it is here.
    """
    if model.windows is not None and model.windows.min_events > 1:
        return model.windows.min_events
    too_few = 0 if model.trained_on is None else math.ceil(model.trained_on.events[0] / TOO_FEW)
    return max(1, model.tokens // 8, too_few)


def _within(seconds: float) -> float:
    return min(max(seconds, SHORTEST), LONGEST)


def check_window(seconds: float) -> None:
    if not SHORTEST <= seconds <= LONGEST:
        raise Event2VecError(f"window must be from {SHORTEST:g} to {LONGEST:g} seconds, got {seconds:g}")
