"""NetworkConfig: what every network has; ModelConfig: size and parts of ours. Without torch: `--help` is fast."""

from dataclasses import dataclass, fields
from typing import Any, Literal

from event2vec.sensor import Sensor
from event2vec.settings import Settings, setting


@dataclass(frozen=True)
class AttentionKind:
    """What a kind of attention has besides attending; its code is in `model/attention.py`, by the same name."""

    fewer_keys: bool  # keys and values have half as many heads as queries
    forget_bias: bool  # its gates start from `forget_bias`
    can_be_relative: bool  # pairs of channels can be rotated: they do not fade each at its own rate
    weights: bool  # how much one event attends to another is a number, which can be drawn


ATTENTION_KINDS = {
    "forgetting": AttentionKind(fewer_keys=True, forget_bias=True, can_be_relative=True, weights=True),
    "gated_linear": AttentionKind(fewer_keys=False, forget_bias=False, can_be_relative=False, weights=False),
}  # by the names that `ModelConfig.attention` takes
NAMES: list[str] = []  # of networks: each that is defined adds its own


def named(network: str) -> Any:
    """The setting `network` of a section, which is the name of its network."""
    if network not in NAMES:
        NAMES.append(network)
    explanation = "the network: event2vec, or a system that it is compared with"
    return setting(network, explanation, choices=lambda: tuple(NAMES))


@dataclass(frozen=True, kw_only=True)
class NetworkConfig(Settings, section="model"):
    """What every network has; the other settings are its own."""

    network: str = named("event2vec")
    sensor: Sensor = setting(Sensor(128, 128), "sensor size of the recordings, such as 128x128")
    classes: int = setting(11, "number of classes", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        (own,) = (each.default for each in fields(self) if each.name == "network")
        if self.network != own:
            raise ValueError(f"model.network is {own} in {type(self).__name__}, got {self.network}")


@dataclass(frozen=True, kw_only=True)
class ModelConfig(NetworkConfig, section="model"):
    """Size and parts of the network. Defaults: DVS Gesture, App. A.2.

        build_model(ModelConfig(sensor=Sensor(34, 34), classes=10, blocks=2, pooling=False))

    This is the section `model` of a recipe.
    """

    dim: int = setting(64, "token width, D in the paper", least=16)
    hidden: int = setting(128, "width inside the feed-forward network, D_f in the paper", least=1)
    heads: int = setting(2, "attention heads; keys and values use half as many, at least one", least=1)
    blocks: int = setting(4, "Transformer blocks, l in the paper", least=1)
    pooling: bool = setting(True, "halve the number of tokens after each block")
    spatial: Literal["parametric", "lookup"] = setting(
        "parametric", "spatial embedding: a network over coordinates, or a table with a row for each pixel (Table 4)"
    )
    temporal: Literal["convolution", "sine"] = setting(
        "convolution", "temporal embedding: convolutions over intervals, or sine waves of the time (Table 4)"
    )
    intensity: Literal["log", "linear"] = setting(
        "log", "weight of a cluster of rho events: ln rho + 1 as in the paper, or rho as in the authors' code"
    )
    attention: str = setting("forgetting", "kind of attention (Table 7)", choices=lambda: tuple(ATTENTION_KINDS))
    shared: bool = setting(True, "both directions of attention use the same weights (Table 8)")
    relative: bool = setting(
        False,
        "attention uses the relative position and time of events; ours, not the paper's (docs/differences.md)",
    )
    neighbourhood: int = setting(
        0,
        "cells to a side, such as 7, in which an event sees how many others are around it; 0: none. "
        "Ours, not the paper's (docs/differences.md)",
        least=0,
        most=15,
    )
    tokens: int = setting(
        0,
        "events that become tokens, evenly drawn from those that are read, which all count in neighbourhoods; 0: all. "
        "Ours, not the paper's (docs/differences.md)",
        least=0,
    )
    drop_tokens: float = setting(
        0.0,
        "share of the tokens of the longest recording in a batch that a step of training leaves out, others each time; "
        "answers and pre-training use all. Ours, not the paper's (docs/differences.md)",
        least=0,
        below=1,
    )
    drop_path: float = setting(
        0.0,
        "share of recordings that skip the last block in training; earlier blocks are skipped less, the first never",
        least=0,
        below=1,
    )
    forget_bias: float = setting(
        0.0, "initial bias of the forget gates: at 0 an event fades by half with each later event, at 7 by a thousandth"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim % self.heads:
            raise ValueError(f"model.dim must be a multiple of model.heads, got {self.dim} and {self.heads}")
        if self.dim % 4:
            raise ValueError(
                f"model.dim must be a multiple of 4: the embedding starts with a quarter of it, got {self.dim}"
            )
        kind = ATTENTION_KINDS[self.attention]
        if kind.fewer_keys and self.heads % max(self.heads // 2, 1):
            raise ValueError(f"model.heads must be 1, 3 or an even number, got {self.heads}")
        if self.forget_bias and not kind.forget_bias:
            raise ValueError(
                f"model.forget_bias is for the gates of forgetting attention; {self.attention} has no such gates"
            )
        if self.relative and not kind.can_be_relative:
            raise ValueError(
                "model.relative needs model.attention forgetting: it rotates pairs of channels, "
                f"and those of {self.attention} fade each at its own rate"
            )
        if self.relative and (self.dim // self.heads % 2 or self.dim // self.heads < 8):
            raise ValueError(
                "model.relative needs heads of an even width of at least 8, "
                f"got model.dim / model.heads = {self.dim // self.heads}"
            )
        if self.neighbourhood and self.neighbourhood % 2 == 0:
            raise ValueError(
                f"model.neighbourhood must be odd, so that an event is in the middle, got {self.neighbourhood}"
            )
        if self.tokens and not self.neighbourhood:
            raise ValueError(
                "model.tokens needs model.neighbourhood, such as 7, or the other events are not read at all. "
                "Set model.tokens to 0, or use a recipe without it, such as folder"
            )
        if self.drop_path and self.blocks == 1:
            raise ValueError("model.drop_path needs at least two blocks: the first block is never skipped")
