"""Compare networks on your data: each is trained and judged in the same way, with the paper's figures beside ours.

All share data, splits, augmentation, label smoothing and the time that they are trained for; sampling, sizes and
learning rates are those of each network's recipe. Rows whose result is there are not repeated, and one that was stopped
is resumed: a comparison is an experiment whose rows are networks.
"""

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from event2vec.atomic import whole_file
from event2vec.baselines import NETWORKS
from event2vec.cluster import Cluster
from event2vec.data.addresses import local_place
from event2vec.documents import RECIPES, write_json
from event2vec.errors import Event2VecError
from event2vec.evaluation.figures.comparison import Dot, draw_comparison, draw_sweeps
from event2vec.evaluation.speed import INCLUDED
from event2vec.evaluation.sweeps import Point
from event2vec.names import nearest, shown
from event2vec.progress import SILENT, Progress
from event2vec.settings import plain_settings
from event2vec.studies.experiment import Setting, run_experiment
from event2vec.studies.experiment_file import Experiment
from event2vec.studies.published import PUBLISHED, Published
from event2vec.studies.tables import Row, RowResult, figure_text, markdown, spread_text
from event2vec.training.metrics import write_rows
from event2vec.training.recipe import Recipe, by_full_name, load_recipe
from event2vec.training.run import Run

OURS = "event2vec"
MINUTES = 5.0
TIMED = 100  # test recordings, evenly spaced, on which latency is measured
DRAWS = 3  # of the events that each network is tested with
STRATEGIES = ("random", "temporal", "spatial", "density")
Sweep = Literal["events", "resolution"]
FIGURES: dict[Sweep, str] = {
    "events": "Accuracy and number of events (Figure 3)",
    "resolution": "Accuracy and resolution (Figure 4)",
}
NOTE = (
    "95 % interval (Wilson): what other test recordings could give. ± over seeds: between trainings. ± over draws: "
    f"between {DRAWS} draws of the events of one network. -: there is only one. "
    f"{INCLUDED} Memory is what the network and one answer need."
)
PAPER_NOTE = (
    "The paper's figures are for its data sets, with larger networks, on a GPU; accuracies of other systems are as "
    "published, each with a protocol of its own. Sizes are in MB for some rows, in millions of parameters for others."
)


@dataclass(frozen=True)
class Comparison:
    """What each network came to, and where the tables and pictures are."""

    results: list[RowResult]
    rows: list[dict[str, str]]
    folder: Path


def compare(
    data: str | Path | None = None,
    networks: Sequence[str] | None = None,
    *,
    recipe: str | Path | Recipe = "folder",
    minutes: int | float | None = None,
    epochs: int | None = None,
    seeds: int = 1,
    out: str | Path | None = None,
    workers: int = 1,
    device: str | None = None,
    precision: str | None = None,
    cluster: str | Cluster | None = None,
    progress: Progress = SILENT,
) -> Comparison:
    """Train each network for the same minutes, or epochs, and judge it on the test recordings.

        compare("my_recordings/", ["event2vec", "frame_cnn", "max_former"], minutes=10, seeds=2).rows

    `networks` are `event2vec` and those of `event2vec.baselines.NETWORKS`, or recipes, such as `max_former_published`
    or a file; without them, all networks in their small size. `recipe` is that of `event2vec`, from which all rows have
    data set, augmentation and label smoothing. A Ray `cluster` trains rows side by side; times are then measured beside
    other work.
    """
    base = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
    names = [OURS, *NETWORKS] if networks is None else list(networks)
    rows = tuple(network_row(name, base, **_span(minutes, epochs)) for name in names)
    how: dict[str, Any] = {"workers": workers, "device": device, "precision": precision, "progress": progress}
    setting = Setting(data=data, cluster=Cluster.of(cluster), **how)
    folder = local_place(out) if out else _folder("compare", base, data)
    results = run_experiment(Experiment("", rows, speed=True, timed=TIMED, repeats=DRAWS), base, setting, folder, seeds)
    table = [_row(result) for result in results]
    if results:  # those of the first process, where several train together
        _write(results, table, folder)
    return Comparison(results, table, folder)


