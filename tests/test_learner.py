"""What Lightning calls: means over unequal batches, shares of ranks, rates; and how a training is put together."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SMALL, make_recording, randomise
from torch import Tensor
from trainings import FLAT, RECIPE, make_store

from event2vec import Event2VecError, EventStore, Windows, save_model
from event2vec.data.batches import Recordings
from event2vec.machine.devices import CPU
from event2vec.model.masked import build_masked_model
from event2vec.model.trained_on import TrainedOn
from event2vec.training.config import DataConfig, SpanMask, TrainerConfig, TrainingConfig
from event2vec.training.fit import _epochs_waited, _worker_error, build_objective, evaluate_masked
from event2vec.training.lightning_module import Learner, TrainingData
from event2vec.training.objectives import Outcome, masked_objective
from event2vec.training.optimizer import learning_rate_factor
from event2vec.training.recipe import Recipe


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("data") / "store")


def trainer(rank: int = 0, ranks: int = 1, **more: Any) -> Any:
    """What a learner asks Lightning's trainer for."""
    strategy = SimpleNamespace(reduce=lambda values, reduce_op: values)
    return SimpleNamespace(
        global_rank=rank, world_size=ranks, global_step=0, strategy=strategy, precision="32-true", **more
    )


def learner(store: EventStore, recipe: Recipe = RECIPE, steps: int = 6, **more: Any) -> Any:
    found: Any = Learner(build_objective(recipe, store, "train"), recipe, steps, store.sources)
    found._trainer = trainer(**more)
    return found


def outcome(loss: float, accuracy: float, count: int) -> Outcome:
    return Outcome(torch.tensor(loss), {"loss": torch.tensor(loss), "accuracy": torch.tensor(accuracy)}, count)


# ---- means


def test_means_are_over_recordings_and_not_over_batches(store):
    found = learner(store)
    for loss, accuracy, count in ((1.0, 1.0, 4), (4.0, 0.0, 1)):
        found._add("train", outcome(loss, accuracy, count))
    found._add("validation", outcome(9.0, 0.5, 2))
    assert found.take_means("train") == pytest.approx({"loss": 8 / 5, "accuracy": 4 / 5})
    assert found.take_means("validation") == pytest.approx({"loss": 9, "accuracy": 0.5})
    assert found.take_means("train") == {"loss": 0, "accuracy": 0}, "an epoch begins with nothing"


def test_means_are_over_all_ranks(store):
    found = learner(store)
    found._add("train", outcome(1.0, 1.0, 4))
    other = torch.tensor([6.0, 0.0, 2.0], dtype=torch.float64)  # what another rank has seen: sums and the count
    found._trainer.strategy.reduce = lambda values, reduce_op: values + other if reduce_op == "sum" else None
    assert found.take_means("train") == pytest.approx({"loss": 10 / 6, "accuracy": 4 / 6})


def test_sums_are_kept_in_a_checkpoint_and_taken_up_by_the_first_rank_alone(store):
    first, second = learner(store), learner(store)
    first._add("train", outcome(2.0, 0.5, 4))
    kept: dict[str, Any] = {}
    first.on_save_checkpoint(kept)
    assert (kept["world_size"], kept["accumulate"]) == (1, 1)
    for rank, expected in ((True, [8.0, 2.0, 4.0]), (False, [0.0, 0.0, 0.0])):
        second._trainer.is_global_zero = rank
        second.sums["train"] = torch.zeros(3, dtype=torch.float64)
        second.on_load_checkpoint(kept)
        assert second.sums["train"].tolist() == expected


@pytest.mark.parametrize(("count", "more"), [(1, ""), (8, ""), (9, " and 1 more"), (12, " and 4 more")])
def test_a_loss_that_is_no_number_names_eight_recordings_at_most(store, count, more):
    found = learner(store, optimizers=[SimpleNamespace(param_groups=[{"lr": 0.0123}])])
    found._check(torch.tensor(3.0), [0])
    with pytest.raises(Event2VecError) as refusal:
        found._check(torch.tensor(float("inf")), list(range(count)))
    names = ", ".join(store.sources[: min(count, 8)])
    assert str(refusal.value) == (
        f"the loss became inf at step 0, learning rate 0.0123, on {names}{more}. "
        "Lower training.learning_rate, or set training.clip to 1"
    )


def test_a_step_ends_with_the_last_of_its_accumulated_batches(store):
    three = learner(store, replace(RECIPE, trainer=replace(RECIPE.trainer, accumulate=3)))
    assert [three.ends_step(batch) for batch in range(6)] == [False, False, True] * 2
    assert all(learner(store).ends_step(batch) for batch in range(3))


