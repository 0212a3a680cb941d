"""The recordings of a run: those that it was trained on, and others as its network reads them."""

from pathlib import Path
from typing import TYPE_CHECKING

from event2vec.data.addresses import whole_name
from event2vec.data.datasets import open_splits
from event2vec.data.datasets.folder import is_whole
from event2vec.data.opening import open_for_training, open_whole_folder, prepare_digits, reopen_for_training
from event2vec.data.remote import holds_store
from event2vec.data.sampling import Sampling
from event2vec.data.store import EventStore
from event2vec.errors import Event2VecError, FileError
from event2vec.execution import Execution
from event2vec.model.classifier import Classifier
from event2vec.progress import Progress
from event2vec.training.config import DataConfig

if TYPE_CHECKING:
    from event2vec.training.run import Run


def open_store(
    run: "Run",
    data: str | Path | None,
    sampling: Sampling | None,
    workers: int,
    progress: Progress,
    only: str | None = None,
) -> EventStore:
    """The recordings that the run was trained on, or those in `data`, with the splits that they came with."""
    if data is not None:
        config = run.recipe.data if run.is_started else DataConfig()
        sampling = sampling or (run.recipe.sampling if run.is_started else run.model().sampling)
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
    if not run.facts_file.is_file():
        raise FileError(run.folder, "does not say what it was trained on. Set `data`")
    facts, recipe = run.facts, run.recipe
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


def open_raw_store(
    run: "Run", data: str | Path | None, workers: int, progress: Progress, only: str | None
) -> EventStore:
    """The same with all their events; where `only` one split is needed, other splits of a data set are not prepared."""
    only = None if run.is_started and run.recipe.data.folds else only  # folds are of all recordings
    if data is None and run.facts_file.is_file():
        data = run.raw_source
        if data is None:
            return run.recipe.divide(prepare_digits(workers, progress, only))
    whole = open_store(run, data, Sampling(), workers, progress, only)
    return run.recipe.divide(whole) if run.is_started else whole


def open_tested(
    run: "Run", data: str | Path | None, split: str | None, model: Classifier, sampling: Sampling, how: Execution
) -> EventStore:
    """The recordings that an evaluation is on."""
    workers, progress = how.workers, how.progress
    if data is None or split == "validation" or _is_own(run, data):
        return run.store(data, sampling=sampling, workers=workers, progress=progress).split(split or "test")
    if split is None and not holds_store(data) and _is_whole(run, Path(data)):
        network = (model.class_names, model.config.sensor, sampling, model.windows)
        return open_whole_folder(Path(data), *network, workers, progress)
    store = open_store(run, data, sampling, workers, progress)
    return store if split is None and "test" not in store.splits else store.split(split or "test")


def _is_own(run: "Run", data: str | Path) -> bool:
    """Whether the network was trained on this data: then only its test part is new to it."""
    own = (run.facts.source, run.facts.data) if run.facts_file.is_file() else ()
    return whole_name(data) in own


def _is_whole(run: "Run", data: Path) -> bool:
    """Whether `data` has a sub-folder for each class, and nothing that says which recordings are for testing."""
    config = run.recipe.data if run.is_started else DataConfig()
    dataset = config.dataset
    if config.labels or not is_whole(data):
        return False
    if dataset in ("folder", "digits"):
        return True
    try:
        open_splits(dataset, data)
    except Event2VecError:  # not as the data set is published
        return True
    return False
