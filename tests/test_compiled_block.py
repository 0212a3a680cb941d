"""A block in one compiled call against its plain operations: values, edges, threads, and where it is not used."""

import copy

import pytest
import torch
import torch.nn.functional as F
from conftest import Team, randomise
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.flop_counter import FlopCounterMode

from event2vec import EventBatch, ModelConfig, build_model
from event2vec.model import compiled_block
from event2vec.model.backbone import Block, build_backbone
from event2vec.model.compiled_attention import Settings, library
from event2vec.model.relative import Rotations
from event2vec.model.rows import Rows

pytestmark = pytest.mark.skipif(library() is None, reason="event2vec was installed without its compiled part")
COMPILED = library()
VARIANTS = range(COMPILED.variants()) if COMPILED else []


def make_block(dim: int = 64, heads: int = 2, hidden: int = 128, **settings) -> Block:
    backbone = build_backbone(ModelConfig(dim=dim, heads=heads, hidden=hidden, blocks=1, **settings))
    (block,) = (part for part in backbone.modules() if isinstance(part, Block))
    return randomise(block)


def make_rows(*counts: int, pairs: int = 0) -> Rows:
    valid = torch.arange(max(counts)) < torch.tensor(counts)[:, None]
    if not pairs:
        return Rows(valid)
    positions = torch.rand(*valid.shape, 3, generator=torch.Generator().manual_seed(3))
    return Rows(valid, Rotations(2 * pairs)(positions))


def make_tokens(rows: Rows, dim: int) -> torch.Tensor:
    tokens = torch.randn(*rows.valid.shape, dim, generator=torch.Generator().manual_seed(4))
    return tokens * rows.valid[..., None]


def error(found: torch.Tensor, block: Block, tokens: torch.Tensor, rows: Rows) -> float:
    """The largest difference from the plain operations in float64; padding may hold anything."""
    wide = Rows(rows.valid, None if rows.rotation is None else rows.rotation.double())
    exact = copy.deepcopy(block).double()(tokens.double(), wide)
    return float((found - exact)[rows.valid].abs().max())


@pytest.fixture
def calls(monkeypatch):
    """How many blocks were computed by one compiled call each."""
    counted = []
    think = compiled_block.think
    monkeypatch.setattr(compiled_block, "think", lambda *given: counted.append(1) or think(*given))
    return counted


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("dim", "heads", "hidden"), [(64, 2, 128), (16, 2, 8), (128, 4, 256), (24, 1, 40), (128, 1, 72)]
)
@pytest.mark.parametrize("counts", [(150,), (1,), (7, 1, 5), (40, 0)])
@torch.no_grad()
def test_a_block_is_that_of_the_plain_operations(monkeypatch, calls, variant, dim, heads, hidden, counts):
    monkeypatch.setattr(Settings, "variant", variant)
    block, rows = make_block(dim, heads, hidden), make_rows(*counts)
    tokens = make_tokens(rows, dim)
    found = block(tokens, rows)
    assert len(calls) == 1
    assert error(found, block, tokens, rows) < 5e-6
    assert len(calls) == 1, "float64 is not for compiled code"


