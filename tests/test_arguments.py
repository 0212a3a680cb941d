"""Arguments: one value counts as a list of one, and a value of the wrong kind is one line that says what to give."""

from pathlib import Path

import pytest
from conftest import SMALL, assert_same, make_recording, randomise
from processes import run_python
from trainings import RECIPE, make_store

from event2vec import (
    Event2VecError,
    EventBatch,
    Run,
    build_model,
    cluster_batch,
    compare,
    compare_sweep,
    copy_store,
    draw_gallery,
    evaluate_runs,
    open_dataset,
    predict,
    prepare,
    probe,
    read_events,
    save_model,
    write_events,
)
from event2vec.arguments import several
from event2vec.evaluation.sweeps import sweep


@pytest.fixture(scope="module")
def model():
    return randomise(build_model(RECIPE.model, class_names=["a", "b", "c"], sampling=RECIPE.sampling))


@pytest.mark.parametrize("one", ["mixed/", Path("mixed"), Run(Path("mixed")), 3, 0.5, None])
def test_one_value_is_a_list_of_one(one):
    assert several(one) == [one]


@pytest.mark.parametrize("given", [["a", "b"], ("a", "b"), iter("ab"), {"a": 1, "b": 2}])
def test_the_values_of_a_list_stay_as_they_are(given):
    assert several(given) == ["a", "b"]
    assert several([]) == []


@pytest.mark.parametrize("kind", [str, Path, lambda name: Run(Path(name))])
@pytest.mark.parametrize("work", [evaluate_runs, draw_gallery])
def test_a_run_by_itself_is_not_taken_letter_by_letter(work, kind):
    with pytest.raises(Event2VecError, match=r"^no_such_run: does not exist"):
        work(kind("no_such_run"))


@pytest.mark.parametrize("kind", [str, Path])
def test_a_store_by_itself_is_not_taken_letter_by_letter(kind):
    with pytest.raises(Event2VecError, match=r"^no_such_store: is not a folder"):
        copy_store(kind("no_such_store"), "copied")


@pytest.mark.parametrize("kind", [str, Path])
def test_a_file_or_a_folder_by_itself_is_answered(kind, model, tmp_path):
    for number in range(2):
        write_events(tmp_path / f"mixed/class/{number}.npz", make_recording(60, seed=number))
    found = predict(model, kind(tmp_path / "mixed"))
    assert [answer.file for answer in found] == [str(tmp_path / f"mixed/class/{number}.npz") for number in range(2)]
    (answer,) = predict(model, kind(tmp_path / "mixed/class/1.npz"))
    assert answer.prediction is not None
    assert answer.prediction.name == found[1].prediction.name  # type: ignore[union-attr]


def test_answers_are_given_for_files_as_they_are_found(model, tmp_path):
    write_events(tmp_path / "one.npz", make_recording(60))
    assert len(model.predict(tmp_path.glob("*.npz"))) == 1


def test_a_network_by_itself_is_compared():
    with pytest.raises(Event2VecError, match=r"^unknown network 'nonsense'"):
        compare("data", "nonsense")


def test_a_number_by_itself_is_a_sweep_of_one_point(model, tmp_path, monkeypatch):
    store = make_store(tmp_path / "store").split("test")
    (point,) = sweep("events", model, store, 16, repeats=1)
    assert (point.value, point.events_read) == (16, 16)

    def stop(asked, *_, **__):
        raise Event2VecError(" ".join(row.name for row in asked.rows))

    monkeypatch.setattr("event2vec.studies.compare.run_experiment", stop)
    with pytest.raises(Event2VecError, match=r"voxel grid random 64 .*event2vec random 64"):
        compare_sweep("events", store.folder, 64, epochs=1)


def test_a_layer_by_itself_is_probed(model, tmp_path, monkeypatch):
    save_model(model, tmp_path / "network")
    store = make_store(tmp_path / "store")
    monkeypatch.setattr("event2vec.studies.probe.probe_network", lambda *given: given[3])
    found: list = probe(tmp_path / "network", store.folder, layers=1)
    assert found == [1]


def test_a_recording_by_itself_is_a_batch_and_is_clustered():
    events = make_recording(60)
    assert_same(EventBatch.pad(events).row(0), events)
    (few,) = cluster_batch(events, 8)
    assert len(few) == 8


def test_a_data_set_by_itself_is_prepared(tmp_path):
    for number in range(2):
        write_events(tmp_path / f"mine/train/{'ab'[number]}/0.npz", make_recording(60, seed=number))
        write_events(tmp_path / f"mine/test/{'ab'[number]}/0.npz", make_recording(60, seed=number))
    found = prepare(open_dataset("folder", tmp_path / "mine", "test"), tmp_path / "store")
    assert found.store.splits == ("test", "test")
    assert found.store.sensor == SMALL


WRONG = {
    "prepare('mixed', 'st')": 'expected data sets, such as open_splits("folder", "my_recordings/"), got \'mixed\'',
    "evaluate(model, 'mixed')": (
        "expected a store, such as EventStore.open(folder).split('test'), got 'mixed'. Run.evaluate takes a folder"
    ),
    "model.predict(3)": "expected events, or files with recordings, got 3",
    "model.predict([3])": "expected events, or files with recordings, got 3",
    "predict(model, 3)": "expected paths of recordings or folders, got 3",
    "predict(3, 'clip.raw')": (
        "expected a run, a folder with a saved network, or a file that 'event2vec export' wrote, got 3"
    ),
    "read_events(3)": "expected the path of a recording, got 3",
    "read_recording(None)": "expected the path of a recording, got None",
    "next(read_chunks(3))": "expected the path of a recording, got 3",
    "write_events(3, None)": "expected the name of a file to write, got 3",
    "train('folder', data=5)": "expected a store, or the path of data as `data`, got 5",
    "train('digits', training=3)": "training must be settings, such as {'epochs': 15}, got 3",
    "train('digits', epochs=3)": (
        "unknown setting epochs (did you mean training.epochs, given as training={'epochs': 3}?)"
    ),
}


def test_values_of_the_wrong_kind_are_refused_in_one_line(model, tmp_path):
    """In a process of its own: tests check types themselves, users do not."""
    save_model(model, tmp_path / "network")
    code = f"""
from event2vec import *
model = load_model("network")
for call in {list(WRONG)!r}:
    try:
        eval(call)
    except Event2VecError as error:
        print(error)
"""
    done = run_python("-c", code, folder=tmp_path, check=True)
    assert done.stdout.splitlines() == list(WRONG.values())


def test_what_is_no_network_is_told_what_one_is(tmp_path):
    (tmp_path / "notes.txt").write_text("not a network")
    expected = "a run, a folder with a saved network, or a file that 'event2vec export' wrote"
    with pytest.raises(Event2VecError) as refused:
        predict(tmp_path / "notes.txt", "clip.raw")
    assert str(refused.value) == f"{tmp_path}/notes.txt: is not a network. Expected {expected}"


def test_a_folder_where_one_recording_is_expected_is_told_what_takes_folders(model, tmp_path):
    wanted = "is a folder, expected a recording: name a file in it. event2vec.predict takes folders"
    for work in (model.predict, read_events):
        with pytest.raises(Event2VecError) as refused:
            work(str(tmp_path))
        assert str(refused.value) == f"{tmp_path}: {wanted}"


def test_a_recording_is_written_over_another_as_the_docstring_says(tmp_path):
    assert "A file of this name is replaced" in (write_events.__doc__ or "")
    for count in (60, 40):
        write_events(tmp_path / "one.npz", make_recording(count))
    assert_same(read_events(tmp_path / "one.npz"), make_recording(40))
