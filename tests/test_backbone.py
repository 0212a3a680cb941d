"""Blocks, stages, pooling and drop path."""

import pytest
import torch
from conftest import randomise

from event2vec.model.backbone import build_backbone, drop_branch, pool_pairs
from event2vec.model.config import ModelConfig
from event2vec.model.rows import Rows


def backbone(**settings):
    return randomise(build_backbone(ModelConfig(dim=16, hidden=24, heads=2, blocks=3, **settings)))


def test_a_block_is_post_norm():
    block = backbone(pooling=False).stages[0].blocks[0]
    tokens = torch.randn(1, 9, 16)
    rows = Rows(torch.ones(1, 9, dtype=torch.bool))
    middle = block.attention_norm(tokens + block.attention(tokens, rows))
    expected = block.feed_norm(middle + torch.relu(middle @ block.widen.weight.T) @ block.narrow.weight.T)
    torch.testing.assert_close(block(tokens, rows), expected)


@pytest.mark.parametrize(("pooling", "length", "left"), [(False, 20, 20), (True, 20, 3), (True, 21, 3), (True, 1, 1)])
def test_pooling_halves_the_length_after_each_block(pooling, length, left):
    tokens, valid = backbone(pooling=pooling)(torch.randn(2, length, 16), torch.ones(2, length, dtype=torch.bool))
    assert tokens.shape == (2, left, 16)
    assert valid.all()


def test_pairs_are_averaged_over_valid_tokens():
    tokens = torch.tensor([[1.0, 3.0, 5.0, 9.0, 9.0], [1.0, 3.0, 5.0, 7.0, 9.0]])[..., None]
    valid = torch.arange(5) < torch.tensor([[3], [5]])
    pooled, real = pool_pairs(tokens, valid)
    assert pooled[..., 0].tolist() == [[2, 5, 0], [2, 6, 9]]
    assert real.tolist() == [[True, True, False], [True, True, True]]


@pytest.mark.parametrize("pooling", [True, False])
def test_rows_of_any_length_give_what_they_give_alone(pooling):
    network = backbone(pooling=pooling)
    tokens, lengths = torch.randn(3, 33, 16), [33, 20, 7]
    together, real = network(tokens, torch.arange(33) < torch.tensor(lengths)[:, None])
    for row, length in enumerate(lengths):
        alone, _ = network(tokens[row : row + 1, :length], torch.ones(1, length, dtype=torch.bool))
        assert int(real[row].sum()) == alone.shape[1]
        torch.testing.assert_close(together[row : row + 1, : alone.shape[1]], alone, atol=2e-6, rtol=1e-5)


def test_drop_path_grows_with_depth_and_keeps_the_mean():
    shares = [block.drop_path for block in backbone(pooling=False, drop_path=0.4).stages[0].blocks]
    assert shares == pytest.approx([0, 0.2, 0.4])
    branch = torch.ones(20_000, 1, 1)
    dropped = drop_branch(branch, 0.4, torch.Generator().manual_seed(0))
    assert dropped.unique().tolist() == pytest.approx([0, 1 / 0.6])
    assert dropped.mean().item() == pytest.approx(1, abs=0.02)


def test_drop_path_needs_a_generator_and_follows_it():
    network = backbone(pooling=False, drop_path=0.9)
    tokens, valid = torch.randn(8, 10, 16), torch.ones(8, 10, dtype=torch.bool)
    assert torch.equal(network(tokens, valid)[0], network(tokens, valid)[0])
    one, same, other = (network(tokens, valid, torch.Generator().manual_seed(seed))[0] for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
