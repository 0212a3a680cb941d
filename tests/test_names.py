"""Names that people chose are shown on one line that a terminal cannot mistake for orders."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from event2vec.errors import Event2VecError, FileError
from event2vec.names import check_class_names, counted, excerpt, hide_secrets, nearest, printable, shorten, shown


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


def test_what_is_shown_stays_short_with_all_its_escapes():
    assert len(excerpt("\0" * 500, 60)) <= 63
    assert len(shown("\0" * 500)) <= 103


def test_a_number_agrees_with_its_noun():
    assert [counted(number, "recording") for number in (0, 1, 1200)] == [
        "0 recordings",
        "1 recording",
        "1,200 recordings",
    ]
    assert [counted(number, "class", "classes") for number in (1, 2)] == ["1 class", "2 classes"]


def test_a_similar_name_is_suggested_and_a_different_one_is_not():
    assert nearest("trian", ["train", "evaluate"]) == " (did you mean train?)"
    assert nearest("zebra", ["train", "evaluate"]) == ""
    assert nearest("t" * 10**7, ["train"]) == "", "a long name takes no time"


def test_text_is_cut_only_if_it_is_too_long():
    assert shorten("a" * 10, 10) == "a" * 10
    assert shorten("a" * 11, 10) == "a" * 10 + "..."


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("https://u:p@ss@host/x", "https://host/x"),
        ("http://host/x?token=abc: no answer", "http://host/x?... no answer"),
        ("s3://bucket/a@b and hf://owner/name@main", "s3://bucket/a@b and hf://owner/name@main"),
    ],
)
def test_addresses_are_shown_without_secrets(text, safe):
    assert hide_secrets(text) == safe
    error = pickle.loads(pickle.dumps(FileError(text, f"is not {text}")))
    assert str(error) == f"{safe}: is not {safe}"


CONTROL = [chr(code) for code in (*range(32), *range(0x7F, 0xA0))]
TURNING = ["\u061c", "\u200e", "\u200f", *map(chr, range(0x2028, 0x202F)), *map(chr, range(0x2066, 0x206A))]


@pytest.mark.parametrize("character", [*CONTROL, *TURNING, "\ud800", chr(0xDFFF)], ids=ascii)
def test_nothing_that_moves_a_cursor_or_turns_a_line_is_shown_as_it_is(character):
    name = f"a{character}b"
    assert character not in printable(name)
    assert printable(name).isascii()
    with pytest.raises(ValueError, match="class names must be text without control characters"):
        check_class_names([name])


@pytest.mark.parametrize(
    "character", ["\x20", "\x7e", "\xa0", "\u2027", "\u202f", "\u2065", "\u206a", "\ue000"], ids=ascii
)
def test_its_neighbours_are_text(character):
    assert printable(character) == character
    check_class_names([f"a{character}b"])


@given(st.text())
def test_what_is_shown_is_one_line_however_often_it_is_shown(text):
    once = printable(text)
    assert once == printable(once)
    assert len(once.splitlines()) <= 1
    assert once.encode("utf-8").decode("utf-8") == once


@given(st.text(), st.integers(1, 50))
def test_an_excerpt_is_short_and_has_no_runs_of_blanks(text, longest):
    found = excerpt(text, longest)
    assert len(found) <= longest + len("...")
    assert "  " not in found.removesuffix("...")
    if len(" ".join(text.split())) <= longest and printable(text) == text:
        assert found == " ".join(text.split())


def test_an_excerpt_of_anything_is_its_text():
    assert excerpt(ValueError("a\n  b")) == "a b"
    assert excerpt(12) == "12"
    assert excerpt("x" * 60) == "x" * 60
    assert excerpt("x" * 61) == "x" * 60 + "..."


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("https://u@host/x", "https://host/x"),
        ("see https://a:b@h/x?k=1 and https://c:d@i/y?k=2", "see https://h/x?... and https://i/y?..."),
        ("'https://h/x?k=1'", "'https://h/x?...'"),
        ("(https://h/x?k=1) too", "(https://h/x?...) too"),
        ("what? https://h/x", "what? https://h/x"),
        ("me@mail and C:\\a@b", "me@mail and C:\\a@b"),
        ("https://h/x?", "https://h/x?"),
    ],
)
def test_each_address_in_a_text_loses_its_secrets_and_nothing_else_is_lost(text, safe):
    assert hide_secrets(text) == safe


def test_of_several_similar_names_the_nearest_is_suggested():
    assert nearest("evaluat", ["evaluation", "evaluate", "train"]) == " (did you mean evaluate?)"
    assert nearest("x", []) == ""


def test_of_classes_with_one_name_the_most_frequent_is_named():
    with pytest.raises(ValueError, match="two classes are called 'b'"):
        check_class_names(["a", "b", "a", "b", "b"])
    check_class_names([])
