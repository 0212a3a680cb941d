"""A table of the paper from one call: train each row with several seeds, evaluate, and compare with the paper.

An experiment is a YAML file: a title, and rows of changes to a recipe with the paper's figures. Some rows
have their clusters made by another engine, some experiments measure speed too, and rows may be pre-trained first, each
with its own model settings. Runs that are finished are not repeated, and one that was stopped is resumed. Where several
processes train together, the first one evaluates.
"""

import json
import os
from dataclasses import dataclass, field, fields
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np

from event2vec.clustering.alternatives import engine_of
from event2vec.data.cache import open_for_training
from event2vec.data.sampling import Sampling
from event2vec.data.store import EventStore
from event2vec.documents import EXPERIMENTS, read_json, read_yaml, write_json
from event2vec.errors import Event2VecError, FileError, MissingExtra
from event2vec.evaluation.speed import Figure, bytes_of_answer, measure_speed, seconds_of
from event2vec.events import Events
from event2vec.model.classifier import count_parameters
from event2vec.names import shorten, shown
from event2vec.progress import SILENT, Progress
from event2vec.ranks import is_first_rank
from event2vec.studies.results import RESULT, RunResult, Timed
from event2vec.studies.tables import Row, RowResult
from event2vec.training.recipe import Recipe, load_recipe
from event2vec.training.run import Run

TIMED = 500  # test recordings, evenly spaced, on which times are measured; all, where there are no more
FREE = ("drop_path", "forget_bias", "classes")  # model settings in which pre-training and training may differ


@dataclass(frozen=True)
class Experiment:
    title: str
    rows: tuple[Row, ...]
    speed: bool = False  # whether throughput and latency are measured too
    pretrain: dict[str, str] = field(default_factory=dict)  # by data set: the recipe that pre-trains each row there
    timed: int = TIMED  # test recordings on which times are measured
    repeats: int = 10  # draws of the events that each network is tested with

    def __post_init__(self) -> None:
        if not isinstance(self.title, str):
            raise ValueError(f"title must be text, got {shown(self.title)}")
        if not self.rows or len({row.name for row in self.rows}) < len(self.rows):
            raise ValueError("rows must be one or more, each with a name of its own")
        if not isinstance(self.pretrain, dict):
            raise ValueError(f"pretrain must name a recipe for each data set, got {shown(self.pretrain)}")
        for name in (*self.pretrain, *self.pretrain.values()):
            if not isinstance(name, str):
                raise ValueError(f"pretrain must name data sets and recipes as text, got {shown(name)}")


def load_experiment(name_or_path: str) -> Experiment:
    """An experiment of the package by its name, or any other by its file."""
    path = EXPERIMENTS.find(name_or_path)
    content = read_yaml(path)
    try:
        rows = tuple(_read_row(**row) for row in content.pop("rows"))
        return Experiment(rows=rows, **content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        expected = "expected title and rows of name, settings, paper"
        raise FileError(path, f"is not an experiment: {expected} ({shorten(str(error))})") from None


def _read_row(*, paper: dict[str, Any], **row: Any) -> Row:
    """YAML takes 75.88 for a number; figures are kept as the paper writes them."""
    return Row(paper={name: shorten(str(value)) for name, value in paper.items()}, **row)


def choose_pretraining(experiment: Experiment, recipe: Recipe, named: str | None) -> Recipe | None:
    """The recipe that pre-trains each row: the one named, or the experiment's for this data set."""
    name = named or experiment.pretrain.get(recipe.data.dataset)
    return load_recipe(name) if name else None


@dataclass(frozen=True)
class Setting:
    """What all rows of an experiment have in common."""

    data: str | None
    workers: int = 1
    init: Path | None = None  # a network to start from
    progress: Progress = SILENT
    pretrain: Recipe | None = None  # with this each row is pre-trained first, instead of `init`
    device: str | None = None  # where rows are evaluated; None: on the best device
    precision: str | None = None  # and in which number type; None: on CUDA that of the training

    @property
    def source(self) -> Path | None:
        return Path(os.path.realpath(self.data)) if self.data else None  # Path.resolve fails on links in a circle

    def open(self, recipe: Recipe, row: Row) -> EventStore:
        return open_for_training(
            self.data,
            recipe.data.dataset,
            recipe.sampling,
            self.workers,
            self.progress,
            engine_of(row.engine, row.iterations, recipe.sampling.seeding),
            recipe.data.options,
        ).store


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
        _pretraining(setting.pretrain, row, changed) for row, changed in zip(experiment.rows, recipes, strict=True)
    ]
    if any(row.engine == "faiss" for row in experiment.rows) and find_spec("faiss") is None:
        raise MissingExtra("clustering with Faiss", "faiss")
    results, pretrained = [], dict[str, Path]()
    with setting.progress.stage("all rows", len(experiment.rows) * seeds):
        for number, (row, changed, first) in enumerate(zip(experiment.rows, recipes, before, strict=True)):
            found = []
            for seed in range(seeds):
                setting.progress.advance(number * seeds + seed, f"{row.name}, seed {seed}")
                name, seeded = f"{row.name.replace(' ', '_')}-{seed}", {"training.seed": seed}
                init = setting.init
                if first:
                    run = folder / "pretrained" / name
                    init = _pretrain(row, first.with_settings(seeded), setting, run, pretrained)
                found.append(_one_run(experiment, row, changed.with_settings(seeded), setting, folder / name, init))
            judged = [result for result in found if result is not None]
            if judged:
                results.append(RowResult.of(row, judged))
    return results


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


