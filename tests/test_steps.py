"""Which recordings a step reads, how its learning rate goes, what decays, and the rows that an epoch leaves."""

import math
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import torch
from trainings import FLAT, RECIPE, make_store

from event2vec import Event2VecError, ModelConfig, Sampling
from event2vec.data.batches import Recordings
from event2vec.model.classifier import build_model
from event2vec.model.embedding import ConvolutionalTemporal
from event2vec.model.masked import build_masked_model
from event2vec.training.callbacks import Checkpoints
from event2vec.training.config import TrainingConfig
from event2vec.training.metrics import append_row, read_rows
from event2vec.training.objectives import Classification, masked_objective
from event2vec.training.optimizer import learning_rate_factor, split_by_decay
from event2vec.training.run import Run
from event2vec.training.steps import Batches, steps_in_epoch


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("data") / "store")


def test_ranks_share_a_step_without_overlap():
    config = TrainingConfig(batch=3, repeats=2, seed=5)
    ranks = [list(Batches(10, config, rank, 2, start=0)) for rank in range(2)]
    whole = list(Batches(10, replace(config, batch=6), 0, 1, start=0))
    assert [one + other for one, other in zip(*ranks, strict=True)] == whole
    keys = [key for batch in whole for key in batch]
    assert len(set(keys)) == len(keys) == 18, "no recording twice in a round, and what does not fill a step waits"
    assert {draw for draw, _ in keys} == {0, 1}
    assert steps_in_epoch(10, config, 2) == 3


def test_batches_that_are_accumulated_are_those_of_as_many_ranks():
    config = TrainingConfig(batch=3, repeats=2, seed=5)
    ranks = [list(Batches(10, config, rank, 2, start=0)) for rank in range(2)]
    alone = list(Batches(10, config, 0, 1, start=0, accumulate=2))
    assert alone == [batch for step in zip(*ranks, strict=True) for batch in step]
    both = [list(Batches(20, config, rank, 2, start=1, accumulate=2)) for rank in range(2)]
    whole = list(Batches(20, replace(config, batch=12), 0, 1, start=1))
    steps = [
        batch for pair in zip(*both, strict=True) for batch in pair
    ]  # first of each rank, second of each rank, ...
    assert [key for batch in steps for key in batch] == [key for batch in whole for key in batch]


def test_epochs_differ_and_a_stopped_one_goes_on():
    batches = Batches(10, TrainingConfig(batch=2), 0, 1, start=3)
    first, second = list(batches), list(batches)
    assert (len(first), len(second)) == (2, 5), "only the first is short"
    assert first == second[3:]
    batches.set_epoch(1)
    later = list(batches)
    assert later != second
    assert list(Batches(10, TrainingConfig(batch=2), 0, 1, start=5 + 3)) == later[3:], "before set_epoch is called"


def test_a_data_set_smaller_than_a_step_fills_it():
    (batch,) = Batches(3, TrainingConfig(batch=8), 0, 1, start=0)
    assert len(batch) == 8
    assert {index for _, index in batch} == {0, 1, 2}


def test_a_recording_is_drawn_by_its_round_and_index(store):
    recordings = Recordings((store,), Sampling(length=16), seed=0)
    one, again, other = recordings[0, 5], recordings[0, 5], recordings[1, 5]
    assert torch.equal(one[0].t, again[0].t)
    assert not torch.equal(one[0].t, other[0].t)
    batch, labels, indices = recordings.batch([(0, 5), (0, 7)])
    assert batch.valid.shape == (2, 16)
    assert torch.equal(batch.t[0], one[0].t)
    assert (labels.tolist(), indices) == ([2, 1], [5, 7])


def test_sets_of_clusters_take_turns(store):
    sets = tuple(store.subset([number, number + 3]) for number in range(3))
    recordings = Recordings(sets, Sampling(method="clusters", length=1000), seed=0)
    for index, turns in ((0, (0, 1, 2, 0)), (1, (1, 2, 0, 1))):
        for draw, turn in enumerate(turns):
            alone, label, _ = recordings[draw, index]
            assert torch.equal(alone.t, sets[turn][index][0].t)
            batch, labels, _ = recordings.batch([(draw, index)])
            assert torch.equal(batch.t[0], alone.t), "read together"
            assert labels.tolist() == [label]
    assert not torch.equal(sets[0][0][0].t, sets[1][0][0].t)


def test_the_learning_rate_warms_up_and_cools_down():
    config = TrainingConfig(epochs=64, warmup_epochs=4.0, final_learning_rate=1e-6)
    rate = 0.001
    factors = [learning_rate_factor(epoch, config, rate) for epoch in (0.0, 2.0, 4.0, 34.0, 64.0, 70.0)]
    assert factors == pytest.approx([0.01, 0.505, 1, 0.5005, 0.001, 0.001])
    assert learning_rate_factor(0.0, TrainingConfig(warmup_epochs=0.0), rate) == 1


