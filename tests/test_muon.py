"""Muon: steps of matrices are orthogonal, all other weights take AdamW's, and training resumes exactly."""

import pytest
import torch
from conftest import SMALL
from torch import nn

from event2vec import ModelConfig, build_model
from event2vec.training.muon import LARGER, Muon, orthogonalise
from event2vec.training.optimizer import weight_groups


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(32, 32), (64, 16), (16, 48)])
def test_a_step_has_about_the_same_size_in_all_directions(shape):
    matrix = draw(*shape)
    found = orthogonalise(matrix)
    sizes = torch.linalg.svdvals(found)
    assert 0.6 < float(sizes.min()) <= float(sizes.max()) < 1.3
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    assert float((found * (left @ right)).sum() / min(shape)) > 0.8  # in the direction of the nearest orthogonal matrix
    assert torch.equal(orthogonalise(torch.zeros(shape)), torch.zeros(shape))


def test_a_first_step_is_the_orthogonal_gradient():
    weight = nn.Parameter(draw(16, 16))
    before = weight.detach().clone()
    weight.grad = draw(16, 16, seed=1)
    expected = orthogonalise(weight.grad * (0.05 + 0.95 * 0.05))
    optimizer = Muon([{"params": [weight], "orthogonal": True}], lr=0.01, weight_decay=0.1)
    optimizer.step()
    torch.testing.assert_close(weight.data, before * (1 - 0.01 * LARGER * 0.1) - 0.01 * LARGER * expected)


def test_other_weights_take_the_steps_of_adamw():
    ours, theirs = (nn.Parameter(draw(5)) for _ in range(2))
    one, other = Muon([{"params": [ours]}], lr=0.1), torch.optim.AdamW([theirs], lr=0.1)
    for seed in range(3):
        for weight, optimizer in ((ours, one), (theirs, other)):
            weight.grad = draw(5, seed=seed)
            optimizer.step()
    assert torch.equal(ours, theirs)


def test_it_goes_on_as_if_it_had_not_been_stopped():
    def steps(weight, optimizer, seeds):
        for seed in seeds:
            weight.grad = draw(16, 16, seed=seed)
            optimizer.step()

    whole, first = (nn.Parameter(draw(16, 16)) for _ in range(2))
    build = lambda weight: Muon([{"params": [weight], "orthogonal": True}], lr=0.01)  # noqa: E731
    steps(whole, build(whole), range(4))
    stopped = build(first)
    steps(first, stopped, range(2))
    resumed = build(first)
    resumed.load_state_dict(stopped.state_dict())
    steps(first, resumed, range(2, 4))
    assert torch.equal(first, whole)


def test_matrices_inside_a_network_are_turned_and_its_ends_are_not():
    model = build_model(ModelConfig(sensor=SMALL, classes=20, dim=64, blocks=1, neighbourhood=7))
    groups = weight_groups(model, "muon")
    turned = {id(weight) for weight in groups[2]["params"]}
    names = {name for name, weight in model.named_parameters() if id(weight) in turned}
    assert "backbone.stages.0.blocks.0.widen.weight" in names
    assert "embed.neighbourhood.weight.weight" in names
    assert not [name for name in names if "head" in name or "norm" in name or "kernels" in name]
    together = [id(weight) for group in groups for weight in group["params"]]
    assert sorted(together) == sorted(id(weight) for weight in model.parameters())
    assert len(weight_groups(model, "adamw")) == 2
