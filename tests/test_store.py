"""What goes into a store comes out of it, and a damaged one says so."""

import json
import os
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import assert_same
from torch.utils.data import DataLoader

from event2vec import Event2VecError, EventBatch, Events, EventStore, Sampling, Sensor, collate, sample_uniform
from event2vec.data.batches import read_together, sets_of
from event2vec.data.store_layout import CENTRES
from event2vec.data.store_reader import check_events
from event2vec.data.store_writer import StoreWriter
from event2vec.events import COLUMNS

NUMPY = b"\x93NUMPY\x01\x00\x28\x23"  # and a header of 9,000 bytes


@pytest.fixture
def recordings(make_events):
    return [(make_events(count, seed=count), count % 3) for count in (50, 0, 1, 700)]


@pytest.fixture
def store(recordings, tmp_path):
    return EventStore.create(
        tmp_path / "store",
        recordings,
        sensor=Sensor(34, 30),
        classes=["a", "b", "c"],
        splits=["train", "test", "train", "test"],
        sources=["w", "x", "y", "z"],
    )


def test_recordings_come_back_to_the_bit(store, recordings):
    assert len(store) == 4
    assert [store[index][1] for index in range(4)] == [label for _, label in recordings]
    for index, (events, _) in enumerate(recordings):
        assert_same(store[index][0], events)
    assert_same(store[-1][0], recordings[3][0])
    with pytest.raises(IndexError):
        store[4]


def test_raw_events_take_the_smallest_types(store):
    types = json.loads((store.folder / "store.json").read_text())["types"]
    assert types == {"x": "<u2", "y": "<u2", "t": "<u4", "p": "|b1", "rho": "ones"}
    assert not (store.folder / "rho.bin").exists()


def test_types_widen_when_a_recording_needs_it(make_events, tmp_path):
    plain = make_events(20)
    centres = Events.from_arrays([0.5, 2.0], [1.0, 2.0], [0, 5], [True, False], sensor=plain.sensor, rho=[2, 3])
    long = Events.from_arrays([1, 2], [1, 2], [0, 2**33], [True, False], sensor=plain.sensor)
    written = [(plain, 0), (centres, 0), (long, 0), (plain, 0)]
    store = EventStore.create(tmp_path / "store", written, sensor=plain.sensor, classes=["only"])
    for index, (events, _) in enumerate(written):
        assert_same(store[index][0], events)


@pytest.mark.parametrize("indices", [(0, 1, 2, 3), (3, 3), (1,), (2, 0)])
@pytest.mark.parametrize("clustered", [False, True])
def test_recordings_read_together_are_those_read_alone(recordings, tmp_path, indices, clustered):
    if clustered:
        recordings = [(replace(events, x=events.x + 0.25, rho=events.rho * 3), label) for events, label in recordings]
    sensor = Sensor(35, 30)
    recordings = [(replace(events, sensor=sensor), label) for events, label in recordings]
    store = EventStore.create(tmp_path / "store", recordings, sensor=sensor, classes=["a", "b", "c"])
    batch, labels = read_together([(store, index) for index in indices])
    alone = EventBatch.pad([store[index][0] for index in indices])
    for name in (*COLUMNS, "valid"):
        assert torch.equal(getattr(batch, name), getattr(alone, name)), name
        assert getattr(batch, name).dtype == getattr(alone, name).dtype
    assert labels.tolist() == [store[index][1] for index in indices]


@pytest.mark.parametrize("length", [10, 300, 5000])
def test_sampling_from_the_store_is_sampling_the_recording(store, length):
    for index in range(len(store)):
        sample, label = store.sample(index, length, torch.Generator().manual_seed(index))
        whole, same_label = store[index]
        assert_same(sample, sample_uniform(whole, length, torch.Generator().manual_seed(index)))
        assert label == same_label


