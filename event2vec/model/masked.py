"""The network that learns without labels, by finding hidden events (App. A.5)."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from event2vec.events import EventBatch
from event2vec.model.backbone import build_backbone
from event2vec.model.classifier import check_sensor, starting_weights
from event2vec.model.config import ModelConfig
from event2vec.model.embedding import build_embedding
from event2vec.model.heads import EventDecoder


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
    with starting_weights(seed):
        return MaskedEventModel(config)
