"""Progress: stages nest, people see bars at a terminal and a line now and then in a log."""

import sys

import pytest
from streams import Clock

from event2vec.cli.progress import shown_progress
from event2vec.progress import SECONDS_BETWEEN_LINES, SILENT, Progress, ShownProgress


class Noted(Progress):
    def __init__(self):
        self.calls = []

    def start(self, title, total=None):
        self.calls.append(("start", title, total))

    def finish(self):
        self.calls.append(("finish",))


@pytest.fixture
def clock(monkeypatch):
    """Time as the lines of a log see it."""
    clock = Clock()
    monkeypatch.setattr("event2vec.progress.time", clock)
    return clock


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")


def test_a_stage_ends_however_its_work_ends():
    noted = Noted()
    with pytest.raises(ZeroDivisionError), noted.stage("outer"), noted.stage("inner", 5):
        raise ZeroDivisionError
    assert noted.calls == [("start", "outer", None), ("start", "inner", 5), ("finish",), ("finish",)]


def test_silence_says_nothing(capsys):
    with SILENT.stage("work", 3):
        SILENT.advance(1, "a note")
        SILENT.say("a line")
    assert capsys.readouterr() == ("", "")


def test_a_log_gets_a_line_every_ten_seconds(clock, capsys):
    progress = ShownProgress()
    with progress.stage("training", 1000):
        for done in range(30):
            progress.advance(done, "loss 0.5")
            clock.sleep(1.0)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["training: 10 of 1,000  loss 0.5", "training: 20 of 1,000  loss 0.5"]


def test_a_stage_without_an_end_in_sight_says_how_far_it_is(clock, capsys):
    progress = ShownProgress()
    with progress.stage("reading"):
        clock.sleep(SECONDS_BETWEEN_LINES)
        progress.advance(12_345)
    assert capsys.readouterr().err == "reading: 12,345\n"


def test_each_stage_of_a_log_has_a_clock_of_its_own(clock, capsys):
    progress = ShownProgress()
    with progress.stage("outer", 2):
        clock.sleep(SECONDS_BETWEEN_LINES)
        with progress.stage("inner", 5):
            progress.advance(1)
        progress.advance(1)
    assert capsys.readouterr().err == "outer: 1 of 2\n"


def test_a_terminal_has_a_bar_for_each_stage_and_none_at_the_end(terminal):
    progress = ShownProgress()
    with progress.stage("outer [red]", 2):
        with progress.stage("inner", 5):
            progress.advance(3, "loss 0.5")
            assert progress.bars is not None
            outer, inner = progress.bars.tasks
            assert (outer.description, outer.total) == ("outer [red]", 2)
            assert (inner.description, inner.completed, inner.total) == ("inner  loss 0.5", 3, 5)
        assert len(progress.bars.tasks) == 1
        progress.say("epoch 1/2 [bold]")
    assert progress.bars is None


def test_of_processes_that_train_together_only_the_first_shows_bars(terminal, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    progress = ShownProgress()
    with progress.stage("training", 2):
        assert progress.bars is None


def test_names_in_titles_cannot_move_the_cursor(clock, capsys):
    progress = ShownProgress()
    with progress.stage("preparing \x1b[2J", 2):
        clock.sleep(SECONDS_BETWEEN_LINES)
        progress.advance(1, "\x07")
        progress.say("\x1b[31m")
    assert "\x1b" not in capsys.readouterr().err


def test_a_python_user_reads_of_arguments_and_the_command_line_of_options(capsys):
    ShownProgress().say("set `data`, or `time_unit`")
    shown_progress().say("set `data`, or `time_unit`")
    assert capsys.readouterr().err == "set `data`, or `time_unit`\nset --data, or --time-unit\n"


def test_of_processes_that_train_together_only_the_first_writes_lines(monkeypatch, capsys):
    monkeypatch.setenv("LOCAL_RANK", "1")
    ShownProgress().say("once")
    assert capsys.readouterr().err == ""
