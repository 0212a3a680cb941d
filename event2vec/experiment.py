"""A table of the paper from one call: train each row with several seeds, evaluate, and set the paper's figures beside.

An experiment is a YAML file: a title, and rows of changes to a recipe with the paper's figures. Some rows
have their clusters made by another engine, some experiments measure speed too. Runs that are finished are not repeated,
and one that was stopped goes on.
"""

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from event2vec.atomic import whole_file
from event2vec.benchmark.measure import best_seconds
from event2vec.benchmark.model import measure_speed
from event2vec.checkpoint import load_model
from event2vec.documents import read_json, read_yaml
from event2vec.errors import Event2VecError, FileError, MissingExtra
from event2vec.evaluate import Evaluation, evaluate
from event2vec.events import Events
from event2vec.kmeans_baselines import ENGINES
from event2vec.model import count_parameters
from event2vec.names import UNPRINTABLE, shorten, shown
from event2vec.prepare import open_for_training
from event2vec.recipe import Recipe
from event2vec.repeats import Repeated
from event2vec.runs import METRICS, RECIPE, read_rows, write_facts, write_rows
from event2vec.stages import Stage, silently
from event2vec.store import EventStore

FOLDER = Path(__file__).parent / "experiments"
RESULT = "result.json"


TIMED = 20  # test recordings on which latency is measured


@dataclass(frozen=True)
class Row:
    """One line of the table: what is changed, and what the paper reports for it, data set by data set."""

    name: str
    settings: dict[str, Any]
    paper: dict[str, str]
    engine: str = "ours"  # what makes the clusters, of `ENGINES`
    iterations: int = 20  # of that engine
    paper_ms: str | None = None  # for clustering one recording

    def __post_init__(self) -> None:
        # The name becomes that of a folder.
        if not isinstance(self.name, str) or not self.name or "/" in self.name or UNPRINTABLE.search(self.name):
            raise ValueError(f"name must be text without a slash, got {shown(self.name)}")
        if not isinstance(self.settings, dict):
            raise ValueError(f"settings must be given by their names, got {shown(self.settings)}")
        if self.engine not in ENGINES:
            raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {shown(self.engine)}")
        if not isinstance(self.iterations, int) or not 1 <= self.iterations <= 10_000:
            raise ValueError(f"iterations must be from 1 to 10,000, got {shown(self.iterations)}")


@dataclass(frozen=True)
class Experiment:
    title: str
    rows: tuple[Row, ...]
    speed: bool = False  # whether throughput and latency are measured too

    def __post_init__(self) -> None:
        if not isinstance(self.title, str):
            raise ValueError(f"title must be text, got {shown(self.title)}")
        if not self.rows or len({row.name for row in self.rows}) < len(self.rows):
            raise ValueError("rows must be one or more, each with a name of its own")


