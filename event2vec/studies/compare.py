"""Compare networks on your data: each is trained and judged in the same way, with the paper's figures beside ours.

All share data, splits, augmentation, label smoothing and the time that they are trained for; sampling, sizes and
learning rates are those of each network's recipe. Rows whose result is there are not repeated, and one that was stopped
is resumed: a comparison is an experiment whose rows are networks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Unpack

from event2vec.arguments import several
from event2vec.baselines import NETWORKS
from event2vec.cluster import Cluster
from event2vec.data.addresses import local_place
from event2vec.documents import RECIPES
from event2vec.errors import Event2VecError
from event2vec.evaluation.figures.comparison import Line, draw_sweeps
from event2vec.evaluation.sweeps import Point
from event2vec.execution import Execution, ExecutionOptions
from event2vec.names import counted, nearest, shown
from event2vec.settings import plain_settings
from event2vec.studies.comparison_table import DRAWS, OURS, comparison_row, paper_facts, write_comparison
from event2vec.studies.experiment import row_folder, run_experiment
from event2vec.studies.experiment_file import Experiment
from event2vec.studies.row_run import Setting
from event2vec.studies.tables import Row, RowResult
from event2vec.training.metrics import write_rows
from event2vec.training.recipe import Recipe, by_full_name, load_recipe
from event2vec.training.run import Run

MINUTES = 5.0
TIMED = 100  # test recordings, evenly spaced, on which latency is measured
STRATEGIES = ("random", "temporal", "spatial", "density")
Sweep = Literal["events", "resolution"]
FIGURES: dict[Sweep, str] = {
    "events": "Accuracy and number of events (Figure 3)",
    "resolution": "Accuracy and resolution (Figure 4)",
}


@dataclass(frozen=True)
class Span:
    """How long each network is trained: for this many epochs, else for as many as fit into the minutes."""

    minutes: float
    epochs: int | None = None

    @classmethod
    def of(cls, minutes: int | float | None, epochs: int | None) -> "Span":
        if minutes is not None and epochs is not None:
            raise Event2VecError("minutes and epochs cannot be combined; omit one")
        if epochs is not None:
            return cls(0.0, epochs)
        return cls(MINUTES if minutes is None else float(minutes))

    @property
    def settings(self) -> dict[str, Any]:
        epochs = {} if self.epochs is None else {"training.epochs": self.epochs}
        return epochs | {"training.minutes": self.minutes}

    def __str__(self) -> str:
        return f"{self.minutes:g} minutes" if self.epochs is None else counted(self.epochs, "epoch")


@dataclass(frozen=True)
class Comparison:
    """The result of each network, and where the tables and pictures are."""

    results: list[RowResult]
    protocol: str  # how they were trained and where
    folder: Path

    @property
    def rows(self) -> list[dict[str, str]]:
        """As they are shown: what was measured, and the paper's figures."""
        return [comparison_row(result) for result in self.results]

    def facts(self) -> dict[str, Any]:
        """All figures in full, for JSON, the paper's beside them."""
        rows = [result.facts() | {"paper": paper_facts(result)} for result in self.results]
        return {"folder": str(self.folder), "protocol": self.protocol, "rows": rows}


