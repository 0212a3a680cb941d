"""Which recordings train, which choose the best epoch, which test: parts drawn by class, with groups kept whole.

A group is what must not lie on both sides: the recordings of one person, session or source file, or the windows of one
recording. A recording that belongs to no group is one by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from event2vec.choices import FoldsOver
from event2vec.data.store import EventStore
from event2vec.errors import FileError
from event2vec.names import counted, shorten, shown

FEWEST = 5  # training recordings of a class, or groups, of which one is taken for validation; fewer all train
TEST, VALIDATION, FOLDS = range(3)  # what a part is drawn for, so that one draw says nothing about the other
SHOWN = 8  # groups of a part that a summary names
TRIALS = 16  # orders in which groups are considered; the best part is kept
ORDERS = 2**32  # added to the index of these draws, so that they never are those of a class

UNUSED = "unused"  # the split of test recordings that the data came with, in cross-validation without them

Labels = Sequence[int] | NDArray[np.int64]


def draw_part(
    labels: Labels, groups: Sequence[str], share: float, fewest: int, seed: int, purpose: int
) -> NDArray[np.bool_]:
    """Which recordings to put aside: this share of each class, and one at least of classes with `fewest` or more.

    Groups are put aside as a whole, so that shares are met as far as groups allow: one at least if there are `fewest`.
    Each class keeps something.
    """
    labels = np.asarray(labels, np.int64)
    classes, label_of, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    wanted = np.where(sizes >= fewest, np.maximum(np.round(sizes * share).astype(np.int64), 1), 0)
    names, group_of = np.unique(np.asarray(groups, dtype=object).astype(str), return_inverse=True)
    aside = np.zeros(len(labels), np.bool_)
    if len(names) < len(labels):
        table = _count(group_of, label_of, len(names), len(classes))
        return _draw_groups(table, wanted, fewest, seed, purpose)[group_of]
    for number, label in enumerate(classes.tolist()):
        members = np.flatnonzero(label_of == number)
        order = _draw_order(len(members), seed, purpose, label)
        aside[members[order[: wanted[number]]]] = True
    return aside


def _draw_order(count: int, seed: int, purpose: int, index: int) -> NDArray[np.int64]:
    """A random order. Not by `data.seeding`, as all other draws: that would move recordings to other parts.

    Published results and saved runs depend on who is in which part.
    """
    return np.random.default_rng((seed, purpose, index)).permutation(count)


def _count(rows: NDArray[np.int64], columns: NDArray[np.int64], height: int, width: int) -> NDArray[np.int64]:
    """How often each pair occurs."""
    table = np.zeros((height, width), np.int64)
    np.add.at(table, (rows, columns), 1)
    return table


def _draw_groups(
    table: NDArray[np.int64], wanted: NDArray[np.int64], fewest: int, seed: int, purpose: int
) -> NDArray[np.bool_]:
    """Groups whose recordings come close to those wanted of each class; `table` is recordings by group and class."""
    sizes = table.sum(axis=0)

    def miss(found: NDArray[np.int64]) -> float:
        return float((np.abs(found - wanted) / sizes).sum())

    best = np.zeros(len(table), np.bool_)
    for trial in range(TRIALS):
        order = _draw_order(len(table), seed, purpose, ORDERS + trial)
        chosen, found = np.zeros(len(table), np.bool_), np.zeros_like(wanted)
        for group in order.tolist():
            more = found + table[group]
            if (more < sizes).all() and miss(more) < miss(found):
                chosen[group], found = True, more
        if trial == 0 or miss(table[chosen].sum(axis=0)) < miss(table[best].sum(axis=0)):
            best = chosen
    free = [group for group, counts in enumerate(table) if (counts < sizes).all()]
    if not best.any() and free and len(table) >= fewest:
        best[min(free, key=lambda group: miss(table[group]))] = True
    return best


def take_validation(store: EventStore, share: float, seed: int) -> EventStore:
    """The store with a validation part: its own, or one drawn from its training recordings.

    The draw depends on the seed and on the order of the training recordings alone, so that a store of the same
    recordings in another form is divided alike.
    """
    names = np.array(store.splits, dtype=object)
    training = np.flatnonzero(names == "train")
    if share == 0 or "validation" in store.splits or len(training) == 0:
        return store
    groups = store.subset(training).groups
    aside = draw_part(store.labels[training], groups, share, FEWEST, seed, VALIDATION)
    names[training[aside]] = "validation"
    return store.divided(names.tolist())


def draw_folds(labels: Labels, groups: Sequence[str], folds: int, seed: int) -> NDArray[np.int64]:
    """The fold of each recording, from 0: each has about the same number of every class, and no group is divided.

    -1 are recordings that always train: they are in the only group of some class.
    """
    labels = np.asarray(labels, np.int64)
    classes, label_of = np.unique(labels, return_inverse=True)
    names, group_of = np.unique(np.asarray(groups, dtype=object).astype(str), return_inverse=True)
    table = _count(group_of, label_of, len(names), len(classes))
    sizes = table.sum(axis=0)
    order = _draw_order(len(names), seed, FOLDS, 0)
    order = order[np.argsort(-table[order].sum(axis=1), kind="stable")]  # large groups first: small ones fill the gaps
    found, counts = np.full(len(names), -1), np.zeros((folds, len(classes)), np.int64)
    for group in order.tolist():
        if (table[group] < sizes).all():
            found[group] = _emptiest(counts, table[group], sizes)
            counts[found[group]] += table[group]
    return found[group_of]


def _emptiest(counts: NDArray[np.int64], more: NDArray[np.int64], sizes: NDArray[np.int64]) -> int:
    """The fold that has least of the classes of a group, and of equal ones that with the fewest recordings."""
    crowded = (counts * (more / sizes)).sum(axis=1)
    return int(np.lexsort((counts.sum(axis=1), crowded))[0])


def take_fold(store: EventStore, folds: int, fold: int, over: FoldsOver, seed: int) -> EventStore:
    """The store with one fold as its test part and the others to train on.

    Folds are made of the training recordings and of test recordings that were drawn from undivided data, or of "all". A
    test part that the data came with is otherwise unused.
    """
    names = np.array(store.splits, dtype=object)
    if store.facts.get("drawn") == "test":
        names[names == "test"] = "train"
    inside = np.flatnonzero((names == "train") | (over == "all"))
    groups = store.subset(inside).groups
    if len(set(groups)) < folds:
        raise FileError(store.folder, f"has {len(set(groups))} groups of recordings, too few for {folds} folds")
    numbers = draw_folds(store.labels[inside], groups, folds, seed)
    names[names == "test"] = UNUSED
    names[inside] = np.where(numbers == fold - 1, "test", "train")
    return store.divided(names.tolist())


@dataclass(frozen=True)
class Groups:
    """The groups of a store, and the splits that they lie in."""

    splits: dict[str, tuple[str, ...]]  # by group

    @classmethod
    def of(cls, store: EventStore) -> "Groups | None":
        """None where every recording is by itself."""
        splits: dict[str, dict[str, None]] = {}
        for group, split in zip(store.groups, store.splits, strict=True):
            splits.setdefault(group, {})[split] = None
        if len(splits) == len(store):
            return None
        return cls({group: tuple(found) for group, found in splits.items()})

    def within(self, split: str) -> list[str]:
        return [group for group, splits in self.splits.items() if split in splits]

    @property
    def on_both_sides(self) -> list[str]:
        """Groups of which some recordings are learnt from and others are not."""
        return [group for group, splits in self.splits.items() if "train" in splits and {*splits} - {"train", UNUSED}]

    @property
    def summary(self) -> str:
        """How many there are, and where each went."""
        splits = dict.fromkeys(split for found in self.splits.values() for split in found)
        parts = [f"{len(self.within(split)):,} {split} ({_listed(self.within(split))})" for split in splits]
        count = counted(len(self.splits), "group")
        return f"{count} of recordings that stay together: {', '.join(parts)}"

    @property
    def warning(self) -> str | None:
        """What is wrong with a division that was there already."""
        if not self.on_both_sides:
            return None
        first, *others = self.on_both_sides
        more = f" ({counted(len(others), 'other group')} too)" if others else ""
        places = " and ".join(self.splits[first])
        too_good = "accuracy will be overestimated, because this group was also used for training"
        return f"the group {shown(first)} is in {places}{more}: {too_good}"


def _listed(names: Sequence[str]) -> str:
    return shorten(", ".join(names[:SHOWN]), 120) + (", ..." if len(names) > SHOWN else "")
