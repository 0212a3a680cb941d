"""A table of the paper from one call: train each row with several seeds, evaluate, and compare with the paper.

Some rows have their clusters made by another engine, some experiments measure speed too, and rows may be pre-trained
first, each with its own model settings. Runs that are finished are not repeated, and one that was stopped is resumed.
Where several processes train together, the first one evaluates.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from event2vec.cluster import Cluster, do_pieces
from event2vec.clustering.alternatives import engine_of
from event2vec.data.addresses import is_address, local_place, whole_name
from event2vec.data.sampling import Sampling
from event2vec.data.store import EventStore
from event2vec.documents import read_json, write_json
from event2vec.errors import Event2VecError, FileError, MissingExtra
from event2vec.evaluation.speed import Figure, bytes_of_answer, measure_speed, seconds_of
from event2vec.events import Events
from event2vec.machine.ranks import is_first_rank
from event2vec.model.classifier import count_parameters
from event2vec.progress import SILENT, Progress
from event2vec.studies.experiment_file import Experiment, choose_pretraining, load_experiment
from event2vec.studies.results import RunResult, Timed
from event2vec.studies.tables import Row, RowResult, table, write_table
from event2vec.training.layout import Layout, Task
from event2vec.training.recipe import Recipe, load_recipe
from event2vec.training.run import Run
from event2vec.training.timing import training_step
from event2vec.training.train import gpus_of, open_training_data, start

FREE = ("drop_path", "forget_bias", "classes")  # model settings in which pre-training and training may differ


@dataclass(frozen=True)
class Setting:
    """What all rows of an experiment have in common."""

    data: str | Path | None
    workers: int = 1
    init: str | PathLike[str] | None = None  # a network to start from
    progress: Progress = SILENT
    pretrain: Recipe | None = None  # with this each row is pre-trained first, instead of `init`
    device: str | None = None  # where rows are evaluated; None: on the best device
    precision: str | None = None  # and in which number type; None: on CUDA that of the training
    cluster: Cluster | None = None  # where data is prepared and rows are trained side by side; None: here

    def __post_init__(self) -> None:
        if self.cluster:
            self.cluster.check_device(self.device)

    @property
    def how(self) -> dict[str, Any]:
        """How networks are evaluated."""
        return {
            "workers": self.workers,
            "device": self.device,
            "precision": self.precision,
            "progress": self.progress,
        }

    @property
    def source(self) -> str | Path | None:
        if self.data and is_address(self.data):
            return self.data
        return Path(os.path.realpath(self.data)) if self.data else None  # Path.resolve fails on links in a circle

    def open(self, recipe: Recipe, row: Row) -> EventStore:
        """The recordings of a row, prepared first if they have to be."""
        workers, engine = self.cluster or self.workers, engine_of(row.engine, row.iterations, recipe.sampling.seeding)
        return open_training_data(recipe, self.data, workers, self.progress, {}, engine).store


@dataclass(frozen=True)
class Reproduction:
    """A table of the paper on other data, and where it was written."""

    title: str
    results: list[RowResult]
    rows: list[dict[str, str]]  # as they are shown
    folder: Path


def experiment(
    name: str,
    data: str | Path | None = None,
    *,
    recipe: str | Path | Recipe = "digits",
    seeds: int = 3,
    epochs: int | None = None,
    init: str | PathLike[str] | None = None,
    pretrain: str | Path | None = None,
    out: str | Path | None = None,
    workers: int = 1,
    device: str | None = None,
    precision: str | None = None,
    cluster: str | Cluster | None = None,
    progress: Progress = SILENT,
) -> Reproduction:
    """Reproduce a table of the paper: train each row with several seeds, and set its accuracy beside the paper's.

        experiment("embeddings", recipe="digits", seeds=3).rows

    `name` is an experiment of the package or a YAML file, `recipe` what all rows have in common. `init` is a network
    that all rows start from; `pretrain` a recipe with which each row is pre-trained first, with its own model settings.
    A Ray `cluster` trains rows side by side. The same call resumes an experiment that was stopped. Where several
    processes train together, the first has results.
    """
    if init and pretrain:
        raise Event2VecError("init starts all rows from one network and pretrain each from its own; omit one of them")
    found, changes = load_experiment(name), {} if epochs is None else {"training.epochs": epochs}
    base = (recipe if isinstance(recipe, Recipe) else load_recipe(recipe)).with_settings(changes)
    first = None if init else choose_pretraining(found, base, pretrain)
    setting = Setting(
        data=data,
        workers=workers,
        init=init,
        progress=progress,
        pretrain=first.with_settings(changes) if first else None,
        device=device,
        precision=precision,
        cluster=Cluster.of(cluster),
    )
    folder = local_place(out) if out else Path("experiments") / f"{Path(name).stem}-{base.name}"
    results = run_experiment(found, base, setting, folder, seeds)
    if results:
        write_table(results, base.data.dataset, found.title, folder / "table")
    return Reproduction(found.title, results, table(results, base.data.dataset), folder)


def run_experiment(
    experiment: Experiment,
    recipe: Recipe,
    setting: Setting,
    folder: Path,
    seeds: int,
) -> list[RowResult]:
    """Train and evaluate what is missing in `folder`, row by row and seed by seed.

    Where several processes train together, only the first has results.
    """
    recipes = [recipe.with_settings(row.settings) for row in experiment.rows]  # all, before any: one may be wrong
    before = [
        changed.with_settings(row.pretrain) if row.pretrain else _pretraining(setting.pretrain, row, changed)
        for row, changed in zip(experiment.rows, recipes, strict=True)
    ]
    if any(row.engine == "faiss" for row in experiment.rows) and find_spec("faiss") is None:
        raise MissingExtra("clustering with Faiss", "faiss")
    own, trainings, pretrained = replace(setting, progress=SILENT, cluster=None), [], dict[str, Path]()
    for row, changed, first in zip(experiment.rows, recipes, before, strict=True):
        for seed in range(seeds):
            run, seeded = row_folder(folder, row, seed), {"training.seed": seed}
            pretraining, init = first.with_settings(seeded) if first else None, setting.init
            if pretraining:  # rows that are pre-trained alike share one
                asked = json.dumps(_asked(row, pretraining, setting, None))
                init = pretrained.setdefault(asked, folder / "pretrained" / run.name)
            recipe = changed.with_settings(seeded)
            trainings.append(_Training(experiment, row, recipe, own, run, init, pretraining))
    found = [*zip(trainings, _carry_out(trainings, setting), strict=True)]
    by_row = [
        (row, [result for training, result in found if training.row is row and result]) for row in experiment.rows
    ]
    return [RowResult.of(row, judged) for row, judged in by_row if judged]


def row_folder(folder: Path, row: Row, seed: int) -> Path:
    """Where the run of a row with this seed is, in the folder of its experiment."""
    return folder / f"{row.name.replace(' ', '_')}-{seed}"


@dataclass(frozen=True)
class _Training:
    """One row with one seed, which may be trained on another machine."""

    experiment: Experiment
    row: Row
    recipe: Recipe
    setting: Setting
    run: Path
    init: str | PathLike[str] | None
    pretraining: Recipe | None  # the recipe that makes `init`

    @property
    def name(self) -> str:
        return f"{self.row.name}, seed {self.recipe.training.seed}"

    @property
    def is_timed(self) -> bool:
        """No seed changes the speed."""
        return self.recipe.training.seed == 0 and (self.row.paper_ms is not None or self.experiment.speed)

    @property
    def needs(self) -> list[Recipe]:
        """The recipes whose data is read; none if it is finished."""
        if Layout(self.run).row_result.is_file():
            return []
        before = [self.pretraining] if self.pretraining else []
        return [*before, self.recipe, *([_unclustered(self.recipe)] if self.is_timed else [])]


def _unclustered(recipe: Recipe) -> Recipe:
    return recipe.with_settings({"sampling.method": "random", "sampling.clusterings": 1})


def _carry_out(trainings: Sequence[_Training], setting: Setting) -> list[RunResult | None]:
    progress, cluster = setting.progress, setting.cluster
    gpus = max(gpus_of(training.recipe, cluster) for training in trainings)
    if cluster:  # what several trainings need comes first: each by itself would let the others wait
        for training in trainings:
            for recipe in training.needs:
                setting.open(recipe, training.row)
        first = {training.init: training for training in trainings if training.pretraining}
        with progress.stage("pre-training", len(first)):
            names = [training.name for training in first.values()]
            do_pieces(_pretrain, list(first.values()), names, cluster, progress, gpus=gpus)

    def say(number: int, result: RunResult | None) -> None:
        if result:
            accuracy = f"{100 * result.accuracy:.2f} %, 95 % interval {result.interval.percent()} %"
            progress.say(f"{trainings[number].name}: {accuracy}")

    with progress.stage("all rows", len(trainings)):
        names = [training.name for training in trainings]
        return do_pieces(_one_run, trainings, names, cluster, progress, found=say, gpus=gpus)


def _pretraining(pretrain: Recipe | None, row: Row, recipe: Recipe) -> Recipe | None:
    """The recipe that pre-trains a row: with the row's model settings, and of a network that fits."""
    if pretrain is None:
        return None
    changes = {name: value for name, value in row.settings.items() if name.startswith("model.")}
    pretrain = pretrain.with_settings(changes)
    for name in (setting.name for setting in fields(recipe.model) if setting.name not in FREE):
        theirs, ours = getattr(pretrain.model, name), getattr(recipe.model, name)
        if theirs != ours:
            raise Event2VecError(
                f"pre-training with {pretrain.name} does not fit {row.name}: model.{name} is {theirs} there and {ours} "
                f"in {recipe.name}. Use the same model settings in both"
            )
    return pretrain


