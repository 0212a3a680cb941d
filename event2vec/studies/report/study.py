"""A run and everything that its page shows."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from event2vec.data.batches import Recordings
from event2vec.data.store import EventStore
from event2vec.data.windows import recording_of
from event2vec.evaluation.evaluate import BATCH, SEED, Evaluation, classify_store, evaluate
from event2vec.events import Events
from event2vec.machine.devices import Compute
from event2vec.model.classifier import Classifier
from event2vec.progress import Progress
from event2vec.training.run import Run

CLASSES, MISTAKES = 10, 3  # recordings in the player: one of each class, and misclassified ones


@dataclass(frozen=True)
class Study:
    """A run and everything that its page shows, each computed when first needed."""

    run: Run
    model: Classifier
    whole: EventStore  # all splits, as the network reads them
    raw: EventStore  # test recordings with all their events
    repeats: int
    progress: Progress
    compute: Compute  # for predictions, and for drawing attention

    @property
    def store(self) -> EventStore:
        return self.whole.split("test")

    @cached_property
    def evaluation(self) -> Evaluation:
        with self.compute.autocast():
            return evaluate(self.model, self.store, self.repeats, progress=self.progress)

    @property
    def measured(self) -> Evaluation | None:
        """The evaluation, if it was made already."""
        return self.__dict__.get("evaluation")

    @cached_property
    def chosen(self) -> list[int]:
        """Test recordings for the player."""
        with self.progress.stage("choosing recordings", len(self.store)), self.compute.autocast():
            answers = classify_store(self.model, self.store, 0, BATCH, self.progress).argmax(axis=1)
        return choose(self.store, answers)

    def tokens(self, index: int) -> Events:
        """The events of a recording that the network reads in the first draw of the evaluation."""
        return Recordings((self.store,), self.model.sampling, SEED)[0, index][0]

    @property
    def long_recording(self) -> Path | None:
        """The test recording with the most windows, where the network was trained on windows and the file is there."""
        source = self.run.raw_source
        if self.model.windows is None or source is None:
            return None
        (name, count), *_ = Counter(map(recording_of, self.store.sources)).most_common()
        path = Path(source) / name
        return path if count > 1 and path.is_file() else None

    def class_of(self, recording: Path) -> str:
        """The class of the windows of a recording, all of which have the same."""
        names = [str(Path(self.run.raw_source or ".") / recording_of(source)) for source in self.store.sources]
        return self.truth(names.index(str(recording)))

    def truth(self, index: int) -> str:
        return self.store.classes[int(self.store.labels[index])]


def choose(store: EventStore, answers: NDArray[np.int64]) -> list[int]:
    """The first recording of each class, and the first misclassified ones; none without events."""
    labels = np.where(store.lengths > 0, store.labels, -1)
    firsts = [int(np.flatnonzero(labels == label)[0]) for label in np.unique(labels[labels >= 0])[:CLASSES]]
    mistakes = [int(index) for index in np.flatnonzero((labels >= 0) & (labels != answers)) if index not in firsts]
    return firsts + mistakes[:MISTAKES]
