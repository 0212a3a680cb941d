"""Work on a real Ray cluster of two nodes: the same bytes as here, and a lost node costs only its tasks."""

import os
import sys
import threading
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import make_recording
from processes import NEEDS_PROC, SECONDS_TO_END, is_alive
from trainings import RECIPE, assert_same_networks, make_store

from event2vec import Event2VecError, Progress, Run, compare, cross_validate, evaluate_runs, experiment, prepare, train
from event2vec.cluster import Cluster, do_pieces
from event2vec.cluster.job import Job
from event2vec.cluster.task import Failed, Place
from event2vec.data.datasets.dataset import Dataset
from event2vec.errors import Busy, FileError, Unreachable
from event2vec.execution import Execution
from event2vec.io import Recording
from event2vec.machine.atomic import whole_file
from event2vec.machine.ranks import is_first_rank
from event2vec.studies.row_run import Setting

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'event2vec[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}


@pytest.fixture(scope="module")
def cluster():
    """Two nodes on this machine, one core each; this process is connected to the first."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))  # for tasks that are defined here
        from ray.cluster_utils import Cluster as Nodes

        nodes = Nodes(initialize_head=True, head_node_args=NODE)
        nodes.add_node(num_cpus=1, object_store_memory=80 * 2**20)
        yield nodes
        ray.shutdown()
        nodes.shutdown()


class Heard(Progress):
    def __init__(self):
        self.lines = []
        self.notes = set()

    def advance(self, done, note=""):
        self.notes.add(note)

    def say(self, line):
        self.lines.append(line)


def wait_for(condition):
    deadline = time.monotonic() + SECONDS_TO_END
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@dataclass(frozen=True)
class Gated(Dataset):
    """Recordings that can be read once the gate is there; each try notes its node."""

    folder: Path

    def read(self, index):
        node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else "here"
        with whole_file(self.folder / f"{index}-{node}") as temporary:
            temporary.write_text(str(os.getpid()))
        wait_for((self.folder / "gate").exists)
        return Recording(make_recording(50 + index, seed=index), "made", 0, 0, True)

    def fingerprint(self, index):
        return str(index)

    def tries(self):
        return [tuple(path.name.split("-")) for path in self.folder.glob("[0-9]*-*")]  # not those half-written


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_folds_on_two_nodes_are_those_of_one_process(cluster, tmp_path):
    store, watch = make_store(tmp_path / "store"), Heard()
    recipe = RECIPE.with_settings({"training.epochs": 1})
    there = cross_validate(recipe, store, tmp_path / "there", folds=2, cluster=cluster.address, progress=watch)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as many as a task has
    try:
        train(recipe.with_settings({"data.folds": 2, "data.fold": 2}), store, tmp_path / "here")
    finally:
        torch.set_num_threads(threads)
    assert_same_networks(tmp_path / "there/fold-2", tmp_path / "here")
    assert len(there.accuracies) == 2
    assert {line.partition(":")[0] for line in watch.lines} >= {"fold 1", "fold 2", "Fold 1 of 2", "Fold 2 of 2"}


class Interrupted(Heard):
    """Ctrl-C as soon as the first row has its result, while the second one trains."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def advance(self, done, note=""):
        if list(self.folder.glob("*/result.json")):
            raise KeyboardInterrupt


def test_rows_that_were_stopped_continue_and_are_evaluated_and_compared_there(cluster, tmp_path):
    """One after the other on the same cluster: an experiment, its runs, and a comparison."""
    store, recipe = make_store(tmp_path / "store").folder, RECIPE.with_settings({"training.epochs": 1})
    how: dict[str, Any] = {"recipe": recipe, "cluster": cluster.address}
    with pytest.raises(KeyboardInterrupt):
        experiment("sharing", store, seeds=1, out=tmp_path / "out", progress=Interrupted(tmp_path / "out"), **how)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*/result.json")}
    assert kept
    watch = Heard()
    found = experiment("sharing", store, seeds=1, out=tmp_path / "out", progress=watch, **how)
    assert len(found.results) == 2
    assert {path: path.stat().st_mtime_ns for path in kept} == kept, "what was finished is not done again"
    assert [note for note in watch.notes if note.startswith("on 2 nodes")]

    runs = [tmp_path / f"out/{name}-0" for name in ("shared", "not_shared")]
    watch = Heard()
    there = evaluate_runs(runs, repeats=1, cluster=cluster.address, workers=8, progress=watch)
    assert [each.facts() for each in there] == [Run.open(run).evaluate(repeats=1).facts() for run in runs]

    compared = compare(store, ["event2vec"], epochs=1, out=tmp_path / "compared", **how)
    assert [row["network"] for row in compared.rows] == ["event2vec"]


