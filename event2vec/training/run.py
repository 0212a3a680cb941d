"""A run: one training and its folder. Open it, resume it, evaluate it, load its network."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, get_args

from event2vec.atomic import whole_file
from event2vec.data.batches import sets_of
from event2vec.data.cache import open_for_training, open_whole_folder, prepare_digits, reopen_for_training
from event2vec.data.datasets import open_splits
from event2vec.data.datasets.folder import is_whole
from event2vec.data.sampling import Sampling
from event2vec.data.store import EventStore
from event2vec.data.store_layout import DESCRIPTION
from event2vec.devices import Compute
from event2vec.documents import read_json, write_json
from event2vec.errors import Event2VecError, FileError
from event2vec.evaluation.evaluate import Evaluation, evaluate
from event2vec.evaluation.figures.confusion import draw_confusion
from event2vec.evaluation.figures.curves import draw_curves, draw_sweep
from event2vec.evaluation.figures.reliability import draw_reliability
from event2vec.evaluation.sweeps import Kind, Point, sweep
from event2vec.model.checkpoint import check_text_path, find_model, holds_network, load_model
from event2vec.model.classifier import Classifier
from event2vec.names import counted, printable
from event2vec.progress import SILENT, Progress
from event2vec.ranks import is_first_rank
from event2vec.training.calibrate import calibrate
from event2vec.training.config import DataConfig
from event2vec.training.environment import environment
from event2vec.training.layout import Layout, Task
from event2vec.training.metrics import read_rows, write_rows
from event2vec.training.recipe import Recipe, by_full_name, load_recipe

WHAT_A_RUN_IS = "A run is a folder that 'event2vec train' wrote"


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What a run started from, besides its recipe."""

    task: Task
    data: str  # the store that it reads
    source: str | None = None  # what the store was made from, if it holds clusters
    init: str | None = None  # the network whose weights it started from
    environment: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        facts = asdict(self)
        return {**facts, **facts.pop("environment")}

    @classmethod
    def from_json(cls, path: Path) -> "RunFacts":
        facts = read_json(path)
        own = {name: facts.pop(name, None) for name in ("task", "data", "source", "init")}
        texts = all(value is None or isinstance(value, str) for value in own.values())
        if own["task"] not in get_args(Task) or not own["data"] or not texts:
            raise FileError(path, "is damaged, expected JSON with task, data and init")
        return cls(**own, environment=facts)


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
        """The run in this folder, or a saved network."""
        run = folder if isinstance(folder, Run) else cls(Path(folder))
        if not run.folder.exists():
            raise FileError(run.folder, "does not exist, expected a run or a folder with a saved network")
        if not run.facts_file.is_file() and not holds_network(run.folder):
            raise FileError(
                run.folder, f"is not a run: it has neither {run.facts_file.name} nor a network. {WHAT_A_RUN_IS}"
            )
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
        from event2vec.training.fit import build_objective, take_over
        from event2vec.training.timing import fit_to_minutes

        run = cls(Path(folder))
        check_text_path(run.folder)
        with run.alone():
            run.check_free(task)
            recipe = _fitted(recipe, store)
            store = _divided(recipe, store)
            recipe = fit_to_minutes(recipe, store, task, progress)
            objective = build_objective(recipe, store, task)
            if init:
                _say_taken(take_over(objective.model, Path(init)), progress)
            facts = RunFacts(
                task=task, data=str(store.folder.resolve()), source=_resolved(source), init=_resolved(init)
            )
            run._train(recipe, store, objective, task, progress, begin=lambda: run._begin(recipe, facts))
        return run

    def check_free(self, task: Task) -> None:
        """Refuse a folder that already holds something, before any work."""
        if is_first_rank() and not self.is_free:
            resume = f"Resume it with: {self.command(task)}, or choose" if self.facts_file.is_file() else "Choose"
            raise FileError(self.folder, f"exists already. {resume} another --out")

    def command(self, task: Task) -> str:
        """The shell command that resumes this run."""
        return f"event2vec {task} --resume {shlex.quote(str(self.folder))}"

    def _begin(self, recipe: Recipe, facts: RunFacts) -> None:
        """Write the run's facts and its recipe. The recipe comes last: without it, the run has not started."""
        if is_first_rank():
            write_json(self.facts_file, replace(facts, environment=environment()).to_json())
            self._write_recipe(recipe)

    def _write_recipe(self, recipe: Recipe) -> None:
        with whole_file(self.recipe_file) as temporary:
            temporary.write_text(recipe.to_yaml(), "utf-8")

    def resume(
        self, data: str | Path | None = None, *, workers: int = 1, progress: Progress = SILENT, **settings: Any
    ) -> "Run":
        """Continue from the last checkpoint; a run without one starts again.

        `data` says where the store is now, if it was moved. The settings of the trainer, which say where the training
        runs, may change, `training.patience` too, and `training.epochs` may grow: a finished run is then trained for
        longer, with the learning rate of the longer schedule. All other settings stay as they are.

            Run.open("runs/digits").resume(training={"epochs": 150})
        """
        from event2vec.training.fit import build_objective, take_over

        facts = self.facts
        if self.is_free:
            raise FileError(self.folder, "was stopped before training started. Run the same command again")
        with self.alone():
            recipe = self._resumed_recipe(settings)
            whole = self._whole_store(data, None, workers, progress)
            self._check_store(whole, recipe)
            store = _divided(recipe, whole)
            objective = build_objective(recipe, store, facts.task)
            if facts.init and not self.state.exists():
                take_over(objective.model, Path(facts.init))
            self._train(recipe, store, objective, facts.task, progress, begin=lambda: self._prolong(recipe))
        return self

    def _resumed_recipe(self, settings: Mapping[str, Any]) -> Recipe:
        for name, _ in by_full_name(settings):
            if not name.startswith("trainer.") and name not in ("training.epochs", "training.patience"):
                raise Event2VecError(
                    f"a resumed run keeps its settings, except trainer.*, training.epochs and training.patience; "
                    f"omit {name}"
                )
        began = load_recipe(self.recipe_file)
        recipe = began.with_settings(settings)
        if recipe.training.epochs < began.training.epochs:
            raise Event2VecError(
                f"training.epochs is {began.training.epochs} in {self.folder} and can only grow, "
                f"got {recipe.training.epochs}"
            )
        return recipe

    def _prolong(self, recipe: Recipe) -> None:
        """Keep epochs and patience; other settings of a resumed training hold for that time only."""
        began = load_recipe(self.recipe_file)
        if recipe.training != began.training and is_first_rank():
            self._write_recipe(replace(began, training=recipe.training))

    def _check_store(self, store: EventStore, recipe: Recipe) -> None:
        if (store.sensor, len(store.classes)) != (recipe.model.sensor, recipe.model.classes):
            raise FileError(
                store.folder, f"does not fit the run: it has {len(store.classes)} classes and a {store.sensor} sensor"
            )
        if (sets := len(sets_of(store, recipe.sampling))) != recipe.sampling.clusterings:
            raise FileError(
                store.folder,
                f"does not fit the run: its clusterings per recording are {sets}, "
                f"expected {recipe.sampling.clusterings}",
            )

    def _train(
        self, recipe: Recipe, store: EventStore, objective: Any, task: Task, progress: Progress, **how: Any
    ) -> None:
        from event2vec.training.fit import fit

        try:
            fit(recipe, store, objective, self, progress, **how)
        except KeyboardInterrupt:
            if self.has_begun:
                progress.say(f"Stopped. Resume it with: {self.command(task)}")
            raise
        if is_first_rank() and self.metrics_file.is_file():
            self.draw_curves(self.curves)
            rows = self.metrics
            share = sum(row["data_share"] * row["seconds"] for row in rows) / sum(row["seconds"] for row in rows)
            progress.say(f"Reading data took {100 * share:.1f} % of the training time")
            compute = self.compute("cpu" if recipe.trainer.accelerator == "cpu" else None)
            if task == "train":
                calibrate(filter(holds_network, (self.network, self.best_network)), store, compute, progress)
            self._conclude(recipe, store, task, compute, progress)
            progress.say(f"The network is in {find_model(self.folder)}, its curves in {self.curves}")

    def _conclude(self, recipe: Recipe, store: EventStore, task: Task, compute: Compute, progress: Progress) -> None:
        """Read the test part, once: with the network that the validation part chose, else that of the last epoch."""
        from event2vec.training.fit import test_hidden_events

        if "test" not in store.splits or self.result("test").is_file():
            return
        test = store.split("test")
        with compute.autocast():
            if task == "pretrain":
                losses = test_hidden_events(self.folder, test, recipe, compute)
                write_json(self.result("test"), losses)
                progress.say(f"Loss on {len(test):,} test recordings: {losses['loss']:.4g}")
                return
            found = evaluate(self.model().to(compute.device), test, repeats=1, progress=progress)
        self.keep_evaluation(found)
        interval = f"95 % interval {found.interval.percent(1)} %"
        progress.say(f"{found.percent(1)} % of {len(test):,} test recordings are recognised; {interval}")

    @property
    def recipe(self) -> Recipe:
        if not self.has_begun:
            raise FileError(self.folder, f"is not a run: it has no {self.recipe_file.name}, only a network")
        return load_recipe(self.recipe_file)

    @cached_property
    def facts(self) -> RunFacts:
        if not self.facts_file.is_file():
            raise FileError(self.folder, f"is not a run: it has no {self.facts_file.name}. {WHAT_A_RUN_IS}")
        return RunFacts.from_json(self.facts_file)

    @property
    def metrics(self) -> list[dict[str, float]]:
        """One row for each epoch: losses, accuracies, learning rate, seconds."""
        return read_rows(self.metrics_file)

    def model(self) -> Classifier:
        """The classifier of the epoch that was best on validation, else of the last one; in evaluation mode.

        `load_model(run.network)` is always that of the last.
        """
        return load_model(self.folder)

    def compute(self, device: str | None = None, precision: str | None = None) -> Compute:
        """Where the network runs: as requested, else on the best device; see `Compute.choose` for the precision."""
        trained = self.recipe.trainer.precision if self.has_begun else "32-true"
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

        With another `sampling`, `data` is opened as a network with that would read it. A validation part that the
        training took from the training recordings is a split of its own here too.
        """
        store = self._whole_store(data, sampling, workers, progress)
        return self.recipe.divide(store) if self.has_begun else store

    def _whole_store(
        self, data: str | Path | None, sampling: Sampling | None, workers: int, progress: Progress
    ) -> EventStore:
        if data is not None:
            config = self.recipe.data if self.has_begun else DataConfig()
            sampling = sampling or (self.recipe.sampling if self.has_begun else self.model().sampling)
            opened = open_for_training(
                data,
                config.dataset,
                sampling,
                workers,
                progress,
                options=config.options,
                everywhere=config.folds > 0,
            )
            return opened.store
        if not self.facts_file.is_file():
            raise Event2VecError(f"{self.folder} does not say what it was trained on; set the recordings with --data")
        facts, recipe = self.facts, self.recipe
        return reopen_for_training(
            Path(facts.data),
            facts.source,
            recipe.data.dataset,
            recipe.sampling,
            workers,
            progress,
            recipe.data.options,
            recipe.data.folds > 0,
        )

    def raw_store(self, data: str | Path | None = None, workers: int = 1, progress: Progress = SILENT) -> EventStore:
        """The same recordings with all their events, not as clusters."""
        if data is None and self.facts_file.is_file():
            data = self.raw_source
            if data is None:
                return self.recipe.divide(prepare_digits(workers, progress))
        return self.store(data, sampling=Sampling(), workers=workers, progress=progress)

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
        workers: int = 1,
        device: str | None = None,
        precision: str | None = None,
        progress: Progress = SILENT,
        keep: bool = True,
    ) -> Evaluation:
        """Evaluate the network on the run's recordings or on others; results and a figure are saved in the run.

            Run.open("runs/digits").evaluate(split="validation").per_class

        Without `split`, on the test part; of other data that is not divided, on all recordings.
        """
        compute = self.compute(device, precision)
        model = self.model().to(compute.device)
        store = self._tested(data, split, model, model.sampling, workers, progress)
        with compute.autocast():
            found = evaluate(model, store, repeats, vote, progress=progress)
        if keep:
            self.keep_evaluation(found, split or "test", data)
        return found

    def _tested(
        self,
        data: str | Path | None,
        split: str | None,
        model: Classifier,
        sampling: Sampling,
        workers: int,
        progress: Progress,
    ) -> EventStore:
        """The recordings that an evaluation is on."""
        if data is None or split == "validation" or self._is_own(data):
            return self.store(data, sampling=sampling, workers=workers, progress=progress).split(split or "test")
        if split is None and self._is_whole(Path(data)):
            network = (model.class_names, model.config.sensor, sampling, model.windows)
            return open_whole_folder(Path(data), *network, workers, progress)
        store = self._whole_store(data, sampling, workers, progress)
        return store if split is None and "test" not in store.splits else store.split(split or "test")

    def _is_own(self, data: str | Path) -> bool:
        """Whether the network was trained on this data: then only its test part is new to it."""
        own = (self.facts.source, self.facts.data) if self.facts_file.is_file() else ()
        return _resolved(data) in own

    def _is_whole(self, data: Path) -> bool:
        """Whether `data` has a sub-folder for each class, and nothing that says which recordings are for testing."""
        config = self.recipe.data if self.has_begun else DataConfig()
        dataset = config.dataset
        if (data / DESCRIPTION).is_file() or config.labels or not is_whole(data):
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
        if self.has_begun:
            self.draw_confusion(found, self.confusion(split, data))
            title = f"{printable(self.folder.name)}: how far its scores hold"
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
        *,
        workers: int = 1,
        device: str | None = None,
        precision: str | None = None,
        progress: Progress = SILENT,
    ) -> list[Point]:
        """Accuracy against the number of events, the resolution or the seconds from the onset ("windows").

        Saved in the run as CSV and as a curve.
        """
        compute = self.compute(device, precision)
        model = self.model().to(compute.device)
        if data is None:
            store = self.raw_store(None, workers, progress).split(split or "test")
        else:
            store = self._tested(data, split, model, Sampling(), workers, progress)
        with compute.autocast():
            points = sweep(kind, model, store, values, repeats, vote, progress)
        if self.has_begun:
            path = self.sweep_file(kind, split or "test", data)
            write_rows(path, [point.facts(kind) for point in points])
            title = printable(f"{self.folder.name}: accuracy and {kind}")
            draw_sweep(points, kind, path.with_suffix(".png"), title)
        return points

    def sweep_file(self, kind: Kind, split: str, data: str | Path | None) -> Path:
        return self.evaluation(data) / (f"{kind}.csv" if split == "test" else f"{kind}_{split}.csv")

    def draw_curves(self, path: Path) -> None:
        draw_curves(self.metrics, path, printable(f"Training of {self.folder.name}"))

    def draw_confusion(self, found: Evaluation, path: Path) -> None:
        share = f"{100 * found.accuracy:.1f} % ({found.interval.percent(1)})"
        title = f"{printable(self.folder.name)}: {share} of {found.recordings} recordings"
        draw_confusion(found.confusion, found.class_names, path, title)


def _fitted(recipe: Recipe, store: EventStore) -> Recipe:
    """The recipe with the store's sensor, number of classes and number of clusterings."""
    return replace(
        recipe,
        sampling=replace(recipe.sampling, clusterings=len(sets_of(store, recipe.sampling))),
        model=replace(recipe.model, sensor=store.sensor, classes=len(store.classes)),
    )


def _divided(recipe: Recipe, store: EventStore) -> EventStore:
    """The parts that a training reads."""
    store = recipe.divide(store)
    if recipe.training.patience and "validation" not in store.splits:
        raise Event2VecError(
            "training.patience needs a validation part. Set data.validation, or training.patience to 0"
        )
    return store


def _say_taken(names: list[str], progress: Progress) -> None:
    if names and is_first_rank():
        parts = Counter(name.partition(".")[0].replace("embed", "embedding") for name in names)
        taken = " and ".join(f"{counted(count, 'weight')} of the {part}" for part, count in parts.items())
        progress.say(f"Copied {taken}; the head is newly initialised")


def _resolved(path: str | PathLike[str] | None) -> str | None:
    return str(Path(path).resolve()) if path else None