@dataclass(frozen=True)
class RowResult(Repeated):
    """What the seeds of a row came to."""

    row: Row
    accuracies: tuple[float, ...]
    parameters: int
    seconds: float  # of training and evaluating one seed, on average
    measured: dict[str, str]  # further columns of the table


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
    content = read_yaml(path)
    try:
        rows = tuple(_read_row(**row) for row in content.pop("rows"))
        return Experiment(rows=rows, **content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        expected = "expected title and rows of name, settings, paper"
        raise FileError(path, f"is no experiment: {expected} ({shorten(str(error))})") from None


def _read_row(*, paper: dict[str, Any], **row: Any) -> Row:
    """YAML takes 75.88 for a number; figures are kept as the paper writes them."""
    return Row(paper={name: shorten(str(value)) for name, value in paper.items()}, **row)


@dataclass(frozen=True)
class Setting:
    """What all rows of an experiment have in common."""

    data: str | None
    workers: int = 1
    init: Path | None = None  # a network to start from
    watcher: Callable[[], AbstractContextManager[Any]] = nullcontext  # gives what is told how a training goes
    stage: Stage = silently  # tells of other long work

    @property
    def source(self) -> Path | None:
        return Path(self.data).resolve() if self.data else None

    def open(self, recipe: Recipe, row: Row) -> EventStore:
        with self.stage(f"preparing {recipe.data.dataset}") as progress:
            return open_for_training(
                self.data,
                recipe.data.dataset,
                recipe.sampling,
                self.workers,
                progress,
                clusterings=recipe.data.clusterings,
                engine=row.engine,
                iterations=row.iterations,
            ).store


def run_experiment(
    experiment: Experiment,
    recipe: Recipe,
    setting: Setting,
    folder: Path,
    seeds: int,
    tell: Callable[[str], None] = lambda line: None,
) -> list[RowResult]:
    """Train and evaluate what is missing in `folder`, row by row and seed by seed."""
    recipes = [recipe.with_settings(row.settings) for row in experiment.rows]  # all, before any: one may be wrong
    if any(row.engine == "faiss" for row in experiment.rows) and find_spec("faiss") is None:
        raise MissingExtra("clustering with Faiss", "faiss")
    results = []
    for row, changed in zip(experiment.rows, recipes, strict=True):
        found = []
        for seed in range(seeds):
            run = folder / f"{row.name.replace(' ', '_')}-{seed}"
            facts = _one_run(experiment, row, changed.with_settings({"training.seed": seed}), setting, run)
            tell(f"{row.name}, seed {seed}: {100 * facts['accuracy']:.2f} %")
            found.append(facts)
        accuracies = tuple(facts["accuracy"] for facts in found)
        seconds = float(np.mean([facts["seconds"] for facts in found]))
        results.append(RowResult(row, accuracies, found[0]["parameters"], seconds, _measured(experiment, row, found)))
    return results


def _one_run(experiment: Experiment, row: Row, recipe: Recipe, setting: Setting, run: Path) -> dict[str, Any]:
    """What a finished run found, or what this one finds, once it is trained."""
    asked = {
        "recipe": recipe.to_yaml(),
        "data": str(setting.source) if setting.data else None,
        "init": str(setting.init.resolve()) if setting.init else None,
        "clusters": f"{row.engine} {row.iterations}",
    }
    note = run.with_name(f"{run.name}.asked.json")  # beside it: a training begins in an empty folder
    if note.is_file() and read_json(note) != asked:
        raise FileError(run, "was begun with other settings or data. Choose another --out, or remove it")
    if (run / RESULT).is_file():
        return _read_result(run / RESULT)
    store = setting.open(recipe, row)
    if not (run / RECIPE).is_file():
        shutil.rmtree(run, ignore_errors=True)  # stopped before it began
    write_facts(note, asked)
    _train(recipe, store, setting, run)
    facts = _judge(experiment, row, recipe, setting, run, store)
    write_facts(run / RESULT, facts)
    return facts


def _read_result(path: Path) -> dict[str, Any]:
    facts = read_json(path)
    if not all(isinstance(facts.get(name), int | float) for name in ("accuracy", "parameters", "seconds")):
        raise FileError(path, "is not what an experiment writes. Remove it, and the run is evaluated again")
    return facts


def _train(recipe: Recipe, store: EventStore, setting: Setting, run: Path) -> None:
    from event2vec.training import resume_run, start_run

    with setting.watcher() as watcher:
        if (run / RECIPE).is_file():
            resume_run(run, watcher)
        else:
            start_run(recipe, store, run, "train", setting.init, watcher, setting.source)


def _judge(
    experiment: Experiment, row: Row, recipe: Recipe, setting: Setting, run: Path, store: EventStore
) -> dict[str, Any]:
    model = load_model(run)
    with setting.stage("evaluating") as progress:
        evaluation: Evaluation = evaluate(model, store.split("test"), progress=progress)
    seconds = sum(epoch["seconds"] for epoch in read_rows(run / METRICS))
    facts: dict[str, Any] = {"accuracy": evaluation.accuracy, "accuracy_std": evaluation.accuracy_std}
    facts |= {"parameters": count_parameters(model), "seconds": seconds}
    if row.paper_ms is not None or experiment.speed:
        raw = setting.open(recipe.with_settings({"sampling.method": "random"}), row).split("test")
        timed = [raw[index][0] for index in range(0, len(raw), -(-len(raw) // TIMED))]
        if row.paper_ms is not None:
            facts["clustering_ms"] = _time_clustering(row, timed, recipe.sampling.length)
        if experiment.speed:
            facts["speed"] = measure_speed(model, timed)
    return facts


def _time_clustering(row: Row, recordings: list[Events], length: int) -> tuple[float, float]:
    """Mean and deviation over recordings, in milliseconds."""
    engine = partial(ENGINES[row.engine], iterations=row.iterations)
    engine(recordings[0], length)  # the first call loads the code
    taken = [1e3 * best_seconds({"": partial(engine, events, length)}, 1)[""] for events in recordings]
    return float(np.mean(taken)), float(np.std(taken))


def _measured(experiment: Experiment, row: Row, found: list[dict[str, Any]]) -> dict[str, str]:
    """Columns that only some tables have; speeds are means over the seeds."""
    columns = {}
    if row.paper_ms is not None:
        mean, deviation = found[0]["clustering_ms"]
        columns = {"clustering here (ms)": f"{mean:.2f} ± {deviation:.2f}", "paper (ms)": row.paper_ms}
    if experiment.speed:
        for name in ("training recordings/s", "inference recordings/s", "total ms"):
            value = np.mean([facts["speed"][name] for facts in found])
            columns["latency (ms)" if name == "total ms" else name] = f"{value:,.1f}"
    return columns


def table(results: list[RowResult], ours: str) -> list[dict[str, str]]:
    """The paper's form: a row for each change, our figure and the paper's with the data set of each."""
    return [
        {
            "": result.row.name,
            f"accuracy on {ours} (%)": result.percent(),
            **{f"paper, {name} (%)": figure for name, figure in result.row.paper.items()},
            **result.measured,
            "parameters": f"{result.parameters:,}",
            "seconds a run": f"{result.seconds:.0f}",
        }
        for result in results
    ]


NOTE = "± is the deviation over seeds in ours, and over ten draws of the events of one network in the paper's."


def write_table(rows: list[dict[str, str]], title: str, path: Path) -> None:
    """As CSV and as Markdown."""
    write_rows(path.with_suffix(".csv"), rows)
    lines = [f"# {title}", "", *markdown(rows), "", NOTE, ""]
    with whole_file(path.with_suffix(".md")) as temporary:
        temporary.write_text("\n".join(lines), "utf-8")


def markdown(rows: list[dict[str, str]]) -> list[str]:
    heads = list(rows[0])
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return lines + [f"| {' | '.join(row.values())} |" for row in rows]
