"""What training saw is kept with the network, and recordings far from it are noticed; real ones among them."""

import json
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import SMALL, make_recording, randomise

from event2vec import (
    Event2VecError,
    Events,
    EventStore,
    ModelConfig,
    Recipe,
    Run,
    Sampling,
    Sensor,
    build_model,
    cluster_events,
    evaluate,
    load_model,
    read_events,
    save_model,
    write_events,
)
from event2vec.cli import main
from event2vec.model.trained_on import Extent, TrainedOn, extents_of, too_few

TINY = ModelConfig(sensor=Sensor(34, 34), classes=10, dim=16, hidden=16, heads=2, blocks=1)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Twelve real recordings of each digit of N-MNIST."""
    from conftest import SHARED

    archive = SHARED / "nmnist_small.tar.gz"
    if not archive.is_file():
        pytest.skip("the shared recordings are not beside the project")
    folder = tmp_path_factory.mktemp("nmnist")
    with tarfile.open(archive) as content:
        chosen = dict[str, list[tarfile.TarInfo]]()
        for member in content:
            if "/Train/" in member.name and member.name.endswith(".bin"):
                chosen.setdefault(member.name.split("/")[-2], []).append(member)
        for members in chosen.values():
            content.extractall(folder, members[:12], filter="data")
    return [(read_events(path), int(path.parent.name)) for path in sorted(folder.rglob("*.bin"))]


def store_of(recordings, folder, sampling):
    shorter = [
        (cluster_events(events, sampling.length) if sampling.method == "clusters" else events, label)
        for events, label in recordings
    ]
    classes = list(map(str, range(10)))
    return EventStore.create(folder, shorter, sensor=(34, 34), classes=classes, splits=["train"] * len(shorter))


@pytest.fixture(params=["random", "clusters"])
def trained(request, digits, tmp_path):
    sampling = Sampling(method=request.param, length=64)
    model = randomise(build_model(TINY, sampling=sampling))
    model.trained_on = TrainedOn.of(store_of(digits[::2], tmp_path / "store", sampling))
    return model


def test_other_real_recordings_of_the_same_kind_are_not_far(trained, digits):
    for answer in trained.predict([events for events, _ in digits[1::2]]):
        assert (answer.remarks, answer.unknown) == ((), None)


def test_a_real_recording_cut_or_slowed_or_thinned_is_far(trained, digits):
    events = digits[1][0]
    assert 0.29e6 < events.duration < 0.32e6
    cut = trained.predict(events.select(events.t < 100_000))
    assert len(cut.remarks) >= 1
    assert "s long, in training 0." in cut.remarks[0]
    assert cut.unknown is None, "it is said, and answered"
    slow = trained.predict(replace(events, t=20 * events.t))
    assert [remark.split(", in ")[0].split(maxsplit=1)[1] for remark in slow.remarks] == ["s long", "events per second"]
    thin = trained.predict(events.select(torch.arange(0, len(events), 16)))
    assert len(thin.remarks) == 2
    assert "events, in training 1" in thin.remarks[0]


@pytest.mark.parametrize("count", [1, 2, 50])
def test_an_absurd_recording_is_unknown_and_not_sure_of_anything(trained, digits, count):
    events = digits[1][0]
    answer = trained.predict(events.select(torch.arange(count)))
    assert (answer.label, answer.name) == (None, "unknown")
    assert answer.unknown is not None
    assert answer.unknown.startswith(
        f"{count} event{'s are' if count > 1 else ' is'} too few to judge by: in training 1,"
    )
    assert answer.scores.tolist() == pytest.approx([0.1] * 10), "no class before another"


def test_a_single_event_is_unknown_to_networks_that_do_not_know_what_they_saw():
    model = randomise(build_model(TINY))
    one = Events.from_arrays([3], [4], [0], [1], sensor=Sensor(34, 34))
    assert (model.predict(one).label, model.predict(one).unknown) == (None, "1 event is too few to judge by")
    two = Events.from_arrays([3, 4], [4, 4], [0, 9], [1, 0], sensor=Sensor(34, 34))
    assert model.predict(two).unknown is None
    assert model.predict(two).remarks == ()


def test_a_store_knows_the_extent_of_its_recordings_without_reading_them(digits, tmp_path):
    empty = (make_recording(0, sensor=Sensor(34, 34)), 0)
    store = store_of([*digits[:5], empty, *digits[5:8]], tmp_path / "raw", Sampling()).subset([4, 5, 6])
    assert list(extents_of(store)) == [Extent.of(store[index][0]) for index in range(3)]
    clusters = store_of(digits[:5], tmp_path / "clusters", Sampling(method="clusters", length=64))
    found = list(extents_of(clusters))
    assert found == [Extent.of(clusters[index][0]) for index in range(5)]
    for extent, (events, _) in zip(found, digits, strict=False):
        assert extent.events == pytest.approx(len(events)), "rho sums to what was recorded"
        assert 0.75 < extent.duration / (events.duration / 1e6) <= 1


def test_quantiles_and_ranges_by_hand():
    flat = TrainedOn(9, (1.0,) * 7, (100.0,) * 7, (100.0,) * 7)
    assert flat.remarks(Extent(200.0, 2.0)) == ()
    assert flat.remarks(Extent(201.0, 2.0)) == ("201 events, in training 100 to 100",)
    assert flat.remarks(Extent(100.0, 0.4)) == (
        "0.4 s long, in training 1 to 1",
        "250 events per second, in training 100 to 100",
    )
    assert flat.remarks(Extent(100.0, 0.0)) == ("0 s long, in training 1 to 1",), "no rate, and no error"
    assert too_few(Extent(10.0, 1.0), flat) is None
    assert too_few(Extent(9.0, 1.0), flat) == "9 events are too few to judge by: in training 100 to 100"
    assert flat.remarks(Extent(1.0, 0.01)) == ("0.01 s long, in training 1 to 1", "1 event, in training 100 to 100")
    said = "9 recordings of 1 to 1 s{} with 100 to 100 events (100 to 100 per second) (0.1 to 99.9 % quantiles)"
    assert flat.summary(Sampling()) == said.format("")
    assert flat.summary(Sampling(method="clusters")) == said.format(" from the first to the last cluster")


def test_it_is_saved_with_the_network_and_checked(tmp_path):
    recordings = [(make_recording(50 + index, seed=index), index % 3) for index in range(6)]
    store = EventStore.create(tmp_path / "store", recordings, sensor=SMALL, classes=["a", "b", "c"])
    model = randomise(build_model(replace(TINY, sensor=SMALL, classes=3)))
    model.trained_on = TrainedOn.of(store)
    save_model(model, tmp_path / "network")
    assert load_model(tmp_path / "network").trained_on == model.trained_on
    assert model.trained_on.events[3] == np.median([len(events) for events, _ in recordings])
    assert model.trained_on.summary(model.sampling) in (tmp_path / "network/README.md").read_text("utf-8")
    config = tmp_path / "network/config.json"
    facts = json.loads(config.read_text())
    kept = facts["trained_on"]
    wrongs: tuple[object, ...] = (
        [],
        "all",
        kept | {"recordings": 0},
        kept | {"events": [1] * 6},
        kept | {"rate": [3, 2, 1, 1, 1, 1, 1]},
    )
    for wrong in wrongs:
        config.write_text(json.dumps(facts | {"trained_on": wrong}))
        with pytest.raises(Event2VecError, match="does not describe a network: trained_on"):
            load_model(tmp_path / "network")
    del facts["trained_on"]
    config.write_text(json.dumps(facts))
    assert load_model(tmp_path / "network").trained_on is None, "as it was before it was kept"


def test_training_keeps_it_and_an_evaluation_names_what_lies_far(tmp_path, capsys):
    recordings = [(make_recording(60 + index, seed=index), index % 2) for index in range(16)]
    far = (make_recording(60, seed=1, duration=3_000_000), 0)
    splits = ["train"] * 10 + ["validation"] * 2 + ["test"] * 5
    sources = [*map(str, range(16)), "slow.raw"]
    store = EventStore.create(
        tmp_path / "store", [*recordings, far], sensor=SMALL, classes=["a", "b"], splits=splits, sources=sources
    )
    size = {"model.dim": 16, "model.hidden": 16, "model.blocks": 1, "sampling.length": 16, "training.epochs": 1}
    run = Run.start(Recipe().with_settings(size | {"trainer.accelerator": "cpu"}), store, tmp_path / "run")
    model = run.model()
    assert model.trained_on == TrainedOn.of(store.split("train"))
    assert model.trained_on.recordings == 10
    ((source, remark),) = evaluate(model, store.split("test"), repeats=1).far
    assert source == "slow.raw"
    assert " s long, in training 0." in remark
    kept = json.loads((tmp_path / "run/evaluation/test.json").read_text())
    assert kept["far_from_training"] == [{"source": "slow.raw", "remark": remark}]
    capsys.readouterr()
    assert main(["evaluate", str(run.folder), "--repeats", "1"]) == 0
    said = capsys.readouterr()
    line = f"event2vec: 1 of 5 recordings is unlike the training recordings, such as slow.raw: {remark}"
    assert line in said.err.splitlines()
    assert "calibration error" in said.out


def test_predict_says_in_one_line_what_is_far_and_what_is_unknown(tmp_path, capsys):
    model = randomise(build_model(TINY))
    model.trained_on = TrainedOn(9, (0.3,) * 7, (1000.0,) * 7, (3333.0,) * 7)
    save_model(model, tmp_path / "network")
    files = [str(tmp_path / name) for name in ("one.npz", "slow.npz", "usual.npz")]
    for file, (count, duration) in zip(files, ((1, 1), (1000, 3_000_000), (1000, 300_000)), strict=True):
        write_events(file, make_recording(count, sensor=TINY.sensor, duration=duration))
    assert main(["predict", str(tmp_path / "network"), *files, "--json"]) == 0
    said = capsys.readouterr()
    one, slow, usual = json.loads(said.out)
    assert (one["label"], one["name"]) == (None, "unknown")
    assert one["confidence"] == pytest.approx(0.1)
    assert (len(slow["remarks"]), slow["unknown"]) == (2, None)
    assert (usual["remarks"], usual["unknown"]) == ([], None)
    assert said.err.splitlines() == [
        f"event2vec: {files[0]}: 1 event is too few to judge by: in training 1,000 to 1,000",
        f"event2vec: {files[1]}: unlike the training recordings: {'; '.join(slow['remarks'])}",
        "event2vec: for answers over time on windows as in training: --window 0.3",
    ]
