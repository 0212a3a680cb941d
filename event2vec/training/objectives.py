"""What training minimises: one class for each task, a batch in, a loss and metrics out."""

from abc import abstractmethod
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from event2vec.events import EventBatch
from event2vec.model.classifier import Classifier
from event2vec.model.embedding import normalised_coordinates
from event2vec.model.masked import MaskedEventModel
from event2vec.training.augment import TokenMix
from event2vec.training.masking import SpanMask


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """What is learnt, beyond the labels themselves."""

    label_smoothing: float = 0.0
    """Share of each label that is spread over all classes."""
    token_mix: float = 0.0
    """Share of batches in which recordings lend each other tokens."""
    mask: SpanMask = field(default=SpanMask())
    """Which events pre-training hides."""

    def __post_init__(self) -> None:
        for name in ("label_smoothing", "token_mix"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"objective.{name} must be from 0 to 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class Outcome:
    """What a batch came to: the loss to minimise, and means over `count` recordings or events for people."""

    loss: Float[Tensor, ""]
    metrics: dict[str, Tensor]
    count: int


class Objective(nn.Module):
    """A task: holds the network that it trains. A generator means training; without one nothing is random."""

    model: Classifier | MaskedEventModel
    metrics: tuple[str, ...]
    """Names of what an outcome holds, in a fixed order."""
    monitor: str
    """The metric that says which epoch was best."""
    higher_is_better: bool

    @abstractmethod
    def forward(self, batch: EventBatch, labels: Int64[Tensor, " batch"], generator: torch.Generator | None) -> Outcome:
        """What the batch came to."""


class Classification(Objective):
    """Cross entropy, with label smoothing and TokenMix where the recipe asks for them."""

    metrics = ("loss", "accuracy")
    monitor, higher_is_better = "accuracy", True

    def __init__(self, model: Classifier, config: ObjectiveConfig) -> None:
        super().__init__()
        self.model: Classifier = model
        self.config = config

    def forward(self, batch: EventBatch, labels: Int64[Tensor, " batch"], generator: torch.Generator | None) -> Outcome:
        tokens = self.model.embed(batch)
        targets = F.one_hot(labels, self.model.config.classes).float()
        if generator is not None and self._mixes(generator):
            mix = TokenMix()
            partner, places = mix.draw(batch.valid, generator)
            tokens, share = mix.apply(tokens, batch.valid, partner, places)
            targets = torch.lerp(targets, targets[partner], share[:, None])
        logits = self.model.classify(tokens, batch.valid, generator).float()
        smoothing = self.config.label_smoothing if generator is not None else 0.0
        loss = F.cross_entropy(logits, targets, label_smoothing=smoothing)
        accuracy = (logits.argmax(dim=-1) == labels).float().mean()
        return Outcome(loss, {"loss": loss.detach(), "accuracy": accuracy}, len(labels))

    def _mixes(self, generator: torch.Generator) -> bool:
        if not self.config.token_mix:
            return False
        return bool(torch.rand((), generator=generator, device=generator.device) < self.config.token_mix)


class MaskedReconstruction(Objective):
    """Mean squared error of x, y and p, scaled to [-1, 1], over hidden events alone (App. A.5).

    `loss_of_mean` is what the mean of a batch's hidden events would cost as the answer to all of them: a little less
    than the mean of all recordings would.
    """

    metrics = ("loss", "loss_of_mean", "polarity_accuracy", "x_error_pixels", "y_error_pixels")
    monitor, higher_is_better = "loss", False

    def __init__(self, model: MaskedEventModel, config: ObjectiveConfig) -> None:
        super().__init__()
        self.model: MaskedEventModel = model
        self.config = config

    def forward(self, batch: EventBatch, labels: Int64[Tensor, " batch"], generator: torch.Generator | None) -> Outcome:
        # Without a generator all recordings of a batch are masked the same way every time.
        draw = generator if generator is not None else torch.Generator(batch.x.device).manual_seed(0)
        hidden = self.config.mask.draw(batch.valid, draw)
        answers = self.model(batch, hidden, generator).float()
        truth = normalised_coordinates(batch)[hidden]
        count = max(len(truth), 1)  # a batch so short that nothing was hidden teaches nothing
        loss = (answers - truth).square().sum() / (3 * count)
        off = (answers - truth).abs().detach()
        metrics = {
            "loss": loss.detach(),
            "loss_of_mean": (truth - truth.sum(dim=0) / count).square().sum() / (3 * count),
            "polarity_accuracy": ((answers[:, 2] > 0) == (truth[:, 2] > 0)).sum() / count,
            "x_error_pixels": off[:, 0].sum() / count * (batch.sensor.width - 1) / 2,
            "y_error_pixels": off[:, 1].sum() / count * (batch.sensor.height - 1) / 2,
        }
        return Outcome(loss, metrics, len(truth))
