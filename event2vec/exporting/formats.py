"""How each format is written: ONNX with opset 18, OpenVINO's own from that, and torch's exported program.

Rows and their length are dynamic. What exporters leave in a file besides the network, such as the lines of code that
each operation came from, is removed; the description of the network takes its place.
"""

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from event2vec import __version__
from event2vec.errors import Event2VecError, MissingExtra
from event2vec.events import EventBatch, Events
from event2vec.model import compiled_attention
from event2vec.model.classifier import Classifier, TensorClassifier
from event2vec.model.description import Description
from event2vec.model.exported import Format
from event2vec.names import excerpt
from event2vec.runtime import FORMAT, ExportedClassifier, load, read_description
from event2vec.runtime.engines import INPUTS, KEY, inputs_of
from event2vec.sensor import Sensor

OPSET = 18
SOURCES = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node")  # of a node in a program
ROWS, EVENTS = 3, 37  # of the example: neither may be 1, which an exporter would take for a constant


def describe(model: Classifier) -> str:
    """What a file says about its network, as JSON."""
    return json.dumps({"format": FORMAT, "version": __version__, **Description.of(model).facts()}, ensure_ascii=False)


def random_events(count: int, sensor: Sensor, seed: int) -> Events:
    """Events of a second, anywhere on the sensor: to follow a network's operations with, and to compare its answers."""
    random = np.random.default_rng(seed)
    x, y = (random.integers(0, side, count) for side in (sensor.width, sensor.height))
    t, p = np.sort(random.integers(0, 10**6, count)), random.random(count) < 0.5
    return Events.from_numpy(x, y, t, p, sensor=sensor)


def example(model: Classifier) -> tuple[Tensor, ...]:
    """A batch in plain tensors, to follow the network's operations with."""
    counts = range(EVENTS, EVENTS - ROWS, -1)
    batch = EventBatch.pad([random_events(count, model.config.sensor, seed=count) for count in counts]).torch()
    return tuple(getattr(batch, name) for name in INPUTS)


def follow(model: Classifier) -> torch.export.ExportedProgram:
    """The network's operations, for any number of rows and any length."""
    dynamic = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with torch.no_grad(), compiled_attention.set_aside():
        return torch.export.export(TensorClassifier(model), example(model), dynamic_shapes=(dynamic,) * len(INPUTS))


@contextmanager
def hushed() -> Iterator[None]:
    """Silence what exporters say about missing packages, and about networks that they cannot follow."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def refused(model: Classifier, format: str, error: Exception) -> Event2VecError:
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    reason = excerpt(str(cause).partition("\n")[0], 160)
    if "data-dependent" in reason:
        reason = "the number of things that it computes depends on the events, which exporters cannot follow"
    return Event2VecError(f"the network, {model.config.network}, cannot be exported as {format}: {reason}")


def write_onnx(model: Classifier, path: Path) -> None:
    try:
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise MissingExtra("exporting to ONNX", "export") from None
    try:
        with hushed():
            program: Any = torch.onnx.export(
                follow(model),
                (),
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
                input_names=INPUTS,
                output_names=["logits"],
            )
    except Exception as error:  # each exporter has its own
        raise refused(model, "onnx", error) from None
    strip(program.model)
    name_dimensions(program.model)
    program.model.metadata_props[KEY] = describe(model)
    program.save(str(path), external_data=False)


def strip(model: Any) -> None:
    """Remove where in the source each operation came from: two thirds of a small network's file."""
    model.metadata_props.clear()
    model.graph.metadata_props.clear()
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
        node.doc_string = None
        for value in node.outputs:
            value.metadata_props.clear()
            value.doc_string = None
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        value.metadata_props.clear()


def name_dimensions(model: Any) -> None:
    """Name what may vary in inputs and output, for people who look into the file."""
    for value in model.graph.inputs:
        value.shape = type(value.shape)(["rows", "events"])
    for value in model.graph.outputs:
        value.shape = type(value.shape)(["rows", value.shape[1]])


def write_openvino(model: Classifier, path: Path) -> None:
    try:
        import openvino
    except ImportError:
        raise MissingExtra("exporting to OpenVINO", "export") from None
    onnx = path.with_suffix(".onnx")
    write_onnx(model, onnx)
    try:
        converted = openvino.convert_model(onnx)
        converted.set_rt_info(describe(model), [KEY])
        openvino.save_model(converted, path, compress_to_fp16=False)
    except Exception as error:
        raise refused(model, "openvino", error) from None
    onnx.unlink()


class TorchEngine:
    """An exported program, run by torch. Only for files that this process wrote: they may hold pickles."""

    def __init__(self, path: Path) -> None:
        extra = {KEY: ""}
        self.network = torch.export.load(path, extra_files=extra).module()
        self.description = extra[KEY]

    @torch.no_grad()
    def logits(self, batch: EventBatch) -> Float[NDArray[Any], "recordings classes"]:
        # It refuses rows that are pooled to a single token, as the example's are not.
        return self.network(*map(torch.from_numpy, inputs_of(batch, EVENTS).values())).numpy()


def forget_sources(program: torch.export.ExportedProgram) -> None:
    """Remove where in the source each operation came from, with the paths of this machine: half of a small file."""
    for graph in program.graph_module.modules():
        if isinstance(graph, torch.fx.GraphModule):
            for node in graph.graph.nodes:
                for name in SOURCES:
                    node.meta.pop(name, None)


def write_torch(model: Classifier, path: Path) -> None:
    try:
        with hushed():
            program = follow(model)
            forget_sources(program)
            torch.export.save(program, path, extra_files={KEY: describe(model)})
    except Exception as error:  # whatever it meets in a network
        raise refused(model, "torch", error) from None


# What writes a network to a file.
WRITERS: dict[Format, Callable[[Classifier, Path], None]] = {
    "onnx": write_onnx,
    "openvino": write_openvino,
    "torch": write_torch,
}


def open_draft(path: Path, format: Format) -> ExportedClassifier:
    """The network in a file that was just written, opened as a user would."""
    if format != "torch":
        return load(path)
    with hushed():
        engine = TorchEngine(path)
    return ExportedClassifier(read_description(path, engine.description), engine)
