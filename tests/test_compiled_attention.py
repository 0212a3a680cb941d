"""Compiled attention against the written-out definition in float64: values, gradients, edges, threads, instructions."""

import warnings
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from conftest import Team
from processes import run_python

from event2vec import Event2VecError
from event2vec.model import compiled_attention
from event2vec.model.attention import forgetting_attention, forgetting_weights
from event2vec.model.compiled_attention import BEFORE, BOTH, Settings, attend, library

pytestmark = pytest.mark.skipif(library() is None, reason="event2vec was installed without its compiled part")
COMPILED = library()
VARIANTS = range(COMPILED.variants()) if COMPILED else []


def draw(batch, length, heads, key_heads, width, gate=0.0, strength=1.0, seed=0):
    """q, k, v and log gates as (batch, length, heads, width), none of them contiguous."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(batch, length, (heads + 2 * key_heads) * width + heads, generator=generator)
    q, k, v, gates = rows.split((heads * width, key_heads * width, key_heads * width, heads), dim=-1)
    q, k, v = (part.unflatten(-1, (-1, width)) for part in (q, k, v))
    return [strength * q, k, v, F.logsigmoid(gate + gates)]


def one_direction(q, k, v, gates):
    q, k, v, gates = (part.transpose(1, 2) for part in (q, k, v, gates))
    shared = q.shape[1] // v.shape[1]
    return (forgetting_weights(q, k, gates) @ v.repeat_interleave(shared, dim=1)).transpose(1, 2)


def written_out(inputs, counts):
    """Both directions of each row alone, with zeros after its end."""
    length = inputs[0].shape[1]
    rows = []
    for row, count in enumerate(counts):
        parts = [part[row : row + 1, :count] for part in inputs]
        ahead, back = parts[:4], [part.flip(1) for part in parts[-4:]]
        seen = torch.stack([one_direction(*ahead), one_direction(*back).flip(1)], dim=2)
        rows.append(F.pad(seen, (0, 0, 0, 0, 0, 0, 0, length - count)))
    return torch.cat(rows)


def in_double(inputs, counts):
    """The definition in float64, what its gradients are of, and these gradients."""
    double = [part.double().requires_grad_() for part in inputs]
    exact = written_out(double, counts)
    upstream = torch.randn(exact.shape, generator=torch.Generator().manual_seed(1))
    return exact.detach(), upstream, torch.autograd.grad((exact * upstream.double()).sum(), double)


def compare(inputs, counts, definition=in_double):
    """Errors against float64: the largest of the answer, and of each gradient as a share of the largest one."""
    single = [part.clone().requires_grad_() for part in inputs]
    seen = attend(single, torch.tensor(counts), BOTH)
    exact, upstream, others = definition(inputs, counts)
    ours = torch.autograd.grad((seen * upstream).sum(), single)
    largest = max(float(other.abs().max()) for other in others) if any(counts) else 1.0
    pairs = zip(ours, others, strict=True)
    errors = [float((one - other).abs().max() / max(float(other.abs().max()), 0.5 * largest)) for one, other in pairs]
    return float((seen - exact).detach().abs().max()), errors


@pytest.fixture(params=VARIANTS)
def variant(request, monkeypatch):
    monkeypatch.setattr(Settings, "variant", request.param)
    return request.param


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("sets", [1, 2])
@pytest.mark.parametrize(
    ("counts", "heads", "key_heads", "width"),
    [
        ([1], 1, 1, 8),
        ([0, 3, 2], 2, 1, 16),
        ([33, 1, 0, 32], 4, 2, 24),
        ([100, 31], 2, 1, 32),
        ([97], 3, 3, 40),
        ([160, 161], 6, 3, 64),
        ([49, 48, 47], 2, 1, 128),
    ],
    ids=str,
)
def test_both_directions_are_the_definition(variant, sets, counts, heads, key_heads, width):
    inputs = [draw(len(counts), max(counts) + 2, heads, key_heads, width, 2.0, seed=seed) for seed in range(sets)]
    seen, gradients = compare([part for one in inputs for part in one], counts)
    assert seen < 2e-6
    assert max(gradients) < 2e-6


def test_random_shapes(variant):
    generator = torch.Generator().manual_seed(0)

    def whole(low, high):
        return int(torch.randint(low, high + 1, (), generator=generator))

    for seed in range(20):
        batch, length, groups, shared, width = whole(1, 4), whole(1, 200), whole(1, 3), whole(1, 3), 8 * whole(1, 16)
        counts = [whole(0, length) for _ in range(batch)]
        inputs = draw(batch, length, groups * shared, groups, width, 8 * seed / 20, seed=seed)
        seen, gradients = compare(inputs, counts)
        assert seen < 3e-6, (seed, counts)
        assert max(gradients) < 3e-6, (seed, counts)


LONG = {  # length of rows, gate and strength
    "open": (4096, 0.0, 1.0),
    "nearly closed": (4096, 4.0, 1.0),
    "open, large scores": (1024, 0.0, 30.0),
    "nearly closed, large scores": (1024, 4.0, 30.0),
}


def draw_long(name):
    length, gate, strength = LONG[name]
    return draw(1, length, 2, 1, 32, gate, strength)


@cache
def long_in_double(name):
    """Once for all variants: it takes seconds."""
    return in_double(draw_long(name), [LONG[name][0]])


def compare_long(name):
    return compare(draw_long(name), [LONG[name][0]], lambda *_: long_in_double(name))


@pytest.mark.slow
@pytest.mark.xdist_group("long rows")
@pytest.mark.parametrize("name", list(LONG)[:2])
def test_long_rows_are_exact(name, variant):
    seen, gradients = compare_long(name)
    assert seen < 1.5e-6
    assert max(gradients[:3]) < 2e-6
    assert gradients[3] < 1e-5


@pytest.mark.slow
@pytest.mark.xdist_group("long rows")
@pytest.mark.parametrize("name", list(LONG)[2:])
def test_scores_that_would_overflow_are_kept_as_two_numbers(name, variant):
    """Scores of a few hundred: rounded to one number they would be wrong by 2e-5, and answers by 4e-5."""
    seen, gradients = compare_long(name)
    assert seen < (2e-5 if variant == 0 else 1e-5)  # the plainest CPUs round products before they add them
    assert max(gradients) < 4e-6


def test_the_order_of_work_does_not_depend_on_threads(threads, monkeypatch):
    for counts, heads, key_heads in [([700], 4, 2), ([300, 17, 0, 256, 255, 1, 300, 3, 90], 2, 1)]:
        inputs = [part.requires_grad_() for part in draw(len(counts), max(counts), heads, key_heads, 32, 3.0)]
        answers = []
        for count, team in [(1, None), (2, None), (3, None), (8, None), (2, 0), (5, 0)]:
            threads(count)
            if team is not None:  # threads of its own in place of torch's
                monkeypatch.setattr(compiled_attention, "team", lambda: 0)
            seen = attend(inputs, torch.tensor(counts), BOTH)
            answers.append([seen, *torch.autograd.grad(seen.square().sum(), inputs)])
        for other in answers[1:]:
            assert all(torch.equal(one, two) for one, two in zip(answers[0], other, strict=True))


def test_all_threads_are_asked_for_or_one(monkeypatch):
    """OpenMP ends and starts threads wherever a team has another size than the last one."""
    team = Team(monkeypatch, threads=8)
    inputs = [part.requires_grad_() for part in draw(1, 300, 2, 1, 32)]
    attend(inputs, None, BOTH).sum().backward()
    assert team.asked == [8] * 5, "also where there are fewer tasks"
    attend(draw(1, 8, 2, 1, 32), None, BOTH)
    assert len(team.asked) == 5


def test_gradients_are_float32_whatever_the_default_is():
    inputs = [part.requires_grad_() for part in draw(2, 20, 2, 1, 16)]
    expected = torch.autograd.grad(attend(inputs, None, BOTH).square().sum(), inputs)
    torch.set_default_dtype(torch.float64)
    try:
        found = torch.autograd.grad(attend(inputs, None, BOTH).square().sum(), inputs)
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def replaced(place, part, inputs):
    return [part if number == place else other for number, other in enumerate(inputs)]


@pytest.mark.parametrize(
    ("place", "shape"),
    [
        (0, (2, 9, 2, 16)),
        (0, (2, 9, 16)),
        (1, (2, 9, 2, 8)),
        (1, (2, 8, 2, 16)),
        (1, (1, 9, 2, 16)),
        (1, (2, 9, 16)),
        (2, (2, 9, 1, 16)),
        (3, (2, 9, 2)),
        (3, (2, 9, 4, 1)),
    ],
)
@pytest.mark.parametrize("sets", [1, 2])
def test_shapes_that_do_not_fit_are_refused(sets, place, shape):
    inputs = draw(2, 9, 4, 2, 16)
    wrong = replaced(place, torch.zeros(shape), inputs)
    with pytest.raises(
        ValueError, match=r"q must be \(batch, length|must have the same batch, length, heads and width"
    ):
        attend(wrong if sets == 1 else [*inputs, *wrong], None, BOTH)


@pytest.mark.parametrize(("heads", "key_heads"), [(3, 2), (2, 4), (2, 0)])
def test_heads_that_cannot_be_shared_are_refused(heads, key_heads):
    parts = [part.transpose(1, 2) for part in draw(2, 9, heads, key_heads, 16)]
    with pytest.raises(ValueError, match=f"multiple of the heads of k and v, got {heads} and {key_heads}"):
        forgetting_attention(*parts)


def test_other_types_and_counts_are_refused():
    inputs = draw(2, 9, 4, 2, 16)
    with pytest.raises(ValueError, match="needs float32"):
        attend(replaced(2, inputs[2].double(), inputs), None, BOTH)
    for counts in (torch.tensor([9]), torch.tensor([9, 9], dtype=torch.int32), torch.tensor([9, 0, 9, 0])[::2]):
        with pytest.raises(ValueError, match="counts must be 2 int64"):
            attend(inputs, counts, BOTH)


def test_a_traced_function_does_not_keep_compiled_answers():
    inputs, served = draw(1, 9, 2, 1, 16), []

    def ask(q):
        served.append(compiled_attention.serves(q, *inputs[1:]))
        return q + 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tracing is deprecated
        torch.jit.trace(ask, inputs[0], check_trace=False)
    assert served
    assert not any(served)


def test_an_exported_program_says_what_it_needs(monkeypatch):
    monkeypatch.setattr(compiled_attention, "library", lambda: None)
    with pytest.raises(Event2VecError, match=r"installed without here\. Install event2vec again where a C compiler"):
        compiled_attention._attend(draw(1, 9, 2, 1, 16), None, BOTH)


def test_padding_is_not_read(variant):
    counts = torch.tensor([50, 0, 1])
    inputs = draw(3, 60, 2, 1, 16)
    spoilt = [part.clone() for part in inputs]
    for part in spoilt:
        for row, count in enumerate(counts):
            part[row, count:] = torch.nan
    answers = []
    for parts in (inputs, spoilt):
        parts = [part.clone().requires_grad_() for part in parts]
        seen = attend(parts, counts, BOTH)
        upstream = torch.ones_like(seen)
        upstream[0, 50:] = torch.nan
        answers.append([seen, *torch.autograd.grad(seen, parts, upstream)])
    for one, other in zip(*answers, strict=True):
        assert torch.equal(one, other)
        assert not one[0, 50:].any()
        assert not one[1].any()
        assert not one[2, 1:].any()


def test_rows_stop_only_where_nothing_is_left(variant, monkeypatch):
    """Gates that shut wholly after some hundred events: what lies beyond is below rounding."""
    inputs = [part.requires_grad_() for part in draw(1, 1500, 2, 1, 32, 1.0)]
    answers = []
    for stops in (True, False):
        monkeypatch.setattr(Settings, "stops", stops)
        seen = attend(inputs, None, BOTH)
        answers.append([seen, *torch.autograd.grad(seen.square().sum(), inputs)])
    for one, other in zip(*answers, strict=True):
        assert (one - other).abs().max() <= 3e-7 * other.abs().max()


def test_a_gate_that_is_shut_hides_what_lies_beyond(variant):
    inputs = draw(1, 90, 2, 1, 16, 3.0)
    inputs[3][0, 40] = -torch.inf
    seen = attend(inputs, None, BOTH)
    before, after = (
        attend([part[:, :40] for part in inputs], None, BOTH),
        attend([part[:, 40:] for part in inputs], None, BOTH),
    )
    torch.testing.assert_close(seen[:, :40, 0], before[:, :, 0])
    torch.testing.assert_close(seen[:, 40:, 0], after[:, :, 0], atol=1e-6, rtol=1e-5)
    alone = attend([part[:, :41] for part in inputs], None, BOTH)
    torch.testing.assert_close(seen[:, :41, 1], alone[:, :, 1], atol=1e-6, rtol=1e-5)


def test_gates_wide_open_and_above_one(variant):
    inputs = draw(1, 200, 2, 1, 16)
    for gates in (torch.zeros(1, 200, 2), torch.full((1, 200, 2), 0.7)):
        seen, gradients = compare([*inputs[:3], gates], [200])
        assert seen < 2e-5
        assert max(gradients) < 2e-5


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("part", range(3))
def test_nan_and_infinity_show_in_all_that_see_them(variant, part, value):
    inputs = draw(1, 100, 1, 1, 16, 1.0)
    inputs[part][0, 60, 0, 3] = value
    seen = attend(inputs, None, BOTH)
    finite = seen.isfinite().all(-1)[0, :, :, 0]
    if part == 0:
        assert finite.all(1).sum() == 99
        assert not finite[60].any()
    else:
        if part == 1:  # the definition too multiplies values by weights of 0
            assert finite[:60, 0].all()
            assert finite[61:, 1].all()
        if part == 2 or value is torch.nan:  # an infinite key may weigh nothing
            assert not finite[60:, 0].any()
            assert not finite[:61, 1].any()
    inputs = [one.requires_grad_() for one in inputs]
    gradients = torch.autograd.grad(attend(inputs, None, BOTH).sum(), inputs)
    assert not all(gradient.isfinite().all() for gradient in gradients)


def test_a_gate_that_is_nan_shows(variant):
    inputs = draw(1, 100, 1, 1, 16)
    inputs[3][0, 60] = torch.nan
    seen = attend(inputs, None, BOTH)
    assert seen[0, 60:, 0].isnan().all()
    assert seen[0, :60, 0].isfinite().all()
    assert seen[0, :60, 1].isnan().any()


def test_heads_that_are_laid_out_in_any_way(variant):
    inputs = draw(2, 70, 4, 2, 16)
    exact = attend(inputs, None, BOTH)
    turned = [part.transpose(1, 2).contiguous().transpose(1, 2) for part in inputs]
    strided = [part.repeat_interleave(2, dim=-1)[..., ::2] for part in inputs]
    for others in (turned, strided):
        assert torch.equal(attend(others, None, BOTH), exact)
    parts = [part.transpose(1, 2) for part in inputs]
    assert torch.equal(forgetting_attention(*parts), exact[:, :, 0].transpose(1, 2))
    assert torch.equal(attend(inputs, None, BEFORE)[:, :, 0], exact[:, :, 0])


@pytest.mark.parametrize("shape", [(0, 5, 2, 1, 8), (2, 0, 2, 1, 8)])
def test_nothing_gives_nothing(shape):
    inputs = [part.requires_grad_() for part in draw(*shape)]
    seen = attend(inputs, None, BOTH)
    assert seen.numel() == 0
    assert all(part.numel() == 0 for part in torch.autograd.grad(seen.sum(), inputs))


def test_other_types_widths_and_installations_are_not_served(monkeypatch):
    inputs = draw(1, 5, 2, 1, 16)
    assert compiled_attention.serves(*inputs)
    assert not compiled_attention.serves(*(part.double() for part in inputs))
    assert not compiled_attention.serves(*(part[..., :4] if part.dim() == 4 else part for part in inputs))
    assert not compiled_attention.serves(*draw(1, 5, 2, 1, 136))
    with torch.autocast("cpu", torch.bfloat16):
        assert not compiled_attention.serves(*inputs)
    library.cache_clear()
    try:
        monkeypatch.setattr(compiled_attention, "INTERFACE", -1)
        assert library() is None, "a library of another interface is not called"
        monkeypatch.setattr(compiled_attention, "INSTALLED", False)
        assert not compiled_attention.serves(*inputs)
        parts = [part.transpose(1, 2) for part in inputs]
        expected = forgetting_weights(parts[0], parts[1], parts[3]) @ parts[2]
        torch.testing.assert_close(forgetting_attention(*parts), expected)
    finally:
        library.cache_clear()


OPERATOR = """
import torch
import torch.nn.functional as F
from event2vec.model.attention import forgetting_attention
from event2vec.model.compiled_attention import BOTH, _attend
generator = torch.Generator().manual_seed(0)
q = torch.randn(2, 12, 2, 8, generator=generator, requires_grad=True)
k, v = (torch.randn(2, 12, 1, 8, generator=generator, requires_grad=True) for _ in range(2))
gates = F.logsigmoid(torch.randn(2, 12, 2, generator=generator)).requires_grad_()
for inputs in ([q, k, v, gates], [q, k, v, gates] * 2):
    torch.library.opcheck(_attend, (inputs, torch.tensor([12, 7]), BOTH))
parts = [part.transpose(1, 2) for part in (q, k, v, gates)]
compiled = torch.compile(forgetting_attention, fullgraph=True, backend="aot_eager")
for one, other in zip(*(torch.autograd.grad(f(*parts).sum(), (q, k, v, gates))
                      for f in (compiled, forgetting_attention)), strict=True):
    assert torch.equal(one, other)
"""


@pytest.mark.slow
def test_the_operator_can_be_compiled_and_exported():
    """In a process of its own: the checks of shapes that tests run with cannot be compiled."""
    run_python("-c", OPERATOR, check=True)
