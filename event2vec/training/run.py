"""A run: one training and its folder. Open it, resume it, evaluate it, load its network."""

from collections.abc import Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

from event2vec.data.sampling import Sampling
from event2vec.data.store import EventStore
from event2vec.documents import read_json, write_json
from event2vec.errors import FileError
from event2vec.evaluation.evaluate import Evaluation, evaluate
from event2vec.evaluation.figures.confusion import draw_confusion
from event2vec.evaluation.figures.curves import draw_curves, draw_sweep
from event2vec.evaluation.figures.reliability import draw_reliability
from event2vec.evaluation.sweeps import Kind, Point, sweep
from event2vec.execution import Execution, ExecutionOptions
from event2vec.machine.devices import Compute
from event2vec.model.checkpoint import load_model
from event2vec.model.classifier import Classifier
from event2vec.model.network_folder import find_model, open_folder
from event2vec.names import printable
from event2vec.progress import SILENT, Progress
from event2vec.training.layout import Layout, RunFacts, Task
from event2vec.training.metrics import read_rows, write_rows
from event2vec.training.recipe import Recipe, load_recipe
from event2vec.training.run_stores import open_raw_store, open_store, open_tested
from event2vec.training.run_training import resume_training, start_training


class Run(Layout):
    """One training and its folder: its settings, its metrics and its network.

        run = Run.open("runs/digits")
        run.metrics[-1]["validation_accuracy"]
        run.model().predict("clip.aedat4").name
        run.evaluate(repeats=3).accuracy

    A folder with only a saved network can be opened too; it has no recipe, no metrics and no recordings.
    """

    @classmethod
    def open(cls, folder: "str | Path | Run") -> "Run":
        """The run in this folder, or a saved network; that at an address (hf://OWNER/NAME) is downloaded first."""
        run = folder if isinstance(folder, Run) else cls(open_folder(folder))
        run.check_run()
        return run

    @classmethod
    def start(
        cls,
        recipe: Recipe,
        store: EventStore,
        folder: str | Path,
        task: Task = "train",
        init: str | PathLike[str] | None = None,
        source: str | Path | None = None,
        progress: Progress = SILENT,
    ) -> "Run":
        """Train in a new folder on a prepared store, from initial weights or from those of the network in `init`.

        `event2vec.train` accepts data of any kind. `source` is what the store was made from, if it holds clusters.
        """
        run = cls(Path(folder))
        start_training(run, recipe, store, task, init, source, progress)
        return run

    def resume(
        self, data: str | Path | None = None, *, workers: int = 1, progress: Progress = SILENT, **settings: Any
    ) -> "Run":
        """Continue from the last checkpoint; a run without one starts again.

        `data` says where the store is now, if it was moved. The settings of the trainer, which say where the training
        runs, may change, `training.patience` too, and `training.epochs` may grow: a finished run is then trained for
        longer, with the learning rate of the longer schedule. All other settings stay as they are.

            Run.open("runs/digits").resume(training={"epochs": 150})
        """
        resume_training(self, data, workers, progress, settings)
        return self

    @property
    def recipe(self) -> Recipe:
        if not self.is_started:
            raise FileError(self.folder, f"is not a run: it has no {self.recipe_file.name}, only a network")
        return load_recipe(self.recipe_file)

    @cached_property
    def facts(self) -> RunFacts:
        self.check_facts()
        return RunFacts.from_json(self.facts_file)

    @property
    def metrics(self) -> list[dict[str, float]]:
        """One row for each epoch: losses, accuracies, learning rate, seconds."""
        return read_rows(self.metrics_file)

    def summary(self) -> dict[str, Any]:
        """What a finished training has left, for JSON: its files, and how well it did on the test part, if any."""
        rows, tested = self.metrics, self.result("test")
        found = read_json(tested) if tested.is_file() else {}
        return {
            "run": str(self.folder),
            "task": self.facts.task,
            "data": self.facts.data,
            "network": str(find_model(self.folder)),
            "metrics": str(self.metrics_file),
            "curves": str(self.curves),
            "epochs": len(rows),
            "minutes": sum(row["seconds"] for row in rows) / 60,
            **{name: found[name] for name in ("accuracy", "interval", "recordings", "loss") if name in found},
        }

    def model(self) -> Classifier:
        """The classifier of the epoch that was best on validation, else of the last one; in evaluation mode.

        `load_model(run.network)` always loads the network of the last epoch.
        """
        return load_model(self.folder)

    def compute(self, device: str | None = None, precision: str | None = None) -> Compute:
        """Where the network runs: as requested, else on the best device; see `Compute.choose` for the precision."""
        trained = self.recipe.trainer.precision if self.is_started else "32-true"
        return Compute.choose(device, precision, trained)

    def store(
        self,
        data: str | Path | None = None,
        *,
        sampling: Sampling | None = None,
        workers: int = 1,
        progress: Progress = SILENT,
    ) -> EventStore:
        """The recordings that the run was trained on, or those in `data`, as its network reads them.

        With another `sampling`, `data` is opened as for a network with that sampling. A validation part that the
        training took from the training recordings is a split of its own here too.
        """
        store = open_store(self, data, sampling, workers, progress)
        return self.recipe.divide(store) if self.is_started else store

    def raw_store(
        self,
        data: str | Path | None = None,
        workers: int = 1,
        progress: Progress = SILENT,
        only: str | None = None,
    ) -> EventStore:
        """The same recordings with all their events, not as clusters.

        Where `only` one split is needed, the other splits of a data set are not prepared.
        """
        return open_raw_store(self, data, workers, progress, only)

    @property
    def raw_source(self) -> str | None:
        """Where the run's recordings with all their events are; None for the built-in digits."""
        if self.facts.source is None and self.recipe.data.dataset == "digits":
            return None
        return self.facts.source or self.facts.data

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
        store = open_tested(self, data, split, model, model.sampling, given)
        with compute.autocast():
            found = evaluate(model, store, repeats, vote, progress=given.progress)
        if keep:
            self.keep_evaluation(found, split or "test", data)
        return found

    def sweep(
        self,
        kind: Kind,
        values: int | float | Sequence[int] | Sequence[float],
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
            store = open_tested(self, data, split, model, Sampling(), given)
        with compute.autocast():
            points = sweep(kind, model, store, values, repeats, vote, given.progress)
        if self.is_started:
            path = self.sweep_file(kind, split or "test", data)
            write_rows(path, [point.facts(kind) for point in points])
            title = printable(f"{self.folder.name}: accuracy and {kind}")
            draw_sweep(points, kind, path.with_suffix(".png"), title)
        return points

    def keep_evaluation(self, found: Evaluation, split: str = "test", data: str | Path | None = None) -> None:
        """Save results, a confusion matrix and a reliability diagram in the run; a bare network is not changed."""
        if self.is_started:
            self.draw_confusion(found, self.confusion(split, data))
            title = f"{printable(self.folder.name)}: reliability diagram"
            draw_reliability(found.calibration, found.repeats, self.reliability(split, data), title)
            write_json(self.result(split, data), found.facts())  # last: it marks a training as finished

    def draw_confusion(self, found: Evaluation, path: Path) -> None:
        share = f"{100 * found.accuracy:.1f} % ({found.interval.percent(1)})"
        title = f"{printable(self.folder.name)}: {share} of {found.recordings} recordings"
        draw_confusion(found.confusion, found.class_names, path, title)

    def draw_curves(self, path: Path) -> None:
        draw_curves(self.metrics, path, printable(f"Training of {self.folder.name}"))
