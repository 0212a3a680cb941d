"""Progress as the command line shows it: what the library calls an argument is an option here."""

from event2vec.cli.printing import with_options
from event2vec.progress import ShownProgress


def shown_progress() -> ShownProgress:
    return ShownProgress(with_options)
