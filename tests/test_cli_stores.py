"""Verbs that make and keep stores: each option of `prepare`, `copy` and `cache` has its effect, and its line."""

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import make_recording
from shell import refusal, run

from event2vec import Event2VecError, Events, EventStore, Sampling, Sensor, Windows, cluster_events, write_events
from event2vec.cli.cache import _readable
from event2vec.cli.printing import with_options
from event2vec.cluster import Cluster
from event2vec.data.cache import CachedStore
from event2vec.data.opening import open_for_training
from event2vec.data.prepare import Report
from event2vec.data.shard_size import SHARD_MB
from event2vec.progress import ShownProgress

SENSOR = Sensor(34, 30)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def data():
    """Five recordings of each of two classes, of 0.3 s."""
    for name in ("left", "right"):
        for number in range(5):
            write_events(Path("data", name, f"{number}.npz"), make_recording(20 + number, seed=number))
    return "data"


def said_by(capsys, *arguments, code=0):
    capsys.readouterr()
    assert run(*arguments) == code
    return capsys.readouterr()


def refused(capsys, *arguments):
    return refusal(*said_by(capsys, *arguments, code=2))


def prepare(capsys, *options, code=0):
    command = ("prepare", "folder", "--data", "data", "--out", "store", "--workers", "1")
    return said_by(capsys, *command, *options, code=code)


# prepare


def test_a_program_is_told_all_about_the_store(data, capsys):
    Path("data/left/bad.raw").write_bytes(b"nothing")
    facts = json.loads(prepare(capsys, "--json").out)
    store = EventStore.open("store")
    (rejected,) = facts.pop("rejected")
    assert (rejected["source"], rejected["split"]) == ("left/bad.raw", "train")
    assert rejected["message"].startswith("begins with")
    assert facts == {
        "store": str(Path("store").absolute()),
        "recordings": {"train": 8, "test": 2},
        "clusterings": 1,
        "events": sum(2 * (20 + number) for number in range(5)),
        "scaled": {},
        "groups": None,
        "windows": None,
        "windows_left_out": 0,
        "seconds_without_label": 0.0,
        "classes": 2,
        "width": 34,
        "height": 30,
        "warnings": [],
    }
    assert (facts["recordings"]["train"], facts["events"]) == (store.splits.count("train"), int(store.offsets[-1]))


def test_people_are_told_what_is_in_the_store_in_the_singular_and_with_commas(capsys):
    write_events(Path("data/only/0.npz"), make_recording(1234))
    said = prepare(capsys)
    first, *others = said.err.splitlines()
    assert said.out == ""
    assert first == f"{Path('store').absolute()}: 1 train recording of 1 class, 1,234 events, sensor 34x30"
    assert others == [
        "  1 class has only one recording: 'only'. If it is long, cut it into windows with --window; "
        "testing a class needs a second recording"
    ]


def test_the_summary_names_at_most_five_and_the_table_has_all(data, capsys):
    for number in range(7):
        Path(f"data/left/bad{number}.raw").write_bytes(b"nothing")
    lines = prepare(capsys).err.splitlines()
    named = {line.split(": ")[1] for line in lines[1:6]}
    assert len(named) == 5
    assert named < {f"left/bad{number}.raw" for number in range(7)}
    assert lines[6:] == [
        "  rejected: 2 more",
        f"  7 recordings rejected, listed in {Path('store').absolute()}/rejected.csv",
    ]
    assert Path("store/rejected.csv").read_text().count("bad") == 7


@pytest.mark.parametrize(("strict", "bad", "code"), [(False, True, 0), (True, True, 2), (True, False, 0)])
def test_only_a_strict_call_fails_when_a_recording_was_rejected(data, strict, bad, code, capsys):
    if bad:
        Path("data/left/bad.raw").write_bytes(b"nothing")
    prepare(capsys, *(["--strict"] if strict else []), code=code)
    assert len(EventStore.open("store")) == 10, "the rest is prepared in any case"


@pytest.mark.parametrize("split", ["train", "test"])
def test_one_split_alone_is_prepared(data, split, capsys):
    facts = json.loads(prepare(capsys, "--split", split, "--json").out)
    assert facts["recordings"] == {split: {"train": 8, "test": 2}[split]}
    assert set(EventStore.open("store").splits) == {split}


def test_a_split_that_is_not_there_is_one_line(data, capsys):
    said = prepare(capsys, "--split", "validation", code=2).err
    assert said == "event2vec: folder has no validation part; training takes one from the training recordings\n"


