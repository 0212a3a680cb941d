"""The optimiser of a recipe: which weights take which steps, and at what rate in each step."""

import math
from dataclasses import replace

import pytest
import torch
from conftest import SMALL
from torch import nn

from event2vec import ModelConfig, build_model
from event2vec.baselines.config import EventMaeConfig, FrameCnnConfig
from event2vec.model.masked import build_masked_model
from event2vec.training.callbacks import _duration, _shown, has_waited
from event2vec.training.config import TrainingConfig
from event2vec.training.muon import COEFFICIENTS, LARGER, MOMENTUM, Muon, orthogonalise
from event2vec.training.optimizer import build_optimizer, learning_rate_factor, split_by_decay, weight_groups

CPU = torch.device("cpu")
TINY = ModelConfig(sensor=SMALL, classes=3, dim=32, hidden=48, heads=2, blocks=2)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def names_of(module: nn.Module, weights: list[torch.Tensor]) -> set[str]:
    chosen = {id(weight) for weight in weights}
    return {name for name, weight in module.named_parameters() if id(weight) in chosen}


# ---- the rate


def test_the_rate_of_each_step_is_the_papers_warmup_and_cosine():
    config = TrainingConfig(epochs=20, warmup_epochs=4.0, learning_rate=0.5, final_learning_rate=0.1)
    for step in range(200):
        epoch = step / 10
        if epoch < 4:
            expected = 0.5 * (0.01 + 0.99 * epoch / 4)
        else:
            expected = 0.1 + 0.4 * (1 + math.cos(math.pi * (epoch - 4) / 16)) / 2
        assert 0.5 * learning_rate_factor(epoch, config, 0.5) == pytest.approx(expected), epoch


def test_the_final_rate_is_not_scaled_with_the_batch():
    """lr_min of App. A.2 is what the rate ends at, whatever the rate of the batch was."""
    config = TrainingConfig(epochs=10, warmup_epochs=0.0, learning_rate=0.5, final_learning_rate=0.1)
    for rate in (0.5, 0.25, 2.0):
        assert rate * learning_rate_factor(10.0, config, rate) == pytest.approx(0.1)


@pytest.mark.parametrize("warmup", [3.0, 5.0, 1000.0])
def test_a_training_no_longer_than_its_warmup_only_rises(warmup):
    config = TrainingConfig(epochs=3, warmup_epochs=warmup)
    factors = [learning_rate_factor(step / 10, config, 0.1) for step in range(30)]
    assert factors == sorted(factors)
    assert factors[0] == pytest.approx(0.01)
    assert factors[15] == pytest.approx(0.505), "the warm-up ends with the training"
    assert math.isfinite(learning_rate_factor(3.0, config, 0.1)), "Lightning asks for one more"


def test_a_rate_of_zero_stays_zero():
    config = TrainingConfig(learning_rate=0.0)
    assert all(0.0 * learning_rate_factor(epoch, config, 0.0) == 0 for epoch in (0.0, 4.0, 30.0, 64.0))


# ---- which weights


def test_every_weight_is_in_one_group_and_the_free_ones_never_decay():
    for model in (
        build_model(TINY),
        build_model(replace(TINY, spatial="lookup", shared=False, relative=True, neighbourhood=3)),
        build_model(FrameCnnConfig(sensor=SMALL, classes=3, recurrent=True)),
        build_masked_model(EventMaeConfig(sensor=SMALL)),
    ):
        for kind in ("adamw", "muon"):
            config = TrainingConfig(optimizer=kind, weight_decay=0.3)
            optimizer = build_optimizer(model, config, 0.01, CPU, "32-true")
            together = [id(weight) for group in optimizer.param_groups for weight in group["params"]]
            assert sorted(together) == sorted(map(id, model.parameters()))
            free = split_by_decay(model)[1]
            for group in optimizer.param_groups:
                own = {id(weight) for weight in group["params"]}
                assert group["weight_decay"] == (0.0 if own & set(map(id, free)) else 0.3)
                assert group["lr"] == 0.01


def test_vectors_norms_and_tables_are_free_whatever_they_are_called():
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))
            self.number = nn.Parameter(torch.tensor(2.0))
            self.table = nn.Embedding(4, 5)
            self.my_norm = nn.Parameter(torch.ones(2, 2))
            self.matrix = nn.Linear(3, 2)

    odd = Odd()
    decayed, free = split_by_decay(odd)
    assert names_of(odd, decayed) == {"matrix.weight"}
    assert names_of(odd, free) == {"scale", "number", "table.weight", "my_norm", "matrix.bias"}


def test_muon_turns_matrices_of_at_least_sixteen_to_a_side():
    class Sizes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enough, self.narrow, self.flat = nn.Linear(16, 16), nn.Linear(15, 40), nn.Linear(40, 15)
            self.head, self.kernels = nn.Linear(16, 16), nn.Parameter(torch.ones(16, 16))
            self.frames, self.table = nn.Conv2d(16, 16, 3), nn.Embedding(16, 16)
            self.norm_of_many = nn.Parameter(torch.ones(16, 16))

    sizes = Sizes()
    usual, free, turned = weight_groups(sizes, "muon")
    assert names_of(sizes, turned["params"]) == {"enough.weight"}
    assert turned["orthogonal"]
    assert names_of(sizes, usual["params"]) == {
        "narrow.weight", "flat.weight", "head.weight", "kernels", "frames.weight",
    }  # fmt: skip
    assert "orthogonal" not in usual
    assert "orthogonal" not in free
    assert [len(group["params"]) for group in weight_groups(sizes, "adamw")] == [6, 7]


