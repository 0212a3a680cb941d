"""Drawing training batches: from a store, against compressed npz files with the same events."""

import tempfile
from pathlib import Path

import numpy as np
import torch

from event2vec.benchmark.measure import best_seconds
from event2vec.benchmark.measurement import Measurement
from event2vec.data.store import EventStore
from event2vec.data.uniform import sample_uniform
from event2vec.events import EventBatch, Events
from event2vec.sensor import Sensor

SENSOR = Sensor(128, 128)
RECORDINGS, EVENTS, LENGTH = 64, 300_000, 1024
ROUNDS = 5


def measure_data() -> list[Measurement]:
    """A batch of 64 x 1,024 random events from recordings of 300,000 events each."""
    with tempfile.TemporaryDirectory() as folder:
        store, files = _write(Path(folder))

        def from_npz() -> EventBatch:
            return EventBatch.pad(
                [sample_uniform(_load(file), LENGTH, _generator(index)) for index, file in enumerate(files)]
            )

        one, other = draw_batch(store), from_npz()
        assert torch.equal(one.x, other.x), "both sides must draw the same events"
        assert torch.equal(one.t, other.t), "both sides must draw the same events"
        seconds = best_seconds({"store": lambda: draw_batch(store), "npz": from_npz}, ROUNDS)
    return [
        Measurement(
            case={"batch": f"{RECORDINGS} x {LENGTH} of {EVENTS:,} events"},
            figures={f"{name} ms": value * 1e3 for name, value in seconds.items()},
            ratios={"times faster": seconds["npz"] / seconds["store"]},
            targets={"target": 10},
        )
    ]


def draw_batch(store: EventStore) -> EventBatch:
    return EventBatch.pad([store.sample(index, LENGTH, _generator(index))[0] for index in range(RECORDINGS)])


def _generator(index: int) -> torch.Generator:
    return torch.Generator().manual_seed(index)


def _recording(index: int) -> Events:
    random = np.random.default_rng((0, 0, index))
    x, y = random.integers(0, 128, (2, EVENTS))
    t = random.exponential(20.0, EVENTS).cumsum().astype(np.int64)
    return Events.from_arrays(x, y, t, random.integers(0, 2, EVENTS), sensor=SENSOR)


def _write(folder: Path) -> tuple[EventStore, list[Path]]:
    files = [folder / f"{index}.npz" for index in range(RECORDINGS)]
    for index, file in enumerate(files):
        events = _recording(index)
        x, y = events.x.numpy().astype(np.uint16), events.y.numpy().astype(np.uint16)
        np.savez_compressed(file, x=x, y=y, t=events.t.numpy(), p=events.p.numpy())
    return write_store(folder / "store"), files


def write_store(folder: Path) -> EventStore:
    recordings = ((_recording(index), 0) for index in range(RECORDINGS))
    return EventStore.create(folder, recordings, sensor=SENSOR, classes=["only"])


def _load(file: Path) -> Events:
    """The least that a loader must do: decompress, and convert to tensors without any check."""
    with np.load(file, allow_pickle=False) as arrays:
        x, y, t, p = (torch.from_numpy(arrays[name]) for name in ("x", "y", "t", "p"))
    return Events(x.float(), y.float(), t, p, torch.ones(()).expand(len(t)), SENSOR)
