"""Data sets in the layouts that people download, and errors for those that do not fit."""

import os
import struct
import tarfile
from importlib import import_module
from pathlib import Path

import encoders
import numpy as np
import pytest
import scipy.io
import scipy.ndimage
import torch
from conftest import assert_same

from event2vec import Event2VecError, Event2VecWarning, Sensor, open_dataset, read_events
from event2vec.data.datasets import DATASETS, digits, open_splits
from event2vec.io import read_recording

ASL_DVS_FILE = {"ts": [[5.0], [9.0]], "x": [[3], [4]], "y": [[1], [2]], "pol": [[1], [0]]}

CLOCK = 5_000_000  # what the camera's clock shows at the first event of the gesture file


def write_gestures(root):
    """One file with ten events a millisecond apart and two gestures in it, for each split."""
    root.mkdir(parents=True)
    body = b"".join(struct.pack("<Ii", number << 17 | 3 << 2 | 3, CLOCK + 1000 * number) for number in range(10))
    header = b"#!AER-DAT3.1\r\n#Source 1: DVS128\r\n#!END-HEADER\r\n"
    for split, user in (("train", "user01_led"), ("test", "user24_led")):
        (root / f"trials_to_{split}.txt").write_text(f"{user}.aedat\n\n")
        (root / f"{user}.aedat").write_bytes(header + encoders.aedat31_packet(1, body, 10))
        rows = f"1,{CLOCK + 2000},{CLOCK + 5000}\n11,{CLOCK + 6000},{CLOCK + 99_000}\n"
        (root / f"{user}_labels.csv").write_text("class,startTime_usec,endTime_usec\n" + rows)


def write_npz(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    encoders.npz(path)


@pytest.mark.parametrize("nested", ["", "DvsGesture", "extract/DvsGesture"])
def test_gestures_are_cut_out_of_their_files_by_the_labels(nested, tmp_path):
    write_gestures(tmp_path / "data" / nested)
    dataset = open_dataset("dvs_gesture", tmp_path / "data", "train")
    assert (len(dataset), dataset.labels, len(dataset.classes)) == (2, (0, 10), 11)
    assert dataset.sources == ("user01_led.aedat#1", "user01_led.aedat#2")
    (first, label), (second, _) = dataset[0], dataset[1]
    assert label == 0
    assert (first.x.tolist(), first.t.tolist()) == ([2, 3, 4], [0, 1000, 2000]), "the stop does not belong to it"
    assert second.x.tolist() == [6, 7, 8, 9]
    assert first.sensor == Sensor(128, 128)
    assert dataset.read(0).start == CLOCK + 2000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.unlink(), "it names the gestures of the recording"),
        (lambda path: path.write_text("h\n12,1,2\n"), "has class 12, expected 1 to 11"),
        (lambda path: path.write_text("h\na,1,2\n"), "is not a table of class, start and end"),
        (lambda path: path.write_text("h\n1,1,2\n"), "no events from 1 to 2 us"),
        (lambda path: path.write_bytes(b"h\n\xff,1,2\n"), "is not UTF-8 text"),
        (lambda path: path.write_text("h\n" + "1" * 60_000 + ",1,2\n"), "is not a table of class, start and end"),
        (lambda path: path.write_text(f"h\n1,{2**64},{2**65}\n"), f"has a gesture from {2**64} to"),
        (lambda path: path.write_text("h\n1,-5,2\n"), "has a gesture from -5 to 2 us"),
        (lambda path: path.write_text("h\n1,9,2\n"), "has a gesture from 9 to 2 us"),
    ],
)
def test_labels_that_do_not_fit_are_told_when_the_recording_is_read(change, message, tmp_path):
    write_gestures(tmp_path / "data")
    change(tmp_path / "data" / "user01_led_labels.csv")
    dataset = open_dataset("dvs_gesture", tmp_path / "data", "train")
    with pytest.raises(Event2VecError, match=message):
        dataset[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n", "names no files"),
        (b"\xff.aedat", "is not UTF-8 text"),
        (b"a" * 999, "names 'a{10,}"),
        (b"../a", "names '../a'"),
        (b"a\0\0.aedat", "names 'a.*x00"),
    ],
)
def test_a_list_of_trials_that_names_no_files_is_an_error(content, message, tmp_path):
    write_gestures(tmp_path / "data")
    (tmp_path / "data" / "trials_to_train.txt").write_bytes(content)
    with pytest.raises(Event2VecError, match=message) as caught:
        open_dataset("dvs_gesture", tmp_path / "data", "train")
    assert len(str(caught.value)) < 500


