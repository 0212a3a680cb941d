"""Write one page about a run: its data, training, accuracy, robustness, attention, embedding and speed.

    event2vec report runs/digits

The page is one HTML file that loads nothing from elsewhere. It has a player: drag through a recording's events and
see what the network attends to.
"""

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from event2vec.cli.options import add_device_options, add_workers_option
from event2vec.cli.printing import say
from event2vec.cli.progress import progress_bar


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run that 'event2vec train' wrote")
    parser.add_argument("--out", metavar="FILE", help="where the page goes (default: report.html in the run)")
    parser.add_argument("--data", metavar="PATH", help="where its recordings are now, if they were moved")
    parser.add_argument("--repeats", type=int, default=10, metavar="N", help="independent draws; clusters need one")
    add_device_options(parser)
    add_workers_option(parser)


def run(options: Namespace) -> int:
    from event2vec.studies.report import write_report
    from event2vec.training.run import choose_compute

    run = Path(options.run)
    page = Path(options.out) if options.out else run / "report.html"
    compute = choose_compute(run, options.device, options.precision)
    report = write_report(
        run,
        page,
        repeats=options.repeats,
        workers=options.workers,
        stage=progress_bar,
        data=options.data,
        compute=compute,
    )
    found = report.evaluation
    accuracy = f"{100 * found.accuracy:.1f} % of {found.recordings:,} recordings. " if found else ""
    say(f"{accuracy}The page: {page}")
    return 2 if report.problems else 0
