"""Compared networks on points and graphs against their descriptions, written out node by node and patch by patch."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from written_out import SENSOR, assert_close, between_pixels, build, frames_of, normed, rows_of

from event2vec import EventBatch, Events, Sensor
from event2vec.baselines.config import EfvConfig, EventMaeConfig, EventNetConfig, FarseCnnConfig, RgCnnConfig
from event2vec.baselines.efv import GaussianConvolution, Images, Voxels
from event2vec.baselines.event_mae import Patches, cut_patches, inliers
from event2vec.baselines.layers import drop
from event2vec.baselines.points import PADDING, connect, farthest, nearest, positions
from event2vec.baselines.rg_cnn import pool
from event2vec.model.masked import build_masked_model


@pytest.fixture(scope="module")
def batch():
    return EventBatch.pad([between_pixels(80), between_pixels(30, seed=1)])


# ---- points


def test_positions_go_from_corner_to_corner_and_from_the_first_event_to_the_last():
    corners = Events.from_arrays([0, 40, 20], [0, 10, 5], [7, 1007, 507], [0, 1, 0], sensor=Sensor(41, 11))
    expected = [[0, 0, 0], [7.5, 7.5, 2.5], [15, 15, 5]]
    torch.testing.assert_close(positions(EventBatch.pad([corners]), 16, 5.0)[0], torch.tensor(expected).float())
    pixel = Events.from_arrays([0, 0], [0, 0], [3, 3], [0, 1], sensor=Sensor(1, 1))
    assert not positions(EventBatch.pad([pixel]), 16, 5.0).any(), "one pixel at one instant"


def test_the_nearest_are_real_and_where_they_are_too_few_the_distance_says_so():
    points = torch.tensor([[[0.0], [1.0], [3.0], [0.1]]])
    valid = torch.tensor([[True, True, True, False]])
    distance, place = nearest(points[:, :1], points, valid, 6)
    assert distance[0, 0].tolist() == [0, 1, 9, PADDING, PADDING, PADDING]
    assert place[0, 0, :3].tolist() == [0, 1, 2]
    assert place.max() <= 3, "padding has a place that can be looked up"


def test_far_points_are_the_first_then_always_the_farthest_and_never_padding():
    points = torch.tensor([[[5.0], [0.0], [1.0], [9.0], [6.0], [100.0]]])
    allowed = torch.tensor([[False, True, True, True, True, False]])
    assert farthest(points, allowed, 4)[0].tolist() == [1, 3, 4, 2]
    assert farthest(points, allowed, 6)[0, :4].tolist() == [1, 3, 4, 2]
    assert set(farthest(points, allowed, 9)[0].tolist()) == {1, 2, 3, 4}, "few points are chosen again"


def test_edges_are_within_the_radius_not_to_itself_and_never_to_padding():
    points = torch.tensor([[[0.0], [3.0], [3.5], [0.0]], [[0.0], [1.0], [0.0], [0.0]]])
    valid = torch.tensor([[True, True, True, False], [True, True, False, False]])
    graph = connect(points, points, valid, neighbours=3, radius=3.0)
    assert graph.row.tolist() == [0, 0, 0, 1, 1]
    edges = sorted(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    assert edges == [(0, 1), (1, 0), (1, 2), (2, 1), (3, 4), (4, 3)], "3.0 is within 3.0, 3.5 is not"
    assert graph.degree()[:, 0].tolist() == [1, 2, 1, 1, 1]
    alone = connect(points[:1, :1], points[:1, :1], valid[:1, :1], neighbours=3, radius=3.0)
    assert alone.degree()[:, 0].tolist() == [1], "never a division by 0"
    few = connect(points, points, valid, neighbours=1, radius=9.0)
    assert torch.bincount(few.target).max() == 1, "the limit counts others, not itself"


# ---- RG-CNN


def spline(layer, features, position, edges, reach):
    """Over knots from -reach to reach in x and y, bilinear between them; the mean over neighbours, and the node."""
    knots = layer.kernel
    kernel = layer.weight.view(knots, knots, features.shape[1], -1)
    out = [layer.itself(node) for node in features]
    for node in range(len(features)):
        sources = [source for source, target in edges if target == node]
        for source in sources:
            away = (position[source] - position[node])[:2] / (2 * reach) + 0.5
            total = 0
            for column, line in itertools.product(range(knots), repeat=2):
                share = 1.0
                for axis, knot in ((0, column), (1, line)):
                    place = float(away[axis].clamp(0, 1)) * (knots - 1)
                    share *= max(1 - abs(place - knot), 0) if knots > 1 else 1.0
                total = total + share * features[source] @ kernel[column, line]
            out[node] = out[node] + total / len(sources)
    return torch.stack(out)


@torch.no_grad()
def test_rg_cnn_is_residual_spline_convolutions_with_pooling_by_cells(batch):
    config = RgCnnConfig(sensor=SENSOR, classes=3, side=16, channels=2, neighbours=4, hidden=6, dropout=0.5)
    network = build(config)
    hidden = torch.zeros(2, 6 * 16, dtype=torch.float64)
    everything = []
    for row, events in enumerate(rows_of(batch)):
        position = torch.tensor([[x, y, 16 * elapsed] for x, y, elapsed, *_ in events], dtype=torch.float64)
        features = torch.tensor([[2 * p - 1] for *_, p, _ in events], dtype=torch.float64)
        away = torch.cdist(position, position)
        edges = []
        for node in range(len(events)):
            near = [other for other in away[node].argsort().tolist() if other != node][:4]
            edges += [(other, node) for other in near if away[node, other] <= 3]
        everything.append((row, features, position, edges))
    graphs = []
    for row, features, position, edges in everything:
        features = F.elu(normed(network.first_norm, spline(network.first, features, position, edges, 3.0)))
        for block, cells, wide in zip(network.blocks, (16, 8), (4, 6), strict=True):
            features, position, edges = pooled(features, position, edges, 16 / cells, cells)
            reach = 2 * 16 / cells
            inside = F.elu(normed(block.norms[0], spline(block.first, features, position, edges, reach)))
            inside = normed(block.norms[1], spline(block.second, inside, position, edges, reach))
            past = normed(block.norms[2], spline(block.shortcut, features, position, edges, reach))
            features = F.elu(inside + past)
            assert features.shape[1] == wide
        graphs.append(features)
        grid = torch.full((16, 6), -torch.inf, dtype=torch.float64)
        for place, own in zip((position[:, :2] / 4).long(), features, strict=True):
            slot = int(place[1] * 4 + place[0])
            grid[slot] = torch.maximum(grid[slot], own)
        hidden[row] = grid.masked_fill(grid == -torch.inf, 0).flatten()
    seen = F.elu(network.hidden(hidden))
    assert_close(network(batch), network.head(seen))
    drawn = drop(seen, 0.5, torch.Generator().manual_seed(2))
    assert_close(network(batch, torch.Generator().manual_seed(2)), network.head(drawn))


def pooled(features, position, edges, size, cells):
    """Nodes of a cell become one: the largest features, the mean position, edges between cells once."""
    cell = [(min(int(place[1] / size), cells - 1), min(int(place[0] / size), cells - 1)) for place in position.tolist()]
    order = sorted(set(cell))
    members = [[node for node, own in enumerate(cell) if own == each] for each in order]
    number = {node: place for place, nodes in enumerate(members) for node in nodes}
    joined = sorted({(number[a], number[b]) for a, b in edges if number[a] != number[b]})
    return (
        torch.stack([features[nodes].amax(dim=0) for nodes in members]),
        torch.stack([position[nodes].mean(dim=0) for nodes in members]),
        joined,
    )


def test_a_graph_without_nodes_can_be_pooled():
    nothing = connect(torch.zeros(1, 3, 2), torch.zeros(1, 3, 3), torch.zeros(1, 3, dtype=torch.bool), 2, 3.0)
    assert len(pool(nothing, 4.0, 4).row) == 0


# ---- EFV


@pytest.mark.parametrize("layout", ["small", "published"])
@torch.no_grad()
def test_efv_cuts_images_into_patches_of_what_convolutions_see(layout):
    torch.manual_seed(0)
    images: Any = Images(layout, 16).eval()
    frames = torch.rand(2, 3, 2, 64, 64)
    seen = images.stem(frames.flatten(0, 1))
    seen = F.max_pool2d(seen, 3, 2, 1) if layout == "published" else seen
    seen = images.stages(seen)
    if layout == "published":
        assert seen.shape == (6, 512, 2, 2)
        seen = F.pad(seen, (0, 2, 0, 2))
        assert [len(stage) for stage in images.stages] == [2, 2, 2, 2]
    else:
        assert seen.shape == (6, 16, 8, 8)
    size = {"small": 2, "published": 4}[layout]
    tokens = []
    for top, left in itertools.product(range(0, seen.shape[2], size), range(0, seen.shape[3], size)):
        patch = seen[:, :, top : top + size, left : left + size]
        tokens.append(torch.einsum("nchw,dchw->nd", patch, images.patch.weight) + images.patch.bias)
    expected = torch.stack(tokens, dim=1).view(2, -1, 16)
    torch.testing.assert_close(images(frames), expected, atol=1e-5, rtol=1e-4)
    assert expected.shape[1] == 3 * images.tokens(64)


@pytest.mark.parametrize("layout", ["small", "published"])
@pytest.mark.parametrize("side", [8, 20, 33, 160])
def test_efv_knows_how_many_tokens_its_images_give(layout, side):
    with torch.device("meta"):
        images = Images(layout, 16)
        assert images(torch.zeros(1, 1, 2, side, side)).shape[1] == images.tokens(side)


@torch.no_grad()
def test_efv_keeps_the_fullest_voxels_and_their_first_eight_polarities(batch):
    network = build(EfvConfig(sensor=SENSOR, classes=3, cells=3, moments=2, voxels=5))
    features, points, real = network._voxels(batch)
    for row, events in enumerate(rows_of(batch)):
        held: dict[tuple[int, ...], list[float]] = {}
        for x, y, elapsed, p, _ in events:
            voxel = int(x * 3 / 16), int(y * 3 / 16), min(int(elapsed * 2), 1)
            held.setdefault(voxel, []).append(2 * p - 1)
        most = sorted(map(len, held.values()), reverse=True)[:5]
        for number in range(5):
            voxel = tuple(points[row, number].long().tolist())
            assert len(held[voxel]) == most[number]
            expected = (held[voxel] + [0.0] * 8)[:8]
            assert features[row, number].tolist() == expected
    assert real.all()
    one = EventBatch.pad([Events.from_arrays([3], [4], [0], [1], sensor=SENSOR)])
    assert network._voxels(one)[2].tolist() == [[True, False, False, False, False]]


def gaussians(layer, features: Tensor, points: Tensor) -> Tensor:
    """The mean over voxels within 3, weighted by five Gaussians of the relative position; and the voxel itself."""
    out = []
    for node, own in enumerate(points):
        near = [other for other in range(len(points)) if other != node and (points[other] - own).norm() <= 3]
        mixed = torch.zeros(5, features.shape[1], dtype=features.dtype)
        for other in near:
            away = ((points[other] - own) / 3 - layer.centre) / (layer.width.abs() + 1e-3)
            mixed += (-0.5 * away.square().sum(dim=1)).exp()[:, None] * features[other] / len(near)
        out.append(mixed.flatten() @ layer.weight + layer.itself(features[node]))
    return torch.stack(out)


def transformer(block, tokens):
    """x += attention(norm x); x += feed-forward(norm x)."""
    normal = F.layer_norm(tokens, tokens.shape[-1:], block.norm1.weight, block.norm1.bias)
    q, k, v = block.project(normal).chunk(3, dim=-1)
    width = tokens.shape[-1] // block.heads
    seen = []
    for head in range(block.heads):
        own = slice(head * width, head * width + width)
        weights = (q[..., own] @ k[..., own].mT / width**0.5).softmax(dim=-1)
        seen.append(weights @ v[..., own])
    tokens = tokens + block.out(torch.cat(seen, dim=-1))
    normal = F.layer_norm(tokens, tokens.shape[-1:], block.norm2.weight, block.norm2.bias)
    wide = F.gelu(block.hidden[0](normal))
    return tokens + block.hidden[2](wide)


@torch.no_grad()
def test_efv_fuses_images_and_graph_through_bottleneck_tokens(batch):
    config = EfvConfig(
        sensor=SENSOR, classes=3, bins=2, side=16, dim=16, blocks=1, heads=2, bottleneck=3, voxels=20, cells=5,
        moments=4, channels=4, layers=2,
    )  # fmt: skip
    network = build(config)
    generator = torch.Generator().manual_seed(0)
    for part in network.modules():
        if isinstance(part, GaussianConvolution):
            part.width.uniform_(0.5, 1.5, generator=generator)  # narrow ones would magnify the rounding of float32
    tokens = network.images((1 + frames_of(batch, 2, "bilinear")).log()) + network.position
    tokens = transformer(network.blocks[0], tokens)
    held, points, real = network._voxels(batch)
    graph = []
    for row in range(2):
        features, places = held[row, real[row]], points[row, real[row]].double()
        features = F.elu(normed(network.first_norm, gaussians(network.first, features, places)))
        for layer, wide in zip(network.layers, (8, 16), strict=True):
            inside = F.elu(normed(layer.norms[0], gaussians(layer.first, features, places)))
            inside = normed(layer.norms[1], gaussians(layer.second, inside, places))
            features = F.elu(inside + normed(layer.norms[2], layer.shortcut(features)))
            assert features.shape[1] == wide
        graph.append(network.graph_token(features.mean(dim=0)))
    bottleneck = network.bottleneck.expand(2, -1, -1)
    both = transformer(network.blocks[1], torch.cat([tokens, bottleneck], dim=1))
    images, bottleneck = both[:, :-3], both[:, -3:]
    last = transformer(network.blocks[2], torch.cat([bottleneck, torch.stack(graph)[:, None]], dim=1))
    features = torch.cat([images.mean(dim=1), last[:, :3].mean(dim=1)], dim=-1)
    assert_close(network(batch), network.head[2](network.head[0](features).relu()))


def test_voxels_are_neighbours_within_three_and_padding_of_none():
    points = torch.tensor([[[0.0, 0, 0], [3, 0, 0], [2, 2, 2], [0, 0, 1]]])
    voxels = Voxels(torch.tensor([[True, True, True, False]]), points)
    assert (voxels.share[0] > 0).tolist() == [
        [False, True, False, False],
        [True, False, True, False],
        [False, True, False, False],
        [False] * 4,
    ]
    assert voxels.share[0, 1].sum() == 1
    kept = voxels.apply(lambda features: features + 1, torch.zeros(1, 4, 2))
    assert kept[0, :, 0].tolist() == [1, 1, 1, 0]


# ---- Event MAE


@torch.no_grad()
def test_event_mae_reads_patches_around_far_inliers_with_their_places_before_every_block(batch):
    config = EventMaeConfig(sensor=SENSOR, classes=3, patches=5, patch=6, dim=16, blocks=2, heads=2, widening=3)
    network = build(config)
    patches = cut_patches(batch, config)
    assert_patches(patches, batch, config)
    encoder = network.encoder
    tokens, places = point_net(encoder.patch_network, patches.events.double()), encoder.place(patches.centre.double())
    hidden = encoder.place[0](patches.centre.double())
    torch.testing.assert_close(places, encoder.place[2](F.gelu(hidden)))
    tokens = torch.cat([network.class_token.expand(2, -1, -1), tokens], dim=1)
    places = torch.cat([network.class_place.expand(2, -1, -1), places], dim=1)
    assert encoder.blocks[0].hidden[0].out_features == 3 * 16
    for block in encoder.blocks:
        tokens = transformer(block, tokens + places)
    tokens = F.layer_norm(tokens, (16,), encoder.norm.weight, encoder.norm.bias)
    features = torch.cat([tokens[:, 0], tokens[:, 1:].max(dim=1).values], dim=-1)
    assert_close(network(batch), network.head[2](network.head[0](features).relu()))


def assert_patches(patches: Patches, batch: EventBatch, config: EventMaeConfig) -> None:
    """Axes from -1 to 1; centres are the first inlier and then the farthest ones; the nearest events around each."""
    for row, events in enumerate(rows_of(batch)):
        points = torch.tensor([[2 * x / 15 - 1, 2 * y / 15 - 1, 2 * elapsed - 1] for x, y, elapsed, *_ in events])
        polarity = torch.tensor([2 * p - 1 for *_, p, _ in events])
        allowed = inliers(points[None], torch.ones(1, len(points), dtype=torch.bool))[0].nonzero()[:, 0]
        chosen = [int(allowed[0])]
        while len(chosen) < config.patches:
            away = torch.cdist(points[allowed], points[chosen]).amin(dim=1)
            chosen.append(int(allowed[away.argmax()]))
        torch.testing.assert_close(patches.centre[row], points[chosen], atol=1e-5, rtol=1e-5)
        for number, centre in enumerate(chosen):
            near = (points - points[centre]).norm(dim=1).argsort()[: config.patch]
            own = patches.events[row, number]
            distances = own[:, :3].norm(dim=1)
            torch.testing.assert_close(distances, (points[near] - points[centre]).norm(dim=1), atol=1e-5, rtol=1e-4)
            found = {tuple(event) for event in own.mul(1e3).round().int().tolist()}
            expected = torch.cat([points[near] - points[centre], polarity[near, None]], dim=1)
            difference = (own[None] - expected[:, None]).abs().amax(dim=-1).amin(dim=0)
            assert difference.max() < 1e-4, found


def point_net(network, events):
    """A layer, norm, ReLU and layer; the same with the maximum over the patch beside it; the maximum over the patch."""

    def layers(pair, norm, points):
        flat = normed(norm, pair[0](points.flatten(0, 2))).relu()
        return pair[1](flat).unflatten(0, points.shape[:3])

    points = layers(network.first, network.norms[0], events)
    largest = points.max(dim=2, keepdim=True).values.expand_as(points)
    return layers(network.second, network.norms[1], torch.cat([largest, points], dim=-1)).max(dim=2).values


def test_points_off_a_plane_are_no_inliers():
    """Three quarters may be centres: here nearly all of a plane, and few of those that lie above it."""
    generator = torch.Generator().manual_seed(0)
    plane = torch.rand(60, 3, generator=generator) * torch.tensor([2.0, 2.0, 0.001])
    noise = torch.rand(20, 3, generator=generator) * torch.tensor([2.0, 2.0, 1.0]) + torch.tensor([0.0, 0.0, 0.2])
    points = torch.cat([plane, noise, torch.zeros(10, 3)])[None]
    valid = torch.arange(90)[None] < 80
    chosen = inliers(points, valid)[0]
    assert chosen.sum() == 60
    assert chosen[:60].sum() >= 54
    assert not chosen[80:].any(), "padding"
    for count in range(1, 9):
        few = inliers(points[:, :count], valid[:, :count])
        assert few.sum() == -(-count * 3 // 4), "three quarters, rounded up"


@torch.no_grad()
def test_a_patch_with_too_few_events_repeats_its_nearest():
    one = EventBatch.pad([Events.from_arrays([3], [4], [0], [1], sensor=SENSOR)])
    patches = cut_patches(one, EventMaeConfig(sensor=SENSOR, patches=2, patch=3, dim=8, heads=2))
    assert patches.events.tolist() == [[[[0, 0, 0, 1]] * 3] * 2]
    torch.testing.assert_close(patches.centre, patches.centre[:, :1].expand(-1, 2, -1))


@torch.no_grad()
def test_the_masked_event_mae_decodes_mask_tokens_at_their_places(batch):
    config = EventMaeConfig(sensor=SENSOR, patches=4, patch=3, dim=16, blocks=4, heads=2)
    model: Any = build_masked_model(config).double().eval()
    assert len(model.decoder.blocks) == 2, "half as many blocks"
    small: Any = build_masked_model(replace(config, blocks=1))
    assert len(small.decoder.blocks) == 1, "at least one"
    torch.nn.init.normal_(model.mask_token)
    patches = cut_patches(batch, config)
    hidden = torch.tensor([[True, False, True, False], [False, False, True, True]])
    answers = []
    for row in range(2):
        shown = ~hidden[row]
        centre, events = patches.centre[row : row + 1, shown].double(), patches.events[row : row + 1, shown].double()
        seen = model.encoder(point_net(model.encoder.patch_network, events), model.encoder.place(centre))
        tokens = model.mask_token.expand(1, 4, -1).clone()
        tokens[0, shown] = seen[0]
        places = model.encoder.place(patches.centre[row : row + 1].double())
        decoded = model.decoder(tokens, places)[0, hidden[row]]
        answers.append(model.answer(decoded).view(-1, 3, 3))
    torch.testing.assert_close(model(patches, hidden), torch.cat(answers), atol=1e-5, rtol=1e-5)


# ---- EventNet and FARSE-CNN


@torch.no_grad()
def test_eventnet_is_layers_with_norms_and_tanh_on_each_event(batch):
    network = build(EventNetConfig(sensor=SENSOR, classes=3, features=6, hidden=8, hidden_layers=2, tau=0.1))
    points = torch.tensor(
        [[2 * x / 15 - 1, 2 * y / 15 - 1, 2 * p - 1] for row in rows_of(batch) for x, y, _, p, _ in row]
    )
    points = points.double()
    for number, (layer, norm) in enumerate(zip(network.points.layers, network.points.norms, strict=True)):
        points = normed(norm, layer(points))
        points = points.relu() if number < 4 else points.tanh()
    torch.testing.assert_close(network.points(batch), points, atol=1e-5, rtol=1e-5)
    assert [layer.out_features for layer in network.hidden] == [8, 4]


@pytest.mark.parametrize("tau", [0.0, 0.1])
@torch.no_grad()
def test_eventnet_forgets_events_by_their_share_of_the_time_constant(tau, batch):
    network = build(EventNetConfig(sensor=SENSOR, classes=3, features=6, hidden=8, hidden_layers=2, tau=tau))
    features = []
    of_all = network.points(batch).split(batch.valid.sum(dim=1).tolist())
    for row, (count, z) in enumerate(zip((80, 30), of_all, strict=True)):
        t = batch.t[row, :count].double()
        age = (t[-1] - t) / (1e6 * tau if tau else t[-1] - t[0])
        modulus = (z.abs() - age[:, None]).clamp(min=0)
        phase = -2 * torch.pi * age[:, None] + torch.pi * (z < 0)
        code = torch.polar(modulus, phase)
        largest = code.gather(0, code.abs().argmax(dim=0, keepdim=True))[0]
        features.append(torch.cat([largest.real, largest.imag]))
    hidden = torch.stack(features)
    for layer in network.hidden:
        hidden = layer(hidden).relu()
    assert_close(network(batch), network.head(hidden))


@torch.no_grad()
def test_farse_cnn_pools_and_thins_between_pairs_and_answers_at_quarters(batch):
    network = build(FarseCnnConfig(sensor=SENSOR, classes=3, side=16, moments=6, stages=3, channels=4, features=5))
    sparse = network.first(network._sites(batch))
    sides = []
    for number, pair in enumerate(network.pairs):
        sparse = sparse.pool(sparse.side // 2, "amax").thin() if number else sparse
        sides.append(sparse.side)
        inside = pair.layers[1](pair.layers[0](sparse)).features
        past = sparse.features if number == 0 else pair.shortcut(sparse.features)
        sparse = replace(sparse, features=normed(pair.norm, inside + past))
    assert sides == [16, 8, 4], "none after the last pair"
    whole = network.last(sparse.pool(1, "mean"))
    answers = []
    for row in range(2):
        own = whole.features[whole.site == row]
        quarters = [own[-(-len(own) * quarter // 4) - 1] for quarter in (1, 2, 3, 4)]
        answers.append(torch.stack(quarters).mean(dim=0))
    assert_close(network(batch), network.head(normed(network.norm, torch.stack(answers))))


def test_farse_cnn_reads_all_events_of_a_moment_and_a_pixel_as_one():
    events = Events.from_arrays([2, 2, 2, 3], [1, 1, 1, 1], [0, 50_000, 120_000, 400_000], [1, 1, 0, 1], sensor=SENSOR)
    network = build(FarseCnnConfig(sensor=SENSOR, classes=2, side=16, moments=2, stages=1))
    sparse = network._sites(EventBatch.pad([events]))
    assert sparse.key.tolist() == [(16 + 2) * 2, (16 + 3) * 2 + 1]
    torch.testing.assert_close(sparse.features, torch.tensor([[(1 + 0.5 + 0.7) / 3, 1 / 3], [1, 1]]).double())
