"""Compiled heads and convolutions against the plain operations in float64: values, gradients, edges, threads."""

import copy
import math
from pathlib import Path
from typing import cast

import pytest
import torch
from conftest import Team, make_recording, randomise
from torch import Tensor

from event2vec import EventBatch, Sensor
from event2vec.machine.cpu import flush_denormals
from event2vec.model import compiled_attention, compiled_rows
from event2vec.model.attention import Bidirectional, ForgettingDirection
from event2vec.model.compiled_attention import Settings, library
from event2vec.model.embedding import ConvolutionalTemporal, ParametricSpatial
from event2vec.model.norm import LayerNorm
from event2vec.model.rows import Rows

pytestmark = pytest.mark.skipif(library() is None, reason="event2vec was installed without its compiled part")
COMPILED = library()
VARIANTS = range(COMPILED.variants()) if COMPILED else []


def make(dim=64, heads=2):
    """A direction whose norms and biases are not those that it starts with."""
    direction = ForgettingDirection(dim, heads, 4.0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for part in direction.parameters():
            part.add_(0.3 * torch.randn(part.shape, generator=generator))
    return direction


def project(direction, tokens):
    """What attention gets, and the gradients of tokens and weights."""
    tokens = tokens.clone().requires_grad_()
    parts = direction.project(tokens, Rows(torch.ones(tokens.shape[:2], dtype=torch.bool)))
    generator = torch.Generator().manual_seed(1)
    upstream = [torch.randn(part.shape, generator=generator).to(part.dtype) for part in parts]
    return [*parts, *torch.autograd.grad(parts, [tokens, *direction.parameters()], upstream)]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("dim", "heads"), [(64, 2), (16, 2), (192, 6), (24, 1)])
def test_heads_are_those_of_the_plain_operations(monkeypatch, variant, dim, heads):
    monkeypatch.setattr(Settings, "variant", variant)
    direction = make(dim, heads)
    for shape in [(3, 150), (1, 1), (1, 129)]:
        tokens = torch.randn(*shape, dim, generator=torch.Generator().manual_seed(2))
        assert compiled_rows.serves(direction.project_all(tokens), direction.width)
        found = project(direction, tokens)
        exact = project(copy.deepcopy(direction).double(), tokens.double())
        summed = math.sqrt(shape[0] * shape[1])  # gradients of weights: what is left of so many numbers, rounded before
        for one, other in zip(found, exact, strict=True):
            assert one.shape == other.shape
            size = max(float(other.detach().abs().max()), 1 if one.dim() > 2 else summed)
            assert float((one - other).detach().abs().max()) < 2e-6 * size


def convolve(network, lengths):
    """The temporal embedding of rows of these lengths, and the gradients of its weights."""
    batch = EventBatch.pad([make_recording(length, seed=seed) for seed, length in enumerate(lengths)])
    times = network(batch)
    upstream = torch.randn(times.shape, generator=torch.Generator().manual_seed(1)).to(times.dtype)
    return [times, *torch.autograd.grad(times, list(network.parameters()), upstream)]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("dim", "lengths"), [(64, [300, 129, 3]), (32, [1]), (96, [127, 128]), (32, [2])])
def test_convolutions_are_those_of_the_plain_operations(monkeypatch, variant, dim, lengths):
    """Also between tasks, which are of 128 events, at the ends of rows and in their padding."""
    monkeypatch.setattr(Settings, "variant", variant)
    network = randomise(ConvolutionalTemporal(dim))
    for one, other in zip(convolve(network, lengths), convolve(copy.deepcopy(network).double(), lengths), strict=True):
        assert one.shape == other.shape
        assert float((one - other).detach().abs().max()) < 3e-6 * max(float(other.detach().abs().max()), 1)


def places(network, count):
    """The spatial embedding of this many positions, without gradients."""
    where = 2 * torch.rand(count, 3, generator=torch.Generator().manual_seed(5)) - 1
    with torch.no_grad():
        return network.embed(where.to(next(network.parameters()).dtype))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("dim", "count"), [(64, 301), (32, 1), (96, 128), (192, 137), (64, 0)])
def test_places_are_those_of_the_plain_operations(monkeypatch, variant, dim, count):
    """Also where the events of a task are no whole number of groups, which are of 8."""
    monkeypatch.setattr(Settings, "variant", variant)
    network = randomise(ParametricSpatial(dim, Sensor(34, 34)))
    called = Calls(monkeypatch, "embed_places")
    found, exact = places(network, count), places(copy.deepcopy(network).double(), count)
    assert (found.shape, called.count) == ((count, dim), 1)
    assert float((found - exact).abs().sum(-1).amax() if count else 0) < 3e-6 * dim