def test_splits_and_subsets_show_their_recordings(store):
    test = store.split("test")
    assert (test.sources, test.splits, len(test)) == (("x", "z"), ("test", "test"), 2)
    assert_same(test[1][0], store[3][0])
    assert test.subset([1, 0]).sources == ("z", "x")
    assert test.subset([1]).lengths.tolist() == [700]
    assert store.labels.tolist() == [2, 0, 1, 1]
    with pytest.raises(Event2VecError, match="no split 'valid'; it has test, train"):
        store.split("valid")


@pytest.fixture
def sets(make_events, tmp_path):
    """Three sets of clusters of each of two recordings to train on, and one to test on."""
    recordings = [(make_events(5 + row, seed=row), int(row > 3)) for row in range(7)]
    splits = ["train"] * 3 + ["test"] + ["train"] * 3
    names = {"sensor": recordings[0][0].sensor, "classes": ["a", "b"], "splits": splits, "sets": [0, 1, 2, 0, 0, 1, 2]}
    return EventStore.create(tmp_path / "sets", recordings, **names)


def test_a_store_shows_each_recording_once_and_its_sets_on_request(sets):
    assert (len(sets), sets.splits, sets.sources) == (3, ("train", "test", "train"), ("0", "3", "4"))
    assert sets.split("train").lengths.tolist() == [5, 9]
    first, *others = sets.sets("train")
    assert first.rows.tolist() == sets.split("train").rows.tolist()
    assert [one.lengths.tolist() for one in others] == [[6, 10], [7, 11]]
    assert all((one.sources, one.labels.tolist()) == (("0", "4"), [0, 1]) for one in (first, *others))
    assert [len(one) for one in sets.sets("test")] == [1]


def test_some_recordings_of_a_store_have_their_own_sets(sets):
    last = sets.subset([2, 1])
    assert [one.lengths.tolist() for one in last.sets("train")] == [[9], [10], [11]]
    assert [one.lengths.tolist() for one in sets.sets("train")[1].sets("train")] == [[5, 9], [6, 10], [7, 11]]
    again = pickle.loads(pickle.dumps(sets.sets("train")[2]))
    assert_same(again[1][0], sets.sets("train")[2][1][0])


def test_random_events_are_drawn_from_the_first_set(sets):
    assert [one.lengths.tolist() for one in sets_of(sets, Sampling())] == [[5, 9]]
    assert len(sets_of(sets, Sampling(method="clusters"))) == 3


def test_recordings_with_different_numbers_of_sets_are_named(make_events, tmp_path):
    recordings = [(make_events(9, seed=index), 0) for index in range(3)]
    store = EventStore.create(tmp_path / "store", recordings, sensor=(34, 30), classes=["a"], sets=[0, 1, 0])
    with pytest.raises(Event2VecError, match="has 1 to 2 sets of clusters per recording in 'train'"):
        store.sets("train")


@pytest.mark.parametrize(("sets", "sources"), [([1], "a"), ([0, 2], "aa"), ([0, 1], "ab")])
def test_a_set_must_follow_the_one_before_it(make_events, tmp_path, sets, sources):
    recordings = [(make_events(9), 0) for _ in sets]
    with pytest.raises(ValueError, match=r"set \d of a recording must follow its set \d"):
        EventStore.create(
            tmp_path / "store", recordings, sensor=(34, 30), classes=["a"], sets=sets, sources=list(sources)
        )


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: np.save(folder / "sets.npy", np.array([1, 2, 3, 0, 0, 1, 2])),
        lambda folder: np.save(folder / "sets.npy", np.array([0, 1, 2, 3, 0, 1, 2])),
        lambda folder: np.save(folder / "sets.npy", np.array([0, 1, 2, 0, -1, 1, 2])),
        lambda folder: np.save(folder / "labels.npy", np.array([0, 0, 1, 0, 1, 1, 1])),
        lambda folder: edit(sources=list("aaabccd"))(folder / "store.json"),
        lambda folder: edit(splits=["train"] * 3 + ["test"] * 2 + ["train"] * 2)(folder / "store.json"),
    ],
)
def test_sets_that_do_not_belong_to_their_recordings_are_damage(sets, change):
    change(sets.folder)
    with pytest.raises(Event2VecError, match="its sets of clusters do not match its recordings"):
        EventStore.open(sets.folder)


