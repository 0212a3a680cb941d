"""Compared networks on frames against their descriptions, layer by layer, and the layers that they share."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from written_out import SENSOR, assert_close, between_pixels, build, frames_of, grid_of, normed, shares

from event2vec import EventBatch, Sensor
from event2vec.baselines.config import FrameCnnConfig, MstpConfig, SparseGruConfig, VoxelGridConfig
from event2vec.baselines.layers import BatchNorm, PointNorm, ResidualBlock, VolumeNorm, drop, residual_stages
from event2vec.baselines.sparse_gru import SparseUnits
from event2vec.model.frames import make_frames, stretches_of_events, stretches_of_time, voxel_grid


@pytest.fixture(scope="module")
def batch():
    return EventBatch.pad([between_pixels(500), between_pixels(200, seed=1)])


# ---- what they read


@pytest.mark.parametrize("placing", ["nearest", "bilinear"])
@pytest.mark.parametrize("bins", [1, 3])
def test_frames_count_every_event_where_and_when_it_is(placing, bins, batch):
    found = make_frames(batch, bins, placing)
    torch.testing.assert_close(found.double(), frames_of(batch, bins, placing), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(found.sum(dim=(1, 2, 3, 4)), batch.rho.sum(dim=1), msg="nothing is lost")


@pytest.mark.parametrize("bins", [1, 2, 5])
def test_a_voxel_grid_shares_each_event_between_the_two_moments_around_it(bins, batch):
    found = voxel_grid(batch, bins)
    expected = grid_of(batch, bins) if bins > 1 else frames_of(batch, 1, "bilinear")
    torch.testing.assert_close(found.double(), expected, atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(found.sum(dim=(1, 2, 3, 4)), batch.rho.sum(dim=1), msg="nothing is lost")


def test_the_first_and_the_last_event_are_in_the_first_and_the_last_stretch(batch):
    for stretches in (stretches_of_time(batch, 7), stretches_of_events(batch, 7)):
        for row, count in enumerate(batch.valid.sum(dim=1).tolist()):
            own = stretches[row, :count]
            assert own[[0, -1]].tolist() == [0, 6]
            assert (own.diff() >= 0).all()
    counts = torch.bincount(stretches_of_events(batch, 7)[1, :200], minlength=7)
    assert counts.max() - counts.min() <= 1, "as many events in each"


@pytest.mark.parametrize(("sensor", "side"), [(Sensor(31, 61), 16), (Sensor(31, 9), 16)])
def test_frames_of_any_sensor_have_the_side_that_a_network_reads(sensor, side):
    """From corner to corner: scaled down before they are counted, scaled up after, so that there are no gaps."""
    batch = EventBatch.pad([between_pixels(60, sensor=sensor)])
    found = make_frames(batch, 1, "bilinear", side)
    assert found.shape == (1, 1, 2, side, side)
    height, width = min(sensor.height, side), min(sensor.width, side)
    expected = torch.zeros(2, height, width)
    for x, y, p, rho in zip(batch.x[0], batch.y[0], batch.p[0].long(), batch.rho[0], strict=True):
        scaled_x = float(x) * (width - 1) / (sensor.width - 1)
        scaled_y = float(y) * (height - 1) / (sensor.height - 1)
        for row, column, share in shares(scaled_x, scaled_y, "bilinear"):
            expected[p, row, column] += share * rho
    if height < side:
        expected = F.interpolate(expected[None], (side, side), mode="bilinear", align_corners=True)[0]
    torch.testing.assert_close(found[0, 0], expected, atol=1e-4, rtol=1e-4)


# ---- layers


@pytest.mark.parametrize(
    ("norm", "shape"), [(PointNorm, (9, 3)), (BatchNorm, (4, 3, 2, 2)), (VolumeNorm, (2, 3, 2, 1, 2))]
)
def test_norms_are_torchs_own_without_the_count_of_batches(norm, shape):
    ours, theirs = norm(3), {2: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(shape)](3)
    for _ in range(3):
        values = torch.randn(shape) * 2 + 1
        torch.testing.assert_close(ours.train()(values), theirs.train()(values))
    torch.testing.assert_close(ours.eval()(values), theirs.eval()(values))
    assert ours.state_dict().keys() == theirs.state_dict().keys() - {"num_batches_tracked"}
    ours.load_state_dict(ours.state_dict())
    assert ours.num_batches_tracked is None


def test_a_single_value_of_a_channel_is_scaled_as_after_training():
    norm: Any = PointNorm(3)
    norm.running_mean.fill_(2.0)
    norm.running_var.fill_(4.0)
    values = torch.tensor([[6.0, 2.0, 0.0]])
    torch.testing.assert_close(norm.train()(values), torch.tensor([[2.0, 0.0, -1.0]]), atol=1e-4, rtol=0)
    assert norm.running_mean.tolist() == [2.0] * 3, "one value says nothing of a mean"
    frames: Any = BatchNorm(2).train()
    frames(torch.ones(1, 2, 1, 3))
    assert frames.running_mean[0] == pytest.approx(0.1), "one frame of several pixels does"


def test_norms_without_weights_have_none():
    norm = PointNorm(4, weighted=False)
    assert not list(norm.parameters())
    values = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)) * 3 + 1
    torch.testing.assert_close(norm(values).mean(dim=0), torch.zeros(4), atol=1e-6, rtol=0)
    torch.testing.assert_close(norm(values).var(dim=0, correction=0), torch.ones(4), atol=1e-4, rtol=0)


def test_dropout_drops_a_share_and_scales_what_stays():
    ones = torch.ones(200, 100)
    dropped = drop(ones, 0.3, torch.Generator().manual_seed(0))
    assert dropped.unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert float((dropped == 0).float().mean()) == pytest.approx(0.3, abs=0.01)
    assert torch.equal(dropped, drop(ones, 0.3, torch.Generator().manual_seed(0)))
    assert not torch.equal(dropped, drop(ones, 0.3, torch.Generator().manual_seed(1)))
    assert drop(ones, 0.3, None) is ones
    generator = torch.Generator().manual_seed(0)
    assert drop(ones, 0.0, generator) is ones
    assert torch.equal(generator.get_state(), torch.Generator().manual_seed(0).get_state()), "nothing is drawn"


def residual(block, frames):
    """The block of ResNet-18 and ResNet-34: conv 3 x 3, norm, ReLU, conv 3 x 3, norm, added, ReLU."""
    stride = block.first.stride[0]
    inside = normed(block.norms[0], F.conv2d(frames, block.first.weight, None, stride, 1)).relu()
    inside = normed(block.norms[1], F.conv2d(inside, block.second.weight, None, 1, 1))
    if block.shortcut is None:
        return (inside + frames).relu()
    convolution, norm = block.shortcut
    return (inside + normed(norm, F.conv2d(frames, convolution.weight, None, stride))).relu()


@pytest.mark.parametrize(("narrow", "wide", "stride", "skips"), [(4, 4, 1, False), (4, 8, 1, True), (4, 4, 2, True)])
def test_what_skips_a_residual_block_is_projected_only_where_its_shape_changes(narrow, wide, stride, skips):
    block = ResidualBlock(narrow, wide, stride).eval()
    assert (block.shortcut is not None) == skips
    frames = torch.randn(2, narrow, 5, 6)
    torch.testing.assert_close(block(frames), residual(block, frames))


def test_stages_halve_the_frame_but_for_the_first():
    stages: Any = residual_stages([4, 8, 16], [2, 1, 3], 3)
    made = [
        [(block.first.in_channels, block.first.out_channels, block.first.stride[0]) for block in stage]
        for stage in stages
    ]
    assert made == [[(3, 4, 1), (4, 4, 1)], [(4, 8, 2)], [(8, 16, 2), (16, 16, 1), (16, 16, 1)]]


# ---- networks


@pytest.mark.parametrize("placing", ["bilinear", "nearest"])
@pytest.mark.parametrize("recurrent", [False, True])
@torch.no_grad()
def test_the_frame_cnn_is_pairs_of_convolutions_with_pooling(recurrent, placing, batch):
    config = FrameCnnConfig(
        sensor=SENSOR, classes=3, bins=4, channels=4, stages=2, recurrent=recurrent, placing=placing
    )
    network = build(config)

    def see(frames):
        for stage, wide in zip(network.stages, (4, 8), strict=True):
            for convolution, norm in zip(stage.convolutions, stage.norms, strict=True):
                frames = normed(norm, F.conv2d(frames, convolution.weight, padding=1)).relu()
            frames = F.max_pool2d(frames, 2)
            assert frames.shape[1] == wide
        return frames.mean(dim=(2, 3))

    frames = (1 + frames_of(batch, 4, placing)).log()
    if recurrent:
        moments = torch.stack([see(frames[:, number]) for number in range(4)], dim=1)
        features = network.gru(moments)[0].mean(dim=1)
    else:
        features = see(frames.flatten(1, 2))
    assert_close(network(batch), network.head(features))
    for share in (0.2, 0.6):
        network.settings = FrameCnnConfig(**vars(config) | {"dropout": share})
        dropped = drop(features, share, torch.Generator().manual_seed(3))
        assert_close(network(batch, torch.Generator().manual_seed(3)), network.head(dropped))


def test_the_frames_of_the_frame_cnn_have_their_channels_last(batch):
    """Convolutions are quicker that way; nothing else would show that it was lost."""
    network, seen = build(FrameCnnConfig(sensor=SENSOR, classes=3)), []
    for stage in network.stages:
        stage.register_forward_pre_hook(
            lambda stage, given: seen.append(given[0].is_contiguous(memory_format=torch.channels_last))
        )
    network(batch)
    assert seen == [True] * 3


def test_odd_frames_lose_no_row_when_they_are_pooled():
    stage = build(FrameCnnConfig(sensor=Sensor(5, 1), classes=3, bins=1, channels=2, stages=1)).stages[0]
    assert stage(torch.ones(1, 2, 1, 5).double()).shape == (1, 2, 1, 3)


@pytest.mark.parametrize("layout", ["small", "resnet34"])
@torch.no_grad()
def test_the_voxel_grid_network_weighs_events_by_their_time_and_is_residual(layout, batch):
    """EST: an event adds its time, shared by a triangle between bins; 18 channels; ResNet-34 as published."""
    network = build(VoxelGridConfig(sensor=SENSOR, classes=3, side=16, channels=4, layout=layout))
    frames = grid_of(batch, 9, weigh=lambda elapsed: elapsed).flatten(1, 2)
    assert frames.shape[1] == 18
    kernel = {"small": 3, "resnet34": 7}[layout]
    assert network.stem.weight.shape == (4, 18, kernel, kernel)
    frames = normed(network.stem_norm, F.conv2d(frames, network.stem.weight, None, 2, kernel // 2)).relu()
    frames = F.max_pool2d(frames, 3, 2, 1) if layout == "resnet34" else frames
    assert [len(stage) for stage in network.stages] == {"small": [1, 1, 1], "resnet34": [3, 4, 6, 3]}[layout]
    for stage in network.stages:
        for block in stage:
            frames = residual(block, frames)
    assert frames.shape[1] == {"small": 16, "resnet34": 32}[layout]
    assert_close(network(batch), network.head(frames.mean(dim=(2, 3))))


@torch.no_grad()
def test_mstp_brings_its_fast_branch_to_the_slow_rate_and_fuses_it_after_each_stage(batch):
    config = MstpConfig(
        sensor=SENSOR, classes=3, bins=3, rate=2, side=16, channels=8, blocks=1, units=5, layers=2, dropout=0.4
    )
    network = build(config)

    def stem(layer, bins):
        grid = grid_of(batch, bins)
        signed = grid[:, :, 1] - grid[:, :, 0]  # rising events count 1, falling ones -1
        volume = normed(layer.norm, F.conv3d(signed[:, None], layer.convolution.weight, None, (1, 2, 2), (2, 3, 3)))
        return torch.stack([F.max_pool2d(frame, 3, 2, 1) for frame in volume.relu().unbind(2)], dim=1)

    def meet(layer, slow, fast):
        """A convolution over 2 b - 1 frames with stride b, where b is the ratio of the rates."""
        assert layer.slower.weight.shape[2:] == (3, 1, 1)
        brought = []
        for moment in range(3):
            total: Any = 0
            for step in (-1, 0, 1):
                if 0 <= 2 * moment + step < 6:
                    total = total + F.conv2d(fast[:, 2 * moment + step], layer.slower.weight[:, :, step + 1])
            brought.append(normed(layer.slower_norm, total).relu())
        out = []
        for own, other in zip(slow.unbind(1), brought, strict=True):
            fused = normed(layer.fuse_norm, F.conv2d(torch.cat([own, other], 1), layer.fuse.weight)).relu()
            whole = layer.whole(fused.mean(dim=(2, 3)))[:, :, None, None]
            gate = (F.conv2d(fused, layer.near.weight, layer.near.bias) + whole).sigmoid()
            out.append(own + gate * fused)
        return torch.stack(out, 1), torch.stack(brought, 1)

    slow, fast = stem(network.slow_stem, 3), stem(network.fast_stem, 6)
    assert (slow.shape[2], fast.shape[2]) == (8, 2), "a quarter of the channels"
    slow, _ = meet(network.meet[0], slow, fast)
    for number in range(4):
        slow = torch.stack([residual(network.slow[number][0], frame) for frame in slow.unbind(1)], dim=1)
        fast = torch.stack([residual(network.fast[number][0], frame) for frame in fast.unbind(1)], dim=1)
        assert (slow.shape[2], fast.shape[2]) == (8 * 2**number, 2 * 2**number)
        slow, brought = meet(network.meet[number + 1], slow, fast)
    features = torch.cat([slow.mean(dim=(3, 4)), brought.mean(dim=(3, 4))], dim=2)
    first, second = network.gru
    assert first.bidirectional
    assert second.bidirectional
    moments = second(first(features)[0])[0]
    assert_close(network(batch), network.head(moments).mean(dim=1))
    drawn = torch.Generator().manual_seed(0)
    moments = second(drop(first(features)[0], 0.4, drawn))[0]
    assert_close(network(batch, torch.Generator().manual_seed(0)), network.head(drop(moments, 0.5, drawn)).mean(dim=1))


def convolutions_of_egru(network, frames, layout):
    """11 x 11 with stride 4, 5 x 5, then 3 x 3; 3 x 3 max pooling of stride 2 after the first four; small: ours."""
    frames_network = list(network.frames)
    if layout == "published":
        shapes = [(64, 1, 11, 11), (192, 64, 5, 5), (384, 192, 3, 3), (256, 384, 3, 3), (256, 256, 3, 3)]
        layers = [layer for layer in frames_network if isinstance(layer, nn.Conv2d)]
        assert [tuple(layer.weight.shape) for layer in layers] == shapes
        for number, (layer, stride, padding) in enumerate(zip(layers, (4, 1, 1, 1, 1), (2, 2, 1, 1, 1), strict=True)):
            frames = F.conv2d(frames, layer.weight, layer.bias, stride, padding).relu()
            frames = F.max_pool2d(frames, 3, 2, ceil_mode=True) if number < 4 else frames
        return F.adaptive_avg_pool2d(frames, 1).flatten(1)
    for number, wide in enumerate((16, 32, 64)):
        convolution, norm = frames_network[3 * number : 3 * number + 2]
        frames = normed(norm, F.conv2d(frames, convolution.weight, None, 2, 1)).relu()
        assert frames.shape[1] == wide
    return F.adaptive_avg_pool2d(frames, 4).flatten(1)


@pytest.mark.parametrize(("layout", "side"), [("small", 16), ("published", 67)])
@torch.no_grad()
def test_egru_sees_frames_of_one_channel_and_answers_from_fading_traces(layout, side):
    sensor = Sensor(side, side)
    batch = EventBatch.pad([between_pixels(400, sensor=sensor), between_pixels(150, seed=1, sensor=sensor)])
    config = SparseGruConfig(
        sensor=sensor, classes=3, bins=4, side=side, layout=layout, features=6, units=5, dropout=0.3
    )
    network = build(config)
    network.cell.threshold.copy_(torch.tensor([0.05, 0.08, 0.1, 0.15, 0.2]))
    network.cell.inputs.weight.mul_(0.3)  # gates of 0 and 1 would hide mistakes
    frames = (1 + frames_of(batch, 4, "bilinear").mean(dim=2, keepdim=True)).log()
    seen = torch.stack(
        [network.reduce(convolutions_of_egru(network, frames[:, bin], layout)).relu() for bin in range(4)]
    )
    answers = []
    for generator in (None, 7):
        given = seen
        if generator is not None:
            given = drop(seen.transpose(0, 1), 0.3, torch.Generator().manual_seed(7)).transpose(0, 1)
        heard = network.cell(given)
        trace, logits = 0, 0
        for step in heard.sent:
            trace = 0.9 * trace + 0.1 * step
            logits = logits + network.head(trace) / 4
        draws = [None if generator is None else torch.Generator().manual_seed(generator) for _ in range(2)]
        torch.testing.assert_close(network(batch, draws[0]), logits, atol=2e-5, rtol=2e-5)
        answer, penalty = network.learn(batch, draws[1])
        torch.testing.assert_close(answer, logits, atol=2e-5, rtol=2e-5)
        activity = (heard.sent != 0).double().mean()
        assert 0.05 < activity < 0.95
        expected = 0.01 * ((activity - 0.05) ** 2 + (heard.above + 0.05).mean())
        torch.testing.assert_close(penalty, expected, atol=1e-6, rtol=1e-4)
        answers.append(answer)
    assert (answers[0][0] - answers[0][1]).abs().max() > 0.01, "recordings have answers of their own"
    assert not torch.allclose(*answers), "features are dropped"


def test_thresholds_of_egru_begin_as_draws_of_a_beta_distribution():
    torch.manual_seed(0)
    fresh = SparseUnits(3, 4000).threshold.detach()
    assert fresh.min() >= 0
    assert fresh.max() <= 1
    assert float(fresh.mean()) == pytest.approx(1 / 4, abs=0.01)
    assert float(fresh.var()) == pytest.approx(3 / (16 * 5), abs=0.003)
