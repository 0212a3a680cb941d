"""Parts of a store: the same for any number of workers, each recording in one, and one sensor for all of them."""

import csv
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest
from conftest import SMALL, make_recording
from hypothesis import given
from hypothesis import strategies as st

from event2vec import Event2VecError, EventStore, Sensor
from event2vec.data import parts
from event2vec.data.clusters import Clusters
from event2vec.data.datasets.dataset import Dataset
from event2vec.data.merged import _merged_facts
from event2vec.data.parts import LARGEST_PART, PARTS, Part, cut_into_parts, describe_scaled, fit_part, write_part
from event2vec.data.windows import Windows
from event2vec.errors import FileError
from event2vec.io import Recording


@dataclass(frozen=True)
class Given(Dataset):
    """Recordings from a list; an error in it is what reading that one gives."""

    found: tuple[Recording | Event2VecError, ...] = ()
    files: str = field(default="", kw_only=True)  # a letter for each recording: the file that it is in

    def read(self, index: int) -> Recording:
        one = self.found[index]
        if isinstance(one, Event2VecError):
            raise one
        return one

    def fingerprint(self, index: int) -> str:
        return str(index)

    def is_in_file_of_last(self, index: int) -> bool:
        return bool(self.files) and self.files[index] == self.files[index - 1]

    def unused(self, index: int) -> int:
        return 1000 * index


def dataset(count, split="train", found=(), **more):
    names = tuple(f"{split} {number}" for number in range(count))
    return Given("given", split, ("a", "b"), names, tuple(number % 2 for number in range(count)), found, **more)


def recording(count=20, sensor=SMALL, declared=True, seed=0, warnings=()):
    return Recording(make_recording(count, seed, sensor), "dat", 0, 0, declared, warnings)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=4))
def test_each_recording_is_in_one_part_and_no_part_has_two_splits(counts):
    datasets = [dataset(count, f"split{number}") for number, count in enumerate(counts)]
    found = cut_into_parts(datasets, Path("parts"), None)
    for each in datasets:
        mine = [part for part in found if part.dataset is each]
        assert [index for part in mine for index in range(part.start, part.stop)] == list(range(len(each)))
    most = min(max(sum(counts) // PARTS, 1), LARGEST_PART)
    assert all(0 < len(part) <= most for part in found), "small data sets have work for all workers, too"
    assert len({part.folder for part in found}) == len(found)


def test_recordings_of_one_file_are_in_one_part(tmp_path):
    """It is read once, however many recordings are in it."""
    files = "".join(letter * 100 for letter in "abc") + "defgh"
    found = cut_into_parts([dataset(305, files=files)], tmp_path, None)
    for part, after in pairwise(found):
        assert files[part.stop - 1] != files[after.start]
    assert {len(part) for part in found[:3]} == {100}, "longer than a part may be otherwise"


class TestWriting:
    def part(self, tmp_path, found, windows=None, clusters=None, sensor=None):
        return Part(
            dataset(len(found), found=found, windows=windows), 0, len(found), tmp_path / "part", clusters, sensor
        )

    def test_what_cannot_be_used_is_a_note_and_the_rest_is_there(self, tmp_path):
        found = (
            recording(seed=1, warnings=("cut short",)),
            FileError(tmp_path / "data" / "train 1", "is empty"),
            FileError("elsewhere.raw", "is empty"),
            recording(0),
            recording(7, seed=4),
        )
        part = self.part(tmp_path, found)
        assert write_part(part) == 5
        store = EventStore.open(part.folder)
        assert (store.sources, store.lengths.tolist()) == (("train 0", "train 4"), [20, 7])
        assert store.facts["rejected"] == [
            ["train 1", "is empty"],
            ["train 2", "elsewhere.raw: is empty"],
            ["train 3", "holds no events"],
        ]
        assert store.facts["warnings"] == [["train 0", "cut short"]]
        assert store.facts["unused"] == 1000 * (0 + 1 + 2 + 3 + 4), "also of those that were rejected"
        assert store.facts["sensors"] == [[34, 30, True]] * 2

    def test_windows_are_recordings_of_their_own_in_the_group_of_the_whole(self, tmp_path):
        whole = recording(300)
        windows = Windows(window=0.1, min_events=105)
        part = self.part(tmp_path, (whole,), windows)
        write_part(part)
        store = EventStore.open(part.folder)
        kept = [window for window in windows.cut(whole.events) if len(window.events) >= 105]
        assert 0 < len(kept) < 3
        assert store.sources == tuple(window.name("train 0") for window in kept)
        assert set(store.groups) == {"train 0"}
        assert (store.facts["left_out"], len(store.facts["sensors"])) == (3 - len(kept), len(kept))

    def test_a_recording_without_a_full_window_is_rejected_with_the_fullest(self, tmp_path):
        part = self.part(tmp_path, (recording(300),), Windows(window=0.1, min_events=1200))
        write_part(part)
        ((source, message),) = EventStore.open(part.folder).facts["rejected"]
        fullest = max(len(window.events) for window in Windows(window=0.1).cut(recording(300).events))
        assert (source, message) == ("train 0", f"none of its windows has 1,200 events; the fullest has {fullest}")

    def test_clusters_are_made_as_often_as_they_are_wanted_and_of_the_sensor_that_is_named(self, tmp_path):
        asked = []

        def engine(events, clusters, seed):
            asked.append((events.sensor, clusters, seed))
            return events[: clusters + seed]

        part = self.part(tmp_path, (recording(sensor=Sensor(9, 9)),), None, Clusters(3, 2, engine), Sensor(17, 17))
        write_part(part)
        store = EventStore.open(part.folder)
        assert [one.lengths.tolist() for one in store.sets("train")] == [[3], [4]]
        assert asked == [(Sensor(17, 17), 3, 0), (Sensor(17, 17), 3, 1)]
        assert store.facts["sensors"] == [[9, 9, True]], "its own, as the file has it"
        assert json_types(store) == ("<f4", "<f4")

    def test_a_part_is_written_again_only_if_a_recording_does_not_fit(self, tmp_path):
        part = self.part(tmp_path, (recording(declared=False), recording(sensor=Sensor(10, 8))))
        write_part(part)
        changed = fit_part(part, Sensor(40, 40))
        assert (changed.sensor, changed.folder.name) == (Sensor(40, 40), "part-40x40")
        alone = replace(part, dataset=dataset(1, found=part.dataset.found[:1]), stop=1, folder=tmp_path / "one")
        write_part(alone)
        assert fit_part(alone, Sensor(40, 40)) is alone, "measured by its events, which lie on the larger one too"
        assert fit_part(alone, Sensor(33, 40)) is not alone
        clustered = replace(alone, clusters=Clusters(3), folder=tmp_path / "clusters")
        write_part(clustered)
        assert fit_part(clustered, Sensor(40, 40)).sensor == Sensor(40, 40), "clusters depend on the sensor"
        assert fit_part(clustered, SMALL) is clustered


def json_types(store):
    return store.columns["x"].dtype.str, store.columns["rho"].dtype.str


class TestCommonSensor:
    def common(self, *sizes):
        return parts._common_sensor([parts._Size(*size) for size in sizes])

    @pytest.mark.parametrize(
        ("sizes", "sensor"),
        [
            ([(34, 30, True)], (34, 30)),
            ([(34, 30, True), (34, 30, True), (64, 64, True)], (34, 30)),
            ([(34, 30, True), (64, 64, True)], (64, 64)),
            ([(34, 30, True), (30, 34, True)], (34, 30)),
            ([(10, 20, False), (20, 10, False)], (20, 20)),
            ([(10, 20, False), (34, 30, True)], (34, 30)),
            ([(50, 20, False), (50, 20, False), (34, 30, True)], (50, 20)),
            ([(50, 20, False), (34, 30, True), (34, 30, True)], (34, 30)),
        ],
    )
    def test_most_recordings_stay_as_they_are_and_of_equal_ones_the_larger_sensor_wins(self, sizes, sensor):
        assert self.common(*sizes) == Sensor(*sensor)

    @given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.booleans()), min_size=1, max_size=8))
    def test_no_size_that_a_file_names_would_keep_more(self, sizes):
        chosen = self.common(*sizes)

        def kept(sensor):
            return sum(parts._Size(*size).fits(sensor) for size in sizes)

        named = [Sensor(width, height) for width, height, declared in sizes if declared]
        assert kept(chosen) >= max(map(kept, named), default=1)
        assert self.common(*reversed(sizes)) == chosen, "in whatever order they are read"


