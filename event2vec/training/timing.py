"""How many epochs fit into a number of minutes: a few steps are timed before a training starts.

The number is then part of the run's recipe, so that its schedule ends with its last step and a resumed training ends
with the same weights, on a machine of any speed.
"""

import copy
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from event2vec.data.seeding import seeded
from event2vec.data.store import EventStore
from event2vec.errors import Event2VecError
from event2vec.events import EventBatch
from event2vec.machine.cpu import flush_denormals
from event2vec.machine.devices import Compute
from event2vec.model.classifier import Classifier
from event2vec.names import counted
from event2vec.progress import Progress
from event2vec.training.augment import augment
from event2vec.training.layout import Task
from event2vec.training.objectives import Classification, Objective
from event2vec.training.optimizer import build_optimizer
from event2vec.training.recipe import Recipe
from event2vec.training.steps import Batches, steps_in_epoch

STEPS = 3  # that are timed at least, after one that loads the code
SHARE = 0.05  # of the minutes that timing takes, at most, if that is more than those steps
HARDLY = 1e-9  # learning rate of steps that are only timed
WARMUP = 0.1  # of the epochs in which the learning rate may rise, at most


def fit_to_minutes(recipe: Recipe, store: EventStore, task: Task, progress: Progress) -> Recipe:
    """The recipe with the epochs that come closest to its minutes here, at least one; as it is if it has no minutes."""
    minutes = recipe.training.minutes
    if not minutes:
        return recipe
    _check_one_device(recipe)
    with progress.stage("timing the first steps"):
        seconds = seconds_of_epoch(recipe, store, task, SHARE * 60 * minutes)
    epochs = max(round(60 * minutes / seconds), 1)
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
    step = TrainingStep(objective, recipe, compute)
    data = TrainingData(recipe, store)
    count, config = len(data.learn_from), recipe.training
    batches = data.loader(data.sets, Batches(count, config, 0, 1, 0))
    learning = _time(_learn(step, batches), budget)
    steps = steps_in_epoch(count, config, 1)
    if data.validate_on is None:
        return learning * steps
    places = range(0, len(data.validate_on), config.batch)
    tested = [[(0, index) for index in range(at, min(at + config.batch, len(data.validate_on)))] for at in places]
    testing = _time(_test(objective, data.loader((data.validate_on,), tested), compute), budget / 10)
    return learning * steps + testing * len(tested)


class TrainingStep:
    """A step as training takes it, on a batch that is there, for those who time it: weights hardly change."""

    def __init__(self, objective: Objective, recipe: Recipe, compute: Compute) -> None:
        self.objective, self.recipe, self.compute = objective.train(), recipe, compute
        self.optimizer = build_optimizer(objective, recipe.training, HARDLY, compute.device, compute.precision)
        self.taken = 0

    def __call__(self, events: EventBatch, labels: Tensor) -> None:
        """Augmentation, the loss, its gradients, clipping and the optimiser."""
        compute, clip = self.compute, self.recipe.training.clip
        generator = seeded(self.recipe.training.seed, self.taken, 0, compute.device)
        with compute.autocast():
            found = self.objective(augment(events, self.recipe.augment, generator), labels, generator)
        with flush_denormals():
            found.loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(self.objective.parameters(), clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.taken += 1


def training_step(model: Classifier, recipe: Recipe, compute: Compute) -> Callable[[EventBatch], None]:
    """Steps of a recipe's training on a copy of a network, to be timed; labels do not matter for that."""
    step = TrainingStep(Classification(copy.deepcopy(model), recipe.objective), recipe, compute)

    def learn(batch: EventBatch) -> None:
        step(batch, torch.zeros(len(batch), dtype=torch.int64, device=compute.device))

    return learn


def _learn(step: TrainingStep, batches: Any) -> Iterator[None]:
    for events, labels, _ in batches:
        step(events.to(step.compute.device), labels.to(step.compute.device))
        yield


def _test(objective: Objective, batches: Any, compute: Compute) -> Iterator[None]:
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