def test_a_list_of_recordings_without_a_gesture_is_an_error(tmp_path):
    write_gestures(tmp_path / "data")
    (tmp_path / "data" / "user01_led_labels.csv").write_text("class,startTime_usec,endTime_usec\n")
    with pytest.raises(Event2VecError, match="names files without a gesture"):
        open_dataset("dvs_gesture", tmp_path / "data", "train")


def test_gestures_in_the_folders_of_spikingjelly(tmp_path):
    for label in (0, 3, 10):
        write_npz(tmp_path / "events_np" / "test" / str(label) / f"user24_{label}.npz")
    dataset = open_dataset("dvs_gesture", tmp_path, "test")
    assert dataset.labels == (0, 3, 10)
    assert dataset[1][0].sensor == Sensor(128, 128)


@pytest.mark.parametrize("suffix", [".mat", ".npz"])
def test_letters_are_split_by_name(suffix, tmp_path):
    for letter in "ay":
        (tmp_path / letter).mkdir()
        for number in range(10):
            path = tmp_path / letter / f"{letter}_{number:04d}{suffix}"
            scipy.io.savemat(path, ASL_DVS_FILE) if suffix == ".mat" else encoders.npz(path)
        (tmp_path / letter / "Thumbs.db").touch()
    train, test = (open_dataset("asl_dvs", tmp_path, split) for split in ("train", "test"))
    assert (len(train), len(test), len(train.classes)) == (16, 4, 24)
    assert test.sources == tuple(f"{letter}/{letter}_000{number}{suffix}" for letter in "ay" for number in (8, 9))
    assert test.labels == (0, 0, 23, 23)
    assert test[0][0].sensor == Sensor(240, 180)


def test_words_come_from_their_folders(tmp_path):
    for split in ("train", "test"):
        for word in ("about", "young"):
            (tmp_path / "DVS-Lip" / split / word).mkdir(parents=True)
            encoders.npy(tmp_path / "DVS-Lip" / split / word / "0.npy")
    dataset = open_dataset("dvs_lip", tmp_path, "test")
    assert (dataset.classes, dataset.labels) == (("about", "young"), (0, 1))
    assert dataset[1][0].sensor == Sensor(128, 128)
    (tmp_path / "DVS-Lip" / "test" / "zebra").mkdir()
    with pytest.raises(Event2VecError, match="without zebra"):
        open_dataset("dvs_lip", tmp_path, "test")


@pytest.mark.parametrize("name", ["\udcff", "two\nlines", "\x1b[2J"])
def test_a_folder_that_cannot_name_a_class_is_refused(tmp_path, name):
    for dataset, base in (("dvs_lip", "lip/train"), ("folder", "mine")):
        for word in ("about", name):
            (tmp_path / base / word).mkdir(parents=True)
            encoders.npy(tmp_path / base / word / "0.npy")
        (tmp_path / "lip/test").mkdir(exist_ok=True)
        with pytest.raises(Event2VecError, match=r"cannot be used as a class name: .* Rename the folder") as caught:
            open_dataset(dataset, tmp_path / Path(base).parts[0], "train")
        assert str(caught.value).isprintable()


