"""Train from any data: a recipe and recordings in, a run out."""

import warnings
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from event2vec.arguments import check_kind
from event2vec.cluster import Cluster, Workers
from event2vec.data.addresses import local_place
from event2vec.data.batches import sets_of
from event2vec.data.clusters import Engine
from event2vec.data.hints import window_hints
from event2vec.data.opening import open_for_training
from event2vec.data.parts import REJECTED, Note, describe_scaled
from event2vec.data.prepare import Report
from event2vec.data.remote import address_of, holds_store
from event2vec.data.splits import Groups
from event2vec.data.store import EventStore
from event2vec.errors import Event2VecError, Event2VecWarning, FileError
from event2vec.machine.ranks import is_first_rank
from event2vec.names import counted, shorten, shown
from event2vec.progress import SILENT, Progress
from event2vec.training.config import CUTTING, GROUPING
from event2vec.training.layout import Task
from event2vec.training.recipe import Recipe, by_full_name, load_recipe
from event2vec.training.run import Run

SHOWN = 5  # unusable recordings that are named
UNEQUAL = 3  # times as many recordings in the largest class as in the smallest, from which weights are suggested


def train(
    recipe: str | Path | Recipe,
    data: str | Path | EventStore | None = None,
    out: str | Path | None = None,
    init: str | PathLike[str] | None = None,
    *,
    workers: int = 1,
    progress: Progress = SILENT,
    **settings: Any,
) -> Run:
    """Train a classifier: on a store, on a data set as downloaded, or on your own recordings in a folder per class.

        run = train("folder", "my_recordings/", training={"epochs": 20})
        run.evaluate().accuracy

    Data that is not a store is prepared first, by `workers` processes. Settings override those of the recipe, by
    section or by full name (`**{"training.epochs": 20}`). Without `out`, the run gets a numbered folder in runs/.
    `init` is a run or a network whose weights it starts from, except the head's.
    """
    return start("train", recipe, data, out, init, workers, progress, settings)


def pretrain(
    recipe: str | Path | Recipe,
    data: str | Path | EventStore | None = None,
    out: str | Path | None = None,
    init: str | PathLike[str] | None = None,
    *,
    workers: int = 1,
    progress: Progress = SILENT,
    **settings: Any,
) -> Run:
    """Train without labels, by hiding events (App. A.5).

        run = pretrain("dvs_lip_pretrain", "DVS-Lip/")
        train("dvs_lip", "DVS-Lip/", init=run)

    All else is as in `train`.
    """
    return start("pretrain", recipe, data, out, init, workers, progress, settings)


def start(
    task: Task,
    recipe: str | Path | Recipe,
    data: str | Path | EventStore | None,
    out: str | Path | None,
    init: str | PathLike[str] | None,
    workers: int,
    progress: Progress,
    settings: Mapping[str, Any] = MappingProxyType({}),
    engine: Engine | None = None,
) -> Run:
    """What `train` and `pretrain` do. An `engine` computes the clusters instead of ours, for comparisons."""
    recipe, source = resolve_recipe(recipe, data, settings)
    if recipe.data.folds and not recipe.data.fold:
        raise Event2VecError(
            "data.folds needs data.fold, the test fold. To train all folds, use cross_validate (`folds`)"
        )
    if out:
        Run(local_place(out)).check_free(task)  # before the data is prepared, which may take a while
    opened = open_training_data(recipe, source, workers, progress, settings, engine)
    if task == "train":
        check_classes(recipe.divide(opened.store))
    folder = Path(out) if out else free_folder(run_name(recipe, source))
    report_data(recipe, opened, folder, progress)
    return Run.start(recipe, opened.store, folder, task, init, source, progress)


def resolve_recipe(
    recipe: str | Path | Recipe, data: str | Path | EventStore | None, settings: Mapping[str, Any]
) -> tuple[Recipe, str | Path | None]:
    """The recipe with its settings, and where the data is; settings that would be ignored are refused."""
    recipe = recipe if isinstance(recipe, Recipe) else load_recipe(str(recipe))
    recipe = recipe.with_settings(settings)
    check_kind(data, str | PathLike | EventStore | None, "a store, or the path of data as `data`")
    source = _whole(data) if isinstance(data, EventStore) else data
    _check_options(recipe, source, settings)
    return recipe, source


def open_training_data(
    recipe: Recipe,
    source: str | Path | None,
    workers: Workers,
    progress: Progress,
    settings: Mapping[str, Any],
    engine: Engine | None = None,
) -> Report:
    """The store that the recipe trains on, prepared first if it has to be."""
    opened = open_for_training(
        source,
        recipe.data.dataset,
        recipe.sampling,
        workers,
        progress,
        engine,
        recipe.data.options,
        everywhere=recipe.data.folds > 0,
    )
    _check_taken_from_data(recipe, opened.store, settings)
    return opened


def gpus_of(recipe: Recipe, cluster: Cluster | None) -> int:
    """How many GPUs each training on a cluster gets. There, a training is one process."""
    if cluster is None:
        return 0
    trainer = recipe.trainer
    if trainer.devices not in ("auto", 1, "1") or trainer.num_nodes > 1:
        raise Event2VecError("on a cluster, each training has one device. Set trainer.devices and num_nodes to 1")
    return int(trainer.accelerator in ("auto", "gpu", "cuda") and cluster.has_gpus)


def _whole(store: EventStore) -> str | Path:
    """Where a store is, if the store shows all that is in it: a run remembers what it was trained on by name."""
    if len(store) != len(EventStore.open(store.folder)):
        raise Event2VecError(
            f"{store.folder}: got a part of this store, expected a whole one. Write the part with EventStore.create"
        )
    return address_of(store.folder) or store.folder


