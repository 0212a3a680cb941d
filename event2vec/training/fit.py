"""Training with Lightning: one CPU, several GPUs or many nodes with the same call."""

import atexit
import logging
import os
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.loggers import TensorBoardLogger

from event2vec.data.batches import Recordings
from event2vec.data.store import EventStore
from event2vec.errors import Event2VecError, FileError
from event2vec.machine.devices import Compute, training_precision
from event2vec.machine.ranks import is_first_rank
from event2vec.model.checkpoint import load_any_model
from event2vec.model.classifier import Classifier, build_model
from event2vec.model.masked import MaskedModel, build_masked_model
from event2vec.model.trained_on import TrainedOn
from event2vec.names import counted, excerpt, shorten, shown
from event2vec.progress import Progress
from event2vec.training.callbacks import Beginning, Checkpoints, Diary, Means, WholeCheckpoints, has_waited
from event2vec.training.layout import Layout, Task
from event2vec.training.lightning_module import LOGGED, Learner, TrainingData
from event2vec.training.objectives import Classification, Objective, balanced_weights, masked_objective
from event2vec.training.recipe import Recipe
from event2vec.training.steps import steps_in_epoch

# Without its loops, a checkpoint would silently restart at the first epoch.
STATE = {"state_dict", "loops", "callbacks", "optimizer_states", "lr_schedulers", "world_size", "sums"}
BEGIN_AGAIN = "Remove it to restart the run"


def build_objective(recipe: Recipe, store: EventStore, task: Task) -> Objective:
    """The objective of the task, with the recipe's network at its initial weights."""
    seed = recipe.training.seed
    try:
        if task == "pretrain":
            return masked_objective(build_masked_model(recipe.model, seed=seed), recipe.objective)
    except ValueError as error:
        raise Event2VecError(str(error)) from None
    model = build_model(recipe.model, class_names=store.classes, sampling=recipe.sampling, seed=seed)
    model.trained_on = TrainedOn.of(store.split("train"))
    model.windows = store.windows
    weights = None
    if recipe.objective.class_weights == "balanced":
        weights = balanced_weights(torch.from_numpy(store.split("train").labels), len(store.classes))
    return Classification(model, recipe.objective, weights)


def copy_weights(model: Classifier | MaskedModel, init: Path) -> list[str]:
    """Copy all weights except the head's from another network of this kind; returns their names."""
    other = load_any_model(init)
    learnt, wanted = other.config.network, model.config.network
    if learnt != wanted:
        raise FileError(init, f"holds a network of the kind {learnt}, this recipe has {wanted}")
    if not model.reusable:
        raise Event2VecError(f"{wanted} cannot be initialised from another network. Omit init")
    for name in ("intensity", "relative", "tokens"):  # what no weight tells
        before, now = (str(getattr(config, name, None)).lower() for config in (other.config, model.config))
        if before != now:
            problem = f"was trained with model.{name} {before}, this recipe has {now}"
            raise FileError(init, f"{problem}. Set model.{name} to {before}")
    theirs, ours = other.state_dict(), model.state_dict()
    taken = [name for name in ours if name.startswith(model.reusable)]
    for name in taken:
        if name not in theirs or theirs[name].shape != ours[name].shape:
            found = f"has {tuple(theirs[name].shape)}" if name in theirs else "is missing"
            expected = f"this recipe needs {tuple(ours[name].shape)}"
            raise FileError(init, f"does not fit: {name} {found}, {expected}. Use the same model settings in both")
    left = [name for name in theirs if name.startswith(model.reusable) and name not in ours]
    if left:  # such as further blocks or a neighbourhood, without which the others mean something else
        count = f"{counted(len(left), 'weight')} that this recipe's network lacks, such as {left[0]}"
        raise FileError(init, f"does not fit: it has {count}. Use the same model settings in both")
    model.load_state_dict(ours | {name: theirs[name] for name in taken})
    return taken


def fit(
    recipe: Recipe,
    store: EventStore,
    objective: Objective,
    run: Layout,
    progress: Progress,
    begin: Callable[[], None] = lambda: None,
) -> None:
    """Train until the recipe's last epoch, from the run's last checkpoint if there is one.

    `begin` is called once all settings are known to work and before anything is written.
    """
    trainer = _trainer(recipe, store, run, objective, progress, begin)
    if trainer.world_size > 1:
        _leave_group_at_exit()
    data = TrainingData(recipe, store)
    parts = trainer.world_size * recipe.trainer.accumulate
    steps = steps_in_epoch(len(data.learn_from), recipe.training, parts)
    learner = Learner(objective, recipe, steps, data.learn_from.sources)
    last = run.state if os.path.lexists(run.state) else None
    if last:
        checkpoint = _check_checkpoint(last, learner, trainer.world_size)
        if has_waited(_epochs_waited(checkpoint), recipe.training.patience):
            begin()
            progress.say(f"Training stopped early: no better epoch in {recipe.training.patience}")
            return
    with progress.stage("training", recipe.training.epochs * steps):
        _run_trainer(trainer, learner, data, last)


@cache
def _leave_group_at_exit() -> None:
    """End the group of processes with the process: its threads would abort it. Lightning does this on GPUs alone."""
    atexit.register(_leave_group)


