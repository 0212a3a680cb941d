"""The networks that a recipe may name besides ours: what is registered here can be trained, saved and loaded.

`baselines/` registers its own when event2vec is imported, so that imports point one way: it knows `model/`, which
knows only this list. Without torch: `--help` shows the settings of all networks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from event2vec.model.config import ModelConfig, NetworkConfig


@dataclass(frozen=True)
class Baseline:
    """A compared system: its settings, and where the class of its network is."""

    section: type[NetworkConfig]
    network: str  # module:class
    masked: str = ""  # the same of its network for pre-training, if it has one


NETWORKS: dict[str, Baseline] = {}  # by the name that `model.network` has


def section_of(content: Any) -> type[NetworkConfig]:
    """The section that a model's settings belong to, by their `network`; ours where they name none that we know."""
    name = content.get("network") if isinstance(content, Mapping) else None
    return NETWORKS[name].section if isinstance(name, str) and name in NETWORKS else ModelConfig


def network_class(name: str) -> Any:
    """The class of a compared system's network, loaded when it is asked for."""
    return _load(NETWORKS[name].network)


def masked_class(name: str) -> Any:
    """The same of its network for pre-training."""
    if not NETWORKS[name].masked:
        known = ", ".join(["event2vec", *(other for other, baseline in NETWORKS.items() if baseline.masked)])
        raise ValueError(f"model.network must be one of {known} for pre-training, got {name}")
    return _load(NETWORKS[name].masked)


def _load(place: str) -> Any:
    module, _, network = place.partition(":")
    return getattr(import_module(module), network)
