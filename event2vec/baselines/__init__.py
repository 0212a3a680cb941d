"""Systems that Event2Vec is compared with: networks with a batch in and logits out, trained by the same command.

A new one is a file with its network and a line in `NETWORKS`; `event2vec compare` then has a row for it. Settings are
beside each other in `config.py`, which does not load torch, so that `--help` is fast; those of a network of your own
may be in its own file.
"""

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
from event2vec.model.networks import NETWORKS as NETWORKS
from event2vec.model.networks import Baseline as Baseline

NETWORKS |= {
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
