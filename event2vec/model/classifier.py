"""The classifier: events in, a class out (Sec. 3.6)."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from event2vec.data.sampling import Sampling
from event2vec.errors import Event2VecError
from event2vec.events import EventBatch, Events
from event2vec.model.backbone import build_backbone
from event2vec.model.config import ModelConfig
from event2vec.model.embedding import build_embedding
from event2vec.model.heads import ClassHead
from event2vec.sensor import Sensor


def build_model(
    config: ModelConfig, *, class_names: Sequence[str] = (), sampling: Sampling | None = None, seed: int = 0
) -> "Classifier":
    """A classifier with starting weights that `seed` decides. Classes without names are called by their number."""
    with starting_weights(seed):
        return Classifier(config, tuple(class_names), sampling or Sampling())


@contextmanager
def starting_weights(seed: int) -> Iterator[None]:
    """torch draws starting weights from a generator of its own: set it, and give it back as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would touch those of CUDA too
        yield


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
