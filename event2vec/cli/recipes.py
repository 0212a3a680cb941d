"""How `train` and `pretrain` read recipes, open data and go on with runs: both do the same with another objective."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace

from event2vec.cli.options import add_workers_option
from event2vec.cli.printing import say
from event2vec.cli.progress import TrainingProgress, progress_bar
from event2vec.names import printable

if TYPE_CHECKING:
    from event2vec.data.prepare import Report
    from event2vec.training.recipe import Recipe
    from event2vec.training.train import Task


SHOWN = 5  # recordings that could not be used and are named


def add_recipe_arguments(parser: ArgumentParser) -> None:
    from event2vec.training.recipe import recipe_names, setting_names

    verb = "RECIPE [--data PATH] [--out RUN] [--init RUN] [settings]  or  --resume RUN"
    parser.usage = f"%(prog)s {verb}"
    names = ", ".join(recipe_names())
    parser.add_argument("recipe", nargs="?", metavar="RECIPE", help=f"a recipe: {names}; or a file that ends in .yaml")
    parser.add_argument(
        "--data", metavar="PATH", help="a store, or the data set as downloaded, which is prepared first"
    )
    parser.add_argument("--out", metavar="RUN", help="the folder of the run (default: runs/ and a name, numbered)")
    parser.add_argument("--init", metavar="RUN", help="start from this network, all but its head")
    parser.add_argument("--resume", metavar="RUN", help="go on with a run that was stopped")
    parser.add_argument("--print-config", action="store_true", help="print all settings as YAML, and train nothing")
    add_workers_option(parser)
    settings = parser.add_argument_group("settings, which override the recipe's")
    for name, explanation in setting_names():
        settings.add_argument(f"--{name}", dest=_key(name), metavar="X", help=explanation)


def _key(name: str) -> str:
    """What the parser calls a setting: with points it would take --data.workers for a part of --data."""
    return "setting_" + name.replace(".", "__")


def read_recipe(options: Namespace) -> "Recipe":
    from event2vec.errors import Event2VecError
    from event2vec.training.recipe import load_recipe, recipe_names

    if options.recipe is None:
        raise Event2VecError(f"RECIPE is missing; there are {', '.join(recipe_names())}, or name a .yaml file")
    return load_recipe(options.recipe).with_settings(_overrides(options))


def _overrides(options: Namespace) -> dict[str, Any]:
    """Settings that were given on the command line, as YAML reads them."""
    from event2vec.documents import parse_yaml
    from event2vec.errors import Event2VecError
    from event2vec.training.recipe import setting_names

    given = {name: options.get(_key(name)) for name, _ in setting_names()}
    overrides = {}
    for name, value in given.items():
        try:
            if value is not None:
                overrides[name] = parse_yaml(value)
        except Event2VecError as error:
            raise Event2VecError(f"--{name} {error}") from None
    return overrides


def run_task(options: Namespace, task: "Task") -> None:
    if options.resume is not None:
        _resume(options)
        return
    recipe = read_recipe(options)
    if options.print_config:
        print(recipe.to_yaml(), end="")
        return
    start(recipe, options.data, options.out, task, options.init, options.workers)


def start(
    recipe: "Recipe",
    data: str | None,
    out: str | None,
    task: "Task",
    init: str | None = None,
    workers: int = 1,
) -> Path:
    """Prepare the data if need be, train, and say where the run is."""
    from event2vec.devices import is_first_rank
    from event2vec.training.train import start_run

    report = _open_data(recipe, data, workers)
    run = Path(out) if out else free_name(_run_name(recipe, data))
    if is_first_rank():
        _introduce(recipe, report, run)
    with _stoppable(run, task), TrainingProgress() as watcher:
        source = Path(data) if data else None
        start_run(recipe, report.store, run, task, Path(init) if init else None, watcher, source)
    _finish(run)
    return run


def _introduce(recipe: "Recipe", report: "Report", run: Path) -> None:
    store = report.store
    for note in report.rejected[:SHOWN]:
        say(f"event2vec: warning: not used: {note.source}: {note.message}")
    if len(report.rejected) > SHOWN:
        say(f"event2vec: warning: {len(report.rejected) - SHOWN} more not used, see {store.folder}")
    sets = len(store.names_of_sets("train"))
    if sets != recipe.data.clusterings:
        say(
            f"event2vec: warning: data.clusterings is {recipe.data.clusterings}, and {store.folder} has each recording "
            f"{sets} time(s); that is what is read"
        )
    of_each = f" ({sets} sets of clusters of each)" if sets > 1 else ""
    counts = {split: f"{store.splits.count(split):,}" for split in ("train", "test")}
    say(
        f"{counts['train']} recordings to train on{of_each} and {counts['test']} to test on, "
        f"{len(store.classes)} classes, sensor {store.sensor}. The run: {run}"
    )


def _resume(options: Namespace) -> None:
    """All is as the run began, but for where its store lies and where it is trained."""
    from event2vec.errors import Event2VecError
    from event2vec.training.recipe import load_recipe
    from event2vec.training.run import RECIPE, read_run
    from event2vec.training.train import resume_run

    given = {"RECIPE": options.recipe, "--out": options.out, "--init": options.init}
    given |= {f"--{name}": value for name, value in _overrides(options).items() if not name.startswith("trainer.")}
    for name, value in given.items():
        if value is not None:
            raise Event2VecError(f"--resume goes on as the run began; leave {name} out")
    run = Path(options.resume)
    task = read_run(run)["task"]
    if options.print_config:
        print(load_recipe(run / RECIPE).to_yaml(), end="")
        return
    with _stoppable(run, task), TrainingProgress() as watcher:
        resume_run(run, watcher, _overrides(options), Path(options.data) if options.data else None)
    _finish(run)


def _open_data(recipe: "Recipe", data: str | None, workers: int) -> "Report":
    from event2vec.data.prepare import open_for_training

    with progress_bar(f"preparing {recipe.data.dataset}") as progress:
        return open_for_training(data, recipe.data.dataset, recipe.sampling, workers, progress, recipe.data.clusterings)


def _run_name(recipe: "Recipe", data: str | None) -> Path:
    """A folder of one's own recordings gives its name; a known data set is called as its recipe."""
    return Path("runs") / (Path(data).resolve().name if recipe.data.dataset == "folder" and data else recipe.name)


def free_name(path: Path) -> Path:
    from event2vec.training.run import is_free

    number = 1
    free = path
    while not is_free(free):
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


@contextmanager
def _stoppable(run: Path, task: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        say(f"event2vec: go on with: event2vec {task} --resume {shlex.quote(str(run))}")
        raise


def _finish(run: Path) -> None:
    from event2vec.devices import is_first_rank
    from event2vec.evaluation.figures.curves import draw_curves
    from event2vec.training.run import METRICS, read_rows

    if not is_first_rank() or not (run / METRICS).exists():
        return
    rows = read_rows(run / METRICS)
    draw_curves(rows, run / "curves.png", printable(f"Training of {run.name}"))
    share = sum(row["data_share"] * row["seconds"] for row in rows) / sum(row["seconds"] for row in rows)
    say(f"Reading data took {100 * share:.1f} % of the training steps' time")
    say(f"The network is in {run / 'model'}, its curves in {run / 'curves.png'}")
