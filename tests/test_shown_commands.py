"""Commands that people copy: each one in the documentation and in a verb's help is understood as it is written."""

import re
import shlex
from pathlib import Path

import pytest

from event2vec.cli import VERBS, build_parser, load_verb

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if page.name not in ("log.md", "changelog.md", "results.md")]  # what was run once
READ_NOW = ("existing", "file_to_write")  # types of options that look at files, which are the reader's


def commands_in(text):
    """Lines that begin with the program, in blocks or after a prompt; `[...]` and comments are left out."""
    for line in text.splitlines():
        found = re.match(r"(?:\s{4,}|\$ |\s+)(?:\w+=\S+ )*(?:\.\./)?(?:aestream .* \| )?event2vec ([a-z].*)", line)
        if found is None:
            continue
        command = re.split(r"\s{3,}|\s#\s|\s>\s", found[1])[0].strip()
        words = shlex.split(command)
        if words[0] in VERBS:
            yield words


SHOWN = {
    f"{page.relative_to(ROOT)}: {shlex.join(words)}": words
    for page in PAGES
    for words in commands_in(page.read_text("utf-8"))
} | {f"{verb} --help: {shlex.join(words)}": words for verb in VERBS for words in commands_in(load_verb(verb).__doc__)}


@pytest.fixture(scope="module")
def parsers():
    """As the program's own, but that files need not be there."""
    made = {}
    for verb in VERBS:
        made[verb] = build_parser(verb)
        for option in made[verb]._actions:
            if getattr(option.type, "__qualname__", "").startswith(READ_NOW):
                option.type = str
    return made


def test_commands_are_found_where_people_look_for_them():
    pages = {name.partition(":")[0] for name in SHOWN}
    assert {"README.md", "docs/tutorial.md", "docs/howto/train.md", "docs/howto/long.md", "docs/scale.md"} <= pages
    assert {words[0] for words in SHOWN.values()} == set(VERBS), "each verb is shown somewhere"
    assert len(SHOWN) > 80


@pytest.mark.parametrize("name", SHOWN)
def test_a_command_that_is_shown_is_understood(name, parsers):
    verb, *rest = SHOWN[name]
    if rest[-1:] == ["--help"]:
        rest = rest[:-1]
    if verb in ("train", "pretrain") and rest and rest[0].endswith(".yaml"):
        rest[0] = "folder"  # a recipe of the reader's own
    parsers[verb].parse(rest)


@pytest.mark.parametrize("verb", VERBS)
def test_an_option_that_is_named_in_a_verbs_explanation_is_one_of_its_options(verb, parsers):
    lines = [line for line in load_verb(verb).__doc__.splitlines() if "event2vec " not in line]
    named = re.findall(r"(?<![\w-])(--[a-z][a-z._-]*[a-z])", "\n".join(lines))
    assert set(named) <= parsers[verb]._option_string_actions.keys()


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_is_explained_and_no_line_of_an_explanation_is_too_long(verb, parsers):
    assert max(map(len, load_verb(verb).__doc__.splitlines())) <= 120
    for option in parsers[verb]._actions:
        assert option.help, option.dest
        assert "  " not in option.help, option.dest
