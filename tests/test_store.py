"""What goes into a store comes out of it, and a damaged one says so."""

import json
import pickle

import numpy as np
import pytest
import torch
from conftest import assert_same

from event2vec import Event2VecError, Events, EventStore, Sensor, sample_uniform
from event2vec.store import StoreWriter


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


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("x.bin", truncate, "x.bin: has .* expected 751 events of 2"),
        ("t.bin", lambda path: path.unlink(), "t.bin: has -1 bytes"),
        ("offsets.npy", truncate, "damaged store"),
        ("labels.npy", lambda path: path.unlink(), "damaged store"),
        ("labels.npy", lambda path: np.save(path, np.array([0, 0, 9, 0])), "its index does not fit"),
        ("offsets.npy", lambda path: np.save(path, np.array([0, 90, 50, 51, 751])), "its index does not fit"),
        ("labels.npy", lambda path: np.save(path, np.array(3)), "its index does not fit"),
        ("labels.npy", lambda path: np.save(path, np.array(["a", "b", "c", "d"])), "its index does not fit"),
        ("store.json", lambda path: path.unlink(), "has no store.json"),
        ("store.json", truncate, "cannot be read as the description"),
        ("store.json", edit(version=99), "layout version 99, this program reads 1"),
        ("store.json", edit(sensor=[0, 5]), "damaged store"),
        ("store.json", edit(types={"x": "|O"}), "damaged store"),
        ("store.json", edit(sources=[]), "its index does not fit"),
    ],
)
def test_a_damaged_store_says_what_is_wrong(store, file, change, message):
    change(store.folder / file)
    with pytest.raises(Event2VecError, match=message):
        EventStore.open(store.folder)


def test_a_folder_that_is_no_store_is_named(tmp_path):
    with pytest.raises(Event2VecError, match="event2vec prepare"):
        EventStore.open(tmp_path)
    with pytest.raises(Event2VecError, match="is not a folder"):
        EventStore.open(tmp_path / "missing")
