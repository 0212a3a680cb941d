"""Callbacks of a training: show progress, write metrics, save networks and checkpoints."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins import TorchCheckpointIO

from event2vec.evaluation.accuracy import standard_error
from event2vec.evaluation.figures.curves import SHARES
from event2vec.machine.atomic import whole_file
from event2vec.model.checkpoint import save_model
from event2vec.progress import Progress
from event2vec.training.config import TrainingConfig
from event2vec.training.layout import Layout
from event2vec.training.lightning_module import Learner
from event2vec.training.metrics import append_row
from event2vec.training.objectives import Objective


class Beginning(pl.Callback):
    """Starts the run once all processes of a distributed training are here.

    Earlier, a slow process could take what the first one writes for a run that was stopped.
    """

    def __init__(self, begin: Callable[[], None]) -> None:
        self.begin = begin

    def setup(self, trainer: pl.Trainer, learner: pl.LightningModule, stage: str) -> None:
        self.begin()


class Diary(pl.Callback):
    """Writes metrics and the network after each epoch, and reports progress."""

    def __init__(self, run: Layout, progress: Progress) -> None:
        self.run, self.progress = run, progress
        self.started = self.data_seconds = self.loss = self.began = 0.0
        self.steps_before = 0
        self.validated = ""

    def on_train_start(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        self.began, self.steps_before = time.perf_counter(), trainer.global_step
        if trainer.is_global_zero:
            self.run.result("test").unlink(missing_ok=True)  # of weights that will be replaced
            self.progress.advance(trainer.global_step)

    def on_train_epoch_start(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        assert isinstance(learner, Learner)
        self.started = learner.step_ended = time.perf_counter()
        self.data_seconds = 0.0

    def on_train_batch_start(
        self, trainer: pl.Trainer, learner: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(learner, Learner)
        self.data_seconds += time.perf_counter() - learner.step_ended

    def on_train_batch_end(
        self, trainer: pl.Trainer, learner: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(learner, Learner)
        self.loss += float(outputs["loss"])  # Lightning has divided it by the number of batches in a step
        if learner.ends_step(batch_idx):
            note = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}  loss {self.loss:.3f}  {self.validated}"
            self.loss = 0.0
            if trainer.is_global_zero:
                self.progress.advance(trainer.global_step, note.rstrip())

    def on_train_epoch_end(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        """Called after validation."""
        assert isinstance(learner, Learner)
        trained, validated = learner.take_means("train"), _validated(trainer, learner)
        row = self._row(trainer, learner, trained, validated)
        line = self._line(trainer, learner, trained, validated)
        if trainer.is_global_zero:
            append_row(self.run.metrics_file, row)
            save_model(learner.objective.model, self.run.network)
            if trainer.logger:
                trainer.logger.log_metrics({f"epoch/{name}": value for name, value in row.items()}, trainer.global_step)
            self.progress.say(line)

    def _row(
        self, trainer: pl.Trainer, learner: Learner, trained: dict[str, float], validated: dict[str, float]
    ) -> dict[str, float]:
        train_seconds = learner.step_ended - self.started
        row: dict[str, float] = {"epoch": trainer.current_epoch + 1.0, "step": float(trainer.global_step)}
        row |= {f"train_{name}": value for name, value in trained.items()}
        row |= {f"validation_{name}": value for name, value in validated.items()}
        row["learning_rate"] = float(trainer.optimizers[0].param_groups[0]["lr"])
        row["seconds"] = time.perf_counter() - self.started
        row["data_share"] = self.data_seconds / train_seconds if train_seconds else 0.0
        return row

    def _line(
        self, trainer: pl.Trainer, learner: Learner, trained: dict[str, float], validated: dict[str, float]
    ) -> str:
        """The metrics of the epoch, and the time left."""
        found = {name: _shown("validation", name, value) for name, value in validated.items()}
        shown = [*(_shown("train", name, value) for name, value in trained.items()), *found.values()]
        self.validated = found.get(learner.objective.monitor, "")
        steps, whole = trainer.global_step - self.steps_before, (trainer.max_epochs or 0) * learner.steps
        left = (time.perf_counter() - self.began) / max(steps, 1) * (whole - trainer.global_step)
        epoch = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
        return "  ".join([epoch, *shown, f"{_duration(left)} left"])


def _validated(trainer: pl.Trainer, learner: Learner) -> dict[str, float]:
    """What `Means` logged; nothing without validation recordings."""
    logged = {name: trainer.callback_metrics.get(f"validation/{name}") for name in learner.objective.metrics}
    return {name: float(value) for name, value in logged.items() if value is not None}


def _shown(split: str, name: str, value: float) -> str:
    words = f"{split} {name.replace('_', ' ')}"
    return f"{words} {value:.1%}" if name in SHARES else f"{words} {value:.4g}"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class Checkpoints(pl.Callback):
    """Saves the last state, to resume from, and the network of the best epoch; ends a training that no longer improves.

    Must come after Diary. An accuracy within a standard error of the highest so far is as good: an epoch with one is
    best if its loss is lower than that of the best so far, or if the accuracy of that one is no longer as good.
    """

    def __init__(self, run: Layout, objective: Objective, config: TrainingConfig, recordings: int) -> None:
        self.run, self.every, self.patience = run, config.checkpoint_steps, config.patience
        self.metric, self.sign = f"validation/{objective.monitor}", 1 if objective.higher_is_better else -1
        self.recordings = recordings if objective.higher_is_better else 0  # behind an accuracy; a loss is no share
        self.best = (-math.inf, -math.inf)
        self.highest = -math.inf  # of all epochs
        self.waited = 0  # epochs since the best

    def on_train_batch_end(
        self, trainer: pl.Trainer, learner: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        # Not at the last step of an epoch: a run resumed from there would skip the end of the epoch.
        # Nor between the batches of a step: their gradients would be lost.
        assert isinstance(learner, Learner)
        due = trainer.global_step % self.every == 0 and learner.ends_step(batch_idx)
        if due and trainer.global_step % learner.steps:
            trainer.save_checkpoint(self.run.state)

    def on_train_epoch_end(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        assert isinstance(learner, Learner)
        found = trainer.callback_metrics
        score = (
            self.sign * float(found.get(self.metric, math.nan)),
            -float(found.get("validation/loss", math.nan)),
        )
        self.waited += 1
        if self._becomes_best(*score):
            self.waited = 0
            if trainer.is_global_zero:
                save_model(learner.objective.model, self.run.best_network)
        trainer.save_checkpoint(self.run.state)
        trainer.should_stop = has_waited(self.waited, self.patience)

    def _becomes_best(self, metric: float, gain: float) -> bool:
        """Whether an epoch is better than the best so far, whose place it then takes; never without validation."""
        if math.isnan(metric):
            return False
        gain = -math.inf if math.isnan(gain) else gain
        self.highest = max(self.highest, metric)
        enough = self.highest - standard_error(self.highest, self.recordings)
        if metric < enough or (self.best[0] >= enough and (gain, metric) <= (self.best[1], self.best[0])):
            return False
        self.best = (metric, gain)
        return True

    def state_dict(self) -> dict[str, Any]:
        return {"best": list(self.best), "highest": self.highest, "waited": self.waited}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        metric, gain = state_dict["best"]
        self.best, self.waited = (metric, gain), state_dict["waited"]
        self.highest = state_dict.get("highest", metric)  # before there was one, the best had the highest


def has_waited(epochs: int, patience: int) -> bool:
    """Whether a training ends after this many epochs without a better one."""
    return 0 < patience <= epochs


class Means(pl.Callback):
    """Logs mean validation metrics, which the other callbacks read. Must come before them."""

    def on_validation_epoch_end(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        assert isinstance(learner, Learner)
        for name, value in learner.take_means("validation").items():
            learner.log(f"validation/{name}", value, rank_zero_only=False)


class WholeCheckpoints(TorchCheckpointIO):
    """Atomic checkpoints: written next to the target, then renamed. Lightning's own go through another file system."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        with whole_file(Path(path)) as temporary:
            torch.save(checkpoint, temporary)
