"""Relative attention: differences of position alone matter, in every form of attention, and the rotation is exact."""

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from conftest import SMALL, make_recording, randomise

from event2vec import EventBatch, ModelConfig, build_model
from event2vec.model import compiled_attention
from event2vec.model.attention import (
    Bidirectional,
    ForgettingDirection,
    forgetting_attention,
    relative_attention_written_out,
)
from event2vec.model.backbone import build_backbone
from event2vec.model.relative import Rotations, hide_places, positions_of
from event2vec.model.rotation import rotate, rotate_back, rotate_written_out
from event2vec.model.rows import Rows


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_positions_go_from_corner_to_corner_and_from_first_to_last():
    batch = EventBatch.pad([make_recording(50), make_recording(20, seed=1)])
    positions = positions_of(batch)
    torch.testing.assert_close(positions[0, :, 0], 2 * batch.x[0] / 33 - 1)
    torch.testing.assert_close(positions[0, :, 1], 2 * batch.y[0] / 29 - 1)
    elapsed = batch.t - batch.t[:, :1]
    for row, count in enumerate((50, 20)):
        torch.testing.assert_close(positions[row, :count, 2], elapsed[row, :count] / elapsed[row, count - 1])


def test_frequencies_of_a_head_are_shared_out_to_x_y_and_t():
    rotations = Rotations(32)
    assert (len(rotations.place), len(rotations.time)) == (6, 4), "pairs for x, as many for y, and those for t"
    for frequencies, fastest in ((rotations.place, 26.0), (rotations.time, 60.0)):
        assert frequencies[[0, -1]].tolist() == pytest.approx([1, fastest])
        ratios = frequencies[1:] / frequencies[:-1]
        torch.testing.assert_close(ratios, ratios[:1].expand_as(ratios))
    cosine, sine = rotations(torch.tensor([[[0.5, -0.2, 0.7]]]))[0, 0]
    torch.testing.assert_close(torch.atan2(sine, cosine)[[0, 6, 12]], torch.tensor([0.5, -0.2, 0.7]))


@pytest.mark.parametrize("heads", [(), (3,), (2, 3)])
def test_a_rotation_is_the_one_written_out_and_can_be_undone(heads):
    rows, rotation = draw(2, 7, *heads, 16), Rotations(16)(draw(2, 7, 3, seed=1))
    assert torch.equal(rotate(rows, rotation), rotate_written_out(rows, rotation))
    torch.testing.assert_close(rotate_back(rotate(rows, rotation), rotation), rows)
    torch.testing.assert_close(rotate(rows, rotation).norm(dim=-1), rows.norm(dim=-1))
    assert rotate(rows.bfloat16(), rotation).dtype == torch.bfloat16


def test_a_rotation_has_its_own_gradient():
    rows = draw(2, 5, 2, 8, dtype=torch.float64).requires_grad_()
    rotation = Rotations(8)(draw(2, 5, 3, seed=1)).double()
    assert torch.autograd.gradcheck(lambda rows: rotate(rows, rotation), rows)
    assert torch.autograd.gradcheck(lambda rows: rotate_back(rows, rotation), rows)


FORMS = pytest.mark.parametrize("form", ["compiled", "folded"])


@pytest.fixture(autouse=True)
def _form(request, monkeypatch):
    if getattr(request.node, "callspec", None) and request.node.callspec.params.get("form") == "folded":
        monkeypatch.setattr(compiled_attention, "INSTALLED", False)


@FORMS
def test_rotating_q_k_v_and_back_is_the_definition_with_gradients(form):
    q, k, v = (draw(2, 60, 2, 16, seed=seed) for seed in range(3))
    log_forget = F.logsigmoid(2 + draw(2, 60, 2, seed=3))
    positions, upstream = draw(2, 60, 3, seed=4), draw(2, 60, 2, 16, seed=5)
    rows = Rows(torch.ones(2, 60, dtype=torch.bool), Rotations(16)(positions))

    def fast(q, k, v, log_forget):
        inputs = (*rows.rotate(q, k, v), log_forget)
        return rows.rotate_back(forgetting_attention(*(part.transpose(1, 2) for part in inputs)).transpose(1, 2))

    def slow(*inputs):
        frequencies = Rotations(16)
        x, y, t = positions.double().unsqueeze(-1).unbind(-2)
        angles = torch.cat([x * frequencies.place, y * frequencies.place, t * frequencies.time], dim=-1)
        q, k, v, log_forget = (part.transpose(1, 2) for part in inputs)
        return relative_attention_written_out(q, k, v, log_forget, angles).transpose(1, 2)

    single = [part.clone().requires_grad_() for part in (q, k, v, log_forget)]
    double = [part.double().requires_grad_() for part in (q, k, v, log_forget)]
    found, exact = fast(*single), slow(*double)
    assert (found - exact).abs().max() < 1e-5
    ours = torch.autograd.grad((found * upstream).sum(), single)
    theirs = torch.autograd.grad((exact * upstream.double()).sum(), double)
    for one, other in zip(ours, theirs, strict=True):
        assert (one - other).abs().max() < 1e-4 * other.abs().max()


