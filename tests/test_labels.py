"""Labels of long recordings: only what a table names is used, the rest is counted, and mistakes are named."""

from pathlib import Path

import numpy as np
import pytest
from conftest import make_recording
from test_datasets import write_gestures

from event2vec import Event2VecError, Event2VecWarning, Events, open_dataset, read_events, write_events
from event2vec.data.datasets import open_splits, spans
from event2vec.data.labels import Span, class_order, labels_of, read_labels
from event2vec.data.prepare import prepare
from event2vec.data.windows import Windows
from event2vec.io import read_recording


def table(path, *rows):
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def long(tmp_path):
    """Ten recordings of two seconds with an event each millisecond, of two classes one after the other."""
    rows = ["file,start,stop,class"]
    zeros = np.zeros(2000, np.int64)
    for number in range(10):
        events = Events.from_arrays(zeros, zeros, np.arange(2000) * 1000, zeros, sensor="8x8")
        write_events(tmp_path / "data" / f"{number}.npz", events)
        rows += [f"{number}.npz,0.25,0.75,wave", f"{number}.npz,1,1.5,clap"]
    table(tmp_path / "data" / "labels.csv", *rows)
    return tmp_path / "data"


def test_only_labelled_spans_are_used_and_the_rest_is_counted(long, tmp_path):
    datasets = open_splits("folder", long, labels="labels.csv", windows=Windows(window=0.1))
    assert [len(dataset) for dataset in datasets] == [16, 4]
    assert datasets[0].classes == ("clap", "wave")
    report = prepare(datasets, tmp_path / "store")
    assert len(report.store) == 100, "five windows of each half second"
    assert report.cutting == "cut into windows of 0.1 s; 10.0 s without a label not used"
    assert not set(report.store.split("train").groups) & set(report.store.split("test").groups)
    assert report.store.sources[0].endswith(".npz [0.25 to 0.75 s] [0 to 0.1 s]")
    assert set(report.store.lengths.tolist()) == {100}


def test_a_long_file_is_read_once_for_all_its_spans(long, tmp_path, monkeypatch):
    asked = []

    def read(path, **more):
        asked.append(path)
        return read_recording(path, **more)

    monkeypatch.setattr(spans, "read_recording", read)
    spans._read_whole.cache_clear()
    prepare(open_splits("folder", long, labels="labels.csv"), tmp_path / "store")
    assert len(asked) == len(set(asked)) == 10


def test_labels_beside_recordings_are_those_of_dvs_gesture(tmp_path):
    write_gestures(tmp_path / "data")
    theirs = open_dataset("dvs_gesture", tmp_path / "data", "train")
    with pytest.warns(Event2VecWarning, match=r"2 recordings have no labels and will not be used, such as trials_to"):
        ours = open_splits("folder", tmp_path / "data", labels="beside")
    assert ours[0].classes == ("1", "11")
    parts = [ours[part][index][0] for part in (0, 1) for index in range(len(ours[part]))]
    assert parts[0].x.tolist() == theirs[0][0].x.tolist() == [2, 3, 4]
    assert parts[1].t.tolist() == theirs[1][0].t.tolist()


def test_a_real_recording_with_labels_gives_its_parts(shared_data, tmp_path):
    events = read_events(shared_data / "recordings" / "dvs128.aedat")
    (tmp_path / "walk.aedat").symlink_to(shared_data / "recordings" / "dvs128.aedat")
    table(tmp_path / "labels.csv", "walk.aedat,0.1,0.2,near", "walk.aedat,0.2,0.4,far")
    (dataset,) = [part for part in open_splits("folder", tmp_path, labels=tmp_path / "labels.csv") if len(part)]
    assert len(dataset[0][0]) == len(events.between(100_000, 200_000)) > 0
    assert len(dataset[1][0]) == len(events.between(200_000, 400_000))


@pytest.mark.parametrize("relative", ["root", "labels", "link"])
def test_a_table_among_the_recordings_is_none_of_them_however_it_is_named(relative, long, monkeypatch, recwarn):
    monkeypatch.chdir(long.parent)
    root, labels = {
        "root": (Path("data"), long / "labels.csv"),
        "labels": (long, Path("data/labels.csv")),
        "link": (long, long / "../link/labels.csv"),
    }[relative]
    (long.parent / "link").symlink_to(long)
    assert sum(map(len, open_splits("folder", root, labels=labels))) == 20
    assert not recwarn.list, "a table that is taken for a recording is said to have no labels"


def test_given_parts_are_kept(long):
    for split, number in (("train", 0), ("test", 1)):
        (long / split).mkdir()
        (long / f"{number}.npz").rename(long / split / f"{number}.npz")
    rows = [f"{split}/{number}.npz,0,1,{name}" for split, number in (("train", 0), ("test", 1)) for name in ["a"]]
    table(long / "labels.csv", *rows)
    with pytest.warns(Event2VecWarning, match=r"8 recordings have no labels and will not be used, such as 2.npz"):
        train, test = open_splits("folder", long, labels="labels.csv")
    assert (train.sources, test.sources) == (("train/0.npz [0 to 1 s]",), ("test/1.npz [0 to 1 s]",))


