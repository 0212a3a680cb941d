"""Output for people: tables on standard output, lines on standard error, names shown safely, one process for all."""

import pytest

from event2vec.cli.printing import print_table, say
from event2vec.machine.ranks import RANKS, is_first_rank


def test_a_line_goes_to_standard_error_and_moves_no_cursor(capsys):
    say("reading \x1b[2J.raw\n")
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "reading \\x1b[2J.raw\\n\n"


def test_arguments_of_the_library_are_options_of_the_command_line(capsys):
    say("store: set `time_unit` to s, or `windows`; `model` is no option, and `a b` no name")
    assert (
        capsys.readouterr().err == "store: set --time-unit to s, or --window; `model` is no option, and `a b` no name\n"
    )


def test_a_table_keeps_names_as_they_are_and_numbers_in_one_line(capsys):
    name = "a_very_long_name_of_a_recording_" * 5
    print_table(("file", "events"), [("[red]", "1"), (name, "1,234,567"), ("\x1b[31m", "2")], left=("file",))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["file", "events"]
    assert lines[1].split() == ["[red]", "1"], "no colour"
    assert any(line.rstrip().endswith("1,234,567") for line in lines)
    assert name in "".join(lines), "a pipe has no edge to fold at"
    assert "\\x1b[31m" in lines[-1]


def test_a_table_has_its_title_above_it(capsys):
    print_table(("a",), [("1",)], title="Table [4]")
    assert capsys.readouterr().out.splitlines()[0].strip() == "Table [4]"


@pytest.mark.parametrize("name", RANKS)
def test_of_processes_that_a_launcher_numbers_only_the_first_speaks(name, monkeypatch, capsys):
    for rank in RANKS:
        monkeypatch.delenv(rank, raising=False)
    assert is_first_rank(), "one alone"
    monkeypatch.setenv(name, "0")
    assert is_first_rank()
    monkeypatch.setenv(name, "1")
    assert not is_first_rank()
    say("twice")
    assert capsys.readouterr().err == ""
