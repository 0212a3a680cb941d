"""Systems that Event2Vec is compared with: networks with a batch in and logits out, trained by the same command.

A new one is a section in `config.py`, a file named after it, and a line in `NETWORKS` and in `NetworkName`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from event2vec.baselines.config import FrameCnnConfig
from event2vec.model.config import ModelConfig, NetworkConfig


@dataclass(frozen=True)
class Baseline:
    """A compared system: its settings, and the class of its network in the file of its name."""

    section: type[NetworkConfig]
    network: str


NETWORKS = {"frame_cnn": Baseline(FrameCnnConfig, "FrameCnn")}


def section_of(content: Any) -> type[NetworkConfig]:
    """The section that a model's settings belong to, by their `network`; ours where they name none that we know."""
    name = content.get("network") if isinstance(content, Mapping) else None
    return NETWORKS[name].section if isinstance(name, str) and name in NETWORKS else ModelConfig


def network_class(name: str) -> Any:
    """The class of a compared system's network, loaded when it is asked for."""
    return getattr(import_module(f"event2vec.baselines.{name}"), NETWORKS[name].network)
