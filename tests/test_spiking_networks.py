"""Compared networks of spiking neurons against their published descriptions, written out layer by layer."""

import pytest
import torch
import torch.nn.functional as F
from written_out import SENSOR, assert_close, between_pixels, build, frames_of, normed

from event2vec import EventBatch, Sensor
from event2vec.baselines.config import MaSnnConfig, MaxFormerConfig, SpikGruConfig
from event2vec.baselines.layers import drop


@pytest.fixture(scope="module")
def batch():
    return EventBatch.pad([between_pixels(600), between_pixels(250, seed=1)])


def leaky(inputs, threshold=1.0):
    """Max-Former's neurons: v += (x - v) / 2, reset to 0."""
    v, spikes = torch.zeros_like(inputs[0]), []
    for x in inputs:
        v = v + (x - v) / 2
        spikes.append((v >= threshold).to(v.dtype))
        v = v * (1 - spikes[-1])
    return torch.stack(spikes)


def clipped(inputs):
    """MA-SNN's neurons: u = h + x, clipped to the threshold and decayed."""
    left, spikes = torch.zeros_like(inputs[0]), []
    for x in inputs:
        u = left + x
        spikes.append((u >= 0.3).to(u.dtype))
        left = 0.3 * u.clamp(max=0.3)
    return torch.stack(spikes)


def adaptive(inputs, alpha):
    """SpikGRU's neurons: v = alpha v + x - the last spike."""
    v, spikes = torch.zeros_like(inputs[0]), [torch.zeros_like(inputs[0])]
    for x in inputs:
        v = alpha * v + x - spikes[-1]
        spikes.append((v >= 1).to(v.dtype))
    return torch.stack(spikes[1:])


def each(maps, change):
    """A layer of frames, on each moment of (time, batch, channels, height, width)."""
    return torch.stack([change(moment) for moment in maps])


def two_layers(weigh, values):
    return weigh[2].weight @ (weigh[0].weight @ values + weigh[0].bias).relu() + weigh[2].bias


def attend_over_time(attention, maps):
    """MA-SNN: the mean and the maximum of all that a moment has, through the same two layers."""
    out = maps.clone()
    for row in range(maps.shape[1]):
        own = maps[:, row].flatten(1)
        out[:, row] *= (
            sum(two_layers(attention.weigh, of) for of in (own.mean(1), own.max(1).values))
            .sigmoid()
            .view(-1, *[1] * (maps.ndim - 2))
        )
    return out


def attend_over_channels(attention, maps):
    out = maps.clone()
    for row in range(maps.shape[1]):
        own = maps[:, row].transpose(0, 1).flatten(1)  # of a channel: all moments and places
        weight = sum(two_layers(attention.weigh, of) for of in (own.mean(1), own.max(1).values)).sigmoid()
        out[:, row] *= weight[:, None, None]
    return out


def attend_over_places(attention, maps):
    out = maps.clone()
    for row in range(maps.shape[1]):
        own = maps[:, row].flatten(0, 1)  # of a place: all moments and channels
        seen = torch.stack([own.mean(0), own.max(0).values])[None]
        out[:, row] *= F.conv2d(seen, attention.weigh.weight, attention.weigh.bias, padding=1)[0, 0].sigmoid()
    return out


@pytest.mark.parametrize(("layout", "pools"), [("small", (True, True, True)), ("published", (False, True, True))])
@torch.no_grad()
def test_ma_snn_attends_over_time_then_channels_then_places_before_its_neurons(layout, pools, batch):
    config = MaSnnConfig(sensor=SENSOR, classes=3, bins=10, side=16, layout=layout, channels=8, hidden=12)
    network = build(config, seed=1)
    maps = frames_of(batch, 10, "nearest").transpose(0, 1)
    for stage, pool, wide in zip(network.convolutions, pools, (8, 16, 16), strict=True):
        found = stage(maps)
        layer, norm = stage.convolution, stage.norm
        maps = torch.stack([normed(norm, F.conv2d(frames, layer.weight, layer.bias, padding=1)) for frames in maps])
        assert maps.shape[2] == wide
        maps = each(maps, lambda frames: F.avg_pool2d(frames, 2)) if pool else maps
        maps = attend_over_time(stage.over_time, maps)
        maps = attend_over_channels(stage.over_channels, maps)
        maps = attend_over_places(stage.over_places, maps)
        maps = clipped(maps.relu())
        assert 0.005 < maps.mean() < 0.98, "some fire and some do not"
        assert torch.equal(found, maps)
    hidden = each(maps, lambda frames: normed(network.hidden_norm, network.hidden(frames.flatten(1))))
    hidden = clipped(attend_over_time(network.over_time, hidden).relu())
    spikes = clipped(each(hidden, lambda rows: normed(network.head_norm, network.head(rows))))
    assert_close(network(batch), 10 * spikes.mean(dim=0))


