"""Output for people: lines on standard error and tables on standard output, with all names shown safely."""

import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from event2vec.machine.ranks import is_first_rank
from event2vec.names import counted, printable, shorten

if TYPE_CHECKING:
    from event2vec.evaluation.evaluate import Evaluation


# What messages of the library call an argument: a Python user has those, the command line has options.
ARGUMENT = re.compile(
    "`(cluster|clusters|columns|data|device|folds|group_by|labels|loop|min_confidence|min_events|out|overwrite|precision|private|"
    "sensor|smooth_over|speed|stride|time_unit|vote|window|window_events|windows|workers)`"
)


def with_options(text: str) -> str:
    """A message of the library, with the option of the command line in place of each argument."""
    return ARGUMENT.sub(lambda found: option_of(found[1]), printable(text))


def option_of(argument: str) -> str:
    return "--window" if argument == "windows" else f"--{argument.replace('_', '-')}"


def say(text: str) -> None:
    """One line for people; standard output is for answers. In distributed training, only the first process prints."""
    if is_first_rank():
        print(with_options(text), file=sys.stderr, flush=True)


def print_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, left: Collection[str] = (), title: str | None = None
) -> None:
    """Names are aligned left and wrapped if they are long; numbers are aligned right and never wrapped."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold")
    for head in heads:
        name = Text(printable(head))
        if head in left:
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))  # as Text: [red] is a name, not a colour
    console = Console(width=None if sys.stdout.isatty() else 250)  # a file or a pipe has no edge to fold at
    if title:
        console.print(Text(printable(title), "italic"))  # not the table's own, which would be folded at its edge
    console.print(table)


def print_rows(rows: Sequence[Mapping[str, str]], title: str | None = None) -> None:
    """A table of rows that have the same columns; the first is a name."""
    heads = list(rows[0])
    print_table(heads, [list(row.values()) for row in rows], left=heads[:1], title=title)


def print_evaluation(evaluation: "Evaluation") -> None:
    """Accuracy class by class, and of all, with intervals."""
    rows = []
    confusion = evaluation.confusion
    for number, (name, share) in enumerate(evaluation.per_class.items()):
        wrong = confusion[number].copy()
        wrong[number] = 0
        mistake = f"{evaluation.class_names[int(wrong.argmax())]} ({wrong.max() / max(confusion[number].sum(), 1):.0%})"
        count = confusion[number].sum() // evaluation.repeats
        interval = evaluation.per_class_interval[name]
        right = ("-", "") if share is None or interval is None else (f"{share:.1%}", interval.percent(1))
        rows.append((name, f"{count:,}", *right, mistake if wrong.any() else ""))
    heads = ("class", "recordings", "correct", "95 % interval", "most often mistaken for")
    print_table(heads, rows, left=("class", "most often mistaken for"))
    accuracy = (
        f"accuracy {evaluation.percent()} % on {counted(evaluation.recordings, 'recording')}, {_draws(evaluation)}"
    )
    print(f"{accuracy}; 95 % interval {evaluation.interval.percent()} %")
    if evaluation.top5 is not None and evaluation.top5_interval is not None:
        accuracy = f"among the best five: {100 * evaluation.top5:.2f} %"
        print(f"{accuracy}; 95 % interval {evaluation.top5_interval.percent()} %")
    print(evaluation.calibration.summary)


def _draws(evaluation: "Evaluation") -> str:
    repeats, vote = evaluation.repeats, evaluation.vote
    if vote > 1:
        return f"{repeats} evaluations, each averaging {vote} draws" if repeats > 1 else f"the average of {vote} draws"
    return f"{repeats} draws" if repeats > 1 else "one draw"


def warn_of_far(evaluation: "Evaluation", run: str = "") -> None:
    """One line, if recordings are unlike those of the training; with the `run`, where there are several."""
    if evaluation.far:
        source, remark = evaluation.far[0]
        verb = "is" if len(evaluation.far) == 1 else "are"
        count = f"{len(evaluation.far):,} of {evaluation.recordings:,} recordings {verb}"
        of = f"{run}: " if run else ""
        say(f"event2vec: {of}{count} unlike the training recordings, such as {shorten(source)}: {remark}")
