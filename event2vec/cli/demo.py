"""See it work, without data, camera or GPU, in about three minutes.

Shows handwritten digits to a simulated event camera, trains a small Transformer on the recordings, says how many test
recordings it recognises and ends with a page of pictures.
"""

import os
import sys
import time
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from event2vec.cli.progress import progress_bar

SHOWN = 10  # test recordings on the page


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--out", default="runs/demo", metavar="FOLDER", help="the folder of the run (numbered if taken)"
    )
    parser.add_argument("--epochs", type=int, metavar="N", help="train for so many epochs instead of the recipe's")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="processes that simulate")


def run(options: Namespace) -> None:
    from event2vec.checkpoint import load_model
    from event2vec.cli.evaluate import evaluate_run, keep_evaluation, print_evaluation
    from event2vec.cli.predict import answer
    from event2vec.cli.recipes import free_name, start
    from event2vec.figures.report import Answer, write_report
    from event2vec.prepare import prepare_digits
    from event2vec.recipe import load_recipe

    began = time.monotonic()
    with progress_bar("showing digits to a simulated camera") as progress:
        store = prepare_digits(options.workers, progress)
    recipe = load_recipe("digits")
    if options.epochs is not None:
        recipe = recipe.with_settings({"training.epochs": options.epochs})
    folder = start(recipe, str(store.folder), str(free_name(Path(options.out))), "train", workers=options.workers)
    evaluation = evaluate_run(folder, None, workers=options.workers)
    print_evaluation(evaluation)
    keep_evaluation(folder, evaluation)
    model, test = load_model(folder), store.split("test")
    answers = []
    for index in range(min(SHOWN, len(test))):
        events, label = test[index]
        answers.append(Answer(events, test.classes[label], answer(model, events)["scores"]))
    page = folder / "report.html"
    write_report(folder, evaluation.facts(), answers, page)
    print(f"Done in {time.monotonic() - began:.0f} seconds. See what it learnt: {page}", file=sys.stderr)
