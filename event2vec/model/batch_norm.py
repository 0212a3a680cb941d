"""Batch norms that can be saved, of frames, of vectors and of frames over time."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn


class _Norm(nn.modules.batchnorm._BatchNorm):
    """Without the count of batches, which only a changing momentum needs: saved networks hold real numbers alone.

    Where a channel has a single value to learn from, it is scaled as after training.
    """

    def __init__(self, channels: int, weighted: bool = True) -> None:
        super().__init__(channels, affine=weighted)
        self.num_batches_tracked = None

    def forward(self, input: Tensor) -> Tensor:
        learns = self.training and input.numel() > input.shape[1]
        return F.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, learns, self.momentum or 0.0, self.eps
        )

    def _load_from_state_dict(self, *arguments: Any) -> None:
        nn.Module._load_from_state_dict(self, *arguments)  # torch's own adds the count


class BatchNorm(_Norm, nn.BatchNorm2d):
    """Batch norm of frames."""


class PointNorm(_Norm, nn.BatchNorm1d):
    """Batch norm of vectors: events, nodes, one for each row."""


class VolumeNorm(_Norm, nn.BatchNorm3d):
    """Batch norm of frames over time."""
