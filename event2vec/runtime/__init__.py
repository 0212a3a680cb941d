"""Answers without torch: an exported network reads files, draws or clusters their events, and names a class.

    from event2vec.runtime import load

    load("gestures.onnx").predict("clip.raw").name

Neither torch nor lightning is imported. `event2vec export` writes such files.
"""

from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from event2vec.arguments import check_kind
from event2vec.documents import parse_json
from event2vec.errors import Event2VecError, FileError
from event2vec.events import EventBatch, Events
from event2vec.model.description import Description
from event2vec.model.exported import SUFFIXES
from event2vec.model.predictor import Predictor
from event2vec.names import shorten, shown
from event2vec.runtime.engines import ENGINES, Engine, unreadable

FORMAT = 1  # of the description inside a file
LONGEST = 2**24  # characters of it
ANY_NETWORK = "a run, a folder with a saved network, or a file that 'event2vec export' wrote"
METHODS = ("random", "clusters")  # of sampling, which need no torch


def load(path: str | Path, threads: int | None = None) -> "ExportedClassifier":
    """The network in a file that `event2vec export` wrote: .onnx, or OpenVINO's .xml beside its .bin.

        load("gestures.onnx").predict(["a.aedat4", "b.raw"], min_confidence=0.6)

    `threads` compute its answers; by default all cores.
    """
    path = Path(path)
    if not path.is_file():
        raise FileError(path, "is not a file" if path.exists() else "does not exist. Check the name and the folder")
    suffix = path.suffix.lower()
    if suffix == SUFFIXES["torch"]:
        raise FileError(path, "is for torch.export.load, which may run code that is in it; export as .onnx instead")
    if suffix not in ENGINES:
        raise FileError(path, f"is not an exported network: expected {' or '.join(ENGINES)}")
    if threads is not None and threads < 1:
        raise Event2VecError(f"threads must be at least 1, got {threads}")
    engine = ENGINES[suffix](path, threads)
    exported = ExportedClassifier(read_description(path, engine.description), engine)
    check_graph(path, exported)
    return exported


def read_description(path: Path, text: str) -> Description:
    """What a file says about its network."""
    if not text:
        raise FileError(path, "does not say what its network reads, so 'event2vec export' did not write it")
    facts = parse_json(path, text[:LONGEST])
    if facts.get("format") != FORMAT:
        raise FileError(path, f"has format {shown(facts.get('format'))}, this version reads {FORMAT}. Export it again")
    try:
        description = Description.from_facts(facts)
    except (Event2VecError, TypeError, ValueError, OverflowError) as error:
        raise FileError(path, f"does not describe a network: {shorten(str(error))}") from None
    if description.sampling.method not in METHODS:
        read, able = description.sampling.summary, " events or ".join(METHODS)
        raise FileError(path, f"its network reads {read}, exported networks read {able}. Export it again")
    return description


def check_graph(path: Path, exported: "ExportedClassifier") -> None:
    """Ask about two events: the network must take what we give it, and know the classes that the file describes."""
    events = Events.from_numpy([0, 0], [0, 0], [0, 1], [False, True], sensor=exported.config.sensor)
    try:
        found = exported.logits(EventBatch.pad([events])).shape
    except Exception as error:  # each engine has its own
        raise unreadable(path, "an exported network", error) from None
    expected = (1, len(exported.class_names))
    if found != expected:
        raise FileError(path, f"its logits have shape {found}, expected {expected}: a score per class. Export it again")


def open_predictor(path: str | PathLike[str]) -> Predictor:
    """The network in an exported file, or that of a run or of a folder with a saved network, which needs torch."""
    check_kind(path, str | PathLike, ANY_NETWORK)
    if Path(path).is_file():
        if Path(path).suffix.lower() not in SUFFIXES.values():
            raise FileError(fspath(path), f"is not a network. Expected {ANY_NETWORK}")
        return load(Path(path))
    from event2vec.model.checkpoint import load_model

    return load_model(path)


class ExportedClassifier(Predictor):
    """An exported network: `predict` answers as the network that it was exported from."""

    def __init__(self, description: Description, engine: Engine) -> None:
        description.hand_to(self)
        self.engine = engine

    def logits(self, batch: EventBatch) -> Float[NDArray[Any], "recordings classes"]:
        """What the network gives for events as it reads them, in arrays."""
        return self.engine.logits(batch)

    def mean_scores(self, draws: Sequence[EventBatch]) -> Float[NDArray[Any], "recordings classes"]:
        scores: NDArray[Any] = np.stack([softmax(self.logits(batch)) for batch in draws]).mean(axis=0)
        return temper(scores, self.temperature)


def softmax(logits: Float[NDArray[Any], "*rows classes"]) -> Float[NDArray[Any], "*rows classes"]:
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def temper(scores: Float[NDArray[Any], "*rows classes"], temperature: float) -> Float[NDArray[Any], "*rows classes"]:
    """What `event2vec.model.classifier.temper` does to tensors."""
    if temperature == 1:
        return scores
    return softmax(np.log(scores.clip(min=np.finfo(scores.dtype).tiny)) / np.float32(temperature))
