"""Which machines do the work: a cluster by its address, and the connection to it."""

import os
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from event2vec.errors import Event2VecError, MissingExtra
from event2vec.machine.ranks import has_launcher
from event2vec.names import shorten, shown

SECONDS_TO_REACH = 5.0  # an address
OBJECTS = 2**27  # bytes of memory for what Ray itself passes around, of a cluster that we start
EXPECTED = "auto (the cluster of this machine), local (this machine alone) or HOST:PORT"


@dataclass(frozen=True)
class Cluster:
    """Machines that share a file system and are connected by Ray.

        prepare(open_splits("folder", "my_recordings/"), "my_store", cluster="auto")
        cross_validate("folder", "my_store", folds=5, cluster=Cluster("10.0.0.1:6379", threads=4))

    `address` is auto for the cluster of this machine, local for this machine alone, or HOST:PORT.
    """

    address: str = "auto"
    threads: int = 1  # CPU cores that each piece of work gets, wherever it runs

    def __post_init__(self) -> None:
        check_address(self.address)
        if self.threads < 1:
            raise Event2VecError(f"threads of each task must be at least 1, got {self.threads}")

    @classmethod
    def of(cls, cluster: "str | Cluster | None", threads: int = 1) -> "Cluster | None":
        """By address; None: all work is done in this process and its workers."""
        if cluster is None or isinstance(cluster, Cluster):
            return cluster
        return cls(cluster, threads)

    def gpus_for(self, device: str | None) -> int:
        """How many GPUs a task gets that is to run on this device; None: on the best one."""
        self.check_device(device)
        return int(device in (None, "cuda") and self.has_gpus)

    def check_device(self, device: str | None) -> None:
        """A task sees only the GPU that Ray gives it, as its first."""
        if device and device.startswith("cuda:"):
            raise Event2VecError(f"on a cluster, Ray chooses the GPU of each task: set `device` to cuda, not {device}")

    @property
    def has_gpus(self) -> bool:
        return connect(self.address).cluster_resources().get("GPU", 0) >= 1


def check_address(address: str) -> None:
    host, _, port = address.rpartition(":")
    if address not in ("auto", "local") and not (host and port.isdecimal() and len(port) < 6 and "/" not in host):
        hint = ". The number of events that recordings are clustered to is `clusters`" if address.isdecimal() else ""
        raise Event2VecError(f"`cluster` must be {EXPECTED}, got {shown(address)}{hint}")


def connect(address: str) -> Any:
    """Ray, connected until this process ends. A program that is connected already must mean the same cluster."""
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError:
        raise MissingExtra("`cluster`", "ray") from None
    if ray.is_initialized():
        _check_same(ray, address)
        return ray
    if has_launcher():
        raise Event2VecError("`cluster` starts its own processes; run the program once, without torchrun or srun")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would call home, and say so
    how: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address == "local":
        _choose_token()
        how |= {"include_dashboard": False, "object_store_memory": OBJECTS}
    elif address != "auto":
        _reach(address)
    try:
        ray.init(address=address, **how)
    except Exception as error:  # also Exception itself, where its processes are slow to start
        raise Event2VecError(f"`cluster` {address}: {_explain(address, error)}") from None
    return ray


def _check_same(ray: Any, address: str) -> None:
    """Refuse another cluster than the one that this program is connected to, where the work would be done instead."""
    here = ray.get_runtime_context().gcs_address
    if address == "local":
        same = len([node for node in ray.nodes() if node["Alive"]]) <= 1
    else:
        same = address == "auto" or _place(ray, address) == _place(ray, here)
    if not same:
        raise Event2VecError(
            f"`cluster` {shorten(address)}: this program is connected to the cluster at {here}. "
            "Name that one, or call ray.shutdown() first"
        )


def _place(ray: Any, address: str) -> tuple[str, str]:
    """Host and port by number, so that a machine is known by any of its names."""
    host, _, port = address.rpartition(":")
    with suppress(OSError):
        host = socket.gethostbyname(host)
    return ray.util.get_node_ip_address() if host.startswith("127.") else host, port


def _choose_token() -> None:
    """For a cluster that ends with this process. Ray itself would leave one in the home folder.

    Every cluster that is started later with `ray start --head` would then ask for it.
    """
    if not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _explain(address: str, error: Exception) -> str:
    """Why there is no connection. Ray hides a wrong token in the cause of what it raises."""
    if "authentication" in f"{error} {error.__cause__}".lower():
        return (
            "the cluster requires a token. Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to the file with its token "
            "unless that is ~/.ray/auth_token"
        )
    if address == "auto":
        return "no Ray cluster is running on this machine. Start one with: ray start --head"
    return shorten(str(error).strip().partition("\n")[0], 200)


def _reach(address: str) -> None:
    """Refuse an address where nobody answers; Ray would take a minute to say so."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), SECONDS_TO_REACH).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Event2VecError(
            f"`cluster` {shorten(address)} cannot be reached: {reason}. Start Ray there with: ray start --head"
        ) from None
