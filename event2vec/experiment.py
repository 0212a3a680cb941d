"""A table of the paper from one call: train each row with several seeds, evaluate, and set the paper's figures beside.

An experiment is a YAML file: a title, the data set of the paper's figures, and rows of changes to a recipe. Some rows
have their clusters made by another engine, some experiments measure speed too. Runs that are finished are not repeated,
and one that was stopped goes on.
"""

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from event2vec.atomic import whole_file
from event2vec.benchmark.model import measure_speed
from event2vec.checkpoint import load_model
from event2vec.clustering import cluster_events
from event2vec.errors import Event2VecError, FileError
from event2vec.evaluate import Evaluation, evaluate
from event2vec.events import Events
from event2vec.kmeans_baselines import cluster_faiss, cluster_sklearn
from event2vec.model import count_parameters
from event2vec.prepare import open_for_training
from event2vec.recipe import Recipe
from event2vec.repeats import Repeated
from event2vec.runs import RECIPE, write_rows
from event2vec.sampling import Sampling
from event2vec.store import EventStore, StoreWriter

FOLDER = Path(__file__).parent / "experiments"
RESULT = "result.json"


ENGINES: dict[str, Callable[..., Events]] = {
    "ours": cluster_events,
    "scikit-learn": cluster_sklearn,
    "faiss": cluster_faiss,
}
TIMED = 10  # test recordings on which speed is measured


@dataclass(frozen=True)
class Row:
    """One line of the table: what is changed, and what the paper reports for it."""

    name: str
    settings: dict[str, Any]
    paper: str
    engine: str | None = None  # what makes the clusters, of `ENGINES`
    iterations: int = 20  # of that engine
    paper_ms: str = "-"  # for clustering one recording

    def __post_init__(self) -> None:
        if self.engine is not None and self.engine not in ENGINES:
            raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {self.engine!r}")


@dataclass(frozen=True)
class Experiment:
    title: str
    paper: str  # the data set of the paper's figures
    rows: tuple[Row, ...]
    speed: bool = False  # whether throughput and latency are measured too


@dataclass(frozen=True)
class RowResult(Repeated):
    """What the seeds of a row came to."""

    row: Row
    accuracies: tuple[float, ...]
    parameters: int
    seconds: float  # of training and evaluating one seed, on average
    measured: dict[str, str]  # further columns of the table

    @property
    def percent(self) -> str:
        spread = f" ± {100 * self.accuracy_std:.2f}" if len(self.accuracies) > 1 else ""
        return f"{100 * self.accuracy:.2f}{spread}"


def experiment_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_experiment(name_or_path: str) -> Experiment:
    """An experiment of the package by its name, or any other by its file."""
    path = Path(name_or_path)
    path = path if path.suffix in (".yaml", ".yml") else FOLDER / f"{name_or_path}.yaml"
    if not path.is_file():
        known = ", ".join(experiment_names())
        raise Event2VecError(
            f"unknown experiment {name_or_path!r}; there are {known}, or name a file that ends in .yaml"
        )
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
        rows = tuple(Row(**row) for row in content.pop("rows"))
        return Experiment(rows=rows, **content)
    except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise FileError(
            path, f"is no experiment: expected title, paper and rows of name, settings, paper ({error})"
        ) from None


def run_experiment(
    experiment: Experiment,
    recipe: Recipe,
    data: str | None,
    folder: Path,
    seeds: int,
    workers: int = 1,
    tell: Callable[[str], None] = lambda line: None,
) -> list[RowResult]:
    """Train and evaluate what is missing in `folder`, row by row and seed by seed."""
    results = []
    for row in experiment.rows:
        changed = recipe.with_settings(row.settings)  # before anything is trained: a row may be wrong
        found = []
        for seed in range(seeds):
            run = folder / f"{row.name.replace(' ', '_')}-{seed}"
            facts = _one_run(experiment, row, changed.with_settings({"training.seed": seed}), data, run, workers)
            tell(f"{row.name}, seed {seed}: {100 * facts['accuracy']:.2f} %")
            found.append(facts)
        accuracies = tuple(facts["accuracy"] for facts in found)
        seconds = float(np.mean([facts["seconds"] for facts in found]))
        results.append(RowResult(row, accuracies, found[0]["parameters"], seconds, _measured(experiment, row, found)))
    return results


