"""Fast forms of attention against their definitions, with gradients; padding; directions."""

import pytest
import torch
import torch.nn.functional as F
from conftest import randomise

from event2vec.model import compiled_attention
from event2vec.model.attention import (
    ATTENTION,
    PARTS,
    Bidirectional,
    ForgettingDirection,
    GatedLinearDirection,
    folded_attention,
    forgetting_attention,
    forgetting_weights,
)
from event2vec.model.config import ATTENTION_KINDS, ModelConfig
from event2vec.model.gated_linear import gated_linear_attention, gated_linear_recurrence
from event2vec.model.rows import Rows, reversal, reverse


def draw(batch, heads, length, width, gate=0.0, key_heads=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(batch, heads, length, width, generator=generator)
    k, v = (torch.randn(batch, key_heads or heads, length, width, generator=generator) for _ in range(2))
    return q, k, v, F.logsigmoid(gate + torch.randn(batch, heads, length, generator=generator))


def written_out(q, k, v, log_forget):
    return forgetting_weights(q, k, log_forget) @ v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)


def test_what_each_kind_of_attention_has_is_known():
    assert ATTENTION.keys() == ATTENTION_KINDS.keys()
    for name, kind in ATTENTION_KINDS.items():
        direction = ATTENTION[name](ModelConfig(attention=name))
        assert isinstance(direction, ForgettingDirection) == kind.weights, "which directed_weights computes"
        assert ("forget_bias" in dict(direction.named_parameters())) == kind.forget_bias


def test_weights_are_those_of_the_formula():
    q, k, _, log_forget = draw(1, 1, 4, 2)
    weights = forgetting_weights(q, k, log_forget)[0, 0]
    for i in range(4):
        scores = [q[0, 0, i] @ k[0, 0, j] / 2**0.5 + log_forget[0, 0, j + 1 : i + 1].sum() for j in range(i + 1)]
        torch.testing.assert_close(weights[i, : i + 1], torch.stack(scores).softmax(0))
        assert not weights[i, i + 1 :].any(), "nothing of the future"


FAST = pytest.mark.parametrize("attention", [forgetting_attention, folded_attention])


@FAST
@pytest.mark.parametrize("gate", [0.0, 4.0])
def test_fast_forms_are_exact_in_float32(attention, gate):
    inputs = draw(1, 2, 4096, 32, gate)
    exact = written_out(*(part.double() for part in inputs))
    for grad_mode in (True, False):
        with torch.set_grad_enabled(grad_mode):
            assert (attention(*inputs) - exact).abs().max() < 5e-6


@pytest.mark.parametrize("gate", [0.0, 4.0])
def test_folded_costs_in_bfloat16_what_the_type_costs(gate):
    """Rounding q, k, v on the way in and the answer on the way out; the gates add nothing to that."""
    inputs = draw(1, 2, 4096, 32, gate)
    exact = written_out(*(part.double() for part in inputs))
    *rounded, log_forget = [part.bfloat16() for part in inputs[:3]] + [inputs[3]]
    unavoidable = written_out(*(part.double() for part in (*rounded, log_forget))).bfloat16().double() - exact
    q, k, v = rounded
    error = forgetting_attention(q, k, v, log_forget).double() - exact
    assert error.abs().max() < 1.1 * unavoidable.abs().max()
    inputs_alone = written_out(*(part.double() for part in (*rounded, log_forget))) - exact
    assert error.abs().max() < 1.3 * inputs_alone.abs().max()
    assert error.square().mean().sqrt() < 1.1 * unavoidable.square().mean().sqrt()


@FAST
@pytest.mark.parametrize("gate", [0.0, 4.0])
@pytest.mark.parametrize("key_heads", [1, 2])
def test_gradients_flow_through_all_four_inputs(attention, gate, key_heads):
    inputs = draw(2, 4, 500, 8, gate, key_heads)
    upstream = torch.randn(2, 4, 500, 8, generator=torch.Generator().manual_seed(1))
    single = [part.clone().requires_grad_() for part in inputs]
    double = [part.double().requires_grad_() for part in inputs]
    ours = torch.autograd.grad((attention(*single) * upstream).sum(), single)
    exact = torch.autograd.grad((written_out(*double) * upstream.double()).sum(), double)
    for one, other in zip(ours, exact, strict=True):
        assert (one - other).abs().max() < 1e-4 * other.abs().max()


@FAST
@pytest.mark.parametrize("gate", [0.0, 4.0])
def test_gradients_are_exact_over_long_rows(attention, gate):
    inputs = draw(1, 1, 4096, 32, gate)
    single = [part.clone().requires_grad_() for part in inputs]
    double = [part.double().requires_grad_() for part in inputs]
    ours = torch.autograd.grad(attention(*single).square().sum(), single)
    exact = torch.autograd.grad(written_out(*double).square().sum(), double)
    for one, other in zip(ours, exact, strict=True):
        assert (one - other).abs().max() < 1e-4 * other.abs().max()


