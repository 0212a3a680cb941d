"""What computes an exported network: ONNX Runtime or OpenVINO. Six arrays in, logits out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from event2vec.errors import Event2VecError, FileError, MissingExtra
from event2vec.events import COLUMNS, EventBatch
from event2vec.names import excerpt

INPUTS = (*COLUMNS, "valid")
KEY = "event2vec"  # where a file's metadata describe the network, as JSON
SHORTEST = 2  # events in a row: exported networks are made for lengths from here on, and padding changes no answer


class Engine(Protocol):
    """An exported network that can be computed."""

    description: str  # of the network, as JSON; empty where the file has none

    def logits(self, batch: EventBatch) -> Float[NDArray[Any], "recordings classes"]: ...


class OnnxEngine:
    """ONNX Runtime on the CPU."""

    def __init__(self, path: Path, threads: int | None = None) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise MissingExtra("an exported network", "export", on_device="") from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        options.log_severity_level = 3  # errors, which are raised too
        try:
            self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its own classes, which all derive from this one alone
            raise unreadable(path, "ONNX", error) from None
        self.description: str = self.session.get_modelmeta().custom_metadata_map.get(KEY, "")

    def logits(self, batch: EventBatch) -> Float[NDArray[Any], "recordings classes"]:
        return self.session.run(None, inputs_of(batch))[0]


class OpenVinoEngine:
    """OpenVINO on the CPU."""

    def __init__(self, path: Path, threads: int | None = None) -> None:
        try:
            import openvino
        except ImportError:
            raise MissingExtra("an exported network for OpenVINO", "export", on_device="openvino") from None
        # In 32 bits: by default, it takes narrower ones where the CPU has them.
        settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        try:
            core = openvino.Core()
            model = core.read_model(path)
            self.network = core.compile_model(
                model, "CPU", settings | ({"INFERENCE_NUM_THREADS": threads} if threads else {})
            )
        except Exception as error:  # its own classes, which all derive from this one alone
            raise unreadable(path, "OpenVINO", error) from None
        self.description = str(model.get_rt_info([KEY]).value) if model.has_rt_info([KEY]) else ""

    def logits(self, batch: EventBatch) -> Float[NDArray[Any], "recordings classes"]:
        # A request of its own: threads that call the network itself share one, and get each other's answers.
        return np.array(self.network.infer_new_request(inputs_of(batch))[0])


ENGINES: dict[str, Callable[[Path, int | None], Engine]] = {".onnx": OnnxEngine, ".xml": OpenVinoEngine}  # by suffix


def inputs_of(batch: EventBatch, shortest: int = SHORTEST) -> dict[str, NDArray[Any]]:
    """What an exported network takes, by name."""
    missing = max(shortest - batch.valid.shape[1], 0)
    columns = {name: getattr(batch, name) for name in INPUTS}
    return {name: np.pad(column, ((0, 0), (0, missing))) if missing else column for name, column in columns.items()}


def unreadable(path: Path, kind: str, error: Exception) -> Event2VecError:
    return FileError(path, f"cannot be read as {kind}: {excerpt(error, 160)}. Export the network again")
