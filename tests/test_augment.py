"""Each change: its exact effect with known parameters, and the spread of what is drawn."""

from dataclasses import replace

import pytest
import torch
from conftest import SMALL

from event2vec import EventBatch, Events, Sensor
from event2vec.training.augment import (
    DropChunks,
    Erase,
    Flip,
    Policy,
    Resize,
    Rotate,
    Shear,
    TokenMix,
    Translate,
    augment,
    drop_outside,
    forget_intensity,
    transforms_of,
)
from event2vec.training.config import AugmentConfig

SQUARE = Sensor(11, 11)


def one(x, y, t=None, sensor=SQUARE):
    return EventBatch.pad([Events.from_arrays(x, y, t or list(range(len(x))), [1] * len(x), sensor=sensor)])


def many(rows=4000, length=3):
    return EventBatch.pad(
        [Events.from_arrays([5] * length, [5] * length, [0] * length, [1] * length, sensor=SQUARE)] * rows
    )


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_resize_scales_from_the_origin():
    changed = Resize(0.2).apply(one([2, 4], [5, 10]), torch.tensor([[1.5, 0.5]]))
    assert changed.x.tolist() == [[3, 6]]
    assert changed.y.tolist() == [[2.5, 5]]


def test_rotate_turns_about_the_centre():
    changed = Rotate(90.0).apply(one([10, 5], [5, 5]), torch.deg2rad(torch.tensor([[90.0]])))
    torch.testing.assert_close(changed.x, torch.tensor([[5.0, 5.0]]))
    torch.testing.assert_close(changed.y, torch.tensor([[10.0, 5.0]]))
    back = Rotate(90.0).apply(changed, torch.deg2rad(torch.tensor([[-90.0]])))
    torch.testing.assert_close(back.x, torch.tensor([[10.0, 5.0]]))


def test_shear_moves_by_the_other_coordinate():
    changed = Shear(0.5).apply(one([5, 7], [9, 5]), torch.tensor([[0.5, -1.0]]))
    assert changed.x.tolist() == [[7, 7]], "x grows by half of y - 5"
    assert changed.y.tolist() == [[9, 3]], "y falls by x - 5, as it was"


def test_flip_mirrors_left_and_right():
    batch = EventBatch.pad([one([0, 3], [1, 2]).row(0)] * 2)
    changed = Flip(0.5).apply(batch, torch.tensor([[True], [False]]))
    assert changed.x.tolist() == [[10, 7], [0, 3]]
    assert torch.equal(changed.y, batch.y)


def test_translate_moves():
    changed = Translate(16.0).apply(one([1, 2], [3, 4]), torch.tensor([[2.5, -1.0]]))
    assert changed.x.tolist() == [[3.5, 4.5]]
    assert changed.y.tolist() == [[2, 3]]


def test_erase_empties_a_rectangle():
    batch = one([0, 4, 5, 6, 7], [5, 5, 5, 5, 5])
    changed = Erase(4.0).apply(batch, torch.tensor([[5.0, 5.0, 2.0, 0.0]]))
    assert changed.row(0).x.tolist() == [0, 7]
    assert torch.equal(Erase(4.0).apply(batch, torch.tensor([[5.0, 5.0, -1.0, 9.0]])).x, batch.x)


def test_chunks_are_dropped():
    changed = DropChunks(2, 3).apply(one(list(range(10)), [0] * 10), torch.tensor([[[1, 3], [3, 2]]]))
    assert changed.row(0).x.tolist() == [0, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("transform", "low", "high"),
    [
        (Resize(0.2), 0.8, 1.2),
        (Rotate(30.0), -torch.pi / 6, torch.pi / 6),
        (Shear(0.05), -0.05, 0.05),
        (Translate(16.0), -16, 16),
    ],
)
def test_parameters_are_uniform_and_differ_between_recordings(transform, low, high):
    drawn = transform.draw(many(), generator())
    assert drawn.min() >= low
    assert drawn.max() <= high
    assert drawn.mean().item() == pytest.approx((low + high) / 2, abs=(high - low) / 60)
    assert drawn.std().item() == pytest.approx((high - low) / 12**0.5, rel=0.05)
    assert len(drawn.unique()) > 3900