def test_ma_snn_narrows_its_attention_as_published():
    """T to T / 5 and back, C to C / 8 and back, at least one."""
    network = build(MaSnnConfig(sensor=SENSOR, bins=60, side=16, channels=64, layout="published"))
    stage = network.convolutions[0]
    assert [tuple(layer.weight.shape) for layer in stage.over_time.weigh[::2]] == [(12, 60), (60, 12)]
    assert [tuple(layer.weight.shape) for layer in stage.over_channels.weigh[::2]] == [(8, 64), (64, 8)]
    assert tuple(stage.over_places.weigh.weight.shape) == (1, 2, 3, 3)
    narrow = build(MaSnnConfig(sensor=SENSOR, bins=3, side=16, channels=8))
    assert narrow.over_time.weigh[0].out_features == 1
    assert network.hidden.in_features == 128 * 4 * 4, "pooled after all convolutions but the first"
    assert narrow.hidden.in_features == 16 * 2 * 2


def convolve(part, maps, stride=1, groups=1):
    """Max-Former: a convolution of each frame and its norm, then 3 x 3 max pooling if it has some."""
    weight, bias = part.convolution.weight, part.convolution.bias

    def change(frames):
        frames = normed(part.norm, F.conv2d(frames, weight, bias, stride, weight.shape[-1] // 2, groups=groups))
        return F.max_pool2d(frames, 3, 2, 1) if part.pool else frames

    return each(maps, change)


def fire_and_convolve(part, maps, groups=1):
    return convolve(part.convolution, leaky(maps), groups=groups)


@torch.no_grad()
def test_max_former_is_the_published_table_layer_by_layer():
    sensor = Sensor(32, 32)
    batch = EventBatch.pad([between_pixels(900, sensor=sensor), between_pixels(400, seed=1, sensor=sensor)])
    network = build(MaxFormerConfig(sensor=sensor, classes=3, bins=4, side=32, dim=32, heads=2))
    maps = frames = frames_of(batch, 4, "bilinear", "events").transpose(0, 1)
    embed, down, attention = network.embed, network.down, network.far[0]
    # stem: conv3; LIF conv3 maxpool; LIF conv3 maxpool; LIF conv3 maxpool; from the second spikes conv1 of stride 4
    spikes = leaky(fire_and_convolve(embed.second, convolve(embed.first, maps)))
    maps = fire_and_convolve(embed.fourth, convolve(embed.third, spikes)) + convolve(embed.shortcut, spikes, stride=4)
    assert maps.shape == (4, 2, 16, 4, 4), "an eighth of the resolution"
    torch.testing.assert_close(embed(frames), maps)
    # block 1: depthwise convolution, then channels twice
    maps = maps + fire_and_convolve(network.near[0].depthwise, maps, groups=16)
    for layer in network.near[1].layers:
        maps = maps + fire_and_convolve(layer, maps)
    # down
    before = maps
    spikes = leaky(maps)
    maps = fire_and_convolve(down.second, convolve(down.first, spikes)) + convolve(down.shortcut, spikes)
    assert maps.shape == (4, 2, 32, 2, 2)
    torch.testing.assert_close(down(before), maps)
    # block 2: spiking attention, no softmax, scaled by 0.125, threshold 0.5; then channels twice
    spikes = leaky(maps)
    q, k, v = (leaky(convolve(part, spikes)) for part in (attention.q, attention.k, attention.v))
    mixed = torch.zeros_like(q)
    for head in range(2):
        own = slice(16 * head, 16 * head + 16)
        for moment, row in ((a, b) for a in range(4) for b in range(2)):
            queries, keys, values = (part[moment, row, own].flatten(1).T for part in (q, k, v))
            mixed[moment, row, own] = (queries @ keys.T @ values * 0.125).T.view(16, *maps.shape[3:])
    maps = maps + convolve(attention.out, leaky(mixed, 0.5))
    for layer in network.far[1].layers:
        maps = maps + fire_and_convolve(layer, maps)
    assert_close(network(batch), network.head(leaky(maps.mean(dim=(3, 4))).mean(dim=0)))


@torch.no_grad()
def test_spiking_attention_mixes_places_within_a_head_alone():
    """q (k^T v) of each head, at places of their own: what one head's values say reaches no other head's channels."""
    attention = build(MaxFormerConfig(sensor=SENSOR, classes=3, dim=32, heads=2)).far[0]
    maps = torch.randn(3, 2, 32, 2, 4, generator=torch.Generator().manual_seed(0)).double() * 3
    spikes = leaky(maps)
    q, k, v = (leaky(convolve(part, spikes)) for part in (attention.q, attention.k, attention.v))
    q, k, v = (part.view(3, 2, 2, 16, 8) for part in (q, k, v))  # time, batch, head, channel, place
    mixed = torch.einsum("tbhcp,tbhcs,tbhds->tbhdp", q, k, v) / 8
    expected = maps + convolve(attention.out, leaky(mixed.reshape(maps.shape), 0.5))
    assert leaky(mixed, 0.5).mean() > 0.05
    torch.testing.assert_close(attention(maps), expected)


def test_max_former_reads_coarser_frames_where_asked(batch):
    network = build(MaxFormerConfig(sensor=SENSOR, classes=3, bins=4, side=16, dim=32, heads=2))
    with torch.no_grad():
        whole = network(batch)
        assert torch.equal(network.at_resolution(16)(batch), whole)
        assert torch.equal(network.at_resolution(40)(batch), whole), "never finer than its frames"
        coarse = network.at_resolution(4)(batch)
        assert not torch.equal(coarse, whole)
        assert torch.equal(network(batch), whole), "the network itself stays as it was"


def residual(block, maps):
    """A block of ResNet-18 with neurons: what skips is added before the second ones."""
    stride = block.first.stride[0]
    inside = each(maps, lambda frames: normed(block.norms[0], F.conv2d(frames, block.first.weight, None, stride, 1)))
    inside = adaptive(inside, leak(block.neurons[0]))
    inside = each(inside, lambda frames: normed(block.norms[1], F.conv2d(frames, block.second.weight, None, 1, 1)))
    past = maps
    if block.shortcut is not None:
        convolution, norm = block.shortcut
        past = each(maps, lambda frames: normed(norm, F.conv2d(frames, convolution.weight, None, stride)))
    return adaptive(inside + past, leak(block.neurons[1]))


def leak(neurons):
    return neurons.alpha.clamp(0, 1)[:, None, None]


def spiking_gru(cell, given):
    units = len(cell.alpha)
    i = v = y = given.new_zeros(given.shape[1], units)
    spikes = []
    for x in given:
        heard, told = cell.inputs(x), cell.recurrent(y)
        z, r = ((heard + told)[:, part * units : (part + 1) * units].sigmoid() for part in (0, 1))
        i = cell.alpha.clamp(0, 1) * i + heard[:, 2 * units :] + r * told[:, 2 * units :]
        v = z * v + (1 - z) * i - y
        y = (v >= 1).to(v.dtype) - (v <= -1).to(v.dtype)
        spikes.append(y)
    return torch.stack(spikes)


@torch.no_grad()
def test_spikgru_is_a_spiking_resnet_18_and_gru_in_both_directions(batch):
    config = SpikGruConfig(sensor=SENSOR, classes=3, bins=6, side=16, channels=4, blocks=2, units=5, layers=2)
    network = build(config, seed=2)
    frames = frames_of(batch, 6, "bilinear")
    frames[:, :, 0] *= -1  # falling events are negative
    volume = F.conv3d(frames.transpose(1, 2), network.stem.weight, None, (1, 2, 2), (2, 3, 3))
    maps = adaptive(normed(network.stem_norm, volume).permute(2, 0, 1, 3, 4), leak(network.stem_neurons))
    maps = adaptive(each(maps, lambda frames: F.avg_pool2d(frames, 3, 2, 1)), 1.0)
    strides = [[block.first.stride[0] for block in stage] for stage in network.blocks]
    assert strides == [[1, 1], [2, 1], [2, 1], [2, 1]]
    assert [stage[0].first.out_channels for stage in network.blocks] == [4, 8, 16, 32]
    for stage in network.blocks:
        for block in stage:
            found = block(maps)
            changes = block.first.stride[0] > 1 or block.first.in_channels != block.first.out_channels
            assert (block.shortcut is not None) == changes
            maps = residual(block, maps)
            assert torch.equal(found, maps)
    assert 0.02 < maps.mean() < 0.98
    spikes = adaptive(maps.mean(dim=(3, 4)), 1.0)
    given = spikes
    for layer in network.layers:
        ahead, back = spiking_gru(layer.forwards, spikes), spiking_gru(layer.backwards, spikes.flip(0)).flip(0)
        found = layer(spikes)
        spikes = torch.cat([ahead, back], dim=-1)
        assert torch.equal(found, spikes)
        assert 0.02 < spikes.abs().mean() < 0.98
    assert_close(network(batch), network.head(spikes).mean(dim=0))
    network.settings = SpikGruConfig(**vars(config) | {"dropout": 0.4})
    drawn = torch.Generator().manual_seed(1)
    first, second = network.layers
    spikes = drop(second(drop(first(given), 0.4, drawn)), 0.5, drawn)  # between GRUs, and half before the last layer
    found = network(batch, torch.Generator().manual_seed(1))
    torch.testing.assert_close(found, network.head(spikes).mean(dim=0))
