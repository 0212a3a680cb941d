"""The table of a comparison: rows in the form of Tables 1 and 2, with notes, as CSV, Markdown, JSON and a page."""

import base64
import html
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from event2vec.documents import write_json
from event2vec.evaluation.figures.comparison import Dot, draw_comparison
from event2vec.evaluation.speed import INCLUDED, Speed
from event2vec.machine.atomic import whole_file
from event2vec.names import counted
from event2vec.studies.published import PUBLISHED, Published
from event2vec.studies.results import Timed
from event2vec.studies.tables import RowResult, figure_text, markdown, spread_text
from event2vec.training.metrics import write_rows

OURS = "event2vec"
DRAWS = 3  # of the events that each network is tested with
NOTE = (
    "95 % interval (Wilson): what other test recordings could give. ± over seeds: between trainings. ± over draws: "
    f"between {DRAWS} draws of the events of one network. -: there is only one. "
    f"{INCLUDED} Memory is what the network and one answer need."
)
PAPER_NOTE = (
    "The paper's figures are for its data sets, with larger networks, on a GPU; accuracies of other systems are as "
    "published, each with a protocol of its own. Sizes are in MB for some rows, in millions of parameters for others."
)
WIDE = (
    "body { max-width: none } td { white-space: nowrap } .wide { overflow-x: auto } .best { font-weight: bold } "
    "td:nth-child(2), th:nth-child(2) { text-align: left }"
)
STYLE = Path(__file__).parent / "report" / "style.css"


def _published(result: RowResult) -> Published:
    network = result.row.settings.get("model.network", OURS)
    return PUBLISHED.get(network, Published(network))


def comparison_row(result: RowResult) -> dict[str, str]:
    """The columns of Tables 1 and 2: what was measured here, then the paper's figures."""
    name, method = {"network": result.row.name}, {"method": _published(result).method}
    return name | method | measured_cells(result) | paper_cells(result)


def measured_cells(result: RowResult) -> dict[str, str]:
    timed, speed = _measured(result)
    memory = timed.memory if speed.gpu_memory is None else speed.gpu_memory
    return {
        "accuracy (%)": f"{100 * result.accuracy:.2f}",
        "95 % interval": result.interval.percent(),
        "± over seeds": spread_text(result.std_over_seeds),
        "± over draws": spread_text(result.std_over_draws),
        "parameters": f"{result.parameters:,}",
        "epochs": _epochs_text(result.epochs),
        "minutes": f"{result.seconds / 60:.2f}",
        "training (recordings/s)": figure_text(speed.training.rate, 1),
        "inference (recordings/s)": figure_text(speed.inference.rate, 1),
        "preparing (ms)": figure_text(speed.preparing, 2),
        "forward (ms)": figure_text(speed.forward, 2),
        "total (ms)": figure_text(speed.total, 2),
        "memory (MB)": "-" if memory is None else f"{memory:,.0f}",
    }


def paper_facts(result: RowResult) -> dict[str, str]:
    """What the paper reports of this network, as it writes it."""
    return asdict(_published(result))


def paper_cells(result: RowResult) -> dict[str, str]:
    paper = _published(result)
    return {
        "paper: data set": paper.dataset,
        "paper: accuracy (%)": paper.accuracy,
        "paper: size": paper.size,
        "paper: training (recordings/s)": paper.training,
        "paper: inference (recordings/s)": paper.inference,
        "paper: preparing + forward = total (ms)": paper.latency,
        "paper: GPU memory (MB)": paper.memory,
    }


def _measured(result: RowResult) -> tuple[Timed, Speed]:
    """What a comparison measures of every row."""
    assert result.timed is not None
    assert result.timed.speed is not None
    return result.timed, result.timed.speed


def _epochs_text(epochs: Sequence[int]) -> str:
    """The epochs of each seed, once where all have the same."""
    return " and ".join(map(str, dict.fromkeys(epochs)))


def write_comparison(results: Sequence[RowResult], protocol: str, folder: Path) -> None:
    """The table as CSV, Markdown, JSON and a page, and the pictures; `protocol` says how rows were trained."""
    rows = [comparison_row(result) for result in results]
    title = f"{counted(len(rows), 'network')} on {counted(results[0].recordings, 'test recording')}"
    write_rows(folder / "table.csv", rows)
    facts = {"title": title, "protocol": protocol, "rows": [each.facts() for each in results]}
    write_json(folder / "table.json", facts)
    notes = (protocol, NOTE, PAPER_NOTE)
    for suffix, text in (
        (".md", "\n\n".join([f"# {title}", "\n".join(markdown(rows)), *notes]) + "\n"),
        (".html", _page(title, results, notes, _pictures(results, folder))),
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
            values = {
                "parameters": result.parameters,
                "minutes": result.seconds / 60,
                "latency": _measured(result)[1].total.mean,
            }
            dots.append(Dot(result.row.name, values[name], result.accuracy, result.interval, result.row.name == OURS))
        paths.append(folder / f"accuracy_{name}.png")
        draw_comparison(dots, axis, paths[-1])
    return paths


def _page(title: str, results: Sequence[RowResult], notes: Sequence[str], pictures: Sequence[Path]) -> str:
    """One file that loads nothing else."""
    heads = "".join(f"<th>{html.escape(head)}</th>" for head in comparison_row(results[0]))
    best = max(result.accuracy for result in results)
    lines = []
    for result in results:
        kind = " class=best" if result.accuracy == best else ""
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in comparison_row(result).values())
        lines.append(f"<tr{kind}>{cells}</tr>")
    images = "".join(
        f"<img alt='{path.stem.replace('_', ' against ')}' src='data:image/svg+xml;base64,"
        f"{base64.b64encode(path.with_suffix('.svg').read_bytes()).decode('ascii')}'>"
        for path in pictures
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>"
        f"<style>{STYLE.read_text('utf-8')}{WIDE}</style>"
        f"<h1>{html.escape(title)}</h1><div class=wide><table><tr>{heads}</tr>{''.join(lines)}</table></div>"
        f"{''.join(f'<p>{html.escape(note)}</p>' for note in notes)}{images}</html>\n"
    )