def test_places_with_gradients_and_of_odd_widths_take_the_plain_operations(monkeypatch):
    called = Calls(monkeypatch, "embed_places")
    network = randomise(ParametricSpatial(64, Sensor(34, 34)))
    assert network.embed(torch.zeros(4, 3)).requires_grad
    places(randomise(ParametricSpatial(16, Sensor(34, 34))), 4)  # layers of 4, 8 and 16
    cast(LayerNorm, network.norms[1]).eps = 0.1
    places(network, 4)
    assert called.count == 0


class Calls:
    """How often a function of the compiled code is called."""

    def __init__(self, monkeypatch, name):
        self.count, call = 0, compiled_rows.call

        def count(called, *arguments):
            self.count += called == name
            return call(called, *arguments)

        monkeypatch.setattr(compiled_rows, "call", count)


@pytest.mark.parametrize("work", ["heads", "convolutions", "places"])
def test_threads_do_not_change_a_bit(monkeypatch, work):
    space = randomise(ParametricSpatial(64, Sensor(34, 34)))
    direction, tokens = make(), torch.randn(9, 200, 64, generator=torch.Generator().manual_seed(3))
    network = randomise(ConvolutionalTemporal(64))
    answers = []
    for threads, team in [(1, None), (2, None), (5, None), (3, 0)]:
        monkeypatch.setattr(torch, "get_num_threads", lambda count=threads: count)
        if team is not None:  # threads of its own in place of torch's
            monkeypatch.setattr(compiled_attention, "team", lambda: 0)
        answers.append(
            {
                "heads": lambda: project(direction, tokens),
                "convolutions": lambda: convolve(network, [700, 400]),
                "places": lambda: [places(space, 1_000)],
            }[work]()
        )
    for other in answers[1:]:
        assert all(torch.equal(one, two) for one, two in zip(answers[0], other, strict=True))


def test_all_threads_are_asked_for_or_one(monkeypatch):
    """OpenMP ends and starts threads wherever a team has another size than the last one."""
    team, direction = Team(monkeypatch, threads=8), make()
    project(direction, torch.randn(1, 600, 64, generator=torch.Generator().manual_seed(3)))
    assert team.asked == [8, 8], "also for 5 tasks"
    project(direction, torch.randn(1, 200, 64, generator=torch.Generator().manual_seed(3)))
    assert len(team.asked) == 2


STATISTICS = Path("/proc/self/statm")


@pytest.mark.skipif(not STATISTICS.exists(), reason="this system does not say how much memory a process has")
def test_memory_grows_with_threads_and_not_with_tasks(monkeypatch):
    """Room for each of 512 tasks was 94 MB."""
    sizes = []

    def note():
        sizes.append(4096 * int(STATISTICS.read_text().split()[0]))

    Team(monkeypatch, threads=2, began=note)
    network, valid = ConvolutionalTemporal(64), torch.ones(64, 1024, dtype=torch.bool)
    pairs = zip(network.kernels, network.norms, strict=True)
    layers = [cast(Tensor, part) for kernel, norm in pairs for part in (kernel, norm.weight, norm.bias)]
    intervals = torch.rand(64, 1024)
    with torch.no_grad():
        note()
        times = compiled_rows.convolve(intervals, valid, layers, 64)
    assert sizes[1] - sizes[0] < 2 * times.nbytes


