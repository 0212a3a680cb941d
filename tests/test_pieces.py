"""Pieces of work without a cluster, and what goes between a task and the process that asked for it; no Ray needed."""

import os
from types import SimpleNamespace

import pytest
from streams import Clock

from event2vec import Cluster, Event2VecError, Event2VecWarning, Progress
from event2vec.cluster import do_pieces, task
from event2vec.cluster.connection import _explain, _reach, check_address
from event2vec.cluster.job import TRIES, Job, _is_final
from event2vec.cluster.task import Board, Failed, Place, Told, _pass_on, _wait_for_locks
from event2vec.errors import Busy, FileError, Unreachable
from event2vec.machine.ranks import RANKS, SIZES, forget_launcher, has_launcher


class Noted(Progress):
    def __init__(self):
        self.calls = []

    def advance(self, done, note=""):
        self.calls.append((done, note))

    def say(self, line):
        self.calls.append(line)


def double(piece, progress):
    progress.say(f"at {piece}")
    return 2 * piece


class TestHere:
    def test_pieces_are_done_in_order_and_each_result_is_told_at_once(self):
        watch, found = Noted(), []
        results = do_pieces(double, [3, 5], ["a", "b"], None, watch, found=lambda *each: found.append(each))
        assert (results, found) == ([6, 10], [(0, 6), (1, 10)])
        assert watch.calls == [(0, "a"), "at 3", (1, "b"), "at 5"]

    def test_progress_counts_sizes_on_top_of_what_was_done(self):
        watch = Noted()
        do_pieces(double, [3, 5, 7], ["a", "b", "c"], None, watch, sizes=[10, 0, 4], done=100)
        assert [call for call in watch.calls if isinstance(call, tuple)] == [(100, "a"), (110, "b"), (110, "c")]

    def test_what_fails_ends_the_work_after_what_was_found(self):
        found = []

        def fail(piece, progress):
            if piece == 2:
                raise ZeroDivisionError
            return piece

        with pytest.raises(ZeroDivisionError):
            do_pieces(fail, [1, 2, 3], ["a", "b", "c"], found=lambda *each: found.append(each))
        assert found == [(0, 1)]

    def test_no_pieces_need_no_cluster(self):
        assert do_pieces(double, [], []) == []
        assert do_pieces(double, [], [], Cluster("nowhere:1")) == [], "nor is one looked for"


class TestAddresses:
    @pytest.mark.parametrize("address", ["auto", "local", "10.0.0.1:6379", "node-1:1", "[::1]:6379", "h:99999"])
    def test_a_cluster_has_a_host_and_a_port_or_a_name(self, address):
        check_address(address)
        assert Cluster.of(address, threads=3) == Cluster(address, 3)

    @pytest.mark.parametrize(
        "address",
        ["", "Auto", "host", "host:", ":6379", "host:123456", "host:port", "ray://host:6379", "a/b:1", "h:-1"],
    )
    def test_all_else_is_refused_with_what_is_expected(self, address):
        expected = r"`cluster` must be auto \(the cluster of this machine\), local \(this machine alone\) or HOST:PORT"
        with pytest.raises(Event2VecError, match=f"{expected}, got "):
            check_address(address)

    def test_a_cluster_that_is_given_is_taken_as_it_is(self):
        own = Cluster("local", threads=2)
        assert Cluster.of(own, threads=9) is own
        assert Cluster.of(None, threads=9) is None

    @pytest.mark.parametrize("device", [None, "cpu", "cuda", "mps"])
    def test_a_gpu_is_asked_for_only_where_there_is_one_and_it_is_wanted(self, device, monkeypatch):
        for there in (False, True):
            monkeypatch.setattr(Cluster, "has_gpus", there)
            assert Cluster("auto").gpus_for(device) == int(there and device in (None, "cuda"))

    def test_an_address_where_nobody_answers_is_named_at_once(self):
        with pytest.raises(
            Event2VecError,
            match=r"`cluster` 127\.0\.0\.1:1 cannot be reached: Connection refused\. Start Ray there",
        ):
            _reach("127.0.0.1:1")

    def test_why_there_is_no_connection_is_one_line(self):
        assert _explain("auto", OSError("x")) == (
            "no Ray cluster is running on this machine. Start one with: ray start --head"
        )
        assert _explain("host:1", OSError("first\nsecond")) == "first"
        hidden = OSError("failed")
        hidden.__cause__ = OSError("Authentication token missing")
        for address in ("auto", "host:1"):
            assert "the cluster requires a token. Set RAY_AUTH_MODE=token" in _explain(address, hidden)