def test_a_store_of_clusters_is_written_in_its_final_types(make_events, tmp_path):
    """A recording that is short enough stays as it is, in whole pixels, and comes before the first centre."""
    short = make_events(5)
    with StoreWriter(tmp_path / "store", sensor=short.sensor, classes=["a"], types=CENTRES) as writer:
        writer.append(short, 0, "train", "x")
        size = {name: column.path.stat().st_ino for name, column in writer.columns.items()}
        centres = Events.from_arrays([0.5], [1.5], [0], [True], sensor=short.sensor, rho=[2])
        writer.append(centres, 0, "train", "y")
        assert size == {name: column.path.stat().st_ino for name, column in writer.columns.items()}, "written once"
    store = EventStore.open(tmp_path / "store")
    assert_same(store[0][0], short)
    assert_same(store[1][0], centres)


def test_columns_of_one_store_go_into_another_as_they_are(store, tmp_path):
    with StoreWriter(tmp_path / "copy", sensor=store.sensor, classes=store.classes) as writer:
        for row in range(4):
            place = slice(store.offsets[row], store.offsets[row + 1])
            columns = {name: column[place] for name, column in store.columns.items()}
            writer.append_columns(columns, int(store.labels[row]), store.splits[row], store.sources[row])
    for path in store.folder.iterdir():
        assert (tmp_path / "copy" / path.name).read_bytes() == path.read_bytes(), path.name


def test_a_store_travels_to_another_process_by_name(store):
    sent = pickle.dumps(store.split("test"))
    assert len(sent) < 2000, "the events themselves must not be sent"
    assert_same(pickle.loads(sent)[1][0], store[3][0])


def test_an_error_while_writing_leaves_nothing(make_events, tmp_path):
    folder = tmp_path / "sub" / "store"

    def write_and_fail():
        with StoreWriter(folder, sensor=Sensor(34, 30), classes=["a"]) as writer:
            writer.append(make_events(5), 0, "train", "x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_and_fail()
    assert list(folder.parent.iterdir()) == []
    with StoreWriter(folder, sensor=Sensor(34, 30), classes=["a"]) as writer:
        with pytest.raises(ValueError, match="sensor of 34x30, got 5x5"):
            writer.append(make_events(5, sensor=Sensor(5, 5)), 0, "train", "x")
        with pytest.raises(ValueError, match="label 1, expected one of 1"):
            writer.append(make_events(5), 1, "train", "x")
    with pytest.raises(Event2VecError, match="exists already"):
        StoreWriter(folder, sensor=Sensor(34, 30), classes=["a"])


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def edit(**facts):
    def change(path):
        path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))

    return change


def edit_text(path):
    path.write_text(path.read_text().replace('"version": 3', '"version": 3, "version": 4'))


def instead(kind):
    def change(path):
        path.unlink()
        {"folder": path.mkdir, "pipe": lambda: os.mkfifo(path), "loop": lambda: path.symlink_to(path)}[kind]()

    return change