def test_denormal_numbers_are_0_whatever_the_thread_does_with_them(monkeypatch):
    """`tune_cpu` sets it for torch's threads and not for the main one: which of them took a task must not show."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    projected = torch.full((1, 300, 25), 100.0).requires_grad_()

    def forget():
        log_forget = compiled_rows.make_heads(projected, torch.ones(8), torch.ones(8), torch.zeros(1), 8)[3]
        gradient = torch.autograd.grad(log_forget.sum() * 1e-3, projected)[0]
        return [part.detach().view(torch.int32) for part in (log_forget, gradient)]

    with flush_denormals():
        flushed = forget()
    assert all(torch.equal(one, other) for one, other in zip(forget(), flushed, strict=True))
    assert torch.tensor(1e-40) * 1 != 0, "the thread keeps its own mode"


def test_nan_passes_through_relu_as_in_torch():
    network = randomise(ConvolutionalTemporal(32))
    with torch.no_grad():
        network.kernels[0][0, 0] = torch.nan
    for one, other in zip(convolve(network, [40]), convolve(copy.deepcopy(network).double(), [40]), strict=True):
        assert torch.equal(one.isnan(), other.isnan())


def test_nan_in_a_place_passes_through_all_layers():
    network = randomise(ParametricSpatial(32, Sensor(34, 34)))
    with torch.no_grad():
        cast(torch.nn.Linear, network.layers[0]).weight[3, 1] = torch.nan
    assert places(network, 9).isnan().all()


def test_weights_and_rotations_of_other_types_take_the_plain_operations():
    network, tokens = Bidirectional(64, make()), torch.randn(2, 9, 64, generator=torch.Generator().manual_seed(3))
    angles = torch.rand(2, 9, 16, generator=torch.Generator().manual_seed(4))
    rotation, valid = torch.stack([angles.cos(), angles.sin()], dim=2), torch.ones(2, 9, dtype=torch.bool)
    torch.testing.assert_close(network(tokens, Rows(valid, rotation.double())), network(tokens, Rows(valid, rotation)))
    served, rows = compiled_rows.serves, torch.zeros(2, 9, 25)
    assert served(rows, 8, torch.ones(8), None, rotation=torch.ones(2, 9, 2, 4))
    assert not served(rows, 8, torch.ones(8, dtype=torch.float64))
    assert not served(rows, 8, torch.ones(8, device="meta"))
    assert not served(rows, 8, rotation=torch.ones(1, 9, 2, 4))


def test_weights_that_are_laid_out_in_any_way():
    direction, tokens = make(), torch.randn(2, 9, 64, generator=torch.Generator().manual_seed(3))
    expected = project(direction, tokens)
    for name in ("query_norm", "key_norm", "forget_bias"):
        setattr(direction, name, torch.nn.Parameter(getattr(direction, name).detach().repeat_interleave(2)[::2]))
    assert all(torch.equal(one, other) for one, other in zip(project(direction, tokens), expected, strict=True))


def test_a_norm_of_another_epsilon_takes_the_plain_operations():
    network = randomise(ConvolutionalTemporal(32))
    cast(LayerNorm, network.norms[0]).eps = 0.1
    for one, other in zip(convolve(network, [40]), convolve(copy.deepcopy(network).double(), [40]), strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gates_of_any_size_have_their_logarithm_and_slope(monkeypatch, variant):
    monkeypatch.setattr(Settings, "variant", variant)
    gates = torch.cat([torch.linspace(-200, 80, 3001), torch.tensor([0.0, torch.inf, -torch.inf])])
    projected = torch.cat([torch.zeros(len(gates), 24), gates[:, None]], dim=1)[None].requires_grad_()
    found = compiled_rows.make_heads(projected, torch.ones(8), torch.ones(8), torch.zeros(1), 8)[3]
    exact = torch.nn.functional.logsigmoid(gates.double())
    torch.testing.assert_close(found.flatten(), exact.float(), rtol=1e-6, atol=1e-37)
    slope = torch.autograd.grad(found[:, :-1].sum(), projected)[0][0, :-1, -1]
    torch.testing.assert_close(slope, torch.sigmoid(-gates[:-1].double()).float(), rtol=1e-6, atol=1e-37)


def test_nan_shows_where_it_is_alone():
    projected = torch.randn(1, 4, 25)
    projected[0, 1, 0], projected[0, 2, 9], projected[0, 3, 24] = torch.nan, torch.nan, torch.nan
    parts = compiled_rows.make_heads(projected, torch.ones(8), torch.ones(8), torch.zeros(1), 8)
    assert [part.isnan().flatten(2).any(-1)[0].tolist() for part in parts] == [
        [False, True, False, False],
        [False, False, True, False],
        [False] * 4,
        [False, False, False, True],
    ]


@pytest.mark.parametrize("shape", [(0, 5), (2, 0)])
def test_nothing_gives_nothing(shape):
    direction = make()
    found = project(direction, torch.zeros(*shape, 64))
    assert [part.numel() for part in found[:5]] == [0] * 5
    assert not any(part.any() for part in found[5:]), "no token changes no weight"


def test_other_types_and_widths_take_the_plain_operations(monkeypatch):
    served = compiled_rows.serves
    assert served(torch.zeros(1, 2, 25), 8)
    assert not served(torch.zeros(1, 2, 25, dtype=torch.bfloat16), 8)
    assert not served(torch.zeros(1, 2, 25), 12)
    monkeypatch.setattr(compiled_attention, "INSTALLED", False)
    assert not served(torch.zeros(1, 2, 25), 8)
