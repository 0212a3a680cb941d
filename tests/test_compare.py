"""Networks compared: one protocol for all, nothing trained twice, and a network of your own among them."""

import json
from dataclasses import dataclass

import pytest
import torch
from conftest import SMALL, make_recording
from torch import nn

from event2vec import Event2VecError, EventBatch, EventStore, Recipe, Run, Sampling, build_model, compare
from event2vec.baselines import NETWORKS, Baseline
from event2vec.baselines.config import FrameCnnConfig
from event2vec.baselines.max_former import MaxFormer
from event2vec.evaluation.speed import Figure, Speed, Throughput, bytes_of_answer
from event2vec.model.classifier import Classifier, count_parameters
from event2vec.model.config import NetworkConfig, named
from event2vec.progress import Progress
from event2vec.settings import setting
from event2vec.studies.compare import compare_sweep, network_row
from event2vec.training.muon import Muon
from event2vec.training.recipe import load_recipe
from event2vec.training.timing import fit_to_minutes, seconds_of_epoch

BASE = Recipe().with_settings(
    {
        "sampling.length": 32,
        "model.dim": 16,
        "model.hidden": 16,
        "model.blocks": 1,
        "training.batch": 4,
        "trainer.accelerator": "cpu",
        "trainer.devices": 1,
        "augment.rotate": 5.0,
        "data.validation": 0.0,
    }
)


ONE = Figure(1.0, 0.0)
SPEED = Speed(ONE, ONE, ONE, Throughput(1, ONE), Throughput(1, ONE))


@dataclass(frozen=True, kw_only=True)
class CountsConfig(NetworkConfig, section="model"):
    """The number of events of each polarity."""

    network: str = named("counts")
    scale: float = setting(0.01, "what counts are multiplied by", above=0)


class Counts(Classifier):
    """What docs/howto/network.md shows: a network of one's own, in one file."""

    def __init__(self, config: CountsConfig, class_names: tuple[str, ...], sampling: Sampling) -> None:
        super().__init__(config, class_names, sampling)
        self.scale = config.scale
        self.head = nn.Linear(2, config.classes)

    def forward(self, batch: EventBatch, generator: torch.Generator | None = None) -> torch.Tensor:
        rising = (batch.p & batch.valid).sum(dim=1)
        return self.head(self.scale * torch.stack([rising, batch.valid.sum(dim=1) - rising], dim=1).float())


@pytest.fixture
def store(tmp_path):
    recordings = [(make_recording(40, seed=index), index % 2) for index in range(10)]
    splits = ["train"] * 8 + ["test"] * 2
    return EventStore.create(tmp_path / "store", recordings, sensor=SMALL, classes=["a", "b"], splits=splits)


def test_a_network_of_your_own_is_a_row_and_nothing_is_trained_twice(store, tmp_path, monkeypatch):
    monkeypatch.setitem(NETWORKS, "counts", Baseline(CountsConfig, f"{__name__}:Counts"))
    started, start = [], Run.start
    monkeypatch.setattr(Run, "start", lambda *given: (started.append(given[2].name), start(*given))[1])
    monkeypatch.setattr("event2vec.studies.row_run.bytes_of_answer", lambda *_: 3 * 2**20)
    networks, out = ["event2vec", "counts"], tmp_path / "out"
    for _ in range(2):
        found = compare(store.folder, networks, recipe=BASE, epochs=1, out=out)
    assert started == ["event2vec-0", "counts-0"]
    assert [row["network"] for row in found.rows] == networks
    ours, own = found.rows
    assert (ours["paper: accuracy (%)"], own["paper: accuracy (%)"]) == ("97.57 ± 1.31", "-")
    assert own["parameters"] == "6"
    assert "ms" not in own["total (ms)"]
    assert own["memory (MB)"] == "3"
    assert own["epochs"] == "1"
    assert found.protocol.startswith("Trained for 1 epoch each, 1 seed, on 'store', with ")
    assert all(found.protocol.split(",")[0] in (out / f"table.{kind}").read_text("utf-8") for kind in ("md", "html"))
    assert all((out / f"accuracy_{name}.svg").is_file() for name in ("parameters", "minutes", "latency"))
    assert "accuracy (%)" in (out / "table.csv").read_text().splitlines()[0]
    assert (out / "table.md").read_text("utf-8").count("\n|") == 4
    assert (out / "table.html").read_text("utf-8").count("<tr") == 3
    assert [row["name"] for row in json.loads((out / "table.json").read_text())["rows"]] == networks