def claim(rows):
    """A header that numpy would take memory for, without the numbers."""

    def change(path):
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "<i8", "fortran_order": False, "shape": rows})

    return change


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("x.bin", truncate, "x.bin has .* expected 751 events of 2"),
        ("t.bin", lambda path: path.unlink(), "t.bin is missing"),
        ("y.bin", instead("folder"), "y.bin is not a file"),
        ("p.bin", instead("pipe"), "p.bin is not a file"),
        ("p.bin", instead("loop"), "p.bin is missing"),
        ("offsets.npy", truncate, "offsets.npy has .* expected 5 whole numbers"),
        ("offsets.npy", instead("folder"), "offsets.npy is not a file"),
        ("offsets.npy", instead("pipe"), "offsets.npy is not a file"),
        ("offsets.npy", claim((10**12,)), r"offsets.npy has \(10+,\) of '<i8' in 128 bytes"),
        ("offsets.npy", claim((5,)), "offsets.npy has .* in 128 bytes"),
        ("offsets.npy", lambda path: np.save(path, np.zeros((5, 1), int)), r"offsets.npy has \(5, 1\)"),
        ("offsets.npy", lambda path: np.save(path, np.array([0, 90, 50, 51, 751])), "its index does not match"),
        ("offsets.npy", lambda path: np.save(path, np.array([0, 2**63 - 1, 50, 51, 751])), "its index does not match"),
        ("labels.npy", lambda path: path.unlink(), "labels.npy is missing"),
        ("labels.npy", lambda path: path.write_bytes(b""), "labels.npy is not a NumPy file"),
        ("labels.npy", lambda path: path.write_bytes(NUMPY + b"(" * 9000), "labels.npy is not a NumPy file"),
        ("labels.npy", lambda path: np.save(path, np.array([0, 0, 9, 0])), "its index does not match"),
        ("labels.npy", lambda path: np.save(path, np.array(3)), r"labels.npy has \(\)"),
        ("labels.npy", lambda path: np.save(path, np.array(["a", "b", "c", "d"])), "labels.npy has .*<U1"),
        ("labels.npy", lambda path: np.save(path, np.array([{}] * 4), allow_pickle=True), "labels.npy has .*O"),
        ("store.json", lambda path: path.unlink(), "has no store.json"),
        ("store.json", instead("folder"), "store.json: is not a file"),
        ("store.json", instead("pipe"), "store.json: is not a file"),
        ("store.json", truncate, "store.json: is not JSON"),
        ("store.json", edit_text, "store.json: is not JSON: a name is given twice"),
        ("store.json", lambda path: path.write_text("[" * 100_000), "store.json: is nested too deeply"),
        ("store.json", lambda path: path.write_text("[]"), "store.json: is not a JSON object"),
        ("store.json", lambda path: path.write_text('{"version": 1' + "9" * 5000 + "}"), "5,001 digits"),
        ("store.json", lambda path: path.write_text('{"version": Infinity}'), "Infinity is not a number"),
        ("store.json", lambda path: path.write_bytes(b"\xff"), "is not UTF-8 text"),
        ("store.json", edit(version=99), "layout version 99, this program reads 3"),
        (
            "store.json",
            edit(version=2),
            "layout version 2, this program reads 3. Remove the folder and prepare it again",
        ),
        ("sets.npy", lambda path: path.unlink(), "sets.npy is missing"),
        ("sets.npy", lambda path: np.save(path, np.zeros(3, int)), "sets.npy has .* expected 4 whole numbers"),
        ("store.json", edit(sensor=[0, 5]), "sensor width must be from 1"),
        ("store.json", edit(sensor="34x30"), "sensor must be a width and a height, got '34x30'"),
        ("store.json", edit(sensor=[True, 5]), "sensor must be a whole number, got True"),
        ("store.json", edit(events="751"), "events must be a whole number, got '751'"),
        ("store.json", edit(events=-1), "events must be a whole number, got -1"),
        ("store.json", edit(types={"x": "|O"}), "column x is of type '|O', expected <u2 or <f4"),
        ("store.json", edit(types=[["x", "<u2"]]), "types must name one type for each column"),
        ("store.json", edit(types={"x": ["<u2"]}), "column x is of type"),
        ("store.json", edit(sources=[]), "offsets.npy has .* expected 1 whole numbers"),
        ("store.json", edit(sources=[1, 2, 3, 4]), r"sources must be a list of strings, got \[1"),
        ("store.json", edit(splits=["train"] * 3), "its index does not match"),
        ("store.json", edit(groups=["anna"] * 5), "its index does not match"),
        ("store.json", edit(groups=[None] * 4), r"groups must be a list of strings, got \[None"),
        ("store.json", edit(splits=None), "splits must be a list of strings, got None"),
        ("store.json", edit(classes="abc"), "classes must be a list of strings, got 'abc'"),
        ("store.json", edit(classes=["a", "b", "a"]), "two classes are called 'a'"),
        ("store.json", edit(classes=["a", "b", "\x1b[2J"]), r"a class is called '\\x1b\[2J'"),
        ("store.json", edit(classes=["a", "b", "\udcff"]), r"a class is called '\\udcff'"),
    ],
)
def test_a_damaged_store_says_what_is_wrong(store, file, change, message):
    change(store.folder / file)
    with pytest.raises(Event2VecError, match=message) as caught:
        EventStore.open(store.folder)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("x", 34, "an event at x = 34 outside the sensor, which is 34x30"),
        ("y", 30, "an event at y = 30 outside the sensor"),
        ("t", 2**32 - 1, "times that decrease"),
        ("p", 2, "polarities other than 0 and 1"),
    ],
)
def test_events_that_no_camera_gives_are_named_when_they_are_read(store, column, value, message):
    """Opening stays quick; what was read is checked before anything learns from it."""
    path = store.folder / f"{column}.bin"
    content = bytearray(path.read_bytes())
    size = len(content) // 751
    content[60 * size : 61 * size] = value.to_bytes(size, "little")  # the tenth event of the recording z
    path.write_bytes(content)
    damaged = EventStore.open(store.folder)
    assert_same(damaged[0][0], store[0][0])
    for read in (lambda: damaged[3], lambda: read_together([(damaged, index) for index in range(4)])):
        with pytest.raises(Event2VecError, match=rf"store: is a damaged store: recording 3 \(z\) has {message}"):
            read()
    with pytest.raises(Event2VecError, match=message):
        damaged.split("test").sample(1, 699, torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("x", np.nan, "x = nan"),
        ("y", -0.5, "y = -0.5"),
        ("x", np.inf, "x = inf"),
        ("rho", 0.5, "rho below 1 or not a number"),
        ("rho", np.nan, "rho below 1 or not a number"),
        ("rho", np.inf, "rho below 1 or not a number"),
        ("t", -1, "are negative"),
    ],
)
def test_clusters_are_checked_too(make_events, tmp_path, column, value, message):
    long = {"t": [0, 2**33], "sensor": make_events(1).sensor, "rho": [2, 3]}
    events = Events.from_arrays([0.5, 2.0], [0.5, 2.0], p=[True, False], **long)
    store = EventStore.create(tmp_path / "store", [(events, 0)], sensor=events.sensor, classes=["a"])
    path = store.folder / f"{column}.bin"
    content = np.fromfile(path, "<i8" if column == "t" else "<f4")
    content[0] = value
    content.tofile(path)
    with pytest.raises(Event2VecError, match=message):
        EventStore.open(store.folder)[0]


