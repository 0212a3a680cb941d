"""Speed and memory, measured against alternatives in one run on the same machine. What measures is loaded when used."""

from pathlib import Path
from typing import TYPE_CHECKING

from event2vec.errors import Event2VecError, FileError
from event2vec.names import nearest, shown

if TYPE_CHECKING:
    from event2vec.benchmark.measurement import Measurement

# Each is measured by a file of its own.
PARTS = ("reading", "data", "clustering", "attention", "model", "training", "streaming", "live")


def run_benchmark(
    part: str,
    *,
    data: str | Path | None = None,
    recipe: str | None = None,
    network: str | Path | None = None,
    compile: bool = False,
    minutes: float | None = None,
    device: str | None = None,
    precision: str | None = None,
) -> "list[Measurement]":
    """Measure one part of the software on this machine: reading, data, clustering, attention, model, and so on.

        [measured.row() for measured in run_benchmark("clustering", data="my_recordings/")]

    `data` is a folder with real recordings, for reading, clustering, model, streaming and live; `recipe` and `compile`
    are for model, `network` for attention, `minutes` for live and streaming, `device` and `precision` for clustering,
    attention and model.
    """
    if part not in PARTS:
        raise Event2VecError(
            f"unknown part {shown(part)}{nearest(str(part), PARTS)}; expected one of {', '.join(PARTS)}"
        )
    folder = Path(data) if data else None
    if folder is not None and not folder.is_dir():
        raise FileError(folder, "is not a folder, expected a folder with recordings")
    if part in ("clustering", "attention", "model"):
        return _measure_computing(part, folder, recipe, Path(network) if network else None, compile, device, precision)
    return _measure_flow(part, folder, minutes)


def _measure_computing(
    part: str,
    folder: Path | None,
    recipe: str | None,
    network: Path | None,
    compile: bool,
    device: str | None,
    precision: str | None,
) -> "list[Measurement]":
    """What may run on a GPU."""
    from event2vec.machine.devices import Compute

    if part == "attention":
        from event2vec.benchmark.attention import measure_attention

        return measure_attention(Compute.choose(device, precision), network)
    if part == "clustering":
        from event2vec.benchmark.clustering import measure_clustering

        return measure_clustering(folder, Compute.choose(device, precision))
    from event2vec.benchmark.model import TRAINED, measure_model

    return measure_model(recipe, compile, Compute.choose(device, precision, TRAINED), folder)


def _measure_flow(part: str, folder: Path | None, minutes: float | None) -> "list[Measurement]":
    """What runs on the CPU: files, stores, loops and streams."""
    if part == "data":
        from event2vec.benchmark.data import measure_data
        from event2vec.benchmark.shards import measure_shards

        return measure_data() + measure_shards()
    if part == "training":
        from event2vec.benchmark.training import measure_training

        return measure_training()
    if part == "streaming":
        from event2vec.benchmark.streaming import measure_streaming

        return measure_streaming(folder, minutes)
    if part == "live":
        from event2vec.benchmark.live import measure_live

        return measure_live(folder, minutes)
    from event2vec.benchmark.reading import measure_reading

    return measure_reading(folder)
