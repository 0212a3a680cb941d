"""Write one page about a run: its data, training, accuracy, robustness, attention, embedding and speed.

    event2vec report runs/digits

The page is one HTML file that loads nothing from elsewhere. It has a player: drag through a recording's events and
see what the network attends to.
"""

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from event2vec.cli.options import add_workers_option
from event2vec.cli.printing import say
from event2vec.cli.progress import progress_bar


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run that 'event2vec train' wrote")
    parser.add_argument("--out", metavar="FILE", help="where the page goes (default: report.html in the run)")
    parser.add_argument("--data", metavar="PATH", help="where its recordings are now, if they were moved")
    parser.add_argument("--repeats", type=int, default=10, metavar="N", help="independent draws; clusters need one")
    add_workers_option(parser)


def run(options: Namespace) -> int:
    from event2vec.report import write_report

    run = Path(options.run)
    page = Path(options.out) if options.out else run / "report.html"
    report = write_report(run, page, options.repeats, options.workers, progress_bar, options.data)
    say(f"{100 * report.evaluation.accuracy:.1f} % of {report.evaluation.recordings:,} recordings. The page: {page}")
    return 2 if report.problems else 0
