"""One run of an experiment: a row of the table with one seed, trained and judged here or on another machine."""

import json
import os
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from event2vec.cluster import Cluster
from event2vec.clustering import BatchedKMeans
from event2vec.clustering.alternatives import Alternative, engine_of
from event2vec.data.addresses import is_address, whole_name
from event2vec.data.sampling import Sampling
from event2vec.data.store import EventStore
from event2vec.documents import read_json, write_json
from event2vec.errors import FileError
from event2vec.evaluation.speed import Figure, bytes_of_answer, measure_speed, seconds_of
from event2vec.events import Events
from event2vec.execution import Execution
from event2vec.machine.ranks import is_first_rank
from event2vec.model.classifier import count_parameters
from event2vec.progress import Progress
from event2vec.studies.experiment_file import Experiment
from event2vec.studies.results import RunResult, Timed
from event2vec.studies.tables import Row
from event2vec.training.layout import Layout, Task
from event2vec.training.recipe import Recipe
from event2vec.training.run import Run
from event2vec.training.timing import training_step
from event2vec.training.train import open_training_data, start


@dataclass(frozen=True)
class Setting:
    """What all rows of an experiment have in common."""

    data: str | Path | None
    init: str | PathLike[str] | None = None  # a network to start from
    pretrain: Recipe | None = None  # with this each row is pre-trained first, instead of `init`
    how: Execution = field(default_factory=Execution)
    cluster: Cluster | None = None  # where data is prepared and rows are trained side by side; None: here

    def __post_init__(self) -> None:
        if self.cluster:
            self.cluster.check_device(self.how.device)

    def within_task(self, progress: Progress) -> "Setting":
        """For one row, which does its work in one place."""
        return replace(self, cluster=None, how=replace(self.how, progress=progress))

    @property
    def source(self) -> str | Path | None:
        if self.data and is_address(self.data):
            return self.data
        return Path(os.path.realpath(self.data)) if self.data else None  # Path.resolve fails on links in a circle

    def open(self, recipe: Recipe, row: Row) -> EventStore:
        """The recordings of a row, prepared first if they have to be."""
        workers, engine = self.cluster or self.how.workers, _engine(row, recipe.sampling)
        return open_training_data(recipe, self.data, workers, self.how.progress, {}, engine).store