def test_a_folder_that_is_no_store_is_named(tmp_path):
    with pytest.raises(Event2VecError, match="event2vec prepare"):
        EventStore.open(tmp_path)
    with pytest.raises(Event2VecError, match="is not a folder"):
        EventStore.open(tmp_path / "missing")


def test_a_store_is_shown_in_a_line_and_read_by_a_data_loader(make_events, tmp_path):
    recordings = [(make_events(10 + number, seed=number), number % 2) for number in range(4)]
    splits = ["train", "train", "train", "test"]
    store = EventStore.create(tmp_path / "store", recordings, sensor=(34, 30), classes=["a", "b"], splits=splits)
    assert repr(store) == f"EventStore(3 train, 1 test, 2 classes, 34x30, {tmp_path / 'store'})"
    (batch, labels), *_ = DataLoader(store, batch_size=4, collate_fn=collate)  # type: ignore[arg-type]  # any sequence
    assert labels.tolist() == [0, 1, 0, 1]
    assert batch.valid.sum(dim=1).tolist() == [10, 11, 12, 13]


def test_groups_are_kept_and_a_recording_without_one_is_by_itself(tmp_path, make_events):
    recordings = [(make_events(20, seed=index), 0) for index in range(4)]
    names: dict[str, Any] = {"sensor": "34x30", "classes": ["a"], "sets": [0, 1, 0, 0]}
    store = EventStore.create(tmp_path / "people", recordings, groups=["anna", "anna", "ben", "anna"], **names)
    assert EventStore.open(store.folder).groups == ("anna", "ben", "anna"), "once for each recording"
    assert store.subset([1]).groups == ("ben",)
    alone = EventStore.create(tmp_path / "alone", recordings, sources=["x", "x", "y", "z"], **names)
    assert alone.groups == alone.sources == ("x", "y", "z")
    with pytest.raises(ValueError, match="set 1 of a recording must follow its set 0"):
        EventStore.create(tmp_path / "mixed", recordings, groups=["anna", "ben", "ben", "anna"], **names)


