"""The whole network against the paper's equations, written out event by event in float64: no batch, no fast path."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import randomise
from torch import Tensor

from event2vec import EventBatch, Events, ModelConfig, Sensor, build_model
from event2vec.model.masked import build_masked_model

SENSOR = Sensor(9, 7)
TINY = ModelConfig(sensor=SENSOR, classes=3, dim=16, hidden=20, heads=2, blocks=2, pooling=False)


def recording(count: int, seed: int = 0) -> Events:
    """Clusters between pixels that stand for 1 to 9 events."""
    generator = torch.Generator().manual_seed(seed)
    x, y = 8 * torch.rand(count, generator=generator), 6 * torch.rand(count, generator=generator)
    t = torch.randint(0, 1000, (count,), generator=generator).sort().values
    p, rho = torch.rand(count, generator=generator) < 0.5, torch.randint(1, 10, (count,), generator=generator)
    return Events.from_arrays(x, y, t, p, sensor=SENSOR, rho=rho.float())


def layer_norm(norm: Any, row: Tensor) -> Tensor:
    return (row - row.mean()) / (row.var(correction=0) + 1e-5).sqrt() * norm.weight + norm.bias


def rms_norm(row: Tensor, weight: Tensor) -> Tensor:
    return row / (row.square().mean() + 1e-5).sqrt() * weight


# ---- Eq. 1-7


def space(embed: Any, events: Events) -> Tensor:
    """Eq. 2 by a table, or Eq. 4 and 5: three layers with norms, ReLU after the first two, no biases."""
    rows = []
    for x, y, p in zip(events.x.double(), events.y.double(), events.p.double(), strict=True):
        if hasattr(embed.spatial, "rows"):
            row = int(p) * 9 * 7 + round(float(y)) * 9 + round(float(x))
            rows.append(embed.spatial.rows.weight[row])
            continue
        where = torch.stack([2 * x / 8 - 1, 2 * y / 6 - 1, 2 * p - 1])
        for number, (layer, norm) in enumerate(zip(embed.spatial.layers, embed.spatial.norms, strict=True)):
            assert layer.bias is None
            where = layer_norm(norm, layer.weight @ where)
            where = where.relu() if number < 2 else where
        rows.append(where)
    return torch.stack(rows)


def time(embed: Any, events: Events) -> Tensor:
    """Sec. 3.3: kernels of 3 over intervals as shares of the recording; 1 > D/4 dense, then two depthwise ones."""
    t = events.t.double() - events.t[0]
    share = t / t[-1] if t[-1] > 0 else t
    if hasattr(embed.temporal, "scale"):
        waves = []
        for elapsed in share:
            angles = [elapsed * embed.temporal.scale * 10000 ** (-2 * j / 16) for j in range(8)]
            waves.append(torch.stack([wave for angle in angles for wave in (angle.sin(), angle.cos())]))
        return torch.stack(waves)
    signal = torch.cat([share[:1], share.diff()])[:, None]
    for number, (kernel, norm) in enumerate(zip(embed.temporal.kernels, embed.temporal.norms, strict=True)):
        wide, narrow = len(kernel), signal.shape[1]
        out = torch.zeros(len(signal), wide, dtype=torch.float64)
        for place in range(len(signal)):
            for channel in range(wide):
                for tap in range(3):
                    neighbour = place + tap - 1
                    if 0 <= neighbour < len(signal):
                        out[place, channel] += kernel[channel, tap] * signal[neighbour, channel * narrow // wide]
        out = torch.stack([layer_norm(norm, row) for row in out])
        signal = out.relu() if number < 2 else out
    return signal


def emphasis(config: ModelConfig, events: Events) -> Tensor:
    rho = events.rho.double()
    return (rho if config.intensity == "linear" else rho.log() + 1)[:, None]


# ---- Eq. 8-10


def angles_of(config: ModelConfig, positions: Tensor) -> Tensor:
    """3/8 of a head's pairs turn with x, as many with y, and the others with t; frequencies in equal ratios."""
    pairs = config.dim // config.heads // 2
    place = int(pairs * 3 / 8)
    ratios = lambda fastest, count: [fastest ** (k / max(count - 1, 1)) for k in range(count)]  # noqa: E731
    frequencies = [(0, each) for each in ratios(26.0, place)] + [(1, each) for each in ratios(26.0, place)]
    frequencies += [(2, each) for each in ratios(60.0, pairs - 2 * place)]
    return torch.stack([positions[:, axis] * each for axis, each in frequencies], dim=1)


