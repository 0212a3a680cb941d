"""A training in a run's folder: its first start, its resumption, and what it leaves when it ends."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from event2vec.data.addresses import whole_name
from event2vec.data.batches import sets_of
from event2vec.data.store import EventStore
from event2vec.documents import write_json
from event2vec.errors import Event2VecError, FileError
from event2vec.evaluation.evaluate import evaluate
from event2vec.machine.atomic import whole_file
from event2vec.machine.devices import Compute
from event2vec.machine.ranks import is_first_rank
from event2vec.model.network_folder import check_text_path, find_model, holds_network, open_folder
from event2vec.names import counted
from event2vec.progress import Progress
from event2vec.training.calibrate import calibrate
from event2vec.training.environment import environment
from event2vec.training.layout import RunFacts, Task
from event2vec.training.recipe import Recipe, by_full_name, load_recipe
from event2vec.training.run_stores import open_store

if TYPE_CHECKING:
    from event2vec.training.objectives import Objective
    from event2vec.training.run import Run


def start_training(
    run: "Run",
    recipe: Recipe,
    store: EventStore,
    task: Task,
    init: str | PathLike[str] | None,
    source: str | Path | None,
    progress: Progress,
) -> None:
    """Train from initial weights, or from those of the network in `init`."""
    from event2vec.training.fit import build_objective, copy_weights
    from event2vec.training.timing import fit_to_minutes

    init = open_folder(init) if init else None
    check_text_path(run.folder)
    with run.alone():
        run.check_free(task)
        recipe = _fitted(recipe, store)
        store = _divided(recipe, store)
        recipe = fit_to_minutes(recipe, store, task, progress)
        objective = build_objective(recipe, store, task)
        if init:
            _say_taken(copy_weights(objective.model, init), progress)
        facts = RunFacts(task=task, data=str(store.folder.resolve()), source=whole_name(source), init=whole_name(init))
        _Training(run, recipe, store, objective, task, progress).carry_out(lambda: _begin(run, recipe, facts))


def _begin(run: "Run", recipe: Recipe, facts: RunFacts) -> None:
    """Write the run's facts and its recipe. The recipe comes last: without it, the run has not started."""
    if is_first_rank():
        write_json(run.facts_file, replace(facts, environment=environment()).to_json())
        _write_recipe(run, recipe)


def _write_recipe(run: "Run", recipe: Recipe) -> None:
    with whole_file(run.recipe_file) as temporary:
        temporary.write_text(recipe.to_yaml(), "utf-8")


def resume_training(
    run: "Run", data: str | Path | None, workers: int, progress: Progress, settings: Mapping[str, Any]
) -> None:
    """Continue from the last checkpoint; without one, start again."""
    from event2vec.training.fit import build_objective, copy_weights

    facts = run.facts
    if run.can_start:
        raise FileError(run.folder, "was stopped before training started. Run the same command again")
    with run.alone():
        recipe = _resumed_recipe(run, settings)
        whole = open_store(run, data, None, workers, progress)
        _check_store(whole, recipe)
        store = _divided(recipe, whole)
        objective = build_objective(recipe, store, facts.task)
        if facts.init and not run.state.exists():
            copy_weights(objective.model, Path(facts.init))
        _Training(run, recipe, store, objective, facts.task, progress).carry_out(lambda: _prolong(run, recipe))


def _resumed_recipe(run: "Run", settings: Mapping[str, Any]) -> Recipe:
    for name, _ in by_full_name(settings):
        if not name.startswith("trainer.") and name not in ("training.epochs", "training.patience"):
            raise Event2VecError(
                f"a resumed run keeps its settings, except trainer.*, training.epochs and training.patience; "
                f"omit {name}"
            )
    began = load_recipe(run.recipe_file)
    recipe = began.with_settings(settings)
    if recipe.training.epochs < began.training.epochs:
        raise Event2VecError(
            f"training.epochs is {began.training.epochs} in {run.folder} and can only grow, "
            f"got {recipe.training.epochs}"
        )
    return recipe


def _prolong(run: "Run", recipe: Recipe) -> None:
    """Keep epochs and patience; other settings of a resumed training hold for that time only."""
    began = load_recipe(run.recipe_file)
    if recipe.training != began.training and is_first_rank():
        _write_recipe(run, replace(began, training=recipe.training))


def _check_store(store: EventStore, recipe: Recipe) -> None:
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


@dataclass(frozen=True)
class _Training:
    """What is trained, and where."""

    run: "Run"
    recipe: Recipe
    store: EventStore
    objective: "Objective"
    task: Task
    progress: Progress

    def carry_out(self, begin: Callable[[], None]) -> None:
        """Train to the end, draw the curves, calibrate, and read the test part."""
        from event2vec.training.fit import fit

        run, progress = self.run, self.progress
        try:
            fit(self.recipe, self.store, self.objective, run, progress, begin)
        except KeyboardInterrupt:
            if run.is_started:
                progress.say(f"Stopped. Resume it with: {run.command(self.task)}")
            raise
        if is_first_rank() and run.metrics_file.is_file():
            run.draw_curves(run.curves)
            rows = run.metrics
            share = sum(row["data_share"] * row["seconds"] for row in rows) / sum(row["seconds"] for row in rows)
            progress.say(f"Reading data took {100 * share:.1f} % of the training time")
            compute = run.compute("cpu" if self.recipe.trainer.accelerator == "cpu" else None)
            if self.task == "train":
                calibrate(filter(holds_network, (run.network, run.best_network)), self.store, compute, progress)
            self._conclude(compute)
            progress.say(f"The network is in {find_model(run.folder)}, its curves in {run.curves}")

    def _conclude(self, compute: Compute) -> None:
        """Read the test part, once: with the network that the validation part chose, else that of the last epoch."""
        from event2vec.training.fit import evaluate_masked

        run, progress = self.run, self.progress
        if "test" not in self.store.splits or run.result("test").is_file():
            return
        test = self.store.split("test")
        with compute.autocast():
            if self.task == "pretrain":
                losses = evaluate_masked(run.folder, test, self.recipe, compute)
                write_json(run.result("test"), losses)
                progress.say(f"Loss on {counted(len(test), 'test recording')}: {losses['loss']:.4g}")
                return
            found = evaluate(run.model().to(compute.device), test, repeats=1, progress=progress)
        run.keep_evaluation(found)
        interval = f"95 % interval {found.interval.percent(1)} %"
        progress.say(f"Accuracy on {counted(len(test), 'test recording')}: {found.percent(1)} %; {interval}")


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
