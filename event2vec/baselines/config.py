"""Settings of the compared systems, one section for each. Without torch, so that `--help` is fast.

Defaults are sizes for a laptop; the recipes whose names end in `_published` have the sizes of the published systems.
"""

from dataclasses import dataclass
from typing import Literal

from event2vec.model.config import NetworkConfig, named
from event2vec.settings import setting

SIDE = "width and height of the frames, which are scaled to it from any sensor"


@dataclass(frozen=True, kw_only=True)
class FrameCnnConfig(NetworkConfig, section="model"):
    """A convolutional network on frames: events counted by pixel, polarity and stretch of time."""

    network: str = named("frame_cnn")
    bins: int = setting(5, "frames of equal duration that a recording is cut into", least=1, most=256)
    channels: int = setting(16, "channels of the first stage; each further stage has twice as many", least=1, most=1024)
    stages: int = setting(3, "pairs of convolutions; each stage halves the frame", least=1, most=8)
    placing: Literal["bilinear", "nearest"] = setting(
        "bilinear", "how an event between pixels is counted: shared among its four neighbours, or at the nearest"
    )
    recurrent: bool = setting(False, "read frames one after the other with a GRU, instead of all as channels at once")
    dropout: float = setting(
        0.2, "share of the features that are dropped in training before the last layer", least=0, below=1
    )


@dataclass(frozen=True, kw_only=True)
class VoxelGridConfig(NetworkConfig, section="model"):
    """A residual network on a voxel grid, as in the study of sampling strategies (Figure 3)."""

    network: str = named("voxel_grid")
    bins: int = setting(9, "moments between which events are shared by distance", least=1, most=256)
    side: int = setting(32, SIDE, least=1, most=512)
    layout: Literal["small", "resnet34"] = setting("small", "three residual blocks, or ResNet-34 as published")
    channels: int = setting(16, "channels of the first stage; each further stage has twice as many", least=1, most=1024)


@dataclass(frozen=True, kw_only=True)
class EventNetConfig(NetworkConfig, section="model"):
    """EventNet (CVPR 2019): a network on single events, and a maximum that can be updated event by event."""

    network: str = named("eventnet")
    features: int = setting(256, "complex features of an event, K", least=1, most=65536)
    hidden: int = setting(128, "width of the classifier on the features of all events", least=1, most=65536)
    hidden_layers: int = setting(
        1, "hidden layers of that classifier; each further one is half as wide", least=1, most=8
    )
    tau: float = setting(0.0, "seconds after which an event is forgotten; 0: the duration of the recording", least=0)


