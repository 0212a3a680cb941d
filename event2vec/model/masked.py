"""Networks for pre-training without labels; ours reconstructs hidden events (App. A.5)."""

from typing import Any, overload

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from event2vec.events import EventBatch
from event2vec.model.backbone import build_backbone
from event2vec.model.classifier import check_sensor, starting_weights
from event2vec.model.config import ModelConfig, NetworkConfig
from event2vec.model.embedding import build_embedding
from event2vec.model.heads import EventDecoder
from event2vec.model.networks import masked_class
from event2vec.model.relative import hide_places, positions_of
from event2vec.model.tokens import Chosen, become_tokens, hide_runs


class MaskedModel(nn.Module):
    """A network that learns without labels, by predicting what is hidden from it."""

    config: NetworkConfig
    reusable: tuple[str, ...]
    """The parts, by the beginnings of their names, that a training may start from."""


class MaskedEventModel(MaskedModel):
    """Pre-training without labels: predict the position and polarity of hidden events (App. A.5)."""

    config: ModelConfig
    reusable = ("embed.", "backbone.")

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if config.pooling:
            raise ValueError("model.pooling must be false for pre-training: each hidden event needs its own token")
        self.config = config
        self.embed = build_embedding(config)
        self.backbone = build_backbone(config)
        self.decoder = EventDecoder(config.dim)
        self.mask_token = nn.Parameter(torch.randn(config.dim) * 0.02)

    def forward(
        self,
        batch: EventBatch,
        hidden: Bool[Tensor, "batch tokens"],
        generator: torch.Generator | None = None,
        chosen: Chosen | None = None,
    ) -> Float[Tensor, "hidden_events 3"]:
        """Predicted x, y and p of the hidden tokens, in [-1, 1], row by row."""
        check_sensor(batch.sensor, self.config.sensor)
        seen = become_tokens(batch, chosen)
        parts = self.embed.parts(batch, hidden if chosen is None else hide_runs(hidden, batch.valid), chosen)
        where = torch.where(hidden[..., None], self.mask_token.to(parts.where.dtype), parts.where)
        parts = parts._replace(where=where)
        positions = hide_places(positions_of(seen), hidden) if self.config.relative else None
        tokens, _ = self.backbone(parts.fuse(), seen.valid, generator, positions)
        return self.decoder(parts.separate(tokens)[hidden])


@overload
def build_masked_model(config: ModelConfig, *, seed: int = 0) -> MaskedEventModel: ...


@overload
def build_masked_model(config: NetworkConfig, *, seed: int = 0) -> MaskedModel: ...


def build_masked_model(config: NetworkConfig, *, seed: int = 0) -> MaskedModel:
    """A model for pre-training, with initial weights drawn from `seed`."""
    network: Any = MaskedEventModel if isinstance(config, ModelConfig) else masked_class(config.network)
    with starting_weights(seed):
        return network(config)