def compare_sweep(
    kind: Sweep,
    data: str | Path | None = None,
    values: Sequence[int] | None = None,
    *,
    recipe: str | Path | Recipe = "folder",
    minutes: int | float | None = None,
    epochs: int | None = None,
    out: str | Path | None = None,
    repeats: int = 3,
    workers: int = 1,
    device: str | None = None,
    precision: str | None = None,
    cluster: str | Cluster | None = None,
    progress: Progress = SILENT,
) -> dict[str, list[Point]]:
    """Accuracy against the number of events (Figure 3) or the resolution (Figure 4), of each network.

    For Figure 3, a voxel grid with each sampling strategy and event2vec on random events, and again on what its recipe
    reads; for Figure 4, Max-Former, whose frames are scaled down and up again, and event2vec.
    """
    base = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
    span = _span(minutes, epochs)
    rows = _rows_of_figure(kind, base, span)
    how: dict[str, Any] = {"workers": workers, "device": device, "precision": precision, "progress": progress}
    setting = Setting(data=data, cluster=Cluster.of(cluster), **how)
    folder = local_place(out) if out else _folder(f"compare-{kind}", base, data)
    run_experiment(Experiment("", rows), base, setting, folder, seeds=1)
    found = {}
    for row in rows:
        run = Run.open(folder / f"{row.name.replace(' ', '_')}-0")
        found[row.name] = run.sweep(kind, values or _values(kind, run.recipe), repeats=repeats, **how)
    draw_sweeps(found, kind, folder / f"{kind}.png", FIGURES[kind])
    write_rows(folder / f"{kind}.csv", [{"network": name} | each.facts(kind) for name in found for each in found[name]])
    return found


def network_row(name: str, base: Recipe, **settings: Any) -> Row:
    """A row of a comparison: what differs from the recipe of event2vec, and the paper's figures."""
    if name == OURS:
        return Row(name, dict(settings), {})
    if name in RECIPES.names() or Path(name).suffix in (".yaml", ".yml"):
        changes = _differences(load_recipe(name))
    elif name in NETWORKS:
        changes = {"model.network": name, "objective.token_mix": 0.0}
    else:
        known = [OURS, *NETWORKS]
        problem = f"unknown network {shown(name)}{nearest(name, known)}; expected {', '.join(known)}, or a recipe"
        raise Event2VecError(problem)
    return Row(Path(name).stem, changes | settings, {})


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


def _rows_of_figure(kind: Sweep, base: Recipe, span: dict[str, Any]) -> tuple[Row, ...]:
    if kind == "resolution":
        return tuple(network_row(name, base, **span) for name in (OURS, "max_former"))
    length = base.sampling.length
    by_strategy = []
    for strategy in STRATEGIES:
        sampling = {"sampling.method": strategy, "sampling.length": length}
        row = network_row("voxel_grid", base, **sampling, **span)
        by_strategy.append(Row(f"voxel grid {strategy}", row.settings, {}))
    at_random = {"sampling.method": "random", "sampling.length": length, "sampling.clusterings": 1}
    ours = Row(f"{OURS} random", at_random | span, {})
    as_it_is = () if base.sampling.method == "random" else (Row(f"{OURS} {base.sampling.method}", span, {}),)
    return (*by_strategy, ours, *as_it_is)


