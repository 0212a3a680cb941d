"""Train on Lightning: one CPU, several GPUs or many nodes with the same call, and a killed run loses nothing.

A run is a folder: recipe.yaml, run.json (data, task, versions), model/ (as `save_model` writes it, after each epoch),
best/ (the same, of the epoch that tested best), metrics.csv, tensorboard/ and checkpoints/last.ckpt.
"""

import logging
import os
import shlex
import signal
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import lightning.pytorch as pl
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.loggers import TensorBoardLogger

from event2vec.data.store import EventStore
from event2vec.devices import is_first_rank
from event2vec.errors import Event2VecError, FileError
from event2vec.model.checkpoint import check_text_path, load_any_model
from event2vec.model.classifier import Classifier, build_model
from event2vec.model.masked import MaskedEventModel, build_masked_model
from event2vec.names import excerpt, shorten, shown
from event2vec.training.lightning_module import (
    LAST,
    Checkpoints,
    Diary,
    Learner,
    Means,
    TrainingData,
    Watcher,
    WholeCheckpoints,
)
from event2vec.training.objectives import Classification, MaskedReconstruction, Objective
from event2vec.training.recipe import Recipe, load_recipe
from event2vec.training.run import CHECKPOINTS, RECIPE, begin_run, is_free, own_run, read_run
from event2vec.training.steps import steps_in_epoch

Task = Literal["train", "pretrain"]
# Without its loops a checkpoint would begin at the first epoch again, without a word.
STATE = {"state_dict", "loops", "callbacks", "optimizer_states", "lr_schedulers", "world_size", "sums"}
BEGIN_AGAIN = "Remove it to begin the run again"


def start_run(
    recipe: Recipe,
    store: EventStore,
    run: Path,
    task: Task,
    init: Path | None = None,
    watcher: Watcher | None = None,
    source: Path | None = None,
) -> None:
    """Train in a new folder, from starting weights or from those of the network in `init`.

    `source` is what the store was made of, if it holds clusters of it; the run keeps the name.
    """
    check_text_path(run)
    with _alone(run):
        _start(recipe, store, run, task, init, watcher, source)


def _start(
    recipe: Recipe,
    store: EventStore,
    run: Path,
    task: Task,
    init: Path | None,
    watcher: Watcher | None,
    source: Path | None,
) -> None:
    if is_first_rank() and not is_free(run):
        go_on = f"event2vec {task} --resume {shlex.quote(str(run))}"
        raise FileError(run, f"exists already. Resume it with: {go_on}, or choose another --out")
    recipe = replace(
        recipe,
        data=replace(recipe.data, clusterings=len(store.sets("train"))),  # what it holds, not what was asked for
        model=replace(recipe.model, sensor=store.sensor, classes=len(store.classes)),
    )
    objective = build_objective(recipe, store, task)
    taken = take_over(objective.model, init) if init else []
    if watcher and taken and is_first_rank():
        watcher.took_over(taken)
    trainer = _trainer(recipe, store, run, objective, watcher)  # before anything is written: its settings may be wrong
    if is_first_rank():
        facts = {"task": task, "data": str(store.folder.resolve()), "init": str(init.resolve()) if init else None}
        facts["source"] = str(source.resolve()) if source else None
        begin_run(run, recipe, facts)
    _fit(trainer, recipe, store, objective, None)


def resume_run(
    run: Path, watcher: Watcher | None = None, settings: dict[str, Any] | None = None, data: Path | None = None
) -> None:
    """Go on from the last checkpoint of a run; one that has none starts again.

    `data` says where the store is now, if it was moved; `settings` may change where the training runs.
    """
    facts = read_run(run)
    if is_free(run):
        raise FileError(run, "was stopped before its training began. Start it with the same command again")
    with _alone(run):
        _resume(run, facts, watcher, settings, data)


