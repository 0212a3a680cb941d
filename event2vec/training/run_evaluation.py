"""How good a run's network is: on which recordings it is judged, and where the results are kept."""

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from event2vec.data.addresses import whole_name
from event2vec.data.cache import open_whole_folder
from event2vec.data.datasets import open_splits
from event2vec.data.datasets.folder import is_whole
from event2vec.data.remote import holds_store
from event2vec.data.sampling import Sampling
from event2vec.data.store import EventStore
from event2vec.documents import write_json
from event2vec.errors import Event2VecError
from event2vec.evaluation.evaluate import Evaluation, evaluate
from event2vec.evaluation.figures.confusion import draw_confusion
from event2vec.evaluation.figures.curves import draw_sweep
from event2vec.evaluation.figures.reliability import draw_reliability
from event2vec.evaluation.sweeps import Kind, Point, sweep
from event2vec.execution import Execution, ExecutionOptions
from event2vec.model.classifier import Classifier
from event2vec.names import printable
from event2vec.training.config import DataConfig
from event2vec.training.metrics import write_rows
from event2vec.training.run_folder import RunFolder


class EvaluatedRun(RunFolder):
    """A run whose network can be evaluated; results are kept in its folder."""

    def evaluate(
        self,
        data: str | Path | None = None,
        split: str | None = None,
        repeats: int = 10,
        vote: int = 1,
        *,
        keep: bool = True,
        **how: Unpack[ExecutionOptions],
    ) -> Evaluation:
        """Evaluate the network on the run's recordings or on others; results and a figure are saved in the run.

            Run.open("runs/digits").evaluate(split="validation").per_class

        Without `split`, on the test part; of other data that is not divided, on all recordings. `how` is `workers`,
        `device`, `precision` and `progress`.
        """
        given = Execution(**how)
        compute = self.compute(given.device, given.precision)
        model = self.model().to(compute.device)
        store = self._tested(data, split, model, model.sampling, given)
        with compute.autocast():
            found = evaluate(model, store, repeats, vote, progress=given.progress)
        if keep:
            self.keep_evaluation(found, split or "test", data)
        return found

    def _tested(
        self, data: str | Path | None, split: str | None, model: Classifier, sampling: Sampling, how: Execution
    ) -> EventStore:
        """The recordings that an evaluation is on."""
        workers, progress = how.workers, how.progress
        if data is None or split == "validation" or self._is_own(data):
            return self.store(data, sampling=sampling, workers=workers, progress=progress).split(split or "test")
        if split is None and not holds_store(data) and self._is_whole(Path(data)):
            network = (model.class_names, model.config.sensor, sampling, model.windows)
            return open_whole_folder(Path(data), *network, workers, progress)
        store = self.whole_store(data, sampling, workers, progress)
        return store if split is None and "test" not in store.splits else store.split(split or "test")

    def _is_own(self, data: str | Path) -> bool:
        """Whether the network was trained on this data: then only its test part is new to it."""
        own = (self.facts.source, self.facts.data) if self.facts_file.is_file() else ()
        return whole_name(data) in own

    def _is_whole(self, data: Path) -> bool:
        """Whether `data` has a sub-folder for each class, and nothing that says which recordings are for testing."""
        config = self.recipe.data if self.is_started else DataConfig()
        dataset = config.dataset
        if config.labels or not is_whole(data):
            return False
        if dataset in ("folder", "digits"):
            return True
        try:
            open_splits(dataset, data)
        except Event2VecError:  # not as the data set is published
            return True
        return False

    def keep_evaluation(self, found: Evaluation, split: str = "test", data: str | Path | None = None) -> None:
        """Save results, a confusion matrix and a reliability diagram in the run; a bare network is not changed."""
        if self.is_started:
            self.draw_confusion(found, self.confusion(split, data))
            title = f"{printable(self.folder.name)}: reliability diagram"
            draw_reliability(found.calibration, found.repeats, self.reliability(split, data), title)
            write_json(self.result(split, data), found.facts())  # last: it marks a training as finished

    def sweep(
        self,
        kind: Kind,
        values: Sequence[int] | Sequence[float],
        data: str | Path | None = None,
        split: str | None = None,
        repeats: int = 10,
        vote: int = 1,
        **how: Unpack[ExecutionOptions],
    ) -> list[Point]:
        """Accuracy against the number of events, the resolution or the seconds from the onset ("windows").

        Saved in the run as CSV and as a curve. `how` is as in `evaluate`.
        """
        given = Execution(**how)
        compute = self.compute(given.device, given.precision)
        model = self.model().to(compute.device)
        if data is None:
            store = self.raw_store(None, given.workers, given.progress, split or "test").split(split or "test")
        else:
            store = self._tested(data, split, model, Sampling(), given)
        with compute.autocast():
            points = sweep(kind, model, store, values, repeats, vote, given.progress)
        if self.is_started:
            path = self.sweep_file(kind, split or "test", data)
            write_rows(path, [point.facts(kind) for point in points])
            title = printable(f"{self.folder.name}: accuracy and {kind}")
            draw_sweep(points, kind, path.with_suffix(".png"), title)
        return points

    def sweep_file(self, kind: Kind, split: str, data: str | Path | None) -> Path:
        return self.evaluation(data) / (f"{kind}.csv" if split == "test" else f"{kind}_{split}.csv")

    def draw_confusion(self, found: Evaluation, path: Path) -> None:
        share = f"{100 * found.accuracy:.1f} % ({found.interval.percent(1)})"
        title = f"{printable(self.folder.name)}: {share} of {found.recordings} recordings"
        draw_confusion(found.confusion, found.class_names, path, title)
