"""Which events become tokens: all of a batch, or some of them, around which all are counted (ours, not the paper's).

Attention among thousands of events is slow, and few of them say less. With `model.tokens`, a network reads all events:
it counts them around each of some, which become its tokens (`neighbourhood.py`). A row is divided into as many runs of
equally many events, and each run has one token: in training any of its events, another each time, else the middle one.
Training may do with fewer tokens than answers have (`model.drop_tokens`), and is quicker.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from event2vec.events import EventBatch
from event2vec.model.config import ModelConfig
from event2vec.model.relative import positions_of


@runtime_checkable
class Reader(Protocol):
    """What makes tokens of events: our classifier, and the network that is pre-trained."""

    config: ModelConfig

    @property
    def embed(self) -> nn.Module: ...


class Chosen(NamedTuple):
    """The events of each row that become tokens."""

    places: Int64[Tensor, "batch tokens"]
    valid: Bool[Tensor, "batch tokens"]


class Tokens(NamedTuple):
    """What the backbone takes."""

    tokens: Float[Tensor, "batch tokens dim"]
    valid: Bool[Tensor, "batch tokens"]
    positions: Float[Tensor, "batch tokens 3"] | None  # None without relative attention


def become_tokens(batch: EventBatch, chosen: Chosen | None) -> EventBatch:
    """The events that become tokens: the chosen ones, or all."""
    return batch if chosen is None else batch.at(*chosen)


def read_tokens(model: Reader, batch: EventBatch, generator: torch.Generator | None = None) -> Tokens:
    """The tokens of a batch. A generator, which training passes, draws them."""
    chosen = draw_tokens(batch.valid, model.config, generator)
    seen = become_tokens(batch, chosen)
    positions = positions_of(seen) if model.config.relative else None
    return Tokens(model.embed(batch, chosen), seen.valid, positions)


def draw_tokens(
    valid: Bool[Tensor, "batch length"], config: ModelConfig, generator: torch.Generator | None = None
) -> Chosen | None:
    """The events that become tokens in a network of these settings. A generator, as in training, leaves some out."""
    tokens = config.tokens if generator is None else tokens_in_training(config, valid.shape[1])
    return choose_tokens(valid, tokens, generator)


def tokens_in_training(config: ModelConfig, length: int) -> int:
    """How many events of a row of this length become tokens in a step of training."""
    return max(round((1 - config.drop_tokens) * min(config.tokens or length, length)), 1)


def choose_tokens(
    valid: Bool[Tensor, "batch length"], tokens: int, generator: torch.Generator | None = None
) -> Chosen | None:
    """One event of each run; rows with no more events than tokens keep all. None: all rows do, or `tokens` is 0."""
    length = valid.shape[1]
    if tokens == 0 or (not torch.compiler.is_compiling() and length <= tokens):  # compiled for rows of any length
        return None
    counts = valid.sum(dim=1, keepdim=True)
    number = torch.arange(tokens, device=valid.device)
    starts, sizes = _runs(counts, number, tokens)
    if generator is None:
        within = sizes // 2
    else:
        unit = torch.rand(len(valid), tokens, generator=generator, device=valid.device)
        within = torch.minimum((unit * sizes).long(), sizes - 1)
    few = counts <= tokens
    places = torch.where(few, number, starts + within).clamp(max=length - 1)
    return Chosen(places, ~few | (number < counts))


def hide_runs(
    hidden: Bool[Tensor, "batch tokens"], valid: Bool[Tensor, "batch length"]
) -> Bool[Tensor, "batch length"]:
    """All events of the runs that hidden tokens stand for: counted around others, they would tell the answer."""
    tokens, length = hidden.shape[1], valid.shape[1]
    counts = valid.sum(dim=1, keepdim=True)
    place = torch.arange(length, device=valid.device)
    # The last run that starts at or before a place: floor(number * counts / tokens) <= place.
    run = ((place + 1) * tokens - 1) // counts.clamp(min=1)
    run = torch.where(counts <= tokens, place, run).clamp(max=tokens - 1)
    return hidden.gather(1, run) & valid


def _runs(
    counts: Int64[Tensor, "batch 1"], number: Int64[Tensor, " tokens"], tokens: int
) -> tuple[Int64[Tensor, "batch tokens"], Int64[Tensor, "batch tokens"]]:
    """Where each run starts, and its number of events."""
    starts = number * counts // tokens
    return starts, (number + 1) * counts // tokens - starts