def _pretrain(training: _Training, progress: Progress) -> None:
    """Make the network that a training starts from, unless it is there."""
    recipe, setting = training.pretraining, replace(training.setting, progress=progress)
    assert recipe is not None
    assert training.init is not None
    run = Path(training.init)
    asked = _asked(training.row, recipe, setting, None)
    if not _is_finished(run, asked):
        _train(training.row, recipe, setting, run, "pretrain", None, asked)
        if is_first_rank():
            write_json(Layout(run).row_result, {"seconds": sum(epoch["seconds"] for epoch in Run.open(run).metrics)})


def _one_run(training: _Training, progress: Progress) -> RunResult | None:
    """What a finished run found, or what this one finds, once it is trained; None in all processes but the first."""
    if training.pretraining:
        _pretrain(training, progress)
    training = replace(training, setting=replace(training.setting, progress=progress))
    row, recipe, setting, run, init = training.row, training.recipe, training.setting, training.run, training.init
    asked = _asked(row, recipe, setting, init)
    finished = _is_finished(run, asked)
    if not finished:
        _train(row, recipe, setting, run, "train", init, asked)
    if not is_first_rank():
        return None
    if finished:
        return RunResult.read(Layout(run).row_result)
    result = _judge(training)
    result.write(Layout(run).row_result)
    return result


