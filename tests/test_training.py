"""Training: every draw decided, the test part read once, and what a run leaves."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import SMALL, make_recording
from trainings import FLAT, RECIPE, Watch, accumulated, make_store

from event2vec import Event2VecError, EventStore, load_model
from event2vec.data.batches import Recordings
from event2vec.data.seeding import seeded
from event2vec.evaluation.accuracy import standard_error
from event2vec.model.checkpoint import load_any_model
from event2vec.training.config import AugmentConfig, DataConfig, ObjectiveConfig, TrainingConfig
from event2vec.training.metrics import read_rows
from event2vec.training.run import Run


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("data") / "store")


def evaluate_directly(model, store):
    """Accuracy on the draws that training tests on."""
    recordings = Recordings((store,), model.sampling, seed=0)
    batch, labels, _ = recordings.batch([(0, index) for index in range(len(store))])
    return (model(batch).argmax(dim=1) == labels).float().mean().item()


@pytest.mark.pictures
def test_a_run_leaves_all_that_is_needed(store, tmp_path):
    watch, run = Watch(), tmp_path / "run"
    Run.start(RECIPE, store, run, "train", progress=watch)
    fitted = [("fitting the temperature", 6)] * 2  # of the last network and of the best
    assert watch.started == [("training", 3 * 6), *fitted, ("evaluating", 6)]
    assert watch.steps == list(range(1, 19))
    assert [row["epoch"] for row in read_rows(run / "metrics.csv")] == [1, 2, 3]
    assert {"train_loss", "train_accuracy", "validation_loss", "validation_accuracy", "learning_rate"} <= read_rows(
        run / "metrics.csv"
    )[-1].keys()
    epochs = [line for line in watch.lines if line.startswith("epoch")]
    assert [line.split("  ")[0] for line in epochs] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert all("validation accuracy" in line and line.endswith(" left") for line in epochs)
    assert (run / "curves.png").stat().st_size > 1000, "a Python user has the curves too"
    assert load_model(run).class_names == ("a", "b", "c")
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["last.ckpt"]
    rows = read_rows(run / "metrics.csv")
    highest = max(row["validation_accuracy"] for row in rows)
    enough = [row for row in rows if row["validation_accuracy"] >= highest - standard_error(highest, 6)]
    best = min(enough, key=lambda row: row["validation_loss"])["validation_accuracy"]
    found = evaluate_directly(load_model(run / "best"), store.split("validation"))
    assert found == pytest.approx(best, abs=1e-6), "best/ is the network of the best epoch"
    assert list((run / "tensorboard").glob("events.*"))
    assert Run.open(run).facts.data == str(store.folder.resolve())
    assert {"torch", "python", "command", "threads"} <= Run.open(run).facts.environment.keys()
    with pytest.raises(Event2VecError, match="exists already"):
        Run.start(RECIPE, store, run, "train")


def test_every_epoch_has_draws_of_its_own(store, tmp_path, monkeypatch):
    seen: list[Any] = []
    read = Recordings.batch
    monkeypatch.setattr(
        Recordings,
        "batch",
        lambda self, keys: seen.extend((len(self.sets[0]), key) for key in keys) or read(self, keys),
    )
    recipe = replace(RECIPE, training=replace(RECIPE.training, epochs=2, repeats=2, batch=12))
    Run.start(recipe, store, tmp_path / "run", "train")
    keys = [key for count, key in seen if count == 24]
    assert [draw for draw, _ in keys] == [0] * 24 + [1] * 24 + [2] * 24 + [3] * 24
    orders = [[index for draw, index in keys if draw == number] for number in range(4)]
    assert len({tuple(order) for order in orders}) == 4
    assert all(sorted(order) == list(range(24)) for order in orders)


def test_it_learns(tmp_path, make_events):
    """Three classes in three corners: a few steps must tell them apart."""

    def corner(label, seed):
        events = make_events(60, seed=seed)
        return replace(events, x=events.x / 4 + 8 * label, y=events.y / 4 + 7 * label), label

    recordings = [corner(index % 3, index) for index in range(60)]
    store = EventStore.create(
        tmp_path / "store",
        recordings,
        sensor=SMALL,
        classes=["a", "b", "c"],
        splits=["train"] * 45 + ["validation"] * 15,
    )
    training = TrainingConfig(epochs=8, batch=8, learning_rate=0.3, warmup_epochs=1.0)
    Run.start(replace(RECIPE, augment=AugmentConfig(), training=training), store, tmp_path / "run", "train")
    rows = read_rows(tmp_path / "run/metrics.csv")
    assert rows[-1]["validation_accuracy"] > 0.9
    assert rows[-1]["train_loss"] < 0.7 * rows[0]["train_loss"]


def test_accumulated_batches_take_the_step_of_one_that_holds_them_all(store, tmp_path):
    """Draws of augmentation, drop path and TokenMix belong to a batch, so they are off here."""
    watches, rows = [], []
    for name, recipe in (("parts", accumulated(4, epochs=2)), ("whole", accumulated(1, batch=8, epochs=2))):
        recipe = replace(recipe, augment=AugmentConfig(), objective=ObjectiveConfig())
        recipe = recipe.with_settings({"model.drop_path": 0.0})
        watches.append(Watch())
        Run.start(recipe, store, tmp_path / name, "train", progress=watches[-1])
        rows.append(read_rows(tmp_path / name / "metrics.csv"))
    pairs = zip(
        load_model(tmp_path / "parts/model").parameters(),
        load_model(tmp_path / "whole/model").parameters(),
        strict=True,
    )
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in pairs)
    assert watches[0].started[0] == watches[1].started[0] == ("training", 2 * 3)
    assert watches[0].steps == [1, 2, 3, 4, 5, 6], "steps, not batches"
    assert watches[0].losses == pytest.approx(watches[1].losses, abs=2e-3)
    for parts, whole in zip(*rows, strict=True):
        for name in ("step", "train_loss", "train_accuracy", "validation_loss", "learning_rate"):
            assert parts[name] == pytest.approx(whole[name], rel=1e-4), name


def test_every_accumulated_batch_has_draws_of_its_own(store, tmp_path, monkeypatch):
    import event2vec.training.lightning_module as learner

    drawn, draw = [], seeded
    monkeypatch.setattr(learner, "seeded", lambda *key: drawn.append(key[:3]) or draw(*key))
    Run.start(accumulated(2, batch=6, epochs=1), store, tmp_path / "run", "train")
    assert len(drawn) == len(set(drawn)) == 4


def test_a_loss_that_is_no_number_names_the_recordings(store, tmp_path):
    recipe = replace(RECIPE, training=replace(RECIPE.training, learning_rate=1e30, clip=0.0, warmup_epochs=0.0))
    with pytest.raises(Event2VecError, match=r"the loss became nan at step \d+, learning rate 1.5\de\+28, on \d+, \d+"):
        Run.start(recipe, store, tmp_path / "run", "train")


def test_pretraining_is_taken_over_all_but_the_head(store, tmp_path):
    Run.start(FLAT, store, tmp_path / "pretrained", "pretrain")
    row = read_rows(tmp_path / "pretrained/metrics.csv")[-1]
    assert {
        "train_loss_of_mean",
        "train_polarity_accuracy",
        "validation_x_error_pixels",
        "validation_y_error_pixels",
    } <= row.keys()
    still = replace(FLAT, training=replace(FLAT.training, learning_rate=0.0, epochs=1))
    watch = Watch()
    Run.start(still, store, tmp_path / "tuned", "train", init=tmp_path / "pretrained", progress=watch)
    theirs, ours = load_any_model(tmp_path / "pretrained").state_dict(), load_model(tmp_path / "tuned").state_dict()
    taken = {name for name in ours if not name.startswith("head.")}
    assert all(torch.equal(theirs[name], ours[name]) for name in taken)
    counts = [sum(name.startswith(part) for name in taken) for part in ("embed.", "backbone.")]
    said = f"Copied {counts[0]} weights of the embedding and {counts[1]} weights of the backbone"
    assert any(line.startswith(said) for line in watch.lines)
    wider = FLAT.with_settings({"model.hidden": 24})
    with pytest.raises(Event2VecError, match=r"does not fit: backbone.*narrow.weight has \(16, 16\)|widen"):
        Run.start(wider, store, tmp_path / "wider", "train", init=tmp_path / "pretrained")
    with pytest.raises(Event2VecError, match=r"model.pooling must be false"):
        Run.start(RECIPE, store, tmp_path / "pooled", "pretrain")


def test_bfloat16_trains(store, tmp_path):
    recipe = replace(RECIPE, trainer=replace(RECIPE.trainer, precision="bf16-mixed"))
    Run.start(recipe, store, tmp_path / "run", "train")
    assert all(parameter.isfinite().all() for parameter in load_model(tmp_path / "run").parameters())


def test_a_store_without_test_recordings_trains(tmp_path, make_events):
    """Three of each class are too few to take validation recordings from."""
    recordings = [(make_events(60, seed=index), index % 3) for index in range(9)]
    store = EventStore.create(tmp_path / "store", recordings, sensor=SMALL, classes=["a", "b", "c"])
    Run.start(RECIPE, store, tmp_path / "run", "train")
    assert "validation_loss" not in read_rows(tmp_path / "run/metrics.csv")[0]
    assert (tmp_path / "run/model").is_dir()
    assert not (tmp_path / "run/best").exists()
    assert not (tmp_path / "run/evaluation").exists()
    assert load_model(tmp_path / "run").class_names == ("a", "b", "c"), "that of the last epoch"
    patient = replace(RECIPE, training=replace(RECIPE.training, patience=2))
    with pytest.raises(Event2VecError, match=r"training.patience needs a validation part. Set data.validation"):
        Run.start(patient, store, tmp_path / "patient", "train")
    assert not (tmp_path / "patient/recipe.yaml").exists()


def test_the_test_part_is_read_once_and_after_the_last_epoch(store, tmp_path, monkeypatch):
    seen, read = [], EventStore.sample
    test = set(store.split("test").rows.tolist())
    monkeypatch.setattr(EventStore, "sample", lambda self, i, *how: seen.append(self.rows[i]) or read(self, i, *how))
    Run.start(RECIPE, store, tmp_path / "run", "train")
    reads = [row in test for row in seen]
    assert sum(reads) == len(test) == 6
    assert all(reads[-6:])
    found = Run.open(tmp_path / "run").evaluate(repeats=1)
    kept = json.loads((tmp_path / "run/evaluation/test.json").read_text())
    assert (kept["accuracy"], kept["recordings"]) == (found.accuracy, 6), "of the same network: the best"


def test_a_training_stops_when_validation_no_longer_gains_and_stays_stopped(store, tmp_path):
    """Without a learning rate no epoch is better than the first."""
    still = replace(RECIPE.training, learning_rate=0.0, patience=2, epochs=9)
    watch = Watch()
    run = Run.start(replace(RECIPE, training=still), store, tmp_path / "run", "train", progress=watch)
    assert len(run.metrics) == 3
    before = (tmp_path / "run/metrics.csv").read_bytes()
    (tmp_path / "run/evaluation/test.json").unlink()  # as a kill just before the end would leave it
    watch = Watch()
    run.resume(progress=watch)
    assert (tmp_path / "run/metrics.csv").read_bytes() == before
    assert watch.lines[0] == "Training stopped early: no better epoch in 2"
    assert (tmp_path / "run/evaluation/test.json").is_file()
    run.resume(training={"patience": 3})
    assert len(run.metrics) == 4
    assert run.recipe.training.patience == 3


def test_a_run_trained_for_longer_reads_the_test_part_again(store, tmp_path):
    run = Run.start(RECIPE, store, tmp_path / "run", "train")
    run.evaluate(repeats=3)
    kept = (tmp_path / "run/evaluation/test.json").read_bytes()
    run.resume()
    assert (tmp_path / "run/evaluation/test.json").read_bytes() == kept, "nothing was trained"
    run.resume(training={"epochs": 4})
    assert json.loads((tmp_path / "run/evaluation/test.json").read_text())["repeats"] == 1


def test_pretraining_has_a_best_epoch_and_a_test_result(store, tmp_path):
    run = Run.start(FLAT, store, tmp_path / "run", "pretrain")
    losses = [row["validation_loss"] for row in run.metrics]
    assert (tmp_path / "run/best").is_dir()
    found = json.loads((tmp_path / "run/evaluation/test.json").read_text())
    assert found["recordings"] == 6
    assert found["loss"] == pytest.approx(min(losses), rel=0.5)
    assert found.keys() >= {"loss_of_mean", "polarity_accuracy"}


def test_weight_decay_spares_norms_and_biases(store, tmp_path):
    """With no gradient to speak of, only what decays gets smaller."""
    training = replace(RECIPE.training, weight_decay=0.5, learning_rate=1e-3, epochs=1)
    Run.start(replace(RECIPE, training=training), store, tmp_path / "decayed", "train")
    Run.start(replace(RECIPE, training=replace(training, weight_decay=0.0)), store, tmp_path / "free", "train")
    decayed, free = load_model(tmp_path / "decayed").state_dict(), load_model(tmp_path / "free").state_dict()
    changed = {name for name in free if not torch.allclose(decayed[name], free[name], rtol=1e-9, atol=1e-9)}
    assert any(name.endswith("project_all.weight") for name in changed)
    norms = {name for name in free if "norm" in name or free[name].ndim < 2}
    assert all(torch.allclose(decayed[name], free[name], atol=1e-5) for name in norms)


def test_what_a_process_that_reads_ahead_met_is_one_line(tmp_path):
    recordings = [(make_recording(60, seed=index), index % 3) for index in range(8)]
    store = EventStore.create(tmp_path / "store", recordings, sensor=SMALL, classes=["a", "b", "c"])
    (store.folder / "x.bin").write_bytes(b"\xff" * (store.folder / "x.bin").stat().st_size)
    ahead = replace(RECIPE, data=DataConfig(workers=1))
    for recipe, run in ((RECIPE, "none"), (ahead, "one")):
        with pytest.raises(Event2VecError, match=r"store: is a damaged store: .* x = 65535 outside") as caught:
            Run.start(recipe, store, tmp_path / run, "train")
        assert "\\n" not in str(caught.value)