def test_what_was_scaled_is_one_line(tmp_path):
    def line(scaled):
        store = EventStore.create(
            tmp_path / f"store{len(list(tmp_path.iterdir()))}", [], sensor=(64, 48), classes=["a"]
        )
        return describe_scaled(replace(store, facts={"scaled": scaled}))

    assert line({"34x34": 3, "9x8": 1}) == "Recordings of other sensors are scaled to 64x48: 3 of 34x34, 1 of 9x8"
    many = line({f"{side}x{side}": 1 for side in range(1, 7)})
    assert many is not None
    assert many.endswith("1 of 5x5, ...")
    assert line({}) is line(None) is line([1]) is None


def test_rejected_recordings_are_a_table_that_other_programs_read(tmp_path):
    rows = [("a,b.raw", "train", 'says "no"'), ("two\nlines", "test", "é\udcff")]
    parts.write_rejected(rows, tmp_path)
    with (tmp_path / "rejected.csv").open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        assert [tuple(row) for row in csv.reader(file)] == [("source", "split", "reason"), *rows]


@pytest.mark.parametrize(
    ("name", "values", "merged"),
    [
        ("rejected", [[["a", "b"]], [["c", "d"]]], [["a", "b"], ["c", "d"]]),
        ("warnings", [[], [1]], [1]),
        ("left_out", [3, 4], 7),
        ("unused", [0, 4], 4),
        ("scaled", [{"9x9": 1}, {"9x9": 2, "8x8": 1}], {"9x9": 3, "8x8": 1}),
        ("made_of", ["one", "two"], "one; two"),
        ("drawn", ["test", "test"], "test"),
    ],
)
def test_what_two_stores_say_is_put_together(name, values, merged):
    assert _merged_facts([{name: value} for value in values]) == {name: merged}


def test_what_two_stores_do_not_both_say_of_themselves_is_left_out():
    assert _merged_facts([{"drawn": "test"}, {}]) == {}
    assert _merged_facts([{"plan": "a"}, {"plan": "b"}]) == {}
    assert _merged_facts([{"left_out": 3}, {}]) == {"left_out": 3}, "but counts are counts of those that have some"
