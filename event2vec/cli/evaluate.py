"""Say how good a trained network is: accuracy as mean and deviation over independent draws, and class by class.

Evaluates on the test recordings that the run was trained beside, or on those of --data. The confusion matrix and all
figures are kept in RUN/evaluation.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace

from event2vec.cli.options import add_device_options, add_json_option, add_workers_option, read_numbers
from event2vec.cli.printing import print_table, say
from event2vec.cli.progress import progress_bar
from event2vec.names import printable

if TYPE_CHECKING:
    from event2vec.evaluation.evaluate import Evaluation


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run, or a folder with a saved network")
    parser.add_argument("--data", metavar="PATH", help="a store or a data set as downloaded (default: the run's own)")
    parser.add_argument("--split", default="test", metavar="NAME", help="which recordings of it")
    parser.add_argument("--repeats", type=int, default=10, metavar="N", help="independent draws; clusters need one")
    parser.add_argument("--vote", type=int, default=1, metavar="K", help="average the scores of K draws in each answer")
    parser.add_argument("--events", metavar="N,N,...", help="how the accuracy depends on the number of events")
    parser.add_argument("--resolution", metavar="N,N,...", help="how it depends on the sensor's resolution, as N x N")
    add_device_options(parser)
    add_workers_option(parser)
    add_json_option(parser)


def run(options: Namespace) -> None:
    run = Path(options.run)
    if options.events or options.resolution:
        _sweep(run, options)
        return
    evaluation = evaluate_run(
        run,
        options.data,
        split=options.split,
        repeats=options.repeats,
        vote=options.vote,
        workers=options.workers,
        device=options.device,
        precision=options.precision,
    )
    print(json.dumps(evaluation.facts(), indent=2)) if options.json else print_evaluation(evaluation)
    if picture := keep_evaluation(run, evaluation, options.split, options.data):
        say(f"The confusion matrix is drawn in {picture}")


def evaluate_run(
    run: Path,
    data: str | None,
    split: str = "test",
    repeats: int = 10,
    vote: int = 1,
    workers: int = 1,
    device: str | None = None,
    precision: str | None = None,
) -> "Evaluation":
    from event2vec.evaluation.evaluate import evaluate
    from event2vec.model.checkpoint import load_model
    from event2vec.training.run import choose_compute, open_recordings

    compute = choose_compute(run, device, precision)
    model = load_model(run).to(compute.device)
    with progress_bar("preparing") as progress:
        store = open_recordings(run, data, model.sampling, workers, progress)
    with progress_bar("evaluating") as progress, compute.autocast():
        return evaluate(model, store.split(split), repeats, vote, progress=progress)


def _sweep(run: Path, options: Namespace) -> None:
    """Accuracy against the number of events or the resolution: a table, and CSV and a curve in the run."""
    from event2vec.errors import Event2VecError
    from event2vec.evaluation.evaluate import sweep_events, sweep_resolution
    from event2vec.model.checkpoint import load_model
    from event2vec.training.run import choose_compute, open_raw_recordings

    if options.events and options.resolution:
        raise Event2VecError("--events and --resolution are two sweeps; ask for one at a time")
    kind = "events" if options.events else "resolution"
    values = read_numbers(options[kind], kind, least=1)
    compute = choose_compute(run, options.device, options.precision)
    model = load_model(run).to(compute.device)
    with progress_bar("preparing") as progress:
        store = open_raw_recordings(run, options.data, options.workers, progress)
    sweep = sweep_events if kind == "events" else sweep_resolution
    with progress_bar(f"sweep over {kind}") as progress, compute.autocast():
        rows = sweep(model, store.split(options.split), values, options.repeats, options.vote, progress)
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            spread = "" if model.sampling.repeatable else f" ± {100 * row['accuracy_std']:.2f}"
            fewer = row.get("events_read", row[kind]) < row[kind]
            note = f" (most recordings have fewer: {row['events_read']:,})" if fewer else ""
            print(f"{kind} {row[kind]:>6,}   accuracy {100 * row['accuracy']:.2f}{spread} %{note}")
    keep_sweep(run, kind, rows, options.split, options.data)


def keep_sweep(run: Path, kind: str, rows: list[dict[str, Any]], split: str, data: str | None) -> None:
    """Write a sweep into a run, as CSV and as a curve."""
    from event2vec.evaluation.figures.curves import draw_sweep
    from event2vec.training.run import RECIPE, write_rows

    if not (run / RECIPE).is_file():
        return
    path = _kept(run, data) / (kind if split == "test" else f"{kind}_{split}")
    write_rows(path.with_suffix(".csv"), rows)
    draw_sweep(rows, kind, path.with_suffix(".png"), printable(f"{run.name}: accuracy and {kind}"))
    say(f"Kept in {path.with_suffix('.csv')} and drawn in {path.with_suffix('.png')}")


def keep_evaluation(run: Path, evaluation: "Evaluation", split: str = "test", data: str | None = None) -> Path | None:
    """Write figures and picture into a run; a folder that holds a network alone is left as it is."""
    from event2vec.training.run import RECIPE, write_facts

    if not (run / RECIPE).is_file():
        return None
    folder = _kept(run, data)
    write_facts(folder / f"{split}.json", evaluation.facts())
    picture = folder / f"confusion_{split}.png"
    draw_evaluation(run, evaluation, picture)
    return picture


def _kept(run: Path, data: str | None) -> Path:
    """What was found on the run's own recordings, and on others by their name."""
    return run / "evaluation" / Path(data).resolve().name if data else run / "evaluation"


def draw_evaluation(run: Path, evaluation: "Evaluation", picture: Path) -> None:
    from event2vec.evaluation.figures.confusion import draw_confusion

    title = f"{printable(run.name)}: {100 * evaluation.accuracy:.1f} % of {evaluation.recordings} recordings"
    draw_confusion(evaluation.confusion, evaluation.class_names, picture, title)


def print_evaluation(evaluation: "Evaluation") -> None:
    rows = []
    confusion = evaluation.confusion
    for number, (name, share) in enumerate(evaluation.per_class.items()):
        wrong = confusion[number].copy()
        wrong[number] = 0
        mistake = f"{evaluation.class_names[int(wrong.argmax())]} ({wrong.max() / max(confusion[number].sum(), 1):.0%})"
        count = confusion[number].sum() // evaluation.repeats
        rows.append((name, f"{count:,}", "-" if share is None else f"{share:.1%}", mistake if wrong.any() else ""))
    heads = ("class", "recordings", "right", "most often taken for")
    print_table(heads, rows, left=("class", "most often taken for"))
    draws = f"{evaluation.repeats} draws" if evaluation.repeats > 1 else "one draw"
    if evaluation.vote > 1:
        draws += f" of {evaluation.vote} votes each"
    print(f"accuracy {evaluation.percent()} % on {evaluation.recordings:,} recordings, {draws}")
    if evaluation.top5 is not None:
        print(f"among the best five: {100 * evaluation.top5:.2f} %")