def test_flips_and_rectangles_have_their_shares():
    assert Flip(0.3).draw(many(), generator()).float().mean().item() == pytest.approx(0.3, abs=0.03)
    drawn = Erase(4.0, share=0.1).draw(many(), generator())
    on = drawn[:, 2] >= 0
    assert on.float().mean().item() == pytest.approx(0.1, abs=0.02)
    assert drawn[:, :2].min() >= 0
    assert drawn[:, :2].max() <= 10
    assert drawn[on, 2].max() <= 4
    assert drawn[on, 2].mean().item() == pytest.approx(2, abs=0.2)


def test_chunks_shrink_with_the_valid_share():
    batch = EventBatch.pad([one([1] * 100, [1] * 100).row(0), one([1] * 50, [1] * 50).row(0)] * 500)
    drawn = DropChunks(4, 40).draw(batch, generator())
    starts, lengths = drawn.unbind(-1)
    assert (starts.min().item(), starts.max().item()) == (0, 99)
    assert (lengths[::2].min().item(), lengths[::2].max().item()) == (1, 40)
    assert lengths[1::2].max() == 20
    assert lengths[::2].float().mean().item() == pytest.approx(20.5, abs=0.7)


def test_a_policy_turns_each_change_on_by_itself():
    batch = many()
    changed = Policy(0.6, [Translate(1.0), Flip(1.0)])(replace(batch, x=batch.x + 2), generator())
    moved = changed.y[:, 0] != 5
    flipped = changed.x[:, 0] < 5
    for share, expected in ((moved, 0.6), (flipped, 0.6), (moved & flipped, 0.36)):
        assert share.float().mean().item() == pytest.approx(expected, abs=0.03)


def test_a_policy_can_turn_a_change_on_for_a_whole_batch():
    """As the authors' code does; how far each recording moves stays its own."""
    config = AugmentConfig(probability=0.5, translate=1.0, draw_for="batch")
    batch, draw, on = many(rows=20), generator(), 0
    for _ in range(200):
        moved = augment(batch, config, draw).y[:, 0]
        assert (moved != 5).all() or (moved == 5).all()
        assert len(moved.unique()) in (1, 20)
        on += bool((moved != 5).all())
    assert on / 200 == pytest.approx(0.5, abs=0.1)


def test_events_that_leave_the_sensor_are_dropped_and_gaps_closed():
    batch = replace(one([5, 5, 5], [5, 5, 5]), x=torch.tensor([[10.0, 10.1, 0.0]]), y=torch.tensor([[0.0, 5.0, -0.1]]))
    kept = drop_outside(batch)
    assert kept.x.tolist() == [[10, 0, 0]]
    assert kept.valid.tolist() == [[True, False, False]]


def test_a_row_that_would_lose_all_its_events_keeps_them():
    batch = EventBatch.pad([one([0, 1], [0, 1]).row(0), one([5, 6], [5, 6]).row(0)])

    class Away(Translate):
        def draw(self, batch, generator):
            return torch.tensor([[-50.0, 0.0], [1.0, 0.0]])

    changed = Policy(1.0, [Away(50.0)])(batch, generator())
    assert changed.x.tolist() == [[0, 1], [6, 7]]


def test_intensity_is_forgotten_in_a_share_of_the_recordings():
    batch = replace(many(), rho=torch.full((4000, 3), 7.0))
    changed = forget_intensity(batch, 0.1, generator())
    assert (changed.rho[:, 0] == 1).float().mean().item() == pytest.approx(0.1, abs=0.02)
    assert set(changed.rho.unique().tolist()) == {1, 7}
    padded = EventBatch.pad([one([1], [1]).row(0), one([1, 2], [1, 2]).row(0)])
    assert forget_intensity(padded, 1.0, generator()).rho.tolist() == [[1, 0], [1, 1]]


def test_intensity_can_be_forgotten_event_by_event():
    batch = replace(many(), rho=torch.full((4000, 3), 7.0))
    changed = augment(batch, AugmentConfig(forget_intensity=0.1, forget_intensity_for="event"), generator())
    forgotten = changed.rho == 1
    assert forgotten.float().mean().item() == pytest.approx(0.1, abs=0.01)
    assert (forgotten.all(dim=1).float().mean()) < 0.01, "not whole recordings"