@pytest.mark.parametrize("attention", ["forgetting", "gated_linear"])
def test_what_is_spared_weight_decay(attention):
    config = replace(
        cast(ModelConfig, FLAT.model), attention=attention, spatial="lookup", temporal="sine", shared=False
    )
    for model in (build_model(config), build_masked_model(config)):
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        decayed, free = ({names[id(parameter)] for parameter in part} for part in split_by_decay(model))
        assert decayed | free == set(names.values())
        assert not decayed & free
        assert "embed.spatial.rows.weight" in free, "a lookup table"
        assert "embed.temporal.scale" in free
        assert {name for name in names.values() if "bias" in name or "norm" in name or "mask_token" in name} <= free
        assert "backbone.stages.0.blocks.0.widen.weight" in decayed
        assert all(name.endswith("weight") for name in decayed)
    temporal = build_model(cast(ModelConfig, FLAT.model)).embed.temporal
    assert isinstance(temporal, ConvolutionalTemporal)
    shapes = {weight.shape for weight in split_by_decay(build_model(FLAT.model))[0]}
    assert {kernel.shape for kernel in temporal.kernels} <= shapes


def test_a_row_that_was_trained_again_is_replaced(tmp_path):
    path = tmp_path / "metrics.csv"
    for epoch, loss in ((1.0, 3.0), (2.0, 2.0), (2.0, 1.0)):
        append_row(path, {"epoch": epoch, "loss": loss, "seconds": 1.0, "data_share": 0.0})
    assert [row["loss"] for row in read_rows(path)] == [3.0, 1.0]
    assert len(path.read_text().splitlines()) == 3


@pytest.mark.parametrize("content", ["", "\x00", "epoch\n1\n", "epoch,seconds,data_share\n1,2,x\n", "epoch\n1,2,3\n"])
def test_rubbish_in_the_metrics_of_a_run_is_one_error(tmp_path, content):
    path = tmp_path / "metrics.csv"
    path.write_text(content)
    with pytest.raises(Event2VecError, match=r"metrics.csv: is not a table of a run's epochs"):
        read_rows(path)


@pytest.mark.parametrize(
    ("epochs", "best"),
    [
        ([(0.5, 1.0)], 1),
        ([(0.5, 1.0), (0.5, 1.1), (0.5, 0.9)], 3),  # equal: the lowest loss
        ([(0.9, 0.5), (0.88, 0.4), (0.86, 0.3)], 2),  # the last is more than 3 % below the highest
        ([(0.86, 0.3), (0.88, 0.4), (0.9, 0.5)], 3),  # the first falls behind, and the second was not kept
        ([(0.5, 0.1), (0.9, 0.5)], 2),  # far better, and so best with any loss
        ([(1.0, 0.5), (0.99, 0.1), (0.98, 0.05)], 2),  # all right is no certainty: 1.3 %
        ([(0.5, math.nan), (0.5, 0.4), (0.52, 0.5)], 2),
        ([(math.nan, math.nan), (0.1, 9.0), (math.nan, math.nan)], 2),
    ],
)
def test_of_epochs_within_a_standard_error_the_one_with_the_lowest_loss_is_best(tmp_path, epochs, best):
    """100 recordings: 3 % at 0.9."""
    objective = Classification(build_model(RECIPE.model), RECIPE.objective)
    callback, found = Checkpoints(Run(tmp_path), objective, RECIPE.training, 100), 0
    for number, (accuracy, loss) in enumerate(epochs, 1):
        if callback._becomes_best(accuracy, -loss):
            found = number
        state = callback.state_dict()
        callback = Checkpoints(Run(tmp_path), objective, RECIPE.training, 100)
        callback.load_state_dict(state)  # a resumed run chooses alike
    assert found == best


def test_of_pretrained_epochs_the_one_with_the_lowest_loss_is_best(tmp_path):
    objective = masked_objective(build_masked_model(FLAT.model), FLAT.objective)
    callback = Checkpoints(Run(tmp_path), objective, RECIPE.training, 100)
    callback.load_state_dict({"best": [-0.50, -0.50], "waited": 1})  # as an earlier version wrote it
    assert not callback._becomes_best(-0.51, -0.51)
    assert callback._becomes_best(-0.49, -0.49)


def test_recordings_are_shuffled_within_a_few_shards_at_a_time():
    """Each recording once, each shard in one stretch of the order, which differs from pass to pass."""
    shards = np.repeat(np.arange(6), 10)
    batches = Batches(60, TrainingConfig(batch=20, repeats=2), 0, 1, 0, shards=shards, at_once=2)
    read = [index for batch in batches for _, index in batch]
    passes = [read[:60], read[60:]]
    assert all(sorted(each) == list(range(60)) for each in passes)
    assert passes[0] != passes[1]
    for start in range(0, 60, 20):
        found = shards[passes[0][start : start + 20]]
        assert len({*found.tolist()}) == 2, "two shards are enough for a third of the recordings"
        assert (np.diff(found) != 0).sum() > 2, "and they are mixed"