def test_every_type_is_served():
    inputs = draw(1, 2, 100, 8)
    exact = written_out(*(part.double() for part in inputs))
    for dtype, tolerance in {**{dtype: 1e-5 for dtype in PARTS}, torch.bfloat16: 0.05, torch.float16: 0.01}.items():
        q, k, v = (part.to(dtype) for part in inputs[:3])
        answer = forgetting_attention(q, k, v, inputs[3])
        assert (answer - exact).abs().max() < tolerance, dtype
    with torch.autocast("cpu", torch.bfloat16):
        assert forgetting_attention(*inputs).dtype == torch.bfloat16
        assert (forgetting_attention(*inputs) - exact).abs().max() < 0.05
    long = draw(1, 1, 2048, 32)
    exact = written_out(*(part.double() for part in long))
    with torch.autocast("cpu", torch.float16):
        assert (forgetting_attention(*long) - exact).abs().max() < 0.01


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_folded_is_exact_on_cuda(dtype):
    inputs = draw(1, 2, 4096, 32)
    exact = written_out(*(part.double() for part in inputs))
    q, k, v = (part.to("cuda", dtype) for part in inputs[:3])
    answer = forgetting_attention(q, k, v, inputs[3].cuda())
    assert (answer.cpu().double() - exact).abs().max() < (5e-6 if dtype == torch.float32 else 0.03)


@pytest.mark.parametrize("length", [1, 31, 32, 33, 100])
@pytest.mark.parametrize("strength", [0.01, 1.0, 5.0])
def test_gated_linear_attention_is_the_recurrence(length, strength):
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, 3, length, 4, generator=generator) for _ in range(2))
    v = torch.randn(2, 3, length, 6, generator=generator)
    log_gate = -strength * torch.rand(2, 3, length, 4, generator=generator)
    log_gate[0] = -strength  # one recording with gates that are equally weak throughout
    inputs = [part.requires_grad_() for part in (q, k, v, log_gate)]
    fast, slow = gated_linear_attention(*inputs), gated_linear_recurrence(*inputs)
    torch.testing.assert_close(fast, slow, atol=2e-5, rtol=1e-4)
    upstream = torch.randn(fast.shape, generator=generator)
    gradients = [torch.autograd.grad((side * upstream).sum(), inputs) for side in (fast, slow)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=2e-3, rtol=1e-3)


def test_reversing_leaves_padding_at_the_end():
    valid = torch.tensor([[True, True, True, False], [True, False, False, False]])
    rows = torch.arange(8.0).view(2, 4, 1)
    turn = reversal(valid)
    assert reverse(rows, turn).flatten().tolist() == [2, 1, 0, 3, 4, 5, 6, 7]
    assert torch.equal(reverse(reverse(rows, turn), turn), rows)


def test_reversing_has_its_own_gradient():
    rows = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    turn = reversal(torch.arange(5) < torch.tensor([[3], [5]]))
    assert torch.autograd.gradcheck(lambda rows: reverse(rows, turn), rows)


DIRECTIONS = {
    "forgetting": lambda: ForgettingDirection(32, 4, 2.0),
    "folded": lambda: ForgettingDirection(32, 4, 2.0),
    "gated_linear": lambda: GatedLinearDirection(32, 4),
}


@pytest.fixture(params=[(kind, count) for kind in DIRECTIONS for count in (1, 2)], ids=str)
def both(request, monkeypatch):
    kind, count = request.param
    if kind == "folded":
        monkeypatch.setattr(compiled_attention, "INSTALLED", False)
    return randomise(Bidirectional(32, *(DIRECTIONS[kind]() for _ in range(count))))


def test_rows_give_what_they_give_alone(both):
    tokens = torch.randn(3, 40, 32, generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([40, 17, 1])
    together = both(tokens, Rows(torch.arange(40) < lengths[:, None]))
    for row, length in enumerate(lengths.tolist()):
        alone = both(tokens[row : row + 1, :length], Rows(torch.ones(1, length, dtype=torch.bool)))
        torch.testing.assert_close(together[row : row + 1, :length], alone, atol=1e-6, rtol=1e-5)


def test_the_second_direction_is_the_first_on_the_row_reversed(both):
    """Eq. 8-10: swap the halves of the output weights and the directions, reverse, and all must come out reversed."""
    tokens = torch.randn(2, 30, 32, generator=torch.Generator().manual_seed(0))
    rows = Rows(torch.arange(30) < torch.tensor([[30], [12]]))
    expected = reverse(both(reverse(tokens, rows.turn), rows), rows.turn)
    with torch.no_grad():
        first, second = both.output.weight.chunk(2, dim=1)
        both.output.weight.copy_(torch.cat([second, first], dim=1))
        both.directions = torch.nn.ModuleList(reversed(both.directions))
    torch.testing.assert_close(both(tokens, rows), expected, atol=1e-6, rtol=1e-5)


def test_every_event_sees_before_and_after(both):
    tokens = torch.randn(1, 20, 32, generator=torch.Generator().manual_seed(0), requires_grad=True)
    seen = both(tokens, Rows(torch.ones(1, 20, dtype=torch.bool)))
    (gradient,) = torch.autograd.grad(seen[0, 10].sum(), tokens)
    assert (gradient.abs().sum(-1) > 0).all()


def test_a_norm_is_per_head_with_weights_per_channel():
    direction = randomise(ForgettingDirection(8, 2, 0.0))
    rows = torch.randn(1, 3, 8)
    halves = [part / (part.square().mean(-1, keepdim=True) + 1e-5).sqrt() for part in rows.chunk(2, dim=-1)]
    expected = torch.cat(halves, dim=-1) * direction.query_norm
    torch.testing.assert_close(direction._normalise(rows, direction.query_norm).flatten(2), expected)