def _one_run(
    experiment: Experiment, row: Row, recipe: Recipe, data: str | None, run: Path, workers: int
) -> dict[str, Any]:
    from event2vec.training import resume_run, start_run

    settings, source = recipe.to_yaml(), str(Path(data).resolve()) if data else None
    if (run / RESULT).is_file():
        facts: dict[str, Any] = json.loads((run / RESULT).read_text("utf-8"))
        if (facts["recipe"], facts["data"]) != (settings, source):
            raise FileError(run, "is the result of other settings or data. Choose another --out, or remove it")
        return facts
    began = time.monotonic()
    if row.engine is not None:
        made = run.parent / f"clusters-{row.engine}-{row.iterations}-{recipe.sampling.length}"
        store = _cluster_all(row, recipe, data, made, workers)
    else:
        store = open_for_training(data, recipe.data.dataset, recipe.sampling, workers).store
    if (run / RECIPE).is_file():
        resume_run(run)
    else:
        shutil.rmtree(run, ignore_errors=True)  # stopped before it began
        start_run(recipe, store, run, "train")
    model = load_model(run)
    evaluation: Evaluation = evaluate(model, store.split("test"))
    facts = {
        "recipe": settings,
        "data": source,
        "accuracy": evaluation.accuracy,
        "accuracy_std": evaluation.accuracy_std,
    }
    facts |= {"parameters": count_parameters(model), "seconds": time.monotonic() - began}
    if row.engine is not None:
        facts["clustering_ms"] = store.facts["clustering_ms"]
    if experiment.speed:
        raw = open_for_training(data, recipe.data.dataset, Sampling(), workers).store.split("test")
        facts["speed"] = measure_speed(model, [raw[index][0] for index in range(min(len(raw), TIMED))])
    with whole_file(run / RESULT) as temporary:
        temporary.write_text(json.dumps(facts, indent=2) + "\n", "utf-8")
    return facts


def _cluster_all(row: Row, recipe: Recipe, data: str | None, folder: Path, workers: int) -> EventStore:
    """A store of clusters that the engine of a row made, one recording after the other, and how long each took."""
    if folder.exists():
        return EventStore.open(folder)
    raw = open_for_training(data, recipe.data.dataset, Sampling(), workers).store
    taken: list[float] = []
    with StoreWriter(folder, sensor=raw.sensor, classes=raw.classes) as writer:
        for index in range(len(raw)):
            events, label = raw[index]
            began = time.perf_counter()
            clusters = ENGINES[str(row.engine)](events, recipe.sampling.length, iterations=row.iterations)
            taken.append(1e3 * (time.perf_counter() - began))
            writer.append(clusters, label, raw.splits[index], raw.sources[index])
        tested = [ms for ms, split in zip(taken, raw.splits, strict=True) if split == "test"]
        writer.facts["clustering_ms"] = [float(np.mean(tested)), float(np.std(tested))]
    return EventStore.open(folder)


def _measured(experiment: Experiment, row: Row, found: list[dict[str, Any]]) -> dict[str, str]:
    """Columns that only some tables have; speeds are means over the seeds."""
    columns = {}
    if row.engine is not None:
        mean, deviation = found[0]["clustering_ms"]
        columns = {"clustering here (ms)": f"{mean:.2f} ± {deviation:.2f}", "paper (ms)": row.paper_ms}
    if experiment.speed:
        for name in ("training recordings/s", "inference recordings/s", "total ms"):
            value = np.mean([facts["speed"][name] for facts in found])
            columns["latency (ms)" if name == "total ms" else name] = f"{value:,.1f}"
    return columns


def table(experiment: Experiment, results: list[RowResult], ours: str) -> list[dict[str, str]]:
    """The paper's form: a row for each change, our figure and the paper's with the data set of each."""
    return [
        {
            "": result.row.name,
            f"accuracy on {ours} (%)": result.percent,
            f"paper, {experiment.paper} (%)": result.row.paper,
            **result.measured,
            "parameters": f"{result.parameters:,}",
            "seconds a run": f"{result.seconds:.0f}",
        }
        for result in results
    ]


def write_table(rows: list[dict[str, str]], title: str, path: Path) -> None:
    """As CSV and as Markdown."""
    write_rows(path.with_suffix(".csv"), rows)
    lines = [f"# {title}", "", *markdown(rows), ""]
    with whole_file(path.with_suffix(".md")) as temporary:
        temporary.write_text("\n".join(lines), "utf-8")


def markdown(rows: list[dict[str, str]]) -> list[str]:
    heads = list(rows[0])
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return lines + [f"| {' | '.join(row.values())} |" for row in rows]
