"""Answers from tokens."""

import torch
from conftest import randomise

from event2vec.model.heads import ClassHead, EventDecoder, mean_over_valid


def test_the_mean_is_over_valid_tokens():
    tokens = torch.tensor([[[1.0], [3.0], [100.0]], [[5.0], [5.0], [5.0]]])
    valid = torch.tensor([[True, True, False], [False, False, False]])
    assert mean_over_valid(tokens, valid).tolist() == [[2], [0]], "a row without events has a mean of 0"


def test_a_row_without_events_gets_the_biases():
    head = randomise(ClassHead(4, 3))
    answer = head(torch.randn(1, 2, 4), torch.zeros(1, 2, dtype=torch.bool))
    assert torch.equal(answer[0], head.linear.bias)


def test_the_decoder_mirrors_the_spatial_network():
    decoder = randomise(EventDecoder(16))
    assert [tuple(layer.get_parameter("weight").shape) for layer in decoder.layers] == [(8, 16), (4, 8), (3, 4)]
    answer = decoder(10 * torch.randn(50, 16))
    assert answer.shape == (50, 3)
    assert (answer.abs() < 1).all()