def split_of(capsys, *options, out):
    said_by(capsys, "prepare", "folder", "--data", "data", "--out", out, "--workers", "1", *options)
    store = EventStore.open(out)
    return [source for source, split in zip(store.sources, store.splits, strict=True) if split == "test"]


def test_the_seed_draws_the_test_recordings_and_is_0_unless_given(data, capsys):
    drawn = {seed: split_of(capsys, "--seed", seed, out=f"s{seed}") for seed in range(2)}
    assert drawn[0] != drawn[1]
    assert split_of(capsys, out="usual") == drawn[0]


@pytest.mark.parametrize("seeding", ["pruned", "plain"])
def test_clusters_are_those_of_the_library_with_the_seeding_asked_for(data, seeding, capsys):
    prepare(capsys, "--clusters", "8", "--seeding", seeding)
    store = EventStore.open("store")
    for index, source in enumerate(store.sources):
        number, found = int(Path(source).stem), store[index][0]
        wanted = cluster_events(make_recording(20 + number, seed=number), 8, seeding=seeding)
        np.testing.assert_array_equal(found.x.numpy(), wanted.x.numpy())
        np.testing.assert_array_equal(found.rho.numpy(), wanted.rho.numpy())


def test_windows_cut_what_is_prepared_and_are_said(data, capsys):
    said = prepare(capsys, "--window", "0.1", "--min-events", "7").err.splitlines()
    store = EventStore.open("store")
    windows = Windows(window=0.1, min_events=7)
    parts = [window for number in range(5) for window in windows.cut(make_recording(20 + number, seed=number))]
    kept = [part for part in parts if len(part.events) >= 7]
    assert (store.windows, len(store)) == (windows, 2 * len(kept))
    few = 2 * (len(parts) - len(kept))
    line = f"  cut into {windows.summary}; {few} windows with too few events left out"
    assert line in [each.replace("1 windows", "1 window") for each in said]
    facts = json.loads(prepare(capsys, "--window", "0.1", "--min-events", "7", "--json").out)
    assert facts["windows"] == {"window": 0.1, "stride": 0.0, "min_events": 7, "window_events": 0}
    assert facts["windows_left_out"] == few


def test_labels_choose_the_parts_and_the_rest_is_counted(capsys):
    write_events(Path("data/day.npz"), make_recording(600, duration=1_000_000))
    Path("labels.csv").write_text("file,start,stop,class\nday.npz,0.1,0.3,wave\nday.npz,0.5,0.6,rest\n")
    facts = json.loads(prepare(capsys, "--labels", "labels.csv", "--json").out)
    store = EventStore.open("store")
    assert sorted(store.classes) == ["rest", "wave"]
    duration = make_recording(600, duration=1_000_000).duration / 1e6
    assert facts["seconds_without_label"] == pytest.approx(duration - 0.3, abs=1e-4)


def test_recordings_of_other_sensors_are_scaled_and_said(data, capsys):
    write_events(Path("data/left/9.npz"), make_recording(30, sensor=Sensor(68, 60)))
    said = prepare(capsys).err.splitlines()
    assert "  Recordings of other sensors are scaled to 34x30: 1 of 68x60" in said
    assert json.loads(prepare(capsys, "--json").out)["scaled"] == {"68x60": 1}


def test_a_class_without_a_usable_recording_is_named(data, capsys):
    for number in range(3):
        Path(f"data/none/{number}.raw").parent.mkdir(exist_ok=True)
        Path(f"data/none/{number}.raw").write_bytes(b"nothing")
    assert "  no recording of none (1 class)" in prepare(capsys).err.splitlines()


def test_reading_options_are_used(capsys):
    for name in ("left", "right"):
        for number in range(3):
            Path(f"data/{name}").mkdir(parents=True, exist_ok=True)
            Path(f"data/{name}/{number}.txt").write_text("1 2 0.5 1\n3 4 2.5 0\n")
    prepare(capsys, "--columns", "xytp", "--time-unit", "ms", "--sensor", "9x8")
    store = EventStore.open("store")
    assert store.sensor == Sensor(9, 8)
    assert store.durations.tolist() == [2000] * 6


