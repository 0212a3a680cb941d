"""Settings of the compared systems, one section for each. Without torch, so that `--help` is fast."""

from dataclasses import dataclass
from typing import Literal

from event2vec.model.config import NetworkConfig, NetworkName
from event2vec.settings import setting


@dataclass(frozen=True, kw_only=True)
class FrameCnnConfig(NetworkConfig, section="model"):
    """A convolutional network on frames: events counted by pixel, polarity and stretch of time."""

    network: NetworkName = setting("frame_cnn", "the network: event2vec, or a system that it is compared with")
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