def test_labels_count_in_other_classes_by_name(store):
    wider = store.with_classes(["z", *reversed(store.classes)])
    assert [wider.classes[label] for label in wider.labels] == [store.classes[label] for label in store.labels]
    assert pickle.loads(pickle.dumps(wider)).labels.tolist() == wider.labels.tolist()
    assert store.with_classes(store.classes) is store
    lacking = [name for name in store.classes if name != store.classes[store.labels[0]]]
    with pytest.raises(Event2VecError, match=f"has recordings of '{store.classes[store.labels[0]]}', expected one of"):
        store.with_classes(lacking)
    rest = [index for index, label in enumerate(store.labels) if label != store.labels[0]]
    assert store.subset(rest).with_classes(lacking).labels.min() >= 0


class TestCreating:
    @pytest.mark.parametrize("count", [2, 4])
    @pytest.mark.parametrize(
        ("name", "values"), [("splits", "train"), ("sources", "xyzw"), ("groups", "abcd"), ("sets", 0)]
    )
    def test_names_for_more_or_fewer_recordings_are_refused_and_leave_nothing(
        self, name, values, count, make_events, tmp_path
    ):
        given = {name: [values] * count, "sources": list("uvwx"[:3])} | {name: [values] * count}
        with pytest.raises(ValueError, match=f"{name}.* must have one entry for each recording"):
            EventStore.create(tmp_path / "store", [(make_events(3), 0)] * 3, sensor=(34, 30), classes=["a"], **given)
        assert os.listdir(tmp_path) == []

    def test_without_names_all_recordings_train_and_are_called_by_number(self, make_events, tmp_path):
        recordings = ((make_events(3), number % 2) for number in range(3))
        store = EventStore.create(tmp_path / "store", recordings, sensor="34x30", classes=["a", "b"])
        assert (store.sources, store.splits, store.groups) == (("0", "1", "2"), ("train",) * 3, ("0", "1", "2"))
        assert store.labels.tolist() == [0, 1, 0]

    def test_a_store_may_have_no_recordings(self, tmp_path):
        store = EventStore.create(tmp_path / "store", [], sensor=(34, 30), classes=["a"])
        assert (len(store), store.lengths.tolist(), store.durations.tolist(), store.recorded.tolist()) == (
            0,
            [],
            [],
            [],
        )
        assert repr(store) == f"EventStore(no recordings, 1 class, 34x30, {store.folder})"
        with pytest.raises(Event2VecError, match="has no split 'train'; it has none"):
            store.split("train")
        with pytest.raises(IndexError, match="no recording 0: the store has 0 recordings"):
            store[0]

    @pytest.mark.parametrize("label", [-1, 1])
    def test_labels_outside_the_classes_are_refused(self, label, make_events, tmp_path):
        with pytest.raises(ValueError, match=f"^0: label {label}, expected one of 1 classes$"):
            EventStore.create(tmp_path / "store", [(make_events(3), label)], sensor=(34, 30), classes=["a"])