def test_nmnist_as_shared(shared_data, tmp_path):
    with tarfile.open(shared_data / "nmnist_small.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    train, test = (open_dataset("nmnist", tmp_path, split) for split in ("train", "test"))
    assert (len(train), len(test)) == (1000, 100)
    assert np.bincount(test.labels).sum() == 100
    events, label = test[7]
    assert events.sensor == Sensor(34, 34)
    assert 1000 < len(events) < 10_000
    assert test.sources[7].startswith(f"Test/{label}/")


def test_a_folder_with_train_and_test_keeps_them(tmp_path):
    for split, names in (("train", "ab"), ("test", "a")):
        for name in names:
            write_npz(tmp_path / split / name / "1.npz")
    train, test = (open_dataset("folder", tmp_path, split) for split in ("train", "test"))
    assert (train.classes, train.labels, test.labels) == (("a", "b"), (0, 1), (0,))
    assert train[0][0].sensor == Sensor(34, 30)
    with pytest.raises(Event2VecError, match="folder has no validation part; training takes one from the training"):
        open_dataset("folder", tmp_path, "validation")


@pytest.mark.parametrize("name", ["validation", "val"])
def test_a_folder_may_have_a_validation_part(tmp_path, name):
    for split, label in (("train", "a"), ("train", "b"), ("test", "a"), (name, "b")):
        write_npz(tmp_path / split / label / "1.npz")
    assert [(part.split, part.labels) for part in open_splits("folder", tmp_path)] == [
        *(("train", (0, 1)), ("validation", (1,)), ("test", (0,)))
    ]
    write_npz(tmp_path / name / "c" / "1.npz")
    with pytest.raises(Event2VecError, match=f"{name}: has the class 'c', which train/ does not have"):
        open_splits("folder", tmp_path)


def test_a_folder_without_them_is_split_within_each_class_by_seed(tmp_path):
    for name, count in (("cat", 10), ("dog", 20), ("rare", 1), ("pair", 2)):
        for number in range(count):
            write_npz(tmp_path / name / f"{number}.npz")
    train, test = (open_dataset("folder", tmp_path, split) for split in ("train", "test"))
    assert sorted(train.sources + test.sources) == sorted(set(train.sources) | set(test.sources))
    assert (len(train), len(test)) == (26, 7)
    assert np.bincount(test.labels, minlength=4).tolist() == [2, 4, 1, 0]
    assert open_dataset("folder", tmp_path, "test").sources == test.sources
    assert open_dataset("folder", tmp_path, "test", seed=1).sources != test.sources


def people_of(dataset):
    return {dataset.group(index) for index in range(len(dataset))}


@pytest.mark.parametrize(
    ("file", "group_by"),
    [
        ("{0}/{1}.npz", "folders"),
        ("{0}/day{1}/x.npz", "folders"),
        ("{0}_{1}.npz", "^[^_]+"),
        ("{1}-{0}.npz", "-(.*)[.]"),
    ],
)
def test_recordings_of_one_person_stay_together(tmp_path, file, group_by):
    people = [f"person{number}" for number in range(10)]
    for name in ("wave", "clap"):
        for person in people:
            for number in range(3):
                write_npz(tmp_path / name / file.format(person, number))
    train, test = open_splits("folder", tmp_path, group_by=group_by)
    assert sorted(people_of(train) | people_of(test)) == people
    assert not people_of(train) & people_of(test)
    assert len(people_of(test)) == 2
    assert np.bincount(test.labels).tolist() == [6, 6]
    alone, _ = open_splits("folder", tmp_path, group_by="none")
    assert len(people_of(alone)) == len(alone)


def test_people_of_given_parts_are_known_too(tmp_path):
    for name in ("train/wave/anna/1.npz", "train/wave/ben/1.npz", "test/wave/ben/2.npz", "train/clap/3.npz"):
        write_npz(tmp_path / name)
    train, test = open_splits("folder", tmp_path)
    assert people_of(train) == {"anna", "ben", "clap/3.npz"}
    assert people_of(test) == {"ben"}


def test_classes_of_one_group_are_not_tested_and_that_is_said(tmp_path):
    for name in ("cat", "dog"):
        for number in range(6):
            write_npz(tmp_path / name / "day1" / f"{number}.npz")
    with pytest.warns(Event2VecWarning, match=r"cat, dog: nothing is put aside for testing.* `group_by` to none"):
        train, test = open_splits("folder", tmp_path)
    assert (len(train), len(test)) == (12, 0)
    assert len(open_splits("folder", tmp_path, group_by="none")[1]) == 2


def test_a_pattern_that_fits_no_recording_or_is_none_is_an_error(tmp_path):
    write_npz(tmp_path / "cat" / "anna_1.npz")
    with pytest.raises(Event2VecError, match=r"anna_1.npz: does not match `group_by` 'x\+'; every recording"):
        open_splits("folder", tmp_path, group_by="x+")
    with pytest.raises(
        Event2VecError, match=r"`group_by` must be folders, none or a regular expression, got '\[' .unterm"
    ):
        open_splits("folder", tmp_path, group_by="[")


def test_gestures_are_grouped_by_person(tmp_path):
    write_gestures(tmp_path / "raw")
    assert people_of(open_dataset("dvs_gesture", tmp_path / "raw", "train")) == {"user01"}
    for name in ("0/user24_led_0.npz", "1/user25_led_1.npz"):
        write_npz(tmp_path / "npz" / "test" / name)
    assert people_of(open_dataset("dvs_gesture", tmp_path / "npz", "test")) == {"user24", "user25"}


def test_options_of_a_folder_reach_the_reader(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.txt").write_text("1 2 5 1\n3 4 9 0\n")
    dataset = open_dataset("folder", tmp_path, "train", columns="xytp", time_unit="ms", sensor=Sensor(50, 40))
    events, _ = dataset[0]
    assert (events.t.tolist(), events.sensor) == ([0, 4000], Sensor(50, 40))


@pytest.mark.parametrize("name", [name for name in DATASETS if name != "digits"])
def test_a_root_that_does_not_fit_says_what_was_looked_for_and_found(name, tmp_path):
    with pytest.raises(Event2VecError, match="does not exist"):
        open_dataset(name, tmp_path / "missing", "train")
    with pytest.raises(Event2VecError, match="`data`"):
        open_dataset(name, None, "train")
    (tmp_path / "surprise").touch()
    pattern = "expected one sub-folder" if name == "folder" else r"expected .*Published at https://"
    with pytest.raises(Event2VecError, match=f"holds surprise.*{pattern}"):
        open_dataset(name, tmp_path, "train")


def test_files_that_are_plainly_no_recordings_are_counted_in_one_warning(tmp_path):
    write_npz(tmp_path / "a" / "1.npz")
    for name in ("a/README.txt", "a/Thumbs.db", "a/.DS_Store", "a/deep/picture.PNG", "notes/plan.pdf", "a/.git/x.npz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.warns(Event2VecWarning, match=r"skipped 4 files that are not recordings, such as a/.DS_Store"):
        train = open_dataset("folder", tmp_path, "train")
    assert (train.classes, train.sources) == (("a",), ("a/1.npz",))


@pytest.mark.parametrize("name", DATASETS)
def test_every_data_set_has_a_file_that_opens_it(name):
    assert callable(getattr(import_module(f"event2vec.data.datasets.{name}"), f"open_{name}"))


def test_train_without_test_is_no_class(tmp_path):
    write_npz(tmp_path / "train" / "a" / "1.npz")
    with pytest.raises(Event2VecError, match="has train/ only, expected"):
        open_dataset("folder", tmp_path, "train")


def test_unknown_names_list_the_known_ones(tmp_path):
    with pytest.raises(Event2VecError, match="unknown data set 'cifar'; expected one of dvs_gesture, asl_dvs"):
        open_dataset("cifar", tmp_path, "train")
    with pytest.raises(Event2VecError, match="unknown split 'valid'; expected one of train, validation, test"):
        open_dataset("digits", None, "valid")


def test_a_film_of_a_digit_is_the_picture_between_its_pixels_at_every_moment():
    """A spline over both sides at once, which takes many times as long."""
    picture = digits._load_digits()[0][7]
    padded = np.pad(picture, digits.BORDER)
    film = digits._film(picture)
    for number, leg in ((0, 0.0), (50, 3 * 50 / 149), (149, 3.0)):
        look_x, look_y = (np.interp(leg, range(4), side) for side in np.transpose(digits.CORNERS))
        middle = (len(padded) - 1) / 2
        rows, columns = np.mgrid[0:34, 0:34]
        places = (rows - 16.5 - look_y) / digits.ENLARGED + middle, (columns - 16.5 - look_x) / digits.ENLARGED + middle
        seen = scipy.ndimage.map_coordinates(padded, places, order=3, mode="nearest").clip(0, 1)
        np.testing.assert_allclose(film[number], digits.DARK + (1 - digits.DARK) * seen, atol=1e-6)


def test_digits_are_many_and_repeatable():
    train, test = (open_dataset("digits", None, split) for split in ("train", "test"))
    assert (len(train), len(test)) == (1437, 360)
    assert not set(train.sources) & set(test.sources)
    assert min(np.bincount(test.labels)) >= 30
    events, label = test[5]
    assert_same(events, open_dataset("digits", None, "test")[5][0])
    assert label == test.labels[5]
    assert events.sensor == Sensor(34, 34)
    assert 1000 < len(events) < 10_000
    assert 0.4 < float(events.p.double().mean()) < 0.6
    other = open_dataset("digits", None, "test", seed=1)[5][0]
    assert len(other) != len(events) or not torch.equal(other.t, events.t)


def test_a_digit_leaves_its_shape_in_the_events(tmp_path):
    """Where the picture has edges there are events; in its empty corners there is noise alone."""
    events, _ = open_dataset("digits", None, "test")[0]
    counts = torch.zeros(34, 34).index_put_(
        (events.y.long(), events.x.long()), torch.ones(len(events)), accumulate=True
    )
    assert counts[8:26, 8:26].mean() > 10 * counts[:4, :4].mean()


def test_a_simulated_digit_survives_a_file(tmp_path):
    from event2vec import write_events

    events, _ = open_dataset("digits", None, "test")[1]
    write_events(tmp_path / "digit.aedat4", events)
    assert_same(read_events(tmp_path / "digit.aedat4"), events)


@pytest.mark.parametrize("kind", ["i1", "u1", "i4", "f8"])
def test_a_file_of_asl_dvs_is_read_upright_by_itself_too(kind, tmp_path):
    scipy.io.savemat(tmp_path / "a.mat", ASL_DVS_FILE | {"y": np.array([[1], [120]], kind)})
    with pytest.warns(Event2VecWarning, match=r"a\.mat: looks like a recording of ASL-DVS, .* flipped upright"):
        events = read_events(tmp_path / "a.mat")
    assert (events.sensor, events.y.tolist(), events.t.tolist()) == (Sensor(240, 180), [178, 59], [0, 4])
    assert read_recording(tmp_path / "a.mat").sensor_declared


@pytest.mark.parametrize("change", [{"x": [[3], [240]]}, {"y": [[1], [180]]}, {"comment": "another camera"}])
def test_other_mat_files_are_read_as_they_stand(change, tmp_path):
    content = ASL_DVS_FILE | change
    scipy.io.savemat(tmp_path / "a.mat", content)
    recording = read_recording(tmp_path / "a.mat")
    assert (recording.events.y.tolist(), recording.warnings) == (np.ravel(content["y"]).tolist(), ())
    for letter in "ay":
        (tmp_path / letter).mkdir()
        scipy.io.savemat(tmp_path / letter / "0.mat", content)
    with pytest.raises(Event2VecError, match=r"240x180|is not a file of ASL-DVS"):
        open_dataset("asl_dvs", tmp_path, "test").read(0)


def asl_dvs_files(folder, suffix):
    """The published .mat files, or what SpikingJelly makes of them: 239 - x and 179 - y."""
    x, y, t, p = np.array([3, 230]), np.array([1, 170]), np.array([5, 9]), np.array([1, 0])
    for letter in "ay":
        (folder / letter).mkdir(parents=True)
        if suffix == ".mat":
            scipy.io.savemat(folder / letter / "0.mat", {"ts": t, "x": x, "y": y, "pol": p})
        else:
            np.savez(folder / letter / "0.npz", t=t, x=239 - x, y=179 - y, p=p)
    return folder


@pytest.mark.parametrize(
    ("orientation", "x", "y"),
    [
        ("upright", [3, 230], [178, 9]),
        ("mat", [3, 230], [1, 170]),
        ("spikingjelly", [236, 9], [178, 9]),
    ],
)
@pytest.mark.parametrize("suffix", [".mat", ".npz"])
def test_asl_dvs_has_one_orientation_whatever_files_it_comes_in(suffix, orientation, x, y, tmp_path):
    dataset = open_dataset("asl_dvs", asl_dvs_files(tmp_path, suffix), "test", orientation=orientation)
    recording = dataset.read(0)
    assert (recording.events.x.tolist(), recording.events.y.tolist()) == (x, y)
    assert recording.warnings == ()


def test_asl_dvs_is_upright_by_default_and_another_orientation_is_another_recording(tmp_path):
    root = asl_dvs_files(tmp_path / "asl", ".mat")
    plain, turned = open_dataset("asl_dvs", root, "test"), open_dataset("asl_dvs", root, "test", orientation="mat")
    assert plain[0][0].y.tolist() == [178, 9]
    assert plain.fingerprint(0) != turned.fingerprint(0)
    with pytest.raises(Event2VecError, match="orientation must be one of upright, mat, spikingjelly, got 'sideways'"):
        open_dataset("asl_dvs", root, "test", orientation="sideways")


def test_a_pipe_among_recordings_is_listed_and_reading_it_is_an_error_at_once(tmp_path):
    (tmp_path / "a").mkdir()
    encoders.write("evt2", tmp_path / "a")
    os.mkfifo(tmp_path / "a" / "b.raw")
    dataset = open_dataset("folder", tmp_path, "train")
    rest = open_dataset("folder", tmp_path, "test")
    parts = {source: part for part in (dataset, rest) for source in part.sources}
    assert sorted(parts) == ["a/b.raw", "a/evt2.raw"]
    with pytest.raises(Event2VecError, match=r"b\.raw: is a pipe, a socket or a device"):
        parts["a/b.raw"].read(0)
