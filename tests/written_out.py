"""What networks read and what their layers do, written out: loops over events, and formulas."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from conftest import randomise
from torch import Tensor

from event2vec import EventBatch, Events, Sampling, Sensor, build_model
from event2vec.baselines.layers import _Norm
from event2vec.model.classifier import Classifier
from event2vec.model.config import NetworkConfig

SENSOR = Sensor(16, 16)


def between_pixels(count: int, seed: int = 0, sensor: Sensor = SENSOR) -> Events:
    """A recording with events between pixels, never halfway, that stand for one to five raw events."""
    random = np.random.default_rng((seed, 1, count))
    x, y = random.integers(0, sensor.width - 1, count), random.integers(0, sensor.height - 1, count)
    x, y = x + random.choice([0.0, 0.125, 0.375, 0.625], count), y + random.choice([0.0, 0.25, 0.75], count)
    t = np.sort(random.integers(0, 300_000, count))
    rho = random.integers(1, 6, count)
    return Events.from_arrays(x, y, t, random.integers(0, 2, count), sensor=sensor, rho=rho.astype(np.float32))


def frames_of(batch: EventBatch, bins: int, placing: str, equal: str = "time") -> Tensor:
    """(batch, bins, polarity, y, x) in float64: events of a sensor as large as the frames, counted one by one.

    Frames have equal durations, or equal numbers of events.
    """
    frames = torch.zeros(len(batch), bins, 2, batch.sensor.height, batch.sensor.width, dtype=torch.float64).numpy()
    for row, events in enumerate(rows_of(batch)):
        for place, (x, y, elapsed, p, rho) in enumerate(events):
            before = elapsed if equal == "time" else place / len(events)
            stretch = min(int(bins * before + 1e-9), bins - 1)
            for row_y, column_x, share in shares(x, y, placing):
                frames[row, stretch, int(p), row_y, column_x] += share * rho
    return torch.from_numpy(frames)


def rows_of(batch: EventBatch) -> list[list[tuple[float, ...]]]:
    """Each event as x, y, the share of the duration that has passed, p and rho."""
    rows = []
    for row, count in enumerate(batch.valid.sum(dim=1).tolist()):
        t = (batch.t[row, :count] - batch.t[row, 0]).double()
        columns = (batch.x[row], batch.y[row], t / t[-1], batch.p[row], batch.rho[row])
        rows.append(list(zip(*(column[:count].tolist() for column in columns), strict=True)))
    return rows


def shares(x: float, y: float, placing: str) -> list[tuple[int, int, float]]:
    """The pixels that an event counts at, and by how much."""
    if placing == "nearest":
        return [(round(y), round(x), 1.0)]
    left, top = int(x), int(y)
    across, down = x - left, y - top
    corners = [(0, 0), (0, 1), (1, 0), (1, 1)]
    weights = [(1 - down) * (1 - across), (1 - down) * across, down * (1 - across), down * across]
    return [(top + a, left + b, weight) for (a, b), weight in zip(corners, weights, strict=True) if weight]


def grid_of(batch: EventBatch, bins: int, weigh: Callable[[float], float] = lambda elapsed: 1.0) -> Tensor:
    """The same as a voxel grid: bins are moments, and an event counts at the two around it, by distance."""
    grid = torch.zeros(len(batch), bins, 2, batch.sensor.height, batch.sensor.width, dtype=torch.float64).numpy()
    for row, events in enumerate(rows_of(batch)):
        for x, y, elapsed, p, rho in events:
            for moment in range(bins):
                near = max(1 - abs(elapsed * (bins - 1) - moment), 0.0)
                for row_y, column_x, share in shares(x, y, "bilinear"):
                    grid[row, moment, int(p), row_y, column_x] += near * share * rho * weigh(elapsed)
    return torch.from_numpy(grid)


def build(config: NetworkConfig, seed: int = 0) -> Any:
    """A network in float64, where no spike depends on rounding, with random weights and random means of its norms."""
    network: Classifier = build_model(config, sampling=Sampling(length=64))
    network = randomise(network, seed)
    generator = torch.Generator().manual_seed(seed)
    for part in network.modules():
        if isinstance(part, _Norm):
            for buffer, low in ((part.running_mean, -0.5), (part.running_var, 0.5)):
                assert buffer is not None
                buffer.copy_(low + torch.rand(buffer.shape, generator=generator))
            if part.affine:  # lively: neurons that never fire would hide what comes before them
                torch.nn.init.uniform_(part.weight, 1.0, 2.5, generator)
                torch.nn.init.uniform_(part.bias, 0.0, 1.0, generator)
    return network.double()


def normed(norm: Any, values: Tensor, axis: int = 1) -> Tensor:
    """A batch norm after training: channels along this axis."""
    shape = [-1 if each == axis else 1 for each in range(values.ndim)]
    mean, variance = norm.running_mean.view(shape), norm.running_var.view(shape)
    scaled = (values - mean) / (variance + 1e-5).sqrt()
    return scaled if norm.weight is None else scaled * norm.weight.view(shape) + norm.bias.view(shape)


def assert_close(found: Tensor, expected: Tensor) -> None:
    """To the rounding of float32, in which events and frames are; and not because all answers are alike."""
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-5)
    assert (expected[0] - expected[1]).abs().max() > 1e-3, "recordings have answers of their own"
