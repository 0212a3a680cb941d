"""Parts of the data: what trains, what chooses the best epoch, what tests."""

import pickle
from typing import Any

import numpy as np
import pytest
from conftest import SMALL, make_recording
from hypothesis import given
from hypothesis import strategies as st

from event2vec import EventStore
from event2vec.data.splits import TEST, UNUSED, VALIDATION, Groups, draw_folds, draw_part, take_validation


def make_store(folder, labels, splits=None, **more):
    recordings = [(make_recording(20, seed=index), label) for index, label in enumerate(labels)]
    classes = [f"class {label}" for label in range(max(labels) + 1)]
    return EventStore.create(folder, recordings, sensor=SMALL, classes=classes, splits=splits, **more)


def test_a_part_has_its_share_of_each_class_and_small_classes_keep_all():
    labels = [0] * 40 + [1] * 10 + [2] * 5 + [3] * 4 + [4]
    alone = [str(index) for index in range(len(labels))]
    aside = draw_part(labels, alone, 0.1, fewest=5, seed=0, purpose=VALIDATION)
    assert np.bincount(np.array(labels)[aside], minlength=5).tolist() == [4, 1, 1, 0, 0]
    assert (draw_part(labels, alone, 0.1, fewest=5, seed=0, purpose=VALIDATION) == aside).all()
    assert (draw_part(labels, alone, 0.1, fewest=5, seed=1, purpose=VALIDATION) != aside).any()


@pytest.mark.parametrize("seed", range(5))
def test_groups_are_put_aside_whole_and_classes_keep_their_shares(seed):
    """Forty people, each with one to six recordings of some of five classes."""
    random = np.random.default_rng((seed, 0, 0))
    pairs = [
        (f"person {person}", label)
        for person in range(40)
        for label in random.choice(5, 3, replace=False).tolist()
        for _ in range(random.integers(1, 7))
    ]
    groups, labels = [group for group, _ in pairs], np.array([label for _, label in pairs])
    aside = draw_part(labels, groups, 0.2, fewest=2, seed=seed, purpose=TEST)
    away = {group for group, put in zip(groups, aside, strict=True) if put}
    assert aside.tolist() == [group in away for group in groups], "no group lies on both sides"
    shares = np.bincount(labels[aside], minlength=5) / np.bincount(labels)
    assert shares == pytest.approx([0.2] * 5, abs=0.08)


def test_few_groups_are_put_aside_where_classes_keep_something():
    two = ["anna"] * 10 + ["ben"] * 10
    labels = [0, 1] * 10
    aside = draw_part(labels, two, 0.2, fewest=2, seed=0, purpose=TEST)
    assert aside.sum() == 10, "one of two people, though that is half of all"
    assert not draw_part(labels, two, 0.1, fewest=5, seed=0, purpose=VALIDATION).any(), "too few to choose an epoch"
    assert not draw_part(labels, ["anna"] * 20, 0.2, fewest=2, seed=0, purpose=TEST).any()
    apart = draw_part([0] * 10 + [1] * 10, two, 0.2, fewest=2, seed=0, purpose=TEST)
    assert not apart.any(), "either class would have nothing to learn from"


