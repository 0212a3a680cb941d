"""How many epochs fit into a number of minutes: a few steps are timed before a training starts.

The number is then part of the run's recipe, so that its schedule ends with its last step and a resumed training ends
with the same weights, on a machine of any speed.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from event2vec.cpu import flush_denormals
from event2vec.data.seeding import seeded
from event2vec.data.store import EventStore
from event2vec.devices import Compute
from event2vec.errors import Event2VecError
from event2vec.names import counted
from event2vec.progress import Progress
from event2vec.training.augment import augment
from event2vec.training.layout import Task
from event2vec.training.recipe import Recipe
from event2vec.training.steps import Batches, steps_in_epoch

if TYPE_CHECKING:
    from event2vec.training.objectives import Objective

STEPS = 3  # that are timed at least, after one that loads the code
SHARE = 0.05  # of the minutes that timing takes, at most, if that is more than those steps
WARMUP = 0.1  # of the epochs in which the learning rate may rise, at most


def fit_to_minutes(recipe: Recipe, store: EventStore, task: Task, progress: Progress) -> Recipe:
    """The recipe with the epochs that its minutes allow here, at least one; as it is if it has no minutes."""
    minutes = recipe.training.minutes
    if not minutes:
        return recipe
    _check_one_device(recipe)
    with progress.stage("timing the first steps"):
        seconds = seconds_of_epoch(recipe, store, task, SHARE * 60 * minutes)
    epochs = max(int(60 * minutes / seconds), 1)
    warmup = min(recipe.training.warmup_epochs, WARMUP * epochs)
    long = f"{counted(epochs, 'epoch')} of about {seconds:.1f} s"
    progress.say(f"training.minutes {minutes:g}: {long}" + (", more than asked for" if seconds > 60 * minutes else ""))
    return replace(recipe, training=replace(recipe.training, epochs=epochs, warmup_epochs=warmup))


def _check_one_device(recipe: Recipe) -> None:
    """Processes that train together would each find another number of epochs."""
    trainer = recipe.trainer
    several = (
        trainer.devices not in ("auto", 1, "1") or trainer.num_nodes > 1 or int(os.environ.get("WORLD_SIZE", 1)) > 1
    )
    if several or (trainer.devices == "auto" and trainer.accelerator != "cpu" and torch.cuda.device_count() > 1):
        raise Event2VecError("training.minutes is for one device. Set trainer.devices to 1, or training.epochs instead")


def seconds_of_epoch(recipe: Recipe, store: EventStore, task: Task, budget: float) -> float:
    """What an epoch takes, validation included, from some of its steps. Weights of its own are trained for that."""
    from event2vec.training.fit import build_objective
    from event2vec.training.lightning_module import TrainingData

    accelerator = {"auto": None, "gpu": "cuda"}.get(recipe.trainer.accelerator, recipe.trainer.accelerator)
    compute = Compute.choose(accelerator, trained=recipe.trainer.precision)
    objective = build_objective(recipe, store, task).to(compute.device)
    data = TrainingData(recipe, store)
    count, config = len(data.learn_from), recipe.training
    batches = data.loader(data.sets, Batches(count, config, 0, 1, 0))
    learning = _time(_learn(objective, recipe, batches, compute), budget)
    steps = steps_in_epoch(count, config, 1)
    if data.validate_on is None:
        return learning * steps
    places = range(0, len(data.validate_on), config.batch)
    tested = [[(0, index) for index in range(at, min(at + config.batch, len(data.validate_on)))] for at in places]
    testing = _time(_test(objective, data.loader((data.validate_on,), tested), compute), budget / 10)
    return learning * steps + testing * len(tested)


def _learn(objective: "Objective", recipe: Recipe, batches: Any, compute: Compute) -> Iterator[None]:
    optimizer = torch.optim.AdamW(objective.parameters(), lr=1e-9)
    for number, (events, labels, _) in enumerate(batches):
        generator = seeded(recipe.training.seed, number, 0, compute.device)
        with compute.autocast():
            found = objective(
                augment(events.to(compute.device), recipe.augment, generator), labels.to(compute.device), generator
            )
        with flush_denormals():
            found.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def _test(objective: "Objective", batches: Any, compute: Compute) -> Iterator[None]:
    objective.eval()
    for events, labels, _ in batches:
        with torch.no_grad(), compute.autocast():
            objective(events.to(compute.device), labels.to(compute.device), None)
        yield


def _time(steps: Iterator[None], budget: float) -> float:
    """Seconds of a step, on average; the first is not timed if there are others."""
    began = time.perf_counter()
    next(steps)
    first = time.perf_counter() - began
    began, done = time.perf_counter(), 0
    for _ in steps:
        done += 1
        if done >= STEPS and time.perf_counter() - began > budget:
            break
    return (time.perf_counter() - began) / done if done else first
