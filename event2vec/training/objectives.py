"""What training minimises: one class for each task, a batch in, a loss and metrics out."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from event2vec.baselines.event_mae import MaskedEventMae, chamfer_distance, cut_patches
from event2vec.errors import Event2VecError
from event2vec.events import EventBatch
from event2vec.model.classifier import Classifier, Event2VecClassifier
from event2vec.model.coordinates import normalised_coordinates
from event2vec.model.masked import MaskedEventModel, MaskedModel
from event2vec.model.tokens import become_tokens, choose_tokens
from event2vec.training.augment import TokenMix
from event2vec.training.config import ObjectiveConfig
from event2vec.training.masking import draw_patches, draw_spans


@dataclass(frozen=True)
class Outcome:
    """The result of a batch: the loss to minimise, and means over `count` recordings or events for people."""

    loss: Float[Tensor, ""]
    metrics: dict[str, Tensor]
    count: int


class Objective(nn.Module):
    """A task: holds the network that it trains. A generator means training; without one nothing is random."""

    model: Classifier | MaskedModel
    metrics: tuple[str, ...]
    """Names of what an outcome holds, in a fixed order."""
    monitor: str
    """The metric that says which epoch was best."""
    higher_is_better: bool

    @abstractmethod
    def forward(self, batch: EventBatch, labels: Int64[Tensor, " batch"], generator: torch.Generator | None) -> Outcome:
        """The result of a batch."""


class Classification(Objective):
    """Cross entropy, with label smoothing, TokenMix and weights of classes if the recipe asks for them.

    A recording has the weight of its class, and one with mixed tokens the mean of its classes' weights by their shares.
    What label smoothing spreads over other classes does not count: else all recordings would teach the rare classes.
    Validation is not weighted.
    """

    metrics = ("loss", "accuracy")
    monitor, higher_is_better = "accuracy", True

    class_weights: Tensor | None

    def __init__(
        self, model: Classifier, config: ObjectiveConfig, class_weights: Float[Tensor, " classes"] | None = None
    ) -> None:
        super().__init__()
        if config.token_mix and not isinstance(model, Event2VecClassifier):
            raise Event2VecError(
                f"objective.token_mix mixes tokens, which {model.config.network} does not have. Set it to 0"
            )
        self.model: Classifier = model
        self.config = config
        self.register_buffer("class_weights", class_weights, persistent=False)  # made from the data, not learnt

    def forward(self, batch: EventBatch, labels: Int64[Tensor, " batch"], generator: torch.Generator | None) -> Outcome:
        targets = F.one_hot(labels, self.model.config.classes).float()
        penalty: Tensor | float = 0.0
        if generator is None:
            logits = self.model(batch)
        elif self._mixes(generator):
            logits, targets = self._classify_mixed(batch, targets, generator)
        else:
            logits, penalty = self.model.learn(batch, generator)
        logits = logits.float()
        smoothing = self.config.label_smoothing if generator is not None else 0.0
        if generator is None or self.class_weights is None:
            loss = F.cross_entropy(logits, targets, label_smoothing=smoothing)
        else:
            losses = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="none")
            loss = (losses * (targets @ self.class_weights)).mean()
        loss = loss + penalty
        accuracy = (logits.argmax(dim=-1) == labels).float().mean()
        return Outcome(loss, {"loss": loss.detach(), "accuracy": accuracy}, len(labels))

    def _classify_mixed(
        self, batch: EventBatch, targets: Float[Tensor, "batch classes"], generator: torch.Generator
    ) -> tuple[Float[Tensor, "batch classes"], Float[Tensor, "batch classes"]]:
        """Logits of tokens that are mixed with those of partners, and targets that are mixed as they are."""
        model, mix = self.model, TokenMix()
        assert isinstance(model, Event2VecClassifier)
        tokens, valid, positions = model.read(batch, generator)
        partner, places = mix.draw(valid, generator)
        tokens = mix.apply(tokens, partner, places)
        positions = None if positions is None else mix.apply(positions, partner, places)
        logits = model.classify(tokens, valid, generator, positions)
        return logits, torch.lerp(targets, targets[partner], mix.share(valid, places)[:, None])

    def _mixes(self, generator: torch.Generator) -> bool:
        if not self.config.token_mix:
            return False
        return bool(torch.rand((), generator=generator, device=generator.device) < self.config.token_mix)


def balanced_weights(labels: Int64[Tensor, " recordings"], classes: int) -> Float[Tensor, " classes"]:
    """Weights by which all classes count the same; their mean over recordings is 1."""
    counts = torch.bincount(labels, minlength=classes)
    return len(labels) / ((counts > 0).sum() * counts.clamp(min=1))


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
        chosen = choose_tokens(batch.valid, self.model.config.tokens, generator)
        seen = become_tokens(batch, chosen)
        hidden = draw_spans(self.config.mask, seen.valid, _draw_of(batch, generator))
        answers = self.model(batch, hidden, generator, chosen).float()
        truth = normalised_coordinates(seen)[hidden]
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


class MaskedPatches(Objective):
    """Chamfer distance of the events of hidden patches, x, y and t scaled to [-1, 1], as in Point-MAE.

    `loss_of_centre` is what the centres of the patches would cost as the answer.
    """

    metrics = ("loss", "loss_of_centre")
    monitor, higher_is_better = "loss", False

    def __init__(self, model: MaskedEventMae, config: ObjectiveConfig) -> None:
        super().__init__()
        self.model: MaskedEventMae = model
        self.config = config

    def forward(self, batch: EventBatch, labels: Int64[Tensor, " batch"], generator: torch.Generator | None) -> Outcome:
        patches = cut_patches(batch, self.model.settings)
        hidden = draw_patches(self.config.mask.share, patches.centre.shape[:2], _draw_of(batch, generator))
        truth = patches.events[hidden][..., :3]
        loss = chamfer_distance(self.model(patches, hidden).float(), truth)
        of_centre = chamfer_distance(torch.zeros_like(truth[:, :1]), truth)
        return Outcome(loss, {"loss": loss.detach(), "loss_of_centre": of_centre}, len(truth))


def _draw_of(batch: EventBatch, generator: torch.Generator | None) -> torch.Generator:
    """What hides events: without a generator, as in validation, every batch is hidden the same way every time.

    Its seed is plain, and not one of `data.seeding`: golden losses and those of earlier runs were measured with it.
    """
    return generator if generator is not None else torch.Generator(batch.x.device).manual_seed(0)


def masked_objective(model: MaskedModel, config: ObjectiveConfig) -> MaskedReconstruction | MaskedPatches:
    """What a network for pre-training minimises."""
    if isinstance(model, MaskedEventMae):
        return MaskedPatches(model, config)
    assert isinstance(model, MaskedEventModel)
    return MaskedReconstruction(model, config)