def _resume(
    run: Path, facts: dict[str, Any], watcher: Watcher | None, settings: dict[str, Any] | None, data: Path | None
) -> None:
    recipe = load_recipe(run / RECIPE).with_settings(settings or {})
    store = EventStore.open(data or facts["data"])
    if (store.sensor, len(store.classes)) != (recipe.model.sensor, recipe.model.classes):
        raise FileError(store.folder, f"does not fit the run: it has {len(store.classes)} classes and {store.sensor}")
    if (sets := len(store.names_of_sets("train"))) != recipe.data.clusterings:
        raise FileError(
            store.folder,
            f"does not fit the run: it has {sets} sets of clusters of each recording, the run began with "
            f"{recipe.data.clusterings}",
        )
    objective = build_objective(recipe, store, facts["task"])
    last = run / CHECKPOINTS / LAST
    if not last.exists() and facts["init"]:
        take_over(objective.model, Path(facts["init"]))
    trainer = _trainer(recipe, store, run, objective, watcher)
    _fit(trainer, recipe, store, objective, last if last.exists() else None)


def build_objective(recipe: Recipe, store: EventStore, task: Task) -> Objective:
    """The network that the recipe describes, with starting weights, in the task that it learns."""
    seed = recipe.training.seed
    try:
        if task == "pretrain":
            return MaskedReconstruction(build_masked_model(recipe.model, seed=seed), recipe.objective)
    except ValueError as error:
        raise Event2VecError(str(error)) from None
    model = build_model(recipe.model, class_names=store.classes, sampling=recipe.sampling, seed=seed)
    return Classification(model, recipe.objective)


def take_over(model: Classifier | MaskedEventModel, init: Path) -> list[str]:
    """Copy all weights but the head's from another network; gives their names."""
    other = load_any_model(init)
    learnt, wanted = other.config.intensity, model.config.intensity
    if learnt != wanted:
        raise FileError(
            init, f"was trained with model.intensity {learnt}, this recipe has {wanted}. Add --model.intensity {learnt}"
        )
    theirs, ours = other.state_dict(), model.state_dict()
    taken = [name for name in ours if name.startswith(("embed.", "backbone."))]
    for name in taken:
        if name not in theirs or theirs[name].shape != ours[name].shape:
            found = f"has {tuple(theirs[name].shape)}" if name in theirs else "is missing"
            expected = f"this recipe needs {tuple(ours[name].shape)}"
            raise FileError(init, f"does not fit: {name} {found}, {expected}. Use the same model settings in both")
    model.load_state_dict(ours | {name: theirs[name] for name in taken})
    return taken


def _alone(run: Path) -> AbstractContextManager[None]:
    """Of processes that train together, the first keeps the run for all of them."""
    return own_run(run) if is_first_rank() else nullcontext()


