"""What is read, how, and what must hold of it afterwards."""

from argparse import Namespace
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import torch

from event2vec import Events, EventStore, Sensor, load_model, load_recipe
from event2vec.benchmark.measurement import Measurement
from event2vec.benchmark.summary import compare
from event2vec.cli import benchmark
from event2vec.cli.options import parse_sensor, read_numbers
from event2vec.cli.recipe_options import read_recipe
from event2vec.data.datasets import open_dataset
from event2vec.documents import write_json
from event2vec.errors import Event2VecError
from event2vec.io import read_recording
from event2vec.studies.experiment_file import load_experiment
from event2vec.studies.results import RunResult
from event2vec.studies.tables import Row, RowResult, table
from event2vec.training.authors import import_network
from event2vec.training.layout import RunFacts
from event2vec.training.recipe import setting_names
from event2vec.training.run import Run
from fuzz import seeds
from fuzz.seeds import NETWORK, SENSOR, TRAINING, Make

Read = Callable[[Path, Random], Iterable[str]]  # gives what was said to the user meanwhile


OPTIONS: tuple[dict[str, Any], ...] = (
    {"sensor": Sensor(34, 30)},
    {"time_unit": "ns"},
    {"time_unit": "s"},
    {"columns": "xytp"},
)
SETTINGS = set(setting_names())


class BrokenPromise(Exception):
    """Something was read that is not what its type promises."""


@dataclass(frozen=True)
class Target:
    """One kind of input."""

    name: str
    make: Make
    read: Read
    weight: float = 4  # its share of the inputs


def check_events(events: Events) -> None:
    """As `Events` promises: by time from 0, on the sensor, finite."""
    count = len(events.t)
    if not all(len(column) == count for column in (events.x, events.y, events.p, events.rho)):
        raise BrokenPromise("columns of different lengths")
    if count == 0:
        return
    if int(events.t[0]) < 0 or bool((events.t.diff() < 0).any()):
        raise BrokenPromise(f"times that go back, or from {int(events.t[0])}")
    for name, side in (("x", events.sensor.width), ("y", events.sensor.height)):
        column = getattr(events, name)
        if not bool(((column >= 0) & (column <= side - 1)).all()):
            raise BrokenPromise(f"{name} from {float(column.min())} to {float(column.max())} on {side} pixels")
    if int(events.p.view(torch.uint8).max()) > 1:
        raise BrokenPromise("p of bytes that are neither 0 nor 1, which torch counts as more than one")
    if not bool(((events.rho >= 1) & (events.rho < 2**53)).all()):
        raise BrokenPromise(f"rho from {float(events.rho.min())} to {float(events.rho.max())}")


def read_file(path: Path, random: Random) -> Iterable[str]:
    options: dict[str, Any] = {}
    if random.random() < 0.1:
        options = random.choice(OPTIONS)
    recording = read_recording(path, **options)
    check_events(recording.events)
    return recording.warnings


def read_store(path: Path, random: Random) -> Iterable[str]:
    store = EventStore.open(path)
    for index in range(len(store)):
        check_events(store[index][0])
        check_events(store.sample(index, 10, torch.Generator().manual_seed(0))[0])
    for name in set(store.splits):
        store.sets(name)
    if not all(isinstance(name, str) for name in (*store.classes, *store.sources, *store.splits)):
        raise BrokenPromise("names that are no texts")
    return ()


def read_model(path: Path, random: Random) -> Iterable[str]:
    model = load_model(path)
    if not all(bool(torch.isfinite(weight).all()) for weight in model.state_dict().values()):
        raise BrokenPromise("weights that are not finite")
    pixels = torch.arange(20)
    events = Events.from_arrays(pixels, pixels, pixels * 1000, pixels % 2, sensor=SENSOR)
    with torch.no_grad():
        model.predict(events)
    return ()


def read_checkpoint(path: Path, random: Random) -> Iterable[str]:
    model = import_network(path, replace(TRAINING, model=NETWORK)).model
    if not all(bool(torch.isfinite(weight).all()) for weight in model.state_dict().values()):
        raise BrokenPromise("weights that are not finite")
    return ()


def read_state(path: Path, random: Random) -> Iterable[str]:
    """Resume a run of which the state alone is damaged."""
    run = Run(path.with_name("run"))
    store = seeds.write_store(path.with_name("store"))
    recipe = replace(TRAINING, model=replace(TRAINING.model, sensor=SENSOR, classes=len(store.classes)))
    run.state.parent.mkdir(parents=True)
    run.recipe_file.write_text(recipe.to_yaml())
    write_json(run.facts_file, RunFacts(task="train", data=str(store.folder)).to_json())
    path.rename(run.state)
    run.resume()
    return ()


