"""What a run's folder holds: its settings, what it started from, its metrics, its network and its recordings."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from event2vec.data.cache import open_for_training, prepare_digits, reopen_for_training
from event2vec.data.sampling import Sampling
from event2vec.data.store import EventStore
from event2vec.documents import read_json
from event2vec.errors import Event2VecError, FileError
from event2vec.machine.devices import Compute
from event2vec.model.checkpoint import load_model
from event2vec.model.classifier import Classifier
from event2vec.progress import SILENT, Progress
from event2vec.training.config import DataConfig
from event2vec.training.layout import Layout, Task
from event2vec.training.metrics import read_rows
from event2vec.training.recipe import Recipe, load_recipe


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What a run started from, besides its recipe."""

    task: Task
    data: str  # the store that it reads
    source: str | None = None  # what the store was made from, if it holds clusters
    init: str | None = None  # the network whose weights it started from
    environment: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        facts = asdict(self)
        return {**facts, **facts.pop("environment")}

    @classmethod
    def from_json(cls, path: Path) -> "RunFacts":
        facts = read_json(path)
        own = {name: facts.pop(name, None) for name in ("task", "data", "source", "init")}
        texts = all(value is None or isinstance(value, str) for value in own.values())
        if own["task"] not in get_args(Task) or not own["data"] or not texts:
            raise FileError(path, "is damaged, expected JSON with task, data and init")
        return cls(**own, environment=facts)


class RunFolder(Layout):
    """A run's folder as it can be read; `Run` trains in it."""

    @property
    def recipe(self) -> Recipe:
        if not self.is_started:
            raise FileError(self.folder, f"is not a run: it has no {self.recipe_file.name}, only a network")
        return load_recipe(self.recipe_file)

    @cached_property
    def facts(self) -> RunFacts:
        self.check_facts()
        return RunFacts.from_json(self.facts_file)

    @property
    def metrics(self) -> list[dict[str, float]]:
        """One row for each epoch: losses, accuracies, learning rate, seconds."""
        return read_rows(self.metrics_file)

    def model(self) -> Classifier:
        """The classifier of the epoch that was best on validation, else of the last one; in evaluation mode.

        `load_model(run.network)` is always that of the last.
        """
        return load_model(self.folder)

    def compute(self, device: str | None = None, precision: str | None = None) -> Compute:
        """Where the network runs: as requested, else on the best device; see `Compute.choose` for the precision."""
        trained = self.recipe.trainer.precision if self.is_started else "32-true"
        return Compute.choose(device, precision, trained)

    def store(
        self,
        data: str | Path | None = None,
        *,
        sampling: Sampling | None = None,
        workers: int = 1,
        progress: Progress = SILENT,
    ) -> EventStore:
        """The recordings that the run was trained on, or those in `data`, as its network reads them.

        With another `sampling`, `data` is opened as a network with that would read it. A validation part that the
        training took from the training recordings is a split of its own here too.
        """
        store = self.whole_store(data, sampling, workers, progress)
        return self.recipe.divide(store) if self.is_started else store

    def whole_store(
        self,
        data: str | Path | None,
        sampling: Sampling | None,
        workers: int,
        progress: Progress,
        only: str | None = None,
    ) -> EventStore:
        """Like `store`, but with the splits that the data came with."""
        if data is not None:
            config = self.recipe.data if self.is_started else DataConfig()
            sampling = sampling or (self.recipe.sampling if self.is_started else self.model().sampling)
            opened = open_for_training(
                data,
                config.dataset,
                sampling,
                workers,
                progress,
                options=config.options,
                everywhere=config.folds > 0,
                only=only,
            )
            return opened.store
        if not self.facts_file.is_file():
            raise Event2VecError(f"{self.folder} does not say what it was trained on; set `data`")
        facts, recipe = self.facts, self.recipe
        return reopen_for_training(
            Path(facts.data),
            facts.source,
            recipe.data.dataset,
            recipe.sampling,
            workers,
            progress,
            recipe.data.options,
            recipe.data.folds > 0,
        )

    def raw_store(
        self,
        data: str | Path | None = None,
        workers: int = 1,
        progress: Progress = SILENT,
        only: str | None = None,
    ) -> EventStore:
        """The same recordings with all their events, not as clusters.

        Where `only` one split is needed, the other splits of a data set are not prepared.
        """
        only = None if self.is_started and self.recipe.data.folds else only  # folds are of all recordings
        if data is None and self.facts_file.is_file():
            data = self.raw_source
            if data is None:
                return self.recipe.divide(prepare_digits(workers, progress, only))
        whole = self.whole_store(data, Sampling(), workers, progress, only)
        return self.recipe.divide(whole) if self.is_started else whole

    @property
    def raw_source(self) -> str | None:
        """Where the run's recordings with all their events are; None for the built-in digits."""
        if self.facts.source is None and self.recipe.data.dataset == "digits":
            return None
        return self.facts.source or self.facts.data