@pytest.mark.parametrize(("ranks", "accumulate", "batch"), [(1, 1, 4), (4, 1, 64), (2, 4, 8)])
def test_the_rate_grows_with_the_recordings_of_a_step_and_falls_step_by_step(store, ranks, accumulate, batch):
    training = TrainingConfig(epochs=5, batch=batch, learning_rate=0.01, warmup_epochs=1.0, final_learning_rate=1e-5)
    recipe = replace(RECIPE, training=training, trainer=replace(RECIPE.trainer, accumulate=accumulate))
    made = learner(store, recipe, steps=3, ranks=ranks).configure_optimizers()
    optimizer, schedule = made["optimizer"], made["lr_scheduler"]["scheduler"]
    assert made["lr_scheduler"]["interval"] == "step"
    rate = 0.01 * ranks * accumulate * batch / 256
    for step in range(16):
        expected = rate * learning_rate_factor(step / 3, training, rate)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(expected), step
        optimizer.step()
        schedule.step()


# ---- parts


@pytest.mark.parametrize(("ranks", "batch"), [(1, 4), (2, 4), (4, 1), (5, 3)])
def test_ranks_share_the_validation_part_and_each_recording_is_read_once(store, ranks, batch):
    recipe = replace(RECIPE, training=replace(RECIPE.training, batch=batch))
    seen: list[tuple[int, int]] = []
    for rank in range(ranks):
        data = TrainingData(recipe, store)
        data.trainer = trainer(rank, ranks)
        loader: Any = data.val_dataloader()
        batches = list(loader.batch_sampler)
        assert all(len(each) <= batch for each in batches)
        seen += [key for each in batches for key in each]
    assert sorted(seen) == [(0, index) for index in range(6)], "always the same draw"


def test_without_a_validation_part_nothing_is_validated(store):
    data = TrainingData(RECIPE, store.split("train"))
    data.trainer = trainer()
    assert data.val_dataloader() == []


def test_training_batches_begin_where_the_training_stopped(store):
    keys = []
    for step in (0, 2):
        data: Any = TrainingData(RECIPE, store)
        data.trainer = trainer()
        data.trainer.global_step = step
        keys.append(list(data.train_dataloader().batch_sampler))
        assert data.asked
    assert len(keys[0]) == 6
    assert keys[1] == keys[0][2:]


def test_a_network_knows_what_it_was_trained_on_and_nothing_of_the_other_parts(tmp_path):
    recordings = [(make_recording(40, seed=number), number % 2) for number in range(6)]
    recordings += [(make_recording(4000, seed=9, duration=9_000_000), 0)]
    splits = ["train"] * 6 + ["test"]
    store = EventStore.create(tmp_path / "store", recordings, sensor=SMALL, classes=["a", "b"], splits=splits)
    recipe = RECIPE.with_settings({"model.classes": 2})
    model: Any = build_objective(recipe, store, "train").model
    assert model.trained_on == TrainedOn.of(store.split("train"))
    assert model.trained_on.events[-1] == 40
    assert (model.class_names, model.sampling, model.windows) == (("a", "b"), recipe.sampling, None)


def test_class_weights_are_of_the_training_part_and_only_if_asked_for(tmp_path):
    labels, splits = [0, 0, 0, 1, 1, 1, 1, 1], ["train"] * 4 + ["test"] * 4
    recordings = [(make_recording(20, seed=number), label) for number, label in enumerate(labels)]
    store = EventStore.create(tmp_path / "store", recordings, sensor=SMALL, classes=["a", "b"], splits=splits)
    recipe = RECIPE.with_settings({"model.classes": 2})
    plain: Any = build_objective(recipe, store, "train")
    assert plain.class_weights is None
    balanced: Any = build_objective(recipe.with_settings({"objective.class_weights": "balanced"}), store, "train")
    assert balanced.class_weights.tolist() == pytest.approx([4 / (2 * 3), 4 / (2 * 1)])


def test_starting_weights_are_those_of_the_seed_of_the_recipe(store):
    def weights(seed: int, task: Any) -> Tensor:
        recipe = replace(FLAT, training=replace(FLAT.training, seed=seed))
        return next(build_objective(recipe, store, task).parameters()).detach()

    for task in ("train", "pretrain"):
        assert torch.equal(weights(3, task), weights(3, task))
        assert not torch.equal(weights(3, task), weights(4, task))
    with pytest.raises(Event2VecError, match=r"model.pooling must be false for pre-training"):
        build_objective(RECIPE, store, "pretrain")


