"""Names that people chose are shown on one line that a terminal cannot mistake for orders."""

import pickle

import pytest

from event2vec.errors import Event2VecError, FileError
from event2vec.names import check_class_names, printable, shown


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("clip[red].raw", "clip[red].raw"),
        ("手 é नमस्ते می\u200cکنم", "手 é नमस्ते می\u200cکنم"),
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("two\nlines\r", r"two\nlines\r"),
        ("\udcff", r"\udcff"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\x9b2J", r"\x9b2J"),
    ],
)
def test_only_what_a_terminal_would_obey_is_escaped(name, expected):
    assert printable(name) == expected
    assert str(FileError(name, "is odd")) == f"{expected}: is odd"
    assert str(Event2VecError(f"odd {name}")) == f"odd {expected}"
    assert str(pickle.loads(pickle.dumps(FileError(name, "is odd")))) == f"{expected}: is odd"


def test_a_value_is_shown_in_a_hundred_characters():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    for value in (deep, "x" * 10**6, list(range(10**6)), {"a" * 999: "b" * 999}):
        assert len(shown(value)) < 110
    assert shown("a") == "'a'"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", ""], "a class is called ''"),
        (["a\n"], r"a class is called 'a\\n'"),
        (["\udcff"], r"a class is called '\\udcff'"),
        (["a", "b", "a"], "two classes are called 'a'"),
    ],
)
def test_names_that_classes_cannot_have(names, message):
    with pytest.raises(ValueError, match=message):
        check_class_names(names)
    check_class_names(["$x^", "[red]", "手", "می\u200cکنم", "a b"])