@dataclass(frozen=True)
class RowRun:
    """A row with one seed: what is trained, from which network, and where."""

    experiment: Experiment
    row: Row
    recipe: Recipe
    setting: Setting
    folder: Path
    init: str | PathLike[str] | None = None
    first: "RowRun | None" = None  # the pre-training that makes `init`
    task: Task = "train"

    @property
    def name(self) -> str:
        return f"{self.row.name}, seed {self.recipe.training.seed}"

    @property
    def is_timed(self) -> bool:
        """Whether speed is measured with this run: with the first seed alone, since no seed changes it."""
        return self.recipe.training.seed == 0 and (self.row.paper_ms is not None or self.experiment.speed)

    @property
    def needs(self) -> list[Recipe]:
        """The recipes whose data is read; none if it is finished."""
        if Layout(self.folder).row_result.is_file():
            return []
        before = [self.first.recipe] if self.first else []
        unclustered = {"sampling.method": "random", "sampling.clusterings": 1}
        return [*before, self.recipe, *([self.recipe.with_settings(unclustered)] if self.is_timed else [])]

    @property
    def asked(self) -> dict[str, Any]:
        """What was asked for, by which the same work is recognised."""
        return {
            "recipe": self.recipe.to_yaml(),
            "data": str(self.setting.source) if self.setting.data else None,
            "init": whole_name(self.init),
            "clusters": f"{self.row.engine} {self.row.iterations}",
        }

    @property
    def identity(self) -> str:
        return json.dumps(self.asked)

    def finish(self, progress: Progress) -> RunResult | None:
        """What a finished run found, or this one finds once it is trained; None in all processes but the first."""
        if self.first:
            self.first.finish_pretraining(progress)
        finished = self._is_finished()
        if not finished:
            self._train(progress)
        if not is_first_rank():
            return None
        if finished:
            return RunResult.read(Layout(self.folder).row_result)
        result = self._judge(replace(self.setting.how, progress=progress))
        result.write(Layout(self.folder).row_result)
        return result

    def finish_pretraining(self, progress: Progress) -> None:
        """Make the network that a training starts from, unless it is there."""
        if not self._is_finished():
            self._train(progress)
            if is_first_rank():
                seconds = sum(epoch["seconds"] for epoch in Run.open(self.folder).metrics)
                write_json(Layout(self.folder).row_result, {"seconds": seconds})

    @property
    def _note(self) -> Path:
        """The file with what was asked for; beside the run, since a training starts in an empty folder."""
        return self.folder.with_name(f"{self.folder.name}.asked.json")

    def _is_finished(self) -> bool:
        """Whether there is a result, of what is asked for now."""
        if self._note.is_file() and read_json(self._note) != self.asked:
            raise FileError(self.folder, "was started with other settings or data. Choose another `out`, or remove it")
        return Layout(self.folder).row_result.is_file()

    def _train(self, progress: Progress) -> None:
        setting, begun = self.setting.within_task(progress), not Run(self.folder).can_start
        if not begun:
            _check_test_part(self.recipe.divide(setting.open(self.recipe, self.row)))
        if is_first_rank():
            write_json(self._note, self.asked)
        workers = setting.how.workers
        if begun:
            Run.open(self.folder).resume(workers=workers, progress=progress)
        else:
            engine = _engine(self.row, self.recipe.sampling)
            start(self.task, self.recipe, setting.data, self.folder, self.init, workers, progress, engine=engine)

    def _judge(self, how: Execution) -> RunResult:
        run = Run.open(self.folder)
        evaluation = run.evaluate(repeats=self.experiment.repeats, **how.options)
        timed, epochs = self._time(run, how) if self.is_timed else None, self._epochs()
        seconds, parameters = sum(epoch["seconds"] for epoch in epochs), count_parameters(run.model())
        return RunResult(evaluation.accuracies, evaluation.recordings, parameters, seconds, len(epochs), timed)

    def _time(self, run: Run, how: Execution) -> Timed:
        compute = run.compute(how.device, how.precision)
        model = run.model().to(compute.device)
        chosen = evenly_spaced(
            run.raw_store(None, how.workers, how.progress, "test").split("test"), self.experiment.timed
        )
        clustering = speed = memory = None
        if self.row.paper_ms is not None:
            clustering = _time_clustering(_engine(self.row, self.recipe.sampling), chosen, self.recipe.sampling.length)
        if self.experiment.speed:
            speed = measure_speed(model, chosen, training_step(model, self.recipe, compute), compute)
            memory = None if compute.counts_memory else bytes_of_answer(model, chosen[0]) / 2**20
        return Timed(len(chosen), clustering, speed, memory)

    def _epochs(self) -> list[dict[str, Any]]:
        """The epochs of a run; those of pre-training count for a row of which they are a part."""
        before = Run.open(self.first.folder).metrics if self.row.pretrain and self.first else []
        return [*before, *Run.open(self.folder).metrics]


def _engine(row: Row, sampling: Sampling) -> BatchedKMeans | Alternative:
    return engine_of(row.engine, row.iterations, sampling.seeding)


def _check_test_part(store: EventStore) -> None:
    """Refuse data without a test part before training on it: the network could not be judged."""
    if "test" not in store.splits:
        found = ", ".join(sorted(set(store.splits)))
        raise FileError(
            store.folder, f"has no test part, which networks are judged on, only {found}. Prepare it with one"
        )


def evenly_spaced(store: EventStore, most: int) -> list[Events]:
    """At most this many recordings of a store, from its first to its last; those without events are left out."""
    filled = np.flatnonzero(store.lengths)
    places = np.linspace(0, len(filled) - 1, min(len(filled), most)).round().astype(int)
    return [store[int(index)][0] for index in filled[places]]


def _time_clustering(engine: BatchedKMeans | Alternative, recordings: list[Events], length: int) -> Figure:
    """Milliseconds of one recording, over several."""
    engine(recordings[0], length)  # the first call loads the code
    return Figure.of([1e3 * seconds_of(partial(engine, events, length)) for events in recordings])
