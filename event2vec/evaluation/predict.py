"""Answers for files and folders of recordings. A file that cannot be read is reported, and the others are answered."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Unpack

from event2vec.arguments import path_of, several
from event2vec.errors import Event2VecError, Event2VecWarning, FileError
from event2vec.events import Events
from event2vec.io import read_arrays
from event2vec.io.folders import describe_skipped, find_recordings
from event2vec.io.recording import Reading, ReadingOptions
from event2vec.model.predictor import BATCH, Prediction, Predictor
from event2vec.runtime import open_predictor


@dataclass(frozen=True)
class FileAnswer:
    """What became of one file: a prediction, or the reason why there is none."""

    file: str
    prediction: Prediction | None = None
    seconds: float = 0.0  # how long the recording is
    error: str | None = None

    def facts(self, class_names: Sequence[str]) -> dict[str, Any]:
        """For JSON and tables, the best class first."""
        answer = self.prediction
        if answer is None:
            return {"file": self.file, "error": self.error}
        scores = {name: float(score) for name, score in zip(class_names, answer.scores, strict=True)}
        return {
            "file": self.file,
            "label": answer.label,
            "name": answer.name,
            "unknown": answer.unknown,
            "confidence": answer.confidence,
            "remarks": list(answer.remarks),
            "scores": dict(sorted(scores.items(), key=lambda each: -each[1])),
            "events": answer.events,
            "scaled_from": str(answer.scaled_from) if answer.scaled_from else None,
            "duration_s": self.seconds,
        }


def predict(
    run: str | PathLike[str] | Predictor,
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    vote: int = 1,
    min_confidence: float = 0.0,
    **reading: Unpack[ReadingOptions],
) -> list[FileAnswer]:
    """Classify recordings in files, and all recordings below folders, with the network of a run or of an exported file.

        for answer in predict("runs/my_recordings", ["clip.aedat4", "more_recordings/"]):
            print(answer.file, answer.error or answer.prediction.name)

    One path need not be in a list. `vote` and `min_confidence` are those of `Classifier.predict`, and `reading` are
    options of `read_events`, for files that do not say what they hold.
    """
    model = run if isinstance(run, Predictor) else open_predictor(run)
    found = find_files(paths)
    network = model.for_reading(len(found) * vote)  # decided once, for all batches
    readable = _read(found, Reading.of(usual=model.config.sensor, **reading))
    while batch := list(islice(readable, BATCH)):
        answers = network.predict([events for _, events in batch], vote=vote, min_confidence=min_confidence)
        for (place, events), answer in zip(batch, answers, strict=True):
            found[place] = replace(found[place], prediction=answer, seconds=events.duration / 1e6)
    return found


def find_files(paths: str | PathLike[str] | Iterable[str | PathLike[str]]) -> list[FileAnswer]:
    """The files, and all recordings of the folders, with no answers yet."""
    return [each for path in several(paths) for each in _files_of(path_of(path, "paths of recordings or folders"))]


def _files_of(path: Path) -> list[FileAnswer]:
    if not path.is_dir():
        return [FileAnswer(fspath(path))]
    recordings, skipped = find_recordings(path)
    if skipped:
        warnings.warn(describe_skipped(skipped, path), Event2VecWarning, stacklevel=4)
    if not recordings:
        return [
            FileAnswer(
                fspath(path), error=f"{path}: has no recordings in it, expected files such as .aedat4, .raw, .npz"
            )
        ]
    return [FileAnswer(fspath(file)) for file in recordings]


def _read(found: list[FileAnswer], how: Reading) -> Iterator[tuple[int, Events]]:
    """The place of each file that can be read, and its events; the others get an error."""
    for place, each in enumerate(found):
        if each.error is not None:
            continue
        try:
            events = read_arrays(each.file, how)
            if len(events) == 0:
                raise FileError(each.file, "holds no events, so there is nothing to classify")
            yield place, events
        except Event2VecError as error:
            found[place] = replace(each, error=str(error))
