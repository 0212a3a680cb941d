"""A run: one training and its folder. Open it, resume it, evaluate it, load its network."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from event2vec.data.addresses import whole_name
from event2vec.data.batches import sets_of
from event2vec.data.store import EventStore
from event2vec.documents import write_json
from event2vec.errors import Event2VecError, FileError
from event2vec.evaluation.evaluate import evaluate
from event2vec.evaluation.figures.curves import draw_curves
from event2vec.machine.atomic import whole_file
from event2vec.machine.devices import Compute
from event2vec.machine.ranks import is_first_rank
from event2vec.model.network_folder import check_text_path, find_model, holds_network, open_folder
from event2vec.names import counted, printable
from event2vec.progress import SILENT, Progress
from event2vec.training.calibrate import calibrate
from event2vec.training.environment import environment
from event2vec.training.layout import Task
from event2vec.training.recipe import Recipe, by_full_name, load_recipe
from event2vec.training.run_evaluation import EvaluatedRun
from event2vec.training.run_folder import RunFacts


class Run(EvaluatedRun):
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
        from event2vec.training.fit import build_objective, copy_weights
        from event2vec.training.timing import fit_to_minutes

        run, init = cls(Path(folder)), open_folder(init) if init else None
        check_text_path(run.folder)
        with run.alone():
            run.check_free(task)
            recipe = _fitted(recipe, store)
            store = _divided(recipe, store)
            recipe = fit_to_minutes(recipe, store, task, progress)
            objective = build_objective(recipe, store, task)
            if init:
                _say_taken(copy_weights(objective.model, init), progress)
            facts = RunFacts(
                task=task, data=str(store.folder.resolve()), source=whole_name(source), init=whole_name(init)
            )
            run._train(recipe, store, objective, task, progress, begin=lambda: run._begin(recipe, facts))
        return run

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
        from event2vec.training.fit import build_objective, copy_weights

        facts = self.facts
        if self.can_start:
            raise FileError(self.folder, "was stopped before training started. Run the same command again")
        with self.alone():
            recipe = self._resumed_recipe(settings)
            whole = self.whole_store(data, None, workers, progress)
            self._check_store(whole, recipe)
            store = _divided(recipe, whole)
            objective = build_objective(recipe, store, facts.task)
            if facts.init and not self.state.exists():
                copy_weights(objective.model, Path(facts.init))
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
                store.folder,
                f"does not fit the run: it has {counted(len(store.classes), 'class', 'classes')} "
                f"and a {store.sensor} sensor",
            )
        if (sets := len(sets_of(store, recipe.sampling))) != recipe.sampling.clusterings:
            raise FileError(
                store.folder,
                f"does not fit the run: it has {counted(sets, 'clustering')} per recording, "
                f"expected {recipe.sampling.clusterings}",
            )

    def _train(
        self, recipe: Recipe, store: EventStore, objective: Any, task: Task, progress: Progress, **how: Any
    ) -> None:
        from event2vec.training.fit import fit

        try:
            fit(recipe, store, objective, self, progress, **how)
        except KeyboardInterrupt:
            if self.is_started:
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
        from event2vec.training.fit import evaluate_masked

        if "test" not in store.splits or self.result("test").is_file():
            return
        test = store.split("test")
        with compute.autocast():
            if task == "pretrain":
                losses = evaluate_masked(self.folder, test, recipe, compute)
                write_json(self.result("test"), losses)
                progress.say(f"Loss on {counted(len(test), 'test recording')}: {losses['loss']:.4g}")
                return
            found = evaluate(self.model().to(compute.device), test, repeats=1, progress=progress)
        self.keep_evaluation(found)
        interval = f"95 % interval {found.interval.percent(1)} %"
        progress.say(f"Accuracy on {counted(len(test), 'test recording')}: {found.percent(1)} %; {interval}")

    def draw_curves(self, path: Path) -> None:
        draw_curves(self.metrics, path, printable(f"Training of {self.folder.name}"))


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