def _values(kind: Sweep, recipe: Recipe) -> list[int]:
    """From few to what the network was trained with, each twice the one before."""
    most = recipe.sampling.length if kind == "events" else max(recipe.model.sensor.width, recipe.model.sensor.height)
    least = max(most // 32, 2) if kind == "events" else 1
    values = [least]
    while 2 * values[-1] < most:
        values.append(2 * values[-1])
    return [*values, most]


def _span(minutes: int | float | None, epochs: int | None) -> dict[str, Any]:
    """How long all rows are trained."""
    if minutes is not None and epochs is not None:
        raise Event2VecError("minutes and epochs exclude each other; omit one of them")
    if epochs is not None:
        return {"training.epochs": epochs, "training.minutes": 0.0}
    return {"training.minutes": MINUTES if minutes is None else float(minutes)}


def _folder(what: str, base: Recipe, data: str | Path | None) -> Path:
    return Path("experiments") / f"{what}-{Path(data).resolve().name if data else base.name}"


def _published(result: RowResult) -> Published:
    network = result.row.settings.get("model.network", OURS)
    return PUBLISHED.get(network, Published(network))


def _row(result: RowResult) -> dict[str, str]:
    """The columns of Tables 1 and 2, ours first."""
    paper, timed = _published(result), result.timed
    speed = timed.speed if timed else None
    assert timed is not None
    assert speed is not None
    memory = timed.memory if speed.gpu_memory is None else speed.gpu_memory
    return {
        "network": result.row.name,
        "method": paper.method,
        "accuracy (%)": f"{100 * result.accuracy:.2f}",
        "95 % interval": result.interval.percent(),
        "± over seeds": spread_text(result.std_over_seeds),
        "± over draws": spread_text(result.std_over_draws),
        "parameters": f"{result.parameters:,}",
        "minutes": f"{result.seconds / 60:.2f}",
        "training (recordings/s)": figure_text(speed.training.rate, 1),
        "inference (recordings/s)": figure_text(speed.inference.rate, 1),
        "preparing (ms)": figure_text(speed.preparing, 2),
        "forward (ms)": figure_text(speed.forward, 2),
        "total (ms)": figure_text(speed.total, 2),
        "memory (MB)": "-" if memory is None else f"{memory:,.0f}",
        "paper: data set": paper.dataset,
        "paper: accuracy (%)": paper.accuracy,
        "paper: size": paper.size,
        "paper: training (recordings/s)": paper.training,
        "paper: inference (recordings/s)": paper.inference,
        "paper: preparing + forward = total (ms)": paper.latency,
        "paper: GPU memory (MB)": paper.memory,
    }


def _write(results: Sequence[RowResult], rows: list[dict[str, str]], folder: Path) -> None:
    """The table as CSV, Markdown, JSON and a page, and the pictures."""
    title = f"{len(rows)} networks on {results[0].recordings:,} test recordings"
    write_rows(folder / "table.csv", rows)
    write_json(folder / "table.json", {"title": title, "rows": [each.facts() for each in results]})
    for suffix, text in (
        (".md", "\n".join([f"# {title}", "", *markdown(rows), "", NOTE, "", PAPER_NOTE, ""])),
        (".html", _page(title, rows, _pictures(results, folder))),
    ):
        with whole_file(folder / f"table{suffix}") as temporary:
            temporary.write_text(text, "utf-8")


def _pictures(results: Sequence[RowResult], folder: Path) -> list[Path]:
    """Accuracy against parameters, minutes and latency, each on a logarithmic axis."""
    figures = {"parameters": "parameters", "minutes": "minutes of training", "latency": "ms for one recording"}
    paths = []
    for name, axis in figures.items():
        dots = []
        for result in results:
            assert result.timed is not None
            assert result.timed.speed is not None
            values = {
                "parameters": result.parameters,
                "minutes": result.seconds / 60,
                "latency": result.timed.speed.total.mean,
            }
            dots.append(Dot(result.row.name, values[name], result.accuracy, result.interval, result.row.name == OURS))
        paths.append(folder / f"accuracy_{name}.png")
        draw_comparison(dots, axis, paths[-1])
    return paths


WIDE = (
    "body { max-width: none } td { white-space: nowrap } .wide { overflow-x: auto } .best { font-weight: bold } "
    "td:nth-child(2), th:nth-child(2) { text-align: left }"
)
STYLE = Path(__file__).parent / "report" / "style.css"


def _page(title: str, rows: list[dict[str, str]], pictures: Sequence[Path]) -> str:
    """One file that loads nothing else."""
    heads = "".join(f"<th>{html.escape(head)}</th>" for head in rows[0])
    best = max(float(row["accuracy (%)"]) for row in rows)
    lines = []
    for row in rows:
        kind = " class=best" if float(row["accuracy (%)"]) == best else ""
        lines.append(f"<tr{kind}>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row.values()) + "</tr>")
    images = "".join(
        f"<img alt='{path.stem.replace('_', ' against ')}' src='data:image/svg+xml;base64,"
        f"{base64.b64encode(path.with_suffix('.svg').read_bytes()).decode('ascii')}'>"
        for path in pictures
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>"
        f"<style>{STYLE.read_text('utf-8')}{WIDE}</style>"
        f"<h1>{html.escape(title)}</h1><div class=wide><table><tr>{heads}</tr>{''.join(lines)}</table></div>"
        f"<p>{NOTE}</p><p>{PAPER_NOTE}</p>{images}</html>\n"
    )
