"""What goes into a store comes out of it, and a damaged one says so."""

import json
import os
import pickle

import numpy as np
import pytest
import torch
from conftest import assert_same
from torch.utils.data import DataLoader

from event2vec import Event2VecError, Events, EventStore, Sensor, collate, sample_uniform
from event2vec.data.store import StoreWriter

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


def test_sets_of_a_split_hold_the_same_recordings(make_events, tmp_path):
    recordings = [(make_events(9, seed=index), 0) for index in range(4)]
    names = {"sensor": recordings[0][0].sensor, "classes": ["a"], "splits": ["train", "train 2", "train", "train 2"]}
    store = EventStore.create(tmp_path / "store", recordings, sources=["one", "one", "two", "two"], **names)
    assert [one.rows.tolist() for one in store.sets("train")] == [[0, 2], [1, 3]]
    other = EventStore.create(tmp_path / "other", recordings, sources=["one", "two", "two", "one"], **names)
    with pytest.raises(Event2VecError, match="other recordings in 'train 2' than in 'train'"):
        other.sets("train")


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
    path.write_text(path.read_text().replace('"version": 1', '"version": 1, "version": 2'))


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
        ("offsets.npy", lambda path: np.save(path, np.array([0, 90, 50, 51, 751])), "its index does not fit"),
        ("offsets.npy", lambda path: np.save(path, np.array([0, 2**63 - 1, 50, 51, 751])), "its index does not fit"),
        ("labels.npy", lambda path: path.unlink(), "labels.npy is missing"),
        ("labels.npy", lambda path: path.write_bytes(b""), "labels.npy is not what numpy writes"),
        ("labels.npy", lambda path: path.write_bytes(NUMPY + b"(" * 9000), "labels.npy is not what numpy writes"),
        ("labels.npy", lambda path: np.save(path, np.array([0, 0, 9, 0])), "its index does not fit"),
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
        ("store.json", lambda path: path.write_bytes(b"\xff"), "is not text in UTF-8"),
        ("store.json", edit(version=99), "layout version 99, this program reads 1"),
        ("store.json", edit(sensor=[0, 5]), "sensor width must be from 1"),
        ("store.json", edit(sensor="34x30"), "sensor must be width and height, got '34x30'"),
        ("store.json", edit(sensor=[True, 5]), "sensor must be a whole number, got True"),
        ("store.json", edit(events="751"), "events must be a whole number, got '751'"),
        ("store.json", edit(events=-1), "events must be a whole number, got -1"),
        ("store.json", edit(types={"x": "|O"}), "column x is of type '|O', expected <u2 or <f4"),
        ("store.json", edit(types=[["x", "<u2"]]), "types must be one for each column"),
        ("store.json", edit(types={"x": ["<u2"]}), "column x is of type"),
        ("store.json", edit(sources=[]), "offsets.npy has .* expected 1 whole numbers"),
        ("store.json", edit(sources=[1, 2, 3, 4]), r"sources must be a list of texts, got \[1"),
        ("store.json", edit(splits=["train"] * 3), "its index does not fit"),
        ("store.json", edit(splits=None), "splits must be a list of texts, got None"),
        ("store.json", edit(classes="abc"), "classes must be a list of texts, got 'abc'"),
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
        ("t", 2**32 - 1, "times that go back"),
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
    with pytest.raises(Event2VecError, match=rf"store: is a damaged store: recording 3 \(z\) has {message}"):
        damaged[3]
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
        ("t", -1, "begin below 0"),
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
    (batch, labels), *_ = DataLoader(store, batch_size=4, collate_fn=collate)
    assert labels.tolist() == [0, 1, 0, 1]
    assert batch.valid.sum(dim=1).tolist() == [10, 11, 12, 13]