def forgetting(config: ModelConfig, direction: Any, tokens: Tensor, angles: Tensor | None) -> Tensor:
    """score(i, j) = q_i k_j / sqrt(w) + the logs of the gates of j + 1 to i; keys and values have half the heads."""
    heads, width = config.heads, config.dim // config.heads
    groups = max(heads // 2, 1)
    projected = tokens @ direction.project_all.weight.T
    q, k, v, gate = projected.split([config.dim, groups * width, groups * width, heads], dim=1)
    log_forget = (1 / (1 + (-(gate + direction.forget_bias)).exp())).log()
    out = torch.zeros(len(tokens), config.dim, dtype=torch.float64)
    for head in range(heads):
        group = head * groups // heads
        own, shared = slice(head * width, (head + 1) * width), slice(group * width, (group + 1) * width)
        queries = [rms_norm(row, direction.query_norm[own]) for row in q[:, own]]
        keys, values = [rms_norm(row, direction.key_norm[shared]) for row in k[:, shared]], v[:, shared]
        for i in range(len(tokens)):
            turned = [turn(keys[j], None if angles is None else angles[j] - angles[i]) for j in range(i + 1)]
            scores = [
                queries[i] @ turned[j] / math.sqrt(width) + log_forget[j + 1 : i + 1, head].sum() for j in range(i + 1)
            ]
            weights = torch.stack(scores).softmax(dim=0)
            seen = [turn(values[j], None if angles is None else angles[j] - angles[i]) for j in range(i + 1)]
            out[i, own] = weights @ torch.stack(seen)
    return out


def turn(row: Tensor, angle: Tensor | None) -> Tensor:
    """Pairs of channels half a head apart."""
    if angle is None:
        return row
    first, second = row.chunk(2)
    return torch.cat([first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()])


def gated_linear(config: ModelConfig, direction: Any, tokens: Tensor) -> Tensor:
    """S_i = diag(a_i) S_(i-1) + k_i v_i^T; gates are 16th roots, through a layer of 16; the answer is gated by silu."""
    heads, width = config.heads, config.dim // config.heads
    narrow = config.dim // 2 // heads
    projected = tokens @ direction.project_all.weight.T
    q, k, v, opening = projected.split([heads * narrow, heads * narrow, config.dim, config.dim], dim=1)
    assert direction.gate_down.weight.shape == (16, config.dim)
    gates = direction.gate_up.bias + tokens @ direction.gate_down.weight.T @ direction.gate_up.weight.T
    gates = (1 / (1 + (-gates).exp())) ** (1 / 16)
    out = torch.zeros(len(tokens), config.dim, dtype=torch.float64)
    for head in range(heads):
        keys, own = slice(head * narrow, (head + 1) * narrow), slice(head * width, (head + 1) * width)
        state = torch.zeros(narrow, width, dtype=torch.float64)
        for i in range(len(tokens)):
            state = gates[i, keys, None] * state + k[i, keys, None] * v[i, None, own]
            seen = rms_norm(q[i, keys] / math.sqrt(narrow) @ state, direction.norm)
            out[i, own] = seen * opening[i, own] / (1 + (-opening[i, own]).exp())
    return out


def attend(config: ModelConfig, attention: Any, tokens: Tensor, positions: Tensor) -> Tensor:
    """O = W_fb [O_f; O_b], the second over the row reversed and turned back; shared weights or two sets."""
    assert len(attention.directions) == (1 if config.shared else 2)
    both = []
    for number, direction in enumerate((attention.directions[0], attention.directions[-1])):
        row, where = (tokens.flip(0), positions.flip(0)) if number else (tokens, positions)
        if config.attention == "gated_linear":
            seen = gated_linear(config, direction, row)
        else:
            seen = forgetting(config, direction, row, angles_of(config, where) if config.relative else None)
        both.append(seen.flip(0) if number else seen)
    return torch.cat(both, dim=1) @ attention.output.weight.T


def backbone(config: ModelConfig, network: Any, tokens: Tensor, positions: Tensor) -> Tensor:
    """Post-norm blocks; a norm ends a stage, and each block is its own stage if tokens are pooled after it."""
    assert len(network.stages) == (config.blocks if config.pooling else 1)
    for stage in network.stages:
        for block in stage.blocks:
            seen = tokens + attend(config, block.attention, tokens, positions)
            tokens = torch.stack([layer_norm(block.attention_norm, row) for row in seen])
            thought = tokens + (tokens @ block.widen.weight.T).relu() @ block.narrow.weight.T
            tokens = torch.stack([layer_norm(block.feed_norm, row) for row in thought])
        tokens = torch.stack([layer_norm(stage.norm, row) for row in tokens])
        if config.pooling:
            tokens, positions = (
                torch.stack([pair.mean(dim=0) for pair in rows.split(2)]) for rows in (tokens, positions)
            )
    return tokens


def positions_of(events: Events) -> Tensor:
    t = events.t.double() - events.t[0]
    return torch.stack([events.x.double() / 4 - 1, events.y.double() / 3 - 1, t / t[-1].clamp(min=1)], dim=1)


VARIANTS: list[dict[str, Any]] = [
    {},
    {"shared": False},
    {"pooling": True, "blocks": 3},
    {"heads": 1, "intensity": "linear"},
    {"heads": 4, "forget_bias": 3.0},
    {"spatial": "lookup", "temporal": "sine"},
    {"attention": "gated_linear"},
    {"attention": "gated_linear", "shared": False, "heads": 4, "pooling": True},
    {"relative": True},
    {"relative": True, "shared": False, "pooling": True, "dim": 32},
]


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
@torch.no_grad()
def test_the_network_is_the_papers_equations(settings):
    config = replace(TINY, **settings)
    model = randomise(build_model(config)).double()
    recordings = [recording(9), recording(4, seed=1), recording(1, seed=2)]
    found = model(EventBatch.pad(recordings))
    for answer, events in zip(found, recordings, strict=True):
        tokens = emphasis(config, events) * (space(model.embed, events) + time(model.embed, events))
        last = backbone(config, model.backbone, tokens, positions_of(events))
        expected = model.head.linear.weight @ last.mean(dim=0) + model.head.linear.bias
        # Intervals, angles and gated linear attention are in float32 whatever the weights are.
        torch.testing.assert_close(answer, expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("settings", [{}, {"relative": True}, {"intensity": "linear", "shared": False}], ids=str)
@torch.no_grad()
def test_pre_training_hides_places_and_reads_them_from_tokens_without_time_and_intensity(settings):
    """App. A.5 and Eq. 11: the mask token stands for phi; tokens / (ln rho + 1) - v_t go to the decoder, then tanh."""
    config = replace(TINY, **settings)
    model: Any = randomise(build_masked_model(config)).double()
    recordings = [recording(8), recording(5, seed=1)]
    hidden = torch.tensor([[True, False, False, True, False, True, False, False], [False, True] + [False] * 6])
    expected = []
    for row, events in zip(hidden, recordings, strict=True):
        own = row[: len(events)]
        where = torch.where(own[:, None], model.mask_token, space(model.embed, events))
        when, strength = time(model.embed, events), emphasis(config, events)
        positions = positions_of(events)
        positions[own, :2] = 0  # a hidden event turns by t alone
        last = backbone(config, model.backbone, strength * (where + when), positions)
        for token in (last / strength - when)[own]:
            for layer, norm in zip(model.decoder.layers[:2], model.decoder.norms, strict=True):
                token = layer_norm(norm, layer.weight @ token).relu()
            expected.append((model.decoder.layers[2].weight @ token).tanh())
    found = model(EventBatch.pad(recordings), hidden)
    torch.testing.assert_close(found, torch.stack(expected), atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize(
    ("settings", "shapes"),
    [
        ({"dim": 64, "heads": 2}, {"project_all": (64 + 32 + 32 + 2, 64), "output": (64, 128)}),
        ({"dim": 192, "heads": 6}, {"project_all": (192 + 96 + 96 + 6, 192), "output": (192, 384)}),
        ({"dim": 48, "heads": 3}, {"project_all": (48 + 16 + 16 + 3, 48), "output": (48, 96)}),
        ({"dim": 64, "attention": "gated_linear"}, {"project_all": (32 + 32 + 64 + 64, 64), "gate_up": (32, 16)}),
    ],
    ids=str,
)
def test_attention_has_the_published_shapes(settings, shapes):
    """max(h / 2, 1) heads of keys and values; gated linear attention has keys half as wide as values."""
    model: Any = build_model(replace(TINY, **settings))
    block = model.backbone.stages[0].blocks[0]
    parts = {"output": block.attention.output, **dict(block.attention.directions[0].named_children())}
    assert {name: tuple(parts[name].weight.shape) for name in shapes} == shapes
    biased = [name for name, _ in block.named_parameters() if name.endswith("bias") and "norm" not in name]
    assert {name.rsplit(".", 1)[1] for name in biased} <= {"forget_bias", "bias"}
    assert not [name for name in biased if name.endswith((".widen.bias", ".narrow.bias", "output.bias", "all.bias"))]