def tell(signal, progress):
    """A task that ends when it was seen."""
    with progress.stage("counting", 10):
        progress.advance(5)
        end = time.monotonic() + SECONDS_TO_END
        while not signal.exists() and time.monotonic() < end:
            time.sleep(0.1)
    progress.say("seen" if signal.exists() else "not seen")


class Signalling(Heard):
    """Lets tasks end as soon as all are in one note."""

    def __init__(self, signal, names):
        super().__init__()
        self.signal, self.names = signal, names

    def advance(self, done, note=""):
        super().advance(done, note)
        if all(f"{name} counting" in note for name in self.names):
            self.signal.touch()


def test_progress_of_tasks_is_seen_with_their_names(cluster, tmp_path):
    signal, names = tmp_path / "seen", ["one", "two"]
    watch = Signalling(signal, names)
    do_pieces(tell, [signal, signal], names, Cluster(cluster.address), watch)
    assert sorted(watch.lines) == ["one: seen", "two: seen"]
    both = [note for note in watch.notes if all(f"{name} counting" in note for name in names)]
    assert all(note.startswith("on 2 nodes  ") and note.endswith(" %") for note in both)


def test_a_program_that_is_connected_stays_on_the_cluster_that_is_named(cluster):
    host, _, port = cluster.address.rpartition(":")
    assert not Cluster(cluster.address).has_gpus
    assert not Cluster("auto").has_gpus
    for other in (f"{host}:{int(port) + 1}", "local"):
        with pytest.raises(
            Event2VecError, match=rf"`cluster` {other}: this program is connected to .*{port}. Name tha"
        ):
            _ = Cluster(other).has_gpus


def test_what_no_cluster_has_is_refused_when_it_is_named():
    with pytest.raises(Event2VecError, match="threads of each task must be at least 1, got 0"):
        Cluster("auto", threads=0)
    with pytest.raises(Event2VecError, match=r"got '128'. The number of events .* is `clusters`$"):
        Cluster("128")
    with pytest.raises(Event2VecError, match=r"`cluster` must be auto .* got 'nowhere'"):
        Cluster("nowhere")
    with pytest.raises(Event2VecError, match="Ray chooses the GPU of each task: set `device` to cuda, not cuda:1"):
        evaluate_runs([], device="cuda:1", cluster="auto")
    with pytest.raises(Event2VecError, match="set `device` to cuda, not cuda:1"):
        Setting(None, how=Execution(device="cuda:1"), cluster=Cluster("auto"))


def test_a_job_says_once_that_no_node_is_left_for_it():
    nodes = [{"Alive": True, "Resources": {"CPU": 4}}, {"Alive": True, "Resources": {"CPU": 1}}]
    watch = Heard()
    job = Job(Cluster("auto", threads=4), ["a"], watch, lambda *_: None, [1], 0)
    job.ray = SimpleNamespace(nodes=lambda: nodes)
    job._say_if_stuck()
    assert not watch.lines
    nodes[0]["Alive"] = False
    job._say_if_stuck()
    job._say_if_stuck()
    assert watch.lines == [
        "waiting: no node of the cluster is left with 4 CPU cores and 0 GPUs for a task. Add one, or stop"
    ]


def refuse(number, progress):
    raise Event2VecError(f"no, not {number}")


def test_what_the_user_must_mend_ends_all_work_at_once(cluster):
    with pytest.raises(Event2VecError, match=r"no, not [01]"):
        do_pieces(refuse, [0, 1], ["a", "b"], Cluster(cluster.address))
    with pytest.raises(Event2VecError, match="needs 2 CPU cores, and the largest node of the cluster has 1"):
        do_pieces(refuse, [0], ["a"], Cluster(cluster.address, threads=2))


def test_cores_and_gpus_must_be_on_one_node(monkeypatch):
    small = {"CPU": 2, "GPU": 1}
    nodes = [{"Alive": True, "Resources": resources} for resources in ({"CPU": 8}, small)]
    job = Job(Cluster("auto", threads=4), ["a"], Heard(), lambda *_: None, [1], 0)
    job.ray = SimpleNamespace(nodes=lambda: nodes, cluster_resources=lambda: {"CPU": 10.0})
    with pytest.raises(Event2VecError, match="needs 4 CPU cores and 1 GPU, and no node of the cluster has both"):
        job._check_resources(gpus=1)
    small["CPU"] = 4
    job._check_resources(gpus=1)