@FORMS
@pytest.mark.parametrize("count", [1, 2])
def test_what_a_network_learns_is_what_the_definition_gives(form, count):
    """Compiled, heads are rotated where they are made and answers where they are written: against float64 as it is."""
    both = randomise(Bidirectional(32, *(ForgettingDirection(32, 2, 3.0) for _ in range(count))))
    valid = torch.arange(70) < torch.tensor([[70], [0], [41]])
    answers = []
    for network in (both, copy.deepcopy(both).double()):
        dtype = network.output.weight.dtype
        tokens = draw(3, 70, 32).to(dtype).requires_grad_()
        rotation = Rotations(16)(draw(3, 70, 3, seed=1)).to(dtype)
        seen = network(tokens, Rows(valid, rotation))[valid]
        upstream = draw(*seen.shape, seed=2).to(dtype)
        answers.append([seen, *torch.autograd.grad(seen, [tokens, *network.parameters()], upstream)])
    for one, other in zip(*answers, strict=True):
        assert (one - other).detach().abs().max() < 1e-5 * max(float(other.detach().abs().max()), 1)


@FORMS
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("shift", [(0.7, 0, 0), (0, -1.3, 0), (0, 0, 0.4)], ids=["x", "y", "t"])
def test_moving_all_events_alike_leaves_attention_as_it_was(form, count, shift):
    both = randomise(Bidirectional(32, *(ForgettingDirection(32, 2, 3.0) for _ in range(count))))
    tokens, positions = draw(2, 40, 32), draw(2, 40, 3, seed=1)
    valid, rotations = torch.arange(40) < torch.tensor([[40], [25]]), Rotations(16)
    seen = both(tokens, Rows(valid, rotations(positions)))[valid]
    moved = both(tokens, Rows(valid, rotations(positions + torch.tensor(shift))))[valid]
    torch.testing.assert_close(moved, seen, atol=2e-5, rtol=1e-5)  # angles of up to 100 are rounded
    apart = both(tokens, Rows(valid, rotations(positions * (1 + torch.tensor(shift)))))[valid]
    assert (apart - seen).abs().max() > 0.01, "distances matter"
    assert (both(tokens, Rows(valid))[valid] - seen).abs().max() > 0.01


def test_both_forms_and_both_directions_agree(monkeypatch):
    """What an event sees of those after it, moved and reversed, is what it sees of those before it."""
    both = randomise(Bidirectional(32, ForgettingDirection(32, 2, 3.0)))
    tokens, positions, valid = draw(2, 40, 32), draw(2, 40, 3, seed=1), torch.ones(2, 40, dtype=torch.bool)
    seen = both(tokens, Rows(valid, Rotations(16)(positions)))
    monkeypatch.setattr(compiled_attention, "INSTALLED", False)
    torch.testing.assert_close(both(tokens, Rows(valid, Rotations(16)(positions))), seen, atol=3e-6, rtol=1e-5)
    with torch.no_grad():
        both.output.weight.copy_(torch.cat(both.output.weight.chunk(2, dim=1)[::-1], dim=1))
    turned = both(tokens.flip(1), Rows(valid, Rotations(16)(positions.flip(1)))).flip(1)
    torch.testing.assert_close(turned, seen, atol=3e-6, rtol=1e-5)


def test_pooled_tokens_are_where_their_events_are_on_average():
    network = randomise(build_backbone(ModelConfig(dim=16, hidden=16, heads=2, blocks=2, relative=True)))
    tokens, positions, valid = draw(1, 5, 16), draw(1, 5, 3, seed=1), torch.ones(1, 5, dtype=torch.bool)
    (first, second), rotations = network.stages, Rotations(8)
    halves = first(tokens, Rows(valid, rotations(positions)), None)
    halves = torch.stack([halves[0, :2].mean(0), halves[0, 2:4].mean(0), halves[0, 4]])[None]
    middles = torch.stack([positions[0, :2].mean(0), positions[0, 2:4].mean(0), positions[0, 4]])[None]
    last = second(halves, Rows(valid[:, :3], rotations(middles)), None)
    expected = torch.stack([last[0, :2].mean(0), last[0, 2]])[None]
    torch.testing.assert_close(network(tokens, valid, positions=positions)[0], expected)
    with pytest.raises(ValueError, match="needs the positions of the tokens"):
        network(tokens, valid)


def test_a_hidden_event_has_a_time_and_no_place():
    positions, hidden = draw(2, 6, 3), torch.arange(6).expand(2, 6) % 2 == 0
    shown = hide_places(positions, hidden)
    assert torch.equal(shown[~hidden], positions[~hidden])
    assert torch.equal(shown[..., 2], positions[..., 2])
    assert not shown[hidden][:, :2].any()


def test_features_and_predictions_of_a_relative_network_fit_each_other(make_events):
    config = ModelConfig(sensor=SMALL, classes=3, dim=16, hidden=16, heads=2, blocks=2, relative=True)
    model = randomise(build_model(config))
    events = make_events(200)
    scores = model.head.linear(model.features(events)).softmax(dim=-1)
    torch.testing.assert_close(model.predict(events).scores, scores)
    batch = EventBatch.pad([events])
    moved = model.classify(model.embed(batch), batch.valid, positions=positions_of(batch) + 0.3)
    torch.testing.assert_close(moved, model(batch), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(model(replace(batch, x=33 - batch.x)), model(batch), atol=1e-3)
