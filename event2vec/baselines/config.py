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