def read_result(path: Path, random: Random) -> Iterable[str]:
    table([RowResult.of(Row(name="ours", settings={}, paper={}), [RunResult.read(path)])], "")
    return ()


def read_run_folder(path: Path, random: Random) -> Iterable[str]:
    run = Run.open(path)
    run.facts, run.recipe, run.raw_source, run.metrics  # noqa: B018
    return ()


def read_recipe_file(path: Path, random: Random) -> Iterable[str]:
    load_recipe(path).to_yaml()
    return ()


def read_experiment(path: Path, random: Random) -> Iterable[str]:
    experiment = load_experiment(str(path))
    recipe = load_recipe("digits")
    for row in experiment.rows[:3]:
        recipe.with_settings(row.settings)
    return ()


def read_settings(path: Path, random: Random) -> Iterable[str]:
    """As `event2vec train digits --NAME VALUE` reads them; names are those that the parser knows."""
    given = (line.partition(" ") for line in _arguments(path))
    values = {name: value for name, _, value in given if name in SETTINGS}
    read_recipe(Namespace(recipe="digits", **values), "train")
    return ()


def _arguments(path: Path) -> list[str]:
    """Lines as a shell would pass them on: of any bytes but 0."""
    return path.read_text("utf-8", "surrogateescape").replace("\0", "").split("\n") if path.is_file() else []


def read_options(path: Path, random: Random) -> Iterable[str]:
    """Text that verbs take apart themselves."""
    recording = path.with_name("r.txt")
    recording.write_text("1 2 3 1\n")
    sensor, columns, numbers = [*_arguments(path), "", "", ""][:3]
    read_numbers(numbers, "events", 1)
    return read_recording(recording, sensor=parse_sensor(sensor), columns=columns or None).warnings


def read_comparison(path: Path, random: Random) -> Iterable[str]:
    """Against a measurement that has something in common with the seeds."""
    now = {part: [Measurement({"length": 1024}, {"ours ms": 10.5, "x stock": 2.5})] for part in seeds.COMPARISON}
    for change in compare(benchmark._read(path), now):
        change.row()
    return ()


def read_gestures(path: Path, random: Random) -> Iterable[str]:
    dataset = open_dataset("dvs_gesture", path, "train")
    said = []
    for index in range(min(len(dataset), 20)):
        try:
            check_events(dataset.read(index).events)
        except Event2VecError as error:  # one recording of many: `prepare` reports it and goes on
            said.append(str(error))
    return said


TARGETS = (
    Target(
        "aedat2", seeds.recordings("aedat2_dvs128", "aedat2_davis", real=("dvs128.aedat", "davis240c.aedat")), read_file
    ),
    Target("aedat31", seeds.recordings("aedat31"), read_file),
    Target("aedat4", seeds.recordings("aedat4", real=("davis346.aedat4", "dvxplorer.aedat4"), cut=16000), read_file),
    Target("evt2", seeds.recordings("evt2", real=("evt2.raw",)), read_file),
    Target("evt21", seeds.recordings("evt21"), read_file),
    Target("evt3", seeds.recordings("evt3", real=("evt3.raw",)), read_file),
    Target("dat", seeds.recordings("dat", "dat_without_size", real=("ncars_car.dat",)), read_file),
    Target("es", seeds.recordings("es", real=("poker_clubs.es",), cut=1 << 20), read_file),
    Target("atis", seeds.recordings("atis", real=("nmnist.bin",)), read_file),
    Target("npz", seeds.make_npz, read_file),
    Target("npy", seeds.make_npy, read_file),
    Target("mat", seeds.make_mat, read_file),
    Target("hdf5", seeds.make_hdf5, read_file),
    Target("text", seeds.recordings("txt", "csv", real=("uzh_davis240.txt",)), read_file),
    Target("store", seeds.make_store, read_store, weight=2),
    Target("model", seeds.make_model, read_model, weight=2),
    Target("checkpoint", seeds.make_checkpoint, read_checkpoint, weight=2),
    Target("state", seeds.make_state, read_state, weight=0.05),
    Target("result", seeds.make_result, read_result, weight=0.5),
    Target("run", seeds.make_run, read_run_folder, weight=1),
    Target("recipe", seeds.make_recipes, read_recipe_file, weight=2),
    Target("experiment", seeds.make_experiments, read_experiment, weight=0.2),
    Target("settings", seeds.make_settings, read_settings, weight=0.2),
    Target("options", seeds.make_options, read_options, weight=2),
    Target("comparison", seeds.make_comparison, read_comparison, weight=2),
    Target("gestures", seeds.make_gestures, read_gestures, weight=2),
)
