"""Names of files and classes, and addresses, chosen by people: shown safely, and checked before they enter a result."""

import difflib
import re
import reprlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

# Control characters, line ends, changes of writing direction, and bytes of file names that are not text.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
LONGEST = 100  # characters of a value shown in a message
_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = LONGEST


def printable(text: str) -> str:
    """The text on one line, with escapes for characters that a terminal would interpret or cannot show."""
    return UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def shorten(text: str, longest: int = LONGEST) -> str:
    """The text, cut to a length that fits a message."""
    return text if len(text) <= longest else f"{text[:longest]}..."


def excerpt(text: object, longest: int = 60) -> str:
    """Text from a file or a library, safe for a message: one short, printable line."""
    return shorten(printable(" ".join(str(text)[: 10 * longest].split())), longest)


def hide_secrets(text: str) -> str:
    """Addresses without what may be a password or a token: the user before the host, and the query."""
    return re.sub(r"(://[^\s?'\")]*)\?[^\s'\")]+", r"\1?...", re.sub(r"://[^/\s]*@", "://", text))


def shown(value: Any) -> str:
    """The repr of an untrusted value for a message, short even if the value is long or deeply nested."""
    return shorten(printable(_BRIEF.repr(value)))


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: 1 recording, 1,200 recordings."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def nearest(name: str, known: Iterable[str]) -> str:
    """A "did you mean" hint for the end of a message; empty if no known name is similar."""
    near = nearest_names(name, known)
    return f" (did you mean {near[0]}?)" if near else ""


def nearest_names(name: str, known: Iterable[str]) -> list[str]:
    """The one most similar, or none if no known name is similar."""
    return difflib.get_close_matches(shorten(name), list(known), n=1)


def check_class_names(names: Sequence[str]) -> None:
    """Class names end up in files, tables and figures, and results are keyed by them."""
    for name in names:
        if not name or UNPRINTABLE.search(name):
            raise ValueError(f"a class is called {shown(name)}: class names must be text without control characters")
    for name, count in Counter(names).most_common(1):
        if count > 1:
            raise ValueError(f"two classes are called {shown(name)}")