class Remote:
    """Calls as Ray's actors take them: by `.remote`."""

    def __init__(self, board):
        self.board = board

    def __getattr__(self, name):
        return SimpleNamespace(remote=getattr(self.board, name))


class TestTold:
    @pytest.fixture
    def clock(self, monkeypatch):
        clock = Clock()
        monkeypatch.setattr(task, "time", clock)
        clock.sleep(100)
        return clock

    def test_notes_are_of_the_innermost_stage_and_come_now_and_then(self, clock):
        board = Board()
        told = Told(Remote(board), 7)
        told.advance(1)
        assert board.take() == ({}, []), "before any stage, there is nothing to say"
        with told.stage("outer", 4), told.stage("inner"):
            told.advance(1)
            assert board.notes == {7: "inner"}
        with told.stage("outer", 4):
            told.advance(1)
            assert board.notes == {7: "inner"}, "too soon"
            clock.sleep(task.SECONDS_BETWEEN_LOOKS)
            told.advance(3)
            assert board.notes == {7: "outer 75 %"}

    def test_a_line_is_taken_once_and_a_note_until_its_task_ends(self, clock):
        board = Board()
        told = Told(Remote(board), 2)
        told.say("first")
        told.say("second")
        board.note(2, "half")
        assert board.take() == ({2: "half"}, [(2, "first"), (2, "second")])
        assert board.take() == ({2: "half"}, [])
        board.end(2)
        board.end(2)
        assert board.take() == ({}, [])

    def test_our_warnings_are_passed_on_and_those_of_libraries_are_not(self):
        watch = Noted()
        _pass_on("a.raw: cut short", Event2VecWarning, watch)
        _pass_on("old", DeprecationWarning, watch)
        assert watch.calls == ["warning: a.raw: cut short"]

    def test_a_lock_of_a_lost_machine_is_waited_for_and_not_forever(self, clock):
        tries = []

        def work(piece, progress):
            tries.append(clock.monotonic())
            if len(tries) < piece:
                raise Busy("run", "in use")
            return "done"

        assert _wait_for_locks(work, 4, Noted()) == "done"
        assert len(tries) == 4
        tries.clear()
        with pytest.raises(Busy, match="in use"):
            _wait_for_locks(work, 10**9, Noted())
        assert tries[-1] - tries[0] == pytest.approx(task.SECONDS_FOR_LOCKS, abs=1)


