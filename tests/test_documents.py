"""Whatever a file holds: what was meant, or one short error, at once and in little memory."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from event2vec import Event2VecError, load_recipe
from event2vec.documents import (
    DEEPEST,
    EXPERIMENTS,
    LARGEST_YAML,
    LONGEST_NUMBER,
    RECIPES,
    parse_json,
    parse_yaml,
    read_json,
    read_yaml,
    write_json,
)

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


class TestShelves:
    def test_each_name_is_found_and_so_is_any_path(self):
        for shelf in (RECIPES, EXPERIMENTS):
            assert shelf.names() == sorted(shelf.names())
            for name in shelf.names():
                assert shelf.find(name).is_file()
                assert (shelf.find(name).stem, shelf.find(name).parent.name) == (name, f"{shelf.kind}s")
        for path in ("mine.yaml", "a/b.yml", Path("/x/digits.yaml")):
            assert RECIPES.find(path) == Path(path), "also if it is not there: reading it says so"

    def test_an_unknown_name_is_an_error_with_the_nearest_and_those_that_there_are(self):
        with pytest.raises(Event2VecError) as caught:
            RECIPES.find("digts")
        message = str(caught.value)
        assert message.startswith(
            "unknown recipe 'digts' (did you mean digits?); expected asl_dvs, digits, dvs_gesture"
        )
        assert message.endswith(", or a file that ends in .yaml")
        assert "_published" not in message
        assert any(name.endswith("_published") for name in RECIPES.names()), "these are left out of the message"
        with pytest.raises(Event2VecError, match=r"unknown experiment 'x/digits'; expected .*, or a file that ends"):
            EXPERIMENTS.find("x/digits")

    def test_a_file_whose_suffix_was_forgotten_is_the_hint(self, tmp_path, monkeypatch):
        (tmp_path / "mine.yaml").touch()
        with pytest.raises(Event2VecError, match=r"unknown recipe 'mine' \(did you mean mine\.yaml\?\)"):
            RECIPES.find("mine", tmp_path)
        monkeypatch.chdir(tmp_path)
        with pytest.raises(Event2VecError, match=r"did you mean mine\.yaml"):
            EXPERIMENTS.find("mine")


class TestJson:
    def test_what_is_written_is_read_and_ends_with_a_line(self, tmp_path):
        facts: dict[str, Any] = {
            "name": "手 é",
            "numbers": [1, -2.5, 2**52],
            "none": None,
            "yes": True,
            "deep": {"a": {"b": []}},
        }
        write_json(tmp_path / "a" / "b.json", facts)
        assert read_json(tmp_path / "a" / "b.json") == facts
        assert (tmp_path / "a" / "b.json").read_text().endswith("}\n")
        assert '\n  "none": null,\n' in (tmp_path / "a" / "b.json").read_text(), "for people to look at"

    def test_what_fails_to_be_written_leaves_the_file_as_it_was(self, tmp_path):
        write_json(tmp_path / "a.json", {"old": 1})
        with pytest.raises(TypeError):
            write_json(tmp_path / "a.json", {"new": object()})
        assert read_json(tmp_path / "a.json") == {"old": 1}
        assert os.listdir(tmp_path) == ["a.json"]

    @pytest.mark.parametrize("digits", [LONGEST_NUMBER, LONGEST_NUMBER + 1])
    def test_the_longest_number_has_40_digits(self, digits):
        text = f'{{"a": {"9" * digits}}}'
        if digits <= LONGEST_NUMBER:
            assert parse_json("a.json", text) == {"a": 10**digits - 1}
        else:
            with pytest.raises(Event2VecError, match=r"a\.json: is not JSON: a number has 41 digits"):
                parse_json("a.json", text)

    @pytest.mark.parametrize("text", ['{"a": {"b": 1, "b": 1}}', '{"x": [{"b": 1, "b": 2}]}'])
    def test_a_name_that_is_given_twice_is_found_at_any_depth(self, text):
        with pytest.raises(Event2VecError, match="is not JSON: a name is given twice"):
            parse_json("a", text)

    @pytest.mark.parametrize("text", ["1", "null", '"a"', "[]", "true"])
    def test_other_content_than_names_and_values_is_refused(self, text):
        with pytest.raises(Event2VecError, match="a: is not a JSON object"):
            parse_json("a", text)

    def test_the_limit_is_the_last_size_that_is_read(self, tmp_path):
        path = tmp_path / "a.json"
        path.write_text('{"a": 1}')
        assert read_json(path, largest=8) == {"a": 1}
        with pytest.raises(Event2VecError, match=r"a\.json: has 8 bytes, expected at most 7"):
            read_json(path, largest=7)

    def test_bytes_that_are_no_text_are_placed(self, tmp_path):
        (tmp_path / "a.json").write_bytes(b'{"abc\xff"}')
        with pytest.raises(Event2VecError, match=r"a\.json: is not UTF-8 text \(byte 5\)"):
            read_json(tmp_path / "a.json")


class TestYaml:
    def test_twenty_levels_are_read_and_one_more_is_refused(self):
        assert parse_yaml("[" * DEEPEST + "]" * DEEPEST) == json.loads("[" * DEEPEST + "]" * DEEPEST)
        with pytest.raises(Event2VecError, match="cannot be used: sections are nested more than 20 deep"):
            parse_yaml("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1))

    def test_levels_that_have_ended_do_not_count(self):
        assert parse_yaml("[" + ", ".join(["[[]]"] * 50) + "]") == [[[]]] * 50

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("0", 0),
            ("-7", -7),
            ("+7", 7),
            ("1_000", 1000),
            ("0.5", 0.5),
            ("1.0e-3", 0.001),
            ("9" * LONGEST_NUMBER, 10**LONGEST_NUMBER - 1),
            (".inf", float("inf")),
            ("2024-01-01", "2024-01-01"),
            ("2024-01-01 10:00:00", "2024-01-01 10:00:00"),
            ("'010'", "010"),
            ("~", None),
            ("yes", True),
        ],
    )
    def test_a_value_is_what_it_looks_like(self, text, value):
        found = parse_yaml(f"a: {text}")["a"]
        assert (found, type(found)) == (value, type(value))

    @pytest.mark.parametrize("text", ["0x1f", "0b11", "017", "1:30", "-1:30.5"])
    def test_numbers_that_people_read_otherwise_than_yaml_are_refused(self, text):
        with pytest.raises(Event2VecError, match=f"^cannot be used: {text} is not a decimal number$"):
            parse_yaml(f"a: {text}")

    def test_a_file_is_named_and_nothing_of_it_is_run(self, tmp_path):
        (tmp_path / "a.yaml").write_text("a: !!python/object/apply:os.mkdir ['made']\n")
        with pytest.raises(
            Event2VecError, match=r"a\.yaml: cannot be used: tags such as tag:yaml.org,2002:python/object"
        ):
            read_yaml(tmp_path / "a.yaml")
        assert os.listdir(tmp_path) == ["a.yaml"]

    def test_an_empty_file_is_nothing(self, tmp_path):
        (tmp_path / "a.yaml").write_text("# only a comment\n")
        assert read_yaml(tmp_path / "a.yaml") is None