def _leave_group() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def evaluate_masked(network: Path, store: EventStore, recipe: Recipe, compute: Compute) -> dict[str, float]:
    """How well a pre-trained network predicts the hidden events of a store: the means that validation has."""
    model = load_any_model(network)
    assert isinstance(model, MaskedModel)
    objective = masked_objective(model.to(compute.device), recipe.objective)
    recordings, size = Recordings((store,), recipe.sampling, recipe.training.seed), recipe.training.batch
    sums, count = dict.fromkeys(objective.metrics, 0.0), 0
    for start in range(0, len(store), size):
        batch, labels, _ = recordings.batch([(0, index) for index in range(start, min(start + size, len(store)))])
        with torch.no_grad():
            outcome = objective(batch.to(compute.device), labels.to(compute.device), None)
        sums = {name: value + outcome.count * float(outcome.metrics[name]) for name, value in sums.items()}
        count += outcome.count
    return {name: value / max(count, 1) for name, value in sums.items()} | {"recordings": len(store)}


def _run_trainer(trainer: pl.Trainer, learner: Learner, data: TrainingData, last: Path | None) -> None:
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
            if not is_first_rank():  # the first process prints for all, and may not know of this error
                logging.getLogger("event2vec").error(
                    "event2vec: process %d: %s", trainer.global_rank, excerpt(told, 300)
                )
            raise told from None


def _worker_error(error: Exception) -> Event2VecError | None:
    """The error of a data loading worker: torch returns it as a traceback, with the message in its last line."""
    kind, _, message = str(error.args[0] if error.args else "").strip().rpartition("\n")[2].partition(": ")
    return Event2VecError(message) if kind.startswith("event2vec.errors.") else None


def _epochs_waited(checkpoint: dict[str, Any]) -> int:
    """Since the best epoch, when the last one ended. Lightning would train one more before it stops again."""
    callbacks = checkpoint["callbacks"]
    state = callbacks.get(Checkpoints.__qualname__) if isinstance(callbacks, dict) else None
    waited = state.get("waited") if isinstance(state, dict) else None
    return waited if isinstance(waited, int) else 0


def _check_checkpoint(path: Path, learner: Learner, devices: int) -> dict[str, Any]:
    """Check all of a checkpoint first: Lightning would fail piece by piece, with a different error each time."""
    if not path.is_file():  # a pipe would block
        raise _misfit(path, "it is not a file")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # damage raises many kinds of errors
        raise FileError(
            path, f"cannot be read ({type(error).__name__}), so the run cannot be resumed. {BEGIN_AGAIN}"
        ) from None
    if not isinstance(checkpoint, dict) or not checkpoint.keys() >= STATE:
        raise _misfit(path, "it holds no complete training state")
    _check_step(checkpoint, learner.recipe.trainer.accumulate, devices)
    weights, wanted = checkpoint["state_dict"], learner.state_dict()
    if not isinstance(weights, dict):
        raise _misfit(path, "it holds no named weights")
    for name in wanted.keys() | weights.keys():
        found = weights.get(name)
        if name not in wanted or not isinstance(found, torch.Tensor) or found.shape != wanted[name].shape:
            raise _misfit(path, f"{name} does not match the recipe")
        if not bool(found.isfinite().all()):
            raise _misfit(path, f"{name} has values that are not finite numbers")
    for name in ("optimizer_states", "lr_schedulers"):
        if not isinstance(checkpoint[name], list) or len(checkpoint[name]) != 1:
            raise _misfit(path, f"its {name} must have exactly one entry")
    sums = checkpoint["sums"]
    if not isinstance(sums, torch.Tensor) or sums.shape != learner.sums["train"].shape:
        raise _misfit(path, "its metrics are not those of this task")
    return checkpoint


def _check_step(checkpoint: dict[str, Any], accumulate: int, devices: int) -> None:
    """Each step must use as many devices and accumulated batches as when the run was started."""
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
    """Silence Lightning: its hints are for programmers, and users are informed through `Progress`."""
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


def _trainer(
    recipe: Recipe,
    store: EventStore,
    run: Layout,
    objective: Objective,
    progress: Progress,
    begin: Callable[[], None],
) -> pl.Trainer:
    validation = len(store.split("validation")) if "validation" in store.splits else 0
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
                precision=training_precision(recipe.trainer.precision, recipe.trainer.accelerator),  # type: ignore[arg-type]
                accumulate_grad_batches=recipe.trainer.accumulate,
                gradient_clip_val=recipe.training.clip or None,
                limit_val_batches=None if validation else 0,
                logger=TensorBoardLogger(run.folder, name="", version=run.tensorboard.name),
                callbacks=[
                    Beginning(begin),
                    Means(),
                    Diary(run, progress),
                    Checkpoints(run, objective, recipe.training, validation),
                ],
                plugins=[WholeCheckpoints()],
                default_root_dir=run.folder,
                enable_checkpointing=False,
                use_distributed_sampler=False,
                num_sanity_val_steps=0,
                enable_progress_bar=False,
                enable_model_summary=False,
                log_every_n_steps=LOGGED,
            )
    except (MisconfigurationException, ImportError, ValueError, TypeError, RuntimeError) as error:
        raise Event2VecError(f"the trainer settings do not work here: {' '.join(str(error).split())}") from None
    if launched > 1 and trainer.world_size != launched:
        raise Event2VecError(
            f"{launched} processes were started, but trainer.devices and trainer.num_nodes give {trainer.world_size}"
        )
    return trainer
