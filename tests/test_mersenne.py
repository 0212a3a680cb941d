"""What numpy draws is what torch draws."""

import numpy as np
import pytest
import torch

from event2vec.data.seeding import seeded, seeded_arrays
from event2vec.data.uniform import draw_positions
from event2vec.mersenne import Mersenne, draw_seed


@pytest.mark.parametrize("seed", [0, 7, 2**32, 2**40 + 17, 2**62 - 3])
def test_the_numbers_are_those_of_torch_one_after_the_other(seed):
    ours, theirs = Mersenne(seed), torch.Generator().manual_seed(seed)
    for limit in (1, 10, 2**28 - 1, 2**28, 2**32, 2**40 + 1):
        np.testing.assert_array_equal(ours.integers(limit, 33), torch.randint(limit, (33,), generator=theirs))
    assert draw_seed(ours) == draw_seed(theirs)
    for count in (1, 2, 100):
        np.testing.assert_array_equal(ours.shuffled(count, count), torch.randperm(count, generator=theirs))
    np.testing.assert_array_equal(ours.torch().get_state(), torch.Generator().manual_seed(seed).get_state())


@pytest.mark.parametrize(
    ("count", "length"), [(5, 5), (100, 99), (100, 25), (100, 26), (5000, 1024), (10**6, 512), (3, 0)]
)
def test_the_same_events_are_drawn_with_and_without_torch(count, length):
    ours = draw_positions(count, length, seeded_arrays(1, 2, 3))
    np.testing.assert_array_equal(ours, draw_positions(count, length, seeded(1, 2, 3)))
    assert ours.dtype == np.int64