@torch.no_grad()
def test_a_pre_trained_network_is_judged_by_the_mean_over_hidden_events(store, tmp_path):
    recipe = FLAT.with_settings({"objective.mask.share": 0.5, "training.batch": 4})
    model = randomise(build_masked_model(recipe.model))
    save_model(model, tmp_path / "net")
    found = evaluate_masked(tmp_path / "net", store.split("test"), recipe, CPU)
    recordings = Recordings((store.split("test"),), recipe.sampling, recipe.training.seed)
    objective = masked_objective(model, recipe.objective)
    parts = [objective(*recordings.batch([(0, index) for index in rows])[:2], None) for rows in ((0, 1, 2, 3), (4, 5))]
    assert len({part.count for part in parts}) == 2, "unequal"
    for name in objective.metrics:
        total = sum(float(part.metrics[name]) * part.count for part in parts)
        assert found[name] == pytest.approx(total / sum(part.count for part in parts)), name
    assert found["recordings"] == 6
    assert found == evaluate_masked(tmp_path / "net", store.split("test"), recipe, CPU), "hidden alike every time"


def test_what_a_checkpoint_says_of_waiting_is_read_and_rubbish_is_none():
    assert _epochs_waited({"callbacks": {"Checkpoints": {"best": [0.5, -1.0], "waited": 3}}}) == 3
    garbage: list[Any] = [{}, {"Checkpoints": 5}, {"Checkpoints": {"waited": "x"}}, 7, {"Checkpoints": {}}]
    for rubbish in garbage:
        assert _epochs_waited({"callbacks": rubbish}) == 0


def test_the_error_of_a_process_that_reads_ahead_is_its_last_line():
    trace = "Caught FileError in DataLoader worker process 0.\nTraceback: ...\n"
    trace += "event2vec.errors.FileError: a.raw: is cut: short"
    found = _worker_error(RuntimeError(trace))
    assert isinstance(found, Event2VecError)
    assert str(found) == "a.raw: is cut: short"
    assert _worker_error(RuntimeError("ValueError: event2vec.errors. is elsewhere")) is None
    assert _worker_error(RuntimeError()) is None


# ---- settings


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: DataConfig(folds=1), "data.folds must be 0 or at least 2, got 1"),
        (lambda: DataConfig(folds=3, fold=4), "data.fold must be at most data.folds, which is 3, got 4"),
        (lambda: DataConfig(fold=1), "data.fold must be at most data.folds, which is 0, got 1"),
        (lambda: DataConfig(validation=0.6), "data.validation must be at least 0 and at most 0.5, got 0.6"),
        (
            lambda: TrainingConfig(learning_rate=0.1, final_learning_rate=0.2),
            "training.final_learning_rate must not be above training.learning_rate, got 0.2 and 0.1",
        ),
        (lambda: TrainingConfig(epochs=0), "training.epochs must be at least 1, got 0"),
        (lambda: TrainerConfig(accumulate=0), "trainer.accumulate must be at least 1, got 0"),
        (lambda: SpanMask(share=1.0), "objective.mask.share must be above 0 and below 1, got 1.0"),
    ],
)
def test_settings_that_cannot_be_are_refused_word_for_word(make, said):
    with pytest.raises(ValueError, match="must") as refusal:
        make()
    assert str(refusal.value) == said


def test_equal_ends_of_a_schedule_are_a_constant_rate():
    config = TrainingConfig(learning_rate=0.1, final_learning_rate=0.1, warmup_epochs=0.0)
    assert {learning_rate_factor(epoch, config, 0.1) for epoch in np.linspace(0, 64, 9).tolist()} == {1.0}


def test_only_a_folder_of_recordings_has_groups_and_labels():
    windows = Windows(window=0.5)
    own = DataConfig(dataset="folder", group_by="^[^_]+", labels="x.csv", window=0.5)
    assert own.options == {"group_by": "^[^_]+", "labels": "x.csv", "windows": windows}
    assert DataConfig(dataset="dvs_gesture", window=0.5).options == {"windows": windows}
    assert DataConfig().windows is None


@pytest.mark.parametrize(
    ("mask", "share"),
    [(SpanMask(share=0.2, length=1), 0.2), (SpanMask(share=0.3, length=3, longest=1), 0.1),
     (SpanMask(share=0.4, length=2, longest=2), 1 - 0.8 * 0.9)],
)  # fmt: skip
def test_the_share_that_spans_hide_is_what_overlap_and_their_limit_leave(mask, share):
    assert mask.expected_share == pytest.approx(share)
