"""Whatever a file holds: what was meant, or one short error, at once and in little memory."""

import os
import time

import pytest

from event2vec import Event2VecError, load_recipe
from event2vec.documents import LARGEST_YAML, parse_yaml, read_json, read_yaml

BILLION_LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "is not YAML"),
        ("!!python/object/apply:os.system ['true']", "tags such as .*python.* are not accepted"),
        ("a: !!timestamp 2024-99-99", "tags such as"),
        ("a: !!binary x", "tags such as"),
        ("!<" + "x" * 50_000 + "> a", "tags such as x+... are not accepted"),
        (BILLION_LAUGHS, r"aliases \(\*\) are not accepted"),
        ("&a [*a]", r"aliases \(\*\) are not accepted"),
        ("[" * 60_000, "sections are nested more than 20 deep"),
        ("- " * 20_000, "sections are nested more than 20 deep"),
        ("a: " + "9" * 5000, "a number has 5,000 digits"),
        ("a: 0x" + "f" * 50_000, "a number has 50,002 digits"),
        ("a: 010", "010 is not a decimal number"),
        ("a: 1:30", "1:30 is not a decimal number"),
        ("a: 1\na: 2", "'a' is given twice"),
        ("training: {epochs: 1, epochs: 2}", "'epochs' is given twice"),
        ("1: a", "names must be text, got '1'"),
        ("true: a", "names must be text, got 'true'"),
        ("? [a]\n: 1", "names must be text, got a sequence$"),
        ("<<: {a: 1}", "names must be text, got '<<'"),
        ("a: =", "is not YAML"),
        ("a\x00b", "is not YAML"),
        ("--- a\n--- b", "is not YAML"),
    ],
)
def test_yaml_is_what_settings_need_or_one_short_error(tmp_path, text, message):
    began = time.process_time()
    with pytest.raises(Event2VecError, match=message) as caught:
        parse_yaml(text)
    assert len(str(caught.value)) < 250
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(
        Event2VecError, match=f"mine.yaml: (is not YAML|cannot be used): .*{message.removeprefix('is not YAML')}"
    ) as caught:
        load_recipe(path)
    assert "\n" not in str(caught.value)
    assert time.process_time() - began < 10


def test_ordinary_yaml_stays_what_it_was():
    text = "a: 1\nb: [1.5, -2, 1_000, .5, true, null, 'x', 2024-01-01]\nc: {d: 1e-6, e: |\n  long\n}"
    assert parse_yaml("a: 1") == {"a": 1}
    assert parse_yaml(text.partition("c:")[0])["b"] == [1.5, -2, 1000, 0.5, True, None, "x", "2024-01-01"]
    assert parse_yaml("{d: 1e-6, e: 128x128}") == {"d": "1e-6", "e": "128x128"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 100_000, "is nested too deeply"),
        (b'{"a":' * 100_000, "is nested too deeply"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b'{"a": -Infinity}', "-Infinity is not a number"),
        (b'{"a": 1e999}', "1e999 is not a number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "a number has 5,000 digits"),
        (b'{"a": 1, "a": 2}', "a name is given twice"),
        (b"[1]", "is not a JSON object"),
        (b"", "is not JSON"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b" " * (2**24 + 1), "has 16,777,217 bytes, expected at most 16,777,216"),
    ],
)
def test_json_is_facts_by_name_or_one_short_error(tmp_path, content, message):
    path = tmp_path / "facts.json"
    path.write_bytes(content)
    with pytest.raises(Event2VecError, match=f"facts.json: .*{message}") as caught:
        read_json(path)
    assert len(str(caught.value)) < 300


def test_only_regular_files_of_a_sensible_size_are_read(tmp_path):
    (tmp_path / "folder.yaml").mkdir()
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    (tmp_path / "large.yaml").write_text("a: " + "x" * LARGEST_YAML)
    for name, message in (
        ("folder", "is not a file"),
        ("pipe", "is not a file"),
        ("loop", "does not exist"),
        ("none", "does not exist"),
        ("large", "bytes, expected at most 65,536"),
    ):
        for read in (read_json, read_yaml, load_recipe):
            if read is not read_json or name != "large":
                with pytest.raises(Event2VecError, match=message):
                    read(tmp_path / f"{name}.yaml")
