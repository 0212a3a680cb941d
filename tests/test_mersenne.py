"""What numpy draws is what torch draws."""

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

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


@given(st.integers(0, 2**64 - 1), st.integers(0, 40), st.integers(0, 40))
def test_any_number_of_any_number_is_drawn_as_torch_draws_it(seed, count, length):
    theirs = torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:length]
    assert Mersenne(seed).shuffled(count, length).tolist() == theirs.tolist()


@given(st.lists(st.tuples(st.integers(1, 2**62), st.integers(0, 5)), max_size=5))
def test_draws_of_any_sizes_one_after_the_other_are_those_of_torch(draws):
    """A draw of nothing takes no number, and one below a large limit takes two."""
    ours, theirs = Mersenne(5), torch.Generator().manual_seed(5)
    for limit, count in draws:
        drawn = ours.integers(limit, count)
        assert drawn.dtype == np.int64
        assert drawn.tolist() == torch.randint(limit, (count,), generator=theirs).tolist()


def test_a_generator_that_was_used_up_leaves_nothing_to_the_next():
    """numpy's generators are used again, and seeded again."""
    first = Mersenne(3)
    wanted = first.integers(1000, 20).tolist()
    for _ in range(3):
        del first
        first = Mersenne(3)
        assert first.integers(1000, 20).tolist() == wanted
    one, other = Mersenne(3), Mersenne(3)
    mixed = [(one.integers(1000, 1)[0], other.integers(1000, 1)[0]) for _ in range(20)]
    assert [list(drawn) for drawn in zip(*mixed, strict=True)] == [wanted, wanted], "two at a time share nothing"


def test_a_seed_for_another_generator_has_62_bits():
    seeds = [draw_seed(Mersenne(number)) for number in range(200)]
    assert len(set(seeds)) == 200
    assert all(0 <= seed < 2**62 for seed in seeds)
    assert max(seeds) >= 2**61, "the highest bit is used"


def test_each_of_seed_epoch_and_index_gives_other_numbers():
    drawn = {(places, seeded_arrays(*places).integers(2**60, 1)[0]) for places in permutations((0, 1, 2))}
    assert len({number for _, number in drawn}) == 6
    assert seeded_arrays(1, 2, 3).seed < 2**63, "torch takes no more"
    assert seeded(1, 2, 3).initial_seed() == seeded_arrays(1, 2, 3).seed
