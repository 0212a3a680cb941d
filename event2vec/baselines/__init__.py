"""Systems that Event2Vec is compared with: networks with a batch in and logits out, trained by the same command.

A new one is a file with its network and a line in `NETWORKS`; `event2vec compare` then has a row for it. Settings are
beside each other in `config.py`, which does not load torch, so that `--help` is fast; those of a network of your own
may be in its own file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from event2vec.baselines.config import (
    EfvConfig,
    EventMaeConfig,
    EventNetConfig,
    FarseCnnConfig,
    FrameCnnConfig,
    MaSnnConfig,
    MaxFormerConfig,
    MstpConfig,
    RgCnnConfig,
    SparseGruConfig,
    SpikGruConfig,
    VoxelGridConfig,
)
from event2vec.model.config import ModelConfig, NetworkConfig


@dataclass(frozen=True)
class Baseline:
    """A compared system: its settings, and where the class of its network is."""

    section: type[NetworkConfig]
    network: str  # module:class
    masked: str = ""  # the same of its network for pre-training, if it has one


NETWORKS = {
    "frame_cnn": Baseline(FrameCnnConfig, "event2vec.baselines.frame_cnn:FrameCnn"),
    "voxel_grid": Baseline(VoxelGridConfig, "event2vec.baselines.voxel_grid:VoxelGrid"),
    "eventnet": Baseline(EventNetConfig, "event2vec.baselines.eventnet:EventNet"),
    "sparse_gru": Baseline(SparseGruConfig, "event2vec.baselines.sparse_gru:SparseGru"),
    "ma_snn": Baseline(MaSnnConfig, "event2vec.baselines.ma_snn:MaSnn"),
    "farse_cnn": Baseline(FarseCnnConfig, "event2vec.baselines.farse_cnn:FarseCnn"),
    "event_mae": Baseline(
        EventMaeConfig, "event2vec.baselines.event_mae:EventMae", "event2vec.baselines.event_mae:MaskedEventMae"
    ),
    "max_former": Baseline(MaxFormerConfig, "event2vec.baselines.max_former:MaxFormer"),
    "rg_cnn": Baseline(RgCnnConfig, "event2vec.baselines.rg_cnn:RgCnn"),
    "efv": Baseline(EfvConfig, "event2vec.baselines.efv:Efv"),
    "mstp": Baseline(MstpConfig, "event2vec.baselines.mstp:Mstp"),
    "spikgru": Baseline(SpikGruConfig, "event2vec.baselines.spikgru:SpikGru"),
}


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
