"""Names that people chose, for files and for classes: shown safely, and checked before they become part of a result."""

import re
import reprlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

# Control characters, ends of lines, changes of the direction of writing, and bytes of file names that are no text.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
LONGEST = 100  # characters of a value that a message shows
_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = LONGEST


def printable(text: str) -> str:
    """The same text on one line, with escapes for what a terminal would obey or could not show."""
    return UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def shorten(text: str, longest: int = LONGEST) -> str:
    """The beginning of a text that is too long for a message."""
    return text if len(text) <= longest else f"{text[:longest]}..."


def excerpt(text: object, longest: int = 60) -> str:
    """What a file or a library says, as it may stand in a message: one short and harmless line."""
    return printable(shorten(" ".join(str(text)[: 10 * longest].split()), longest))


def shown(value: Any) -> str:
    """A value from outside as a message shows it, however long or deep it is."""
    return printable(shorten(_BRIEF.repr(value)))


def check_class_names(names: Sequence[str]) -> None:
    """Class names end up in files, tables and pictures, and results are kept by them."""
    for name in names:
        if not name or UNPRINTABLE.search(name):
            raise ValueError(f"a class is called {shown(name)}: class names are text, without control characters")
    for name, count in Counter(names).most_common(1):
        if count > 1:
            raise ValueError(f"two classes are called {shown(name)}")