def _fit(trainer: pl.Trainer, recipe: Recipe, store: EventStore, objective: Objective, last: Path | None) -> None:
    data = TrainingData(recipe, store)
    parts = trainer.world_size * recipe.trainer.accumulate
    steps = steps_in_epoch(len(data.learn_from), recipe.training, parts)
    learner = Learner(objective, recipe, steps, data.learn_from.sources)
    if last:
        _check_checkpoint(last, learner, trainer.world_size)
    with _quiet():
        try:
            trainer.fit(learner, datamodule=data, ckpt_path=last, weights_only=True)
        except SystemExit:
            if trainer.interrupted:  # Lightning turns Ctrl-C into an exit
                signal.signal(signal.SIGINT, signal.default_int_handler)
                raise KeyboardInterrupt from None
            raise
        except (Event2VecError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            if last and not data.asked and not isinstance(error, Event2VecError):
                raise _misfit(last, f"{type(error).__name__}: {error}") from None
            told = _worker_error(error) or error
            if (
                not is_first_rank()
            ):  # what this process alone met is said here: the first speaks for all, and may not know
                logging.getLogger("event2vec").error(
                    "event2vec: process %d: %s", trainer.global_rank, excerpt(told, 300)
                )
            raise told from None


def _worker_error(error: Exception) -> Event2VecError | None:
    """What a process that reads ahead met: torch gives it back as a traceback, with the error in its last line."""
    kind, _, message = str(error.args[0] if error.args else "").strip().rpartition("\n")[2].partition(": ")
    return Event2VecError(message) if kind.startswith("event2vec.errors.") else None


def _check_checkpoint(path: Path, learner: Learner, devices: int) -> None:
    """Lightning looks at a checkpoint piece by piece, and each of its errors would be another, of every process."""
    if not path.is_file():  # a pipe would block
        raise _misfit(path, "it is not a file")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # damage shows in many ways
        raise FileError(
            path, f"cannot be read ({type(error).__name__}), so the run cannot go on. {BEGIN_AGAIN}"
        ) from None
    if not isinstance(checkpoint, dict) or not checkpoint.keys() >= STATE:
        raise _misfit(path, "it holds no whole state of a training")
    _check_step(checkpoint, learner.recipe.trainer.accumulate, devices)
    weights, wanted = checkpoint["state_dict"], learner.state_dict()
    if not isinstance(weights, dict):
        raise _misfit(path, "it holds no weights by name")
    for name in wanted.keys() | weights.keys():
        found = weights.get(name)
        if name not in wanted or not isinstance(found, torch.Tensor) or found.shape != wanted[name].shape:
            raise _misfit(path, f"{name} is not as the recipe needs it")
        if not bool(found.isfinite().all()):
            raise _misfit(path, f"{name} has values that are not finite numbers")
    for name in ("optimizer_states", "lr_schedulers"):
        if not isinstance(checkpoint[name], list) or len(checkpoint[name]) != 1:
            raise _misfit(path, f"its {name} must have exactly one entry")
    sums = checkpoint["sums"]
    if not isinstance(sums, torch.Tensor) or sums.shape != learner.sums["train"].shape:
        raise _misfit(path, "its sums of metrics are not those of this task")


def _check_step(checkpoint: dict[str, Any], accumulate: int, devices: int) -> None:
    """A step is shared out over as many devices and batches as when the run was started."""
    if (began := checkpoint["world_size"]) != devices:
        count = "1 device" if began == 1 else f"{shown(began)} devices"
        raise Event2VecError(f"the run was started on {count} and must be resumed on as many, got {devices}")
    if (began := checkpoint.get("accumulate", 1)) != accumulate:
        raise Event2VecError(
            f"the run was started with trainer.accumulate {shown(began)} and must be resumed with it, got {accumulate}"
        )


def _misfit(path: Path, problem: str) -> FileError:
    return FileError(path, f"does not fit the run: {shorten(problem)}. {BEGIN_AGAIN}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Lightning's hints are for programmers; what matters to people is said by the watcher."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _trainer(recipe: Recipe, store: EventStore, run: Path, objective: Objective, watcher: Watcher | None) -> pl.Trainer:
    devices, nodes = recipe.trainer.devices, recipe.trainer.num_nodes
    launched = int(os.environ.get("WORLD_SIZE", 1))  # set by torchrun for every process
    if launched > 1 and devices == "auto":
        devices = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        nodes = launched // devices
    try:
        with _quiet():
            trainer = pl.Trainer(
                max_epochs=recipe.training.epochs,
                accelerator=recipe.trainer.accelerator,
                devices=devices,
                num_nodes=nodes,
                strategy=recipe.trainer.strategy,
                precision=recipe.trainer.precision,  # type: ignore[arg-type]
                accumulate_grad_batches=recipe.trainer.accumulate,
                gradient_clip_val=recipe.training.clip or None,
                limit_val_batches=None if "test" in store.splits else 0,
                logger=TensorBoardLogger(run, name="", version="tensorboard"),
                callbacks=[Means(), Diary(run, watcher), Checkpoints(run / CHECKPOINTS, objective, recipe.training)],
                plugins=[WholeCheckpoints()],
                default_root_dir=run,
                enable_checkpointing=False,
                use_distributed_sampler=False,
                num_sanity_val_steps=0,
                enable_progress_bar=False,
                enable_model_summary=False,
                log_every_n_steps=10,
            )
    except (MisconfigurationException, ImportError, ValueError, TypeError, RuntimeError) as error:
        raise Event2VecError(f"the trainer settings do not work here: {' '.join(str(error).split())}") from None
    if launched > 1 and trainer.world_size != launched:
        raise Event2VecError(
            f"{launched} processes were started, and trainer.devices and trainer.num_nodes make {trainer.world_size}"
        )
    return trainer