def test_shards_and_the_cluster_reach_the_library(data, called, capsys):
    prepare(capsys)
    calls = called("event2vec.data.prepare.prepare", Report(EventStore.open("store"), (), ()))
    prepare(capsys, "--shard-mb", "32", "--cluster", "auto", "--clusters", "8", "--clusterings", "3")
    ((_, named),) = calls
    assert isinstance(named.pop("progress"), ShownProgress)
    assert named == {
        "workers": 1,
        "clusters": 8,
        "clusterings": 3,
        "seeding": "pruned",
        "cluster": "auto",
        "shard_mb": 32,
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("folder",), "--data is required: the folder with your recordings"),
        (("nmnist",), "--data is required: the folder with nmnist as downloaded"),
        (("digits", "--data", "data"), "the digits are built in: omit --data, or choose another data set"),
        (("nmnist", "--data", "data", "--seed", "5"), "--seed applies only to folder and digits, not to nmnist"),
        (("asl_dvs", "--data", "data", "--seed", "0"), "--seed applies only to folder and digits, not to asl_dvs"),
        (("folder", "--data", "data", "--orientation", "mat"), "--orientation applies only to asl_dvs, not to folder"),
        (("dvs_lip", "--data", "data", "--labels", "x"), "--labels applies only to folder, not to dvs_lip"),
        (("nmnist", "--data", "data", "--time-unit", "ms"), "--time-unit applies only to folder, not to nmnist"),
        (("digits", "--columns", "xytp"), "--columns applies only to folder, not to digits"),
        (("folder", "--data", "data", "--stride", "1"), "windows: stride requires window, such as 0.1 (seconds)"),
        (
            ("folder", "--data", "data", "--clusterings", "0"),
            "--clusterings: must be at least 1, got 0. See 'event2vec prepare --help'",
        ),
        (
            ("folder", "--data", "data", "--clusters", "1"),
            "--clusters: must be at least 2, got 1. See 'event2vec prepare --help'",
        ),
        (
            ("folder", "--data", "data", "--seed", "-1"),
            "--seed: must be at least 0, got -1. See 'event2vec prepare --help'",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_would_have_no_effect_or_cannot_be_is_one_line(data, arguments, message, capsys):
    assert refused(capsys, "prepare", *arguments, "--out", "store") == message
    assert not Path("store").exists()


def test_a_place_that_is_taken_is_refused_before_the_data_is_looked_at(data, called, capsys):
    Path("taken").mkdir()
    Path("taken/notes.txt").touch()
    looked = called("event2vec.cli.prepare.open_splits", [])
    wanted = "taken: exists already and is not a store. Choose another --out"
    assert refused(capsys, "prepare", "folder", "--data", "data", "--out", "taken") == wanted
    assert looked == []


# copy


def test_a_copy_is_said_and_has_what_the_store_has(data, capsys):
    prepare(capsys)
    assert said_by(capsys, "copy", "store", "copied").err == "copied: 10 recordings, 220 events\n"
    facts = json.loads(said_by(capsys, "copy", "store", "again", "--json").out)
    assert facts == {"store": "again", "recordings": 10, "events": 220}
    for name in ("copied", "again"):
        assert EventStore.open(name).sources == EventStore.open("store").sources
    event = Events.from_arrays([1], [2], [0], [1], sensor=SENSOR)
    EventStore.create(Path("one"), [(event, 0)], sensor=SENSOR, classes=["a"])
    assert said_by(capsys, "copy", "one", "of_one").err == "of_one: 1 recording, 1 event\n"


def test_copy_hands_on_what_was_asked_for_and_shows_no_secret(data, called, capsys):
    prepare(capsys)
    calls = called("event2vec.data.shard_writer.copy_store", EventStore.open("store"))
    secret = "https://anna:secret@host/store"
    facts = json.loads(said_by(capsys, "copy", "store", "data", secret, "--json").out)
    said_by(capsys, "copy", "store", "out", "--shard-mb", "64", "--cluster", "auto")
    (given, named), (other, also) = calls
    assert (given, other) == ((["store", "data"], secret, SHARD_MB), (["store"], "out", 64))
    assert (named["cluster"], also["cluster"]) == (None, "auto")
    assert facts["store"] == "https://host/store"


def test_what_copy_cannot_do_is_one_line(data, capsys):
    prepare(capsys)
    said = refused(capsys, "copy", "store", "copied", "--shard-mb", "0")
    assert said.startswith("--shard-mb: must be at least ")
    Path("taken").mkdir()
    wanted = "taken: exists already. Remove it or choose another OUT"
    assert refused(capsys, "copy", "data", "taken") == wanted, "before what is copied is opened"
    assert refused(capsys, "copy", "gone", "copied").startswith("STORE: gone does not exist, expected a store. See")
    with pytest.raises(Event2VecError) as wrong:
        Cluster.of("nonsense:x")
    assert refused(capsys, "copy", "store", "copied", "--cluster", "nonsense:x") == with_options(str(wrong.value))


# cache


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (1_500_000, "1.5 MB"),
        (20_000_000_000, "20.0 GB"),
        (3_000_000_000_000_000, "3000.0 TB"),
    ],
)
def test_sizes_are_in_the_unit_that_fits(size, shown):
    assert _readable(size) == shown


