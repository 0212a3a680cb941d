"""Cross-validation: every recording is tested once, by a network that did not learn from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from event2vec.cluster import Cluster, do_pieces
from event2vec.data.addresses import local_place, whole_name
from event2vec.data.store import EventStore
from event2vec.documents import read_json, write_json
from event2vec.errors import Event2VecError, FileError
from event2vec.evaluation.accuracy import Interval, Repeated, wilson_interval
from event2vec.machine.atomic import is_leftover
from event2vec.machine.ranks import is_first_rank
from event2vec.progress import SILENT, Progress
from event2vec.training.metrics import write_rows
from event2vec.training.recipe import Recipe
from event2vec.training.run import Run
from event2vec.training.train import check_classes, gpus_of, open_training_data, report_data, resolve_recipe, run_name

SUMMARY, TABLE = "folds.json", "folds.csv"


@dataclass(frozen=True)
class Fold:
    """One of the trainings."""

    fold: int  # from 1
    accuracy: float
    recordings: int  # tested on
    epochs: int
    minutes: float

    @property
    def interval(self) -> Interval:
        return wilson_interval(self.accuracy, self.recordings)

    @classmethod
    def of(cls, number: int, run: Run) -> "Fold | None":
        """What a finished run found; None if it is not finished."""
        if not run.is_started or not run.result("test").is_file():
            return None
        found, rows = read_json(run.result("test")), run.metrics
        accuracy, recordings = found.get("accuracy"), found.get("recordings")
        if not isinstance(accuracy, float) or not isinstance(recordings, int):
            raise FileError(
                run.result("test"), "is damaged, expected accuracy and recordings. Remove it, and train again"
            )
        return cls(number, accuracy, recordings, len(rows), sum(row["seconds"] for row in rows) / 60)


@dataclass(frozen=True)
class CrossValidation(Repeated):
    """The result of `cross_validate`: mean and standard deviation are over folds."""

    folder: Path
    folds: tuple[Fold, ...]
    accuracies: tuple[float, ...]  # one for each fold
    recordings: int  # in all folds

    @classmethod
    def of(cls, folder: Path, folds: Sequence[Fold]) -> "CrossValidation":
        accuracies = tuple(fold.accuracy for fold in folds)
        return cls(folder, tuple(folds), accuracies, sum(fold.recordings for fold in folds))

    @property
    def minutes(self) -> float:
        return sum(fold.minutes for fold in self.folds)

    @property
    def summary_file(self) -> Path:
        return self.folder / SUMMARY

    @property
    def table_file(self) -> Path:
        return self.folder / TABLE

    def runs(self) -> list[Run]:
        return [fold_run(self.folder, fold.fold) for fold in self.folds]

    def facts(self) -> dict[str, Any]:
        return {
            "accuracy": self.accuracy,
            "accuracy_std": self.accuracy_std,
            "interval": self.interval,
            "recordings": self.recordings,
            "minutes": self.minutes,
            "folds": [vars(fold) | {"interval": fold.interval} for fold in self.folds],
        }


def cross_validate(
    recipe: str | Path | Recipe,
    data: str | Path | EventStore | None = None,
    out: str | Path | None = None,
    init: str | PathLike[str] | None = None,
    *,
    folds: int = 5,
    workers: int = 1,
    cluster: str | Cluster | None = None,
    progress: Progress = SILENT,
    **settings: Any,
) -> CrossValidation:
    """Train a classifier for each fold, on all recordings but those of the fold, which then test it; else like `train`.

        cross_validate("folder", "my_recordings/", folds=5).percent()

    Folds are made of the data's training recordings, and of test recordings that were drawn from undivided data. A test
    part that the data came with stays unused, unless `data.folds_over` is all. Each fold is a run in a sub-folder. The
    same call continues a cross-validation that was stopped: finished folds are kept. A Ray `cluster` trains folds
    side by side.
    """
    if folds < 2:
        raise Event2VecError(f"folds must be at least 2, got {folds}")
    recipe, source = resolve_recipe(recipe, data, {**settings, "data.folds": folds, "data.fold": 0})
    asked = {"recipe": recipe.to_yaml(), "data": whole_name(source), "init": whole_name(init)}
    folder = _folder(out, run_name(recipe, source), asked)
    cluster = Cluster.of(cluster)
    gpus = gpus_of(recipe, cluster)
    opened = open_training_data(recipe, source, cluster or workers, progress, settings)
    parts = [recipe.with_settings({"data.fold": number}) for number in range(1, folds + 1)]
    _check_parts(parts, opened.store)
    report_data(parts[0], opened, folder, progress)
    results = _Results(folder, folds, asked, progress)
    results.write()
    pieces = [_Piece(number, part, opened.store, folder, init, source) for number, part in enumerate(parts, 1)]
    names = [f"fold {piece.number}" for piece in pieces]
    try:
        with progress.stage("all folds", folds):
            do_pieces(_train_fold, pieces, names, cluster, progress, found=results.keep, gpus=gpus)
    except KeyboardInterrupt:
        missing = next(number for number in range(1, folds + 1) if number not in results.found)
        progress.say(f"The same command continues with fold {missing} of {folds}; finished folds are kept")
        raise
    return CrossValidation.of(folder, results.in_order)


def fold_run(folder: Path, number: int) -> Run:
    """The run of one fold."""
    return Run(folder / f"fold-{number}")


def _check_parts(parts: Sequence[Recipe], store: EventStore) -> None:
    """Refuse folds without test recordings, or without training recordings of a class, before the first is trained."""
    for number, part in enumerate(parts, 1):
        divided = part.divide(store)
        check_classes(divided)
        if "test" not in divided.splits:
            raise FileError(
                store.folder,
                f"has nothing to test on in fold {number}: a class with only one group is always used for training. "
                "Use fewer folds",
            )


@dataclass(frozen=True)
class _Piece:
    """What it takes to train one fold, here or on another machine."""

    number: int
    recipe: Recipe
    store: EventStore
    folder: Path
    init: str | PathLike[str] | None
    source: str | Path | None


def _train_fold(piece: _Piece, progress: Progress) -> Fold | None:
    """The result of a fold, trained first if it is not finished; None in all processes but the first."""
    run = fold_run(piece.folder, piece.number)
    if Fold.of(piece.number, run) is None:
        if run.can_start:
            Run.start(piece.recipe, piece.store, run.folder, "train", piece.init, piece.source, progress)
        else:
            run.resume(progress=progress)
    return Fold.of(piece.number, run) if is_first_rank() else None


@dataclass
class _Results:
    """What is known so far, written after each fold."""

    folder: Path
    folds: int
    asked: Mapping[str, Any]  # by which the same work is recognised
    progress: Progress
    found: dict[int, Fold] = field(default_factory=dict)

    @property
    def in_order(self) -> list[Fold]:
        return [self.found[number] for number in sorted(self.found)]

    def keep(self, index: int, fold: Fold | None) -> None:
        if fold:
            interval = f"95 % interval {fold.interval.percent(1)} %"
            share = f"{100 * fold.accuracy:.1f} % of {fold.recordings:,} recordings"
            self.progress.say(f"Fold {fold.fold} of {self.folds}: {share}; {interval}")
            self.found[fold.fold] = fold
            self.write()

    def write(self) -> None:
        if not is_first_rank():
            return
        facts = CrossValidation.of(self.folder, self.in_order).facts() if self.found else {}
        write_json(self.folder / SUMMARY, facts | {"asked": self.asked})
        if self.found:
            write_rows(self.folder / TABLE, [vars(fold) for fold in self.in_order])


def _folder(out: str | Path | None, name: Path, asked: Mapping[str, Any]) -> Path:
    """Where the folds are: as requested, or the first of NAME-folds, NAME-folds-2, ... that is free or ours."""
    if out:
        if not _is_ours(local_place(out), asked):
            raise FileError(out, "exists already, with other data or settings. Choose another `out`")
        return Path(out)
    number, folder = 1, name.with_name(f"{name.name}-folds")
    while not _is_ours(folder, asked):
        number += 1
        folder = name.with_name(f"{name.name}-folds-{number}")
    return folder


def _is_ours(folder: Path, asked: Mapping[str, Any]) -> bool:
    """Whether folds of this work can be trained here."""
    if (folder / SUMMARY).is_file():
        return read_json(folder / SUMMARY).get("asked") == asked
    return not folder.exists() or (folder.is_dir() and all(map(is_leftover, folder.iterdir())))
