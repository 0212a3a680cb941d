"""What Lightning calls while it trains: batches, steps, optimiser, schedule, the diary of a run and its checkpoints."""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from torch import Tensor, nn
from torch.utils.data import DataLoader

from event2vec.atomic import whole_file
from event2vec.cpu import flush_denormals
from event2vec.data.batches import STEPS, Batch, Recordings, collate_indexed
from event2vec.data.seeding import seeded
from event2vec.data.store import EventStore
from event2vec.errors import Event2VecError, FileError
from event2vec.model.checkpoint import save_model
from event2vec.training.objectives import Objective, Outcome
from event2vec.training.recipe import Recipe, TrainingConfig
from event2vec.training.run import METRICS, append_row
from event2vec.training.steps import Batches, steps_in_epoch
from event2vec.workers import end_with_parent

LAST = "last.ckpt"


@runtime_checkable
class Watcher(Protocol):
    """Told how training goes; the command line shows it to people."""

    def took_over(self, names: list[str]) -> None: ...

    def start(self, epochs: int, steps: int, done: int) -> None: ...

    def step(self, step: int, loss: float) -> None: ...

    def epoch(self, row: dict[str, float]) -> None: ...


class TrainingData(pl.LightningDataModule):
    """Batches to learn from, and those that show how it goes, sharded over the ranks."""

    def __init__(self, recipe: Recipe, store: EventStore) -> None:
        super().__init__()
        self.recipe = recipe
        self.sets = store.sets("train")
        self.learn_from = self.sets[0]
        self.test_on = store.split("test") if "test" in store.splits else None
        self.asked = False  # for batches, which comes after a checkpoint was taken up

    def train_dataloader(self) -> DataLoader[Any]:
        assert self.trainer is not None
        self.asked = True
        count, config, ranks = len(self.learn_from), self.recipe.training, self.trainer.world_size
        accumulate = self.recipe.trainer.accumulate
        skip = self.trainer.global_step % steps_in_epoch(count, config, ranks * accumulate)
        batches = Batches(count, config, self.trainer.global_rank, ranks, skip, accumulate)
        return self._loader(self.sets, batches)

    def val_dataloader(self) -> DataLoader[Any] | list[Any]:
        assert self.trainer is not None
        if self.test_on is None:
            return []
        own = range(self.trainer.global_rank, len(self.test_on), self.trainer.world_size)
        size = self.recipe.training.batch
        return self._loader(
            (self.test_on,), [[(0, index) for index in own[at : at + size]] for at in range(0, len(own), size)]
        )

    def _loader(self, sets: tuple[EventStore, ...], batches: Any) -> DataLoader[Any]:
        workers = self.recipe.data.workers
        return DataLoader(
            Recordings(sets, self.recipe.sampling, self.recipe.training.seed),
            batch_sampler=batches,
            collate_fn=collate_indexed,
            num_workers=workers,
            worker_init_fn=end_with_parent,
            persistent_workers=workers > 0,
            pin_memory=torch.cuda.is_available(),
        )


