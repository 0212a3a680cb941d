"""Handwritten digits seen by a simulated camera, so that the demo and the tests need no download.

Made like N-MNIST: the picture stands still, and the camera moves along the three sides of a triangle in 0.3 s.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from event2vec.data.datasets.dataset import Dataset
from event2vec.events import Events
from event2vec.io import Recording
from event2vec.sensor import Sensor

SENSOR = Sensor(34, 34)
CLASSES = tuple(str(digit) for digit in range(10))
TEST_COUNT = 360  # of 1,797
VERSION = 1  # raise it if a change gives different events for the same seed

SECONDS = 0.3
FRAMES = 150
ENLARGED = 3.0  # a digit of 8 x 8 becomes 24 x 24
BORDER = 2  # dark pixels around a digit, so that its edges fade smoothly
CORNERS = ((-3.0, -1.5), (0.0, 3.0), (3.0, -1.5), (-3.0, -1.5))  # where the camera looks, in pixels
DARK = 0.45  # grey of the background; black would drown the digit in events
THRESHOLD = 0.35  # log contrast; together with DARK this gives about as many events as N-MNIST has


@dataclass(frozen=True)
class Digits(Dataset):
    """scikit-learn's digits, each simulated when it is read."""

    numbers: tuple[int, ...]  # which of scikit-learn's 1,797 pictures
    seed: int

    def read(self, index: int) -> Recording:
        number = self.numbers[index]
        events = simulate_digit(_load_digits()[0][number], seed=self.seed * 1797 + number)
        return Recording(events, "simulated", start=0, out_of_order=0, sensor_declared=True)

    def fingerprint(self, index: int) -> str:
        return f"{VERSION} {self.seed} {self.numbers[index]}"


def open_digits(root: Path | None, split: str, *, seed: int = 0) -> Digits:
    """1,437 recordings to train on and 360 to test on; `root` is not used."""
    from sklearn.model_selection import train_test_split

    labels = _load_digits()[1]
    parts = train_test_split(np.arange(len(labels)), test_size=TEST_COUNT, random_state=0, stratify=labels)
    numbers = tuple(sorted(int(number) for number in parts[0 if split == "train" else 1]))
    sources = tuple(f"digit {number}" for number in numbers)
    return Digits("digits", split, CLASSES, sources, tuple(int(labels[number]) for number in numbers), numbers, seed)


@lru_cache(maxsize=1)
def _load_digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    return digits.images / 16, digits.target


def simulate_digit(picture: NDArray[np.float64], seed: int) -> Events:
    """The events that a camera reports while it looks at an 8 x 8 picture with values from 0 to 1."""
    import eventcv

    stream = eventcv.simulate(
        _film(picture),
        fps=FRAMES / SECONDS,
        pos_thres=THRESHOLD,
        neg_thres=THRESHOLD,
        shot_noise_rate_hz=1.0,
        leak_rate_hz=0.1,
        seed=seed,
    )
    x, y, t, p = stream.numpy().astype(np.int64).T
    return Events.from_numpy(x, y, t, p, sensor=SENSOR)


def _film(picture: NDArray[np.float64]) -> NDArray[np.float32]:
    """What the camera sees, frame by frame."""
    down, across = _views(len(picture), FRAMES)
    seen = down @ np.pad(picture, BORDER) @ across.transpose(0, 2, 1)
    return (DARK + (1 - DARK) * seen.clip(0, 1)).astype(np.float32)


@lru_cache(maxsize=1)
def _views(size: int, frames: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How much of each row of a picture is in each row of each frame, and the same for columns.

    A cubic spline in two dimensions is one in each, so all pictures share these weights.
    """
    legs = np.linspace(0, len(CORNERS) - 1, frames)
    look_x, look_y = (np.interp(legs, range(len(CORNERS)), side) for side in np.transpose(CORNERS))
    centre_x, centre_y = SENSOR.centre
    middle = (size - 1) / 2 + BORDER
    down = (np.arange(SENSOR.height) - centre_y - look_y[:, None]) / ENLARGED + middle
    across = (np.arange(SENSOR.width) - centre_x - look_x[:, None]) / ENLARGED + middle
    return _spline_weights(down, size + 2 * BORDER), _spline_weights(across, size + 2 * BORDER)


def _spline_weights(places: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """What each of `count` values weighs at these places between them."""
    from scipy import ndimage

    alone = np.eye(count)
    return np.stack([ndimage.map_coordinates(value, [places], order=3, mode="nearest") for value in alone], axis=-1)
