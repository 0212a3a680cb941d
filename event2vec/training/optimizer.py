"""The optimiser of a recipe, which weights it treats alike, and how its learning rate changes."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from event2vec.training.config import TrainingConfig
from event2vec.training.muon import Muon


def build_optimizer(
    module: nn.Module, config: TrainingConfig, rate: float, device: torch.device, precision: str | int | None
) -> torch.optim.AdamW:
    """What trains all weights of a module."""
    # One call for all weights. With mixed precision, Lightning clips no gradients for an optimiser that does this.
    fused = device.type == "cpu" and precision == "32-true"
    kind = Muon if config.optimizer == "muon" else torch.optim.AdamW
    groups = weight_groups(module, config.optimizer)
    return kind(groups, lr=rate, weight_decay=config.weight_decay, fused=fused)


def weight_groups(module: nn.Module, optimizer: str) -> list[dict[str, Any]]:
    """Weights that are treated alike. Muon turns the matrices inside a network, not those at its ends."""
    decayed, free = split_by_decay(module)
    groups: list[dict[str, Any]] = [{"params": decayed}, {"params": free, "weight_decay": 0.0}]
    if optimizer == "muon":
        ends = {id(weight) for name, weight in module.named_parameters() if "head" in name or "kernels" in name}
        inner = [
            weight for weight in decayed if weight.ndim == 2 and min(weight.shape) >= 16 and id(weight) not in ends
        ]
        turned = {id(weight) for weight in inner}
        groups[0]["params"] = [weight for weight in decayed if id(weight) not in turned]
        groups.append({"params": inner, "orthogonal": True})
    return groups


def split_by_decay(module: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """Parameters with weight decay, and those without: norms, biases, the mask token and lookup tables.

    Each step uses only a few rows of a table; decay would shrink all the others.
    """
    tables = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    decayed, free = list[Tensor](), list[Tensor]()
    for name, parameter in module.named_parameters():
        spared = parameter.ndim < 2 or "norm" in name or id(parameter) in tables
        (free if spared else decayed).append(parameter)
    return decayed, free


def learning_rate_factor(epoch: float, config: TrainingConfig, rate: float) -> float:
    """Linear warm-up from 1 %, then cosine decay to the final rate (App. A.2)."""
    warmup = min(config.warmup_epochs, config.epochs)
    if epoch < warmup:
        return 0.01 + 0.99 * epoch / warmup
    final = config.final_learning_rate / rate if rate else 0.0
    progress = min((epoch - warmup) / max(config.epochs - warmup, 1e-9), 1.0)
    return final + (1 - final) * (1 + math.cos(math.pi * progress)) / 2
