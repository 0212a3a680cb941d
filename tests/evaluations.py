"""An evaluation whose every figure can be worked out in one's head, for tests of what is shown of it."""

from typing import Any

import numpy as np

from event2vec.evaluation.calibration import Calibration
from event2vec.evaluation.evaluate import Evaluation


def evaluation(**changes):
    """Three of four ants and one of two bees were right, and there was no cat."""
    scores, labels = np.array([[0.8, 0.1, 0.1], [0.3, 0.6, 0.1]]), np.array([0, 1])
    facts: dict[str, Any] = {
        "class_names": ("ant", "bee", "cat"),
        "recordings": 6,
        "repeats": 1,
        "vote": 1,
        "accuracies": (4 / 6,),
        "top5": None,
        "confusion": np.array([[3, 1, 0], [0, 1, 1], [0, 0, 0]]),
        "calibration": Calibration.of(scores, labels, 2.0),
    }
    return Evaluation(**facts | changes)