def test_rows_share_data_and_augmentation_and_keep_their_own_sizes():
    row = network_row("max_former", BASE, {"training.minutes": 2.0})
    recipe = BASE.with_settings(row.settings)
    theirs = load_recipe("max_former")
    assert (recipe.data, recipe.augment, recipe.trainer) == (BASE.data, BASE.augment, BASE.trainer)
    assert recipe.sampling == theirs.sampling
    assert (recipe.model.network, recipe.model.classes) == ("max_former", BASE.model.classes)
    assert recipe.training.learning_rate == theirs.training.learning_rate
    assert (recipe.training.minutes, recipe.objective.token_mix) == (2.0, 0.0)


def test_a_network_without_a_recipe_learns_as_the_frame_cnn(monkeypatch):
    monkeypatch.setitem(NETWORKS, "counts", Baseline(CountsConfig, f"{__name__}:Counts"))
    base = load_recipe("folder")
    recipe, usual = base.with_settings(network_row("counts", base, {}).settings), load_recipe("frame_cnn")
    assert (recipe.sampling, recipe.training) == (usual.sampling, usual.training)
    assert (recipe.model.network, recipe.augment.rotate) == ("counts", base.augment.rotate)


def test_event_mae_is_pretrained_for_half_of_its_time(store, tmp_path, monkeypatch):
    monkeypatch.setattr("event2vec.studies.row_run.bytes_of_answer", lambda *_: 3 * 2**20)
    monkeypatch.setattr("event2vec.studies.row_run.measure_speed", lambda *_: SPEED)
    found = compare(store.folder, ["event_mae"], recipe=BASE, epochs=3, out=tmp_path / "out")
    first, then = (Run.open(tmp_path / "out" / name) for name in ("pretrained/event_mae-0", "event_mae-0"))
    assert (first.facts.task, len(first.metrics), len(then.metrics)) == ("pretrain", 1, 2)
    assert first.recipe.objective.mask.share == 0.6
    assert (then.facts.init or "").endswith("pretrained/event_mae-0")
    assert (found.rows[0]["epochs"], found.protocol.count("pre-training")) == ("3", 1)
    halved = network_row("event_mae", BASE, {"training.minutes": 3.0})
    assert (halved.settings["training.minutes"], halved.pretrain["training.minutes"]) == (1.5, 1.5)
    assert not network_row("event_mae", BASE, {"training.minutes": 0.0, "training.epochs": 1}).pretrain


