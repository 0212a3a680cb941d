"""A table of the paper from one call: train each row with several seeds, evaluate, and compare with the paper.

Some rows have their clusters made by another engine, some experiments measure speed too, and rows may be pre-trained
first, each with its own model settings. Runs that are finished are not repeated, and one that was stopped is resumed.
Where several processes train together, the first one evaluates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

from event2vec.cluster import Cluster, do_pieces
from event2vec.data.addresses import local_place
from event2vec.errors import Event2VecError, MissingExtra
from event2vec.execution import Execution, ExecutionOptions
from event2vec.progress import SILENT
from event2vec.studies.experiment_file import Experiment, choose_pretraining, load_experiment
from event2vec.studies.results import RunResult
from event2vec.studies.row_run import RowRun, Setting
from event2vec.studies.tables import Row, RowResult, table, write_table
from event2vec.training.recipe import Recipe, load_recipe
from event2vec.training.train import gpus_of

# Model settings in which pre-training and training may differ.
FREE = ("drop_tokens", "drop_path", "forget_bias", "classes")


@dataclass(frozen=True)
class Reproduction:
    """A table of the paper on other data, and where it was written."""

    title: str
    results: list[RowResult]
    rows: list[dict[str, str]]  # as they are shown
    folder: Path

    def facts(self) -> dict[str, Any]:
        """All figures in full, for JSON."""
        return {"folder": str(self.folder), "title": self.title, "rows": [each.facts() for each in self.results]}


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
    cluster: str | Cluster | None = None,
    **how: Unpack[ExecutionOptions],
) -> Reproduction:
    """Reproduce a table of the paper: train each row with several seeds, and set its accuracy beside the paper's.

        experiment("embeddings", recipe="digits", seeds=3).rows

    `name` is an experiment of the package or a YAML file, `recipe` what all rows have in common. `init` is a network
    that all rows start from; `pretrain` a recipe with which each row is pre-trained first, with its own model settings.
    A Ray `cluster` trains rows side by side; `how` is `workers`, `device`, `precision` and `progress`. The same call
    resumes an experiment that was stopped. Where several processes train together, the first has results.
    """
    if init and pretrain:
        raise Event2VecError("init starts all rows from one network and pretrain each from its own; omit one of them")
    found, changes = load_experiment(name), {} if epochs is None else {"training.epochs": epochs}
    base = (recipe if isinstance(recipe, Recipe) else load_recipe(recipe)).with_settings(changes)
    first = None if init else choose_pretraining(found, base, pretrain)
    first = first.with_settings(changes) if first else None
    setting = Setting(data, init, first, Execution(**how), Cluster.of(cluster))
    folder = local_place(out) if out else Path("experiments") / f"{Path(name).stem}-{base.name}"
    results = run_experiment(found, base, setting, folder, seeds)
    if results:
        write_table(results, base.data.dataset, found.title, folder / "table")
    return Reproduction(found.title, results, table(results, base.data.dataset), folder)


def run_experiment(
    experiment: Experiment, recipe: Recipe, setting: Setting, folder: Path, seeds: int
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
    own, runs, pretrained = setting.within_task(SILENT), list[RowRun](), dict[str, RowRun]()
    for row, changed, pretraining in zip(experiment.rows, recipes, before, strict=True):
        for seed in range(seeds):
            place, seeded = row_folder(folder, row, seed), {"training.seed": seed}
            first, init = None, setting.init
            if pretraining:  # rows that are pre-trained alike share one
                there = folder / "pretrained" / place.name
                first = RowRun(experiment, row, pretraining.with_settings(seeded), own, there, task="pretrain")
                first = pretrained.setdefault(first.identity, first)
                init = first.folder
            runs.append(RowRun(experiment, row, changed.with_settings(seeded), own, place, init, first))
    found = [*zip(runs, _carry_out(runs, setting), strict=True)]
    by_row = [(row, [result for run, result in found if run.row is row and result]) for row in experiment.rows]
    return [RowResult.of(row, judged) for row, judged in by_row if judged]


def row_folder(folder: Path, row: Row, seed: int) -> Path:
    """Where the run of a row with this seed is, in the folder of its experiment."""
    return folder / f"{row.name.replace(' ', '_')}-{seed}"


def _carry_out(runs: Sequence[RowRun], setting: Setting) -> list[RunResult | None]:
    progress, cluster = setting.how.progress, setting.cluster
    gpus = max(gpus_of(run.recipe, cluster) for run in runs)
    if cluster:  # what several runs need comes first: each by itself would let the others wait
        for run in runs:
            for recipe in run.needs:
                setting.open(recipe, run.row)
        first = {each.first.identity: each.first for each in runs if each.first}
        with progress.stage("pre-training", len(first)):
            names = [each.name for each in first.values()]
            do_pieces(RowRun.finish_pretraining, list(first.values()), names, cluster, progress, gpus=gpus)

    def say(number: int, result: RunResult | None) -> None:
        if result:
            accuracy = f"{100 * result.accuracy:.2f} %, 95 % interval {result.interval.percent()} %"
            progress.say(f"{runs[number].name}: {accuracy}")

    with progress.stage("all rows", len(runs)):
        names = [run.name for run in runs]
        return do_pieces(RowRun.finish, runs, names, cluster, progress, found=say, gpus=gpus)


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