def test_the_papers_changes_run_on_padded_batches(make_events):
    config = AugmentConfig(
        resize=0.2, rotate=15.0, shear=0.05, flip=1.0, translate=16.0, erase=16.0, chunks=4, forget_intensity=0.1
    )
    assert len(transforms_of(config)) == 7
    batch = EventBatch.pad([make_events(200), make_events(50, seed=1), make_events(0), make_events(1)])
    changed = augment(batch, config, generator())
    assert changed.valid.sum(dim=1).tolist()[2:] == [0, 1]
    assert (changed.x >= 0).all()
    assert (changed.x <= SMALL.width - 1).all()
    assert (changed.t.diff(dim=1)[changed.valid[:, 1:]] >= 0).all(), "still in time order"
    assert torch.equal(changed.x, augment(batch, config, generator()).x), "the same draw, the same batch"
    assert augment(batch, AugmentConfig(), generator()) is batch


def test_tokens_are_mixed_and_shares_counted():
    tokens = torch.arange(12.0).view(3, 4, 1)
    valid = torch.arange(4) < torch.tensor([[4], [2], [4]])
    places = torch.tensor([[True, False, False, False], [True, False, False, False], [True, False, True, True]])
    mixed, share = TokenMix().apply(tokens, torch.tensor([1, 2, 0]), places), TokenMix().share(valid, places)
    assert mixed[..., 0].tolist() == [[4, 1, 2, 3], [8, 5, 6, 7], [0, 9, 2, 3]]
    assert share.tolist() == [0.25, 0.5, 0.75]


@pytest.mark.parametrize("sensor", [Sensor(34, 30), Sensor(1280, 720)], ids=str)
def test_lengths_in_shares_of_the_sensor_grow_with_it(sensor):
    batch = EventBatch.pad([Events.from_arrays([5], [5], [0], [1], sensor=sensor)] * 4000)
    moved = Translate(0.1, "sensor").draw(batch, generator())
    assert moved.abs().amax(dim=0).tolist() == pytest.approx([0.1 * sensor.width, 0.1 * sensor.height], rel=0.01)
    pixels = Translate(3.4, "pixels").draw(batch, generator())
    torch.testing.assert_close(moved / torch.tensor([sensor.width, sensor.height]) * 34, pixels)
    erased = Erase(0.2, share=1.0, unit="sensor").draw(batch, generator())[:, 2:]
    assert erased.amax(dim=0).tolist() == pytest.approx([0.2 * sensor.width, 0.2 * sensor.height], rel=0.01)
    config = AugmentConfig(unit="sensor", translate=0.1, erase=0.2)
    assert transforms_of(config) == (Translate(0.1, "sensor"), Erase(0.2, unit="sensor"))


def test_pixels_are_not_taken_for_shares():
    with pytest.raises(ValueError, match=r"augment.translate must be at most 1 with augment.unit sensor, got 16"):
        AugmentConfig(unit="sensor", translate=16.0)


def test_padding_is_never_mixed():
    valid = torch.arange(40) < torch.arange(41)[:, None]
    partner, places = TokenMix().draw(valid, generator())
    assert places.any()
    assert not (places & ~(valid & valid[partner])).any()


def test_shares_of_mixed_tokens_are_uniform():
    valid = torch.ones(2000, 200, dtype=torch.bool)
    partner, places = TokenMix().draw(valid, generator())
    share = places.float().mean(dim=1)
    assert share.mean().item() == pytest.approx(0.5, abs=0.02)
    assert share.std().item() == pytest.approx(12**-0.5, abs=0.02)
    assert sorted(partner.tolist()) == list(range(2000))


@pytest.mark.parametrize(
    "settings", [{"probability": 1.5}, {"flip": -0.1}, {"rotate": -1.0}, {"resize": 1.0}, {"chunk_length": 0}]
)
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(ValueError, match=r"augment\."):
        AugmentConfig(**settings)