@pytest.mark.parametrize("heads", [1, 2])
@torch.no_grad()
def test_positions_turn_what_a_block_sees(calls, heads):
    block, rows = make_block(64, heads), make_rows(90, 31, pairs=32 // heads)
    tokens = make_tokens(rows, 64)
    found = block(tokens, rows)
    assert len(calls) == 1
    assert error(found, block, tokens, rows) < 5e-6
    assert not torch.allclose(found, block(tokens, make_rows(90, 31)), atol=1e-3), "without positions it is another"


@torch.no_grad()
def test_a_block_gives_a_row_the_same_bits_whatever_is_beside_it(calls):
    block, rows = make_block(), make_rows(100, 37, 100)
    tokens = make_tokens(rows, 64)
    together = block(tokens, rows)
    for row, count in enumerate((100, 37, 100)):
        alone = block(tokens[row : row + 1, :count].clone(), make_rows(count))
        assert torch.equal(together[row, :count], alone[0])
    assert len(calls) == 4


@torch.no_grad()
def test_a_block_changes_neither_its_tokens_nor_with_threads(monkeypatch, calls):
    block, rows = make_block(), make_rows(700)
    tokens = make_tokens(rows, 64)
    before = tokens.clone()
    one = block(tokens, rows)
    team = Team(monkeypatch, 4)
    assert torch.equal(block(tokens, rows), one)
    assert team.asked, "several threads were asked for"
    assert torch.equal(tokens, before)
    assert len(calls) == 2


@torch.no_grad()
def test_tokens_may_lie_anywhere_in_memory(calls):
    block, rows = make_block(), make_rows(50)
    tokens = make_tokens(rows, 64)
    scattered = tokens.transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(block(scattered, rows), block(tokens, rows))
    assert len(calls) == 2


@torch.no_grad()
def test_numbers_that_are_none_are_not_hidden(calls):
    block, rows = make_block(), make_rows(20)
    tokens = make_tokens(rows, 64)
    tokens[0, 4, 7] = torch.nan
    assert block(tokens, rows)[0, 4].isnan().all()
    assert len(calls) == 1


def test_gradients_take_the_plain_operations(calls):
    block, rows = make_block(), make_rows(20)
    block(make_tokens(rows, 64), rows).sum().backward()
    assert not calls
    assert all(parameter.grad is not None for parameter in block.parameters())


@torch.no_grad()
def test_whoever_watches_a_part_of_a_block_sees_it(calls):
    block, rows = make_block(), make_rows(20)
    tokens = make_tokens(rows, 64)
    seen = []
    with_hook = block.attention.register_forward_hook(lambda *given: seen.append(given[2]))
    watched = block(tokens, rows)
    with_hook.remove()
    assert len(seen) == 1
    assert not calls
    torch.testing.assert_close(block(tokens, rows), watched)
    assert len(calls) == 1


@torch.no_grad()
def test_drop_path_is_drawn_without_gradients_too(calls):
    block, rows = make_block(), make_rows(20, 20, 20, 20)
    block.drop_path = 0.5
    tokens = make_tokens(rows, 64)
    dropped = block(tokens, rows, torch.Generator().manual_seed(1))
    assert not calls
    assert not torch.allclose(dropped, block(tokens, rows), atol=1e-3)
    assert len(calls) == 1


class Doubled(nn.Linear):
    def forward(self, rows):
        return 2 * super().forward(rows)


class Sum(nn.Module):
    def forward(self, one, other):
        return one + other


def replaced(block: Block, how: str) -> Block:
    """A block with a part that does not do what its weights say alone."""
    if how == "subclass":
        block.widen.__class__ = Doubled
    elif how == "bias":
        block.widen.bias = nn.Parameter(torch.ones(len(block.widen.weight)))
    elif how == "own forward":
        vars(block.widen)["forward"] = lambda rows: 2 * F.linear(rows, block.widen.weight)
    elif how == "wrapped":
        block.add_module("widen", nn.Sequential(block.widen, nn.Identity()))
    elif how == "norm":
        block.add_module("feed_norm", Sum())
    return block


@pytest.mark.parametrize("how", ["subclass", "bias", "own forward", "wrapped", "norm"])
@torch.no_grad()
def test_a_replaced_part_is_asked_and_not_its_weights(monkeypatch, calls, how):
    block, rows = replaced(make_block(), how), make_rows(20)
    tokens = make_tokens(rows, 64)
    found = block(tokens, rows)
    assert not calls
    monkeypatch.setattr(compiled_block, "serves", lambda *_: False)
    torch.testing.assert_close(found, block(tokens, rows))


@torch.no_grad()
def test_hooks_on_all_modules_and_counters_of_operations_see_the_parts(calls):
    block, rows = make_block(), make_rows(20)
    tokens = make_tokens(rows, 64)
    seen: list[type] = []
    with_hook = register_module_forward_hook(lambda module, *_: seen.append(type(module)))
    block(tokens, rows)
    with_hook.remove()
    assert nn.Linear in seen
    with FlopCounterMode(display=False) as counter:
        block(tokens, rows)
    assert counter.get_total_flops() > 2 * 20 * 64 * 128
    assert not calls


@pytest.mark.parametrize("channels", [32, 128])
@torch.no_grad()
def test_tokens_of_another_width_are_refused_by_torch(calls, channels):
    rows = make_rows(20)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        make_block()(make_tokens(rows, channels), rows)
    assert not calls


@torch.no_grad()
def test_rows_of_another_batch_are_refused(calls):
    with pytest.raises((RuntimeError, ValueError)):
        make_block()(make_tokens(make_rows(20, 20), 64), make_rows(20))
    assert not calls


@torch.no_grad()
def test_large_matrices_are_left_to_torch(calls):
    block, rows = make_block(192, 6, 768), make_rows(20)
    block(make_tokens(rows, 192), rows)
    assert not calls


@torch.inference_mode()
def test_inference_mode_is_no_exception(calls):
    block, rows = make_block(), make_rows(20)
    block(make_tokens(rows, 64), rows)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"shared": False}, "each direction has weights of its own"),
        ({"attention": "gated_linear"}, "another attention"),
        ({"dim": 24, "heads": 2}, "heads of 12 channels"),
        ({"hidden": 36}, "not a multiple of 8 inside"),
    ],
)
@torch.no_grad()
def test_other_blocks_take_the_plain_operations(calls, settings, why):
    block, rows = make_block(**settings), make_rows(20)
    tokens = make_tokens(rows, block.feed_norm.width)
    found = block(tokens, rows)
    assert not calls, why
    assert error(found, block, tokens, rows) < 5e-6


@torch.no_grad()
def test_many_tokens_take_the_plain_operations(calls):
    block = make_block(16, 2, 8)
    for count, expected in [(compiled_block.MOST, 1), (compiled_block.MOST + 1, 1)]:
        rows = make_rows(count)
        block(make_tokens(rows, 16), rows)
        assert len(calls) == expected


@torch.no_grad()
def test_a_network_answers_the_same_with_and_without_it(monkeypatch, calls, make_events):
    config = ModelConfig(
        sensor=make_events(1).sensor, classes=5, blocks=3, pooling=True, relative=True, neighbourhood=7
    )
    model = randomise(build_model(config))
    batch = EventBatch.pad([make_events(count, seed=count) for count in (121, 40, 1)])
    found = model(batch)
    assert len(calls) == 3
    monkeypatch.setattr(compiled_block, "serves", lambda *_: False)
    torch.testing.assert_close(found, model(batch), atol=2e-6, rtol=0)