def compare(
    data: str | Path | None = None,
    networks: str | Sequence[str] | None = None,
    *,
    recipe: str | Path | Recipe = "folder",
    minutes: int | float | None = None,
    epochs: int | None = None,
    seeds: int = 1,
    out: str | Path | None = None,
    cluster: str | Cluster | None = None,
    **how: Unpack[ExecutionOptions],
) -> Comparison:
    """Train each network for the same minutes, or epochs, and judge it on the test recordings.

        compare("my_recordings/", ["event2vec", "frame_cnn", "max_former"], minutes=10, seeds=2).rows

    `networks` are `event2vec` and those of `event2vec.baselines.NETWORKS`, or recipes, such as `max_former_published`
    or a file; without them, all networks in their small size. `recipe` is that of `event2vec`, from which all rows have
    data set, augmentation and label smoothing. Event MAE is pre-trained without labels for the first half of its time.
    A Ray `cluster` trains rows side by side; times are then measured beside other work. `how` is `workers`, `device`,
    `precision` and `progress`.
    """
    base = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
    names = [OURS, *NETWORKS] if networks is None else several(networks)
    span = Span.of(minutes, epochs)
    rows = tuple(network_row(name, base, span.settings) for name in names)
    if not rows or len({row.name for row in rows}) < len(rows):
        raise Event2VecError(
            f"networks must be one or more, each named once, got {', '.join(map(shown, names)) or 'none'}"
        )
    setting = Setting(data, how=Execution(**how), cluster=Cluster.of(cluster))
    folder = local_place(out) if out else _folder("compare", base, data)
    results = run_experiment(Experiment("", rows, speed=True, timed=TIMED, repeats=DRAWS), base, setting, folder, seeds)
    protocol = ""
    if results:  # those of the first process, where several train together
        protocol = _protocol(results, span, seeds, data or base.data.dataset, folder)
        write_comparison(results, protocol, folder)
    return Comparison(results, protocol, folder)


def compare_sweep(
    kind: Sweep,
    data: str | Path | None = None,
    values: int | Sequence[int] | None = None,
    *,
    recipe: str | Path | Recipe = "folder",
    minutes: int | float | None = None,
    epochs: int | None = None,
    out: str | Path | None = None,
    repeats: int = 3,
    cluster: str | Cluster | None = None,
    **how: Unpack[ExecutionOptions],
) -> dict[str, list[Point]]:
    """Accuracy against the number of events (Figure 3) or the resolution (Figure 4), of each network.

        compare_sweep("events", "my_recordings/", [64, 256, 1024], minutes=5)["voxel grid density"]

    For Figure 3, a voxel grid with each sampling strategy and event2vec on random events, and again on what its recipe
    reads; each is trained for every number of events that it is tested with. For Figure 4, Max-Former, whose
    frames are scaled down and up again, and event2vec, each trained once. All else is as in `compare`.
    """
    base = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
    span = Span.of(minutes, epochs)
    if kind == "events":
        curves = _curves_over_events(base, sorted(set(several(values or _counts(base)))), span)
    else:
        curves = _curves_over_pixels(base, sorted(set(several(values or ()))), span)
    rows = tuple(row for curve in curves for row, _ in curve.trained)
    setting = Setting(data, how=Execution(**how), cluster=Cluster.of(cluster))
    folder = local_place(out) if out else _folder(f"compare-{kind}", base, data)
    run_experiment(Experiment("", rows), base, setting, folder, seeds=1)
    found = dict[str, list[Point]]()
    for curve in curves:
        found[curve.name] = []
        for row, at in curve.trained:
            run = Run.open(row_folder(folder, row, 0))
            found[curve.name] += run.sweep(kind, at or _sides(run.recipe), repeats=repeats, **how)
    lines = [Line(curve.name, found[curve.name], curve.network == OURS) for curve in curves]
    draw_sweeps(lines, kind, folder / f"{kind}.png", FIGURES[kind])
    write_rows(folder / f"{kind}.csv", [{"network": name} | each.facts(kind) for name in found for each in found[name]])
    return found


def network_row(name: str, base: Recipe, settings: dict[str, Any]) -> Row:
    """A row of a comparison: what differs from the recipe of event2vec, with `settings` for all."""
    if name == OURS:
        return Row(name, settings, {})
    changes = _own_settings(name)
    first = f"{changes['model.network']}_pretrain"
    if first in RECIPES.names():
        return _pretrained_row(Path(name).stem, changes | settings, load_recipe(first))
    return Row(Path(name).stem, changes | settings, {})


def _own_settings(name: str) -> dict[str, Any]:
    """What a network's recipe says; without a recipe it reads events and learns as the frame CNN does."""
    if name in RECIPES.names() or Path(name).suffix in (".yaml", ".yml"):
        return _differences(load_recipe(name))
    if name in NETWORKS:
        usual = _differences(load_recipe("frame_cnn"))
        return {key: value for key, value in usual.items() if not key.startswith("model.")} | {"model.network": name}
    known = [OURS, *NETWORKS]
    problem = f"unknown network {shown(name)}{nearest(name, known)}; expected {', '.join(known)}, or a recipe"
    raise Event2VecError(problem)