def test_what_may_answer_later_is_tried_again(monkeypatch):
    outcomes = {kind: Failed(kind("s3://a/b", "does not answer")) for kind in (Unreachable, Busy, FileError)}
    watch = Heard()
    job = Job(Cluster("auto"), ["part 1"], watch, lambda *_: None, [1], 0)
    job.ray = SimpleNamespace(get=outcomes.get, exceptions=ray.exceptions)
    for number, kind in enumerate((Unreachable, Busy), 2):
        job.running[kind] = 0
        assert job._take(kind) == 0
        assert watch.lines[-1] == f"part 1: s3://a/b: does not answer. Trying again ({number} of 5)"
    job.running[FileError] = 0
    with pytest.raises(FileError, match="does not answer"):
        job._take(FileError)


def test_a_task_has_no_rank_of_what_started_ray(monkeypatch, tmp_path):
    for name in ("SLURM_PROCID", "NODE_RANK", "RANK", "WORLD_SIZE", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.setenv(name, "3")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    assert not is_first_rank()
    with pytest.raises(Event2VecError, match="without torchrun or srun"):
        _ = Cluster("auto").has_gpus
    Place(str(tmp_path), {}).enter()
    assert is_first_rank()
    assert not [name for name in os.environ if name.startswith("SLURM_") or name == "WORLD_SIZE"]


@NEEDS_PROC
def test_a_lost_node_costs_only_its_tasks(cluster, tmp_path):
    (tmp_path / "tries").mkdir()
    sources, watch = tuple(f"recording {index}" for index in range(4)), Heard()
    data = Gated("made", "train", ("a",), sources, (0,) * 4, tmp_path / "tries")
    work = threading.Thread(
        target=prepare, args=([data], tmp_path / "there"), kwargs={"cluster": cluster.address, "progress": watch}
    )
    work.start()
    wait_for(lambda: len({node for _, node in data.tries()}) == 2)
    lost = [node for node in cluster.list_all_nodes() if node is not cluster.head_node]
    (process,) = [int(path.read_text()) for path in data.folder.glob(f"*-{lost[0].node_id}")]
    cluster.remove_node(lost[0], allow_graceful=False)
    wait_for(lambda: not is_alive(process))  # else it could finish, and nothing would be left to do again
    (tmp_path / "tries/gate").touch()
    work.join(SECONDS_TO_END)
    indices = [index for index, _ in data.tries()]
    assert len(indices) == len(data) + 1, "the one recording that the lost node was reading"
    assert [line for line in watch.lines if "its node was lost. Trying again (2 of 5)" in line]
    prepare([data], tmp_path / "here")
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    assert not (tmp_path / "there.partial").exists()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", r"`cluster` 127.0.0.1:1 cannot be reached: Connection refused. Start Ray there"),
        ("ray://here", r"`cluster` must be auto .* or HOST:PORT, got 'ray://here'"),
    ],
)
def test_an_address_without_a_cluster_is_one_line(address, message, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(Event2VecError, match=message):
        evaluate_runs([], cluster=address)


@pytest.mark.parametrize("address", ["auto", "127.0.0.1:6379"])
def test_a_cluster_with_a_token_says_what_to_set(address, monkeypatch):
    def refuse_token(**_):
        raise ConnectionError("Failed to connect to Ray cluster") from RuntimeError(
            "ray.exceptions.AuthenticationError"
        )

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse_token)
    monkeypatch.setattr("event2vec.cluster.connection._reach", lambda address: None)
    with pytest.raises(Event2VecError, match=rf"`cluster` {address}: the cluster requires a token. Set RAY_AUTH_MODE"):
        _ = Cluster(address).has_gpus


@pytest.mark.parametrize(("chosen", "length"), [({}, 64), ({"RAY_AUTH_TOKEN_PATH": "a"}, 0)])
def test_a_cluster_of_our_own_has_a_token_that_ray_need_not_save(monkeypatch, chosen, length):
    monkeypatch.setattr(os, "environ", chosen)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: None)
    monkeypatch.setattr(ray, "cluster_resources", dict)
    assert not Cluster("local").has_gpus
    assert len(chosen.get("RAY_AUTH_TOKEN", "")) == length


def test_a_cluster_that_does_not_start_is_one_line(monkeypatch):
    def time_out(**_):
        raise Exception("The current node timed out during startup.\nMore")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", time_out)
    with pytest.raises(Event2VecError, match=r"^`cluster` local: The current node timed out during startup\.$"):
        _ = Cluster("local").has_gpus


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(Event2VecError, match=r"`cluster` needs an optional package. Run: pip install .event2vec\[ray"):
        _ = Cluster("auto").has_gpus