def test_data_without_a_test_part_is_refused_before_training(store, tmp_path):
    EventStore.create(tmp_path / "train", [store[index] for index in range(8)], sensor=SMALL, classes=["a", "b"])
    with pytest.raises(Event2VecError, match=r"train: has no test part, which networks are judged on, only train\."):
        compare(tmp_path / "train", ["event2vec"], recipe=BASE, epochs=1, out=tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*")), "nothing that another call would have to fit"


def test_memory_is_that_of_the_weights_and_of_one_answer():
    config = FrameCnnConfig(sensor=SMALL, classes=2, bins=2, channels=64)
    model = build_model(config, sampling=Sampling(length=64)).eval()
    found = bytes_of_answer(model, make_recording(64))
    assert found >= 4 * count_parameters(model)
    assert found < 2**30


def test_what_cannot_be_compared_is_one_line(tmp_path):
    with pytest.raises(
        Event2VecError, match=r"unknown network 'max_formr' \(did you mean max_former\?\); .*, or a recipe"
    ):
        compare(tmp_path, ["max_formr"], recipe=BASE)
    with pytest.raises(Event2VecError, match=r"minutes and epochs cannot be combined; omit one"):
        compare(tmp_path, recipe=BASE, minutes=1.0, epochs=1)
    for networks, shown in ((["event2vec", "event2vec"], "'event2vec', 'event2vec'"), ([], "none")):
        with pytest.raises(Event2VecError, match=f"^networks must be one or more, each named once, got {shown}$"):
            compare(tmp_path, networks, recipe=BASE, epochs=1, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_figures_three_and_four_are_sweeps_of_several_networks(store, tmp_path, monkeypatch):
    monkeypatch.setattr("event2vec.studies.compare.STRATEGIES", ("spatial",))
    curves = compare_sweep("events", store.folder, [32, 8], recipe=BASE, epochs=1, out=tmp_path / "three", repeats=1)
    assert {name: [point.value for point in points] for name, points in curves.items()} == {
        "voxel grid spatial": [8, 32],
        "event2vec random": [8, 32],
    }
    trained = Run.open(tmp_path / "three/voxel_grid_spatial_8-0").recipe.sampling
    assert (trained.method, trained.length) == ("spatial", 8)
    assert (tmp_path / "three/events.svg").is_file()
    assert len((tmp_path / "three/events.csv").read_text().splitlines()) == 5
    curves = compare_sweep("resolution", store.folder, recipe=BASE, epochs=1, out=tmp_path / "four", repeats=1)
    sides = [1, 2, 4, 8, 17, 34]  # of the data's sensor, not of the recipe's
    assert {name: [point.value for point in points] for name, points in curves.items()} == {
        "event2vec": sides,
        "max_former": sides,
    }
    model, batch = Run.open(tmp_path / "four/max_former-0").model(), EventBatch.pad([make_recording(900)])
    assert isinstance(model, MaxFormer)
    assert torch.equal(model.at_resolution(32)(batch), model(batch))
    assert model.at_resolution(1).resolution == 1


def test_minutes_become_epochs_before_a_training_starts(store, monkeypatch):
    recipe = BASE.with_settings({"training.minutes": 2.0})
    monkeypatch.setattr("event2vec.training.timing.seconds_of_epoch", lambda *_: 6.8)
    said: list[str] = []
    fitted = fit_to_minutes(recipe, store, "train", _Told(said))
    assert fitted.training.epochs == 18, "120 s are 17.6 epochs"
    assert fitted.training.warmup_epochs == pytest.approx(1.8)
    assert said == ["training.minutes 2: 18 epochs of about 6.8 s"]
    assert fit_to_minutes(BASE, store, "train", _Told(said)) is BASE
    monkeypatch.setattr("event2vec.training.timing.seconds_of_epoch", lambda *_: 200.0)
    assert fit_to_minutes(recipe, store, "train", _Told(said)).training.epochs == 1
    assert said[-1].endswith("1 epoch of about 200.0 s, more than asked for")
    with pytest.raises(Event2VecError, match=r"training.minutes is for one device"):
        fit_to_minutes(recipe.with_settings({"trainer.devices": 2}), store, "train", _Told(said))


def test_epochs_are_timed_with_the_optimiser_of_the_recipe(store, monkeypatch):
    steps, step, store_of = list[type](), torch.optim.AdamW.step, {"model.sensor": str(SMALL), "model.classes": 2}
    monkeypatch.setattr(
        torch.optim.AdamW, "step", lambda self, *given: (steps.append(type(self)), step(self, *given))[1]
    )
    for name, kind in (("adamw", torch.optim.AdamW), ("muon", Muon)):
        steps.clear()
        assert seconds_of_epoch(BASE.with_settings(store_of | {"training.optimizer": name}), store, "train", 0.0) > 0
        assert set(steps) == {kind}


def test_a_run_of_some_minutes_keeps_its_epochs(store, tmp_path):
    recipe = BASE.with_settings({"training.minutes": 0.002, "data.validation": 0.3})
    run = Run.start(recipe, store, tmp_path / "run")
    kept = Run.open(run.folder).recipe.training
    assert kept.minutes == 0.002
    assert len(run.metrics) == kept.epochs >= 1


class _Told(Progress):
    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def say(self, line: str) -> None:
        self.lines.append(line)
