"""A convolutional network on frames: how events are usually classified.

Events become frames of counts by polarity and stretch of time, made on the fly from the same augmented events that
Event2Vec reads. Each stage is two convolutions of 3 x 3 with batch norm and ReLU, then 2 x 2 max pooling; the mean
over pixels goes to a linear layer. With `recurrent`, each frame goes through the stages on its own, and a GRU
reads their outputs.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from event2vec.baselines.config import FrameCnnConfig
from event2vec.data.sampling import Sampling
from event2vec.events import EventBatch
from event2vec.model.classifier import Classifier, check_sensor
from event2vec.model.dropout import drop
from event2vec.model.frame_branch import Stages
from event2vec.model.frames import make_frames


class FrameCnn(Classifier):
    """Frames, stages of convolutions, a mean over pixels and a linear layer; with `recurrent`, a GRU before it."""

    def __init__(self, config: FrameCnnConfig, class_names: tuple[str, ...], sampling: Sampling) -> None:
        super().__init__(config, class_names, sampling)
        self.settings = config
        self.stages = Stages(2 if config.recurrent else 2 * config.bins, config.channels, config.stages)
        features = self.stages.features
        self.gru = nn.GRU(features, features, batch_first=True) if config.recurrent else None
        self.head = nn.Linear(features, config.classes)

    def forward(self, batch: EventBatch, generator: torch.Generator | None = None) -> Float[Tensor, "batch classes"]:
        check_sensor(batch.sensor, self.config.sensor)
        frames = make_frames(batch, self.settings.bins, self.settings.placing).log1p()
        frames = frames.to(self.head.weight.dtype)
        if self.gru is None:
            features = self.stages(frames.flatten(1, 2))
        else:
            moments = self.stages(frames.flatten(0, 1)).unflatten(0, (batch.x.shape[0], -1))
            features = self.gru(moments)[0].mean(dim=1)
        return self.head(drop(features, self.settings.dropout, generator))