@dataclass(frozen=True, kw_only=True)
class SparseGruConfig(NetworkConfig, section="model"):
    """EGRU (ICLR 2023): convolutions on frames, and a GRU whose units send only events."""

    network: str = named("sparse_gru")
    bins: int = setting(20, "frames of equal duration that a recording is cut into", least=1, most=256)
    side: int = setting(32, SIDE, least=1, most=512)
    layout: Literal["small", "published"] = setting("small", "convolutions: three small ones, or five as published")
    features: int = setting(64, "features of a frame", least=1, most=65536)
    units: int = setting(128, "units of the GRU", least=1, most=65536)
    dropout: float = setting(0.2, "share of the features of frames that are dropped in training", least=0, below=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout == "published" and self.side < 67:  # four poolings would leave nothing to pool
            raise ValueError(f"model.side must be at least 67 for model.layout published, got {self.side}")


@dataclass(frozen=True, kw_only=True)
class MaSnnConfig(NetworkConfig, section="model"):
    """MA-SNN (TPAMI 2023): spiking convolutions on frames, with attention over time, channels and places."""

    network: str = named("ma_snn")
    bins: int = setting(10, "frames of equal duration that a recording is cut into", least=1, most=256)
    side: int = setting(32, SIDE, least=8, most=512)
    layout: Literal["small", "published"] = setting(
        "small", "pool after each convolution, or after all but the first, as published"
    )
    channels: int = setting(24, "channels of the first convolution; the others have twice as many", least=8, most=1024)
    hidden: int = setting(64, "units of the layer before the last", least=1, most=65536)


@dataclass(frozen=True, kw_only=True)
class FarseCnnConfig(NetworkConfig, section="model"):
    """FARSE-CNN (ECCV 2024): convolutions on active pixels alone, each pixel with the state of a shared LSTM."""

    network: str = named("farse_cnn")
    side: int = setting(16, "width and height of the grid of pixels, to which events are moved", least=2, most=512)
    moments: int = setting(16, "moments to which times are rounded; events of a moment are read at once", least=1)
    stages: int = setting(3, "pairs of layers; after each but the last, 2 x 2 pixels become one", least=1, most=8)
    channels: int = setting(8, "features of the first pair; each further pair has twice as many", least=1, most=1024)
    features: int = setting(48, "features of the last layer, which reads the whole sensor", least=1, most=65536)


@dataclass(frozen=True, kw_only=True)
class EventMaeConfig(NetworkConfig, section="model"):
    """Event MAE (ICASSP 2025): patches of nearby events as tokens of a Transformer, after Point-MAE."""

    network: str = named("event_mae")
    patches: int = setting(32, "patches, whose centres lie far from each other", least=1, most=1024)
    patch: int = setting(32, "events in a patch: those nearest to its centre", least=1, most=1024)
    dim: int = setting(64, "token width", least=8, most=4096)
    blocks: int = setting(4, "Transformer blocks", least=1, most=64)
    heads: int = setting(4, "attention heads", least=1)
    widening: int = setting(2, "width of the feed-forward network, as a multiple of the token width", least=1, most=8)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim % self.heads:
            raise ValueError(f"model.dim must be a multiple of model.heads, got {self.dim} and {self.heads}")


@dataclass(frozen=True, kw_only=True)
class MaxFormerConfig(NetworkConfig, section="model"):
    """Max-Former (NeurIPS 2025): a spiking Transformer on frames, with max pooling and depthwise convolution early."""

    network: str = named("max_former")
    bins: int = setting(8, "frames with equal numbers of events that a recording is cut into", least=1, most=256)
    side: int = setting(32, SIDE, least=1, most=512)
    dim: int = setting(64, "channels of the last stage; the first convolution has a sixteenth", least=16, most=4096)
    heads: int = setting(4, "heads of the spiking attention", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim % 16 or self.dim % self.heads:
            raise ValueError(f"model.dim must be a multiple of 16 and of model.heads ({self.heads}), got {self.dim}")


@dataclass(frozen=True, kw_only=True)
class RgCnnConfig(NetworkConfig, section="model"):
    """RG-CNN (ICCV 2019): residual graph convolutions with spline kernels on neighbouring events."""

    network: str = named("rg_cnn")
    side: int = setting(32, "pixels to a side that coordinates are scaled to, in which distances are counted", least=8)
    layout: Literal["small", "published"] = setting("small", "three levels, or four as published, with other cells")
    channels: int = setting(16, "features of the first level; each further level has twice as many", least=1, most=1024)
    neighbours: int = setting(16, "most edges to an event", least=1, most=128)
    hidden: int = setting(128, "units of the layer before the last", least=1, most=65536)
    dropout: float = setting(0.3, "share of these that are dropped in training", least=0, below=1)


@dataclass(frozen=True, kw_only=True)
class EfvConfig(NetworkConfig, section="model"):
    """EFV (PRCV 2023): a graph of voxels and event images, fused by a Transformer with bottleneck tokens."""

    network: str = named("efv")
    bins: int = setting(4, "event images of equal duration", least=1, most=64)
    side: int = setting(32, SIDE, least=8, most=512)
    layout: Literal["small", "published"] = setting("small", "images: three convolutions, or ResNet-18 as published")
    dim: int = setting(64, "token width", least=8, most=4096)
    blocks: int = setting(1, "Transformer blocks on images alone; two more fuse", least=1, most=64)
    heads: int = setting(4, "attention heads", least=1)
    bottleneck: int = setting(4, "tokens through which images and voxels exchange what they know", least=1, most=1024)
    voxels: int = setting(128, "voxels with most events that become nodes", least=1, most=8192)
    cells: int = setting(8, "voxels along x and along y", least=1, most=256)
    moments: int = setting(8, "voxels along time", least=1, most=256)
    channels: int = setting(16, "features of the graph's first layer; each further layer has twice as many", least=1)
    layers: int = setting(2, "residual layers of the graph", least=1, most=8)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim % self.heads:
            raise ValueError(f"model.dim must be a multiple of model.heads, got {self.dim} and {self.heads}")


@dataclass(frozen=True, kw_only=True)
class MstpConfig(NetworkConfig, section="model"):
    """MSTP (CVPR 2022): two ResNets, over few and over many frames, and a GRU in both directions."""

    network: str = named("mstp")
    bins: int = setting(8, "frames of the slow branch", least=1, most=256)
    rate: int = setting(4, "frames of the fast branch for each of these", least=1, most=16)
    side: int = setting(32, SIDE, least=1, most=512)
    channels: int = setting(
        12, "channels of the slow branch's first stage; each further one has twice as many", least=4
    )
    blocks: int = setting(1, "residual blocks in each of four stages; 2 in ResNet-18", least=1, most=8)
    units: int = setting(64, "units of each direction of a GRU", least=1, most=65536)
    layers: int = setting(1, "GRUs on top of each other", least=1, most=8)
    dropout: float = setting(0.2, "share of the features of moments that are dropped in training", least=0, below=1)


@dataclass(frozen=True, kw_only=True)
class SpikGruConfig(NetworkConfig, section="model"):
    """SpikGRU2+ (CVPRW 2024): a spiking ResNet over frames, and spiking GRUs in both directions."""

    network: str = named("spikgru")
    bins: int = setting(16, "frames of equal duration that a recording is cut into", least=1, most=256)
    side: int = setting(32, SIDE, least=1, most=512)
    channels: int = setting(10, "channels of the first stage; each further stage has twice as many", least=1, most=1024)
    blocks: int = setting(1, "residual blocks in each of four stages; 2 in ResNet-18", least=1, most=8)
    units: int = setting(64, "units of each direction of a GRU", least=1, most=65536)
    layers: int = setting(1, "GRUs on top of each other", least=1, most=8)
    dropout: float = setting(0.2, "share of spikes between GRUs that are dropped in training", least=0, below=1)
