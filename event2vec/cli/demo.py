"""See it work, without data, camera or GPU, in about two minutes.

Shows handwritten digits to a simulated event camera, trains a small Transformer on the recordings, prints how many test
recordings it recognises, and writes a page that shows what it learnt and what it looks at.
"""

import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from event2vec.cli.options import add_workers_option
from event2vec.cli.parser import at_least
from event2vec.cli.printing import print_evaluation, say
from event2vec.cli.progress import shown_progress


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--out", default="runs/demo", metavar="FOLDER", help="the folder of the run (numbered if taken)"
    )
    parser.add_argument("--epochs", type=at_least(1), metavar="N", help="epochs instead of the recipe's")
    add_workers_option(parser, "simulate")


def run(options: Namespace) -> int:
    from event2vec.machine.ranks import is_first_rank
    from event2vec.studies.report import report
    from event2vec.training.train import free_folder, train

    began = time.monotonic()
    progress = shown_progress()
    settings = {} if options.epochs is None else {"training.epochs": options.epochs}
    say("Handwritten digits are shown to a simulated event camera, and a small Transformer learns to read them")
    run = train("digits", out=free_folder(Path(options.out)), workers=options.workers, progress=progress, **settings)
    if not is_first_rank():  # of several GPUs, one says what was learnt
        return 0
    made = report(run, workers=options.workers, progress=progress)
    if made.evaluation:
        print_evaluation(made.evaluation)
        run.keep_evaluation(made.evaluation)
    say(f"Done in {time.monotonic() - began:.0f} seconds. See what it learnt: {made.page}")
    return 2 if made.problems else 0
