"""What lies in the folder of a run beside its networks: how it began and how it went."""

import csv
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from event2vec import __version__
from event2vec.atomic import whole_file
from event2vec.errors import FileError

RECIPE, FACTS, METRICS = "recipe.yaml", "run.json", "metrics.csv"


def read_run(run: Path) -> dict[str, Any]:
    """What run.json holds: task, data and environment."""
    if not (run / FACTS).is_file():
        raise FileError(run, "is no run: it has no run.json. A run is a folder that 'event2vec train' wrote")
    try:
        facts: dict[str, Any] = json.loads((run / FACTS).read_text("utf-8"))
        assert {"task", "data", "init"} <= facts.keys()
    except (ValueError, AssertionError, AttributeError):
        raise FileError(run / FACTS, "is damaged, expected JSON with task, data and init") from None
    return facts


def environment() -> dict[str, Any]:
    """What a result may depend on, and the command that gave it."""
    return {
        "event2vec": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.platform(),
        "threads": torch.get_num_threads(),
        "devices": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "command": " ".join(["event2vec", *sys.argv[1:]]),
    }


def read_rows(path: Path) -> list[dict[str, float]]:
    """The rows of a run's metrics, one for each epoch."""
    with path.open(newline="") as file:
        return [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]


def append_row(path: Path, row: dict[str, float]) -> None:
    """Add an epoch to the table; an epoch that was there already was trained again after a kill and is replaced."""
    rows = [old for old in read_rows(path) if old["epoch"] < row["epoch"]] if path.exists() else []
    write_rows(path, [*rows, row])


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """A table as CSV, with the columns of its last row."""
    with whole_file(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[-1]))
        writer.writeheader()
        writer.writerows(rows)
