"""Hidden spans: their share, their lengths, and never padding."""

import pytest
import torch

from event2vec.training.config import SpanMask
from event2vec.training.masking import draw_spans


def draw(mask, rows=400, length=1000, seed=0):
    valid = torch.ones(rows, length, dtype=torch.bool)
    return draw_spans(mask, valid, torch.Generator().manual_seed(seed))


def test_the_expected_share_is_reached():
    mask = SpanMask()
    assert mask.expected_share == pytest.approx(0.234, abs=0.001), "under 30 %: spans overlap and are cut"
    hidden = draw(mask)
    assert hidden[:, 20:].float().mean().item() == pytest.approx(mask.expected_share, abs=0.004)


def test_spans_are_geometric_and_cut():
    """With starts so rare that spans do not touch, their lengths can be read off."""
    hidden = draw(SpanMask(share=0.002), rows=10_000)
    edges = torch.diff(torch.nn.functional.pad(hidden.int(), (1, 1)), dim=1)
    starts, stops = (edges == 1).nonzero(), (edges == -1).nonzero()
    whole = stops[:, 1] < hidden.shape[1]  # the end of a row cuts too
    lengths = (stops[:, 1] - starts[:, 1])[whole].float()
    assert (lengths > 20).float().mean() < 0.01, "some touch after all"
    lengths = lengths[lengths <= 20]
    assert (lengths == 1).float().mean().item() == pytest.approx(0.1, abs=0.02)
    assert (lengths == 20).float().mean().item() == pytest.approx(0.9**19, abs=0.025)
    assert lengths.mean().item() == pytest.approx((1 - 0.9**20) / 0.1, rel=0.03)


def test_padding_is_never_hidden():
    valid = torch.arange(50) < torch.tensor([[50], [20], [0]])
    hidden = draw_spans(SpanMask(share=0.9), valid, torch.Generator().manual_seed(0))
    assert hidden.any()
    assert not (hidden & ~valid).any()
    assert draw_spans(SpanMask(), valid[:, :0], torch.Generator()).shape == (3, 0)


def test_spans_of_one_event_are_single_events():
    mask = SpanMask(share=0.2, length=1)
    hidden = draw_spans(mask, torch.ones(64, 500, dtype=torch.bool), torch.Generator().manual_seed(0))
    assert mask.expected_share == pytest.approx(0.2)
    assert hidden.float().mean().item() == pytest.approx(0.2, abs=0.01)
    assert (hidden[:, 1:] & hidden[:, :-1]).float().mean().item() == pytest.approx(0.04, abs=0.005), "independent"


def test_draws_follow_the_generator():
    assert torch.equal(draw(SpanMask(), seed=1), draw(SpanMask(), seed=1))
    assert not torch.equal(draw(SpanMask(), seed=1), draw(SpanMask(), seed=2))


@pytest.mark.parametrize("settings", [{"share": 0.0}, {"share": 1.0}, {"length": 0}, {"longest": 0}])
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(ValueError, match=r"mask\."):
        SpanMask(**settings)