class TestShowing:
    @pytest.mark.parametrize(
        "wrong", [[True, False, True, False], np.array([True, False, True, False]), np.array([0.0, 1.0])]
    )
    def test_a_mask_is_not_taken_for_indices(self, store, wrong):
        with pytest.raises(ValueError, match=r"recordings are chosen by index, got .*\. For a mask: np.flatnonzero"):
            store.subset(wrong)
        assert store.subset(np.flatnonzero([True, False, True, False])).sources == ("w", "y")

    def test_any_whole_numbers_are_indices_also_from_the_end(self, store):
        assert store.subset(np.array([3, -4], np.int8)).sources == ("z", "w")
        assert store.subset([1, 1]).sources == ("x", "x")
        assert store.subset([]).sources == ()
        with pytest.raises(IndexError):
            store.subset([4])

    @pytest.mark.parametrize("index", [4, -5])
    def test_a_recording_that_there_is_not_is_named(self, store, index):
        for read in (store.__getitem__, store.length, lambda index: store.sample(index, 5, torch.Generator())):
            with pytest.raises(IndexError, match=f"no recording {index}: the store has 4 recordings"):
                read(index)

    def test_a_part_of_a_part_counts_in_itself(self, store):
        part = store.split("test").subset([1])
        assert (part[0][1], part[-1][1], part.length(0), part.labels.tolist()) == (1, 1, 700, [1])
        with pytest.raises(IndexError, match="no recording 1: the store has 1 recording"):
            part[1]
        assert part.all_rows().sources == store.sources

    def test_measures_of_recordings_are_those_of_their_events(self, store, recordings):
        assert store.durations.tolist() == [events.duration for events, _ in recordings]
        assert store.lengths.tolist() == store.recorded.tolist() == [len(events) for events, _ in recordings]
        assert [store.length(index) for index in range(4)] == store.lengths.tolist()
        part = store.subset([3, 1, 0])
        assert part.durations.tolist() == [recordings[index][0].duration for index in (3, 1, 0)]
        assert part.shard_numbers.tolist() == [0, 0, 0]

    def test_clusters_count_the_events_that_they_stand_for(self, tmp_path):
        centres = Events.from_arrays([0.5, 2.0], [1.0, 2.0], [0, 5], [True, False], sensor=(5, 5), rho=[2, 3.5])
        store = EventStore.create(tmp_path / "store", [(centres, 0), (centres[:1], 0)], sensor=(5, 5), classes=["a"])
        assert store.recorded.tolist() == [5.5, 2.0]
        assert store.subset([1]).recorded.tolist() == [2.0]

    def test_other_splits_need_a_name_for_each_recording_and_change_no_file(self, store):
        before = (store.folder / "store.json").read_bytes()
        test = store.split("test")
        divided = test.divided(["a", "b"])
        assert (divided.splits, divided.split("b").sources) == (("a", "b"), ("z",))
        assert divided.all_splits == ("train", "a", "train", "b")
        with pytest.raises(ValueError, match="zip"):
            test.divided(["a"])
        assert (store.folder / "store.json").read_bytes() == before

    def test_a_split_with_a_long_list_of_others_is_one_line(self, store):
        many = store.divided([f"part {number} " * 20 for number in range(4)])
        with pytest.raises(Event2VecError, match="has no split 'train'; it has part 0") as caught:
            many.split("train")
        assert len(str(caught.value)) < len(str(store.folder)) + 200


