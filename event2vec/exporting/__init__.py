"""Export: a trained network as a file for a device, which answers the run's test recordings as the network does.

The file is written where nobody sees it, opened as on a device, and asked about every test recording; it appears only
if it agrees with torch.
"""

import copy
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from event2vec.errors import Event2VecError, FileError
from event2vec.events import Events
from event2vec.exporting.formats import WRITERS, open_draft, random_events
from event2vec.machine.atomic import whole_file
from event2vec.model.checkpoint import load_model
from event2vec.model.classifier import Classifier
from event2vec.model.description import Description
from event2vec.model.exported import SUFFIXES, Format, files_of
from event2vec.model.predictor import BATCH, Predictor
from event2vec.names import counted, printable, shown
from event2vec.progress import SILENT, Progress
from event2vec.runtime import METHODS, ExportedClassifier
from event2vec.training.run import Run

CLOSE = 1e-4  # by which a logit may differ
LENGTHS = (1, 2, 3, 37)  # events of made-up recordings, besides as many as the network reads, and more


@dataclass(frozen=True)
class Exported:
    """What was written, and how it was checked."""

    path: Path
    format: Format
    bytes: int  # of all its files
    recordings: int  # that it answered as torch does
    made_up: bool  # whether they were random events, for want of test recordings
    largest_difference: float  # of a logit

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return self.__dict__ | {"path": str(self.path)}


def export(
    run: str | Path | Run | Classifier,
    path: str | Path,
    format: Format = "onnx",
    *,
    data: str | Path | None = None,
    workers: int = 1,
    progress: Progress = SILENT,
) -> Exported:
    """Write a network for a device, and check that it answers the run's test recordings as torch does.

        export("runs/gestures", "gestures.onnx")
        export(model, "gestures.xml", "openvino")

    The formats are onnx (.onnx), openvino (.xml, and .bin beside it) and torch (.pt2, for torch.export.load). Class
    names, sensor, sampling, windows, temperature and what training saw are inside. `data` holds other recordings of the
    run to check with; random events are always checked too, and alone for a network without recordings. Where a label
    differs, or a logit by more than 0.0001, nothing is written. A file of this name is replaced.
    """
    if format not in SUFFIXES:
        raise Event2VecError(f"format must be one of {', '.join(SUFFIXES)}, got {shown(format)}")
    path, suffix = Path(path), SUFFIXES[format]
    if path.suffix.lower() != suffix:
        raise FileError(path, f"must end in {suffix} for the format {format}")
    model = _own_model(run, data)
    if model.sampling.method not in METHODS:
        raise Event2VecError(
            f"the network reads {model.sampling.summary}, a method for comparisons that devices do not have; "
            f"exported networks read {' events or '.join(METHODS)}"
        )
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / path.name
        WRITERS[format](model, draft)
        exported = open_draft(draft, format)
        _check_description(model, exported)
        largest = _check(model, exported, MadeUp(model), batch=1)  # before recordings are prepared, which may take long
        recordings = _recordings(run, model, data, workers, progress)
        largest = max(largest, _check(model, exported, recordings, progress))
        size = sum(part.stat().st_size for part in files_of(draft))
        _publish(draft, path)
    return Exported(path, format, size, len(recordings), isinstance(recordings, MadeUp), largest)


def _own_model(run: str | Path | Run | Classifier, data: str | Path | None) -> Classifier:
    """The network on the CPU, ready to answer; a copy, where the caller has it."""
    if not isinstance(run, Classifier):
        return load_model(run.folder if isinstance(run, Run) else run).cpu().eval()
    if data is not None:
        raise Event2VecError(
            "data requires a run, which says how recordings are prepared. Give the run's folder instead"
        )
    return copy.deepcopy(run).cpu().eval()


