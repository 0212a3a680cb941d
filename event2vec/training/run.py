"""What lies in the folder of a run beside its networks: how it began and how it went."""

import csv
import json
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from event2vec import __version__
from event2vec.atomic import SUFFIX, clear_leftovers, whole_file
from event2vec.data.prepare import open_for_training, prepare_digits
from event2vec.data.sampling import Sampling
from event2vec.data.store import EventStore
from event2vec.devices import Compute
from event2vec.documents import LARGEST_JSON, read_json, read_text
from event2vec.errors import Event2VecError, FileError
from event2vec.locks import LOCK, own
from event2vec.names import shorten
from event2vec.training.recipe import DataConfig, Recipe, load_recipe

RECIPE, FACTS, METRICS, CHECKPOINTS = "recipe.yaml", "run.json", "metrics.csv", "checkpoints"


@contextmanager
def own_run(run: Path) -> Iterator[None]:
    """Be the only process that trains in a run's folder, rid of what one that was killed left half written."""
    with own(run):
        for folder in (run, run / CHECKPOINTS):
            clear_leftovers(folder)
        yield


def is_free(run: Path) -> bool:
    """Whether a run can begin in this folder: it has nothing, or what is left of a start that was killed."""
    if not run.exists():
        return True
    left = {FACTS, LOCK}
    return run.is_dir() and all(path.name in left or path.name.endswith(SUFFIX) for path in run.iterdir())


def begin_run(run: Path, recipe: Recipe, facts: Mapping[str, Any]) -> None:
    """Write what a run is known by. The recipe comes last: a folder without it has not begun."""
    with whole_file(run / RECIPE) as last, whole_file(run / FACTS) as first:
        first.write_text(json.dumps({**facts, **environment()}, indent=2) + "\n", "utf-8")
        last.write_text(recipe.to_yaml(), "utf-8")


def read_run(run: Path) -> dict[str, Any]:
    """What run.json holds: task, data and environment."""
    if not (run / FACTS).is_file():
        raise FileError(run, "is not a run: it has no run.json. A run is a folder that 'event2vec train' wrote")
    facts = read_json(run / FACTS)
    texts = [facts.get(name) for name in ("data", "init", "source") if facts.get(name) is not None]
    whole = facts.get("task") in ("train", "pretrain") and facts.get("data") and "init" in facts
    if not whole or not all(isinstance(text, str) for text in texts):
        raise FileError(run / FACTS, "is damaged, expected JSON with task, data and init")
    return facts


def open_recordings(
    run: Path,
    data: str | None,
    sampling: Sampling,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> EventStore:
    """The recordings that are named, or those that the run was trained beside, in the form that training reads."""
    if data is None:
        if not (run / FACTS).is_file():
            raise Event2VecError(f"{run} does not say what it was trained on; name the recordings with --data")
        return EventStore.open(read_run(run)["data"])
    recipe = load_recipe(run / RECIPE).data if (run / RECIPE).is_file() else DataConfig()
    return open_for_training(data, recipe.dataset, sampling, workers, progress, clusterings=recipe.clusterings).store


def choose_compute(run: Path, device: str | None = None, precision: str | None = None) -> Compute:
    """Where a run's network answers: as asked, else on the best device, in bfloat16 there if it was trained so."""
    trained = load_recipe(run / RECIPE).trainer.precision if (run / RECIPE).is_file() else "32-true"
    return Compute.choose(device, precision, trained)


def raw_source(run: Path) -> str | None:
    """Where the recordings of a run are with all their events; None where they are the built-in digits."""
    facts = read_run(run)
    built_in = facts.get("source") is None and load_recipe(run / RECIPE).data.dataset == "digits"
    return None if built_in else facts.get("source") or facts["data"]


def open_raw_recordings(
    run: Path, data: str | None, workers: int = 1, progress: Callable[[int, int], None] | None = None
) -> EventStore:
    """The same with all their events: what clusters were made of, not the clusters."""
    if data is None and (run / FACTS).is_file():
        data = raw_source(run)
        if data is None:
            return prepare_digits(workers, progress)
    return open_recordings(run, data, Sampling(), workers, progress)


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


def write_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """As JSON, whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(facts, indent=2) + "\n", "utf-8")


def read_rows(path: Path) -> list[dict[str, float]]:
    """The rows of a run's metrics, one for each epoch."""
    text = read_text(path, LARGEST_JSON)
    try:
        table = list(csv.DictReader(text.splitlines()))
        if any(None in row for row in table):
            raise ValueError("a line is longer than the first")
        rows = [{name: float(value) for name, value in row.items() if value} for row in table]
        if not rows or not all({"epoch", "seconds", "data_share"} <= row.keys() for row in rows):
            raise ValueError("epochs or their figures are missing")
    except (ValueError, csv.Error) as error:
        raise FileError(path, f"is not a table of a run's epochs: {shorten(str(error))}") from None
    return rows


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
