"""Draw what a network has learnt: its spatial embedding, the events it attends to, its classes, mistakes and curves.

Give two runs to compare their embeddings, such as one with model.spatial parametric and one with lookup. Figures are
written as PNG and SVG to RUN/figures; those of a network alone to NAME-figures in the current folder.
"""

import json
from argparse import ArgumentParser, Namespace

from event2vec.cli.options import RUN, add_data_option, add_execution_options, add_json_option, execution_options
from event2vec.cli.parser import at_least, existing_run
from event2vec.cli.printing import say
from event2vec.names import printable


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        type=existing_run(RUN),
        help="a run; give several to compare their embeddings",
    )
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        help="where the figures go (default: figures in the first run; for a network alone, NAME-figures)",
    )
    add_data_option(parser, "where the first run's recordings are now, if they were moved")
    parser.add_argument(
        "--recordings", type=at_least(0), default=3, metavar="N", help="number of recordings whose attention is drawn"
    )
    add_execution_options(parser)
    add_json_option(parser)


def run(options: Namespace) -> int:
    from event2vec.studies.gallery import draw_gallery

    gallery = draw_gallery(
        options.runs,
        options.out,
        recordings=options.recordings,
        data=options.data,
        **execution_options(options),
    )
    similarity = gallery.neighbour_similarity
    if options.json:
        print(json.dumps({"neighbour_similarity": similarity, "folder": str(gallery.folder)}, indent=2))
    else:
        for name, value in similarity.items():
            print(printable(f"{name}: neighbouring pixels have a cosine similarity of {value:.3f}"))
    say(f"The figures are in {gallery.folder}")
    if gallery.problem:
        say(f"event2vec: some figures could not be drawn: {gallery.problem}")
    return 2 if gallery.problem else 0