def _pretrained_row(name: str, settings: dict[str, Any], first: Recipe) -> Row:
    """A row that is pre-trained without labels for the first half of its time; one epoch cannot be divided."""
    epochs, minutes = settings["training.epochs"], settings["training.minutes"]
    if not minutes and epochs == 1:
        return Row(name, settings, {})
    objective = {"objective": plain_settings(first.objective)}
    first_half = max(epochs // 2, 1)  # minutes decide how many they are, where they are given
    halves = {"training.epochs": first_half, "training.minutes": minutes / 2}
    own = settings | {"training.epochs": max(epochs - first_half, 1), "training.minutes": minutes / 2}
    return Row(name, own, {}, pretrain=dict(by_full_name(objective)) | halves)


def _differences(recipe: Recipe) -> dict[str, Any]:
    """The settings of a network's recipe that are its own: what it reads, its sizes and how it learns."""
    content = plain_settings(recipe)
    own = {
        "sampling": content["sampling"],
        "model": {name: value for name, value in content["model"].items() if name not in ("sensor", "classes")},
        "training": {name: value for name, value in content["training"].items() if name != "seed"},
        "objective": {"token_mix": content["objective"]["token_mix"]},
        "augment": {"forget_intensity": content["augment"]["forget_intensity"]},
    }
    return dict(by_full_name(own))


@dataclass(frozen=True)
class Curve:
    """A network in Figure 3 or 4."""

    name: str
    network: str
    trained: list[tuple[Row, Sequence[int]]]  # with the values that each is tested with; none: those that fit


def _curves_over_events(base: Recipe, counts: Sequence[int], span: Span) -> list[Curve]:
    """As published, each network is trained with as many events as it is tested with."""
    kinds = [(f"voxel grid {strategy}", "voxel_grid", strategy) for strategy in STRATEGIES]
    kinds += [(f"{OURS} {method}", OURS, method) for method in dict.fromkeys(("random", base.sampling.method))]
    curves = []
    for name, network, method in kinds:
        rows = []
        for count in counts:
            sampling = {"sampling.method": method, "sampling.length": count}
            sampling |= {} if method == base.sampling.method else {"sampling.clusterings": 1}
            rows.append(replace(network_row(network, base, sampling | span.settings), name=f"{name} {count}"))
        curves.append(Curve(name, network, [(row, [count]) for row, count in zip(rows, counts, strict=True)]))
    return curves


def _curves_over_pixels(base: Recipe, sides: Sequence[int], span: Span) -> list[Curve]:
    return [Curve(name, name, [(network_row(name, base, span.settings), sides)]) for name in (OURS, "max_former")]


def _counts(recipe: Recipe) -> list[int]:
    """Three numbers of events, up to what the recipe reads."""
    return [max(recipe.sampling.length // part, 2) for part in (16, 4, 1)]


def _sides(recipe: Recipe) -> list[int]:
    """From one pixel to the sensor that the network was trained with, each about twice the one before."""
    sides = [max(recipe.model.sensor.width, recipe.model.sensor.height)]
    while sides[0] > 1:
        sides.insert(0, sides[0] // 2)
    return sides


def _protocol(results: Sequence[RowResult], span: Span, seeds: int, data: str | Path, folder: Path) -> str:
    """How rows were trained, on what and where: by the first run, since others are alike."""
    here = Run.open(row_folder(folder, results[0].row, 0)).facts.environment
    machine = f"{counted(int(here['threads']), 'thread')} of {here.get('processor', here['machine'])}"
    first = [result.row.name for result in results if result.row.pretrain]
    half = f" {' and '.join(first)}: the first half of it is pre-training without labels." if first else ""
    on = shown(Path(data).resolve().name)
    return f"Trained for {span} each, {counted(seeds, 'seed')}, on {on}, with {machine}.{half}"


def _folder(what: str, base: Recipe, data: str | Path | None) -> Path:
    return Path("experiments") / f"{what}-{Path(data).resolve().name if data else base.name}"