def _asked(row: Row, recipe: Recipe, setting: Setting, init: str | PathLike[str] | None) -> dict[str, Any]:
    return {
        "recipe": recipe.to_yaml(),
        "data": str(setting.source) if setting.data else None,
        "init": whole_name(init),
        "clusters": f"{row.engine} {row.iterations}",
    }


def _note(run: Path) -> Path:
    """Beside the run: a training begins in an empty folder."""
    return run.with_name(f"{run.name}.asked.json")


def _is_finished(run: Path, asked: dict[str, Any]) -> bool:
    """Whether a run has a result, of what is asked for now."""
    if _note(run).is_file() and read_json(_note(run)) != asked:
        raise FileError(run, "was started with other settings or data. Choose another `out`, or remove it")
    return Layout(run).row_result.is_file()


def _train(
    row: Row,
    recipe: Recipe,
    setting: Setting,
    run: Path,
    task: Task,
    init: str | PathLike[str] | None,
    asked: dict[str, Any],
) -> None:
    begun = not Run(run).can_start
    if not begun:
        _check_test_part(recipe.divide(setting.open(recipe, row)))
    if is_first_rank():
        write_json(_note(run), asked)
    if begun:
        Run.open(run).resume(workers=setting.workers, progress=setting.progress)
    else:
        engine = engine_of(row.engine, row.iterations, recipe.sampling.seeding)
        start(task, recipe, setting.data, run, init, setting.workers, setting.progress, engine=engine)


def _check_test_part(store: EventStore) -> None:
    """Before a training whose network could not be judged."""
    if "test" not in store.splits:
        found = ", ".join(sorted(set(store.splits)))
        raise FileError(
            store.folder, f"has no test part, which networks are judged on, only {found}. Prepare it with one"
        )


def _judge(training: _Training) -> RunResult:
    experiment, row, recipe, setting = training.experiment, training.row, training.recipe, training.setting
    opened = Run.open(training.run)
    evaluation = opened.evaluate(repeats=experiment.repeats, **setting.how)
    compute = opened.compute(setting.device, setting.precision)
    model = opened.model().to(compute.device)
    timed = None
    if training.is_timed:
        raw = opened.raw_store(None, setting.workers, setting.progress, "test").split("test")
        chosen = evenly_spaced(raw, experiment.timed)
        clustering = _time_clustering(row, chosen, recipe.sampling) if row.paper_ms is not None else None
        speed = memory = None
        if experiment.speed:
            speed = measure_speed(model, chosen, training_step(model, recipe, compute), compute)
            memory = None if compute.counts_memory else bytes_of_answer(model, chosen[0]) / 2**20
        timed = Timed(len(chosen), clustering, speed, memory)
    epochs = _epochs(training)
    seconds, parameters = sum(epoch["seconds"] for epoch in epochs), count_parameters(model)
    return RunResult(evaluation.accuracies, evaluation.recordings, parameters, seconds, len(epochs), timed)


def _epochs(training: _Training) -> list[dict[str, Any]]:
    """The epochs of a run; those of pre-training count for a row of which they are a part."""
    before = Run.open(Path(training.init)).metrics if training.row.pretrain and training.init else []
    return [*before, *Run.open(training.run).metrics]


def evenly_spaced(store: EventStore, most: int) -> list[Events]:
    """At most this many recordings of a store, from its first to its last; those without events are left out."""
    filled = np.flatnonzero(store.lengths)
    places = np.linspace(0, len(filled) - 1, min(len(filled), most)).round().astype(int)
    return [store[int(index)][0] for index in filled[places]]


def _time_clustering(row: Row, recordings: list[Events], sampling: Sampling) -> Figure:
    """Over recordings, in milliseconds."""
    engine, length = engine_of(row.engine, row.iterations, sampling.seeding), sampling.length
    engine(recordings[0], length)  # the first call loads the code
    return Figure.of([1e3 * seconds_of(partial(engine, events, length)) for events in recordings])
