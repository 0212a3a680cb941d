"""What Lightning calls while it trains: batches, steps, the optimiser and its schedule."""

import time
from collections.abc import Sequence
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from event2vec.data.batches import STEPS, Batch, Recordings, identity_collate, sets_of
from event2vec.data.seeding import seeded
from event2vec.data.store import EventStore
from event2vec.errors import Event2VecError, FileError
from event2vec.machine.cpu import flush_denormals
from event2vec.machine.workers import end_with_parent
from event2vec.training.augment import augment
from event2vec.training.objectives import Objective, Outcome
from event2vec.training.optimizer import build_optimizer, learning_rate_factor
from event2vec.training.recipe import Recipe
from event2vec.training.steps import Batches

LOGGED = 10  # steps from one loss in TensorBoard to the next


class TrainingData(pl.LightningDataModule):
    """Training and validation batches, sharded over the ranks."""

    def __init__(self, recipe: Recipe, store: EventStore) -> None:
        super().__init__()
        self.recipe = recipe
        self.sets = sets_of(store, recipe.sampling)
        self.learn_from = self.sets[0]
        self.validate_on = store.split("validation") if "validation" in store.splits else None
        self.asked = False  # for batches, which happens after a checkpoint was loaded

    def train_dataloader(self) -> DataLoader[Any]:
        assert self.trainer is not None
        self.asked = True
        rank, ranks, step = self.trainer.global_rank, self.trainer.world_size, self.trainer.global_step
        accumulate = self.recipe.trainer.accumulate
        at_once = self.recipe.data.shards_at_once
        order = (self.learn_from.shard_numbers, at_once) if at_once else ()
        batches = Batches(len(self.learn_from), self.recipe.training, rank, ranks, step, accumulate, *order)
        return self.loader(self.sets, batches)

    def val_dataloader(self) -> DataLoader[Any] | list[Any]:
        assert self.trainer is not None
        if self.validate_on is None:
            return []
        own = range(self.trainer.global_rank, len(self.validate_on), self.trainer.world_size)
        size = self.recipe.training.batch
        return self.loader(
            (self.validate_on,), [[(0, index) for index in own[at : at + size]] for at in range(0, len(own), size)]
        )

    def loader(self, sets: tuple[EventStore, ...], batches: Any) -> DataLoader[Any]:
        workers = self.recipe.data.workers
        return DataLoader(
            Recordings(sets, self.recipe.sampling, self.recipe.training.seed),
            batch_sampler=batches,
            collate_fn=identity_collate,
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
        self.steps = steps  # per epoch
        self.sources = sources
        nothing = torch.zeros(len(objective.metrics) + 1, dtype=torch.float64)  # and the count
        self.sums = {"train": nothing, "validation": nothing}
        self.step_ended = 0.0

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        events, labels, indices = batch
        return events.to(device, non_blocking=True), labels.to(device, non_blocking=True), indices

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        events, labels, indices = batch
        seed = self.recipe.training.seed
        part = batch_idx % self.recipe.trainer.accumulate * self.trainer.world_size + self.global_rank
        generator = seeded(seed, self.global_step, STEPS + 1 + part, self.device)
        outcome = self.objective(augment(events, self.recipe.augment, generator), labels, generator)
        self._check(outcome.loss, indices)
        self._add("train", outcome)
        if (self.global_step + 1) % LOGGED == 0:  # at other steps Lightning would drop it
            self.log("train/loss_step", outcome.loss.detach(), sync_dist=True)
        return outcome.loss

    def backward(self, loss: Tensor, *arguments: Any, **settings: Any) -> None:
        with flush_denormals():
            super().backward(loss, *arguments, **settings)

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        self.step_ended = (
            time.perf_counter()
        )  # after all callbacks: writing a checkpoint does not count as waiting for data

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        events, labels, _ = batch
        self._add("validation", self.objective(events, labels, None))

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
        copy = self.sums[split].to(self.device, dtype, copy=True)  # ranks are summed in place
        total = self.trainer.strategy.reduce(copy, reduce_op="sum")
        assert isinstance(total, Tensor)
        return total.cpu().double()

    def take_means(self, split: str) -> dict[str, float]:
        """Means over all batches and ranks since the last call."""
        *sums, count = self._total(split).tolist()
        self.sums[split] = torch.zeros_like(self.sums[split])
        return {name: value / max(count, 1.0) for name, value in zip(self.objective.metrics, sums, strict=True)}

    def ends_step(self, batch_idx: int) -> bool:
        """Whether this is the last of the batches accumulated into one step."""
        return (batch_idx + 1) % self.recipe.trainer.accumulate == 0

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["sums"] = self._total("train")
        checkpoint["world_size"] = self.trainer.world_size
        checkpoint["accumulate"] = self.recipe.trainer.accumulate

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.trainer.is_global_zero:  # the others start at zero, so that the sum stays the same
            self.sums["train"] = checkpoint["sums"]

    def on_train_start(self) -> None:
        """torch checks how many weights an optimiser's state is for, but not their shapes."""
        for parameter, state in self.trainer.optimizers[0].state.items():
            moments = [value for value in state.values() if isinstance(value, Tensor) and value.ndim]
            if any(moment.shape != parameter.shape or not bool(moment.isfinite().all()) for moment in moments):
                problem = "does not fit the run: its optimiser is for other weights. Remove it to restart the run"
                raise FileError(str(self.trainer.ckpt_path), problem)

    def configure_optimizers(self) -> Any:
        config = self.recipe.training
        rate = config.learning_rate * config.batch * self.trainer.world_size * self.recipe.trainer.accumulate / 256
        optimizer = build_optimizer(self.objective, config, rate, self.device, self.trainer.precision)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: learning_rate_factor(step / self.steps, config, rate)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
