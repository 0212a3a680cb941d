"""The network for pre-training without labels, by reconstructing hidden events (App. A.5)."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from event2vec.events import EventBatch
from event2vec.model.backbone import build_backbone
from event2vec.model.classifier import check_sensor, starting_weights
from event2vec.model.config import ModelConfig, NetworkConfig
from event2vec.model.embedding import build_embedding
from event2vec.model.heads import EventDecoder
from event2vec.model.relative import hide_places, positions_of


class MaskedEventModel(nn.Module):
    """Pre-training without labels: predict the position and polarity of hidden events (App. A.5)."""

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
        hidden: Bool[Tensor, "batch length"],
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "hidden_events 3"]:
        """Predicted x, y and p of the hidden events, in [-1, 1], row by row."""
        check_sensor(batch.sensor, self.config.sensor)
        parts = self.embed.parts(batch)
        where = torch.where(hidden[..., None], self.mask_token.to(parts.where.dtype), parts.where)
        parts = parts._replace(where=where)
        positions = hide_places(positions_of(batch), hidden) if self.config.relative else None
        tokens, _ = self.backbone(parts.fuse(), batch.valid, generator, positions)
        return self.decoder(parts.separate(tokens)[hidden])


def build_masked_model(config: NetworkConfig, *, seed: int = 0) -> MaskedEventModel:
    """A model for pre-training, with initial weights drawn from `seed`."""
    if not isinstance(config, ModelConfig):
        raise ValueError(f"model.network must be event2vec for pre-training, got {config.network}")
    with starting_weights(seed):
        return MaskedEventModel(config)