def _publish(draft: Path, path: Path) -> None:
    """Put the files in their places: an old .xml goes first and the new one comes last, so none has others' weights."""
    files = files_of(path)
    if len(files) > 1:
        path.unlink(missing_ok=True)
    for source, target in zip(files_of(draft), files, strict=True):
        with whole_file(target) as temporary:
            shutil.copyfile(source, temporary)


class MadeUp(Sequence[tuple[str, Events]]):
    """Random events of several lengths, where there are no recordings."""

    def __init__(self, model: Classifier) -> None:
        self.sensor, length = model.config.sensor, model.sampling.length
        self.counts = (*LENGTHS, length, length + length // 2 + 1)

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, index: Any) -> Any:
        count = self.counts[index]
        return counted(count, "random event"), random_events(count, self.sensor, seed=index)


class Stored(Sequence[tuple[str, Events]]):
    """The recordings of a store, by name."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, index: Any) -> Any:
        return self.store.sources[index], self.store[index][0]


def _recordings(
    run: str | Path | Run | Classifier, model: Classifier, data: str | Path | None, workers: int, progress: Progress
) -> Sequence[tuple[str, Events]]:
    """The test recordings with all their events, so that they are drawn or clustered as on the device."""
    if isinstance(run, Classifier):
        return MadeUp(model)
    opened = Run.open(run)
    if data is None and not opened.facts_file.is_file():
        return MadeUp(model)
    store = opened.raw_store(data, workers, progress, "test")
    return Stored(store.split("test") if "test" in store.splits else store)


def _check_description(model: Classifier, exported: ExportedClassifier) -> None:
    """What the file says besides the network must be what the network has."""
    right, found = Description.of(model), Description.of(exported)
    for field in fields(Description):
        if getattr(right, field.name) != getattr(found, field.name):
            raise Event2VecError(
                f"the exported file has another {field.name} than the network. Nothing was written; please report it"
            )


def _check(
    model: Classifier,
    exported: ExportedClassifier,
    recordings: Sequence[tuple[str, Events]],
    progress: Progress = SILENT,
    batch: int = BATCH,
) -> float:
    """Let both answer all recordings; the largest difference of a logit, or an error that names the first recording."""
    largest = 0.0
    with progress.stage("checking", len(recordings)):
        for start in range(0, len(recordings), batch):
            part = [recordings[index] for index in range(start, min(start + batch, len(recordings)))]
            names, events = zip(*part, strict=True)
            for name, one, other in zip(names, _answers(model, events), _answers(exported, events), strict=True):
                largest = max(largest, _compare(model, name, one, other))
            progress.advance(start + len(part))
    return largest


@torch.no_grad()
def _answers(predictor: Predictor, recordings: Sequence[Events]) -> Float[NDArray[Any], "recordings 2 classes"]:
    """Logits and scores for events that the predictor draws or clusters itself."""
    drawn = predictor.draw(recordings)
    if isinstance(predictor, ExportedClassifier):
        logits = predictor.logits(drawn)
    else:
        assert isinstance(predictor, Classifier)
        logits = predictor(drawn.torch()).float().numpy()
    return np.stack([logits, np.asarray(predictor.mean_scores([drawn]))], axis=1)


def _compare(model: Classifier, name: str, right: Any, found: Any) -> float:
    """The difference of the logits; scores may differ by as much, or by more if a low temperature widens it."""
    logit, score = (float(each) for each in np.abs(right - found).max(axis=1))
    alike = (right.argmax(axis=1) == found.argmax(axis=1)).all()
    if alike and logit <= CLOSE and score <= CLOSE / min(model.temperature, 1):  # NaN is not
        return logit
    one, other = (printable(model.class_names[int(each[0].argmax())]) for each in (right, found))
    raise Event2VecError(
        f"the exported network differs on {printable(name)}: it answers {other}, torch {one}; a logit differs by "
        f"{logit:.3g}, expected at most {CLOSE:g}, and a score by {score:.3g}. Nothing was written; please report it"
    )