@pytest.mark.parametrize(
    ("kind", "precision", "fused"),
    [("adamw", "32-true", True), ("muon", "32-true", True), ("adamw", "bf16-mixed", False), ("adamw", None, False)],
)
def test_one_call_for_all_weights_is_for_full_precision(kind, precision, fused):
    """Lightning clips no gradients of a fused optimiser with mixed precision."""
    optimizer = build_optimizer(build_model(TINY), TrainingConfig(optimizer=kind), 0.01, CPU, precision)
    assert isinstance(optimizer, Muon) == (kind == "muon")
    assert optimizer.defaults["fused"] == fused


def test_decay_shrinks_matrices_by_the_rate_times_the_decay_and_nothing_else():
    model = build_model(TINY)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for kind in ("adamw", "muon"):
        model.load_state_dict(before, strict=False)
        optimizer = build_optimizer(model, TrainingConfig(optimizer=kind, weight_decay=0.25), 0.1, CPU, "32-true")
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
        optimizer.step()
        decayed = names_of(model, split_by_decay(model)[0])
        turned = names_of(model, [*weight_groups(model, kind)[-1]["params"]]) if kind == "muon" else set()
        for name, weight in model.named_parameters():
            rate = 0.1 * (LARGER if name in turned else 1)
            expected = before[name] * (1 - rate * 0.25) if name in decayed else before[name]
            torch.testing.assert_close(weight.detach(), expected, msg=name)


# ---- Muon


def test_the_iteration_is_the_published_one():
    assert COEFFICIENTS == (3.4445, -4.7750, 2.0315)
    assert MOMENTUM == 0.95
    matrix = draw(20, 30).double()
    sizes = torch.linalg.svdvals(matrix) / matrix.norm()
    for _ in range(5):
        sizes = 3.4445 * sizes - 4.7750 * sizes**3 + 2.0315 * sizes**5
    found = torch.linalg.svdvals(orthogonalise(matrix))
    torch.testing.assert_close(found, sizes.sort(descending=True).values)


@pytest.mark.parametrize("shape", [(24, 40), (40, 24), (64, 16)])
def test_several_steps_are_those_written_out(shape):
    """Momentum after Nesterov; matrices with more rows than columns take larger steps."""
    weight = nn.Parameter(draw(*shape))
    expected, mean = weight.detach().clone(), torch.zeros(shape)
    optimizer = Muon([{"params": [weight], "orthogonal": True}], lr=0.02, weight_decay=0.1)
    larger = 0.02 * 20 / 3
    for step in range(4):
        gradient = draw(*shape, seed=10 + step)
        weight.grad = gradient.clone()
        optimizer.step()
        mean = 0.95 * mean + 0.05 * gradient
        ahead = 0.05 * gradient + 0.95 * mean
        grown = math.sqrt(max(1.0, shape[0] / shape[1]))
        expected = expected * (1 - larger * 0.1) - larger * grown * orthogonalise(ahead)
        torch.testing.assert_close(weight.detach(), expected, atol=1e-5, rtol=1e-5)
        assert optimizer.state[weight]["step"] == step + 1


def test_a_weight_without_a_gradient_stays_as_it_is_and_a_closure_is_called():
    still, moved = nn.Parameter(draw(16, 16)), nn.Parameter(draw(16, 16, seed=1))
    before = still.detach().clone()
    optimizer = Muon([{"params": [still, moved], "orthogonal": True}], lr=0.1, weight_decay=0.5)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = moved.square().sum()
        loss.backward()
        return loss

    first = float(moved.detach().square().sum())
    assert optimizer.step(closure).item() == pytest.approx(first)
    assert torch.equal(still, before), "no decay either"
    assert closure().item() < first


# ---- what people are told


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "0:00"), (59.4, "0:59"), (59.6, "1:00"), (600.0, "10:00"), (3599.7, "1:00:00"), (36_061.0, "10:01:01")],
)
def test_the_time_left_is_in_minutes_or_hours(seconds, said):
    assert _duration(seconds) == said


def test_accuracies_are_shown_in_percent_and_losses_with_four_digits():
    assert _shown("validation", "accuracy", 0.98765) == "validation accuracy 98.8%"
    assert _shown("train", "polarity_accuracy", 0.5) == "train polarity accuracy 50.0%"
    assert _shown("train", "loss", 0.123456) == "train loss 0.1235"


@pytest.mark.parametrize(
    ("epochs", "patience", "ends"), [(0, 0, False), (9, 0, False), (1, 2, False), (2, 2, True), (3, 2, True)]
)
def test_patience_is_counted_in_epochs_without_a_gain_and_none_is_endless(epochs, patience, ends):
    assert has_waited(epochs, patience) == ends
