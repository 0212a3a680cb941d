"""ModelConfig: size and parts of a network. Without torch, so that `--help` reads it at once."""

import math
from dataclasses import dataclass, field, fields
from typing import Literal, get_args

from event2vec.sensor import Sensor


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Size and parts of the network. Defaults: DVS Gesture, App. A.2."""

    sensor: Sensor = field(default=Sensor(128, 128))
    """Pixel grid of the recordings that the network reads."""
    classes: int = 11
    """Classes that it tells apart."""
    dim: int = 64
    """Token width, D in the paper."""
    hidden: int = 128
    """Width inside the feed-forward network, D_f in the paper."""
    heads: int = 2
    """Attention heads; keys and values use half as many, at least one."""
    blocks: int = 4
    """Transformer blocks, l in the paper."""
    pooling: bool = True
    """Halve the number of tokens after each block."""
    spatial: Literal["parametric", "lookup"] = "parametric"
    """Where an event was: a network over coordinates, or a table with a row for each pixel (Table 4)."""
    temporal: Literal["convolution", "sine"] = "convolution"
    """When it was: convolutions over intervals, or sine waves of the time (Table 4)."""
    intensity: Literal["log", "linear"] = "log"
    """How strongly a cluster of rho events speaks: ln rho + 1 as in the paper, or rho as in the authors' code."""
    attention: Literal["forgetting", "gated_linear"] = "forgetting"
    """How events see each other (Table 7)."""
    shared: bool = True
    """Both directions of attention use the same weights (Table 8)."""
    drop_path: float = 0.0
    """Share of recordings that skip the last block in training; earlier blocks are skipped less, the first never."""
    forget_bias: float = 0.0
    """Where forget gates start: at 0 an event fades by half with the next one, at 7 by a thousandth."""

    def __post_init__(self) -> None:
        for name in ("classes", "dim", "hidden", "heads", "blocks"):
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name} must be at least 1, got {getattr(self, name)}")
        for setting in fields(self):
            choices = get_args(setting.type)
            if choices and getattr(self, setting.name) not in choices:
                found = getattr(self, setting.name)
                raise ValueError(f"model.{setting.name} must be one of {', '.join(choices)}, got {found!r}")
        if self.dim % self.heads:
            raise ValueError(f"model.dim must be a multiple of model.heads, got {self.dim} and {self.heads}")
        if self.dim % 4 or self.dim < 16:
            raise ValueError(
                f"model.dim must be a multiple of 4 and at least 16: the embedding starts with a quarter "
                f"of it, got {self.dim}"
            )
        if self.attention == "forgetting" and self.heads % max(self.heads // 2, 1):
            raise ValueError(f"model.heads must be 1, 3 or an even number, got {self.heads}")
        if self.attention == "gated_linear" and self.forget_bias:
            raise ValueError(
                "model.forget_bias starts the gates of forgetting attention; gated_linear has none of them"
            )
        if not 0 <= self.drop_path < 1:
            raise ValueError(f"model.drop_path must be from 0 to below 1, got {self.drop_path}")
        if self.drop_path and self.blocks == 1:
            raise ValueError(
                "model.drop_path skips later blocks more than the first; with one block there is none to skip"
            )
        if not math.isfinite(self.forget_bias):
            raise ValueError(f"model.forget_bias must be a number, got {self.forget_bias}")
