"""Sparse layers of compared networks against loops over events and edges, written out."""

from typing import Any

import torch
from conftest import SMALL, make_recording, randomise

from event2vec import EventBatch, build_model
from event2vec.baselines.config import FarseCnnConfig
from event2vec.baselines.farse_cnn import FarseCnn, Sparse, SparseConvolution
from event2vec.baselines.points import Graph, connect, farthest, nearest, positions
from event2vec.baselines.rg_cnn import SplineConvolution, pool


def sparse_entries() -> Sparse:
    """Some entries of two recordings on a grid of 4 x 4 with 6 moments."""
    generator = torch.Generator().manual_seed(0)
    key = torch.randperm(2 * 16 * 6, generator=generator)[:40].sort().values
    return Sparse(torch.randn(40, 3, generator=generator), key, rows=2, side=4, moments=6)


def test_a_sparse_convolution_steps_each_site_through_its_neighbours_events():
    sparse, layer = sparse_entries(), randomise(SparseConvolution(3, 5))
    found = layer(sparse)
    entries = {
        (key // 6, key % 6): features for key, features in zip(sparse.key.tolist(), sparse.features, strict=True)
    }
    lstm: Any = layer.shared.lstm
    expected = {}
    for site in {site for site, _ in entries}:
        state = torch.zeros(5), torch.zeros(5)
        for moment in range(6):
            inputs, heard = torch.zeros(5), False
            for down in (-1, 0, 1):
                for across in (-1, 0, 1):
                    y, x = site // 4 % 4 - down, site % 4 - across
                    source = (site // 16 * 4 + y) * 4 + x, moment
                    if 0 <= y < 4 and 0 <= x < 4 and source in entries:
                        inputs = inputs + entries[source] @ layer.kernel[3 * (down + 1) + across + 1]
                        heard = True
            if heard:
                gates = lstm.weight_ih_l0 @ inputs + lstm.bias_ih_l0 + lstm.weight_hh_l0 @ state[0] + lstm.bias_hh_l0
                i, f, g, o = gates.chunk(4)
                cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
                state = o.sigmoid() * cell.tanh(), cell
            if (site, moment) in entries:
                expected[site * 6 + moment] = state[0]
    assert found.key.tolist() == sorted(expected)
    torch.testing.assert_close(found.features, torch.stack([expected[key] for key in sorted(expected)]))


def test_sparse_pooling_takes_the_largest_of_a_cell_at_a_moment():
    sparse = sparse_entries()
    pooled = sparse.pool(2, "amax")
    for key, features in zip(pooled.key.tolist(), pooled.features, strict=True):
        row, y, x, moment = key // 24, key // 12 % 2, key // 6 % 2, key % 6
        inside = [
            number
            for number, old in enumerate(sparse.key.tolist())
            if (old // 96, old // 24 % 4 // 2, old // 6 % 4 // 2, old % 6) == (row, y, x, moment)
        ]
        assert torch.equal(features, sparse.features[inside].amax(dim=0))
    thinned = sparse.thin()
    for site in sparse.site.unique().tolist():
        keys = sparse.key[sparse.site == site].tolist()
        assert thinned.key[thinned.site == site].tolist() == [*keys[1::2], *([keys[-1]] if len(keys) % 2 else [])]


def test_an_event_carries_its_polarity_and_the_time_since_its_pixels_last():
    events = make_recording(200)
    network = build_model(FarseCnnConfig(sensor=SMALL, side=34, moments=300))
    assert isinstance(network, FarseCnn)
    sparse = network._sites(EventBatch.pad([events]))
    seen: dict[tuple[int, int], int] = {}
    delays = []
    for x, y, t in zip(events.x.tolist(), events.y.tolist(), events.t.tolist(), strict=True):
        place = int(x), round(y * 33 / 29)
        delays.append(min((t - seen[place]) / 100_000, 1.0) if place in seen else 1.0)
        seen[place] = t
    assert len(sparse.key) == 200
    torch.testing.assert_close(sparse.features[:, 0].sort().values, torch.tensor(delays).sort().values)
    assert sparse.features[:, 1].sum() == 2 * events.p.sum() - 200


def test_neighbours_and_far_points_are_those_of_a_loop():
    batch = EventBatch.pad([make_recording(40), make_recording(25, seed=1)])
    points = positions(batch, 32, 16)
    graph = connect(points, points, batch.valid, 5, 6.0)
    for row, start in ((0, 0), (1, 40)):
        own = points[row, : 40 if row == 0 else 25]
        away = torch.cdist(own, own)
        for node in range(len(own)):
            order = [other for other in away[node].argsort().tolist() if other != node][:5]
            expected = {start + other for other in order if away[node, other] <= 6}
            assert set(graph.source[graph.target == start + node].tolist()) == expected
    chosen = farthest(points, batch.valid, 4)[1].tolist()
    own, expected_chosen = points[1, :25], [0]
    while len(expected_chosen) < 4:
        expected_chosen.append(int(torch.cdist(own, own[expected_chosen]).amin(dim=1).argmax()))
    assert chosen == expected_chosen
    distance, _ = nearest(points, points, batch.valid, 30)
    assert (distance[1, :25, 25:] > 1e8).all(), "the second recording has only 25 events"


def test_a_spline_convolution_is_bilinear_between_its_knots():
    layer = randomise(SplineConvolution(2, 3, 5))
    position = torch.tensor([[0.0, 0.0, 0.0], [1.0, -2.0, 5.0], [0.3, 0.5, 1.0]])
    features = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    graph = Graph(features, position, torch.zeros(3).long(), torch.tensor([1, 2]), torch.tensor([0, 0]))
    kernel = layer.weight.view(5, 5, 2, 3)
    total = features[1] @ kernel[3, 0]  # 1 and -2 of at most 2 to each side: knots 3 and 0 of 0 to 4
    for column, share_x in ((2, 0.7), (3, 0.3)):
        for line, share_y in ((2, 0.5), (3, 0.5)):
            total = total + share_x * share_y * features[2] @ kernel[column, line]
    expected = total / 2 + layer.itself(features[0])
    torch.testing.assert_close(layer(graph, 2.0)[0], expected)
    torch.testing.assert_close(layer(graph, 2.0)[1], layer.itself(features[1]), msg="a node without neighbours")


def test_graph_pooling_merges_the_nodes_of_a_cell_and_their_edges():
    position = torch.tensor([[0.2, 0.2, 0.0], [0.8, 0.4, 2.0], [3.0, 0.0, 1.0], [0.1, 0.1, 0.0]])
    features = torch.tensor([[1.0, 5.0], [2.0, 4.0], [3.0, 3.0], [9.0, 9.0]])
    row, source, target = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0])
    pooled = pool(Graph(features, position, row, source, target), 2.0, 2)
    assert pooled.features.tolist() == [[2.0, 5.0], [3.0, 3.0], [9.0, 9.0]]
    torch.testing.assert_close(pooled.position[0], torch.tensor([0.5, 0.3, 1.0]))
    assert pooled.row.tolist() == [0, 0, 1]
    assert sorted(zip(pooled.source.tolist(), pooled.target.tolist(), strict=True)) == [(0, 1), (1, 0)]