class TestTypesOfColumns:
    """The smallest that holds all values; the limits are those of the types."""

    def types(self, store):
        return json.loads((store.folder / "store.json").read_text())["types"]

    @pytest.mark.parametrize(("duration", "kind"), [(2**32 - 1, "<u4"), (2**32, "<i8")])
    def test_times_beyond_32_bits_take_64(self, duration, kind, tmp_path):
        events = Events.from_arrays([0, 1], [0, 1], [0, duration], [0, 1], sensor=(5, 5))
        store = EventStore.create(tmp_path / "store", [(events, 0), (events[:1], 0)], sensor=(5, 5), classes=["a"])
        assert self.types(store)["t"] == kind
        assert store.durations.tolist() == [duration, 0]
        assert_same(store[0][0], events)

    @pytest.mark.parametrize(("x", "kind"), [([0, 65535], "<u2"), ([0, 0.5], "<f4")])
    def test_the_last_column_of_the_largest_sensor_fits_in_16_bits(self, x, kind, tmp_path):
        events = Events.from_arrays(x, [0, 65535], [0, 1], [0, 1], sensor=(65536, 65536))
        store = EventStore.create(tmp_path / "store", [(events, 0)], sensor=(65536, 65536), classes=["a"])
        assert (self.types(store)["x"], self.types(store)["y"]) == (kind, "<u2")
        assert_same(store[0][0], events)

    @pytest.mark.parametrize("first", [0, 1, 2])
    def test_a_count_other_than_one_gives_each_event_its_own(self, first, make_events, tmp_path):
        """In whichever recording it comes, and wherever in it."""
        plain = make_events(3)
        counted = Events.from_arrays([1] * 3, [1] * 3, range(3), [1] * 3, sensor=plain.sensor, rho=[1, 1, 4])
        written = [plain, plain, plain]
        written[first] = counted
        store = EventStore.create(
            tmp_path / "store", [(events, 0) for events in written], sensor=plain.sensor, classes=["a"]
        )
        assert self.types(store)["rho"] == "<f4"
        for index, events in enumerate(written):
            assert_same(store[index][0], events)

    def test_ones_that_are_written_out_take_no_file(self, tmp_path):
        ones = Events.from_arrays([1] * 3, [1] * 3, range(3), [1] * 3, sensor=(5, 5), rho=[1, 1, 1])
        store = EventStore.create(tmp_path / "store", [(ones, 0)], sensor=(5, 5), classes=["a"])
        assert self.types(store)["rho"] == "ones"
        assert_same(store[0][0], ones)


class TestReadingTogether:
    def test_recordings_without_events_are_rows_without_columns(self, store):
        batch, labels = read_together([(store, 1), (store, 1)])
        assert (tuple(batch.x.shape), labels.tolist()) == ((2, 0), [0, 0])

    def test_stores_that_share_their_files_are_read_together(self, store):
        """Sets of clusters are such stores."""
        test, train = store.split("test"), store.split("train")
        batch, labels = read_together([(test, 1), (train, 0), (test, 0)])
        assert batch.valid.sum(dim=1).tolist() == [700, 50, 0]
        assert labels.tolist() == [1, 2, 0]
        assert_same(batch.row(1), store[0][0])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"x": [[0, 8]]}, "an event at x = 8 outside the sensor, which is 8x6"),
        ({"y": [[6, 0]]}, "an event at y = 6 outside the sensor, which is 8x6"),
        ({"y": [[-1, 0]]}, "an event at y = -1 outside"),
        ({"x": [[np.nan, 0]]}, "an event at x = nan outside"),
        ({"t": [[-1, 0]]}, "times that decrease, are negative or are too large"),
        ({"t": [[5, 4]]}, "times that decrease"),
        ({"t": [[0, 2**62]]}, "times that decrease, are negative or are too large"),
        ({"p": [[0, 2]]}, "polarities other than 0 and 1"),
        ({"rho": [[1, 0.5]]}, "rho below 1 or not a number"),
        ({"rho": [[1, np.nan]]}, "rho below 1 or not a number"),
        ({"rho": [[1, 2.0**53]]}, "rho below 1 or not a number"),
    ],
)
def test_what_events_guarantee_is_checked_in_every_row(rows, message):
    """In a batch of rows, of which any may be the damaged one."""
    good: dict[str, Any] = {"x": [0, 7], "y": [5, 0], "t": [0, 2**62 - 1], "p": [0, 1], "rho": [1, 2.0**52]}

    def check(table):
        x, y, rho = (np.array(table[name], np.float32) for name in ("x", "y", "rho"))
        check_events(x, y, np.array(table["t"], np.int64), np.array(table["p"], np.uint8), rho, Sensor(8, 6))

    check({name: [row, row] for name, row in good.items()})
    check({name: np.zeros((2, 0)) for name in COLUMNS})
    ((name, (wrong,)),) = rows.items()
    for pair in ([good[name], wrong], [wrong, good[name]]):
        with pytest.raises(ValueError, match=message):
            check({each: [row, row] for each, row in good.items()} | {name: pair})