def test_validation_takes_whole_groups(tmp_path):
    """As windows of twelve recordings."""
    groups = [f"clip {index // 4}" for index in range(48)]
    store = make_store(tmp_path / "store", [index // 4 % 2 for index in range(48)], groups=groups)
    divided = take_validation(store, 0.2, seed=0)
    found = Groups.of(divided)
    assert found is not None
    assert found.on_both_sides == []
    assert divided.splits.count("validation") == 8
    assert found.warning is None
    assert found.summary.startswith("12 groups of recordings that stay together: 10 train (clip 0, ")
    assert Groups.of(make_store(tmp_path / "alone", [0] * 4)) is None


def test_a_group_on_both_sides_is_named(tmp_path):
    store = make_store(tmp_path / "store", [0] * 6, ["train"] * 4 + ["test"] * 2, groups=list("aabbbc"))
    found = Groups.of(store)
    assert found is not None
    assert found.warning == (
        "the group 'b' is in train and test: accuracy will be overestimated, "
        "because this group was also used for training"
    )


def test_validation_is_taken_from_training_recordings_and_from_nothing_else(tmp_path):
    store = make_store(tmp_path / "store", [0, 1] * 15, ["train"] * 20 + ["test"] * 10)
    divided = take_validation(store, 0.2, seed=3)
    assert [divided.splits.count(name) for name in ("train", "validation", "test")] == [16, 4, 10]
    assert divided.splits[20:] == ("test",) * 10
    assert sorted(divided.split("validation").labels.tolist()) == [0, 0, 1, 1]
    assert not set(divided.split("validation").rows) & set(divided.split("train").rows)
    assert store.splits.count("train") == 20, "the store itself stays as it was"
    assert EventStore.open(store.folder).splits == store.splits


def test_the_same_recordings_in_another_order_of_splits_are_divided_alike(tmp_path):
    """A store of clusters has its splits one after the other, the store that it was made of need not."""
    labels, splits = [0, 1] * 15, ["train", "train", "test"] * 10
    mixed = take_validation(make_store(tmp_path / "mixed", labels, splits), 0.2, seed=0)
    order = sorted(range(30), key=lambda index: splits[index] == "test")
    recordings = [mixed[index] for index in order]
    names: dict[str, Any] = {
        "sources": [mixed.sources[index] for index in order],
        "splits": [splits[index] for index in order],
    }
    sorted_ = EventStore.create(tmp_path / "sorted", recordings, sensor=SMALL, classes=mixed.classes, **names)
    again = take_validation(sorted_, 0.2, seed=0)
    assert again.split("validation").sources == mixed.split("validation").sources


def test_a_validation_part_that_is_there_is_used_and_none_is_taken_where_none_is_wanted(tmp_path):
    own = make_store(tmp_path / "own", [0, 1] * 10, ["train"] * 16 + ["validation"] * 2 + ["test"] * 2)
    assert take_validation(own, 0.2, seed=0).splits == own.splits
    assert take_validation(own.split("train"), 0.0, seed=0).splits == ("train",) * 16
    assert len(take_validation(own.split("test"), 0.2, seed=0)) == 2, "nothing to take it from"


def test_validation_shows_one_set_of_clusters_and_training_all(tmp_path):
    store = take_validation(make_store(tmp_path / "store", [0] * 40, sets=[0, 1] * 20), 0.1, seed=0)
    assert [len(part) for part in store.sets("train")] == [18, 18]
    assert len(store.split("validation")) == 2
    assert not set(store.split("validation").rows) & {row for part in store.sets("train") for row in part.rows}


def test_a_divided_store_stays_divided_in_a_worker_process(tmp_path):
    store = take_validation(make_store(tmp_path / "store", [0] * 20), 0.1, seed=0)
    again = pickle.loads(pickle.dumps(store))
    assert again.splits == store.splits
    with pytest.raises(ValueError, match="zip"):
        store.divided(["train"])


@st.composite
def recordings_of_people(draw):
    """Labels and groups of some recordings; a group may hold several classes."""
    count = draw(st.integers(1, 40))
    labels = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    groups = draw(
        st.lists(st.sampled_from([f"person {number}" for number in range(8)]), min_size=count, max_size=count)
    )
    return labels, groups


@given(recordings_of_people(), st.sampled_from([0.1, 0.2, 0.5]), st.integers(2, 5), st.integers(0, 3))
def test_every_class_keeps_something_and_no_group_is_divided(recordings, share, fewest, seed):
    labels, groups = recordings
    aside = draw_part(labels, groups, share, fewest, seed, TEST)
    for group in set(groups):
        assert len({bool(put) for put, name in zip(aside, groups, strict=True) if name == group}) == 1
    for label in set(labels):
        assert not all(put for put, name in zip(aside, labels, strict=True) if name == label)
    assert (draw_part(labels, groups, share, fewest, seed, TEST) == aside).all()


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.sampled_from([0.1, 0.25, 0.5]), st.integers(2, 5))
def test_without_groups_each_class_gives_its_share_to_the_nearest_recording(labels, share, fewest):
    aside = draw_part(labels, [str(index) for index in range(len(labels))], share, fewest, 0, VALIDATION)
    for label in set(labels):
        count, put = labels.count(label), int(aside[np.array(labels) == label].sum())
        assert put == (max(round(count * share), 1) if count >= fewest else 0)


@given(recordings_of_people(), st.integers(2, 5))
def test_a_fold_has_whole_groups_and_leaves_something_of_each_class_to_train_on(recordings, folds):
    labels, groups = recordings
    found = draw_folds(labels, groups, folds, seed=0)
    assert set(found.tolist()) <= set(range(-1, folds))
    for group in set(groups):
        assert len({number for number, name in zip(found.tolist(), groups, strict=True) if name == group}) == 1
    for fold in range(folds):
        for label in set(labels):
            assert any(one == label and number != fold for one, number in zip(labels, found.tolist(), strict=True))
    for label in set(labels):
        alone = {name for name, one in zip(groups, labels, strict=True) if one == label}
        if len(alone) == 1:
            assert all(number == -1 for number, name in zip(found.tolist(), groups, strict=True) if name in alone)


def test_draws_for_one_purpose_say_nothing_about_another():
    labels, alone = [0] * 200, [str(index) for index in range(200)]
    test, validation = (draw_part(labels, alone, 0.5, 1, 0, purpose) for purpose in (TEST, VALIDATION))
    assert 30 < int((test & validation).sum()) < 70, "not the same half again"


class TestGroups:
    def test_several_groups_on_both_sides_are_counted(self):
        both, test = ("train", "test"), ("test",)
        assert Groups({"a": both, "b": test, "c": both, "d": both}).warning == (
            "the group 'a' is in train and test (2 other groups too): accuracy will be overestimated, "
            "because this group was also used for training"
        )
        assert Groups({"a": ("train", UNUSED), "b": ("test", UNUSED)}).warning is None, "nothing is learnt from those"

    def test_a_summary_names_eight_of_each_part(self):
        splits: dict[str, tuple[str, ...]] = {f"p{number}": ("train",) for number in range(9)}
        groups = Groups(splits | {"q": ("test",)})
        assert groups.summary == (
            "10 groups of recordings that stay together: 9 train (p0, p1, p2, p3, p4, p5, p6, p7, ...), 1 test (q)"
        )
        assert groups.within("test") == ["q"]
        assert Groups({"a": ("train",)}).summary == "1 group of recordings that stay together: 1 train (a)"
