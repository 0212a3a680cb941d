"""See it work, without data, camera or GPU, in about three minutes.

Shows handwritten digits to a simulated event camera, trains a small Transformer on the recordings, says how many test
recordings it recognises and ends with a page that shows what it learnt and what it looks at.
"""

import time
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from event2vec.cli.options import add_workers_option
from event2vec.cli.printing import say
from event2vec.cli.progress import progress_bar


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--out", default="runs/demo", metavar="FOLDER", help="the folder of the run (numbered if taken)"
    )
    parser.add_argument("--epochs", type=int, metavar="N", help="epochs instead of the recipe's")
    add_workers_option(parser, "simulate")


def run(options: Namespace) -> int:
    from event2vec.cli.evaluate import keep_evaluation, print_evaluation
    from event2vec.cli.recipes import free_name, start
    from event2vec.data.prepare import prepare_digits
    from event2vec.devices import is_first_rank
    from event2vec.studies.report import write_report
    from event2vec.training.recipe import load_recipe

    began = time.monotonic()
    with progress_bar("showing digits to a simulated camera") as progress:
        store = prepare_digits(options.workers, progress)
    recipe = load_recipe("digits")
    if options.epochs is not None:
        recipe = recipe.with_settings({"training.epochs": options.epochs})
    folder = start(recipe, str(store.folder), str(free_name(Path(options.out))), "train", workers=options.workers)
    if not is_first_rank():  # of several GPUs, one says what was learnt
        return 0
    page = folder / "report.html"
    report = write_report(folder, page, workers=options.workers, stage=progress_bar)
    if report.evaluation:
        print_evaluation(report.evaluation)
        keep_evaluation(folder, report.evaluation)
    say(f"Done in {time.monotonic() - began:.0f} seconds. See what it learnt: {page}")
    return 2 if report.problems else 0
