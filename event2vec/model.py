"""The networks put together: a classifier, and the model that learns by finding hidden events (Sec. 3.6, App. A.5)."""

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from event2vec.attention import Bidirectional, Direction, ForgettingDirection, GatedLinearDirection
from event2vec.backbone import Backbone, Block
from event2vec.embedding import SPATIAL, TEMPORAL, Event2Vec
from event2vec.errors import Event2VecError
from event2vec.events import EventBatch, Events, Sensor
from event2vec.heads import ClassHead, EventDecoder
from event2vec.sampling import Sampling


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


def build_model(
    config: ModelConfig, *, class_names: Sequence[str] = (), sampling: Sampling | None = None, seed: int = 0
) -> "Classifier":
    """A classifier with starting weights that `seed` decides. Classes without names are called by their number."""
    with _starting_weights(seed):
        return Classifier(config, tuple(class_names), sampling or Sampling())


@contextmanager
def _starting_weights(seed: int) -> Iterator[None]:
    """torch draws starting weights from a generator of its own: set it, and give it back as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would touch those of CUDA too
        yield


def build_embedding(config: ModelConfig) -> Event2Vec:
    spatial, temporal = SPATIAL[config.spatial](config.dim, config.sensor), TEMPORAL[config.temporal](config.dim)
    return Event2Vec(spatial, temporal, config.intensity)


def build_backbone(config: ModelConfig) -> Backbone:
    deepest = max(config.blocks - 1, 1)
    blocks = [
        Block(build_attention(config), config.dim, config.hidden, config.drop_path * depth / deepest)
        for depth in range(config.blocks)
    ]
    return Backbone(blocks, config.dim, config.pooling)


def build_attention(config: ModelConfig) -> Bidirectional:
    def direction() -> Direction:
        if config.attention == "gated_linear":
            return GatedLinearDirection(config.dim, config.heads)
        return ForgettingDirection(config.dim, config.heads, config.forget_bias)

    return Bidirectional(config.dim, *(direction() for _ in range(1 if config.shared else 2)))


@dataclass(frozen=True)
class Prediction:
    """An answer for one recording."""

    label: int
    name: str
    scores: Float[Tensor, " classes"]  # probabilities; they sum to 1


class Classifier(nn.Module):
    """Tokens, backbone, class: a batch in, logits out; or one recording in, an answer out."""

    def __init__(self, config: ModelConfig, class_names: tuple[str, ...], sampling: Sampling) -> None:
        super().__init__()
        if class_names and len(class_names) != config.classes:
            raise ValueError(f"the network tells {config.classes} classes apart, got {len(class_names)} names")
        self.config = config
        self.class_names = class_names or tuple(map(str, range(config.classes)))
        self.sampling = sampling
        self.embed = build_embedding(config)
        self.backbone = build_backbone(config)
        self.head = ClassHead(config.dim, config.classes)

    def forward(self, batch: EventBatch, generator: torch.Generator | None = None) -> Float[Tensor, "batch classes"]:
        """Logits. A generator, as training passes it, turns drop path on."""
        check_sensor(batch.sensor, self.config.sensor)
        return self.classify(self.embed(batch), batch.valid, generator)

    def classify(
        self,
        tokens: Float[Tensor, "batch length dim"],
        valid: Bool[Tensor, "batch length"],
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "batch classes"]:
        """Logits of tokens, for those who change tokens on the way."""
        return self.head(*self.backbone(tokens, valid, generator))

    @torch.no_grad()
    def predict(self, events: Events, generator: torch.Generator | None = None) -> Prediction:
        """The class of one recording, of any length and sensor; other sensors are scaled to the network's.

        Without a generator the draw of events is the same every time.
        """
        if len(events) == 0:
            raise Event2VecError("a recording without events cannot be classified")
        if generator is None:
            generator = torch.Generator(events.t.device).manual_seed(0)
        shortened = self.sampling.shorten(events.on_sensor(self.config.sensor), generator)
        device = self.head.linear.weight.device
        scores = self(EventBatch.pad([shortened]).to(device)).float().softmax(dim=-1)[0].cpu()
        label = int(scores.argmax())
        return Prediction(label, self.class_names[label], scores)

    def with_table(self) -> "Classifier":
        """A copy for answers alone, with the spatial embedding of every pixel computed once (Eq. 5).

        It pays when more events will be read than the sensor has pixels. Weights are shared with this one; train and
        save that.
        """
        quick = copy.copy(self)
        quick._modules = dict(self._modules)
        quick.embed = self.embed.with_table()
        return quick


class MaskedEventModel(nn.Module):
    """Learns without labels: some events lose their place and polarity, and the network tells them (App. A.5)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if config.pooling:
            raise ValueError("model.pooling must be false for pre-training: each hidden event needs a token at the end")
        self.config = config
        self.embed = build_embedding(config)
        self.backbone = build_backbone(config)
        self.decoder = EventDecoder(config.dim)
        self.mask_token = nn.Parameter(torch.randn(config.dim) * 0.02)

    def forward(
        self,
        batch: EventBatch,
        hidden: Bool[Tensor, "batch length"],
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "hidden_events 3"]:
        """x, y and p, in [-1, 1], of the events that are hidden, row by row."""
        check_sensor(batch.sensor, self.config.sensor)
        parts = self.embed.parts(batch)
        where = torch.where(hidden[..., None], self.mask_token.to(parts.where.dtype), parts.where)
        parts = parts._replace(where=where)
        tokens, _ = self.backbone(parts.fuse(), batch.valid, generator)
        return self.decoder(parts.separate(tokens)[hidden])


def build_masked_model(config: ModelConfig, *, seed: int = 0) -> MaskedEventModel:
    """A model for pre-training with starting weights that `seed` decides."""
    with _starting_weights(seed):
        return MaskedEventModel(config)


def check_sensor(found: Sensor, expected: Sensor) -> None:
    if found != expected:
        raise ValueError(f"the network reads a sensor of {expected}, got a batch of {found}; see Events.on_sensor")


class TensorClassifier(nn.Module):
    """A classifier that takes plain tensors, for torch.export and what comes after it."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(
        self,
        x: Float[Tensor, "batch length"],
        y: Float[Tensor, "batch length"],
        t: Int64[Tensor, "batch length"],
        p: Bool[Tensor, "batch length"],
        rho: Float[Tensor, "batch length"],
        valid: Bool[Tensor, "batch length"],
    ) -> Float[Tensor, "batch classes"]:
        return self.classifier(EventBatch(x, y, t, p, rho, valid, self.classifier.config.sensor))


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
