"""Compare networks on your recordings: each is trained for the same time and tested in the same way.

    event2vec compare --data my_recordings/                          every network, five minutes each
    event2vec compare --data my_recordings/ --networks event2vec,frame_cnn,max_former --minutes 20 --seeds 3
    event2vec compare --recipe digits --minutes 1                    no recordings needed
    event2vec compare --data my_recordings/ --figure events          Figure 3: trained and tested with fewer events
    event2vec compare --data my_recordings/ --figure resolution      Figure 4: tested with fewer pixels

Accuracy with its interval, parameters, epochs, minutes, throughput, latency and memory of each, with the paper's
figures beside them, as a table, CSV, Markdown and a page with pictures. Run the same command again to resume: finished
rows are not repeated.
"""

import json
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from event2vec.baselines import NETWORKS
from event2vec.cli.options import (
    DATA,
    add_cluster_options,
    add_data_option,
    add_execution_options,
    add_json_option,
    check_cluster_options,
    execution_options,
    read_cluster,
    read_numbers,
)
from event2vec.cli.parser import at_least, positive
from event2vec.cli.printing import print_rows, print_table, say
from event2vec.errors import Event2VecError

if TYPE_CHECKING:
    from event2vec.evaluation.sweeps import Point
    from event2vec.studies.compare import Comparison


def add_arguments(parser: ArgumentParser) -> None:
    add_data_option(parser, f"{DATA}; digits need none")
    parser.add_argument(
        "--networks",
        metavar="A,B,...",
        help=f"event2vec, {', '.join(NETWORKS)}; or recipes, such as max_former_published",
    )
    parser.add_argument(
        "--recipe",
        default="folder",
        metavar="RECIPE",
        help="the recipe of event2vec, whose data set and augmentation all networks share",
    )
    parser.add_argument(
        "--minutes", type=positive, metavar="M", help="minutes of training for each network (default: 5)"
    )
    parser.add_argument("--epochs", type=at_least(1), metavar="N", help="epochs for each network, instead of minutes")
    parser.add_argument("--seeds", type=at_least(1), default=1, metavar="K", help="trainings of each network")
    parser.add_argument(
        "--figure",
        choices=("events", "resolution"),
        help="draw Figure 3 (one training for each network and number of events) or Figure 4 instead of the table",
    )
    parser.add_argument("--values", metavar="N,N,...", help="numbers of events or pixels in that figure")
    parser.add_argument("--out", metavar="FOLDER", help="where runs, tables and pictures go (default: in experiments/)")
    add_execution_options(parser)
    add_cluster_options(parser, "prepare the data, and train and test networks side by side")
    add_json_option(parser)


def check(options: Namespace) -> None:
    from event2vec.training.recipe import load_recipe

    check_cluster_options(options)
    if options.minutes is not None and options.epochs is not None:
        raise Event2VecError("--minutes and --epochs cannot be combined; omit one")
    if options.data is None and load_recipe(options.recipe).data.dataset != "digits":
        raise Event2VecError(f"--data is required: {DATA}. Without recordings: --recipe digits")
    if options.figure and (options.networks or options.seeds > 1):
        raise Event2VecError("--figure has networks of its own, with one seed; omit --networks and --seeds")
    if options.values and not options.figure:
        raise Event2VecError("--values is for --figure; omit it")


def run(options: Namespace) -> None:
    from event2vec.studies.compare import compare, compare_sweep

    how = {
        "recipe": options.recipe,
        "minutes": options.minutes,
        "epochs": options.epochs,
        "out": options.out,
        "cluster": read_cluster(options),
        **execution_options(options),
    }
    if options.figure:
        values = read_numbers(options.values, "values", 1) if options.values else None
        curves = compare_sweep(options.figure, options.data, values, **how)
        _print_points(curves, options)
        return
    networks = [name.strip() for name in options.networks.split(",")] if options.networks else None
    found = compare(options.data, networks, seeds=options.seeds, **how)
    if not found.results:  # the first process of those that train together has them
        return
    if options.json:
        print(json.dumps(found.facts(), indent=2))
    else:
        _print_tables(found)
    say(f"Tables and pictures are in {found.folder}: table.html, table.csv, table.md, table.json, accuracy_*.png")


def _print_points(curves: "dict[str, list[Point]]", options: Namespace) -> None:
    points = [(name, point) for name in curves for point in curves[name]]
    if options.json:
        facts = [{"network": name} | point.facts(options.figure) for name, point in points]
        print(json.dumps(facts, indent=2))
        return
    rows = [(name, str(point.value), point.found.percent()) for name, point in points]
    print_table(("network", options.figure, "accuracy (%)"), rows, left=("network",))


def _print_tables(found: "Comparison") -> None:
    """What was measured, and the same accuracies beside the paper's figures."""
    from event2vec.studies.comparison_table import NOTE, PAPER_NOTE, measured_cells, paper_cells

    print_rows([{"network": each.row.name} | measured_cells(each) for each in found.results])
    print(found.protocol)
    print(NOTE)
    beside = [
        {"network": each.row.name, "accuracy (%)": f"{100 * each.accuracy:.2f}", "parameters": f"{each.parameters:,}"}
        | paper_cells(each)
        for each in found.results
    ]
    print_rows(beside, title="Beside the paper")
    print(PAPER_NOTE)