class Learner(pl.LightningModule):
    """An objective with its optimiser and schedule."""

    def __init__(self, objective: Objective, recipe: Recipe, steps: int, sources: Sequence[str]) -> None:
        super().__init__()
        self.objective = objective
        self.recipe = recipe
        self.steps = steps  # in an epoch
        self.sources = sources
        nothing = torch.zeros(len(objective.metrics) + 1, dtype=torch.float64)  # and the count
        self.sums = {"train": nothing, "test": nothing}
        self.step_ended = 0.0

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        events, labels, indices = batch
        return events.to(device, non_blocking=True), labels.to(device, non_blocking=True), indices

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        events, labels, indices = batch
        seed = self.recipe.training.seed
        part = batch_idx % self.recipe.trainer.accumulate * self.trainer.world_size + self.global_rank
        generator = seeded(seed, self.global_step, STEPS + 1 + part, self.device)
        outcome = self.objective(self.recipe.augment(events, generator), labels, generator)
        self._check(outcome.loss, indices)
        self._add("train", outcome)
        self.log("train/loss_step", outcome.loss.detach(), sync_dist=True)
        return outcome.loss

    def backward(self, loss: Tensor, *arguments: Any, **settings: Any) -> None:
        with flush_denormals():
            super().backward(loss, *arguments, **settings)

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        self.step_ended = time.perf_counter()  # after all callbacks: a checkpoint is no waiting for data

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        events, labels, _ = batch
        self._add("test", self.objective(events, labels, None))

    def _check(self, loss: Tensor, indices: list[int]) -> None:
        if bool(loss.isfinite()):
            return
        rate = self.trainer.optimizers[0].param_groups[0]["lr"]
        names = ", ".join(self.sources[index] for index in indices[:8])
        more = f" and {len(indices) - 8} more" if len(indices) > 8 else ""
        raise Event2VecError(
            f"the loss became {float(loss)} at step {self.global_step}, learning rate {rate:.3g}, on {names}{more}. "
            "Lower training.learning_rate, or set training.clip to 1"
        )

    def _add(self, split: str, outcome: Outcome) -> None:
        values = [*(float(outcome.metrics[name]) for name in self.objective.metrics), 1.0]
        self.sums[split] = self.sums[split] + outcome.count * torch.tensor(values, dtype=torch.float64)

    def _total(self, split: str) -> Tensor:
        """Sums over all ranks; a rank that saw nothing adds zeros, since all must take part."""
        dtype = torch.float32 if self.device.type == "mps" else torch.float64
        copy = self.sums[split].to(self.device, dtype, copy=True)  # ranks are added up in place
        total = self.trainer.strategy.reduce(copy, reduce_op="sum")
        assert isinstance(total, Tensor)
        return total.cpu().double()

    def take_means(self, split: str) -> dict[str, float]:
        """Means over all batches and ranks since the last call."""
        *sums, count = self._total(split).tolist()
        self.sums[split] = torch.zeros_like(self.sums[split])
        return {name: value / max(count, 1.0) for name, value in zip(self.objective.metrics, sums, strict=True)}

    def ends_step(self, batch_idx: int) -> bool:
        """Whether this batch is the last of those whose gradients make one step."""
        return (batch_idx + 1) % self.recipe.trainer.accumulate == 0

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["sums"] = self._total("train")
        checkpoint["world_size"] = self.trainer.world_size
        checkpoint["accumulate"] = self.recipe.trainer.accumulate

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.trainer.is_global_zero:  # the others begin at zero, so that the sum stays what it was
            self.sums["train"] = checkpoint["sums"]

    def on_train_start(self) -> None:
        """torch looks at how many weights an optimiser's state is for, not at their shapes."""
        for parameter, state in self.trainer.optimizers[0].state.items():
            moments = [value for value in state.values() if isinstance(value, Tensor) and value.ndim]
            if any(moment.shape != parameter.shape or not bool(moment.isfinite().all()) for moment in moments):
                problem = "does not fit the run: its optimiser is for other weights. Remove it to begin the run again"
                raise FileError(str(self.trainer.ckpt_path), problem)

    def configure_optimizers(self) -> Any:
        config = self.recipe.training
        rate = config.learning_rate * config.batch * self.trainer.world_size * self.recipe.trainer.accumulate / 256
        decayed, free = split_by_decay(self.objective)
        groups: list[dict[str, Any]] = [{"params": decayed}, {"params": free, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=rate, weight_decay=config.weight_decay)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: learning_rate_factor(step / self.steps, config, rate)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def split_by_decay(module: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """Weights that decay, and those that do not: norms, biases, the mask token and lookup tables.

    Of a table each step sees a few rows; decay would shrink all the others.
    """
    tables = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    decayed, free = list[Tensor](), list[Tensor]()
    for name, parameter in module.named_parameters():
        spared = parameter.ndim < 2 or "norm" in name or id(parameter) in tables
        (free if spared else decayed).append(parameter)
    return decayed, free


def learning_rate_factor(epoch: float, config: TrainingConfig, rate: float) -> float:
    """Linear from 1 % up, then a cosine down to the final rate (App. A.2)."""
    warmup = min(config.warmup_epochs, config.epochs)
    if epoch < warmup:
        return 0.01 + 0.99 * epoch / warmup
    final = config.final_learning_rate / rate if rate else 0.0
    progress = min((epoch - warmup) / max(config.epochs - warmup, 1e-9), 1.0)
    return final + (1 - final) * (1 + math.cos(math.pi * progress)) / 2


class Diary(pl.Callback):
    """Writes metrics and the network after each epoch, and tells the watcher."""

    def __init__(self, run: Path, watcher: Watcher | None) -> None:
        self.run, self.watcher = run, watcher
        self.started = self.data_seconds = self.loss = 0.0

    def on_train_start(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        if trainer.is_global_zero and self.watcher:
            assert isinstance(learner, Learner)
            self.watcher.start(trainer.max_epochs or 0, learner.steps, trainer.global_step)

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
        self.loss += float(outputs["loss"])  # Lightning has divided it by the batches of a step
        if learner.ends_step(batch_idx):
            loss, self.loss = self.loss, 0.0
            if trainer.is_global_zero and self.watcher:
                self.watcher.step(trainer.global_step, loss)

    def on_train_epoch_end(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        """After validation, which Lightning runs before this."""
        assert isinstance(learner, Learner)
        train_seconds = learner.step_ended - self.started
        row: dict[str, float] = {"epoch": trainer.current_epoch + 1.0, "step": float(trainer.global_step)}
        row |= {f"train_{name}": value for name, value in learner.take_means("train").items()}
        row |= {
            name.replace("/", "_"): float(value) for name, value in trainer.callback_metrics.items() if "test/" in name
        }
        row["learning_rate"] = float(trainer.optimizers[0].param_groups[0]["lr"])
        row["seconds"] = time.perf_counter() - self.started
        row["data_share"] = self.data_seconds / train_seconds if train_seconds else 0.0
        if trainer.is_global_zero:
            append_row(self.run / METRICS, row)
            save_model(learner.objective.model, self.run / "model")
            if trainer.logger:
                trainer.logger.log_metrics({f"epoch/{name}": value for name, value in row.items()}, trainer.global_step)
            if self.watcher:
                self.watcher.epoch(row)


class Checkpoints(pl.Callback):
    """Keeps the last state, to go on from, and the network of the best epoch. Must come after Diary."""

    def __init__(self, folder: Path, objective: Objective, config: TrainingConfig) -> None:
        self.folder, self.every = folder, config.checkpoint_steps
        self.metric, self.sign = f"test/{objective.monitor}", 1 if objective.higher_is_better else -1
        self.best = -math.inf

    def on_train_batch_end(
        self, trainer: pl.Trainer, learner: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        # Not at the last step of an epoch: a run that went on from there would leave out what ends the epoch.
        # Nor between the batches of a step: their gradients would be lost.
        assert isinstance(learner, Learner)
        due = trainer.global_step % self.every == 0 and learner.ends_step(batch_idx)
        if due and trainer.global_step % learner.steps:
            trainer.save_checkpoint(self.folder / LAST)

    def on_train_epoch_end(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        score = self.sign * float(trainer.callback_metrics.get(self.metric, math.nan))
        if score > self.best:  # never, where there is nothing to test on
            self.best = score
            if trainer.is_global_zero:
                save_model(learner.objective.model, self.folder.parent / "best")  # type: ignore[union-attr, arg-type]
        trainer.save_checkpoint(self.folder / LAST)

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best = state_dict["best"]


class Means(pl.Callback):
    """Puts the means over the test recordings where checkpoints look for them. Must come before these."""

    def on_validation_epoch_end(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        assert isinstance(learner, Learner)
        for name, value in learner.take_means("test").items():
            learner.log(f"test/{name}", value, rank_zero_only=False)


class WholeCheckpoints(TorchCheckpointIO):
    """Checkpoints written beside their place and then renamed: Lightning's own go through another file system."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        with whole_file(Path(path)) as temporary:
            torch.save(checkpoint, temporary)