def _check_options(recipe: Recipe, source: str | Path | None, settings: Mapping[str, Any]) -> None:
    """Refuse settings of a data set that would be ignored."""
    names = [name for name, _ in by_full_name(settings)]
    if "data.folds_over" in names and not recipe.data.folds:
        raise Event2VecError("data.folds_over is for cross-validation. Omit it, or use cross_validate (`folds`)")
    given = [name for name in names if name in GROUPING + CUTTING]
    if recipe.data.dataset != "folder" and (own := [name for name in given if name in GROUPING]):
        raise Event2VecError(f"{own[0]} is for 'folder'; the layout of {recipe.data.dataset} is known. Omit it")
    if given and source is not None and holds_store(source):
        name = given[0].removeprefix("data.")
        raise FileError(
            source, f"is a store, made with its own groups and windows. Omit {given[0]}, or prepare it with `{name}`"
        )


def check_classes(store: EventStore) -> None:
    """Refuse a class that ended up without training recordings, which a network could never answer, and say why.

    Classes that a data set defines and of which nothing was there are left to the user.
    """
    rejected = store.facts.get("rejected")
    notes = [Note(*note) for note in rejected] if isinstance(rejected, list) else []
    found = {
        split: {store.classes[label] for label in store.labels[_rows(store, split)]} for split in set(store.splits)
    }
    for name in (name for name in store.classes if name not in found.get("train", ())):
        reasons = [f"{note.source}: {note.message}" for note in notes if name in Path(note.source).parts]
        if reasons:
            why = f"{counted(len(reasons), 'recording')} could not be used, such as {reasons[0]}"
        elif others := [split for split, names in found.items() if name in names]:
            why = f"all are in {' and '.join(sorted(others))}"
        else:
            continue
        problem = f"has no training recordings of the class {shown(name)}: {shorten(why, 300)}"
        raise FileError(store.folder, f"{problem}. Add recordings, or remove the class")


def _rows(store: EventStore, split: str) -> list[int]:
    return [index for index, name in enumerate(store.splits) if name == split]


def _check_taken_from_data(recipe: Recipe, store: EventStore, settings: Mapping[str, Any]) -> None:
    """Sensor, classes and a validation part are those of the data; other values would be ignored."""
    given, found = dict(by_full_name(settings)), {"sensor": store.sensor, "classes": len(store.classes)}
    wanted, has = recipe.data.windows, store.windows
    if wanted is not None and wanted != has:
        whole = has.summary if has else "whole recordings"
        raise FileError(store.folder, f"has {whole}, the recipe wants {wanted.summary}. Prepare it again")
    if "data.validation" in given and "validation" in store.splits:
        raise FileError(store.folder, "has a validation part of its own. Omit data.validation")
    for name, value in found.items():
        asked = getattr(recipe.model, name)
        if f"model.{name}" in given and asked != value:
            raise FileError(store.folder, f"has model.{name} {value}, got {asked}. Omit model.{name}")


def run_name(recipe: Recipe, data: str | Path | None) -> Path:
    """Named after the folder of your own recordings, or after the recipe for a known data set."""
    return Path("runs") / (Path(data).resolve().name if recipe.data.dataset == "folder" and data else recipe.name)


def free_folder(path: Path) -> Path:
    """This folder, or the first of path-2, path-3, ... in which a run can start."""
    number, free = 1, path
    while not Run(free).can_start:
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


def report_data(recipe: Recipe, opened: Report, folder: Path, progress: Progress) -> None:
    """Say what the run will be trained on, and what it will not; once, if several processes train together."""
    if not is_first_rank():
        return
    store = opened.store
    for note in opened.rejected[:SHOWN]:
        _warn(f"not used: {note.source}: {note.message}")
    if len(opened.rejected) > SHOWN:
        _warn(f"{len(opened.rejected) - SHOWN} more not used, see {store.folder / REJECTED}")
    sets = len(sets_of(store, recipe.sampling))
    if sets != recipe.sampling.clusterings:
        _warn(
            f"sampling.clusterings is {recipe.sampling.clusterings}, but {store.folder} has {sets} of each recording, "
            "which will be used"
        )
    of_each = f" ({sets} clusterings of each)" if sets > 1 else ""
    divided = recipe.divide(store)
    splits = divided.splits
    parts = {"train": "training", "validation": "validation", "test": "test"}
    training, validation, test = (counted(splits.count(split), f"{part} recording") for split, part in parts.items())
    drawn = " (drawn from the training recordings)" if "validation" in splits and splits != store.splits else ""
    progress.say(
        f"{training}{of_each}, {validation}{drawn} and {test}, {counted(len(store.classes), 'class', 'classes')}, "
        f"sensor {store.sensor}. Run folder: {folder}"
    )
    if opened.cutting:
        progress.say(opened.cutting)
    for hint in window_hints(store):
        progress.say(hint)
    if scaled := describe_scaled(store):
        progress.say(scaled)
    counts = np.bincount(divided.split("train").labels, minlength=len(store.classes))
    if counts.max() >= UNEQUAL * max(counts.min(), 1) and recipe.objective.class_weights == "none":
        found = f"Classes have from {counts.min():,} to {counts.max():,} training recordings"
        progress.say(f"{found}; objective.class_weights: balanced gives all classes the same weight")
    if groups := Groups.of(divided):
        progress.say(groups.summary)
        if groups.warning:
            _warn(groups.warning)


def _warn(message: str) -> None:
    warnings.warn(message, Event2VecWarning, stacklevel=5)