def _pretrain(row: Row, recipe: Recipe, setting: Setting, run: Path, known: dict[str, Path]) -> Path:
    """The run that pre-trained a row; rows that are pre-trained alike share one."""
    asked = _asked(row, recipe, setting, None)
    run = known.setdefault(json.dumps(asked), run)
    if not _is_finished(run, asked):
        _train(recipe, setting.open(recipe, row), setting, run, "pretrain", None, asked)
        if is_first_rank():
            write_json(run / RESULT, {"seconds": _seconds(run)})
    return run


def _one_run(
    experiment: Experiment, row: Row, recipe: Recipe, setting: Setting, run: Path, init: Path | None
) -> RunResult | None:
    """What a finished run found, or what this one finds, once it is trained; None in all processes but the first."""
    asked = _asked(row, recipe, setting, init)
    finished = _is_finished(run, asked)
    if not finished:
        _train(recipe, setting.open(recipe, row), setting, run, "train", init, asked)
    if not is_first_rank():
        return None
    result = RunResult.read(run / RESULT) if finished else _judge(experiment, row, recipe, setting, run)
    if not finished:
        result.write(run / RESULT)
    accuracy = f"{100 * result.accuracy:.2f} %, 95 % interval {result.interval.percent()} %"
    setting.progress.say(f"{row.name}, seed {recipe.training.seed}: {accuracy}")
    return result


def _asked(row: Row, recipe: Recipe, setting: Setting, init: Path | None) -> dict[str, Any]:
    return {
        "recipe": recipe.to_yaml(),
        "data": str(setting.source) if setting.data else None,
        "init": str(init.resolve()) if init else None,
        "clusters": f"{row.engine} {row.iterations}",
    }


def _note(run: Path) -> Path:
    """Beside the run: a training begins in an empty folder."""
    return run.with_name(f"{run.name}.asked.json")


def _is_finished(run: Path, asked: dict[str, Any]) -> bool:
    """Whether a run has a result, of what is asked for now."""
    if _note(run).is_file() and read_json(_note(run)) != asked:
        raise FileError(run, "was started with other settings or data. Choose another --out, or remove it")
    return (run / RESULT).is_file()


def _train(
    recipe: Recipe,
    store: EventStore,
    setting: Setting,
    run: Path,
    task: Literal["train", "pretrain"],
    init: Path | None,
    asked: dict[str, Any],
) -> None:
    begun = not Run(run).is_free
    if is_first_rank():
        write_json(_note(run), asked)
    if begun:
        Run.open(run).resume(progress=setting.progress)
    else:
        Run.start(recipe, store, run, task, init, setting.source, setting.progress)


def _judge(experiment: Experiment, row: Row, recipe: Recipe, setting: Setting, run: Path) -> RunResult:
    opened = Run.open(run)
    evaluation = opened.evaluate(
        repeats=experiment.repeats, device=setting.device, precision=setting.precision, progress=setting.progress
    )
    compute = opened.compute(setting.device, setting.precision)
    model = opened.model().to(compute.device)
    timed = None
    if recipe.training.seed == 0 and (row.paper_ms is not None or experiment.speed):  # no seed changes the speed
        whole = recipe.with_settings({"sampling.method": "random", "sampling.clusterings": 1})
        raw = setting.open(whole, row).split("test")
        chosen = evenly_spaced(raw, experiment.timed)
        clustering = _time_clustering(row, chosen, recipe.sampling) if row.paper_ms is not None else None
        speed = memory = None
        if experiment.speed:
            speed = measure_speed(model, chosen, compute)
            memory = None if compute.counts_memory else bytes_of_answer(model, chosen[0]) / 2**20
        timed = Timed(len(chosen), clustering, speed, memory)
    return RunResult(evaluation.accuracies, evaluation.recordings, count_parameters(model), _seconds(run), timed)


def _seconds(run: Path) -> float:
    return sum(epoch["seconds"] for epoch in Run.open(run).metrics)


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
