"""Tables as the paper has them: our figures with both deviations, the paper's beside them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from event2vec.clustering.alternatives import ENGINES
from event2vec.documents import write_json
from event2vec.evaluation.accuracy import Repeated, deviation
from event2vec.evaluation.speed import INCLUDED, Figure, Speed
from event2vec.machine.atomic import whole_file
from event2vec.names import UNPRINTABLE, shown
from event2vec.studies.results import RunResult, Timed
from event2vec.training.metrics import write_rows

NOTE = (
    "± over seeds: between trainings. ± over draws: between ten draws of the events of one network, which is what ± is "
    "in the paper's figures; the mean over seeds. -: there is only one. 95 % interval (Wilson): what other test "
    "recordings could give."
)


@dataclass(frozen=True)
class Row:
    """One line of the table: what is changed, and what the paper reports for it, data set by data set."""

    name: str
    settings: dict[str, Any]
    paper: dict[str, str]
    engine: str = "ours"  # what makes the clusters, of `ENGINES`
    iterations: int = 20  # of that engine
    paper_ms: str | None = None  # for clustering one recording
    pretrain: dict[str, Any] = field(default_factory=dict)  # changes to its recipe with which it is pre-trained first

    def __post_init__(self) -> None:
        # The name becomes that of a folder.
        if not isinstance(self.name, str) or not self.name or "/" in self.name or UNPRINTABLE.search(self.name):
            raise ValueError(f"name must be text without a slash, got {shown(self.name)}")
        check_settings(self.settings)
        check_settings(self.pretrain)
        if self.engine not in ENGINES:
            raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {shown(self.engine)}")
        if not isinstance(self.iterations, int) or not 1 <= self.iterations <= 10_000:
            raise ValueError(f"iterations must be from 1 to 10,000, got {shown(self.iterations)}")


def check_settings(settings: Any) -> None:
    if not isinstance(settings, dict):
        raise ValueError(f"settings must be given by their names, got {shown(settings)}")


@dataclass(frozen=True)
class RowResult(Repeated):
    """The results of a row over all its seeds."""

    row: Row
    accuracies: tuple[float, ...]  # one for each seed, the mean over its draws
    recordings: int  # tested on, the same for each seed
    draws: tuple[tuple[float, ...], ...]  # for each seed, one for each draw of the events
    parameters: int
    seconds: float  # of training one seed, on average
    epochs: tuple[int, ...] = ()  # of each seed
    timed: Timed | None = None  # of the first seed

    @classmethod
    def of(cls, row: Row, runs: Sequence[RunResult]) -> "RowResult":
        accuracies, draws = tuple(run.accuracy for run in runs), tuple(run.accuracies for run in runs)
        seconds = float(np.mean([run.seconds for run in runs]))
        epochs = tuple(run.epochs for run in runs)
        return cls(row, accuracies, runs[0].recordings, draws, runs[0].parameters, seconds, epochs, runs[0].timed)

    @property
    def std_over_draws(self) -> float | None:
        """Of one network, the mean over seeds; None where every draw is the same."""
        return float(np.mean([deviation(each) for each in self.draws])) if len(self.draws[0]) > 1 else None

    @property
    def std_over_seeds(self) -> float | None:
        return self.accuracy_std if len(self.accuracies) > 1 else None

    def facts(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "name": self.row.name,
            "settings": self.row.settings,
            "accuracy": self.accuracy,
            "interval": self.interval,
            "recordings": self.recordings,
            "std_over_seeds": self.std_over_seeds,
            "std_over_draws": self.std_over_draws,
            "accuracies": [list(each) for each in self.draws],
            "paper": self.row.paper,
            "parameters": self.parameters,
            "seconds": self.seconds,
            "epochs": list(self.epochs),
            **(self.timed.facts() if self.timed else {}),
        }


def _timed_columns(result: RowResult) -> dict[str, str]:
    """Columns that only some tables have: Table 5's latency, Table 2."""
    timed, columns = result.timed, dict[str, str]()
    if timed is None:
        return columns
    over = f"{timed.recordings} recordings"
    if timed.clustering is not None:
        columns[f"clustering of {over} here (ms)"] = figure_text(timed.clustering, 2)
        columns["paper (ms)"] = str(result.row.paper_ms)
    columns |= _speed_columns(timed.speed, over) if timed.speed else {}
    if timed.memory is not None:
        columns["memory for one (MB)"] = f"{timed.memory:,.0f}"
    return columns


def _speed_columns(speed: Speed, over: str) -> dict[str, str]:
    columns = dict[str, str]()
    for name, work in (("training", speed.training), ("inference", speed.inference)):
        columns[f"{name} (recordings/s)"] = figure_text(work.rate, 1)
        columns[f"{name} batch"] = str(work.batch)
    for name, time in (("preparing", speed.preparing), ("forward", speed.forward), ("total", speed.total)):
        columns[f"{name} of {over} (ms)"] = figure_text(time, 2)
    columns["GPU memory (MB)"] = "-" if speed.gpu_memory is None else f"{speed.gpu_memory:,.0f}"
    return columns


def figure_text(figure: Figure, digits: int) -> str:
    return f"{figure.mean:,.{digits}f} ± {figure.deviation:,.{digits}f}"


def table(results: list[RowResult], ours: str) -> list[dict[str, str]]:
    """The paper's form: a row for each change, our figure and the paper's with the data set of each.

    All rows have the same columns: "-" where the paper reports nothing, or nothing was measured.
    """
    papers = dict.fromkeys(name for result in results for name in result.row.paper)
    timed = [_timed_columns(result) for result in results]
    measured = dict.fromkeys(name for columns in timed for name in columns)
    return [
        {
            "": result.row.name,
            f"accuracy on {ours} (%)": f"{100 * result.accuracy:.2f}",
            "95 % interval": result.interval.percent(),
            "± over seeds": spread_text(result.std_over_seeds),
            "± over draws": spread_text(result.std_over_draws),
            **{f"paper, {name} (%)": result.row.paper.get(name, "-") for name in papers},
            **{name: columns.get(name, "-") for name in measured},
            "parameters": f"{result.parameters:,}",
            "seconds a run": f"{result.seconds:.0f}",
        }
        for result, columns in zip(results, timed, strict=True)
    ]


def spread_text(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"


def write_table(results: list[RowResult], ours: str, title: str, path: Path) -> None:
    """As CSV, as Markdown, and as JSON with all figures in full."""
    rows = table(results, ours)
    write_rows(path.with_suffix(".csv"), rows)
    write_json(path.with_suffix(".json"), {"title": title, "data": ours, "rows": [each.facts() for each in results]})
    notes = [NOTE, INCLUDED] if any(each.timed and each.timed.speed for each in results) else [NOTE]
    lines = [f"# {title}", "", *markdown(rows), "", *notes, ""]
    with whole_file(path.with_suffix(".md")) as temporary:
        temporary.write_text("\n".join(lines), "utf-8")


def markdown(rows: list[dict[str, str]]) -> list[str]:
    heads = list(rows[0])
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return lines + [f"| {' | '.join(row.values())} |" for row in rows]