def entry(name, **changes):
    usual = CachedStore(name, "ready", "folder in /data", 1234, 5_000_000, time.mktime((2026, 3, 4, 5, 6, 0, 0, 0, -1)))
    return replace(usual, **changes)


def test_the_cache_is_a_table_of_what_each_entry_is(called, tmp_path, capsys):
    entries = [
        entry("folder-1"),
        entry("digits-2", state="unfinished", made_of=None, recordings=None, size=10),
        entry("bad-3", state="unusable", problem="/cache/bad-3: is damaged"),
    ]
    called("event2vec.data.cache.cached_stores", entries)
    said = said_by(capsys, "cache")
    heads, first, second, third = said.out.splitlines()
    assert heads.split() == ["name", "made", "from", "recordings", "size", "last", "used", "state"]
    assert first.split() == ["folder-1", "folder", "in", "/data", "1,234", "5.0", "MB", "2026-03-04", "05:06", "ready"]
    assert second.split() == ["digits-2", "-", "-", "10", "bytes", "2026-03-04", "05:06", "unfinished"]
    assert third.split()[-1] == "unusable"
    assert said.err.splitlines() == [
        "event2vec: warning: /cache/bad-3: is damaged",
        f"3 entries, 10.0 MB in {tmp_path / 'cache'}",
    ]
    facts = json.loads(said_by(capsys, "cache", "--json").out)
    assert facts["folder"] == str(tmp_path / "cache")
    assert facts["stores"][1] == {
        "name": "digits-2",
        "state": "unfinished",
        "made_of": None,
        "recordings": None,
        "size": 10,
        "last_used": entries[1].last_used,
        "problem": None,
    }


def test_one_entry_is_an_entry(called, tmp_path, capsys):
    called("event2vec.data.cache.cached_stores", [entry("folder-1")])
    assert said_by(capsys, "cache").err == f"1 entry, 5.0 MB in {tmp_path / 'cache'}\n"


def test_what_is_removed_is_said_with_what_it_frees_and_a_name_given_twice_is_one(data, tmp_path, capsys):
    store = open_for_training("data", "folder", Sampling()).store
    name = store.folder.name
    size = json.loads(said_by(capsys, "cache", "--json").out)["stores"][0]["size"]
    said = said_by(capsys, "cache", "--remove", name, name)
    assert said.out == ""
    assert said.err.splitlines() == [
        f"removed {name}, {_readable(size)}",
        f"{_readable(size)} freed in {tmp_path / 'cache'}",
    ]
    assert not store.folder.exists()


def test_an_entry_that_cannot_be_removed_is_no_success_for_programs_too(tmp_path, capsys):
    said = said_by(capsys, "cache", "--remove", "folder-0123456789ab", "--json", code=2)
    facts = json.loads(said.out)
    ((problem),) = [each["problem"] for each in facts["refused"]]
    assert facts == {
        "folder": str(tmp_path / "cache"),
        "removed": [],
        "refused": [{"name": "folder-0123456789ab", "problem": problem}],
        "freed": 0,
    }
    assert problem == f"{tmp_path / 'cache'}: has no entry 'folder-0123456789ab'; the cache is empty"
    assert said.err == f"event2vec: {problem}\n", "nothing was freed"


def test_an_empty_cache_is_called_empty(tmp_path, capsys):
    assert said_by(capsys, "cache", "--remove-all").err == f"{tmp_path / 'cache'}: the cache is empty\n"


def test_names_and_all_exclude_each_other(data, capsys):
    store = open_for_training("data", "folder", Sampling()).store
    wanted = "--remove and --remove-all cannot be combined; omit one"
    assert refused(capsys, "cache", "--remove-all", "--remove", store.folder.name) == wanted
    assert store.folder.exists()