class TestPlaces:
    def test_a_task_works_where_it_was_asked_for_with_our_variables(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("EVENT2VEC_CACHE", "/cache")
        monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
        monkeypatch.setenv("OTHER", "x")
        place = Place.here()
        assert place.folder == str(tmp_path)
        assert place.variables["EVENT2VEC_CACHE"] == "/cache"
        assert place.variables["XDG_CACHE_HOME"] == "/xdg"
        assert "OTHER" not in place.variables
        monkeypatch.chdir("/")
        monkeypatch.setenv("EVENT2VEC_CACHE", "/elsewhere")
        place.enter()
        assert (os.getcwd(), os.environ["EVENT2VEC_CACHE"]) == (str(tmp_path), "/cache")

    def test_a_folder_that_the_node_does_not_see_is_named(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(Event2VecError, match=r"/nowhere does not exist on the node .*: all nodes must share"):
            Place("/nowhere", {}).enter()

    def test_a_launcher_is_forgotten_and_all_other_variables_stay(self, monkeypatch):
        for name in (*RANKS, *SIZES, "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"):
            monkeypatch.setenv(name, "2")
        monkeypatch.setenv("MASTER_ADDR", "host")
        assert has_launcher()
        forget_launcher()
        assert not has_launcher()
        assert not [name for name in os.environ if name in (*RANKS, *SIZES) or name.startswith(("SLURM_", "TORCHEL"))]
        assert os.environ["MASTER_ADDR"] == "host"

    @pytest.mark.parametrize(
        ("variables", "there"), [({}, False), ({"WORLD_SIZE": "1"}, False), ({"WORLD_SIZE": "2"}, True)]
    )
    def test_a_launcher_has_started_several_processes(self, variables, there, monkeypatch):
        for name in SIZES:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert has_launcher() is there


class TestJob:
    KINDS = SimpleNamespace(
        RayError=KeyError, NodeDiedError=ChildProcessError, OutOfMemoryError=MemoryError, WorkerCrashedError=EOFError
    )

    def job(self, outcomes, names=("a", "b")):
        watch, found = Noted(), []
        job = Job(Cluster("auto"), names, watch, lambda *each: found.append(each), [5] * len(names), 100)
        job.ray = SimpleNamespace(get=outcomes.__getitem__, exceptions=self.KINDS)
        return job, watch, found

    def test_a_result_is_kept_told_and_counted(self):
        job, watch, found = self.job({"x": "result"})
        job.running["x"] = 1
        assert job._take("x") is None
        assert (job.results, found, job.running) == ({1: "result"}, [(1, "result")], {})
        assert watch.calls == [(105, "")]

    def test_after_five_tries_a_piece_is_given_up(self):
        job, watch, _ = self.job({"x": Failed(Busy("run", "in use"))})
        for number in range(1, TRIES):
            job.running["x"] = 0
            assert job._take("x") == 0
            assert watch.calls[-1] == f"a: run: in use. Trying again ({number + 1} of 5)"
        job.running["x"] = 0
        with pytest.raises(Event2VecError) as caught:
            job._take("x")
        assert str(caught.value) == (
            "a failed 5 times: run: in use. What is finished is kept: run the same command again"
        )

    def test_an_error_of_ours_is_shown_as_it_is_after_the_last_try(self):
        error = ZeroDivisionError("oops")
        job, _, _ = self.job({"x": Failed(error)})
        job.tries[0] = TRIES - 1
        job.running["x"] = 0
        with pytest.raises(ZeroDivisionError) as caught:
            job._take("x")
        assert caught.value is error

    @pytest.mark.parametrize(
        ("error", "words"),
        [
            (ChildProcessError(), "its node was lost"),
            (MemoryError(), "memory ran out on its node"),
            (EOFError(), "its process was killed"),
            (OSError("first\nsecond"), "OSError: first"),
        ],
    )
    def test_what_happened_to_a_task_is_said_in_words(self, error, words):
        assert self.job({})[0]._explain(error) == words

    @pytest.mark.parametrize(
        ("error", "final"),
        [
            (Event2VecError("x"), True),
            (FileError("a", "b"), True),
            (Busy("a", "b"), False),
            (Unreachable("a", "b"), False),
            (OSError("x"), False),
        ],
    )
    def test_only_what_another_machine_would_find_too_ends_all_work(self, error, final):
        assert _is_final(error) is final

    def test_what_tasks_do_is_shown_for_a_few_of_them(self):
        job, watch, _ = self.job({}, [f"part {number}" for number in range(7)])
        job.running = {str(number): number for number in range(6)}
        notes = {number: f"{number} %" for number in range(1, 7)}
        job.board = SimpleNamespace(take=SimpleNamespace(remote=lambda: "board"))
        answers = {"board": (notes, [(2, "a line")])}
        nodes = [{"Alive": True, "Resources": {"CPU": 1}}, {"Alive": False, "Resources": {"CPU": 1}}]
        job.ray = SimpleNamespace(
            nodes=lambda: nodes, get=lambda reference, timeout: answers[reference], exceptions=self.KINDS
        )
        job._show()
        assert watch.calls == [
            "part 2: a line",
            (100, "on 1 node  part 1 1 %, part 2 2 %, part 3 3 %, part 4 4 % and 1 more"),
        ]
