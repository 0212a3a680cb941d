"""Tokens: each equation against its plain form, and what must not change them."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from conftest import SMALL, randomise

from event2vec import EventBatch, Events, Sensor
from event2vec.model.coordinates import normalised_coordinates, normalised_intervals
from event2vec.model.embedding import (
    SPATIAL,
    TEMPORAL,
    ConvolutionalTemporal,
    Event2Vec,
    LookupSpatial,
    ParametricSpatial,
    SineTemporal,
    convolve,
    every_pixel,
    pixel_rows,
)

PAIRS = [(spatial, temporal) for spatial in SPATIAL for temporal in TEMPORAL]


@pytest.fixture(params=PAIRS, ids=lambda pair: "-".join(pair))
def embed(request):
    spatial, temporal = request.param
    return randomise(Event2Vec(SPATIAL[spatial](16, SMALL), TEMPORAL[temporal](16)))


@pytest.mark.parametrize("longer", [51, 80, 500])
def test_padding_does_not_change_tokens(embed, make_events, longer):
    recording = make_events(50)
    alone = embed(EventBatch.pad([recording]))
    beside = embed(EventBatch.pad([recording, make_events(longer, seed=1)]))
    torch.testing.assert_close(beside[:1, :50], alone, atol=1e-6, rtol=1e-6)
    assert not beside[0, 50:].any()


def test_the_clock_does_not_change_tokens(embed, make_events):
    batch = EventBatch.pad([make_events(50), make_events(30, seed=1)])
    late = replace(batch, t=(batch.t + 10**12) * batch.valid)
    assert torch.equal(embed(late), embed(batch))


def test_a_slower_recording_has_the_same_tokens(embed, make_events):
    """Intervals are shares of the recording, so speed alone does not show (Sec. 3.3)."""
    batch = EventBatch.pad([make_events(50)])
    torch.testing.assert_close(embed(replace(batch, t=batch.t * 7)), embed(batch), atol=1e-5, rtol=1e-4)


def test_the_edges_give_finite_tokens(embed, make_events):
    instant = replace(make_events(5), t=torch.zeros(5, dtype=torch.int64))
    batch = EventBatch.pad([make_events(0), make_events(1), instant, make_events(9)])
    assert embed(batch).isfinite().all()
    assert embed(EventBatch.pad([make_events(0)])).shape == (1, 0, 16)


def test_tokens_are_equation_7(embed, make_events):
    batch = EventBatch.pad([make_events(40)])
    batch = replace(batch, rho=1 + torch.arange(40.0)[None])
    parts = embed.parts(batch)
    expected = (torch.log(batch.rho) + 1)[..., None] * (embed.spatial(batch) + embed.temporal(batch))
    torch.testing.assert_close(embed(batch), expected)
    torch.testing.assert_close(parts.separate(parts.fuse()), parts.where, atol=1e-5, rtol=1e-5)


def test_linear_intensity_multiplies_by_rho_and_is_taken_out_again(make_events):
    """As the authors' released code does, where Eq. 7 takes ln rho + 1."""
    embed = randomise(Event2Vec(ParametricSpatial(16, SMALL), ConvolutionalTemporal(16), "linear"))
    batch = EventBatch.pad([make_events(40), make_events(30, seed=1)])
    batch = replace(batch, rho=(1 + torch.arange(40.0)) * batch.valid)
    expected = batch.rho[..., None] * (embed.spatial(batch) + embed.temporal(batch))
    torch.testing.assert_close(embed(batch), expected)
    parts = embed.parts(batch)
    found = parts.separate(parts.fuse())
    torch.testing.assert_close(found[batch.valid], parts.where[batch.valid], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(embed.with_table()(batch), embed(batch), atol=1e-4, rtol=1e-5)
    single = replace(batch, rho=batch.valid.float())
    plain = Event2Vec(embed.spatial, embed.temporal)
    assert torch.equal(embed(single), plain(single)), "for single events both are the same"


def test_coordinates_run_from_minus_one_to_one():
    corners = Events.from_arrays([0, 33, 16.5], [29, 0, 14.5], [0, 1, 2], [0, 1, 1], sensor=SMALL)
    found = normalised_coordinates(EventBatch.pad([corners]))
    assert found.tolist() == [[[-1, 1, -1], [1, -1, 1], [0, 0, 1]]]
    dot = Events.from_arrays([0], [0], [0], [0], sensor=Sensor(1, 1))
    assert normalised_coordinates(EventBatch.pad([dot])).tolist() == [[[-1, -1, -1]]]


def test_intervals_are_shares_of_the_recording():
    events = Events.from_arrays([0] * 4, [0] * 4, [5, 10, 10, 25], [1] * 4, sensor=SMALL)
    assert normalised_intervals(EventBatch.pad([events])).tolist() == [[0, 0.25, 0, 0.75]]


@pytest.mark.parametrize("dim", [16, 64])  # only the second is compiled
def test_the_temporal_embedding_is_that_of_stock_convolutions(make_events, dim):
    network = randomise(ConvolutionalTemporal(dim))
    batch = EventBatch.pad([make_events(300)])
    signal = normalised_intervals(batch)[:, None]
    for number, (kernel, norm) in enumerate(zip(network.kernels, network.norms, strict=True)):
        signal = F.relu(signal) if number else signal
        signal = F.conv1d(signal, kernel[:, None], padding=1, groups=signal.shape[1])
        signal = norm(signal.mT).mT
    torch.testing.assert_close(network(batch), signal.mT, atol=1e-5, rtol=1e-5)


def test_a_convolution_has_the_gradients_of_the_stock_one():
    signal = torch.randn(2, 9, 4, dtype=torch.float64, requires_grad=True)
    kernel = torch.randn(8, 3, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(2, 9, 8, dtype=torch.float64)
    stock = F.conv1d(signal.mT, kernel[:, None], padding=1, groups=4).mT
    ours = torch.autograd.grad((convolve(signal, kernel) * upstream).sum(), (signal, kernel))
    for one, other in zip(ours, torch.autograd.grad((stock * upstream).sum(), (signal, kernel)), strict=True):
        torch.testing.assert_close(one, other)


def test_sine_waves_have_the_usual_lengths(make_events):
    network = SineTemporal(8)
    assert network.scale.item() == 1000
    events = Events.from_arrays([0] * 3, [0] * 3, [0, 500, 1000], [1] * 3, sensor=SMALL)
    waves = network(EventBatch.pad([events]))[0]
    expected = torch.tensor([wave(500 * 10000 ** (-j / 8)) for j in (0, 2, 4, 6) for wave in (SIN, COS)])
    torch.testing.assert_close(waves[1], expected, atol=1e-4, rtol=0)


SIN, COS = (lambda x: torch.tensor(x).sin(), lambda x: torch.tensor(x).cos())


def test_a_table_equals_the_network_it_was_made_from(make_events):
    network = randomise(ParametricSpatial(16, SMALL))
    embed = Event2Vec(network, ConvolutionalTemporal(16)).eval()
    quick = embed.with_table()
    batch = EventBatch.pad([make_events(300), make_events(50, seed=1)])
    torch.testing.assert_close(quick(batch), embed(batch), atol=1e-6, rtol=0)
    between = replace(batch, x=batch.x * 0.9, y=batch.y * 0.9)
    assert torch.equal(quick(between), embed(between)), "fractions go through the network"
    assert quick.with_table() is quick
    assert not any("rows" in name for name, _ in quick.named_parameters()), "a table is not learnt"


def test_rows_of_a_table_follow_equation_2():
    network = LookupSpatial(4, SMALL)
    events = Events.from_arrays([3, 3.4], [2, 1.6], [0, 1], [1, 0], sensor=SMALL)
    batch = EventBatch.pad([events])
    rows = pixel_rows(batch)
    assert rows.tolist() == [[30 * 34 + 2 * 34 + 3, 2 * 34 + 3]]
    assert torch.equal(network(batch), network.table()[rows])
    assert torch.equal(pixel_rows(every_pixel(SMALL))[0], torch.arange(2 * 34 * 30))


def test_near_places_have_near_vectors():
    """The neighbourhood semantics that the network has by its shape and a table has not (Eq. 3, 6)."""
    similar = {}
    for kind in (ParametricSpatial, LookupSpatial):
        table = randomise(kind(32, SMALL)).table().view(2, 30, 34, 32)
        similar[kind] = F.cosine_similarity(table[:, :, 1:], table[:, :, :-1], dim=-1).mean()
    assert similar[ParametricSpatial] > 0.95
    assert abs(similar[LookupSpatial]) < 0.05
