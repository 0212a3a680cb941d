"""LayerNorm with what comes before and after it: compiled against torch in float64, with gradients; edges, threads."""

import copy

import pytest
import torch
import torch.nn.functional as F

from event2vec.model import compiled_attention, compiled_rows
from event2vec.model.compiled_attention import Settings, library
from event2vec.model.norm import LayerNorm

COMPILED = library()
VARIANTS = range(COMPILED.variants()) if COMPILED else []
needs_compiled = pytest.mark.skipif(COMPILED is None, reason="event2vec was installed without its compiled part")


def make(width, relu):
    norm = LayerNorm(width, relu)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for part in norm.parameters():
            part.add_(0.5 * torch.randn(part.shape, generator=generator))
    return norm


def apply(norm, *inputs):
    """What comes out, and the gradients of all inputs and weights."""
    parts = [part.to(norm.weight.dtype).requires_grad_() for part in inputs]
    normed = norm(*parts)
    upstream = torch.randn(normed.shape, generator=torch.Generator().manual_seed(1)).to(normed.dtype)
    return [normed, *torch.autograd.grad(normed, [*parts, *norm.parameters()], upstream)]


def draw(*shape, count=2):
    generator = torch.Generator().manual_seed(2)
    return [0.5 + 2 * torch.randn(*shape, generator=generator) for _ in range(count)]


@needs_compiled
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("shape", [(3, 150, 64), (1, 1, 16), (129, 8), (2, 5, 7, 192)], ids=str)
def test_norms_are_those_of_torch(monkeypatch, variant, relu, count, shape):
    monkeypatch.setattr(Settings, "variant", variant)
    norm, inputs = make(shape[-1], relu), draw(*shape, count=count)
    assert compiled_rows.serves(inputs[0], shape[-1])
    found, exact = apply(norm, *inputs), apply(copy.deepcopy(norm).double(), *inputs)
    for one, other in zip(found, exact, strict=True):
        assert one.shape == other.shape
        assert float((one - other).detach().abs().max()) < 3e-6 * max(float(other.detach().abs().max()), 1)


@pytest.mark.parametrize("used", [False, True])
def test_what_is_added_is_added_before_the_norm_and_relu_follows(monkeypatch, used):
    monkeypatch.setattr(Settings, "used", used)
    norm, (rows, added) = make(16, relu=True), draw(4, 16)
    weights = norm.weight.double(), norm.bias.double()
    expected = F.relu(F.layer_norm(rows.double() + added.double(), (16,), *weights))
    torch.testing.assert_close(norm(rows, added).double(), expected, atol=1e-6, rtol=1e-6)
    learnt = apply(norm, rows, added)[0]
    with torch.no_grad():
        assert torch.equal(norm(rows, added), learnt), "gradients change no answer"


@needs_compiled
def test_threads_do_not_change_a_bit(monkeypatch):
    norm, inputs, answers = make(64, relu=True), draw(9, 200, 64), []
    for threads, team in [(1, None), (2, None), (5, None), (3, 0)]:
        monkeypatch.setattr(torch, "get_num_threads", lambda count=threads: count)
        if team is not None:  # threads of its own in place of torch's
            monkeypatch.setattr(compiled_attention, "team", lambda: 0)
        answers.append(apply(norm, *inputs))
    for other in answers[1:]:
        assert all(torch.equal(one, two) for one, two in zip(answers[0], other, strict=True))


def test_nan_shows_in_its_row_alone():
    norm, (rows,) = make(8, relu=True), draw(3, 8, count=1)
    rows[1, 5] = torch.nan
    assert norm(rows).isnan().all(-1).tolist() == [False, True, False]


@pytest.mark.parametrize("shape", [(0, 5, 8), (2, 0, 8)])
def test_nothing_gives_nothing(shape):
    normed, *gradients = apply(make(8, relu=False), torch.zeros(shape))
    assert normed.shape == shape
    assert not any(part.any() for part in gradients), "no row changes no weight"


def test_rows_that_are_laid_out_in_any_way():
    norm, (rows, added) = make(16, relu=False), draw(16, 6)
    expected = norm(rows.T.contiguous(), added.T.contiguous())
    assert torch.equal(norm(rows.T, added.T), expected)
    norm.weight, norm.bias = (torch.nn.Parameter(part.detach().repeat_interleave(2)[::2]) for part in norm.parameters())
    assert torch.equal(norm(rows.T, added.T), expected)


def test_other_types_and_widths_take_torch():
    assert not compiled_rows.serves(torch.zeros(2, 12), 12)
    assert make(12, relu=True)(torch.ones(2, 12)).shape == (2, 12)
    assert not compiled_rows.serves(torch.zeros(2, 16, dtype=torch.bfloat16), 16)
    with torch.autocast("cpu", torch.bfloat16):
        assert not compiled_rows.serves(torch.zeros(2, 16), 16)


def test_what_compiled_code_cannot_do_takes_torch():
    norm, (rows, added) = make(16, relu=False), draw(4, 16)
    assert norm._fits(rows, added)
    assert not norm._fits(rows, added[:1]), "what is broadcast"
    assert not compiled_rows.serves(rows, 16, added.double())
    with pytest.raises(RuntimeError, match="normalized_shape"):
        make(8, relu=False)(rows)
    norm.eps = 0.1
    torch.testing.assert_close(norm(rows), F.layer_norm(rows, (16,), norm.weight, norm.bias, 0.1))