def test_columns_are_found_by_their_names_and_units(tmp_path):
    rows = read_labels(table(tmp_path / "a.csv", "label,end,begin,recording", "wave,2.5,1,x.raw", "", "# note"))
    assert rows == [Span("x.raw", 1_000_000, 2_500_000, "wave")]
    (row,) = read_labels(table(tmp_path / "b.csv", "class,startTime_usec,endTime_usec", "3,10,20"))
    assert (row, row.since(4)) == (Span("", 10, 20, "3", on_clock=True), (6, 16))
    assert class_order({"10", "9"}) == ("9", "10")
    assert class_order({"b", "10", "9"}) == ("10", "9", "b")


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (["x.npz,0,1,a", "x.npz,0.5,2,b"], r"two labels for one time: 'x.npz' 0 to 1 s is a, 0.5 to 2 s is b"),
        (["x.npz,1,1,a"], "span from 1 to 1 s in line 1; stop must be after start"),
        (["x.npz,2,1,a"], "span from 2 to 1 s in line 1"),
        (["x.npz,-1,1,a"], "the time '-1' in line 1, expected a number of 0 or more"),
        (["x.npz,nan,1,a"], "the time 'nan' in line 1"),
        (["x.npz,soon,1,a"], "the time 'soon' in line 1"),
        (["x.npz,0,1"], "has 3 cells in line 1, expected columns file, start"),
        (["file,start,class", "x.npz,0,a"], "has no column stop, expected columns"),
        (["file,start,stop,class"], "names no labelled span"),
        (["x.npz,0,1,"], "a class is called ''"),
        (["gone.npz,0,1,a"], r"names 'gone.npz', which is not in"),
        (["../x.npz,0,1,a"], r"names '[.][.]/x.npz', expected a recording in"),
        (["start,stop,class", "0,1,a"], "names '', expected a recording in"),
        (
            ["file,start_us,stop,class", "x.npz,1,2,a"],
            "has the columns start_us and stop, expected both in seconds or both in microseconds",
        ),
        (["file,start,endTime_usec,class", "x.npz,1,2,a"], "has the columns start and endtime_usec, expected both in"),
    ],
)
def test_tables_with_mistakes_are_refused_before_any_work(rows, problem, tmp_path):
    write_events(tmp_path / "data" / "x.npz", make_recording(20))
    with pytest.raises(Event2VecError, match=problem):
        open_dataset("folder", tmp_path / "data", "train", labels=table(tmp_path / "labels.csv", *rows))


def test_a_table_that_is_missing_or_no_text_is_named(tmp_path):
    write_events(tmp_path / "data" / "x.npz", make_recording(20))
    with pytest.raises(Event2VecError, match=r"labels.csv: does not exist"):
        open_dataset("folder", tmp_path / "data", "train", labels=tmp_path / "labels.csv")
    (tmp_path / "labels.csv").write_bytes(b"\xff\xfe\0")
    with pytest.raises(Event2VecError, match="is not UTF-8 text"):
        open_dataset("folder", tmp_path / "data", "train", labels=tmp_path / "labels.csv")
    with pytest.raises(Event2VecError, match=r"no recording with labels next to it, expected files called NAME_labels"):
        open_dataset("folder", tmp_path / "data", "train", labels="beside")


def test_a_span_after_the_end_is_rejected_and_the_others_are_used(tmp_path):
    write_events(tmp_path / "data" / "x.npz", make_recording(20))
    labels = table(tmp_path / "labels.csv", "x.npz,0,0.1,a", "x.npz,50,60,a")
    with pytest.warns(Event2VecWarning, match=r"a: nothing is put aside for testing.* Label a further recording"):
        datasets = open_splits("folder", tmp_path / "data", labels=labels)
    report = prepare(datasets, tmp_path / "store")
    assert len(report.store) == 1
    assert "has no events from 50000000 to 60000000 us" in report.rejected[0].message


def test_the_labels_of_one_recording_are_found_by_the_end_of_its_path(tmp_path):
    path = tmp_path / "data" / "day" / "x.npz"
    write_events(path, make_recording(20))
    labels = table(tmp_path / "data" / "labels.csv", "day/x.npz,0,1,a", "night/x.npz,0,1,b", "x.npz,1,2,c")
    assert [span.name for span in labels_of(path, labels)[0]] == ["a", "c"]
    assert [span.name for span in labels_of(path, "labels.csv", tmp_path / "data")[0]] == ["a", "c"]
    with pytest.raises(Event2VecError, match=r"has no label for y\.npz"):
        labels_of(tmp_path / "y.npz", labels)
