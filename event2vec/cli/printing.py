"""What people see: lines on standard error and tables on standard output, with the names in them shown safely."""

import sys
from collections.abc import Collection, Iterable, Sequence

from event2vec.names import printable


def say(text: str) -> None:
    """One line for people; standard output is for answers. Of processes that train together, one speaks."""
    from event2vec.devices import is_first_rank

    if is_first_rank():
        print(printable(text), file=sys.stderr, flush=True)


def print_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, left: Collection[str] = (), title: str | None = None
) -> None:
    """Names to the left, where long ones are folded; numbers to the right, which stay whole."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title and Text(printable(title)), box=None, header_style="bold", title_justify="left")
    for head in heads:
        name = Text(printable(head))
        if head in left:
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))  # as Text: [red] is a name, not a colour
    Console(width=None if sys.stdout.isatty() else 250).print(table)  # a file or a pipe has no edge to fold at
